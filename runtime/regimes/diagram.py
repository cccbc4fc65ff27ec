"""The phase diagram of a model on a machine: bound and speed by tokens and KV length.

Tokens of a phase and KV length before it span a grid, both on a logarithmic axis; at each point
`latency_model.py` says the shares of the time that arithmetic, memory and dispatch would account
for. The largest names the regime. Where two are equal runs a boundary, where all three are is a
triple point. Lines of equal speed and boundaries are found by marching squares on the grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..physics.costs import Bound

if TYPE_CHECKING:
    from ...traces.reader import Trace
    from ..bench.predictions import Checked
    from ..physics.calibration import Calibration
    from ..physics.costs import ModelCost

BOUNDS: tuple[Bound, ...] = ("compute", "memory", "dispatch")
MAX_TOKENS = 4096  # of a phase on the diagram: a prompt that takes several passes
FINER = 4  # points between neighbors of the grid, for lines and colors
Line = list[tuple[float, float]]


@dataclass(frozen=True)
class Diagram:
    """The grid of the phase diagram, in log2 of both lengths."""

    kv: np.ndarray
    tokens: np.ndarray
    """The axes: log2 of positions in the KV cache (at least 1), and of tokens of a phase."""
    shares: np.ndarray
    """Shares of the time by bound, in the order of `BOUNDS`: [3, tokens, kv]."""
    rates: np.ndarray
    """Tokens per second: [tokens, kv]."""
    inside: np.ndarray
    """Whether a point fits the context: bool [tokens, kv]."""
    context: int
    """Maximum positions of a session."""
    batch: int = 1
    """Sequences that compute an equal phase at once; tokens and KV length are of each."""

    def bounds(self) -> np.ndarray:
        """Return the leading bound: int [tokens, kv], index in `BOUNDS`; -1 beyond the context."""
        return np.where(self.inside, np.argmax(self.shares, axis=0), -1)

    def region(self, bound: Bound) -> float:
        """Return the share of the plane, 0 to 1, in which a bound leads."""
        return float(np.mean(self.bounds()[self.inside] == BOUNDS.index(bound)))

    def edge(self, bound: Bound) -> list[Line]:
        """Return the border lines of a bound's region: points (kv, tokens), log2."""
        at = BOUNDS.index(bound)
        others = np.delete(self.shares, at, axis=0).max(axis=0)
        return _contour(self.kv, self.tokens, self.shares[at] - others, 0.0)

    def largest(self) -> float:
        """Return the share of the plane, 0 to 1, of the largest region."""
        inside = self.bounds()[self.inside]
        return float(np.bincount(inside, minlength=3).max() / max(1, inside.size))

    def lead(self) -> np.ndarray:
        """Return the lead of the largest share, 0 on a boundary to 1: float [tokens, kv]."""
        ordered = np.sort(self.shares, axis=0)
        return 1.0 - ordered[-2] / ordered[-1]

    def boundaries(self) -> list[Line]:
        """Return the lines where two shares are equal and the third is less: (kv, tokens), log2."""
        lines: list[Line] = []
        for a, b in ((0, 1), (0, 2), (1, 2)):
            c = 3 - a - b
            third = self.shares[c]
            two = np.maximum(self.shares[a], self.shares[b])
            field = np.where(two * 1.02 >= third, self.shares[a] - self.shares[b], np.nan)
            lines += _contour(self.kv, self.tokens, field, 0.0)
        return lines

    def contours(self) -> list[tuple[float, list[Line]]]:
        """Return the contour lines of speeds: 1, 2 and 5 times powers of ten."""
        reached = self.rates[self.inside]
        lowest, highest = float(reached.min()), float(reached.max())
        levels = [
            step * 10.0**power
            for power in range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
            for step in (1, 2, 5)
        ]
        logs = np.log(self.rates)
        return [
            (level, lines)
            for level in levels
            if lowest < level < highest
            and (lines := _contour(self.kv, self.tokens, logs, math.log(level)))
        ]

    def triple_points(self) -> list[tuple[float, float]]:
        """Return all points where all three regimes meet: (kv, tokens), log2."""
        bounds = self.bounds()
        corners = np.stack([bounds[:-1, :-1], bounds[1:, :-1], bounds[:-1, 1:], bounds[1:, 1:]])
        meet = np.logical_and.reduce([(corners == n).any(axis=0) for n in range(3)])
        found: list[tuple[float, float]] = []
        for row, col in np.argwhere(meet):
            x = float(self.kv[col] + self.kv[col + 1]) / 2
            y = float(self.tokens[row] + self.tokens[row + 1]) / 2
            if all(abs(x - a) + abs(y - b) > 0.5 for a, b in found):  # the same one in a next cell
                found.append((x, y))
        return found


def diagram(cost: ModelCost, found: Calibration, context: int, batch: int = 1) -> Diagram:
    """Evaluate the cost model on a grid up to `context` positions, and interpolate.

    The grid is finer where few tokens are, since a pass of one has a plan of its own.
    """
    limit = min(MAX_TOKENS, context - 1)
    sizes, depths = _steps(limit, 4), _steps(context, 3)
    shares = np.full((3, len(sizes), len(depths)), np.nan)
    rates = np.full((len(sizes), len(depths)), np.nan)
    for row, size in enumerate(sizes):
        for col, depth in enumerate(depths):
            expected = found.estimate(cost, size, depth, batch=batch)
            seen = expected.seen
            shares[:, row, col] = [seen.shares[bound] for bound in BOUNDS]
            rates[row, col] = expected.tokens_per_s
    kv, tokens = np.log2(depths), np.log2(sizes)
    fine_kv, fine_tokens = _finer(kv), _finer(tokens)

    def between(values: np.ndarray) -> np.ndarray:
        rows = np.stack([np.interp(fine_kv, kv, row) for row in values])
        return np.stack([np.interp(fine_tokens, tokens, col) for col in rows.T]).T

    fine = np.stack([between(values) for values in shares])
    speed = np.exp(between(np.log(rates)))
    inside = 2 ** fine_kv[None, :] + 2 ** fine_tokens[:, None] <= context * 1.0001
    return Diagram(fine_kv, fine_tokens, fine, speed, inside, context, batch)


def _steps(limit: int, an_octave: int) -> list[int]:
    """Return integers from 1 to `most`, a number of them per doubling."""
    exact = [2 ** (n / an_octave) for n in range(int(an_octave * math.log2(limit)) + 1)]
    return sorted({round(value) for value in exact} | {limit})


def _finer(axis: np.ndarray) -> np.ndarray:
    return np.unique(
        np.concatenate([np.linspace(a, b, FINER + 1) for a, b in itertools.pairwise(axis)])
    )


# --- a run on the diagram


@dataclass(frozen=True)
class Step:
    """One phase of a run, as a point of the diagram."""

    phase: str
    purpose: str
    tokens: int
    kv_before: int
    kv_after: int
    rate: float
    predicted: str
    observed: str
    number: int
    """Number of the regime change that it begins, from 1 on; 0: no change."""


def steps(trace: Trace) -> list[Step]:
    """Return the phases of a trace, with their changes of regime numbered."""
    found: list[Step] = []
    changes = 0
    for phase in trace.phases:
        if phase.source != "engine" or not phase.tokens or phase.wall_s <= 0:
            continue
        changed = bool(found) and found[-1].observed != phase.observed
        changes += changed
        found.append(
            Step(
                phase.phase,
                phase.purpose,
                phase.tokens,
                phase.kv_before,
                phase.kv_after,
                phase.tokens / phase.wall_s,
                phase.predicted,
                phase.observed,
                changes if changed else 0,
            )
        )
    return found


@dataclass(frozen=True)
class Picture:
    """The contents of a picture of the phase diagram."""

    title: str
    notes: Sequence[str]
    """Lines below the title, about the model and the machine."""
    diagram: Diagram
    path: Sequence[Step] = ()
    """Phases of a run, drawn as a path."""
    measured: Sequence[Checked] = ()
    """Measured points, with their predictions."""
    batches: Sequence[Diagram] = ()
    """The diagram for more concurrent sequences."""
    cost: ModelCost | None = None
    """Inputs of the cost model, for the facts of the model."""


# --- lines of equal value


def _contour(x: np.ndarray, y: np.ndarray, field: np.ndarray, level: float) -> list[Line]:
    """Return the lines on which `field` [y, x] is `level`, by marching squares; nan is skipped."""
    segments: list[tuple[tuple[float, float], tuple[float, float]]] = []
    above = field > level
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(field)
    cells = known[:-1, :-1] & known[1:, :-1] & known[:-1, 1:] & known[1:, 1:]
    mixed = above[:-1, :-1].astype(int) + above[1:, :-1] + above[:-1, 1:] + above[1:, 1:]
    for row, col in np.argwhere(cells & (mixed > 0) & (mixed < 4)):
        segments += _cell(x, y, field, level, int(row), int(col))
    return _joined(segments)


def _cell(
    x: np.ndarray, y: np.ndarray, field: np.ndarray, level: float, row: int, col: int
) -> Iterable[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the one or two segments that cross a cell."""
    around = [(row, col), (row, col + 1), (row + 1, col + 1), (row + 1, col)]
    crossed: list[tuple[float, float]] = []
    for (r1, c1), (r2, c2) in zip(around, [*around[1:], around[0]], strict=True):
        # Each edge in the same direction for both of its cells: the points are equal then.
        (r1, c1), (r2, c2) = sorted(((r1, c1), (r2, c2)))
        a, b = float(field[r1, c1]) - level, float(field[r2, c2]) - level
        if (a > 0) != (b > 0):
            t = a / (a - b)
            crossed.append((float(x[c1] + t * (x[c2] - x[c1])), float(y[r1] + t * (y[r2] - y[r1]))))
    return [(crossed[n], crossed[n + 1]) for n in range(0, len(crossed) - 1, 2)]


def _joined(segments: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> list[Line]:
    """Join segments with common ends to lines."""
    ends: dict[tuple[float, float], list[int]] = {}
    for n, segment in enumerate(segments):
        for point in segment:
            ends.setdefault(point, []).append(n)
    used = [False] * len(segments)
    lines: list[Line] = []
    for n, segment in enumerate(segments):
        if used[n]:
            continue
        used[n] = True
        line = list(segment)
        for _ in range(2):  # on from its end, then from its beginning
            while True:
                follow = next((m for m in ends[line[-1]] if not used[m]), None)
                if follow is None:
                    break
                used[follow] = True
                a, b = segments[follow]
                line.append(b if a == line[-1] else a)
            line.reverse()
        lines.append(line)
    return lines


def ticks(limit: float) -> list[int]:
    """Return the ticks of an axis up to `limit`: powers of four, 1, 4, 16, …"""
    return [4**n for n in range(int(math.log(limit, 4) + 1e-6) + 1)]


def tick_label(value: float) -> str:
    """Format a tick label: 1,024 as 1k, 16,384 as 16k, others in full."""
    for unit, size in (("k", 1024), ("M", 1024**2)):
        if value >= size and value % size == 0:
            found = value / size
            if found < 1024:
                return f"{found:g}{unit}"
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1e4 else f"{value:,.10g}"
