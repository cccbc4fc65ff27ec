"""The tool find: files by a pattern of their names."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from . import formats
from .alike import locate, meant, other_names
from .globs import glob_matcher
from .links import Links
from .paths import check_text, one_form, printable
from .search import MAX_FILES, MAX_SECONDS, SKIPPED_FOLDERS
from .tool import ToolGroup, tool
from .workspace import Workspace

NO_FILES = "No files found."


class FindTools(ToolGroup):
    """The tool find for one folder, for an agent. Iterating yields the `Tool`."""

    def __init__(self, root: str | Path | Workspace) -> None:
        """Open the folder.

        Raises:
            ToolError: there is no such folder.
        """
        self.workspace = root if isinstance(root, Workspace) else Workspace(root)

        one = tool(reaches=self._other_name)(self.find)
        one.normalize = partial(locate, self.workspace)
        self._tools = (one,)

    def _other_name(self, path: str = ".", **_: object) -> Iterator[str]:
        return other_names(self.workspace, path, own=True)

    def find(self, pattern: str, path: str = ".") -> str:
        """Find files by name, in a folder and all folders below it.

        Args:
            pattern: A glob such as *.py or docs/**/*.md; without a "/" it is matched with the
                name alone.
            path: The folder, relative to the workspace.
        """
        path = meant(self.workspace, path, own=True)
        check_text("the pattern", pattern)
        pattern = one_form(pattern)
        in_folders = "/" in pattern
        matches = glob_matcher(re.sub(r"^(\./+)+", "", pattern))
        prefix = 0 if path == "." else len(path) + 1
        end = time.monotonic() + MAX_SECONDS
        late: list[str] = []

        def is_late() -> bool:
            if time.monotonic() > end and not late:
                late.append(
                    f"[cut: the search stopped after {MAX_SECONDS:g} seconds; narrow the path]"
                )
            return bool(late)

        links = Links(self.workspace, path, SKIPPED_FOLDERS, names=True)
        shown: list[str] = []
        notes: list[str] = []
        for number, below in enumerate(links.walk(MAX_FILES + 1, is_late)):
            if number == MAX_FILES:
                notes.append(
                    f"[cut: the search stopped after {MAX_FILES:,} files; narrow the path]"
                )
                break
            name = below[prefix:] if in_folders else below.rpartition("/")[2]
            if not matches(one_form(name)):
                continue
            if len(shown) == formats.MAX_ENTRIES:
                notes.append(f"[cut: more than {len(shown)} files; narrow the pattern or the path]")
                break
            shown.append(printable(below))
        notes += late
        if missed := len(links.missed):
            notes.append(f"[cut: {formats.plural(missed, 'folder')} could not be read]")
        notes += links.notes(bool(shown))
        return "\n".join([*(shown or [NO_FILES]), *notes])
