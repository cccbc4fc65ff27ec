"""Every page in one browser: no wider than a phone or a desk, and silent on its console.

The server's page is in `runtime/serve/test_status_page.py`, with a server to show.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.chromium import Chromium
from helpers.openai_server import openai_server, text
from helpers.planned import MACHINE

from triplepoint.runtime.cli import main
from triplepoint.runtime.planning.programs import Program, Request
from triplepoint.runtime.planning.validate import Round
from triplepoint.runtime.replay import examples

WIDE = "a name without any space that goes on and on".replace(" ", "_") * 3
LONG = {"id": WIDE, "group": "a", "question": WIDE, "checks": [{"equals": WIDE}]}


def plan(folder: Path) -> Path:
    """A sweep, what would help, and rounds that were measured."""
    machine, rounds = folder / "machine.json", folder / "rounds.jsonl"
    machine.write_text(json.dumps(MACHINE.as_dict()))
    seconds = {f"{name} {q}": 0.2 for name in ("TTFT", "TPOT") for q in ("p50", "p99")}
    programs = (Program((Request(0.0, 100, 20),), kept=False),)
    rounds.write_text(Round(2, programs, {"throughput": 20.0, **seconds}).as_json() + "\n")
    argv = ["-m", "qwen3:0.6b", "--machine", str(machine), "--rate", "3", "--what-if"]
    argv += ["--conversations", "20", "--sweep", "machines=1,2", "--rounds", str(rounds)]
    assert main(["plan", *argv, "--html", str(folder / "plan.html")]) == 0
    return folder / "plan.html"


def view(folder: Path) -> Path:
    """Several runs, so that there is a list of them."""
    page = folder / "view.html"
    names = [str(examples.folder() / f"{name}.jsonl") for name in ("search", "chat")]
    assert main(["trace", "view", *names, "-o", str(page)]) == 0
    return page


def report(folder: Path) -> Path:
    """All reports over recorded traces."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    database, page = str(folder / "traces.duckdb"), folder / "report.html"
    assert main(["trace", "ingest", str(examples.folder()), "-o", database]) == 0
    assert main(["trace", "report", database, "--html", str(page)]) == 0
    return page


def evaluation(folder: Path) -> Path:
    """A suite whose names and answers are long words."""
    with openai_server(text(WIDE[1:])) as server:
        models = [{"name": WIDE, "model": f"{server.url}#test"}]
        suite = folder / "suite.json"
        suite.write_text(json.dumps({"models": models, "tasks": [LONG]}))
        page = folder / "eval.html"
        argv = ["eval", str(suite), "--html", str(page), "-o", str(folder / "rows.jsonl")]
        assert main(argv) == 0
    return page


@pytest.mark.slow
@pytest.mark.parametrize("make", [plan, view, report, evaluation])
def test_a_page_fits_its_screen(
    make: Callable[[Path], Path], browser: Chromium, tmp_path: Path
) -> None:
    """On a phone and on a desk, light and dark; nothing is printed as an error."""
    browser.fits(make(tmp_path))


@pytest.mark.slow
def test_keyboards_see_where_they_are(browser: Chromium, tmp_path: Path) -> None:
    """What has the focus has an outline, on whichever page: all have the same style sheet."""
    browser.open(view(tmp_path))
    browser.key("Tab")
    style = "getComputedStyle(document.activeElement).outlineStyle"
    assert browser.value("document.activeElement !== document.body")
    assert browser.value(style) == "solid"


@pytest.mark.slow
def test_print_is_light_and_whole(browser: Chromium, tmp_path: Path) -> None:
    """On paper a dark page is light, and panes do not scroll."""
    browser.open(view(tmp_path), dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.value("getComputedStyle(document.body).backgroundColor") == "rgb(244, 244, 241)"
    assert browser.value("getComputedStyle(document.querySelector('#talk')).overflow") == "visible"
    browser.call("Emulation.setEmulatedMedia", media="")
