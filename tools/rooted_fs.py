"""Opens files beneath a folder, so that no path, symlink or rename leads out of it.

Checking a path first and opening it afterwards can always be raced. Both ways here resolve and
open in one go, from a descriptor of the folder:

* `Openat2`: Linux resolves the whole path beneath the descriptor (RESOLVE_BENEATH). Symlinks that
  stay inside are followed; what leads out fails in the kernel, also while names are being swapped.
* `NoFollowFS`: elsewhere each name is opened from the descriptor of the one before, and never
  through a symlink (O_NOFOLLOW). Without ``..`` and symlinks every step goes down.

`HidingFS` is either of them without some paths, such as those of a run's own output.

Paths are cleaned (`paths.clean_path`): relative, no ``..``, no empty names.
"""

from __future__ import annotations

import errno
import os
import platform
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ..errors import ToolError

# O_NONBLOCK: a FIFO or a device that takes the file's place after the check cannot block the open.
# O_NOCTTY: a terminal cannot become ours.
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY if os.name == "posix" else 0
FOLDER = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY if os.name == "posix" else 0

_OPENAT2 = 437  # the same number on all of these
_MACHINES = {"x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "armv7l", "armv6l", "i686"}
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_TRIES = 128  # the kernel says EAGAIN when a rename meets a ".." in a symlink; it is not a failure


class RootedFS(Protocol):
    """Access to files beneath the folder of a descriptor."""

    def open(self, path: str, flags: int) -> int:
        """Open a path; return a new descriptor.

        Raises:
            OSError: EXDEV when the path leads out, ELOOP when it meets a symlink that is not
                followed, else what the system says.
        """
        ...

    def stat(self, path: str) -> os.stat_result:
        """Return the status of a path without opening it: opening a device can have effects."""
        ...

    def folder(self, path: str) -> int:
        """Open a folder without following symlinks; return a new descriptor.

        Raises:
            OSError: as `open`; ELOOP for every symlink.
        """
        ...


class Openat2:
    """Path resolution by the Linux kernel (5.6 and later)."""

    def __init__(self, root: int) -> None:
        import ctypes

        self._root = root
        self._errno = ctypes.get_errno
        # Plain CDLL: the GIL is released during the call, and errno is per thread.
        libc: Any = ctypes.CDLL(None, use_errno=True)
        self._syscall = libc.syscall
        long, how = ctypes.c_long, ctypes.c_char_p
        self._syscall.argtypes = [long, ctypes.c_int, ctypes.c_char_p, how, ctypes.c_size_t]
        self._syscall.restype = long

    @classmethod
    def available(cls, root: int) -> bool:
        """Return whether the kernel, and any sandbox around us, supports the call."""
        if sys.platform != "linux" or platform.machine() not in _MACHINES:
            return False
        try:
            os.close(cls(root).open(".", os.O_PATH | os.O_CLOEXEC))
        except (OSError, AttributeError):
            return False
        return True

    def open(self, path: str, flags: int) -> int:
        return self._open(path, flags, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)

    def folder(self, path: str) -> int:
        return self._open(path, FOLDER, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)

    def _open(self, path: str, flags: int, resolve: int) -> int:
        # struct open_how: flags, mode, resolve
        how = struct.pack("QQQ", flags, 0, resolve)
        name = os.fsencode(path)
        code = 0
        for _ in range(_TRIES):
            descriptor = self._syscall(_OPENAT2, self._root, name, how, len(how))
            if descriptor >= 0:
                return descriptor
            code = self._errno()
            if code not in (errno.EAGAIN, errno.EINTR):
                break
        raise OSError(code, os.strerror(code), path)

    def stat(self, path: str) -> os.stat_result:
        descriptor = self.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            return os.fstat(descriptor)
        finally:
            os.close(descriptor)


class NoFollowFS:
    """Path resolution name by name, for every system with `openat`."""

    def __init__(self, root: int) -> None:
        self._root = root

    @classmethod
    def available(cls, root: int) -> bool:
        return os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd

    def open(self, path: str, flags: int) -> int:
        with self._parent(path) as (folder, name):
            return self._step(folder, name, flags)

    def stat(self, path: str) -> os.stat_result:
        with self._parent(path) as (folder, name):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return found

    def folder(self, path: str) -> int:
        return self.open(path, FOLDER)

    @contextmanager
    def _parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Return the descriptor of the last name's folder, and that name."""
        *folders, name = path.split("/")
        # Where there is O_PATH, a folder that may be entered but not listed is no obstacle.
        flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC | os.O_DIRECTORY
        current = os.open(".", flags, dir_fd=self._root)
        try:
            for folder in folders:
                below = self._step(current, folder, flags)
                os.close(current)
                current = below
            yield current, name
        finally:
            os.close(current)

    def _step(self, folder: int, name: str, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
        except NotADirectoryError:
            # Linux says ENOTDIR for a symlink where a folder was requested, others say ELOOP.
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
            raise


class HidingFS:
    """A wrapper of a `RootedFS` that hides some paths and all below them, or all once closed."""

    hidden: frozenset[str] = frozenset()
    """The hidden paths, cleaned."""

    def __init__(self, inner: RootedFS) -> None:
        self._inner: RootedFS | None = inner

    def hides(self, path: str) -> bool:
        """Return whether a cleaned path is hidden."""
        return bool(self.hidden) and not self.hidden.isdisjoint(_prefixes(path))

    def holds(self, path: str) -> bool:
        """Return whether a cleaned path is hidden, or has a hidden path below it."""
        return self.hides(path) or any(one.startswith(f"{path}/") for one in self.hidden)

    def close(self) -> None:
        """Refuse every access from now on: the number of the descriptor may be reused."""
        self._inner = None

    def _open_for(self, path: str) -> RootedFS:
        if self._inner is None:
            raise ToolError("the workspace is closed")
        if self.hides(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._inner

    def open(self, path: str, flags: int) -> int:
        return self._open_for(path).open(path, flags)

    def stat(self, path: str) -> os.stat_result:
        return self._open_for(path).stat(path)

    def folder(self, path: str) -> int:
        return self._open_for(path).folder(path)


def link_to_nothing(rooted: RootedFS, path: str) -> str:
    """Return the part of a path that is a dangling symlink; empty for none.

    Only where a way follows symlinks: to others every link is one that is not followed.
    """
    if not hasattr(os, "O_PATH"):
        return ""
    for part in _prefixes(path):
        try:
            rooted.stat(part)
        except OSError:
            return part if _is_link(rooted, part) else ""
    return ""


def _prefixes(path: str) -> Iterator[str]:
    """Yield the folders that a path leads through, and the path."""
    names = path.split("/")
    return ("/".join(names[:count]) for count in range(1, len(names) + 1))


def _is_link(rooted: RootedFS, path: str) -> bool:
    try:
        descriptor = rooted.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        return stat.S_ISLNK(os.fstat(descriptor).st_mode)
    finally:
        os.close(descriptor)
