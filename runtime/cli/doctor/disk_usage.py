"""The files of triplepoint on disk, by kind: for ``doctor`` and ``doctor cache``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ....arguments import user_folder
from ...agent.session_store import sessions_folder
from ...config import config_path
from ...hub.settings import HubSettings
from ..traces import default_folder

_WORDS = {
    "kernels": "compiled kernels",
    "machine": "measured limits of this machine",
    "synthetic": "synthetic models",
    "packed": "packed weights of models; `triplepoint doctor cache clean packed` removes them",
    "evidence": "words of folders, by which lines for questions are found",
    "prefixes": "prefixes of conversations, which need not be computed again",
    "harness": "settings of the harness that were tuned for model files",
    "sha256.json": "hashes of model files",
}


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """A folder or file on disk."""

    kind: str
    """Its name in the cache, or ``traces`` or ``models``."""
    what: str
    """A description of its contents."""
    path: Path
    files: int
    """Number of files."""
    nbytes: int
    """Total size of the files."""
    ours: bool
    """Whether it is a cache of ours: it may be removed at any time and is rebuilt."""


def disk_usage() -> list[DiskUsage]:
    """Measure everything on disk: our caches, the traces, and the pulled models."""
    root = user_folder("cache")
    models = HubSettings.from_environ().cache
    no_caches = (models, default_folder(), sessions_folder(), config_path())
    try:
        entries = sorted(entry for entry in root.iterdir() if not entry.is_symlink())
    except OSError:
        entries = []
    found = [
        _measured(entry.name.removesuffix(".json"), _WORDS[entry.name], entry, ours=True)
        for entry in entries
        if entry.name in _WORDS and not any(kept.is_relative_to(entry) for kept in no_caches)
    ]
    return [
        *found,
        _measured("traces", "traces of runs", default_folder(), ours=False),
        _measured("sessions", "saved sessions", sessions_folder(), ours=False),
        _measured("models", "models from the Hub; `triplepoint ls` lists them", models, ours=False),
    ]


def _measured(kind: str, what: str, path: Path, *, ours: bool) -> DiskUsage:
    sizes = list(_sizes(path))
    return DiskUsage(kind, what, path, len(sizes), sum(sizes), ours)


def _sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of the files at and under `path`, without links."""
    if path.is_file():
        yield path.stat().st_size
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:  # removed meanwhile
                continue
            if not os.path.islink(os.path.join(folder, name)):
                yield status.st_size
