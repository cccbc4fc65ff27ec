"""`triplepoint plan cost`: from a trace, from a profile, from prices of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from triplepoint.runtime.cli import main
from triplepoint.runtime.replay import examples

SEARCH = str(examples.folder() / "search.jsonl")


def _json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, object]:
    assert main(["plan", "cost", *argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_recorded_trace(capsys: pytest.CaptureFixture[str]) -> None:
    """All choices, the break-even, what moves the price, and how old prices are."""
    assert main(["plan", "cost", "search"]) == 0
    said = capsys.readouterr().out
    for words in (
        "of 4 recorded",
        "desktop",
        "gpt-4o-mini",
        "is cheaper than",
        "what changes the cost",
    ):
        assert words in said
    assert "checked on" in said
    assert "--prices" in said


def test_speeds_that_are_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The seed's c6i.2xlarge through the command: 7.87 dollars for a million tokens of output."""
    svg = tmp_path / "cost.svg"
    argv = ["--speeds", "100,12", "--hardware", "c6i.2xlarge", "--svg", str(svg)]
    found = _json(capsys, *argv)
    first = found["choices"][0]  # type: ignore[index]
    assert (first["name"], round(first["output"], 2)) == ("c6i.2xlarge", 7.87)
    assert first["speeds"]["basis"] == "given"
    assert ElementTree.fromstring(svg.read_text()).tag.endswith("svg")


def test_a_profile_and_a_machine_of_ones_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Use, prices and hours as given; a price file's API is among the choices."""
    prices = tmp_path / "own.toml"
    prices.write_text('[[apis]]\nname = "ours"\ninput = 3\noutput = 9\n')
    use = ["--questions", "50", "--input-tokens", "1000", "--cache-hits", "0.5"]
    own = ["--output-tokens", "100", "--buy", "3650", "--years", "1", "--hours", "24"]
    more = ["--watts", "100", "--kwh", "0.1", "--prices", str(prices), "--speeds", "1000,10"]
    found = _json(capsys, SEARCH, *use, *own, *more)
    assert found["usage"]["cached"] == 500  # type: ignore[index]
    choices = {one["name"]: one for one in found["choices"]}  # type: ignore[union-attr]
    assert choices["ours"]["question"] == pytest.approx((1000 * 3 + 100 * 9) / 1e6)
    busy = 50 * (0.5 + 10) / 3600
    energy = (0.1 * busy + 0.04 * (24 - busy)) * 0.1
    assert choices["desktop"]["question"] == pytest.approx((10 + energy) / 50)


def test_answers_of_which_none_is_of_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What one costs is null: JSON has no infinity."""
    path = tmp_path / "r.jsonl"
    path.write_text('{"status": "error", "usage": {"input_tokens": 100, "output_tokens": 10}}')
    assert main(["plan", "cost", str(path), "--speeds", "400,25", "--json"]) == 0
    told = capsys.readouterr().out
    assert "Infinity" not in told
    assert {one["answer"] for one in json.loads(told)["choices"]} == {None}


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "speeds are not known"),
        (["--speeds", "1,1", "--rent", "1", "--buy", "1"], "exclude each other"),
        (["--speeds", "1,1", "--hours", "25"], "24"),
        (["--speeds", "1,1", "--rent", "1", "--watts", "8"], "--watts has no effect"),
        (["--speeds", "1,1", "--hardware", "c6i.2xlarge", "--kwh", "1"], "--kwh has no effect"),
        (["--speeds", "1,1", "--hardware", "c6i.2xlarge", "--hours", "8"], "--hours has no effect"),
        (["--speeds", "1,1", "--hardware", "abacus"], "desktop"),
        (["--machine", "x"], "--machine needs -m MODEL"),
        (["--speeds", "1"], "two speeds"),
        (["missing.jsonl"], "does not exist"),
    ],
)
def test_what_is_missing_is_said(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and a status that is not 0."""
    assert main(["plan", "cost", *argv]) != 0
    assert told in capsys.readouterr().err


def test_measured_joules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A trace's joules replace the assumed watts of one's own machine, unless they are given."""
    lines = [json.loads(line) for line in Path(SEARCH).read_text().splitlines()]
    for one in lines:
        if one["event"] == "phase":
            one["joules"] = 40.0 * one["wall_s"]
    trace = tmp_path / "joules.jsonl"
    trace.write_text("".join(json.dumps(one) + "\n" for one in lines))

    def question(*argv: str) -> float:
        return _json(capsys, *argv)["choices"][0]["question"]  # type: ignore[index]

    assert question(str(trace)) == pytest.approx(question(SEARCH, "--watts", "40"))
    assert question(str(trace)) < question(SEARCH)
    for given in (["--watts", "140"], ["--hardware", "c6i.2xlarge"], ["--speeds", "100,10"]):
        assert question(str(trace), *given) == pytest.approx(question(SEARCH, *given))
    assert main(["plan", "cost", str(trace)]) == 0
    assert "power: 40 W, as the traces measured it" in capsys.readouterr().err


def test_a_simulated_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """Its speeds are labeled; more threads are faster; a model needs a known shape."""

    def speeds(machine: str) -> dict[str, float | str]:
        found = _json(capsys, "-m", "qwen3:0.6b", "--machine", machine)
        return found["choices"][0]["speeds"]  # type: ignore[index]

    few, many = speeds("epyc-7763-2s:8"), speeds("epyc-7763-2s:64")
    assert few["basis"] == many["basis"] == "predicted, simulated"
    assert few["prefill"] < many["prefill"]  # type: ignore[operator]
    assert main(["plan", "cost", "-m", "qwen3:0.6b", "--machine", "rk3588"]) == 0
    assert "RK3588, 8 threads (simulated); from public figures" in capsys.readouterr().err
    assert main(["plan", "cost", "-m", "own.gguf", "--machine", "rk3588"]) == 2
    assert "rk3588 is simulated" in capsys.readouterr().err
