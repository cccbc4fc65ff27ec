"""Paths as a model writes them: cleaned before use, and made safe to print."""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata

from ..errors import ToolError
from .formats import outside_workspace

MAX_SHOWN = 200  # characters of a path in a message
TRASH = ".triplepoint-trash"  # folder of the workspace that delete moves things to

# C0 and C1 controls, the Unicode line ends, and lone surrogates (bytes that are no UTF-8).
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def clean_path(path: str) -> str:
    """Return the path relative to the workspace, with ``/`` between names; ``.`` is the workspace.

    Only its text is judged here. Absolute paths and every ``..`` are refused, also where they
    would lead back inside, so that what a path means never depends on a symlink. ``~`` and
    ``\\`` are plain characters of a name.

    Raises:
        ToolError: the path leaves the workspace or cannot be the name of a file.
    """
    if not isinstance(path, str):
        raise ToolError(f"a path must be text, not {type(path).__name__}")
    if path.startswith("/"):
        raise ToolError(outside_workspace(shown(path)))
    if "\0" in path:
        raise ToolError(f"no such file: {shown(path)} holds a NUL character")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise ToolError(f"no such file: {shown(path)} is not valid Unicode") from None
    names = [name for name in path.split("/") if name not in ("", ".")]
    if ".." in names:
        if _climbs_out(names):
            raise ToolError(outside_workspace(shown(path)))
        raise ToolError(f"'..' is not allowed in a path: {shown(path)}")
    return "/".join(names) or "."


def check_text(what: str, value: object, max_chars: int | None = None) -> None:
    """Refuse values that are not strings, hold a lone surrogate, or are too long.

    Raises:
        ToolError: it is; begins with `what`.
    """
    if not isinstance(value, str):
        raise ToolError(f"{what} must be text, not {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ToolError(f"{what} is not valid Unicode: it holds half of a character") from None
    if max_chars is not None and len(value) > max_chars:
        raise ToolError(f"{what} has {len(value)} characters; {max_chars} are allowed")


def _climbs_out(names: list[str]) -> bool:
    depth = 0
    for name in names:
        depth += -1 if name == ".." else 1
        if depth < 0:
            return True
    return False


def join(folder: str, name: str) -> str:
    """Join `name` to the cleaned path `folder`."""
    return name if folder == "." else f"{folder}/{name}"


def printable(path: str) -> str:
    """Return the path on one line, without control characters, as valid Unicode.

    A name of a file may hold line feeds, escape sequences or bytes that are no UTF-8; what a
    model or a terminal reads must not.
    """
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), path)


def real_path(path: str | os.PathLike[str]) -> str:
    """Resolve the path's symlinks; return it as is where one is replaced meanwhile."""
    with contextlib.suppress(OSError):
        return os.path.realpath(path)
    return os.path.abspath(path)


def one_form(text: str) -> str:
    """Normalize the text to NFC."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def shown(path: str) -> str:
    """Return the path as `printable`, cut to a length that fits a message."""
    text = printable(path)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def some(paths: list[str]) -> str:
    """Format a list of paths for a message: the first path, and the number of the others."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{shown(paths[0])}{more}"
