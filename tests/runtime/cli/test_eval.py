"""``triplepoint eval``: a suite on a scripted server, its tables, pages and exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.chromium import Chromium
from helpers.openai_server import openai_server, text

from triplepoint.runtime.cli import main

Cli = Callable[..., tuple[int, str, str]]
TASKS = [
    {"id": "sum", "group": "numbers", "question": "1 + 1?", "checks": [{"equals": "2"}]},
    {"id": "name", "group": "words", "question": "Who?", "checks": [{"regex": "^I am"}]},
]


@pytest.fixture
def cli(in_folder: Callable[[str], Cli]) -> Cli:
    """Run ``triplepoint eval ARGS`` in an empty folder; gives status, stdout and stderr."""
    return in_folder("eval")


def write(tmp_path: Path, url: str, **more: Any) -> None:
    models = [{"name": "m", "model": f"{url}#test"}]
    suite = {"models": models, "tasks": TASKS, "price_per_million": {"output": 1000}, **more}
    (tmp_path / "s.json").write_text(json.dumps(suite))


def test_tables_and_threshold(cli: Cli, tmp_path: Path) -> None:
    """What was asked is shown again without asking; the status says whether it was enough."""
    with openai_server(text("2"), text("You, <b>of course</b> \x1b[2J")) as server:
        write(tmp_path, server.url)
        status, out, err = cli("s.json", "--min-accuracy", 0.9)
    assert status == 1
    assert "accuracy is 50.0%; 90.0% was asked for" in err
    assert "results: s.results.jsonl" in err
    lines = out.splitlines()
    assert lines[0].split()[:3] == ["model", "setting", "accuracy"]
    assert "50.0%" in lines[1]
    assert "What was wrong" not in out

    status, out, _ = cli("s.json", "--misses", "--min-accuracy", 0.5, "--html", "page.html")
    assert status == 0
    assert "regex: it has no match for '^I am'" in out
    assert "\x1b" not in out
    found = json.loads(cli("s.json", "--report-only", "--json")[1])
    assert found["scores"][0]["cost"] == pytest.approx(0.001)
    assert found["scores"][0]["cost_of_right"] == pytest.approx(0.002)
    assert found["results"] == "s.results.jsonl"
    assert main(["plan", "cost", "s.results.jsonl", "--speeds", "1000,100"]) == 0
    assert "&lt;b&gt;" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_the_page_in_a_browser(cli: Cli, tmp_path: Path, browser: Chromium) -> None:
    """It loads nothing, runs nothing, and has its tables in light and dark."""
    with openai_server(text("2"), text("<img src=x onerror=alert(1)>")) as server:
        write(tmp_path, server.url)
        assert cli("s.json", "--html", "page.html")[0] == 0
    for dark in (False, True):
        browser.open(tmp_path / "page.html", dark=dark)
        assert browser.complaints == []
        assert browser.requests == [(tmp_path / "page.html").as_uri()]
    titles = "[...document.querySelectorAll('h2')].map((n) => n.innerText)"
    assert browser.value(titles) == ["Models and settings", "By group", "What was wrong"]
    assert browser.value("document.querySelectorAll('img, script').length") == 0
    assert browser.value("document.querySelectorAll('details').length") == 0


def test_parts_of_a_suite(cli: Cli, tmp_path: Path) -> None:
    """Some tasks, other repeats, another model; what is missing is said."""
    with openai_server(*[text("2")] * 5) as server:
        write(tmp_path, server.url)
        (tmp_path / "r.jsonl").touch()
        status, _, err = cli("s.json", "--report-only", "-o", "r.jsonl", "--min-accuracy", 0.5)
        assert status == 1
        assert "accuracy is not known yet; 50.0% was asked for" in err
        assert cli("s.json", "--task", "sum", "--repeats", 2, "-o", "r.jsonl")[0] == 0
        assert len(server.requests) == 2
        status, _, err = cli("s.json", "--report-only", "-o", "r.jsonl", "--min-accuracy", 0)
        assert status == 1
        assert "1 attempts are missing" in err
        assert cli("s.json", "--task", "words", "-m", f"{server.url}#b", "-o", "r.jsonl")[0] == 0
        assert server.requests[-1]["model"] == "b"
        assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 3
        assert cli("s.json", "--task", "sum", "--fresh", "-o", "r.jsonl")[0] == 0
        assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 1
    assert "no task or group has a name that starts" in cli("s.json", "--task", "x")[2]


def test_a_group_of_turns(cli: Cli, tmp_path: Path) -> None:
    """`--task` finds a conversation by a group that only one of its turns has."""
    checks = [{"lacks": "x"}]
    turns = [{"ask": "a", "checks": checks}, {"ask": "b", "checks": checks, "group": "follow-up"}]
    with openai_server(text("1"), text("2")) as server:
        write(tmp_path, server.url, tasks=[*TASKS, {"id": "talk", "turns": turns}])
        status, out, _ = cli("s.json", "--task", "follow-up", "--json")
    assert (status, json.loads(out)["scores"][0]["questions"]) == (0, 2)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["none.json"], 2, "cannot read the suite none.json"),
        (["s.json", "--min-accuracy", "80"], 2, "not a share from 0 to 1"),
        (["s.json", "--report-only"], 2, "cannot read the results s.results.jsonl"),
        (["s.json", "-o", "s.json"], 2, "name another"),
    ],
)
def test_mistakes(cli: Cli, tmp_path: Path, words: list[str], status: int, message: str) -> None:
    """Each is one line."""
    write(tmp_path, "http://127.0.0.1:9/v1")

    found = cli(*words)

    assert found[0] == status
    assert message in found[2]
    assert len(found[2].splitlines()) == 1
