"""The file tools for small models: plain descriptions, and errors that list alternatives.

A small model copies the words of a description as if they were data, sets what is optional because
it can, and takes "No matches found." for the answer. So parameters are few, hold no examples, and
every result and error says what there is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from textwrap import shorten

from ..errors import ToolError
from . import formats
from .alike import meant
from .count import count_lines
from .files import MAX_LOOK, FileTools
from .globs import glob_matcher
from .paths import join, one_form, printable, shown
from .policy import Policy
from .search import Search, matcher
from .table import ask_table
from .workspace import Workspace

MAX_HELD = 400  # characters of the names in an error
LINES = 3  # that are shown instead
MAX_NAME = 255  # characters of a name that is looked for among others; files have no longer ones

_FAILURES = re.compile(
    r"FATAL|CRITICAL|PANIC|EMERG|ERROR|SEVERE|(?i:\b(?:fatal|panic|error|exception|traceback|failed)\b)"
)
_ABOUT_FAILURES = re.compile(
    r"(?i)err|fail|exception|fatal|crash|panic|warn|problem|wrong|fehler|fallo|échec|错误|失败|异常"
)
_SIGNS = re.compile(r"[\\|*+?^$\[({]")


class PlainFileTools(FileTools):
    """The tools list_dir, read_file, search, count and table over one folder, for models that were
    not trained on them.

    What a rule of the policy keeps from a tool is not in its results either.
    """

    _plain = True

    def __init__(
        self,
        root: str | Path | Workspace,
        *,
        max_lines: int = formats.MAX_LINES,
        max_chars: int = formats.MAX_CHARS,
        policy: Policy | None = None,
    ) -> None:
        """Open the folder; arguments and errors as for `FileTools`."""
        super().__init__(root, max_lines=max_lines, max_chars=max_chars, policy=policy)
        self._tools = (*self._tools, *self._make_tools(self.count, self.table))
        self._by_name = {one.name: one for one in self._tools}
        self._by_name["read_file"].unshown = ("end",)
        self._by_name["search"].unshown = self._by_name["count"].unshown = ("regex",)
        self._by_name["count"].acts_as = ("search",)
        self._by_name["table"].acts_as = ("read_file",)

    # The docstrings of these five go into the prompt.

    def list_dir(self, path: str = ".") -> str:
        """List the files and folders in a folder. The name of a folder ends with a slash."""
        with self._helping(path):
            return super().list_dir(path)

    def read_file(self, path: str, start: int = 1, end: int | None = None) -> str:
        """Read a text file. Each line comes with its number.

        Args:
            start: The number of the first line to show.
        """
        with self._helping(path):
            return super().read_file(path, start, end)

    def search(self, pattern: str, path: str = ".", regex: bool = False) -> str:
        """Find all lines with a word or phrase in a file, or in all files of a folder."""
        with self._helping(self._searched(path)[0]):
            found = super().search(pattern, path, regex)
            if found.startswith(formats.NO_MATCHES) and not regex and _is_regex(pattern):
                again = super().search(pattern, path, True)
                found = found if again.startswith(formats.NO_MATCHES) else again
        if not found.startswith(formats.NO_MATCHES):
            return found
        return "\n".join([found, *self._instead(pattern, path)])

    def count(self, pattern: str = "", path: str = ".", by: str = "", regex: bool = False) -> str:
        """Count the lines with a word or phrase, all lines if there is none, largest group first.

        Args:
            by: What to group by: file, day, hour, level, ip, status, or a regular expression with
                one group.
        """
        listing = ""
        folder, takes = self._searched(path)
        with self._helping(folder), self._pointing(folder):
            for way in [regex, True] if not regex and _is_regex(pattern) else [regex]:
                listing = count_lines(
                    self.workspace, pattern, folder, by, way, max_chars=self._max_chars, takes=takes
                )
                if not listing.startswith("0 "):
                    return listing
        return "\n".join([listing, *self._instead(pattern, path)])

    def table(self, path: str, query: str) -> str:
        """Select, add up, average or group the rows of a csv, tsv or jsonl file with SQL.

        Args:
            query: One SELECT of SQLite. The table is called t; its columns are those of the file.
        """
        path = meant(self.workspace, path, own=True)
        with self._helping(path), self._pointing(path, folders=False):
            return ask_table(self.workspace, path, query, max_chars=self._max_chars)

    # ------------------------------------------------------------------------- what there is

    def _takes(self, *names: str) -> Callable[[str], bool]:
        """Return whether no rule denies a path to any of the tools of these names."""
        tools = [self._by_name[name] for name in names]
        policy = self._policy
        return lambda path: policy is None or not policy.hides(tools, path)

    def _lists(self, path: str) -> bool:
        return self._takes("list_dir")(path)

    def _searched(self, path: str) -> tuple[str, Callable[[str], bool]]:
        """Return path and filter, also for a glob; one without a folder matches in all."""
        path = meant(self.workspace, path, own=True)
        takes = self._takes("search", "read_file")
        if not ("*" in path or "?" in path) or self.workspace.kind(path):
            return path, takes
        fits = glob_matcher(one_form(path if "/" in path else f"**/{path}"))
        folder = re.split(r"[^/]*[*?]", path, maxsplit=1)[0].rstrip("/") or "."
        return folder, lambda below: fits(one_form(below)) and takes(below)

    @contextmanager
    def _helping(self, path: str) -> Iterator[None]:
        """Extend an error about a path by the existing alternatives."""
        try:
            yield
        except ToolError as error:
            if not isinstance(path, str):
                raise
            text = str(error)
            with suppress(ToolError):
                path = meant(self.workspace, path, own=True)
            name = shown(path)
            if text.startswith(formats.outside_workspace("")):
                below = path.lstrip("/")
                if (
                    path.startswith("/")
                    and self._takes("read_file")(below)
                    and self.workspace.kind(below)
                ):
                    text += f" (there is {shown(below)})"
            elif text.startswith(formats.not_a_file(name)):
                text = f"{text}; {self._holds(path)}"
            elif text.startswith("no such f") and name in text:
                above = "."
                for one in path.split("/")[:-1]:  # from the top: a path may have thousands
                    if self.workspace.kind(below := join(above, one)) != "folder":
                        break
                    above = below
                near = "" if "(there " in text else self._near(path, above)
                text = f"{text}{near}; {self._holds(above)}"
            raise ToolError(text) from None

    def _names(self, folder: str) -> list[str]:
        """Return a folder's permitted names; none where it cannot be listed."""
        with suppress(ToolError):
            first = formats.MAX_ENTRIES
            entries = self.workspace.listdir(folder, first=first).entries
            entries = [one for one in entries if self._lists(join(folder, one.name))]
            return [printable(one.name) + "/" * one.is_folder for one in entries]
        return []

    def _holds(self, folder: str) -> str:
        """Describe the contents of a folder."""
        inside = (
            shorten(", ".join(self._names(folder)), MAX_HELD, placeholder=" and more") or "nothing"
        )
        if folder != ".":
            return f"the folder {shown(folder)} holds {inside}"
        return f"this folder is itself called {shown(self.workspace.root.name)}; it holds {inside}"

    def _near(self, path: str, folder: str) -> str:
        """Return the names in a folder that are similar to the path's last name."""
        by_form = {one_form(name.rstrip("/").casefold()): name for name in self._names(folder)}
        wanted = one_form(path.rpartition("/")[2].casefold())[:MAX_NAME]
        near = [join(folder, by_form[one]) for one in get_close_matches(wanted, by_form, 3, 0.6)]
        return f" (near: {', '.join(near)})" if near else ""

    def _instead(self, pattern: str, path: str) -> Iterator[str]:
        """Return hints after a search without hits: text sizes and similar lines."""
        words = [word for word in re.findall(r"\w+", pattern.casefold()) if len(word) > 2]
        about_failures = _ABOUT_FAILURES.search(pattern) is not None
        path, takes = self._searched(path)
        search = Search(self.workspace, "", False, counts=True, packed=True, takes=takes)
        shares: list[tuple[int, str]] = []
        failures: list[str] = []
        end = time.monotonic() + MAX_LOOK
        is_folder = self.workspace.kind(path) == "folder"
        with closing(search.folder(path) if is_folder else search.file(path)) as lines:
            for hit in lines:
                if time.monotonic() > end:
                    break
                text = hit.text[:1000].casefold()
                common = sum(word in text for word in words)
                if common and (len(shares) < LINES or common > shares[-1][0]):
                    shares = sorted([*shares, (common, str(hit))], key=lambda one: -one[0])[:LINES]
                if about_failures and len(failures) < LINES and _FAILURES.search(hit.text):
                    failures.append(str(hit))
        files = "" if not is_folder else f" in {search.files} files"
        yield f"[looked at: {search.lines} lines{files}]"
        if len(words) > 1 and shares:
            yield from ("[lines with some of the words:]", *(line for _, line in shares))
        if failures:
            yield from ("[lines that mark failures:]", *failures)


def _is_regex(pattern: str) -> bool:
    """Return whether a text without matches may be meant as a regular expression."""
    if not isinstance(pattern, str) or not _SIGNS.search(pattern):
        return False
    try:
        matcher(pattern, True)
    except ToolError:
        return False
    return True
