"""A lazy ranking of tokens by likelihood: only the ranks that are needed get sorted.

Rank and share of the probability both grow with the gap to the likeliest token. A look at the
logits counts both at eight gaps (`jit/kernels/sample.py`); between two of them it looks again,
until few enough tokens are left to sort. A vocabulary of 150,000 takes two to four looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from ....errors import EngineError, PassCancelledError
from ....jit.compile import spec
from ....jit.kernels import argmax, sample
from ....jit.pool import aligned
from ....jit.tape import CompiledTape, Tape

if TYPE_CHECKING:
    from ....jit.compile import Library
    from ....jit.pool import Pool

FEW = 1024  # tokens that are sorted sooner than looked at again
_FIRST = np.array([0.5, 1.5, 3, 6, 9, 13, 20, 3e38], np.float32)  # gaps, in logits
_MOST_LOOKS = 12  # by then what is left in between is equal, or as good as


@dataclass(frozen=True, slots=True)
class RankedToken:
    """A token and its rank."""

    token: int
    """Token id."""
    gap: float
    """How far its logit is below the highest."""
    rank: int
    """1 for the likeliest; of equal ones the first id comes first."""
    mass: float
    """Cumulative weight up to this token; a token's weight is exp(-gap / temperature)."""


@dataclass(frozen=True, slots=True)
class RankLevel:
    """The number of tokens that have at most this gap, and their cumulative weight."""

    gap: float
    rank: int
    mass: float


class LogitRanker:
    """A ranking of tokens by their logits, for one row at a time.

    Attributes:
        logits: float32 [n_vocab], a copy of what `load` was given, for the caller to change
            before `look`.
    """

    def __init__(self, n_vocab: int, library: Library, pool: Pool) -> None:
        self.n_vocab = n_vocab
        self._pool = pool
        step = 32 * argmax.PARTS
        padded = -(-n_vocab // step) * step
        self._padded = aligned((1, padded), np.float32)
        self.logits = self._padded[0, :n_vocab]
        self._mask = aligned(-(-n_vocab // 32) + 16, np.uint32)
        self._use_mask = aligned(8, np.int64)
        self._best = aligned(argmax.PARTS, np.float32)
        self._where = aligned(argmax.PARTS, np.int64)
        self._scale = aligned(8, np.float32)
        self._levels = aligned(sample.LEVELS, np.float32)
        self._counts = aligned((argmax.PARTS, sample.LEVELS), np.int32)
        self._masses = aligned((argmax.PARTS, sample.LEVELS), np.float32)
        self._bounds = aligned(8, np.float32)
        self._ids = aligned(padded, np.int32)
        self._found = aligned(argmax.PARTS, np.int64)
        self._starts = [begin for begin, _ in sample.slices(n_vocab)]
        self._first, self._again, self._collect = self._tapes(pool.threads, library)
        self._known: list[RankLevel] = []
        self._sorted: dict[tuple[float, float], tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def _tapes(self, threads: int, library: Library) -> list[CompiledTape]:
        units = np.full(1, argmax.PARTS, np.int64)
        given = [self._padded, self._mask, self._use_mask]
        first, again, collect = (
            Tape(name, threads, elastic=True) for name in ("rank", "look", "collect")
        )
        row, stride = np.zeros(1, np.int64), self._padded.shape[1]
        part = [self._padded, row, stride, self._mask, 0, self._use_mask, self._best, self._where,
                self.n_vocab]  # fmt: skip
        first.op("argmax", spec(argmax.argmax_part), part, units)
        counted = [self._levels, self._counts, self._masses, self.n_vocab]
        for tape in (first, again):
            args = [*given, self._best, self._scale, *counted]
            tape.op("levels", spec(sample.sample_levels), args, units)
        args = [*given, self._best, self._bounds, self._ids, self._found, self.n_vocab]
        collect.op("collect", spec(sample.sample_collect), args, units)
        return [tape.finish(library, self._pool) for tape in (first, again, collect)]

    def load(self, logits: np.ndarray, mask: np.ndarray | None) -> None:
        """Load a row, float32 [n_vocab]; mask: uint32 bits of the allowed tokens, or None."""
        self.logits[:] = logits
        self._use_mask[0] = mask is not None
        if mask is not None:
            words = -(-self.n_vocab // 32)
            self._mask[:words] = mask[:words]

    def look(self, temperature: float) -> None:
        """Count the loaded tokens, and their weight, within each of the first gaps.

        Raises:
            EngineError: no token is allowed, or none is finite.
            PassCancelledError: the engine was stopped.
        """
        self._scale[0] = 1 / max(temperature, 1e-30)
        self._levels[:] = _FIRST
        self._sorted.clear()
        self._known = [RankLevel(-1.0, 0, 0.0)]
        self._run_tape(self._first)
        self._note()
        if not self._known[-1].rank:
            raise EngineError(
                "no token can be chosen: the logits are not finite, or none is allowed"
            )

    @property
    def largest(self) -> int:
        """The likeliest token; the first of equal ones."""
        return int(self._where[int(np.argmax(self._best))])

    def gap(self, token: int) -> float:
        """Return how far the logit of a token is below the highest."""
        return float(self._best.max() - self.logits[token])

    def weight(self, token: int) -> float:
        """Return the weight of one token; masses are sums of weights."""
        return math.exp(-self.gap(token) * float(self._scale[0]))

    @property
    def all(self) -> RankLevel:
        """The number of all tokens, and their total weight."""
        return self._known[-1]

    def within(self, gap: float) -> RankLevel:
        """Count the tokens that have at most this gap, and their weight."""
        if all(level.gap != np.float32(gap) for level in self._known):
            self._look_at(np.full(sample.LEVELS, gap))
        return next(level for level in self._known if level.gap == np.float32(gap))

    def gaps(self, first: int, last: int, most: float = math.inf) -> np.ndarray:
        """Return float32 [last - first]: gaps of the tokens after rank `first`, up to `last`.

        most: gap of the last of them, where it is known; what is beyond it need not be sorted.
        Those of all tokens are in no order.
        """
        found = self._best.max() - self.logits
        if self._use_mask[0]:
            bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")
            found = found[bits[: self.n_vocab].astype(bool)]
        found = found[found <= np.float32(min(most, _FIRST[-1]))]
        if first == 0 and last >= len(found):
            return found
        found.sort()
        return found[first:last]

    def at_rank(self, rank: int) -> RankedToken:
        """Return the token of this rank, from 1 to the number of tokens."""
        above, below = self._between(lambda level: level.rank >= rank)
        ids, gaps, mass = self._bucket(above, below)
        at = min(max(rank - above.rank - 1, 0), len(ids) - 1)
        return RankedToken(int(ids[at]), float(gaps[at]), above.rank + at + 1, float(mass[at]))

    def at_mass(self, mass: float, *, past: bool = False) -> RankedToken:
        """Return the first token at which the cumulative weight reaches `mass`, or exceeds it."""
        above, below = self._between(lambda at: at.mass > mass if past else at.mass >= mass)
        ids, gaps, sums = self._bucket(above, below)
        at = int(np.searchsorted(sums, mass, "right" if past else "left"))
        at = min(at, len(ids) - 1)
        return RankedToken(int(ids[at]), float(gaps[at]), above.rank + at + 1, float(sums[at]))

    def _between(self, reaches: Callable[[RankLevel], bool]) -> tuple[RankLevel, RankLevel]:
        """Find two levels with few tokens between them, the second the first that `reaches`."""
        looks = 0
        while True:
            known = self._known
            at = next((n for n, one in enumerate(known) if one.rank and reaches(one)), None)
            if at is None:  # by rounding: the last that there is
                at = next(n for n, one in enumerate(known) if one.rank == known[-1].rank)
            above, below = known[at - 1], known[at]
            if below.rank - above.rank <= FEW or looks == _MOST_LOOKS:
                return above, below
            self._look_at(_edges(above.gap, below.gap))
            looks += 1

    def _look_at(self, gaps: np.ndarray) -> None:
        self._levels[:] = gaps
        self._run_tape(self._again)
        self._note()

    def _note(self) -> None:
        """Add the results of a look to the known levels."""
        there = {level.gap for level in self._known}
        counts, masses = self._counts.sum(0), self._masses.sum(0, np.float64)
        for gap, rank, mass in zip(self._levels, counts, masses, strict=True):
            if float(gap) not in there:
                there.add(float(gap))
                self._known.append(RankLevel(float(gap), int(rank), float(mass)))
        self._known.sort(key=attrgetter("gap"))

    def _bucket(
        self, above: RankLevel, below: RankLevel
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sort the tokens between two levels, likeliest first: ids, gaps, cumulative weights."""
        key = above.gap, below.gap
        if key not in self._sorted:
            self._bounds[:2] = key
            self._run_tape(self._collect)
            parts = zip(self._starts, self._found, strict=True)
            ids = np.concatenate([self._ids[start : start + n] for start, n in parts])
            gaps = self._best.max() - self.logits[ids]
            order = np.argsort(gaps, kind="stable")
            gaps = gaps[order]
            weights = np.exp(-gaps.astype(np.float64) * self._scale[0])
            self._sorted[key] = ids[order], gaps, above.mass + np.cumsum(weights)
        return self._sorted[key]

    def _run_tape(self, tape: CompiledTape) -> None:
        at, end = 0, len(tape)
        while (at := tape.run(at)) < end:
            if self._pool.stopped:
                self._pool.clear_stop()
                raise PassCancelledError("stopped; the session keeps the tokens computed so far")


def _edges(low: float, high: float) -> np.ndarray:
    """Return gaps between two, evenly spaced; by ratio where they are far apart."""
    low = max(low, 0.0)
    if high > 16 * max(low, 1.0):
        return np.geomspace(max(low, 1.0), high, sample.LEVELS + 2)[1:-1]
    return np.linspace(low, high, sample.LEVELS + 2)[1:-1]
