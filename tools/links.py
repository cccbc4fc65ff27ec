"""Decides which symlinks a walk of a folder treats as files, and reports the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from stat import S_ISREG

from ..errors import ToolError
from .paths import TRASH, join, some
from .workspace import Workspace

NO_TEXT = (".git", "__pycache__", TRASH)  # folders that hold no text of a person's


class Links:
    """The policy on symlinks of a walk: which count as files; see `linked` of `Workspace.walk`.

    None is followed out of the workspace, and none that leads to a folder, so there are no loops.
    Those that lead to what the walk comes to anyway are no loss.
    """

    def __init__(
        self, workspace: Workspace, path: str, skip: Collection[str], *, names: bool
    ) -> None:
        """Prepare for a walk of `path`.

        Args:
            workspace: what is walked.
            path: the folder.
            skip: names of folders that are not entered.
            names: whether a file is wanted by each of its names, and not for its content.
        """
        self._workspace, self._skip, self._names = workspace, frozenset(skip), names
        self._path, self._base = path, workspace.target(path) or path
        self._left_out: list[str] = []
        self.ignored: list[str] = []
        self.missed: list[str] = []

    def walk(self, first: int, late: Callable[[], bool]) -> Iterator[str]:
        """Yield the files below the folder; arguments as for `Workspace.walk`."""
        return self._workspace.walk(
            self._path,
            skip=self._skip,
            first=first,
            missed=self.missed,
            ignored=self.ignored,
            linked=self,
            late=late,
        )

    def __call__(self, link: str) -> bool:
        target = self._workspace.target(link)
        if target == "":
            return False
        if target is not None:
            is_file = self._is_file(link) and not self._workspace.holds_hidden(target)
            if self._names and is_file:
                return True
            if self._comes_to(target):
                return False
            if is_file:
                return True
        self._left_out.append(link)
        return False

    def _is_file(self, link: str) -> bool:
        try:
            return S_ISREG(self._workspace.stat(link).st_mode)
        except ToolError:  # gone since
            return False

    def _comes_to(self, target: str) -> bool:
        base = "" if self._base == "." else join(self._base, "")
        below = f"{target}/".removeprefix(base)
        inside = f"{target}/".startswith(base) and not target.startswith("../")
        return inside and not self._skip.intersection(below.split("/"))

    def notes(self, found: bool) -> Iterator[str]:
        """Yield a note on each kind of symlink that the walk left out; call it after the walk.

        Folders that are skipped for their names are worth a word only where nothing was found.
        """
        if self._left_out:
            kind = "a symlink" if len(self._left_out) == 1 else "symlinks"
            # In order, since folders give names in any: a result is to be the same the next time.
            yield f"[cut: {some(sorted(self._left_out, key=os.fsencode))} not followed: {kind}]"
        ignored = [one for one in self.ignored if one.rpartition("/")[2] not in NO_TEXT]
        if ignored and not found:
            first = some(sorted(ignored, key=os.fsencode))
            yield f"[cut: {first} not searched; give such a folder as the path to search it]"
