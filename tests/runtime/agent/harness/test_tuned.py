"""Settings that were tuned for a file: kept by its hash, used and told where nothing is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import END, MakeEngine, run_all

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.harness import tuned
from triplepoint.runtime.agent.harness.defaults import DEFAULTS, harness_of
from triplepoint.runtime.agent.harness.examples import EXAMPLES, with_examples
from triplepoint.runtime.agent.harness.tuned import Tuned, keep, path_of, tuned_for

DIGEST, OTHER = "a" * 64, "b" * 64
FOUND = Tuned({"examples": True, "best_lines": 2}, "2026-11-30", "0.1.0", 20, 0.6, 0.39, 0.78, 0.5)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "triplepoint" / "harness"


@pytest.fixture
def engine(scripted: MakeEngine) -> Any:
    made = scripted(*["Yes." + END] * 4)
    made.model.sha256 = DIGEST
    return made


def test_what_is_kept_is_found_again(cache: Path) -> None:
    """By the file's hash alone; whole, for this user alone."""
    keep(DIGEST, FOUND)
    assert [one.name for one in cache.iterdir()] == [f"{DIGEST}.json"]
    assert path_of(DIGEST).stat().st_mode & 0o077 == 0
    assert tuned_for(DIGEST) == FOUND
    assert tuned_for(OTHER) is None
    assert tuned_for("") is None
    assert FOUND.text == (
        "examples=on, best_lines=2 (60% of 20 questions right, 39% to 78%; default 50%; 2026-11-30)"
    )


def test_what_is_shipped_counts_where_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not beside what was found here."""
    shipped = replace(FOUND, settings={})
    monkeypatch.setattr(tuned, "SHIPPED", {DIGEST: shipped})
    assert tuned_for(DIGEST) == shipped
    keep(DIGEST, FOUND)
    assert tuned_for(DIGEST) == FOUND


@pytest.mark.parametrize("text", ["", "{", "[]", '{"settings": {}}'])
def test_a_damaged_file_is_none(text: str) -> None:
    """It can be made again."""
    keep(DIGEST, FOUND)
    path_of(DIGEST).write_text(text)
    assert tuned_for(DIGEST) is None


def test_agents_use_it_and_say_so(engine: Any, folder: Path) -> None:
    """In a note and in the header, which has all settings: a replay needs nothing else."""
    keep(DIGEST, FOUND)
    agent = Agent(engine, workspace=folder, trace=False)
    run_all(agent, "What is the error in app.log?")
    header = agent.trace.header
    assert header is not None
    assert header.config["harness"] == {**DEFAULTS, "examples": True, "best_lines": 2}
    assert any(
        "harness settings tuned for this model: examples=on" in note
        for note in header.config["notes"]
    )
    assert header.config["system"].endswith(EXAMPLES)
    assert agent.messages[0].content == header.config["system"]


def test_another_file_does_not_use_it(engine: Any, folder: Path) -> None:
    """Nor one that was changed: its hash is another one."""
    keep(DIGEST, FOUND)
    engine.model.sha256 = OTHER
    agent = Agent(engine, workspace=folder, trace=False)
    assert agent.setup.harness.settings == DEFAULTS
    assert EXAMPLES not in agent.setup.config.system
    assert not any("tuned" in note for note in agent.setup.notes)


@pytest.mark.parametrize("given", [True, False, {"grounded": True}])
def test_what_is_given_overrides_it(engine: Any, given: Any) -> None:
    """Settings, or the harness as a whole."""
    keep(DIGEST, FOUND)
    found = harness_of(given, engine)
    assert not found.settings.get("examples")
    assert found.note == ""


def test_settings_of_another_version_are_not_used(engine: Any) -> None:
    """Those that are gone."""
    keep(DIGEST, replace(FOUND, settings={"gone": True}))
    assert (harness_of(None, engine).settings, harness_of(None, engine).note) == (DEFAULTS, "")


def test_where_the_default_is_best_nothing_is_said(engine: Any) -> None:
    """Nor changed."""
    keep(DIGEST, replace(FOUND, settings={}))
    found = harness_of(None, engine)
    assert (found.settings, found.note) == (DEFAULTS, "")


def test_examples_stand_once_and_need_a_folder(engine: Any, folder: Path) -> None:
    """Also behind a recorded system message that has them; without files there are none."""
    assert with_examples(with_examples("Be brief.")).count(EXAMPLES) == 1
    assert with_examples("") == EXAMPLES
    on = {"examples": True}
    assert Agent(engine, trace=False, harness=on).setup.config.system == ""
    again = Agent(engine, workspace=folder, trace=False, harness=on, system=f"Hm.\n\n{EXAMPLES}")
    assert again.setup.config.system == f"Hm.\n\n{EXAMPLES}"


def test_fewer_best_lines_stand_before_the_question(engine: Any, folder: Path) -> None:
    """As many as the setting says."""
    (folder / "app.log").write_text("".join(f"10:0{n} ERROR disk {n} full\n" for n in range(9)))
    lines = []
    for most in (5, 2):
        agent = Agent(engine, workspace=folder, trace=False, harness={"best_lines": most})
        run_all(agent, "Which disk is full?")
        lines.append(agent.messages[-2].content.partition("\n\n")[0].count("\napp.log:"))
    assert lines[1] == 2 < lines[0] <= 5
