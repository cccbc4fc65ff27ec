"""How far off predictions are is learned: by rows, from passes of late, and never from one."""

from __future__ import annotations

import time

import pytest
from helpers.threads import frequent_switches, together

from triplepoint.runtime.engine.policy.pass_correction import MOST, SEEN, PassCorrection


def test_each_number_of_rows_has_its_own() -> None:
    """Sizes that err differently are told apart; one that was never seen errs as the nearest."""
    correction = PassCorrection()
    assert correction.factor(8) == 1.0
    for _ in range(SEEN):
        for rows, ratio in ((2, 0.7), (8, 0.9), (256, 1.2)):
            correction.add(rows, ratio)

    assert [correction.factor(rows) for rows in (1, 2, 8, 9, 256, 5000)] == [
        0.7, 0.7, 0.9, 0.9, 1.2, 1.2,
    ]  # fmt: skip


@pytest.mark.parametrize("ratio", [0.02, 1.8, 50.0])
def test_one_pass_that_was_held_up_is_no_rule(ratio: float) -> None:
    """Nor are two in a row; where it is the first one, the next ones outweigh it."""
    correction = PassCorrection()
    for _ in range(SEEN):
        correction.add(30, 1.0)
    for _ in range(2):
        correction.add(30, ratio)
        assert correction.factor(30) == 1.0

    fresh = PassCorrection()
    fresh.add(52, ratio)
    assert fresh.factor(52) == min(MOST, max(1 / MOST, ratio))
    for _ in range(2):  # of another size, as it made the next ones smaller or larger
        fresh.add(40, 1.0)
    assert fresh.factor(52) == 1.0


def test_it_follows_a_machine_that_changes_its_speed() -> None:
    """Five passes are enough, however many there were before; neighbors in size follow too."""
    correction = PassCorrection()
    for _ in range(100):
        correction.add(8, 1.0)
    for _ in range(5):
        correction.add(8, 1.4)

    assert correction.factor(8) == 1.4
    assert correction.factor(10) == 1.4


@pytest.mark.slow
def test_it_is_asked_while_it_learns() -> None:
    """Sequences end their phases in threads of their own, beside the pass that is put together."""
    correction, until = PassCorrection(), time.monotonic() + 1.0

    def work(n: int) -> None:
        while time.monotonic() < until:
            for rows in (1, 8, 9, 30, 256):
                if n:
                    correction.add(rows, 1.0)
                else:
                    assert correction.factor(rows) == 1.0

    with frequent_switches(1e-6):
        together(work, 3)
