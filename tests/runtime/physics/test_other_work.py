"""Other work, from counters made by hand."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from triplepoint.runtime.physics import other_work
from triplepoint.runtime.physics.other_work import CpuTimes, OtherWork, cpu_times


def _meter(*looks: CpuTimes | None) -> OtherWork:
    """A meter that finds these times, one after the other."""
    at = iter(looks)
    return OtherWork(lambda: next(at))


def test_what_others_took_is_told_from_own_work() -> None:
    """Of 5 seconds 4 were busy, 2.5 by this process: 1.5 are others'."""
    assert _meter(CpuTimes(50, 20, 7.0), CpuTimes(55, 24, 9.5)).share() == 0.3


def test_a_process_alone() -> None:
    """Counters in steps of 10 ms may fall behind the own time: no share is negative."""
    assert _meter(CpuTimes(0, 0, 0), CpuTimes(4, 1.98, 2)).share() == 0.0


def test_too_short_to_say() -> None:
    """A fifth of a second is a few steps of the counters; without counters nothing is said."""
    assert _meter(CpuTimes(0, 0, 0), CpuTimes(0.2, 0.2, 0)).share() is None
    assert _meter(None, None).share() is None


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
    monkeypatch.setattr(time, "process_time", lambda: 3.0)
    assert cpu_times() == pytest.approx((4.4, 1.65, 1.5))
    stat.write_text("cpu0 what\n")
    assert cpu_times() is None
    monkeypatch.setattr(other_work, "STAT", tmp_path / "none")
    assert cpu_times() is None
