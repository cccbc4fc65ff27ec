"""Forbid further calls once a call is repeated with an unchanged result: the model answers.

So does a reply of calls that was ended because it only repeated itself.

Why: small models repeat a call whose result they have, until the run is ended for it. README's
first question ended so on Qwen2.5-Coder-1.5B.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .policy import Context, Decision, Policy

if TYPE_CHECKING:
    from ...conversation.formats.toolcalls import ToolCall
    from ...conversation.reply import Reply


@dataclass(slots=True)
class NoRepeats(Policy):
    """Policy that holds the next reply to text once a call repeats its earlier result."""

    name = "no_repeats"
    _seen: dict[str, str] = field(init=False, default_factory=dict)
    _turn: int = field(init=False, default=0)

    def before_turn(self, context: Context) -> Decision | None:
        """Forget the results of earlier questions; see `Policy.before_turn`."""
        if context.turn != self._turn:  # a new question may look at the same things again
            self._turn, self._seen = context.turn, {}
        return None

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """Forbid calls after a call that was cut as a repetition; see `Policy.after_reply`."""
        return Decision(calls="none") if reply.repeated and reply.cut_call is not None else None

    def after_result(self, context: Context, call: ToolCall, result: str) -> Decision | None:
        """Forbid calls after a repeated result; see `Policy.after_result`."""
        acts = any(tool.effect != "read" for tool in context.tools if tool.name == call.name)
        if acts and not result.startswith("error:"):  # meant twice, or it polls
            return None
        key = f"{call.name} {json.dumps(call.arguments, sort_keys=True, default=str)}"
        before, self._seen[key] = self._seen.get(key), result
        return Decision(calls="none") if before == result else None
