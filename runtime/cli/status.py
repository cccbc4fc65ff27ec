"""Exit statuses, and which error has which."""

from __future__ import annotations

from enum import IntEnum

from ...errors import (
    ContextOverflowError,
    LimitReachedError,
    ModelError,
    SettingError,
    TargetError,
    ToolError,
    TraceError,
    TriplepointError,
)


class Exit(IntEnum):
    """What the exit status says."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FILE = 3
    LIMIT = 4
    INTERRUPTED = 130


def explain(error: Exception) -> tuple[Exit, str]:
    """Exit status and message for an error that ended a command."""
    if isinstance(error, LimitReachedError | ContextOverflowError):
        return Exit.LIMIT, str(error)
    if isinstance(error, TargetError | SettingError):
        return Exit.USAGE, str(error)
    if isinstance(error, ModelError | TraceError | ToolError):  # of tools, only a bad folder
        return Exit.FILE, str(error)
    if isinstance(error, TriplepointError):
        return Exit.FAILED, str(error)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return Exit.FILE, f"{name}{error.strerror or error}"
    kind = type(error).__name__
    return Exit.FAILED, f"a bug: {kind}: {error} (TRIPLEPOINT_DEBUG=1 shows where)"
