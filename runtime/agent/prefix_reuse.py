"""Accounting of prefix reuse: tokens of a prefill found in the KV cache, causes of misses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..conversation.ledger import LOST_STATE, PrefixMismatch, Reuse, TokenLedger
from ..conversation.reasoning_spans import NEAR

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from .result import Usage


def common_prefix(ids: Sequence[int], tokens: Sequence[int]) -> int:
    """Return the length of the common prefix of ids and tokens, less the last id.

    The last id is always computed, for its logits.
    """
    pairs = zip(ids[:-1], tokens, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(ids) - 1, len(tokens)))


def resume_points(ledger: TokenLedger, opening: int | None) -> list[int]:
    """Return the positions at which other conversations and the next turn may resume.

    These are the end of the prefix that all conversations of an agent share, and the position
    before the model's thinking.

    Args:
        ledger: ends with the messages to reply to.
        opening: id of the tag with which the template opens the thinking; None where it does not.
    """
    ids = ledger.ids
    near = ids[: -NEAR - 1 : -1]  # from the last one on
    end = len(ids)
    if opening is not None and opening in near:
        end -= 1 + near.index(opening)
    question = next((span.start for span in ledger.spans if span.origin == "user"), end)
    return [question, end]


def count_reuse(
    usage: Usage,
    phase: PhaseEvent,
    ledger: TokenLedger,
    *,
    old: int,
    reused: int,
    cached: int,
    miss: PrefixMismatch | None,
    recurrent: bool,
) -> Reuse:
    """Add the reused and the recomputed tokens of a prefill to the usage and its phase.

    Args:
        usage: totals of the run.
        phase: record of the prefill, which also gets the miss.
        ledger: the conversation, new tokens included.
        old: length of the ledger before them.
        reused: length of the prefix that the session still held.
        cached: tokens of it whose keys and values were cached.
        miss: why the session did not hold all of it.
        recurrent: whether layers have a recurrent state, which is not saved after every token.
    """
    cached += phase.shared_tokens
    usage.input_tokens += len(ledger)
    usage.cached_tokens += cached
    reuse = Reuse(cached, len(ledger))
    if miss is not None and old > reused:
        miss = miss.cost(old - reused, phase)
        phase.reread_tokens, phase.miss = miss.tokens, miss.record()
        usage.reread_tokens += miss.tokens
        usage.reread_s += miss.seconds
        if usage.miss is None or miss.tokens > usage.miss.tokens:
            usage.miss = miss
        reuse = replace(reuse, reread=miss.tokens, reread_s=miss.seconds, miss=miss)
    again = min(phase.recomputed_tokens, old - cached)
    if recurrent and again > 0:
        span = ledger.span_at(cached)
        lost = PrefixMismatch(cached, None, None, span, LOST_STATE).cost(again, phase)
        phase.miss = phase.miss or lost.record()
        phase.reread_tokens += again
        usage.reread_tokens += again
        usage.reread_s += lost.seconds
    return reuse
