"""The file tools: list_dir, read_file, search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from stat import S_ISDIR

from ..arguments import check_whole
from ..errors import ToolError
from . import formats, seen
from .alike import locate, meant, other_names
from .atomic_changes import MAX_BYTES
from .globs import glob_matcher
from .paths import MAX_SHOWN, join, one_form, printable, shown
from .policy import Policy
from .search import MAX_FILES, SKIPPED_FOLDERS, Search
from .text import BUDGET, TextFile, unpacked
from .tool import Named, Tool, ToolGroup, tool
from .workspace import Workspace

MAX_NUMBER = 2**53  # of a line; a larger one is a slip, and may be too long to print
_NAMED: dict[str, Named] = {"list_dir": "folder", "search": "any", "count": "any"}
MAX_LOOK = 1.0  # seconds that a name which is not there is looked for in other folders


class FileTools(ToolGroup):
    """The tools list_dir, read_file and search over one folder, for an agent.

    Iterating gives the three `Tool` objects. The methods can also be called as they are; they
    return the text that a model gets and raise `ToolError` for what it did wrong.
    """

    def __init__(
        self,
        root: str | Path | Workspace,
        *,
        max_lines: int = formats.MAX_LINES,
        max_chars: int = formats.MAX_CHARS,
        policy: Policy | None = None,
    ) -> None:
        """Open the folder.

        Args:
            root: the folder, or a workspace that is open already.
            max_lines: lines that one read_file shows.
            max_chars: characters of one result, apart from the notes on what was cut.
            policy: what its rules keep from these tools is not named in errors either.

        Raises:
            ToolError: there is no such folder, or a limit cannot be one.
        """
        self.workspace = root if isinstance(root, Workspace) else Workspace(root)
        check_whole(max_lines, "max_lines", ToolError, least=1)
        check_whole(max_chars, "max_chars", ToolError, least=1)
        self._max_lines = max_lines
        self._max_chars = max_chars
        self._policy = policy
        self._tools = self._make_tools(self.list_dir, self.read_file, self.search)

    def _make_tools(self, *functions: Callable[..., str]) -> tuple[Tool[..., str], ...]:
        tools: list[Tool[..., str]] = []
        for function in functions:
            reaches = self._listed if function == self.list_dir else self._other_name
            one: Tool[..., str] = tool(reaches=reaches)(function)
            one.self_truncates = True
            one.normalize = partial(locate, self.workspace)
            one.existing, one.group = {"path": _NAMED.get(one.name, "file")}, self
            tools.append(one)
        return tuple(tools)

    _plain = False  # whether results always say which part they are

    def _lists(self, path: str) -> bool:
        """Return whether list_dir may show a path."""
        return True

    def _searched(self, path: str) -> tuple[str, Callable[[str], bool]]:
        """Return the file or folder to search, and a filter of the files below it."""
        return meant(self.workspace, path, own=True), lambda _: True

    def _other_name(self, path: str = ".", **_: object) -> Iterator[str]:
        return other_names(self.workspace, path, own=True)

    def _listed(self, path: str = ".") -> Iterator[str]:
        """Return the listed folder, without a pattern as last name."""
        yield from other_names(self.workspace, path, own=True)
        folder, fits = self._pattern(path)
        if fits is not None:
            yield folder

    def list_dir(self, path: str = ".") -> str:
        """List the names in a folder. Names of folders end in "/".

        Args:
            path: The folder, relative to the workspace; "logs/2026*" lists only such names in logs.
        """
        path, fits = self._pattern(path)
        with self._pointing(path, files=False):
            listing = self.workspace.listdir(
                path,
                first=formats.MAX_ENTRIES + 1,
                fits=lambda name: (fits is None or fits(name)) and self._lists(join(path, name)),
            )
        if fits is not None and not listing.total:
            return formats.NO_MATCHES
        names = (printable(e.name) + "/" * e.is_folder for e in listing.entries)
        return formats.list_result(
            names, listing.total, folder=shown(path), max_chars=self._max_chars
        )

    def _pattern(self, path: str) -> tuple[str, Callable[[str], bool] | None]:
        """Return the folder and a filter of its names, which is None for all.

        A name that is there is no pattern, whatever signs it has.
        """
        whole = meant(self.workspace, path, own=True)
        folder, _, name = whole.rpartition("/")
        if not ("*" in name or "?" in name) or self.workspace.kind(whole):
            return whole, None
        matches = glob_matcher(one_form(name))
        return folder or ".", lambda name: matches(one_form(printable(name)))

    def read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Read a text file. Each line comes with its number.

        Args:
            path: The file, relative to the workspace.
            start: The first line to read, counted from 1.
            end: The last line to read; without it, all lines from start on.
        """
        _check_range(start, end)
        path = meant(self.workspace, path, own=True)
        with self._pointing(path, folders=False):
            opened = self.workspace.open(path)
        with opened as file:
            # Before the text, so that what changes meanwhile counts as not seen.
            digest = seen.digest_of(file.fileno(), MAX_BYTES)
            inside = unpacked(file, path) if self._plain else file
            result = self._numbered(TextFile(inside, path), shown(path), start, end)
        seen.note(self.workspace, path, digest)
        return result

    def _numbered(self, text: TextFile, name: str, start: int, end: int | None) -> str:
        result = formats.NumberedLines(
            start, max_lines=self._max_lines, max_chars=self._max_chars, plain=self._plain
        )
        total = 0  # lines met so far
        for block in text.blocks():
            first, total = total + 1, total + block.count()
            if total >= start and not result.full:
                stop = None if end is None else end - first + 1
                for line in block.lines()[max(0, start - first) : stop]:
                    if not result.add(line, block.length):
                        break
            if end is not None and total >= end and not (result.full or self._plain):
                return result.text()
            enough = result.full or (self._plain and end is not None and total >= end)
            if enough and text.size > BUDGET:
                return result.text()  # counting all lines of so large a file takes too long
        if text.cut:
            if not result.shown:
                raise ToolError(formats.file_too_large(name, text.size, start, BUDGET))
            result.full = True
            return result.text()
        if not total:
            return formats.EMPTY_FILE
        if start > total:
            raise ToolError(formats.past_the_end(name, total, start))
        return result.text(total if end is None else min(end, total), total)

    def search(self, pattern: str, path: str = ".", regex: bool = False) -> str:
        """Find the lines that hold a text, upper and lower case alike.

        Args:
            pattern: The text to find.
            path: The file, or the folder with all files below it, relative to the workspace.
            regex: Whether the pattern is a regular expression.
        """
        path, takes = self._searched(path)
        search = Search(self.workspace, pattern, regex, packed=self._plain, takes=takes)
        with self._pointing(path):
            is_folder = S_ISDIR(self.workspace.stat(path).st_mode)
        with closing(search.folder(path) if is_folder else search.file(path)) as hits:
            return formats.search_result(map(str, hits), search.notes, max_chars=self._max_chars)

    # --------------------------------------------------------------------- what is elsewhere

    @contextmanager
    def _pointing(self, path: str, *, files: bool = True, folders: bool = True) -> Iterator[None]:
        """Extend an error about a missing path by where its last name exists."""
        try:
            yield
        except ToolError as error:
            missing = (formats.no_such_file, formats.no_such_folder, formats.no_such_path)
            if not str(error).startswith(tuple(refusal(shown(path)) for refusal in missing)):
                raise
            try:
                paths = self._named(path, files, folders)
            except ToolError:  # the folder itself may not be listed
                raise error from None
            raise ToolError(f"{error}{formats.elsewhere(paths)}") from None

    def _named(self, path: str, files: bool, folders: bool) -> list[str]:
        """Return the first permitted paths with that last name, in byte order.

        Letters with accents count as one, however they are written. Looks at as many files as a
        search does, for a second; then what was found must do.
        """
        end = time.monotonic() + MAX_LOOK
        walk = self.workspace.walk(
            skip=SKIPPED_FOLDERS, first=MAX_FILES, late=lambda: time.monotonic() > end
        )
        below = map(one_form, islice(walk, MAX_FILES))
        found = formats.named(one_form(path), below, files=files, folders=folders)
        # A name that is written otherwise than it is, or cut, cannot be requested.
        plain = (one for one in found if one == printable(one) and len(one) <= MAX_SHOWN)
        seen = (one for one in plain if not self._hidden(one))
        return list(islice(seen, formats.MAX_PLACES + 1))

    def _hidden(self, path: str) -> bool:
        return self._policy is not None and self._policy.hides(self._tools, path)


def _check_range(start: int, end: int | None) -> None:
    if not isinstance(start, int) or not isinstance(end, int | None):
        raise ToolError("start and end must be whole numbers")
    if start < 1:
        raise ToolError("start must be 1 or more: lines are counted from 1")
    if max(start, end or 0) > MAX_NUMBER:
        raise ToolError("start or end is too large for a line number")
    if end is not None and end < start:
        raise ToolError(f"end={end} is before start={start}")
