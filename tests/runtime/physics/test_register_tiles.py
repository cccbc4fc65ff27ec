"""Register tiles: which one is taken for the times that were measured, and what is kept of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.jit.compile import Library, ObjectCache, default_folder
from triplepoint.jit.pool import Pool
from triplepoint.jit.targets import TARGETS, detect
from triplepoint.runtime.physics import register_tiles
from triplepoint.runtime.physics.register_tiles import (
    TilePlan,
    best,
    candidates,
    constants,
    default,
)

WIDE, NARROW = TARGETS["avx512-vnni"], TARGETS["avx2"]


def test_only_a_clear_gain_counts() -> None:
    """Faster in each round, by more than noise; of several such the one with the largest gain."""
    assert best({}, 6) == 6
    assert best({8: [1.5, 1.5, 1.01]}, 6) == 6
    assert best({8: [1.04, 1.2, 1.05]}, 6) == 8
    assert best({4: [1.04, 1.05, 1.06], 8: [1.03, 1.2, 1.3], 9: [0.9, 2.0, 2.0]}, 6) == 8


def test_the_usual_plan_is_the_usual_kernel() -> None:
    """Nothing is told to a kernel that it would do by itself: no other one is compiled."""
    for target in TARGETS.values():
        plan = default(target)
        assert constants(target, plan.tile, plan.max_single_tile) == {}
        larger, whole = candidates(target)
        assert plan.tile not in larger
        assert plan.max_single_tile not in whole
        assert min(whole) >= plan.tile
    assert (default(WIDE).tile, default(WIDE).max_single_tile) == (6, 9)
    assert default(TARGETS["avx512"]).max_single_tile == 6
    assert constants(WIDE, 6, 6) == {"max_single_tile": 6}
    assert constants(WIDE, 8, 9) == {"tile": 8}
    assert constants(WIDE, 8, 4) == {"tile": 8, "max_single_tile": 8}
    assert constants(WIDE, 12, 9) == {"tile": 12}
    assert (default(NARROW).tile, default(NARROW).max_single_tile) == (4, 4)
    assert constants(NARROW, 3, 4) == {"tile": 3}
    assert constants(NARROW, 3, 6) == {"tile": 3, "max_single_tile": 6}


def test_a_plan_is_measured_and_kept(tmp_path: Path) -> None:
    """Its figures are among those that were measured, with the gains of every round."""
    library = Library(detect(), ObjectCache(default_folder()))
    pool = Pool(library, 1)
    try:
        found = register_tiles.measure(library, pool)
    finally:
        pool.close()
    larger, wholes = candidates(library.target)
    plain = default(library.target)
    assert found.tile in {plain.tile, *larger}
    assert found.max_single_tile in {found.tile, plain.max_single_tile, *wholes}
    assert set(found.gains) == {f"tile={n}" for n in larger} | {
        f"max_single_tile={n}" for n in wholes
    }
    assert all(
        len(rounds) == register_tiles.ROUNDS and min(rounds) > 0 for rounds in found.gains.values()
    )

    assert register_tiles.load(library, tmp_path) is None
    register_tiles.save(found, library, tmp_path)
    assert register_tiles.load(library, tmp_path) == found


@pytest.mark.parametrize(
    "damage", ["", "{}", "[1]", '{"tile": 0, "max_single_tile": 6, "gains": {}, "date": ""}']
)
def test_a_damaged_plan_is_none(tmp_path: Path, damage: str) -> None:
    """Whatever stands in the file: a tile of no token would never end."""
    library = Library(detect(), ObjectCache(default_folder()))
    register_tiles.save(TilePlan(6, 9, {}), library, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage)
    assert register_tiles.load(library, tmp_path) is None
