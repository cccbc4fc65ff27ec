"""The token ledger: every token of a session, in order, with where it came from.

That turn n + 1 extends turn n token by token is what lets the KV cache be used again whole, so it
is checked at every turn, and a break is named down to its first token. Only one thing is ever taken
out: thinking that the model's template leaves out of the history. What follows it is recomputed,
and how much that was is in the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...traces.records import MissRecord
from ...traces.timeline import duration

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent

DROPPED_THOUGHTS = "the template leaves thinking out of the history"
CHANGED_SESSION = "the session was changed beside the conversation"
LOST_STATE = "the state of recurrent layers is not kept behind every token"


@dataclass(frozen=True, slots=True)
class Span:
    """A run of tokens of one origin."""

    start: int
    end: int
    origin: str
    """``template``, ``system``, ``tools``, ``user``, ``tool_result`` or ``model``; ``dropped`` for
    the note that replaces an evicted result."""
    message: int | None = None
    """Index of the message whose content the span is; None for the template's text."""
    label: str = ""
    """Name of the span's source, e.g. the tool of a result."""

    @property
    def tokens(self) -> int:
        """Return the number of tokens."""
        return self.end - self.start

    @property
    def field(self) -> str:
        """Name the part of the prompt or message that the span is, for a user."""
        if self.message is None:
            return "tool schemas" if self.origin == "tools" else "template text"
        return "generated tokens" if self.origin == "model" else "content"


@dataclass(frozen=True, slots=True)
class Reuse:
    """Number of context tokens that were reused from the KV cache and that were recomputed."""

    reused: int
    total: int
    reread: int = 0
    """Tokens that were recomputed, mostly because thinking before them was dropped."""
    reread_s: float = 0.0
    """Seconds that the recomputation took."""
    miss: PrefixMismatch | None = None
    """The mismatch from which tokens were recomputed."""

    def __str__(self) -> str:
        text = f"reused {self.reused:,} of {self.total:,} tokens"
        if self.reread:
            text += f", read {self.reread:,} again"
            text += f" in {duration(self.reread_s)}" if self.reread_s else ""
            if self.miss is not None and self.miss.why == DROPPED_THOUGHTS:
                text += " without the thinking before them"
        return text


@dataclass(frozen=True, slots=True)
class PrefixMismatch:
    """The first token at which a sequence differs from the ledger."""

    position: int
    expected: int | None
    """The ledger's token; None when it ends there."""
    found: int | None
    """The sequence's token; None when it ends there."""
    span: Span | None
    why: str = ""
    """The cause of the mismatch, where it is known."""
    tokens: int = 0
    """Tokens that were recomputed because of it."""
    seconds: float = 0.0
    """Seconds that the recomputation took."""

    def cost(self, tokens: int, phase: PhaseEvent) -> PrefixMismatch:
        """Return a copy with its cost: the share of the prefill spent on `tokens` old tokens."""
        seconds = phase.wall_s * tokens / max(1, phase.tokens)
        return replace(self, tokens=tokens, seconds=seconds)

    def record(self) -> MissRecord:
        """Return the mismatch as a trace record."""
        span = self.span
        return MissRecord(
            position=self.position,
            expected=self.expected,
            found=self.found,
            message=None if span is None else span.message,
            field="" if span is None else span.field,
            label="" if span is None else span.label or span.origin,
            why=self.why,
            tokens=self.tokens,
            seconds=self.seconds,
        )

    def __str__(self) -> str:
        where = "past the end of the conversation"
        if self.span is not None:
            whose = "" if self.span.message is None else f" of message {self.span.message}"
            where = f"in the {self.span.field}{whose} ({self.span.label or self.span.origin})"
        text = (
            f"token {self.position} differs, {where}: "
            f"{_id(self.expected)} in the ledger, {_id(self.found)} in the session"
        )
        text += f" ({self.why})" if self.why else ""
        if self.tokens:
            text += f"; {self.tokens:,} tokens were recomputed in {duration(self.seconds)}"
        return text


class TokenLedger:
    """The tokens of one session, in spans with their origins."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.spans: list[Span] = []

    def __len__(self) -> int:
        return len(self.ids)

    def append(
        self, ids: Sequence[int], origin: str, *, message: int | None = None, label: str = ""
    ) -> None:
        """Append tokens; a span of the same origin, message and label is extended."""
        if not ids:
            return
        start = len(self.ids)
        self.ids.extend(ids)
        last = self.spans[-1] if self.spans else None
        if last and (last.origin, last.message, last.label) == (origin, message, label):
            self.spans[-1] = Span(last.start, len(self.ids), origin, message, label)
        else:
            self.spans.append(Span(start, len(self.ids), origin, message, label))

    def append_like(self, span: Span, ids: Sequence[int]) -> None:
        """Append tokens with the origin, message and label of a span."""
        self.append(ids, span.origin, message=span.message, label=span.label)

    def relabel(self, start: int, end: int, *, message: int, label: str) -> None:
        """Set the message and label of the tokens from `start` to `end`."""
        spans: list[Span] = []
        for span in self.spans:
            first, last = max(span.start, start), min(span.end, end)
            if first >= last:
                spans.append(span)
                continue
            inside = replace(span, start=first, end=last, message=message, label=label)
            before, after = replace(span, end=first), replace(span, start=last)
            spans += [part for part in (before, inside, after) if part.tokens]
        self.spans = spans

    def cut(self, spans: Sequence[Span], left: Sequence[int] = ()) -> int:
        """Remove spans and their tokens; return the position at which the first one began.

        Only tokens after that position move.

        Args:
            spans: of this ledger.
            left: tokens that replace them, once for each message.
        """
        ids, before, gone = self.ids, self.spans, set(spans)
        self.ids, self.spans = [], []
        done: set[int | None] = set()
        for span in before:
            if span in gone:
                if span.message not in done:
                    self.append(left, "template")
                done.add(span.message)
            else:
                self.append_like(span, ids[span.start : span.end])
        return min(span.start for span in spans)

    def truncate(self, length: int) -> None:
        """Drop everything from position ``length`` on, as if the turn never ran."""
        assert 0 <= length <= len(self.ids), (length, len(self.ids))
        del self.ids[length:]
        while self.spans and self.spans[-1].start >= length:
            self.spans.pop()
        if self.spans and self.spans[-1].end > length:
            last = self.spans[-1]
            self.spans[-1] = Span(last.start, length, last.origin, last.message, last.label)

    def first_difference(self, tokens: Sequence[int]) -> PrefixMismatch | None:
        """Return the first mismatch of a session's tokens with the ledger, or None.

        Without one a turn can extend the session; else it is recomputed from there on.
        """
        if self.ids == tokens:
            return None
        both = enumerate(zip(self.ids, tokens, strict=False))
        shorter = min(len(self.ids), len(tokens))
        position = next((i for i, (ours, theirs) in both if ours != theirs), shorter)
        return self.mismatch_at(position, tokens)

    def mismatch_at(self, position: int, tokens: Sequence[int]) -> PrefixMismatch:
        """Describe the mismatch of the ledger and a session's tokens at a position."""
        return PrefixMismatch(
            position,
            self.ids[position] if position < len(self.ids) else None,
            tokens[position] if position < len(tokens) else None,
            self.span_at(position),
        )

    def span_at(self, position: int) -> Span | None:
        """Return the span that holds a position, or None."""
        return next((s for s in self.spans if s.start <= position < s.end), None)

    def lengths(self) -> list[tuple[str, int]]:
        """Return token counts in order: prompt parts, then question and results."""
        totals: dict[str, int] = {}
        for span in self.spans:
            name = _PARTS.get(span.origin, span.origin)
            if span.origin in ("user", "tool_result"):
                name = f"{span.label or name} (message {span.message})"
            totals[name] = totals.get(name, 0) + span.tokens
        return list(totals.items())


_PARTS = {
    "system": "system and tools",
    "tools": "system and tools",
    "template": "template",
    "model": "what the model wrote",
    "user": "question",
    "tool_result": "tool result",
}


def _id(token: int | None) -> str:
    return "nothing" if token is None else f"token id {token}"
