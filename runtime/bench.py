"""Speed of a model on this machine, in the rows of llama.cpp's ``llama-bench``.

``pp512`` is a prefill of 512 random tokens, ``tg32`` a decode of 32; ``@ d2048`` means with that
many tokens in the KV cache already. Only the passes are timed: no tokenising, no text, no grammar.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .engine import Engine
    from .session import Session


@dataclass(frozen=True)
class Case:
    """One row: ``prompt`` tokens to prefill or ``generate`` tokens to decode, after ``depth``."""

    prompt: int = 0
    generate: int = 0
    depth: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that one repetition computes."""
        return self.prompt or self.generate

    @property
    def name(self) -> str:
        """``pp512``, ``tg32 @ d2048``."""
        test = f"pp{self.prompt}" if self.prompt else f"tg{self.generate}"
        return f"{test} @ d{self.depth}" if self.depth else test


@dataclass(frozen=True)
class Result:
    """The times of one case, in seconds, one for each repetition."""

    case: Case
    seconds: tuple[float, ...]

    @property
    def rates(self) -> list[float]:
        """Tokens per second of each repetition."""
        return [self.case.tokens / s for s in self.seconds]

    @property
    def median(self) -> float:
        """Median tokens per second."""
        return statistics.median(self.rates)

    @property
    def spread(self) -> float:
        """Standard deviation of the tokens per second; 0 for a single repetition."""
        return statistics.stdev(self.rates) if len(self.seconds) > 1 else 0.0


def cases(prompts: Sequence[int], generates: Sequence[int], depths: Sequence[int]) -> list[Case]:
    """The cases in llama-bench's order: all tests at the first depth, then at the next."""
    return [
        case
        for depth in depths or (0,)
        for case in (
            *(Case(prompt=n, depth=depth) for n in prompts if n > 0),
            *(Case(generate=n, depth=depth) for n in generates if n > 0),
        )
    ]


def run(
    engine: Engine, todo: Sequence[Case], *, repeat: int = 5, seed: int = 1
) -> Iterator[Result]:
    """Measure the cases one after another, each with a first repetition that does not count.

    Raises:
        ContextOverflowError: a case is longer than the model's context.
    """
    chance = random.Random(seed)

    def ids(count: int) -> list[int]:
        return [chance.randrange(engine.tokenizer.n_vocab) for _ in range(count)]

    for case in todo:
        # A decode needs one token before it, and samples one token more than it computes.
        depth = case.depth if case.prompt else max(case.depth, 1)
        session = engine.session(context=depth + case.tokens + 1)
        if depth:
            session.prefill(ids(depth))
        seconds = []
        for _ in range(repeat + 1):
            if case.prompt:
                session.truncate(depth)
                seconds.append(session.prefill(ids(case.prompt)).wall_s)
            else:
                session.truncate(depth - 1)
                session.prefill(ids(1))
                seconds.append(_decode(session, case.generate))
        yield Result(case, tuple(seconds[1:]))


def _decode(session: Session, passes: int) -> float:
    """Seconds that so many single-token passes take; the first sampled token needs no pass."""
    for _ in session.decode(max_tokens=passes + 1, stop=()):
        pass
    phase = session.last_phase
    assert phase is not None, "the engine gives a phase for every decode that has ended"
    return phase.wall_s * passes / (phase.kv_after - phase.kv_before)
