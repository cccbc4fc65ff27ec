"""Compaction of a full context: evicts the oldest tool results and leaves a note for each.

It works on tokens: everything else stays exactly as it was read and written, so questions stay, and
so do calls and what short results say of them. Files that are in hand go last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ..conversation.ledger import Span, TokenLedger

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ..conversation.messages import Message

MIN_TOKENS = 48  # tokens of a result that is worth a note in its place


@dataclass(frozen=True)
class Dropped:
    """A tool result that was evicted.

    Attributes:
        message: its index in the conversation.
        label: the tool that it came from.
        tokens: its length.
        left: tokens of the note that replaces it.
    """

    message: int
    label: str
    tokens: int
    left: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a trace records them."""
        return asdict(self)


def compacted(
    ledger: TokenLedger,
    encode: Callable[[str], list[int]],
    before: int,
    missing: int | None,
    in_hand: Collection[int] = (),
) -> tuple[TokenLedger, list[Dropped]]:
    """Evict tool results, the oldest first; return the new ledger and the evicted results.

    Args:
        ledger: the old one, unchanged.
        encode: tokenizes the note that replaces a result.
        before: index of the message from which on results stay.
        missing: tokens to free; None: evict all.
        in_hand: messages whose results are evicted last.
    """
    made = TokenLedger()
    dropped: list[Dropped] = []
    notes: dict[int, list[int]] = {}  # by the index of the message that they replace
    for span in sorted(ledger.spans, key=lambda one: (one.message in in_hand, one.start)):
        old = span.origin == "tool_result" and span.message is not None and span.message < before
        enough = missing is not None and sum(one.tokens - one.left for one in dropped) >= missing
        if not old or span.tokens < MIN_TOKENS or enough:
            continue
        note = encode(_note(span.label, span.tokens))
        if len(note) < span.tokens:
            assert span.message is not None
            dropped.append(Dropped(span.message, span.label, span.tokens, len(note)))
            notes[span.start] = note
    for span in ledger.spans:
        ids, origin = ledger.ids[span.start : span.end], span.origin
        if span.start in notes and span.tokens:
            ids, origin = notes[span.start], "dropped"
        made.append(ids, origin, message=span.message, label=span.label)
    return made, sorted(dropped, key=lambda one: one.message)


def files_in_hand(messages: Sequence[Message]) -> set[int]:
    """Return the indices of results that show files as they are: not changed or reread since."""
    last: dict[str, int] = {}
    for number, message in enumerate(messages):
        last |= dict.fromkeys(message.seen, number)
    return set(last.values())


def _note(label: str, tokens: int) -> str:
    return f"[dropped to make room: {tokens:,} tokens; call {label or 'the tool'} again if needed]"


def with_notes(messages: Sequence[Message], dropped: Sequence[Dropped]) -> list[Message]:
    """Return the messages with a note in place of each evicted result."""
    notes = {one.message: _note(one.label, one.tokens) for one in dropped}
    return [
        replace(one, content=notes[number]) if number in notes else one
        for number, one in enumerate(messages)
    ]


def moved(position: int, spans: Sequence[Span], dropped: Sequence[Dropped]) -> int:
    """Map a position of the old ledger to the new one.

    Args:
        position: between two spans, as the end of a turn is.
        spans: of the old ledger.
        dropped: the evicted results.
    """
    shorter = {one.message: one.tokens - one.left for one in dropped}
    gone = {span.message for span in spans if span.end <= position and span.message in shorter}
    return position - sum(shorter[message] for message in gone if message is not None)


def dropped_text(phase: PhaseEvent) -> str:
    """Summarize what a compaction evicted."""
    tokens = sum(one["tokens"] - one["left"] for one in phase.dropped)
    names = ", ".join(f"{one['label'] or 'a result'} {one['tokens']:,}" for one in phase.dropped)
    count = len(phase.dropped)
    results = "result" if count == 1 else "results"
    return f"removed {count} tool {results} from the context, {tokens:,} tokens ({names})"


def what_fills(ledger: TokenLedger, context: int, before: int) -> str:
    """Describe what takes up the context, for a user who has to shorten it."""
    parts = ", ".join(f"{name} {tokens:,}" for name, tokens in ledger.lengths())
    return (
        f"the context holds {context:,} tokens, {max(context - before, 0):,} of them free, but the "
        f"conversation has {len(ledger):,}: {parts}. Read less at once (a line range, a narrower "
        "search), or load the model with a longer one (context)"
    )
