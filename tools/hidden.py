"""Hides paths of a workspace from its tools, such as a run's own output."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from .paths import real_path
from .rooted_fs import RootedFS


def paths_below(root: Path, paths: Iterable[str | Path]) -> frozenset[str]:
    """Return the paths below a folder, relative to it, with symlinks resolved."""
    found: set[str] = set()
    for path in paths:
        head, name = os.path.split(os.path.abspath(path))
        for candidate in (os.path.join(real_path(head), name), real_path(path)):
            relative = os.path.relpath(candidate, root)
            if relative.split(os.sep)[0] not in (os.curdir, os.pardir):
                found.add(relative.replace(os.sep, "/"))
    return frozenset(found)


class HidingFS:
    """Wraps file access and hides these paths with everything below them."""

    def __init__(self, inner: RootedFS, hidden: frozenset[str]) -> None:
        self.inner = inner
        self.hidden = hidden

    def hides(self, path: str) -> bool:
        """Return whether a cleaned path is hidden."""
        names = path.split("/")
        return any("/".join(names[:count]) in self.hidden for count in range(1, len(names) + 1))

    def holds(self, path: str) -> bool:
        """Return whether a cleaned path is hidden, or has a hidden path below it."""
        return self.hides(path) or any(one.startswith(f"{path}/") for one in self.hidden)

    def _check(self, path: str) -> None:
        if self.hides(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def open(self, path: str, flags: int) -> int:
        self._check(path)
        return self.inner.open(path, flags)

    def stat(self, path: str) -> os.stat_result:
        self._check(path)
        return self.inner.stat(path)

    def folder(self, path: str) -> int:
        self._check(path)
        return self.inner.folder(path)
