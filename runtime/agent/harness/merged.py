"""The harness of a conversation: runs its policies and merges their decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from .policy import Context, Decision, Policy

if TYPE_CHECKING:
    from ...conversation.formats.toolcalls import ToolCall
    from ...conversation.grammar import CallChoice
    from ...conversation.reply import Reply

_STRICTNESS: tuple[CallChoice, ...] = ("auto", "required", "none")


class Harness:
    """Runs policies in order and merges their decisions.

    Calls and messages are concatenated in that order. Of several `calls` the strictest wins: text
    alone before calls alone, since a model that must not call any more has to answer. For tools,
    names, bounce and answer the first policy that sets them wins.

    Args:
        policies: in order; none where the harness is off.
        settings: those that the policies were built from, for a trace's header; see `defaults`.
        sources: whether the facts of answers are looked up in the tool results.
        note: a note for the user on the settings.
    """

    def __init__(
        self,
        policies: Sequence[Policy] = (),
        settings: Mapping[str, object] | None = None,
        *,
        sources: bool = True,
        note: str = "",
    ) -> None:
        self.policies, self.settings = tuple(policies), dict(settings or {})
        self.sources, self.note = sources, note
        self.holds = any(one.holds for one in self.policies)
        """Whether to withhold an answer until all policies have accepted it."""
        self._next: list[Decision] = []

    def before_turn(self, context: Context) -> Decision:
        """Merge the decisions for the next reply, those after the last results included."""
        held, self._next = self._next, []
        return merged([*held, *self._decisions(lambda one: one.before_turn(context))])

    def after_reply(self, context: Context, reply: Reply) -> Decision:
        """Merge the decisions about a reply without calls; their `calls` apply to the next one."""
        found = merged(self._decisions(lambda one: one.after_reply(context, reply)))
        if found.calls is not None:
            self._next.append(Decision(calls=found.calls))
        return found

    def after_result(self, context: Context, call: ToolCall, result: str) -> None:
        """Pass a result to the policies; their decisions apply to the next reply."""
        self._next += self._decisions(lambda one: one.after_result(context, call, result))

    def close(self) -> None:
        """Close all policies."""
        for one in self.policies:
            one.close()

    def _decisions(self, ask: Callable[[Policy], Decision | None]) -> list[Decision]:
        return [found for one in self.policies if (found := ask(one)) is not None]


def merged(decisions: Iterable[Decision]) -> Decision:
    """Merge decisions into one; see `Harness` for the rule."""
    found = list(decisions)
    choices: list[CallChoice] = [one.calls for one in found if one.calls is not None]
    return Decision(
        looked=tuple(looked for one in found for looked in one.looked),
        messages=tuple(message for one in found for message in one.messages),
        calls=next((one for one in reversed(_STRICTNESS) if one in choices), None),
        tools=next((one.tools for one in found if one.tools), frozenset()),
        names=next((one.names for one in found if one.names), {}),
        bounce=next((one.bounce for one in found if one.bounce), ""),
        answer=next((one.answer for one in found if one.answer), ""),
    )
