"""`triplepoint plan`: a forecast as table, JSON and page; this machine measured and simulated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from triplepoint.runtime.cli import main

SMALL = ["--shared", "200", "--new", "60", "--reply", "8", "--requests", "2", "--seed", "1"]


@pytest.fixture
def machine(tmp_path: Path) -> list[str]:
    """Limits of a machine that is not this one."""
    from helpers.planned import MACHINE

    path = tmp_path / "other.json"
    path.write_text(json.dumps(MACHINE.as_dict()))
    return ["-m", "qwen3:0.6b", "--machine", str(path)]


def test_a_forecast(machine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each machine count, a page without scripts or references, and a picture."""
    html, svg = tmp_path / "plan.html", tmp_path / "plan.svg"
    argv = [*machine, *SMALL, "--conversations", "30", "--rate", "3", "--kv-memory", "1GB"]
    argv += ["--sweep", "machines=1,2", "--what-if", "--html", str(html), "--svg", str(svg)]
    assert main(["plan", *argv]) == 0
    said = capsys.readouterr().out
    assert "next bottleneck" in said
    assert "pass times predicted with typical shares" in said
    assert "one more core" in said
    page = html.read_text()
    assert page.count("<svg") >= 3
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    for words in ("What would help", "Q8 KV cache", "Where the machines", "Next bottleneck"):
        assert words in page
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")


def test_the_bottleneck_and_what_helps(
    machine: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names no remedy but the one that helps most of those that were tried."""
    argv = ["plan", *machine, *SMALL, "--conversations", "30", "--rate", "3"]
    assert main(argv) == 0
    assert "--what-if shows what would help" in capsys.readouterr().out
    assert main([*argv, "--what-if"]) == 0
    said = capsys.readouterr().out
    gains = {name: int(gain) for name, gain in re.findall(r"^(.+): ([+-]\d+)% work", said, re.M)}
    (named,) = re.findall(r"of what was tried, (.+) helps most", said)
    assert gains[named] == max(gains.values())


def test_a_day_is_billed_as_cost_does(
    machine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A machine that is rented by the second costs its share in use, one by the day all of it; a
    bought one takes idle power besides."""
    prices = tmp_path / "own.toml"
    prices.write_text(
        "".join(
            f'[[hardware]]\nname = "{name}"\nkind = "cpu"\n{rest}\n'
            for name, rest in {
                "second": 'hourly = 100\nbilling = "second"',
                "always": 'hourly = 100\nbilling = "always"',
                "own": "price = 1095\nyears = 1\nwatts = 1000\nidle_watts = 100",
            }.items()
        )
    )
    days = {}
    for name in ("second", "always", "own"):
        argv = ["plan", *machine, *SMALL, "--conversations", "30", "--rate", "3", "--prices"]
        assert main([*argv, str(prices), "--hardware", name]) == 0
        (line,) = (one for one in capsys.readouterr().out.splitlines() if "as asked" in one)
        cells = line.split()
        days[name], used = float(cells[-2].replace(",", "")), float(cells[-5].rstrip("%")) / 100
    assert 0 < used < 0.9
    assert days["always"] == 2400
    assert days["second"] == pytest.approx(2400 * used, rel=0.1)
    assert 3 < days["own"] < 3 + 24 * 1.0


def test_figures(machine: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """As JSON: all conversations answered, shares add up, the same for the same seed."""
    argv = ["plan", *machine, *SMALL, "--conversations", "20", "--json"]
    found = []
    for _ in range(2):
        assert main(argv) == 0
        found += json.loads(capsys.readouterr().out)["results"]
    one, again = found
    assert one == again
    assert (one["conversations"], one["failed"]) == (20, 0)
    assert sum(one["bounds"].values()) == pytest.approx(1.0)


def test_recorded_programs(machine: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Traces of the library are simulated."""
    argv = ["plan", "search", "chat", *machine, "--conversations", "12", "--rate", "2", "--json"]
    assert main(argv) == 0
    (one,) = json.loads(capsys.readouterr().out)["results"]
    assert one["conversations"] == 12


def test_conversations_that_fit_nowhere(
    machine: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """All are longer than the context: they are counted as failed, and nothing is divided by 0."""
    argv = [*machine, "--shared", "40000", "--conversations", "5", "--what-if"]
    page = str(tmp_path / "plan.html")
    assert main(["plan", *argv, "--html", page, "--json", "--sweep", "machines=1,2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["conversations"], one["failed"]) for one in told["results"]] == [(0, 5), (0, 5)]
    assert {one["gain"] for one in told["changes"]} == {0.0}
    assert main(["plan", *argv]) == 0
    assert "next bottleneck: none: no request was answered" in capsys.readouterr().out


@pytest.mark.slow
def test_this_machine_beside_its_forecast(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A clock is learned, agents are run and simulated, rounds are kept; errors are told."""
    clock, rounds = tmp_path / "clock.json", tmp_path / "rounds.jsonl"
    work = ["-m", "nano", "--work", "2,30,5,20,6"]
    assert main(["plan", *work, "--learn", str(clock)]) == 0
    assert "passes: alone" in capsys.readouterr().out
    argv = ["--clock", str(clock), "--rounds", str(rounds)]
    for _ in range(2):
        assert main(["plan", *work, *argv, "--validate", "3"]) == 0
    assert "2 rounds of 3 agents" in capsys.readouterr().out
    assert main(["plan", *argv, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["3"]) == {"throughput", "TTFT p50", "TTFT p99"}

    other = json.loads(clock.read_text()) | {"model": "other"}
    clock.write_text(json.dumps(other))
    for what in (["--learn", str(clock)], ["--clock", str(clock), "--validate", "2"]):
        assert main(["plan", *work, *what]) != 0
        assert "is a clock for other" in capsys.readouterr().err
    assert json.loads(clock.read_text()) == other


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--sweep", "machines"], "not a sweep"),
        (["--sweep", "route=up,down"], "not one of"),
        (["--sweep", "machines=0"], "above 0"),
        (["--goals", "3"], "two times"),
        (["--clock", "x", "-m", "y"], "cannot be combined with -m"),
        (["--validate", "2"], "with --learn FILE"),
        (["--learn", "x"], "name one with -m"),
        (["--rounds", "/nowhere/x"], "no rounds"),
        (["--kv-memory", "1MB"], "no page"),
        (["missing.jsonl"], "does not exist"),
    ],
)
def test_what_is_wrong_is_said(
    argv: list[str], told: str, machine: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and a status that is not 0."""
    bare = any(word in argv for word in ("--clock", "--learn", "--validate"))
    assert main(["plan", *argv, *([] if bare else machine)]) != 0
    assert told in capsys.readouterr().err
