"""The agent's prompts; the embedded model was trained on exactly these texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...tools import ToolSet
    from ..conversation.reply import Reply

SYSTEM_PROMPT = (
    "You answer questions about the files in one folder. "
    "Look with the tools, then answer briefly from what they return."
)

WORKING_PROMPT = (
    "You work on the files in one folder. "
    "Look with the tools, do what is asked with them, then say briefly what you did."
)
"""System prompt of an agent with tools that change something."""


def system_prompt(tools: ToolSet) -> str:
    """Return the system prompt for the tools' effects; empty where there are no tools."""
    if not len(tools):
        return ""
    return SYSTEM_PROMPT if all(one.effect == "read" for one in tools) else WORKING_PROMPT


DENIED = "not allowed: {reason}. Do not try it again; say what you would have done."
"""Message to the model about a call that the policy denies."""

TOOK_LONGER = "took longer than {seconds:g} s and was not waited for"
"""Message to the model about a call that exceeded its tool's timeout."""

LEFT_BY_TIMEOUT = "the time of the run, {seconds:g} s, was up before the tool had returned"
LEFT_BY_STOP = "the run was stopped before the tool had returned"
"""Trace text for a call that the run did not wait for."""
NOT_BEGUN = "the run had ended before the tool was called"
"""Trace text for a call that was allowed only after the run had ended."""

REPEATS_ITSELF = (
    "That tool call repeated itself without end and was not run. "
    "Make a shorter call, or answer from what you have."
)
"""Message to the model, once a run, about a call that only repeats itself."""

INTERRUPTED_CALL = "error: this call was interrupted and has no result"
"""Result of a call that had none when its run ended, for when the conversation continues."""

REPEATED_CALL = (
    "error: you made this exact call before and got the same result. "
    "Answer from what you have, or try something else."
)
"""Message to the model, once a run, when it makes an identical call a third time."""


def counted(number: int, what: str) -> str:
    """Format a number and a noun, as in "1 step" and "1,024 steps"."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def cut_part(reply: Reply) -> str:
    """Name the part of a reply that was cut, for the user."""
    return "the answer" if reply.cut_call is None else "a tool call, which was not run,"
