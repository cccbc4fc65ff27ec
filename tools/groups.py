"""The optional tool groups, as `--tools` and rows of a fleet name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import ToolError
from .tool import Tool
from .workspace import Workspace

GROUPS: dict[str, tuple[str, ...]] = {
    "find": ("find",),
    "edit": ("write_file", "edit_file", "move", "delete"),
    "net": ("fetch_url",),
    "exec": ("run_command",),
}
"""The names of each group's tools."""


def make_group(
    name: str, folder: str | Path | Workspace | None, *, private: bool = False
) -> list[Tool[..., Any]]:
    """Build the tools of a group.

    Args:
        name: of `GROUPS`.
        folder: the workspace; ``net`` needs none.
        private: whether addresses of private networks are fetched.

    Raises:
        ToolError: the group needs a folder.
    """
    from .command import CommandTools
    from .edit import EditTools
    from .fetch import FetchTools
    from .find import FindTools

    if name == "net":
        return list(FetchTools(private=private))
    if folder is None:
        raise ToolError(f"the tools {name} need a folder")
    if name == "exec":
        return list(CommandTools(folder.root if isinstance(folder, Workspace) else folder))
    return list((FindTools if name == "find" else EditTools)(folder))
