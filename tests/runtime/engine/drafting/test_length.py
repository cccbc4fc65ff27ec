"""How many tokens are drafted: from what was right, and from what passes cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import pairwise

import pytest

from triplepoint.runtime.engine.drafting.drafter import Drafter
from triplepoint.runtime.engine.drafting.length import (
    MOST_ROWS,
    PATIENCE_MOST,
    DraftLengthPolicy,
    PassLatency,
)
from triplepoint.runtime.engine.engine import Engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model, for its sizes; the times are made up."""
    with Engine.load("nano", threads=1) as engine:
        yield engine


def _length_policy(
    engine: Engine, ratios: dict[int, float], step_s: float = 0.010
) -> DraftLengthPolicy:
    """A pace on a machine on which passes take so much longer by their number of tokens."""
    engine.core.drafting.latency = PassLatency()
    # Of a machine that memory bounds, whatever the one is that runs this.
    engine.core.drafting.latency.set_limits([step_s * (1 + 0.01 * n) for n in range(MOST_ROWS)])
    for _ in range(10):
        engine.core.drafting.latency.step(step_s)
    for tokens, ratio in ratios.items():
        for _ in range(40):
            engine.core.drafting.latency.several(tokens, ratio * step_s)
    return DraftLengthPolicy(engine.core.drafting, [])


def _drafter(engine: Engine) -> Drafter:
    session = engine.session()
    return Drafter(session.sequence, session.phases.drafting, bool)


FLAT = {n: 1.0 + 0.02 * n for n in range(2, 18)}  # memory bounds a pass
STEEP = {n: float(n) for n in range(2, 18)}  # arithmetic does


def test_cheap_passes_are_filled(engine: Engine) -> None:
    """Where a pass of many costs little, sure drafts fill it, and doubtful ones a part of it."""
    pace = _length_policy(engine, FLAT)
    assert pace.count(32, 1, 16) == 16
    assert 1 <= pace.count(3, 1, 16) < 16
    assert pace.count(32, 1, 5) == 5


def test_dear_passes_have_no_drafts(engine: Engine) -> None:
    """Where each token of a pass costs as much as a pass, nothing is drafted, however sure."""
    pace = _length_policy(engine, STEEP)
    assert pace.count(32, 1, 16) == 0


def test_the_length_that_pays_is_found(engine: Engine) -> None:
    """Where passes of more than nine tokens take twice as long, a few drafts find out."""
    for step in (4, 9, 12):
        curve = {n: 1.0 + 0.02 * n if n <= step else 2.6 + 0.02 * n for n in range(2, 18)}
        pace = _length_policy(engine, {})
        for _ in range(200):
            pace.compare(32, [True])
        made = []
        for _ in range(8):
            made.append(pace.count(32, 1, 16))
            engine.core.drafting.latency.several(1 + made[-1], 0.010 * curve[1 + made[-1]])
        chance = pace._right[-1]
        gains = {k: sum(chance**n for n in range(k + 1)) / curve[1 + k] for k in range(1, 17)}
        assert gains[made[-1]] > 0.97 * max(gains.values()), (step, made)


def test_company_makes_drafts_dear(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to eight rows a pass costs little more, then every row does: many draft less than one."""
    costs = {n: 1.0 + 0.02 * n if n <= 8 else 1.16 + 0.3 * (n - 8) for n in range(2, 41)}
    pace = _length_policy(engine, costs)
    alone = pace.count(32, 1, 16)
    found = []
    for others in (1, 3, 7):
        monkeypatch.setattr(engine.core.scheduler, "beside", others)
        found.append(pace.count(32, 1, 16))

    assert alone >= found[0] >= found[1] >= found[2]
    assert (alone > 4, found[2]) == (True, 0)


def test_rows_beyond_what_is_known_cost_as_much_as_the_last(engine: Engine) -> None:
    """A pass of so many rows is bound by arithmetic."""
    _length_policy(engine, {}).count(32, 1, 16)  # from the machine's limits
    times = engine.core.drafting.latency
    most = times.ratio(MOST_ROWS)
    assert times.ratio(2 * MOST_ROWS) == pytest.approx(2 * most)
    times.several(2 * MOST_ROWS, 1.0)
    assert times.ratio(MOST_ROWS) == most


def test_wrong_drafts_end_drafting(engine: Engine) -> None:
    """After many drafts that were wrong none is made; right ones bring them back."""
    pace = _length_policy(engine, FLAT)
    for _ in range(300):
        pace.compare(3, [False])
    assert pace.count(3, 1, 16) == 0
    assert pace.count(32, 1, 16) > 0  # places with more in common are another matter
    for same in (3, 4, 8, 16) * 300:
        pace.compare(same, [True])
    assert pace.count(3, 1, 16) > 8


def test_steps_that_take_no_time_are_left_alone(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a step takes less than the thought of drafting, nothing is thought."""
    for step_s, cheap in ((50e-6, True), (0.010, False)):
        _length_policy(engine, FLAT, step_s)
        assert _drafter(engine)._cheap == cheap
    # Before the first step it is told from the limits: what reading nano's weights takes.
    for gbps, cheap in ((1000.0, True), (1.0, False)):
        rates = dict.fromkeys(engine.machine.read_gbps, gbps)
        monkeypatch.setattr(
            engine.loaded,
            "machine",
            dataclasses.replace(engine.machine, read_gbps=rates, barrier_s=1e-7),
        )
        engine.core.drafting.latency = PassLatency()
        assert _drafter(engine)._cheap == cheap


def test_a_cost_is_tried_again_ever_more_seldom(engine: Engine) -> None:
    """A pass that was dear once is tried again, and after each failure twice as long after."""
    pace, tries = _length_policy(engine, STEEP), []
    engine.core.drafting.latency.set_limits([1.0 + 0.02 * n for n in range(MOST_ROWS)])
    for step in range(4 * PATIENCE_MOST):
        if pace.count(32, 1, 16):
            tries.append(step)
            for n, ratio in STEEP.items():
                for _ in range(40):
                    engine.core.drafting.latency.several(n, ratio * 0.010)
    gaps = [b - a for a, b in pairwise(tries)]
    assert 2 <= len(tries) <= 12
    assert gaps == sorted(gaps)


def test_a_step_that_was_held_up_does_not_count_whole(engine: Engine) -> None:
    """One step a hundred times as long moves the mean by a tenth at most."""
    pace = _length_policy(engine, FLAT)
    engine.core.drafting.latency.step(1.0)
    times = pace.times
    assert times.step_s < 0.0111
    assert times.saved(1, 4, 0.02) == pytest.approx(5 * times.step_s - 0.02)
