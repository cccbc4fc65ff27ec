"""Tuning the harness: ranking by log-probability, then real answers, and the rule that decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scoring_engine import Scoring, right_reply, scoring_engine

from triplepoint import Engine, RemoteEngine
from triplepoint.errors import SettingError
from triplepoint.runtime.agent.harness.examples import EXAMPLES
from triplepoint.runtime.suites import harness_tuning
from triplepoint.runtime.suites.fresh_questions import Fresh, Question
from triplepoint.runtime.suites.harness_tuning import (
    ASKED,
    CHANGES,
    RANKED,
    UNSEEN,
    HarnessTuner,
    Report,
    check_tunable,
    share,
)

MakeEngine = Callable[..., Any]
WRONG = "I see.<|im_end|>"


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many questions on every machine."""
    monkeypatch.setattr(harness_tuning, "RANKED", (3, 3))
    monkeypatch.setattr(harness_tuning, "ASKED", (10, 10))


def replies(*good: bool) -> list[str]:
    """What a model says to the fresh questions under each setting, one after another."""
    said: list[str] = []
    for question in Fresh(UNSEEN).questions:
        for is_good in good:
            said += right_reply(question) if is_good or question.after else [WRONG]
    return said


def tuned(scripted: MakeEngine, folder: Path, likes: str, said: Sequence[str]) -> Report:
    engine = scoring_engine(scripted, likes, said)
    return HarnessTuner(engine, folder).run()


def test_the_setting_that_the_model_likes_is_found(scripted: MakeEngine, tmp_path: Path) -> None:
    """The same each time; where both answer as well it is kept, with its figures."""
    found = [tuned(scripted, tmp_path / name, EXAMPLES, replies(True, True)) for name in ("a", "b")]
    first = found[0]
    assert first.best == {"examples": True}
    assert [one.change for one in first.ranking] == [one.change for one in found[1].ranking]
    assert [one.shares for one in first.ranking] == [one.shares for one in found[1].ranking]
    assert first.ranking[0].score > first.ranking[1].score + 0.2
    assert (first.gained, first.lost) == (0, 0)
    assert first.tuned.settings == {"examples": True}
    assert (first.tuned.questions, first.tuned.rate, first.tuned.default_rate) == (10, 1.0, 1.0)
    assert first.tuned.low < 1.0 == first.tuned.high


def test_what_answers_worse_is_not_kept(scripted: MakeEngine, tmp_path: Path) -> None:
    """However likely it made the right texts: the default is kept, with the default's rate."""
    found = tuned(scripted, tmp_path, EXAMPLES, replies(True, False))
    assert found.best == {"examples": True}
    assert (found.gained, found.lost) == (0, 9)  # the task is done by both
    assert found.tuned.settings == {}
    assert (found.tuned.rate, found.tuned.default_rate) == (1.0, 1.0)


def test_what_answers_better_is_kept(scripted: MakeEngine, tmp_path: Path) -> None:
    """With its rate beside the default's."""
    found = tuned(scripted, tmp_path, EXAMPLES, replies(False, True))
    assert (found.gained, found.lost) == (9, 0)
    assert found.tuned.settings == {"examples": True}
    assert (found.tuned.rate, found.tuned.default_rate) == (1.0, 0.1)


def test_where_nothing_is_better_the_default_answers_alone(
    scripted: MakeEngine, tmp_path: Path
) -> None:
    """Each question once."""
    found = tuned(scripted, tmp_path, "no prompt has this", replies(True))
    assert found.best == {}
    assert found.ranking[0].change == {}
    assert found.tuned.settings == {}
    assert (found.tuned.questions, found.gained, found.lost) == (10, 0, 0)


def test_two_changes_that_are_better_are_ranked_together(
    scripted: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of prompts that are the same, the score is."""
    monkeypatch.setattr(
        harness_tuning,
        "CHANGES",
        ({}, {"examples": True}, {"examples": True, "grounded": True}, {"plain_tools": True}),
    )
    found = tuned(scripted, tmp_path, EXAMPLES, replies(True, True))
    changes = [one.change for one in found.ranking]
    assert {"examples": True, "grounded": True} in changes
    assert len(changes) == 5
    assert {one.score for one in found.ranking if one.change.get("examples")} == {
        found.ranking[0].score
    }


def test_the_time_is_predicted_and_told(scripted: MakeEngine, tmp_path: Path) -> None:
    """Before the ranking goes on, with how many questions there will be; then what is left."""
    started: list[tuple[int, int, float]] = []
    told: list[tuple[str, float]] = []
    tuner = HarnessTuner(
        scoring_engine(scripted, EXAMPLES, replies(True, True)),
        tmp_path,
        progress=lambda *now: told.append(now),
        on_start=lambda *plan: started.append(plan),
    )
    report = tuner.run()
    ((ranked, asked, seconds),) = started
    assert (ranked, asked) == (3, 10)
    assert 0 < seconds == report.predicted_s < 600
    assert all(before >= after for (_, before), (_, after) in pairwise(told))
    assert "question 10 of 10" in told[-1][0]


def test_more_time_means_more_questions(
    scripted: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as fit into the time, within limits."""
    monkeypatch.setattr(harness_tuning, "RANKED", RANKED)
    monkeypatch.setattr(harness_tuning, "ASKED", ASKED)

    class Stopped(Exception):
        pass

    found = []

    def stop(ranked: int, asked: int, seconds: float) -> None:
        found.append((ranked, asked))
        raise Stopped

    for minutes in (1e-6, 1e6):
        engine = scoring_engine(scripted, EXAMPLES, [])
        with pytest.raises(Stopped):
            HarnessTuner(engine, tmp_path / str(minutes), minutes=minutes, on_start=stop).run()
    assert found == [(RANKED[0], ASKED[0]), (RANKED[1], ASKED[1])]


def test_a_share_counts_per_token(scripted: MakeEngine) -> None:
    """A long text is not less likely for being long; of equals each has the same share."""
    engine = scoring_engine(scripted, "never", [])
    encode = engine.tokenizer.encode
    session: Any = Scoring(engine, [])
    said = [encode("a rather long text"), encode("short"), encode("x")]
    assert share(session, encode("A prompt"), said) == pytest.approx(1 / 3)
    assert share(session, encode("A prompt too"), said) == pytest.approx(1 / 3)
    assert session.tokens == encode("A prompt too")  # for the next one to begin with


def test_what_cannot_be_tuned(nano_engine: Engine) -> None:
    """nano, which knows its own loop alone, and models of servers; in plain words."""
    with pytest.raises(SettingError, match="trained on the bare loop; nothing to tune"):
        check_tunable(nano_engine)
    with pytest.raises(SettingError, match="runs on a server"):
        check_tunable(RemoteEngine("http://127.0.0.1:1", model="m"))


# --- the questions


@pytest.mark.parametrize("seed", range(20))
def test_the_right_text_alone_is_right(seed: int, tmp_path: Path) -> None:
    """Of what may be said to a question; all of it is different."""
    fresh = Fresh(seed)
    fresh.write(tmp_path)
    for question in fresh.questions:
        assert len({str(one) for one in question.said}) == len(question.said) >= 4
        if not question.after:
            right = [question.right(str(one), tmp_path) for one in question.said]
            assert right == [True] + [False] * (len(right) - 1), question


def test_a_task_is_judged_by_its_files(tmp_path: Path) -> None:
    """Whatever is said of it."""
    fresh = Fresh(3)
    fresh.write(tmp_path)
    task = next(one for one in fresh.questions if one.after)
    assert not task.right("Done.", tmp_path)
    ((path, text),) = task.after.items()
    (tmp_path / path).write_text(text)
    assert task.right("", tmp_path)


def test_a_seed_gives_the_same_folder() -> None:
    """And another seed another one; the kinds are the same."""

    def asked(questions: list[Question]) -> list[str]:
        return [one.turn.ask for one in questions]

    assert Fresh(5).files == Fresh(5).files != Fresh(6).files
    assert asked(Fresh(5).questions) == asked(Fresh(5).questions) != asked(Fresh(6).questions)
    kinds = [one.kind for one in Fresh(5).questions]
    assert kinds == [one.kind for one in Fresh(6).questions]
    assert len(kinds) == len(set(kinds)) == harness_tuning.KINDS


def test_the_default_is_ranked_first() -> None:
    """So that it wins among equals, and every change is of settings that there are."""
    from triplepoint.runtime.agent.harness.defaults import DEFAULTS, checked

    assert CHANGES[0] == {}
    for change in CHANGES[1:]:
        assert checked(change) != DEFAULTS
    assert np.unique([repr(one) for one in CHANGES]).size == len(CHANGES)
