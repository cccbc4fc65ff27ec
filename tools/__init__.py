"""What an agent can do: tools made of functions, and the tools that look at files."""

from __future__ import annotations

from .files import FileTools
from .tool import Effect, Tool, ToolSet, tool
from .workspace import Entry, Listing, Workspace

__all__ = ["Effect", "Entry", "FileTools", "Listing", "Tool", "ToolSet", "Workspace", "tool"]
