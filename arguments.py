"""Validation of callers' arguments: a wrong type raises a TriplepointError that names it.

Also where the user's files are, and how an extra is installed.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import shlex
import stat
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, SupportsIndex

from .errors import SettingError, TriplepointError


def as_path(value: object, what: str, error: type[TriplepointError]) -> Path:
    """Return a caller's path as a Path.

    Args:
        value: what was given.
        what: what it is the path of; begins the message.
        error: raised for what is no path, or for one that no file can have.
    """
    if isinstance(value, str | os.PathLike) and isinstance(text := os.fspath(value), str) and text:
        try:
            if b"\0" not in os.fsencode(text):
                return Path(text)
        except UnicodeEncodeError:
            pass
        raise error(f"{what}: no file can be called {value!r}")
    raise error(f"{what} must be a path, not {value!r}")


def read_text(path: str | Path, most: int = 16_000_000) -> str:
    """Read the text of a small file or pipe, such as a policy, without a byte order mark.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no UTF-8, or has more than `most` bytes: a device may have no end.
    """
    with open(path, "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return data.decode("utf-8-sig")


def open_regular(path: str | os.PathLike[str], flags: int = 0) -> BufferedReader:
    """Open a regular file for reading; never blocks on a FIFO or a device.

    Raises:
        OSError: it cannot be opened, or is something else; says what.
    """
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
    file = open(path, "rb", opener=lambda name, usual: os.open(name, usual | flags))  # noqa: SIM115
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        kind = "FIFO" if stat.S_ISFIFO(mode) else "device"
        raise OSError(errno.ENXIO, f"it is a {kind}, not a regular file", os.fspath(path))
    return file


def read_own(path: Path, max_bytes: int = 64 << 20, *, ours: bool = False) -> bytes:
    """Read a file of the user's cache or state.

    Raises:
        OSError: it is absent, cannot be read, or is another user's (if it must be `ours`); or it is
            not regular or has more than `max_bytes` bytes, which is logged, too.
    """
    try:
        with open_regular(path) as file:
            if ours and hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                raise PermissionError(errno.EPERM, "it belongs to another user", os.fspath(path))
            if len(data := file.read(max_bytes + 1)) > max_bytes:
                raise OSError(errno.EFBIG, f"it has more than {max_bytes:,} bytes", os.fspath(path))
            return data
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EFBIG):  # ENXIO: the system's for a socket, too
            logging.getLogger("triplepoint").warning("%s is not used: %s", path, error.strerror)
        raise


class Closing:
    """The base of objects that are closed at the end of a `with` block."""

    def close(self) -> None:
        """Release the object's resources."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProcessBound:
    """The base of objects that cannot be pickled or copied; `_instead`: the error's advice."""

    __slots__ = ()
    _instead = "make another one in the other process"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"cannot pickle or copy an object of {type(self).__name__}: its memory, threads or "
            f"files belong to this process; {self._instead}"
        )


def is_file(path: Path, what: str, error: type[TriplepointError]) -> bool:
    """Return whether a regular file exists; raise `error` for an invalid path."""
    try:
        return path.is_file()
    except OSError as problem:
        raise error(f"{what} {str(path)!r}: {problem.strerror}") from None


def as_list(value: object, what: str, error: type[TriplepointError]) -> list[Any]:
    """Return the items of an iterable that is not text; raise `error` for anything else."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise error(f"{what}, not {value!r}")
    try:
        return list(value)
    except ValueError as problem:  # a file that was closed
        raise error(f"{what}, not {value!r}: {problem}") from None


def as_mapping(value: object, what: str, error: type[TriplepointError]) -> Mapping[Any, Any]:
    """Return a caller's mapping as it is; raise `error` for anything else."""
    if not isinstance(value, Mapping):
        raise error(f"{what}, not {value!r}")
    return value


def check_whole(value: object, what: str, error: type[TriplepointError], least: int = 0) -> None:
    """Raise `error` unless the value is a whole number of `least` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise error(f"{what} must be a whole number of {least} or more, not {value!r}")


def check_switch(value: object, what: str, error: type[TriplepointError]) -> None:
    """Raise `error` unless the value is True or False: "off" would be true."""
    if not isinstance(value, bool):
        raise error(f"{what} must be True or False, not {value!r}")


def is_number(value: object) -> bool:
    """Return whether a value is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def without_surrogates(text: str) -> str:
    """Replace lone surrogates by U+FFFD: they are not text, and no tokenizer takes them."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def pip_install(extra: str) -> str:
    """Return the pip command that installs an extra, from this package's source of installation."""
    from importlib.metadata import distributions
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    # A build leaves an egg-info in a checkout, which is found first there and knows no origin.
    found = (one.read_text("direct_url.json") for one in distributions(name="triplepoint"))
    source = next((json.loads(text) for text in found if text), {})
    url, folder = source.get("url", ""), Path(__file__).parent
    if "dir_info" in source or (not url and (folder / "pyproject.toml").exists()):
        what = f"{url2pathname(urlsplit(url).path) or folder}[{extra}]"
    else:
        kind = f"{source['vcs_info']['vcs']}+" if "vcs_info" in source else ""
        what = f"triplepoint[{extra}]{url and f' @ {kind}{url}'}"
    editable = "-e " if source.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{shlex.quote(what)}"


def user_folder(kind: Literal["cache", "config", "state"]) -> Path:
    """Return the user's own folder for triplepoint's files; it may not exist yet.

    Raises:
        SettingError: it is unknown: no HOME, and the user is not known to the system.
    """
    import platformdirs

    find = {
        "cache": platformdirs.user_cache_dir,
        "config": platformdirs.user_config_dir,
        "state": platformdirs.user_state_dir,
    }
    try:
        return Path(find[kind]("triplepoint"))
    except RuntimeError as error:  # a container's user without an entry in passwd
        raise SettingError(
            f"there is no home folder for the {kind} files of triplepoint; set HOME, or "
            f"XDG_{kind.upper()}_HOME to an absolute path"
        ) from error
