"""The cost of drafts, and how many must be accepted to pay: the source of a table of lengths.

With c the time of a draft and r(n) that of a pass of n tokens, both in passes of one token, k
drafts pay where each is right with a chance p, given those before it, of which

    1 + p + … + p^k = r(1 + k) + k c

Drafts that are copied from the context cost nothing (c = 0); those of the model's own layer cost a
pass of that layer and of a part of the head. r and c are measured in turns; beside them stands what
the latency model says of r, by which lengths are chosen before the first passes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from triplepoint.runtime.engine.passes.request import Request
from triplepoint.runtime.engine.passes.sequence import Status

if TYPE_CHECKING:
    from triplepoint.runtime.engine.drafting.head import DraftHead
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.engine.session import Session

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
PROMPT = 64  # tokens before the passes
PASSES = 5  # of each kind in a turn


@dataclass(frozen=True, slots=True)
class Length:
    """The figures of one draft length.

    Attributes:
        ratio: r(1 + drafts), measured; spread: its least and most in a turn; predicted: the same by
            the latency model.
        copied, drafted: the chance that each draft needs, copied or of the model's own layer; None:
            it cannot pay, or there is no such layer.
    """

    drafts: int
    ratio: float
    spread: tuple[float, float]
    predicted: float
    copied: float | None
    drafted: float | None


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """Cost of drafts and of passes that verify them. Times in seconds, as medians.

    Attributes:
        step_s: a pass of one token, with what it computes for the layer that drafts.
        draft_s, whole_s: a draft from the usual part of the head, and from all of it.
        spread: least and most of draft_s / step_s in a turn.
        vocabulary: tokens that drafts are chosen from.
    """

    step_s: float
    lengths: list[Length]
    draft_s: float | None = None
    whole_s: float | None = None
    spread: tuple[float, float] = (0.0, 0.0)
    vocabulary: int = 0

    def lines(self) -> list[str]:
        """Return a table in Markdown, and the time of a draft."""
        lines = [
            "| drafts | pass, times one | predicted | p to pay, copied | p to pay, mtp |",
            "|--:|--:|--:|--:|--:|",
        ]
        for one in self.lengths:
            low, high = one.spread
            lines.append(
                f"| {one.drafts} | {one.ratio:.2f} ({low:.2f} … {high:.2f}) | {one.predicted:.2f} "
                f"| {_chance(one.copied)} | {_chance(one.drafted)} |"
            )
        if self.draft_s is not None and self.whole_s is not None:
            low, high = self.spread
            lines += [
                "",
                f"a draft from {self.vocabulary:,} tokens: {1e3 * self.draft_s:.2f} ms, "
                f"{self.draft_s / self.step_s:.3f} ({low:.3f} … {high:.3f}) of a pass of one token "
                f"({1e3 * self.step_s:.2f} ms); from all: {1e3 * self.whole_s:.2f} ms",
            ]
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as numbers."""
        return asdict(self)


def needed(cost: float, drafts: int) -> float | None:
    """Return the acceptance p at which so many drafts give `cost` tokens; None: none is enough."""
    if cost > 1 + drafts:
        return None
    low, high = 0.0, 1.0
    for _ in range(40):
        p = (low + high) / 2
        if sum(p**n for n in range(drafts + 1)) < cost:
            low = p
        else:
            high = p
    return high


def measure(engine: Engine, repeat: int) -> DraftCosts:
    """Time passes of 1 to 9 tokens and drafts, in turns."""
    session = engine.session()
    ids = np.random.default_rng(5).integers(0, engine.loaded.outputs.n_vocab, PROMPT + 16).tolist()
    session.prefill(ids[:PROMPT])
    usual, whole = (
        engine.core.drafting.head(n) for n in (engine.core.drafting.settings.draft_vocabulary, 0)
    )
    counts = [1, *(1 + k for k in LENGTHS)]
    times: dict[object, list[float]] = {}
    for turn in range(repeat + 1):  # the first one warms up
        seen = {count: _fastest(lambda n=count: _pass(session, ids, n)) for count in counts}
        heads = {head: _fastest(lambda h=head: _draft(session, ids, h)) for head in (usual, whole)
                 if head is not None}  # fmt: skip
        for key, seconds in {**seen, **heads}.items():
            if turn:
                times.setdefault(key, []).append(seconds)
    step = statistics.median(times[1])
    each = [s / one for s, one in zip(times[usual], times[1], strict=True)] if usual else []
    draft = statistics.median(each) if usual else 0.0
    lengths = []
    for k in LENGTHS:
        ratios = [s / one for s, one in zip(times[1 + k], times[1], strict=True)]
        ratio = statistics.median(ratios)
        predicted = engine.loaded.tuning.pass_s(1 + k, PROMPT) / engine.loaded.tuning.pass_s(
            1, PROMPT
        )
        lengths.append(
            Length(
                k,
                ratio,
                (min(ratios), max(ratios)),
                predicted,
                needed(ratio, k),
                needed(ratio + k * draft, k) if usual else None,
            )
        )
    if usual is None or whole is None:
        return DraftCosts(step, lengths)
    return DraftCosts(
        step,
        lengths,
        statistics.median(times[usual]),
        statistics.median(times[whole]),
        (min(each), max(each)),
        usual.vocabulary,
    )


def _fastest(run: Callable[[], float]) -> float:
    return statistics.median(run() for _ in range(PASSES))


def _pass(session: Session, ids: list[int], count: int) -> float:
    """Return the seconds of a pass of so many tokens behind the prompt, as drafts are verified."""
    session.truncate(PROMPT)
    part = ids[PROMPT : PROMPT + count]
    scheduler = session.phases.core.scheduler
    session.tokens.extend(part)
    with scheduler.phase(session.sequence, Status.DECODE):
        began = time.perf_counter()
        request = Request(session.sequence, PROMPT, part, count, (None,) * count)
        scheduler.compute(request)
        return time.perf_counter() - began


def _draft(session: Session, ids: list[int], head: DraftHead) -> float:
    """Return the seconds of a draft, as the mean of a few."""
    session.truncate(PROMPT)
    session.tokens.append(ids[PROMPT])
    hidden = np.ones(session.phases.core.loaded.outputs.hidden.shape[1], np.float32)
    found, seconds = head.draft(session.sequence, hidden, 4)
    session.tokens.pop()
    return seconds / max(1, len(found))


def _chance(p: float | None) -> str:
    return "–" if p is None else f"{p:.2f}"
