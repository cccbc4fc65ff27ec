"""Reject, once per turn, a claim of a change without a call that made it.

Why: small models say that a file was written and have called nothing, and their user continues in
good faith (amd/gaia#4010, hermes-agent#9400). Or they show the call that would do the task, and
do not make it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...evidence.languages import DID
from .policy import Context, Decision, Policy

if TYPE_CHECKING:
    from ...conversation.messages import Message
    from ...conversation.reply import Reply

NOT_DONE = (
    "No call of a tool has changed anything, so that is not done yet. Call the tool that does it "
    "now, or say why it cannot be done."
)
NOT_CALLED = (
    "That call was only shown, so it is not done yet. Make the call now, or say why it cannot be "
    "done."
)
_DID, _GETAN, _HECHO, _WRITTEN = (f"(?:{DID[one]})" for one in ("en", "de", "es", "zh"))
_CLAIM = re.compile(
    rf"\bI(?:['’]ve| have)?(?: now| just| also| successfully)* {_DID}\b|\bsuccessfully {_DID}\b"
    rf"|\b(?:file|folder|changes?) (?:(?:[^.\n]|\.\S){{1,60}} )?ha(?:s|ve) been {_DID}\b"
    rf"|\bich habe (?:(?!nicht|nichts|kein)[^.\n]){{0,80}}\b{_GETAN}\b|\berfolgreich {_GETAN}\b"
    rf"|\b(?:datei|ordner|änderung(?:en)?)\b(?:[^.\n]|\.\S){{0,60}}? wurden? (?:jetzt )?{_GETAN}\b"
    rf"|\b(?<!no )he (?:\w+ )?{_HECHO}\b|\barchivo\b(?:[^.\n]|\.\S){{0,60}}? ha sido {_HECHO}\b"
    rf"|(?:我|已经?|成功)(?:已经?)?(?:成功)?{_WRITTEN}了?",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Claims(Policy):
    """Policy that rejects, once a turn, an answer that claims or shows a call it did not make."""

    name = "claims"
    _turn: int = field(init=False, default=0)

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """Reject a claim of a change without a successful call; see `Policy.after_reply`."""
        acting = {tool.name for tool in context.tools if tool.effect != "read"}
        if not acting or self._turn == context.turn or reply.repeated or reply.cut_call is not None:
            return None
        shown = _shows(reply.answer, acting) and not context.parsed.asks
        if not (shown or _CLAIM.search(reply.answer)) or _acted(context.messages, acting):
            return None
        self._turn = context.turn
        if shown:
            return Decision(bounce=NOT_CALLED, calls="required", tools=frozenset(acting))
        return Decision(bounce=NOT_DONE)


def _shows(answer: str, tools: set[str]) -> bool:
    """Return whether an answer contains a call of one of the tools as JSON text."""
    names = "|".join(map(re.escape, tools))
    return re.search(rf'"name"\s*:\s*"(?:{names})"', answer) is not None


def _acted(messages: Sequence[Message], acting: set[str]) -> bool:
    """Return whether a call of an acting tool succeeded since the question."""
    for message in reversed(messages):
        if message.role == "user" and not message.by:
            return False
        if message.name in acting and not message.content.startswith("error:"):
            return True
    return False
