"""What a run leaves on disk is for its user alone, whatever the umask lets others do."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def open_to_all() -> Iterator[None]:
    """The umask of some containers: nothing is taken away. Programs that are started inherit it."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.slow
def test_a_run_with_a_session(
    triplepoint: Run, open_to_all: None, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """Traces, sessions, compiled kernels, what was measured: folders 0700, files 0600."""
    caches = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    ask = (
        "run",
        "Which files are here?",
        "--dir",
        folder,
        "--session",
        "s",
        "--cache-packed-weights",
    )
    done = triplepoint(*ask, more=caches)
    assert done.returncode == 0, done.stderr
    synthetic = "synthetic:qwen3-0.6b:q4_0:layers=1"
    done = triplepoint("bench", "-m", synthetic, "-p", 1, "-n", 1, "-r", 1, more=caches)
    assert done.returncode == 0, done.stderr

    found = {}
    for top in ("state", "cache"):
        for path in [tmp_path / top, *(tmp_path / top).rglob("*")]:
            wanted = 0o700 if path.is_dir() else 0o600
            found[str(path.relative_to(tmp_path))] = stat.S_IMODE(path.stat().st_mode) == wanted
    kinds = {name.split("/")[2] for name in found if name.count("/") > 1}
    assert {"traces", "sessions", "kernels", "machine", "packed", "synthetic"} <= kinds
    assert [name for name, is_private in found.items() if not is_private] == []
