"""Trials of other numbers of threads: what they find, and that they end."""

from __future__ import annotations

import random
from collections.abc import Callable

from triplepoint.runtime.engine.policy.online_ab import BLOCK, WAIT, OnlineABTest


def run(trials: OnlineABTest, passes: int, seconds: Callable[[int], float]) -> list[int]:
    """So many passes, each as long as its number of threads says; the numbers run."""
    taken = []
    for _ in range(passes):
        threads = trials.next()
        taken.append(threads)
        if trials.timed:
            trials.took(seconds(threads))
    return taken


def test_a_faster_number_is_found() -> None:
    """Down to the best number and no further; each change is told once."""
    trials = OnlineABTest(12, [[8, 4, 2, 1]])
    times = {12: 10.0, 8: 9.0, 4: 8.0, 2: 12.0, 1: 20.0}
    run(trials, 20_000, lambda n: times[n])
    assert trials.threads == 4
    assert not trials.todo
    assert [line.split(",")[0] for line in trials.changes] == [
        "decode on 8 threads",
        "decode on 4 threads",
    ]


def test_upwards_after_downwards_failed() -> None:
    """The other direction has its turn."""
    trials = OnlineABTest(4, [[2], [8]])
    run(trials, 5000, lambda n: {2: 2.0, 4: 1.0, 8: 0.8}[n])
    assert trials.threads == 8
    assert not trials.todo


def test_a_slower_number_costs_a_few_passes() -> None:
    """One block is enough to give it up; before that nothing is tried for a while."""
    trials = OnlineABTest(2, [[1]])
    taken = run(trials, 2000, lambda n: 2.0 / n)
    assert taken[:WAIT] == [2] * WAIT
    assert taken.count(1) == BLOCK
    assert not trials.todo
    assert trials.changes == []


def test_as_fast_is_not_faster() -> None:
    """Nothing changes for a gain within the margin."""
    trials = OnlineABTest(2, [[1]])
    run(trials, 5000, lambda n: 0.98 if n == 1 else 1.0)
    assert trials.threads == 2


def test_noise_does_not_make_it_swing() -> None:
    """Whatever is seen, a number is left at most once and never returned to."""
    chance = random.Random(7)
    for _ in range(50):
        trials = OnlineABTest(6, [[4, 3, 2, 1], [8, 12]])
        taken = run(trials, 60_000, lambda n: chance.lognormvariate(0, 1.0))
        assert not trials.todo
        assert len(trials.changes) <= 4
        settled = taken[-1]
        assert set(taken[-20_000:]) == {settled}


def test_an_interrupted_trial_begins_anew() -> None:
    """What was seen while another process had a core does not count."""
    trials = OnlineABTest(2, [[1]])
    run(trials, WAIT + BLOCK + 1, lambda n: 1.0)
    trials.interrupted()
    assert run(trials, WAIT, lambda n: 1.0) == [2] * WAIT
    run(trials, 2000, lambda n: 0.5 * n)
    assert trials.threads == 1
