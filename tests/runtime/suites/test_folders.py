"""nano's judge set as a suite: the same questions, and the same verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.tiers import quick

from labs.nano.suite import judge_talk
from triplepoint import Engine
from triplepoint.runtime.suites.attempt import attempt
from triplepoint.runtime.suites.definition import read_suite
from triplepoint.runtime.suites.suite_files import read_folder

SUITE = Path(__file__).parents[3] / "labs" / "nano" / "suite.toml"


@pytest.mark.slow
def test_it_has_every_question() -> None:
    """Each conversation is a task, each of its questions a turn, in the set's families."""
    suite = read_suite(SUITE)
    folders = [read_folder(path) for path in sorted((SUITE.parent / "suite").glob("*.toml"))]

    talks = [talk for folder in folders for talk in folder.talks]
    asked = [[question.ask for question in task.questions] for task in suite.tasks]
    assert asked == [[turn.ask for turn in talk.turns] for talk in talks]
    groups = [[question.group for question in task.questions] for task in suite.tasks]
    assert groups == [[talk.family_of(n) for n in range(len(talk.turns))] for talk in talks]


@pytest.mark.parametrize("name", quick(("documents", "bank", "ferry"), ci=("documents", "bank")))
def test_it_says_what_the_judge_says(nano_engine: Engine, tmp_path: Path, name: str) -> None:
    """The verdict on each question is that of `labs.nano.suite`."""
    suite = read_suite(SUITE)
    folder = read_folder(SUITE.parent / "suite" / f"{name}.toml")
    folder.write(tmp_path / "root")
    tasks = [task for task in suite.tasks if task.id.startswith(f"{name}/")]
    if name == "documents":
        tasks = tasks[:5]
    for task, talk in zip(tasks, folder.talks, strict=False):
        row = attempt(suite, task, suite.settings[0], nano_engine, 0)
        verdicts = judge_talk(nano_engine, tmp_path / "root", talk)

        assert [q["answer"] for q in row["questions"]] == [v.answer for v in verdicts]
        assert [q["passed"] for q in row["questions"]] == [v.right for v in verdicts]
