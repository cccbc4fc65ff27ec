"""Names that a model cannot write as a file has them: the file whose name looks the same is meant.

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
    """The cleaned path, with the names of the folder where it has none as they are written.

    A name stands for another only if nothing has it, and just one in its folder looks the same.
    For `own` see `Workspace.relative`.

    Raises:
        ToolError: the path leaves the workspace or cannot be the name of a file.
    """
    path = clean_path(workspace.relative(path, own=own))
    if _is_plain(path) or _is_there(workspace, path):
        return path
    found = "."
    names = path.split("/")
    for at, name in enumerate(names, 1):
        below = join(found, name)
        if not _is_plain(name) and not _is_there(workspace, below):
            alike = _alike(workspace, found, name)
            if len(alike) != 1:
                return "/".join([below, *names[at:]])
            below = join(found, alike[0])
        found = below
    return found


def other_names(workspace: Workspace, *paths: str | None, own: bool = False) -> Iterator[str]:
    """The paths that are meant where they are not those given: rules are about them, too."""
    for path in paths:
        if path is not None and (other := meant(workspace, path, own=own)) != path:
            yield other


def locate(workspace: Workspace, arguments: dict[str, Any], *, new: str = "") -> dict[str, Any]:
    """The arguments with `path` and `to` relative to the workspace; `new` is one that is made."""
    for name in {"path", "to"} & arguments.keys():
        arguments[name] = workspace.relative(arguments[name], own=name != new)
    return arguments


def _is_plain(name: str) -> bool:
    """Whether no other name looks like it."""
    return name.isascii() and "\\" not in name


def _is_there(workspace: Workspace, path: str) -> bool:
    try:
        workspace.stat(path)
    except ToolError:
        return False
    return True


def _alike(workspace: Workspace, folder: str, name: str) -> list[str]:
    """The names in a folder that look like one, itself included; none if it cannot be listed."""
    looks = one_form(name)
    try:
        entries = workspace.listdir(folder).entries
    except ToolError:
        return []
    return [one.name for one in entries if one_form(printable(one.name)) == looks]
