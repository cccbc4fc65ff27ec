"""Whether large pages help: measured, kept, and measured again where that cannot be believed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest

from triplepoint.jit.pool import Pool
from triplepoint.runtime.physics.huge_pages import SAMPLES, PageGain, page_gain


@pytest.mark.slow
def test_it_is_measured_a_few_times_and_kept(pool: Pool, tmp_path: Path) -> None:
    """The best of each time is kept, until it has been measured often enough."""
    found = [page_gain(pool._library, pool, tmp_path) for _ in range(SAMPLES + 1)]
    assert [gain.samples for gain in found] == [*range(1, SAMPLES + 1), SAMPLES]
    assert found[-1] == found[-2]
    for before, after in itertools.pairwise(found):
        for a, b in zip(before.read_s + before.touch_s, after.read_s + after.touch_s, strict=True):
            assert 0 < b <= a


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"read_s": [0, 0], "touch_s": [1, 1]}'])
def test_a_damaged_file_is_measured_anew(pool: Pool, tmp_path: Path, damage: str) -> None:
    """Whatever stands in it."""
    page_gain(pool._library, pool, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage)
    assert page_gain(pool._library, pool, tmp_path).samples == 1
    assert json.loads(path.read_text())["samples"] == 1


def test_a_kept_answer_is_taken(pool: Pool, tmp_path: Path) -> None:
    """What was measured often enough is not measured again."""
    page_gain(pool._library, pool, tmp_path)
    (path,) = tmp_path.iterdir()
    told = PageGain((2.0, 1.0), (1.0, 1.0), "long ago", SAMPLES)
    path.write_text(json.dumps(dataclasses.asdict(told)))
    assert page_gain(pool._library, pool, tmp_path) == told
    assert not told.helps
