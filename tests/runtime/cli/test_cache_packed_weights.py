"""``--cache-packed-weights``: the second run maps what the first one packed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.own_cache import own_cache

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache without packed copies."""
    return own_cache(tmp_path)


@pytest.mark.slow
def test_kept_and_mapped(triplepoint: Run, nano: Path, folder: Path, cache: Path) -> None:
    """Answers are the same from memory, from the copy, and when the copy was damaged.

    Then one line on stderr names it; it is packed again, and `cache` counts it.
    """
    more = {"XDG_CACHE_HOME": str(cache.parent)}
    ask = [
        "run",
        "Which file mentions retry?",
        "--dir",
        folder,
        "-m",
        nano,
        "-q",
        "--cache-packed-weights",
    ]
    first = triplepoint(*ask, more=more)
    (copy,) = (cache / "packed").iterdir()
    second = triplepoint(*ask, more=more)
    os.truncate(copy, copy.stat().st_size - 1)
    third = triplepoint(*ask, more=more)
    fourth = triplepoint(*ask, more=more)

    # 5: no file of this folder mentions it.
    assert [run.returncode for run in (first, second, third, fourth)] == [5, 5, 5, 5], first.stderr
    assert first.stdout
    assert first.stdout == second.stdout == third.stdout == fourth.stdout
    assert (first.stderr, second.stderr, fourth.stderr) == ("", "", "")
    assert third.stderr.count("\n") == 1
    assert f"the packed copy {copy} is damaged" in third.stderr
    assert "packed again" in third.stderr
    kept = json.loads(triplepoint("doctor", "cache", "ls", "--json", more=more).stdout)
    (packed,) = [one for one in kept if one["kind"] == "packed"]
    assert (packed["files"], packed["bytes"]) == (1, copy.stat().st_size)
