"""What all tests share: the path to `helpers`, a cache folder of their own, a seeded generator."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np
import pytest

# With --import-mode=importlib no folder of tests is on the path; `helpers` is imported by many.
sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels and machine profiles between runs, but out of the user's own cache."""
    if config.cache is None:
        return
    folder = config.cache.mkdir("triplepoint")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    # Every change of jit/ makes new objects: drop those of yesterday.
    for path in folder.glob("triplepoint/kernels/*.o"):
        if path.stat().st_mtime < time.time() - 86400:
            path.unlink(missing_ok=True)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed: the same data in every run."""
    return np.random.default_rng(7)
