"""Other work, from counters made by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.runtime.physics import other_work
from triplepoint.runtime.physics.other_work import CpuTimes, OtherWork, cpu_times


def _meter(*looks: tuple[CpuTimes | None, float]) -> OtherWork:
    """A meter whose looks give these times and own seconds."""
    times, own = ([look[n] for look in looks] for n in (0, 1))
    at, mine = iter(times), iter(own)
    return OtherWork(lambda: next(at), lambda: next(mine))  # pyright: ignore


def test_what_others_took_is_told_from_own_work() -> None:
    """Of 4 seconds on each of two cores: 8 busy less 5 own are others', one is the host's."""
    meter = _meter((CpuTimes(100, 40, 2, 2), 7.0), (CpuTimes(110, 48, 3, 2), 12.0))
    assert meter.shares() == pytest.approx((0.3, 0.1))


def test_a_process_alone() -> None:
    """Counters in steps of 10 ms may fall behind the own time: no share is negative."""
    meter = _meter((CpuTimes(0, 0, 0, 2), 0.0), (CpuTimes(4, 1.98, 0, 2), 2.0))
    assert meter.shares() == (0.0, 0.0)


def test_too_short_to_say() -> None:
    """A fifth of a second is a few steps of the counters; without counters nothing is said."""
    short = _meter((CpuTimes(0, 0, 0, 2), 0.0), (CpuTimes(0.4, 0.4, 0, 2), 0.0))
    assert short.shares() is None
    assert _meter((None, 0.0), (None, 1.0)).shares() is None


def test_only_usable_cores_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are those of the cores that this process may use, in seconds."""
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 20 30 400 50 6 4 70 0 0\n"
        "cpu1 1 1 1 1 1 1 1 1 0 0\ncpu10 100 0 0 100 0 0 0 0 0 0\nintr 5\n"
    )
    monkeypatch.setattr(other_work, "STAT", stat)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 10}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    assert cpu_times() == pytest.approx((8.8, 2.6, 0.7, 2))
    stat.write_text("cpu0 what\n")
    assert cpu_times() is None
    monkeypatch.setattr(other_work, "STAT", tmp_path / "none")
    assert cpu_times() is None
