"""RooflineProbe by number of threads, and what the system tells of cores and pages."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from triplepoint.jit.compile import Library, ObjectCache, default_folder
from triplepoint.jit.targets import detect
from triplepoint.runtime.physics.thread_sweep import load, save, sweep, thread_counts
from triplepoint.runtime.physics.topology import chosen, topology


@pytest.mark.parametrize(
    ("physical", "usable", "counts"),
    [
        (1, 1, [1]),
        (2, 2, [1, 2]),
        (12, 24, [1, 2, 4, 8, 12, 13, 16, 24]),
        (96, 192, [1, 2, 4, 8, 16, 32, 96, 192]),
    ],
)
def test_numbers_of_threads(physical: int, usable: int, counts: list[int]) -> None:
    """Doublings, the physical cores and all of them, and where SMT begins; eight at most."""
    assert thread_counts(physical, usable) == counts


def test_counts_where_the_cores_change() -> None:
    """The number of strong cores, and of those in a domain, are always measured."""
    assert thread_counts(24, 32, {8}) == [1, 2, 4, 8, 16, 24, 25, 32]
    assert thread_counts(128, 256, {128, 8}) == [1, 2, 4, 8, 16, 32, 128, 256]


def test_a_sweep_is_kept(tmp_path: Path) -> None:
    """What was measured is read again as it was; damage and another machine's are not."""
    library = Library(detect(), ObjectCache(default_folder()))
    ticks = iter([0.0, 100.0])
    found = sweep(library, [1, 2], clock=lambda: next(ticks))

    assert [profile.threads for profile in found.profiles] == [1]
    assert found.left_out == (2,), "no second one is begun when the time is up"
    assert load(library, tmp_path) is None
    save(found, tmp_path)
    assert load(library, tmp_path) == found
    save(dataclasses.replace(found, machine="another"), tmp_path)
    assert load(library, tmp_path) == found
    next(tmp_path.glob(f"*{found.machine}*")).write_text("{}")
    assert load(library, tmp_path) is None


def test_topology() -> None:
    """Cores are counted and pages have sizes; the lowest clock rate is not above the highest."""
    seen = topology()
    assert 1 <= seen.physical <= seen.usable
    assert seen.page_bytes % 4096 == 0
    assert seen.mhz[0] <= seen.mhz[1]
    assert all(size > seen.page_bytes for size in seen.huge_page_bytes)


def test_the_chosen_word() -> None:
    assert chosen("always [madvise] never") == "madvise"
    assert chosen("") == chosen("nothing chosen") == ""
