"""An up-to-date catalog of the workspace files that read tools may see.

A folder is read again only when it has changed, so that 20,000 files take milliseconds. A change
within a file leaves its folder as it was: files that changed lately are looked at each time, the
others when a walk is `deep`. What the policy hides or asks about is not in the catalog at all.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from ...errors import ToolError
from ...tools.links import Links
from ...tools.paths import join, printable
from ...tools.plain import PlainFileTools
from ...tools.policy import Policy
from ...tools.search import SKIPPED_FOLDERS
from ...tools.workspace import MAX_DEPTH, Workspace
from .ignored import Rules, is_ignored, is_made
from .reading import Key, Texts, key_of
from .words import words

MAX_FOLDERS = 50_000
LATELY = 600.0  # seconds: a file that changed then, such as a log, may change again
MAX_LATELY = 50  # such files that are looked at each time
FEW = 300  # files that are all looked at each time: it takes no longer than a millisecond or two
TICK = 50_000_000  # ns: a folder that changed so lately may change again without a newer time
IGNORE = ".gitignore"


@dataclass
class _Folder:
    changed: int
    files: dict[str, Key] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    rules: tuple[Rules, ...] = ()
    ignore: Key | None = None


class Catalog:
    """Catalog of the readable files of a workspace: path to a key that changes with the file.

    Attributes:
        files: keys by path, in the order of the walk.
        passed: folders and files that were skipped: built, ignored or unprintable.
        links: symlinks to targets in the workspace, those to folders with a slash.
        whole: whether all folders were read before the time was up.
        version: incremented with each change of `files`.
    """

    def __init__(self, workspace: Workspace, policy: Policy | None, texts: Texts) -> None:
        self.workspace = workspace
        self.files: dict[str, Key] = {}
        self.passed: list[str] = []
        self.links: list[str] = []
        self.whole = True
        self.version = 0
        self._texts = texts
        self._policy = policy
        self._tools = tuple(PlainFileTools(workspace))
        self._folders: dict[str, _Folder] = {}
        self._lock = threading.RLock()
        self._lately: list[str] = []
        self._deep = False
        self._names: tuple[int, dict[str, list[str]]] = -1, {}
        self._words: tuple[int, tuple[dict[str, set[str]], list[str]]] = -1, ({}, [])

    def refresh(self, late: Callable[[], bool] = lambda: False, *, deep: bool = False) -> None:
        """Update the catalog from the file system.

        Args:
            late: once it returns True, no further folder is read.
            deep: stat each file, and not only each folder.
        """
        with self._lock:
            self._links = Links(self.workspace, ".", SKIPPED_FOLDERS, names=False)
            known, folders = self._folders, dict[str, _Folder]()
            deep = deep or len(self.files) <= FEW
            waiting = [] if self.hides(".") else [(".", 0, ())]
            same = self.whole
            self.whole = True
            while waiting:
                path, depth, above = waiting.pop()
                if (path != "." and late()) or len(folders) > MAX_FOLDERS:
                    self.whole = False
                    break
                try:
                    one = self._folder(path, known.get(path), above, deep)
                except (ToolError, OSError):  # gone since, or not ours to list
                    continue
                folders[path] = one
                same = same and one is known.get(path)
                prefix = "" if path == "." else f"{path}/"
                if depth < MAX_DEPTH:
                    waiting += [(prefix + n, depth + 1, one.rules) for n in reversed(one.folders)]
            same = same and len(folders) == len(known)
            self._folders = folders if self.whole else known | folders
            if deep or not same:
                self._collect()
            self._deep = deep
            if not deep:
                self._look_at(self._lately)
            for name in self.workspace.attached:
                if not self.hides(name):
                    self._look_at([name])

    def _collect(self) -> None:
        """Rebuild `files`, `passed` and `links` from the folders; note recently changed files."""
        files: dict[str, Key] = {}
        for path, one in self._folders.items():
            prefix = "" if path == "." else f"{path}/"
            for name, key in one.files.items():
                files[prefix + name] = key
        self.passed = [path for one in self._folders.values() for path in one.passed]
        self.links = [path for one in self._folders.values() for path in one.links]
        since = (time.time() - LATELY) * 1e9
        lately = sorted((-key[1], path) for path, key in files.items() if key[1] > since)
        self._lately = [path for _, path in lately[:MAX_LATELY]]
        if files != self.files:
            self.version += 1
            self.files = files

    def current(self, path: str) -> bool:
        """Return whether a file is as the catalog has it; update its entry if not."""
        before = self.files.get(path)
        if not self._deep:
            self._look_at([path])
        return before is not None and self.files.get(path) == before

    def _look_at(self, paths: Iterable[str]) -> None:
        for path in paths:
            before = self.files.get(path)
            try:
                now = key_of(self.workspace.stat(path))
            except ToolError:
                now = None
            if now == before:
                continue
            # Another thread may be going through the files: those that it has stay as they are.
            changed = {one: key for one, key in self.files.items() if one != path}
            self.files = changed if now is None else {**self.files, path: now}
            self.version += 1

    # -------------------------------------------------------------------------- one folder

    def _folder(
        self, path: str, known: _Folder | None, above: tuple[Rules, ...], deep: bool
    ) -> _Folder:
        if known is not None and self.workspace.holds_hidden(path) and self._is_hidden(path):
            known = None
        location = f"{self.workspace.root}/{path}"
        found = os.lstat(location)
        if (
            known is not None
            and known.changed == found.st_mtime_ns
            and stat.S_ISDIR(found.st_mode)
            and self._same_rules(known, path, above)
        ):
            if deep:
                self._stat_all(location, known)
            return known
        descriptor = self.workspace.folder(path)
        try:
            changed = os.fstat(descriptor).st_mtime_ns
            young = time.time_ns() - changed < TICK
            one = _Folder(-1 if young else changed)
            with os.scandir(descriptor) as entries:
                found = sorted(entries, key=lambda entry: os.fsencode(entry.name))
                self._sort(path, found, one, above)
            return one
        finally:
            os.close(descriptor)

    def _same_rules(self, known: _Folder, path: str, above: tuple[Rules, ...]) -> bool:
        own = known.rules[: len(known.rules) - len(above)]
        return (
            known.rules[len(own) :] == above and self._ignore_key(path, known.files) == known.ignore
        )

    def _ignore_key(self, path: str, files: Collection[str]) -> Key | None:
        if IGNORE not in files:
            return None
        try:
            return key_of(self.workspace.stat(join(path, IGNORE)))
        except ToolError:
            return None

    def _stat_all(self, location: str, one: _Folder) -> None:
        for name in list(one.files):
            try:
                one.files[name] = key_of(os.stat(f"{location}/{name}"))
            except OSError:
                del one.files[name]

    def _sort(
        self, path: str, entries: list[os.DirEntry[str]], one: _Folder, above: tuple[Rules, ...]
    ) -> None:
        names = {entry.name for entry in entries}
        one.ignore = self._ignore_key(path, names)
        one.rules = above
        if one.ignore is not None and not self.hides(join(path, IGNORE)):
            try:
                lines = self._texts.get(join(path, IGNORE), 1 << 20).lines
                one.rules = (Rules.of(lines, "" if path == "." else f"{path}/"), *above)
            except ToolError:
                pass
        for entry in entries:
            below = join(path, entry.name)
            if self.workspace.holds_hidden(below) and self._is_hidden(below):
                continue
            if entry.is_symlink() and self._leads_inside(below):
                one.links.append(below + "/" * entry.is_dir())
            folder = entry.is_dir(follow_symlinks=False)
            if not (folder or self._is_file(entry, below)) or self.hides(below):
                continue
            if folder and is_made(entry.name, names):
                one.passed.append(f"{below}/")
            elif entry.name != printable(entry.name) or is_ignored(one.rules, below, folder):
                # What is written otherwise than it is cannot be asked for.
                one.passed.append(below + "/" * folder)
            elif folder:
                one.folders.append(entry.name)
            else:
                one.files[entry.name] = key_of(entry.stat())

    def _is_hidden(self, path: str) -> bool:
        try:
            self.workspace.stat(path)
        except ToolError:
            return True
        return False

    def _leads_inside(self, link: str) -> bool:
        target = self.workspace.target(link)
        return bool(target) and not (self.hides(link) or self.hides_above(target))

    def _is_file(self, entry: os.DirEntry[str], path: str) -> bool:
        if not entry.is_symlink():
            return entry.is_file(follow_symlinks=False)
        if not self._links(path):
            return False
        target = self.workspace.target(path)
        return target is not None and not self.hides_above(target)

    # ------------------------------------------------------------------------------ policy

    def hides(self, path: str) -> bool:
        """Return whether a policy rule denies this path itself to read tools, or asks about it."""
        if self._policy is None or not self._policy.rules:
            return False
        return not all(self.allows(tool.name, {"path": path}) for tool in self._tools)

    def hides_above(self, path: str) -> bool:
        """Return whether a policy rule hides this path or a folder above it."""
        return self._policy is not None and self._policy.hides(self._tools, path)

    def allows(self, tool: str, arguments: dict[str, object]) -> bool:
        """Return whether a call of a read tool needs no permission from the user."""
        if self._policy is None:
            return True
        (called,) = (one for one in self._tools if one.name == tool)
        try:
            rule = next((r for r in self._policy.rules if r.fits(called, arguments)), None)
        except ToolError:  # too many files to decide
            return False
        return rule is None or rule.action == "allow"

    # ------------------------------------------------------------------------------- names

    def listing(self, path: str) -> list[str] | None:
        """Return the names in a folder, folders with a slash; None if it is not in the catalog."""
        one = self._folders.get(path)
        if one is None:
            return None
        prefix = "" if path == "." else f"{path}/"
        made = [name.removeprefix(prefix) for name in one.passed]
        documents = self.workspace.attached if path == "." else ()
        own = [name for name in documents if name in self.files]
        names = [*one.files, *(f"{name}/" for name in one.folders), *made, *own]
        hides = self.workspace.holds_hidden  # it may have been hidden since
        return [n for n in names if not (hides(prefix + n) and self._is_hidden(prefix + n))]

    @property
    def folders(self) -> Iterator[str]:
        """Return an iterator over the paths of the folders in the catalog."""
        return iter(self._folders)

    def by_name(self) -> dict[str, list[str]]:
        """Return file paths by lower-case base name, with and without its extensions."""
        if self._names[0] != self.version:
            found: dict[str, list[str]] = {}
            for path in self.files:
                name = path.rpartition("/")[2].casefold()
                for key in {name, *stems(name)}:
                    found.setdefault(key, []).append(path)
            self._names = self.version, found
        return self._names[1]

    def by_word(self) -> tuple[dict[str, set[str]], list[str]]:
        """Return file paths by each word in them, and a sorted list of these words."""
        if self._words[0] != self.version:
            found: dict[str, set[str]] = {}
            of_folder: dict[str, list[str]] = {}
            for path in self.files:
                folder, _, name = path.rpartition("/")
                if folder not in of_folder:
                    of_folder[folder] = words(folder)
                for word in (*of_folder[folder], *words(name)):
                    found.setdefault(word, set()).add(path)
            self._words = self.version, (found, sorted(found))
        return self._words[1]


def stems(name: str) -> list[str]:
    """Return a file name's stems: without its last extension, then without each further one."""
    found, rest = [], name
    while "." in rest[1:]:
        rest = rest.rpartition(".")[0]
        found.append(rest)
    return found
