"""The workspace jail: access to one folder and nothing outside it, by directory descriptor."""

from __future__ import annotations

import errno
import heapq
import os
import re
import stat
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import IO, Literal, TypeVar

from ..arguments import Closing, ProcessBound, as_path, open_regular
from ..errors import ToolError
from . import formats
from .attached import Attached
from .paths import clean_path, join, real_path, shown
from .rooted_fs import FOLDER, READ, HidingFS, NoFollowFS, Openat2, link_to_nothing

T = TypeVar("T")

MAX_DEPTH = 64  # folders within folders that walk() goes down, and that tools make


@dataclass(frozen=True)
class Entry:
    """A directory entry; a symlink counts as its target, if that is inside the workspace."""

    name: str
    is_folder: bool


def folder_at(root: object) -> Path:
    """Return the absolute path of a caller's folder, which may be missing.

    Raises:
        ToolError: it is no path.
    """
    path = as_path(root, "the workspace must be the path of a folder; it", ToolError)
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # a loop of links
        raise ToolError(f"no such folder: {shown(str(root))}: {error}") from None


@dataclass(frozen=True)
class Listing:
    """The first entries of a folder by name, and their total number."""

    entries: list[Entry]
    total: int


class Workspace(ProcessBound, Closing):
    """A folder that limits which files can be opened and listed.

    Every method takes a path relative to the folder, as a model wrote it, and raises `ToolError`
    with a message for the model. The folder is held by a descriptor: if it is renamed, it stays
    the workspace; if another takes its name, that one does not become it. Safe to use from
    several threads.

    A hard link or a mount inside the folder is part of it, wherever else its bytes can be
    reached. So is a document that a person attached (`attach`): it can be read, listed and searched
    as if it lay in the folder, and nothing is written there.
    """

    def __init__(self, root: str | Path, *, resolver: str | None = None) -> None:
        """Open the folder.

        Args:
            root: the folder.
            resolver: "openat2" or "walk"; None takes the first that works here.

        Raises:
            ToolError: there is no such folder, or the system cannot open files safely.
        """
        if not FOLDER:
            raise ToolError("the file tools need Linux, macOS or another POSIX system")
        self.root = folder_at(root)
        given = os.path.abspath(root)  # it may name the folder by a link
        paths = [str(self.root), *([given] if real_path(given) == str(self.root) else [])]
        below = ("".join(f"/+{re.escape(n)}" for n in one.split("/") if n) for one in paths)
        self._absolute = re.compile(rf"(?:{'|'.join(below)})(?:/+|\Z)")
        self._own = re.compile(rf"(?:\./+)*(?:{re.escape(self.root.name)}(?:/+|\Z))+")
        try:
            fd = os.open(self.root, FOLDER)
        except NotADirectoryError:
            raise ToolError(formats.not_a_folder(shown(str(root)))) from None
        except OSError as error:
            raise ToolError(_message(error, str(root), formats.no_such_folder)) from None
        self._close = weakref.finalize(self, os.close, fd)
        self._attached: dict[str, Attached] = {}
        self.resolver, self._rooted = _choose(fd, resolver)

    def close(self) -> None:
        """Close the descriptor; garbage collection does so as well."""
        self._rooted.close()
        self._attached = {}
        self._close()

    def __repr__(self) -> str:
        return f"Workspace({str(self.root)!r}, resolver={self.resolver!r})"

    def hide(self, paths: Iterable[str | Path]) -> None:
        """Hide these files and folders from now on.

        What reads does not find them, and what writes refuses to change them or a folder with them.

        Args:
            paths: absolute, or relative to the current folder; those outside are no matter.
        """
        self._rooted.hidden |= set(_paths_below(self.root, paths))

    def holds_hidden(self, path: str) -> bool:
        """Return whether a cleaned path is hidden, or has a hidden path below it."""
        return self._rooted.holds(path)

    def relative(self, path: str, *, own: bool = False) -> str:
        """Make an absolute path in the folder relative; other paths are unchanged.

        Args:
            path: as a model wrote it.
            own: whether the folder's own name, if nothing in it has that name, means the folder.
                Not for a path that may be made: ``app/app`` is a usual one.
        """
        if not isinstance(path, str):
            return path
        if found := self._absolute.match(path):
            path = path[found.end() :] or "."
        if own and (found := self._own.match(path)) and not self._is_taken(self.root.name):
            path = path[found.end() :] or "."
        return path

    # ----------------------------------------------------------------------------- documents

    def attach(
        self,
        name: str,
        file: IO[bytes],
        origin: str = "",
        *,
        taken: Callable[[str], bool] = lambda _: False,
    ) -> str:
        """Attach a document as if it were in the folder; return its name there.

        Args:
            name: what to call it. If the folder has such a name, or another document, it gets a
                number: ``app.log``, ``app-2.log``.
            file: an open regular file; it may be closed afterwards.
            origin: where it is from. What is attached again from there takes the place of what was.
            taken: whether a name is not to be used, for reasons of the caller's.

        Raises:
            ToolError: it is no name of a file.
        """
        if (wanted := clean_path(name)) == "." or "/" in wanted:
            raise ToolError(f"{shown(name)!r} cannot name a document")
        document = Attached(file.fileno(), origin)
        stem, dot, suffix = wanted.rpartition(".") if "." in wanted[1:] else (wanted, "", "")
        number = 1
        while not (origin and wanted in self.attached and self.attached[wanted] == origin) and (
            self._is_taken(wanted) or taken(wanted)
        ):
            number += 1
            wanted = f"{stem}-{number}{dot}{suffix}"
        self._attached = {**self._attached, wanted: document}
        return wanted

    def attach_again(self, documents: Mapping[str, str]) -> Iterator[str]:
        """Attach an earlier run's documents again, by their original paths.

        Args:
            documents: as `attached` gave them.

        Yields:
            A note on each that is gone, or that has another name now.
        """
        for name, origin in documents.items():
            if name in self._attached:
                continue
            try:
                with open_regular(origin) as file:
                    now = self.attach(name, file, origin)
                if now != name:
                    yield f"{origin} was attached as {name}, but is {now} now: that name is taken"
            except (OSError, ToolError):
                yield (
                    f"{name} was attached from {origin}, which can no longer be read; put a copy "
                    f"in {self.root} under that name to make it readable"
                )

    @property
    def attached(self) -> Mapping[str, str]:
        """Return the attached documents by name, with their original paths."""
        return {name: document.origin for name, document in self._attached.items()}

    def _is_taken(self, name: str) -> bool:
        if name in self._attached:
            return True
        try:
            self._rooted.stat(name)
        except FileNotFoundError:
            return False
        except OSError:  # there, and not ours to look at
            pass
        return True

    # --------------------------------------------------------------------------------- files

    def stat(self, path: str) -> os.stat_result:
        """Return the status of a path, following symlinks that stay inside."""
        path = clean_path(path)
        if (document := self._attached.get(path)) is not None:
            return document.stat()
        try:
            return self._rooted.stat(path)
        except OSError as error:
            raise ToolError(self._message(error, path, formats.no_such_path)) from None

    def kind(self, path: str) -> Literal["file", "folder", ""]:
        """Return whether a path is a folder or a file; empty if it is missing or not accessible."""
        try:
            return "folder" if stat.S_ISDIR(self.stat(path).st_mode) else "file"
        except ToolError:
            return ""

    def target(self, link: str) -> str | None:
        """Resolve a cleaned path; return empty for a dangling symlink, None if it leads outside."""
        try:
            self._rooted.stat(link)
        except OSError as error:
            return "" if error.errno == errno.ENOENT else None
        return os.path.relpath(real_path(self.root / link), self.root)

    def open(self, path: str) -> FileIO:
        """Open a regular file, unbuffered, for reading bytes.

        Raises:
            ToolError: it is outside, missing, a folder, a FIFO, a socket or a device.
        """
        path = clean_path(path)
        if (document := self._attached.get(path)) is not None:
            return document.open()
        try:
            check_regular(self._rooted.stat(path), path)
            descriptor = self._rooted.open(path, READ)
        except OSError as error:
            raise ToolError(self._message(error, path)) from None
        try:
            # Another thing may have taken the name since the check; this is what was opened.
            check_regular(os.fstat(descriptor), path)
            return FileIO(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise

    # ------------------------------------------------------------------------------- folders

    def folder(self, path: str = ".") -> int:
        """Open a folder's descriptor for changes in it; the caller closes it.

        No symlink is followed on the way, not even one that stays inside: a change is made where
        its path says.
        """
        path = clean_path(path)
        try:
            return self._rooted.folder(path)
        except NotADirectoryError:
            raise ToolError(self._not_a_folder(path)) from None
        except OSError as error:
            raise ToolError(_message(error, path, formats.no_such_folder)) from None

    def listdir(
        self,
        path: str = ".",
        *,
        first: int | None = None,
        fits: Callable[[str], bool] = lambda _: True,
    ) -> Listing:
        """Return the entries of a folder, by the bytes of their names.

        Args:
            path: the folder.
            first: how many entries to keep, so that a folder of millions needs little memory.
            fits: which names count.
        """
        path = clean_path(path)
        total = 0

        def counted(items: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
            nonlocal total
            for item in items:
                if fits(item.name):
                    total += 1
                    yield item

        with self._scan(path) as found:
            chosen = _in_order(counted(found), first, key=lambda item: os.fsencode(item.name))
            entries = [self._entry(path, item) for item in chosen]
        if path == "." and self._attached:
            documents = [name for name in self._attached if fits(name)]
            entries += [Entry(name, is_folder=False) for name in documents]
            entries = sorted(entries, key=lambda entry: os.fsencode(entry.name))[:first]
            total += len(documents)
        return Listing(entries, total)

    def walk(
        self,
        path: str = ".",
        *,
        skip: Collection[str] = (),
        first: int | None = None,
        missed: list[str] | None = None,
        ignored: list[str] | None = None,
        linked: Callable[[str], bool] = lambda _: False,
        late: Callable[[], bool] = lambda: False,
    ) -> Iterator[str]:
        """Yield the paths of the regular files below a folder, by the bytes of the path.

        No symlink to a folder is followed, so there are no loops. Each folder is opened anew from
        the workspace: one that is moved out during the walk is not followed.

        Args:
            path: the folder.
            skip: names of folders that are not entered.
            first: how many names of each folder to keep; enough for as many files in all.
            missed: takes the folders that could not be listed or lie too deep.
            ignored: takes the folders that `skip` names.
            linked: which symlinks count as files.
            late: once it says so, no further folder is entered.
        """
        missed = [] if missed is None else missed
        ignored = [] if ignored is None else ignored

        def names_in(path: str, found: Iterator[os.DirEntry[str]]) -> Iterator[str]:
            """Yield file names, and folder names with a slash, so that they sort as paths do."""
            for item in found:
                if item.is_file(follow_symlinks=False):
                    yield item.name
                elif item.name in skip:
                    if item.is_dir(follow_symlinks=False):
                        ignored.append(join(path, item.name))
                elif item.is_dir(follow_symlinks=False):
                    yield f"{item.name}/"
                elif item.is_symlink() and linked(join(path, item.name)):
                    yield item.name

        def walk(path: str, depth: int) -> Iterator[str]:
            if depth and late():
                return
            try:
                with self._scan(path) as found:
                    here = chain(names_in(path, found), self._attached if path == "." else ())
                    names = _in_order(here, first, key=os.fsencode)
            except ToolError:
                if depth == 0:
                    raise
                missed.append(path)
                return
            for name in names:
                below = join(path, name.removesuffix("/"))
                if not name.endswith("/"):
                    yield below
                elif depth < MAX_DEPTH:
                    yield from walk(below, depth + 1)
                else:
                    missed.append(below)

        yield from walk(clean_path(path), 0)

    def everything(self, path: str = ".") -> Iterator[str]:
        """Yield the paths of everything below a folder, in any order.

        Symlinks are not followed.
        """
        folders = [clean_path(path)]
        while folders:
            here = folders.pop()
            with self._scan(here) as found:
                for item in found:
                    below = join(here, item.name)
                    if item.is_dir(follow_symlinks=False):
                        folders.append(below)
                    yield below

    @contextmanager
    def _scan(self, path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        """Yield a folder's raw entries; errors in between are reported like those before."""
        if path in self._attached:
            raise ToolError(formats.not_a_folder(shown(path)))
        rooted = self._rooted
        try:
            descriptor = rooted.open(path, FOLDER)
            try:
                with os.scandir(descriptor) as found:
                    hides = rooted.hides
                    yield (item for item in found if not hides(join(path, item.name)))
            finally:
                os.close(descriptor)
        except NotADirectoryError:
            raise ToolError(self._not_a_folder(path)) from None
        except OSError as error:
            raise ToolError(self._message(error, path, formats.no_such_folder)) from None

    def _message(
        self,
        error: OSError,
        path: str,
        missing: Callable[[str], str] = formats.no_such_file,
    ) -> str:
        """Return the error message for a path; it reports a dangling symlink."""
        message = _message(error, path, missing)
        if error.errno == errno.ENOENT and (link := link_to_nothing(self._rooted, path)):
            message += formats.link_to_nothing(shown(link))
        return message

    def _not_a_folder(self, path: str) -> str:
        try:
            self._rooted.stat(path)
        except OSError:
            return formats.no_such_folder(shown(path))  # a name before the last one is a file
        return formats.not_a_folder(shown(path))

    def _entry(self, folder: str, item: os.DirEntry[str]) -> Entry:
        if not item.is_symlink():
            return Entry(item.name, item.is_dir(follow_symlinks=False))
        try:
            found = self._rooted.stat(join(folder, item.name))
        except OSError:
            return Entry(item.name, is_folder=False)
        return Entry(item.name, stat.S_ISDIR(found.st_mode))


def _paths_below(root: Path, paths: Iterable[str | Path]) -> Iterator[str]:
    """Yield the paths below a folder, relative to it, as they are and with symlinks resolved."""
    for path in paths:
        head, name = os.path.split(os.path.abspath(path))
        for candidate in (os.path.join(real_path(head), name), real_path(path)):
            relative = os.path.relpath(candidate, root)
            if relative.split(os.sep)[0] not in (os.curdir, os.pardir):
                yield relative.replace(os.sep, "/")


def _choose(root: int, wanted: str | None) -> tuple[str, HidingFS]:
    for name, way in (("openat2", Openat2), ("walk", NoFollowFS)):
        if wanted in (None, name) and way.available(root):
            return name, HidingFS(way(root))
    raise ToolError(f"this system cannot open files from a folder's descriptor ({wanted or 'any'})")


def _in_order(items: Iterable[T], first: int | None, key: Callable[[T], bytes]) -> list[T]:
    """Return the smallest `first` items (None: all) in order, in memory for only those."""
    return sorted(items, key=key) if first is None else heapq.nsmallest(first, items, key=key)


def check_regular(found: os.stat_result, path: str) -> None:
    """Raise ToolError unless a file's status is that of a regular file."""
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(formats.not_a_file(shown(path)))
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(formats.not_regular(shown(path)))


def _message(
    error: OSError, path: str, missing: Callable[[str], str] = formats.no_such_file
) -> str:
    """Return the model's message about a failed system call."""
    path = shown(path)
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR | errno.ENAMETOOLONG | errno.EILSEQ:
            return missing(path)
        case errno.EXDEV:
            return formats.outside_workspace(path)
        case errno.ELOOP:
            return f"symlink not followed: {path}"
        case errno.ENXIO | errno.ENODEV:  # a socket, or a device without a driver
            return formats.not_regular(path)
        case errno.EACCES | errno.EPERM:
            return f"no permission to read: {path}"
    return f"cannot open {path}: {error.strerror}"
