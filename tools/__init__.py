"""Tools of an agent: functions as tools, and the file tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .files import FileTools
from .policy import Decision, PermissionRequest, Policy, Rule
from .tool import Effect, Tool, ToolSet, tool
from .workspace import Entry, Listing, Workspace

if TYPE_CHECKING:
    from .command import CommandTools as CommandTools
    from .edit import EditTools as EditTools
    from .fetch import FetchTools as FetchTools
    from .find import FindTools as FindTools
    from .plain import PlainFileTools as PlainFileTools

__all__ = [
    "CommandTools",
    "Decision",
    "EditTools",
    "Effect",
    "Entry",
    "FetchTools",
    "FileTools",
    "FindTools",
    "Listing",
    "PermissionRequest",
    "PlainFileTools",
    "Policy",
    "Rule",
    "Tool",
    "ToolSet",
    "Workspace",
    "tool",
]

_LAZY = {
    "CommandTools": "command",
    "EditTools": "edit",
    "FetchTools": "fetch",
    "FindTools": "find",
    "PlainFileTools": "plain",
}


def __getattr__(name: str) -> Any:
    """Import a tool that a run has only on request when its name is first used."""
    from importlib import import_module

    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_LAZY[name]}", __name__), name)
