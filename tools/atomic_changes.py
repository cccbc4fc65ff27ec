"""Atomic changes of files in a workspace, never through a symlink.

Every change is made from the descriptor of the folder that holds the name, which was reached
through no symlink. New contents are written next to the file and take its name in one rename, so
that a reader (or a crash) meets the old content or the new one. Nothing is overwritten by a move,
and what is deleted goes to a trash folder in the workspace.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..errors import ToolError
from . import formats
from .alike import meant
from .paths import TRASH, shown
from .workspace import MAX_DEPTH, Workspace, check_regular

MAX_BYTES = 8 * 2**20  # of a file that is edited or written

MAX_NAME = 255  # bytes
_PRIVATE = (".git", ".hg", ".svn")  # what is in them can run as a program, so a write is more
_RENAME_NOREPLACE = 1
_ACL = "system.posix_acl_access"


@dataclass(frozen=True)
class Content:
    """The contents, status and extended attributes of a file, as read."""

    data: bytes
    found: os.stat_result
    attributes: Mapping[str, bytes] = field(default_factory=dict)
    """Its extended attributes: the access control list, and those of the user."""

    def unchanged(self, now: os.stat_result) -> bool:
        """Return whether a file's status still has the inode, size and times of the read."""
        # The time of its last change of any kind, too: a program can set the other time back.
        return _version(self.found) == _version(now)


def _version(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


class TargetPath:
    """The target of a change: a name in a folder that is held open.

    Attributes:
        path: the cleaned path, relative to the workspace.
    """

    def __init__(self, path: str, folder: int) -> None:
        self.path = path
        self.name = path.rpartition("/")[2]
        self._folder = folder

    def stat(self) -> os.stat_result | None:
        """Return the status of the name without following symlinks; None if it does not exist."""
        try:
            return os.stat(self.name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failed("look at", self.path, error) from None

    def read(self) -> Content | None:
        """Read the whole file for a change; None when there is none.

        Raises:
            ToolError: it is no regular file, is too large, or cannot be read or written.
        """
        found = self.stat()
        if found is None:
            return None
        self._check_regular(found)
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with os.fdopen(os.open(self.name, flags, dir_fd=self._folder), "rb") as file:
                found = os.fstat(file.fileno())
                self._check_regular(found)  # another thing may have taken the name since
                data = file.read(MAX_BYTES + 1)
                attributes = _attributes(file.fileno())
        except OSError as error:
            raise _failed("read", self.path, error) from None
        # Its folder alone would let another file take its name: it is write-protected for a reason.
        effective = os.access in os.supports_effective_ids
        if not os.access(self.name, os.W_OK, dir_fd=self._folder, effective_ids=effective):
            raise ToolError(f"no permission to write: {shown(self.path)}")
        if len(data) > MAX_BYTES:
            raise ToolError(f"file too large to change: {shown(self.path)} (over 8 MiB)")
        return Content(data, found, attributes)

    def write(self, data: bytes, before: Content | None) -> None:
        """Atomically replace the file if it is still as read in `before` (None: it did not exist).

        The file keeps its permissions and attributes. Its owner stays where the system lets us.

        Raises:
            ToolError: the file has changed since it was read, or cannot be written.
        """
        check_size(data)
        temporary = f".triplepoint-{secrets.token_hex(8)}.tmp"
        try:
            self._write_temporary(temporary, data, before)
            if before is None:
                _rename_new(self._folder, temporary, self._folder, self.name)
            else:
                now = self.stat()
                if now is None or not before.unchanged(now):
                    raise ToolError(
                        f"{shown(self.path)} has changed since it was read; read it again"
                    )
                os.rename(temporary, self.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileExistsError:
            raise ToolError(f"{shown(self.path)} was made meanwhile; read it first") from None
        except OSError as error:
            raise _failed("write", self.path, error) from None
        finally:
            with contextlib.suppress(OSError):  # it has its name by now, unless something failed
                os.unlink(temporary, dir_fd=self._folder)

    def _write_temporary(self, temporary: str, data: bytes, before: Content | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        mode = 0o666 if before is None else 0o600
        descriptor = os.open(temporary, flags, mode, dir_fd=self._folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if before is not None:
                _permit(descriptor, before)
            os.fsync(descriptor)

    def rename_to(self, other: TargetPath) -> None:
        """Move the file or folder to the path `other`, which must not exist.

        Raises:
            ToolError: there is nothing here, or something there.
        """
        if self.stat() is None:
            raise ToolError(formats.no_such_path(shown(self.path)))
        try:
            _rename_new(self._folder, self.name, other._folder, other.name)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            raise ToolError(f"there is something already: {shown(other.path)}") from None
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise ToolError(f"cannot move {shown(self.path)} into itself") from None
            if error.errno == errno.EXDEV:
                raise ToolError(
                    f"cannot move {shown(self.path)}: {shown(other.path)} is on another file system"
                ) from None
            raise _failed("move", self.path, error) from None

    def _check_regular(self, found: os.stat_result) -> None:
        if stat.S_ISLNK(found.st_mode):
            raise ToolError(
                f"symlink not followed: {shown(self.path)}; name the file that it leads to"
            )
        check_regular(found, self.path)


@contextmanager
def place(
    workspace: Workspace, path: str, *, make: bool = False, deepest: int = MAX_DEPTH
) -> Iterator[TargetPath]:
    """Open the target of a path for a change.

    Args:
        workspace: the folder that nothing leaves.
        path: as a model wrote it.
        make: whether to make the folders on the way.
        deepest: no folder is made that lies in more folders than these.

    Raises:
        ToolError: the path leads out, through a symlink, or into a folder that is not ours to
            change; or too many folders would be made.
    """
    path = meant(workspace, path)
    check_changeable(path)
    if path.partition("/")[0] in workspace.attached:
        raise ToolError(f"{shown(path)} was attached to the question: it can only be read")
    if workspace.holds_hidden(path):
        raise ToolError(f"{shown(path)} belongs to the run that asks: it cannot be changed")
    folder, _, _ = path.rpartition("/")
    if make and folder:
        # Known before a folder is made for it; 255 on nearly every file system.
        if any(len(os.fsencode(name)) > MAX_NAME for name in path.split("/")):
            raise ToolError(f"the name is too long: {shown(path)}")
        _make_folders(workspace, folder, deepest)
    descriptor = workspace.folder(folder or ".")
    try:
        yield TargetPath(path, descriptor)
    finally:
        os.close(descriptor)


def check_size(data: bytes) -> None:
    """Raise ToolError for contents over `MAX_BYTES`."""
    if len(data) > MAX_BYTES:
        raise ToolError(f"too much for one file: {len(data):,} bytes; 8 MiB are allowed")


def check_changeable(path: str) -> None:
    """Refuse the workspace itself, and folders whose files can run as programs.

    Raises:
        ToolError: the path is one of these.
    """
    names = path.split("/")
    if path == ".":
        raise ToolError("the path names the workspace itself; name something in it")
    for name in names:
        if name.casefold() in _PRIVATE:
            raise ToolError(f"what is in {name} is not changed by tools: {shown(path)}")


def to_trash(workspace: Workspace, path: str) -> str:
    """Move the path to the trash folder; return its path there.

    Raises:
        ToolError: there is nothing, it is in the trash already, or it cannot be moved.
    """
    path = meant(workspace, path)
    if path.split("/")[0] == TRASH:
        raise ToolError(f"in the trash already: {shown(path)}; a person may empty it")
    stamp = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    trashed = f"{TRASH}/{stamp}/{path}"
    with place(workspace, path) as here:
        if here.stat() is None:
            raise ToolError(formats.no_such_path(shown(path)))
        # It may lie deeper than we make folders: it is there, so its folders fit into the trash.
        deepest = max(MAX_DEPTH, trashed.count("/"))
        try:
            with place(workspace, trashed, make=True, deepest=deepest) as there:
                here.rename_to(there)
        except ToolError:
            _remove_empty(workspace, trashed.rpartition("/")[0])
            raise
    return trashed


def _make_folders(workspace: Workspace, path: str, deepest: int) -> None:
    """Make and yield the folders of a path; none where it is too deep.

    A chain of thousands takes long to make, and other programs cannot remove it.
    """
    if (depth := path.count("/") + 1) > deepest and not _is_folder(workspace, path):
        raise ToolError(
            f"too deep: {shown(path)} is {depth:,} folders within each other; "
            f"{deepest} are made at most"
        )
    current = workspace.folder()
    below = ""
    try:
        for name in path.split("/"):
            below = f"{below}/{name}" if below else name
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=current)
            # From the workspace, as everything is opened: through no symlink.
            following = workspace.folder(below)
            os.close(current)
            current = following
    except OSError as error:
        raise _failed("make a folder for", path, error) from None
    finally:
        os.close(current)


def _remove_empty(workspace: Workspace, path: str) -> None:
    """Remove the folders of a path, from the last one up to the first non-empty one."""
    while path:
        above, _, name = path.rpartition("/")
        try:
            folder = workspace.folder(above or ".")
        except ToolError:  # not made yet: those above may be
            path = above
            continue
        try:
            os.rmdir(name, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError:
            return
        finally:
            os.close(folder)
        path = above


def _is_folder(workspace: Workspace, path: str) -> bool:
    try:
        os.close(workspace.folder(path))
    except ToolError:
        return False
    return True


def _attributes(descriptor: int) -> dict[str, bytes]:
    """Return the extended attributes that a changed file keeps."""
    if sys.platform != "linux":
        return {}
    try:
        names = [n for n in os.listxattr(descriptor) if n == _ACL or n.startswith("user.")]
        return {name: os.getxattr(descriptor, name) for name in names}
    except OSError:
        return {}


def _permit(descriptor: int, before: Content) -> None:
    """Copy owner, permissions and attributes of the replaced file to the new one."""
    found = before.found
    with contextlib.suppress(OSError):  # only root may give a file away
        os.fchown(descriptor, found.st_uid, found.st_gid)
    # Not setuid and setgid: the system too drops them when a file is written.
    mode = stat.S_IMODE(found.st_mode) & 0o1777
    if sys.platform != "linux":
        os.fchmod(descriptor, mode)
        return
    with contextlib.suppress(OSError):  # it may have one of its folder's
        os.removexattr(descriptor, _ACL)
    # With a list these bits are what it allows at most, and without it the group's own.
    os.fchmod(descriptor, mode & ~0o070 if _ACL in before.attributes else mode)
    for name, value in before.attributes.items():
        with contextlib.suppress(OSError):
            os.setxattr(descriptor, name, value)


def _rename_new(folder: int, name: str, other_folder: int, other: str) -> None:
    """Rename to a free name; raise FileExistsError when it is taken."""
    if _renameat2(folder, name, other_folder, other):
        return
    # Not one step here: another program may take the name in between.
    try:
        os.stat(other, dir_fd=other_folder, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(name, other, src_dir_fd=folder, dst_dir_fd=other_folder)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), other)


def _renameat2(folder: int, name: str, other_folder: int, other: str) -> bool:
    """Rename without replacing, in one step; return False where it is unsupported."""
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    names = os.fsencode(name), os.fsencode(other)
    if call(folder, names[0], other_folder, names[1], ctypes.c_uint(_RENAME_NOREPLACE)) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.ENOSYS, errno.EINVAL) and not _inside(folder, name, other_folder):
        return False  # a file system that does not know the flag
    raise OSError(code, os.strerror(code), other)


def _inside(folder: int, name: str, other_folder: int) -> bool:
    """Return whether the other folder is in the named one, which explains EINVAL."""
    try:
        top = os.stat(name, dir_fd=folder, follow_symlinks=False)
        current = os.dup(other_folder)
    except OSError:
        return False
    try:
        while True:
            here = os.fstat(current)
            if os.path.samestat(here, top):
                return True
            above = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=current)
            os.close(current)
            current = above
            if os.path.samestat(os.fstat(current), here):
                return False
    except OSError:
        return False
    finally:
        os.close(current)


def _failed(what: str, path: str, error: OSError) -> ToolError:
    if error.errno == errno.ENAMETOOLONG:
        return ToolError(f"the name is too long: {shown(path)}")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ToolError(f"no permission to {what}: {shown(path)}")
    return ToolError(f"cannot {what} {shown(path)}: {error.strerror}")
