"""Notices a model that makes the same call again and again."""

from __future__ import annotations

from ...errors import LimitReachedError
from ..conversation.toolcalls import ToolCall

SAME_CALLS = 2
"""Times that one call may give one result; after that it is not run again."""


class LoopDetector:
    """The calls of one run, and how often each gave the same result."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str]] = {}  # call → times in a row, result
        self._changes: set[str] = set()  # calls that changed something
        self._warned = False

    def too_often(self, call: ToolCall) -> bool:
        """Whether the call has had its tries; the model is told so once.

        Raises:
            LimitReachedError: it was told and goes on.
        """
        times, _ = self._seen.get(call.key, (0, ""))
        if times < SAME_CALLS:
            return False
        if self._warned:
            shown = call.text if call.name in call.text else call.key
            raise LimitReachedError(
                f"the model repeats one call: {shown}, {times + 2} times; rephrase the question "
                "or use a stronger model"
            )
        self._warned = True
        return True

    def record(self, call: ToolCall, result: str) -> None:
        """The call has given this result; a new result makes it a new call."""
        times, before = self._seen.get(call.key, (0, result))
        self._seen[call.key] = (times + 1 if before == result else 1, result)

    def record_change(self, call: ToolCall) -> None:
        """The call may have changed what others give: for the first time, these are new again."""
        if call.key not in self._changes:
            self._changes.add(call.key)
            self._seen = {call.key: self._seen[call.key]}
            self._warned = False
