"""A cache folder of a test's own, with the kernels and limits of the other tests."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def own_cache(tmp_path: Path) -> Path:
    """Make `triplepoint/` in a folder that XDG_CACHE_HOME may name, and return it."""
    folder = tmp_path / "cache" / "triplepoint"
    folder.mkdir(parents=True)
    for name in ("kernels", "machine"):
        there = Path(platformdirs.user_cache_dir("triplepoint")) / name
        there.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(there)
    return folder
