"""Exit statuses, and the status of each error."""

from __future__ import annotations

import re
from enum import IntEnum

from ...errors import (
    ContextOverflowError,
    ConversationError,
    LimitReachedError,
    ModelError,
    RowError,
    SettingError,
    TargetError,
    ToolError,
    TraceError,
    TriplepointError,
)


class Exit(IntEnum):
    """The meaning of each exit status."""

    OK = 0
    FAILED = 1
    USAGE = 2
    FILE = 3
    LIMIT = 4
    NOT_FOUND = 5
    INTERRUPTED = 130


_FLAGS = {"output_type": "--schema", "repetition_stop=False": "--repetition-stop off"}
"""Flags of API parameters, where they differ from the parameters' names."""
_PARAMETER = re.compile(
    r"\((context|max_steps|max_tokens|timeout)\)|\b(output_type\b|kv_memory\b|repetition_stop=False)"
)


def as_flags(message: str) -> str:
    """Rewrite parameter names of the API in a message as command-line flags."""

    def flag(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        text = _FLAGS.get(name, f"--{name.replace('_', '-')}")
        return f"({text})" if found[1] else text

    return _PARAMETER.sub(flag, message)


def explain(error: Exception) -> tuple[Exit, str]:
    """Return the exit status and message for an error that ended a command."""
    status, message = _explain(error)
    return status, as_flags(message)


_STATUSES = {
    (LimitReachedError, ContextOverflowError): Exit.LIMIT,
    (TargetError, SettingError): Exit.USAGE,
    # Of tools, only a bad folder ends a command.
    (ModelError, TraceError, ToolError, RowError, ConversationError): Exit.FILE,
    (TriplepointError,): Exit.FAILED,
}


def _explain(error: Exception) -> tuple[Exit, str]:
    for kinds, status in _STATUSES.items():
        if isinstance(error, kinds):
            return status, str(error)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return Exit.FILE, f"{name}{error.strerror or error}"
    if isinstance(error, MemoryError) or "can't start new thread" in str(error):
        return Exit.FAILED, f"a limit on this process's memory or threads was reached: {error}"
    kind = type(error).__name__
    return Exit.FAILED, f"a bug: {kind}: {error} (TRIPLEPOINT_DEBUG=1 shows where)"
