"""Fuzzy match of file names that a model cannot spell exactly, such as Unicode look-alikes.

A letter with an accent may be one character or two, as on files from macOS, and bytes that are no
text are shown as escapes (`printable`). What a model reads there and writes again is another name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..errors import ToolError
from .paths import clean_path, join, one_form, printable
from .workspace import Workspace


def meant(workspace: Workspace, path: str, *, own: bool = False) -> str:
    """Return the cleaned path, with names that do not exist replaced by their look-alikes.

    A name matches another only if nothing has it, and just one in its folder looks the same.
    For `own` see `Workspace.relative`.

    Raises:
        ToolError: the path leaves the workspace or cannot be the name of a file.
    """
    path = clean_path(workspace.relative(path, own=own))
    if _is_plain(path) or workspace.kind(path):
        return path
    found = "."
    names = path.split("/")
    for at, name in enumerate(names, 1):
        below = join(found, name)
        if not _is_plain(name) and not workspace.kind(below):
            alike = _alike(workspace, found, name)
            if len(alike) != 1:
                return "/".join([below, *names[at:]])
            below = join(found, alike[0])
        found = below
    return found


def other_names(workspace: Workspace, *paths: str | None, own: bool = False) -> Iterator[str]:
    """Yield the matched paths where they differ from the given ones, for the policy's rules."""
    for path in paths:
        if path is not None and (other := meant(workspace, path, own=own)) != path:
            yield other


def locate(workspace: Workspace, arguments: dict[str, Any], *, new: str = "") -> dict[str, Any]:
    """Make `path` and `to` relative to the workspace in place; `new` names one to create."""
    for name in {"path", "to"} & arguments.keys():
        arguments[name] = workspace.relative(arguments[name], own=name != new)
    return arguments


def _is_plain(name: str) -> bool:
    """Return whether no other name can look like this one."""
    return name.isascii() and "\\" not in name


def _alike(workspace: Workspace, folder: str, name: str) -> list[str]:
    """Return the look-alikes of a name in a folder, itself included; none if it is unreadable."""
    looks = one_form(name)
    try:
        entries = workspace.listdir(folder).entries
    except ToolError:
        return []
    return [one.name for one in entries if one_form(printable(one.name)) == looks]
