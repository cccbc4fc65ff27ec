"""Grounded answers: reject a fact that no line supports; the model extracts once more.

Why: small models state a true value of another key, or one that stands nowhere, as readily as the
right one. From the cited lines alone they mostly find it, or say that it is not there. The second
answer has to stand in these lines. Else the answer is those of them that carry what is right of it
and most of the question, or that nothing was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...evidence.sources import Checked, Read, check
from .policy import Context, Decision, Policy

if TYPE_CHECKING:
    from ....tools import ToolSet
    from ...conversation.messages import Message
    from ...conversation.reply import Reply
    from ...evidence.facts import Line

NOT_FOUND = "Not found in what was read."
AGAIN = (
    "No line says that it is {facts}. Lines that were found:\n{lines}\n\nQuestion: {question}\n"
    "Answer from these lines alone and quote the words that say it, exactly. If they do not say "
    "it, say that it is not there."
)


@dataclass(slots=True)
class Grounded(Policy):
    """Policy that rejects answers with facts that no line of the tool results supports."""

    looks: bool
    """Whether the harness gathers evidence: if it found none, the question needs no file."""
    name = "grounded"
    holds = True
    _turn: int = field(init=False, default=0)
    _cited: list[Read] = field(init=False, default_factory=list)

    def after_reply(self, context: Context, reply: Reply) -> Decision | None:
        """Reject an unsupported answer once, then replace it; see `Policy.after_reply`."""
        reads = reads_of(context.messages, context.tools)
        if reply.repeated or reply.cut_call is not None or (self.looks and not reads):
            return None
        again = self._turn == context.turn
        given = reply.answer, context.question, context.messages
        if again and not checked(*given, self._cited).stated:
            return None
        found = checked(*given, reads)
        if not found.stated:
            return None
        top = found.best[0].score if found.best else 0
        if again:
            pairs = zip(found.sources, found.lines, strict=True)
            right = [one for fact, one in pairs if fact.fact in one.text and one.score >= 0.8 * top]
            return Decision(answer=_shown(right) or NOT_FOUND)
        lines = [one for one in found.best if one.score >= top / 2]
        # What the second answer may say: these lines, whatever of the question they carry.
        cited = [*lines, *found.lines]
        self._cited = [Read("search", "", f"{o.path}:{o.number}:{o.text}", True) for o in cited]
        self._turn = context.turn
        bounce = AGAIN.format(
            facts=", ".join(found.stated),
            lines=_shown(lines) or "none",
            question=context.question,
        )
        return Decision(bounce=bounce, calls="none")


def _shown(lines: Sequence[Line]) -> str:
    """Format lines with their locations, without duplicates."""
    return "\n".join(dict.fromkeys(f"{one.path}:{one.number}: {one.text}" for one in lines))


def checked(
    answer: str, question: str, messages: Sequence[Message], reads: Sequence[Read]
) -> Checked:
    """Check the facts of an answer against tool results and earlier questions."""
    users = [one.content for one in messages if one.role == "user" and not one.by]
    return check(answer, question, reads, [one for one in users if one != question])


def reads_of(messages: Sequence[Message], tools: ToolSet) -> list[Read]:
    """Return the results of a conversation's calls, to check answers against.

    The arguments of an acting tool count as well: an answer may report what was done.
    """
    calls = {call.id: call for message in messages for call in message.calls}
    acting = {tool.name for tool in tools if tool.effect != "read"}
    found: list[Read] = []
    for message in messages:
        if message.role != "tool" or (call := calls.get(message.call_id)) is None:
            continue
        acts = message.name in acting
        counted = acts or message.name in ("count", "table")
        text = [message.content, *(str(v) for v in call.arguments.values() if acts)]
        path = str(call.arguments.get("path") or call.arguments.get("url") or "")
        found.append(Read(message.name, path, "\n".join(text), counted))
    return found
