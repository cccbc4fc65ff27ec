"""Tuning the harness: ranking by log-probability, then real answers, and the rule that decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import MakeEngine
from helpers.scoring_engine import Scoring, right_reply, scoring_engine

from triplepoint.runtime.agent.harness.defaults import DEFAULTS, checked
from triplepoint.runtime.agent.harness.examples import EXAMPLES
from triplepoint.runtime.suites import harness_tuning
from triplepoint.runtime.suites.fresh_questions import fresh
from triplepoint.runtime.suites.harness_tuning import (
    CHANGES,
    RANKED,
    TRIED,
    UNSEEN,
    HarnessTuner,
    Report,
    share,
)

WRONG = "I see.<|im_end|>"
KINDS = 8


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many questions on every machine."""
    monkeypatch.setattr(harness_tuning, "RANKED", (3, 3))
    monkeypatch.setattr(harness_tuning, "TRIED", (KINDS, KINDS))


def replies(*good: bool) -> list[str]:
    """What a model says to the fresh questions under each setting, one after another."""
    said: list[str] = []
    for n in range(KINDS):
        question = fresh(UNSEEN + n)[1][n]
        for is_good in good:
            said += right_reply(question) if is_good or question.after else [WRONG]
    return said


def tuned(scripted: MakeEngine, folder: Path, likes: str, said: Sequence[str]) -> Report:
    return HarnessTuner(scoring_engine(scripted, likes, said), folder).run()


def test_the_setting_that_the_model_likes_is_found(scripted: MakeEngine, tmp_path: Path) -> None:
    """The same each time; where both answer as well the default is kept, with its figures."""
    first, again = (
        tuned(scripted, tmp_path / name, EXAMPLES, replies(True, True)) for name in ("a", "b")
    )
    assert first.ranking == again.ranking
    assert [one.change for one in first.ranking] == [{"examples": True}, *CHANGES[:4], CHANGES[5]]
    assert first.ranking[0].score > first.ranking[1].score + 0.2
    assert first.ranking[1].score == first.ranking[2].score
    assert first.pairs == [(True, True)] * KINDS
    assert first.tuned.settings == {}
    assert (first.tuned.questions, first.tuned.rate, first.tuned.default_rate) == (KINDS, 1.0, 1.0)
    assert first.tuned.low < 1.0 == first.tuned.high


def test_what_answers_worse_is_not_kept(scripted: MakeEngine, tmp_path: Path) -> None:
    """However likely it made the right texts: the default is kept, with the default's rate."""
    found = tuned(scripted, tmp_path, EXAMPLES, replies(True, False))
    assert found.ranking[0].change == {"examples": True}
    assert found.pairs.count((False, True)) == KINDS - 1  # the task is done by both
    assert found.tuned.settings == {}
    assert (found.tuned.rate, found.tuned.default_rate) == (1.0, 1.0)


def test_what_answers_better_is_kept(scripted: MakeEngine, tmp_path: Path) -> None:
    """With its rate beside the default's."""
    found = tuned(scripted, tmp_path, EXAMPLES, replies(False, True))
    assert found.pairs.count((True, False)) == KINDS - 1
    assert found.tuned.settings == {"examples": True}
    assert (found.tuned.rate, found.tuned.default_rate) == (1.0, 1 / KINDS)


def test_where_nothing_is_better_the_default_answers_alone(
    scripted: MakeEngine, tmp_path: Path
) -> None:
    """Each question once."""
    found = tuned(scripted, tmp_path, "no prompt has this", replies(True))
    assert found.ranking[0].change == {}
    assert found.pairs == [(True, True)] * KINDS
    assert found.tuned.settings == {}


def test_time_decides_how_many_questions(
    scripted: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within limits; the plan is told with its time before the ranking goes on."""
    monkeypatch.setattr(harness_tuning, "RANKED", RANKED)
    monkeypatch.setattr(harness_tuning, "TRIED", TRIED)

    class Stopped(Exception):
        pass

    plans: list[str] = []

    def stop(plan: str) -> None:
        plans.append(plan)
        raise Stopped

    for minutes in (1e-6, 1e6):
        engine = scoring_engine(scripted, EXAMPLES, [])
        with pytest.raises(Stopped):
            HarnessTuner(engine, tmp_path / str(minutes), minutes, stop).run()
    for plan, at in zip(plans, (0, 1), strict=True):
        assert (
            f"6 settings are ranked over {RANKED[at]} questions, then two answer {TRIED[at]}"
            in (plan)
        )
        assert plan.endswith(" min in all")


def test_a_share_counts_per_token(scripted: MakeEngine) -> None:
    """A long text is not less likely for being long; of equals each has the same share."""
    engine = scoring_engine(scripted, "never", [])
    encode = engine.tokenizer.encode
    session: Any = Scoring(engine, [])
    said = [encode("a rather long text"), encode("short"), encode("xyz")]
    assert share(session, encode("A prompt"), said) == pytest.approx(1 / 3)
    assert share(session, encode("A prompt too"), said) == pytest.approx(1 / 3)
    assert session.tokens == encode("A prompt too")  # for the next one to begin with


def test_the_default_is_ranked_first() -> None:
    """So that it wins among equals, and every change is of settings that there are."""
    assert CHANGES[0] == {}
    for change in CHANGES[1:]:
        assert checked(change) != DEFAULTS


# --- the questions


@pytest.mark.parametrize("seed", range(20))
def test_the_right_text_alone_is_right(seed: int, tmp_path: Path) -> None:
    """Of what may be said to a question; all of it is different."""
    questions = fresh(seed)[1]
    assert len({one.kind for one in questions}) == len(questions) == KINDS
    for question in questions:
        assert len({str(one) for one in question.texts}) == len(question.texts) >= 4
        if not question.after:
            right = [question.right(str(one), tmp_path) for one in question.texts]
            assert right == [True] + [False] * (len(right) - 1), question


def test_a_task_is_judged_by_its_file(tmp_path: Path) -> None:
    """Whatever is said of it; a right call makes it so."""
    folder, questions = fresh(3)
    files = folder.texts
    task = questions[-1]
    assert task.after is not None
    path, text = task.after
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(files[path])
    assert not task.right("Done.", tmp_path)
    call: Any = task.texts[0]
    assert call.arguments["path"] == path
    assert files[path].replace(call.arguments["old"], call.arguments["new"]) == text
    (tmp_path / path).write_text(text)
    assert task.right("", tmp_path)


def test_a_seed_gives_the_same_folder() -> None:
    """And another seed another one."""
    assert fresh(5) == fresh(5)
    assert fresh(5)[0] != fresh(6)[0]
