"""What an agent can do: tools made of functions, and the tools that look at files."""

from __future__ import annotations

from .command import CommandTools
from .edit import EditTools
from .fetch import FetchTools
from .files import FileTools
from .find import FindTools
from .policy import Decision, Policy, Request, Rule
from .tool import Effect, Tool, ToolSet, tool
from .workspace import Entry, Listing, Workspace

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
    "Policy",
    "Request",
    "Rule",
    "Tool",
    "ToolSet",
    "Workspace",
    "tool",
]
