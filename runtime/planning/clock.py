"""Pass times of the simulation: the latency model, corrected by observed passes.

The model is evaluated for a few KV lengths only, as in the engine's own tuner, so that nearly every
pass is found in a table.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ...arguments import is_file
from ...errors import SettingError
from ..engine.policy.pass_correction import kind_of
from ..physics.costs import AttentionLayers, ModelCost, Part
from ..physics.latency_model import Efficiency, Passes, class_middle, even_part, expect_mixed
from ..physics.machine import MachineProfile
from .forecaster import Forecaster

HOST_PASS_S = 5e-4  # between two passes: threads are woken, rows put together
HOST_ROW_S = 2.5e-4  # for each sequence in it: a token is chosen and given out
VERSION = 1
_NEAR = 0.4  # weight of passes of the next kind
_PRIOR = 0.02  # of all passes, for any kind


class Seen(NamedTuple):
    """An observed pass."""

    parts: tuple[Part, ...]
    seconds: float
    gap_s: float
    """Seconds from its start to its end, and from its end to the start of the next one."""
    expected_s: float = 0.0
    """The engine's own prediction; 0: none."""


@dataclass(frozen=True)
class Corrections:
    """Corrections of the latency model from a machine's observed passes."""

    alone: Mapping[int, float] = field(default_factory=dict)
    shared: Mapping[int, float] = field(default_factory=dict)
    """Measured over predicted seconds, in total, by class of rows (`pass_correction.kind_of`): of
    passes of one sequence, and of several."""
    typical: float = 1.0
    """The engine's own predictions, which go by medians and kernel time, over measured times."""
    pass_s: float = HOST_PASS_S
    row_s: float = HOST_ROW_S
    """Seconds between two passes: constant part, and part for each sequence."""
    passes: int = 0
    """Number of passes that it was learned from."""
    date: str = ""
    """When it was learned."""

    def factor(self, rows: int, sequences: int) -> float:
        """Return the factor that corrects a pass's predicted seconds."""
        known = self.shared if sequences > 1 and self.shared else self.alone
        if not known:
            return 1.0
        kind = kind_of(rows)
        return known[min(known, key=lambda other: abs(other - kind))]


def learn(forecaster: Forecaster, seen: Sequence[Seen], date: str = "") -> Corrections:
    """Fit corrections of predicted to observed pass times.

    Sums of seconds, so that slow passes count as well; smoothed over kinds, since of some there are
    few, and a step between two would steer the policy.
    """
    taken: dict[bool, list[tuple[int, float, float]]] = {False: [], True: []}
    for one in seen:
        rows = sum(part.tokens for part in one.parts)
        predicted = predicted_s(forecaster, one.parts)
        taken[len(one.parts) > 1].append((kind_of(rows), one.seconds, predicted))
    gaps = [(len(one.parts), one.gap_s) for one in seen if 0 <= one.gap_s < 0.1]
    pass_s, row_s = _line(gaps)
    alone, shared = (_smooth(taken[several]) for several in (False, True))
    expected = [
        one.expected_s / (predicted * shared[kind])
        for one, (kind, _, predicted) in zip(
            (one for one in seen if len(one.parts) > 1), taken[True], strict=True
        )
        if one.expected_s
    ]
    typical = statistics.median(expected) if expected else 1.0
    return Corrections(alone, shared, typical, pass_s, row_s, len(seen), date)


def _smooth(taken: Sequence[tuple[int, float, float]]) -> dict[int, float]:
    """Smooth ratios by kind: near kinds count as well, and all a little."""
    alone = [one for one in taken if one[0] == 0]  # a single row has a plan of its own
    found: dict[int, float] = {}
    if alone:
        found[0] = sum(s for _, s, _ in alone) / sum(p for _, _, p in alone)
    others = [one for one in taken if one[0]]
    whole = sum(p for _, _, p in others)
    for kind in sorted({one[0] for one in others}):
        weights = [(_NEAR ** abs(k - kind), s, p) for k, s, p in others]
        prior = _PRIOR * whole
        mean = sum(s for _, s, _ in others) / whole
        took = sum(w * s for w, s, _ in weights) + prior * mean
        found[kind] = took / (sum(w * p for w, _, p in weights) + prior)
    return found


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Fit a straight line through points by least squares, neither figure below 0."""
    if not points:
        return HOST_PASS_S, HOST_ROW_S
    n, sx, sy = len(points), sum(x for x, _ in points), sum(y for _, y in points)
    square = sum((x - sx / n) ** 2 for x, _ in points)
    slope = sum((x - sx / n) * y for x, y in points) / square if square else 0.0
    slope = max(0.0, slope)
    start = sy / n - slope * sx / n
    return (start, slope) if start >= 0 else (0.0, sy / sx)


def predicted_s(forecaster: Forecaster, parts: Sequence[Part]) -> float:
    """Predict a pass's seconds by the latency model; a single row is a decode pass."""
    if len(parts) == 1:
        return forecaster.phase_s(parts[0].tokens, parts[0].start)
    return forecaster.mixed_s(parts)


_MIDDLES = [class_middle(128 * n + 1) for n in range(1 << 13)]


def middle(start: int) -> int:
    """Return `class_middle` of a KV length, from a table where it has one."""
    if not start:
        return 0
    return _MIDDLES[start >> 7] if start < 1 << 20 else class_middle(start)


_FEW = 16  # rows up to which each number is asked for; above, eight of each doubling


def _between(rows: int) -> tuple[int, int]:
    """Return the tabulated numbers of rows below and above this one."""
    if rows <= _FEW:
        return rows, rows
    step = 1 << max(0, rows.bit_length() - 4)
    low = rows // step * step
    return low, low if low == rows else low + step


Timed = tuple[float, Mapping[str, float]]
"""Seconds of a pass, and the share of each bound in them, 1 in total."""


class Clock:
    """Times of passes: the policy's estimates (`pass_policy.Timing`), and the actual times."""

    def __init__(self, forecaster: Forecaster, seen: Corrections | None = None) -> None:
        self.forecaster, self.seen = forecaster, seen or Corrections()
        self.chunk = forecaster.passes.chunk
        """Maximum tokens of a prefill pass."""
        self._mixed: dict[tuple[int, int, int, int, int], Timed] = {}
        self._alone: dict[tuple[int, int], float] = {}
        self.rooms: dict[float, dict[tuple[int, int, int, int], tuple[int, Any]]] = {}
        """Cached results of the policy's room for rows, by deadline, shared by machines."""

    def next_chunk(self, tokens: int, limit: int) -> int:
        """Return the size of the next prefill chunk: see `pass_policy.Timing`."""
        return even_part(tokens, min(limit, self.chunk))

    def pass_s(self, tokens: int, start: int) -> float:
        """Predict the seconds of one or several passes of a sequence: see `pass_policy.Timing`."""
        key = tokens if tokens < 64 else tokens & -16, middle(start)
        found = self._alone.get(key)
        if found is None:
            predicted = self.forecaster.phase_s(*key)
            found = self._alone[key] = predicted * self.seen.factor(min(key[0], self.chunk), 1)
        return found

    def expected_s(self, parts: Sequence[Part]) -> float:
        """Return the seconds that the engine would predict for a pass."""
        return self.seconds(parts)[0] * self.seen.typical

    def seconds(self, parts: Sequence[Part]) -> Timed:
        """Return a pass's seconds, and the share of each bound in them."""
        ones = behind = 0
        others: list[Part] = []
        for part in parts:
            if part[0] == 1 and part[2] == 1:
                ones += 1
                behind += part[1]
            else:
                others.append(part)
        if not others:
            return self.mixed(ones, behind, 0, 0, 0)
        if len(others) == 1:
            rows, start, outputs = others[0][:3]
            return self.mixed(ones, behind, rows, start, outputs)
        # All prompts as one of the same rows, behind what they are behind on average.
        rows = sum(part[0] for part in others)
        start = sum(part[0] * part[1] for part in others) // rows
        return self.mixed(ones, behind, rows, start, sum(part[2] for part in others))

    def mixed(self, ones: int, behind: int, rows: int, start: int, outputs: int) -> Timed:
        """Estimate a pass of `rows` prompt rows and `ones` decode rows over `behind` positions."""
        key = ones, middle(behind // ones) if ones else 0, rows, middle(start), outputs
        found = self._mixed.get(key)
        if found is None:
            low, high = _between(rows)
            if low == high:
                found = self._predict(*key)
            else:  # in a straight line between two that are asked for often
                below, shares = self.mixed(ones, behind, low, start, outputs)
                above, _ = self.mixed(ones, behind, high, start, outputs)
                share = (rows - low) / (high - low)
                found = below + share * (above - below), shares
            self._mixed[key] = found
        return found

    def _predict(self, ones: int, behind: int, rows: int, start: int, outputs: int) -> Timed:
        parts = [Part(1, behind, 1)] * ones
        if rows:
            parts.append(Part(rows, start, outputs))
        one = self.forecaster
        estimate = expect_mixed(one.cost, one.machine, one.reached, one.passes, parts)
        predicted = predicted_s(one, parts) if len(parts) == 1 else estimate.seconds
        shares = estimate.seen.shares
        whole = sum(shares.values()) or 1.0
        known = {str(name): share / whole for name, share in shares.items()}
        return predicted * self.seen.factor(ones + rows, len(parts)), known

    def host_s(self, sequences: int) -> float:
        """Return the seconds between the end of a pass and the start of the next one."""
        return self.seen.pass_s + sequences * self.seen.row_s


def as_json(forecaster: Forecaster, seen: Sequence[Seen], date: str) -> str:
    """Serialize the observed passes of a model on a machine as JSON."""
    fields = {
        "version": VERSION,
        "model": forecaster.name,
        "kv": forecaster.kv,
        "date": date,
        "cost": asdict(forecaster.cost),
        "machine": forecaster.machine.as_dict(),
        "efficiency": asdict(forecaster.reached),
        "passes": asdict(forecaster.passes),
        "seen": [[one.parts, *(round(seconds, 6) for seconds in one[1:])] for one in seen],
    }
    return json.dumps(fields)


def read(path: str | Path) -> tuple[Forecaster, list[Seen], str]:
    """Read a file of `as_json`: model and machine, observed passes, and their date.

    Raises:
        SettingError: the file is not one of these.
    """
    path = Path(path)
    try:
        if not is_file(path, "cannot read the clock", SettingError):
            raise SettingError(f"cannot read the clock {path}: it is not a file")
        fields = json.loads(path.read_text(encoding="utf-8"))
        cost = dict(fields["cost"])
        cost["windows"] = tuple(cost["windows"])
        cost["attention"] = tuple(AttentionLayers(*one) for one in cost["attention"])
        found = Forecaster(
            str(fields["model"]),
            ModelCost(**cost),
            MachineProfile(**fields["machine"]),
            Efficiency(**fields["efficiency"]),
            Passes(**fields["passes"]),
            fields["kv"],
            "learned",
        )
        seen = [
            Seen(tuple(Part(*map(int, part[:3])) for part in parts), *map(float, times))
            for parts, *times in fields["seen"]
        ]
        _check(found, seen)
        return found, seen, str(fields["date"])
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"cannot read the clock {path}: {error}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError):
        raise SettingError(f"{path} is not a valid clock from `plan --learn`") from None


_SHAPES = ([Part(1, 0, 1)], [Part(512, 4096, 1)], [Part(1, 4096, 1)] * 8 + [Part(100, 0, 1)])


def _check(forecaster: Forecaster, seen: Sequence[Seen]) -> None:
    """Check that passes can be predicted: a file's values may be of any type and size."""
    times = [predicted_s(forecaster, parts) for parts in _SHAPES]
    times += [Clock(forecaster).seconds(parts)[0] for parts in _SHAPES]
    sizes = [size for one in seen for part in one.parts for size in part[:3]]
    times += [*forecaster.machine.read_gbps.values(), *(one.seconds for one in seen)]
    times += [1.0 + abs(second) for one in seen for second in one[2:]]
    good = all(0 < second < math.inf for second in times) and all(one.parts for one in seen)
    if not good or not all(0 <= size < 1 << 40 for size in sizes):
        raise ValueError("no pass times")
    if any(part[0] < 1 for one in seen for part in one.parts):
        raise ValueError("a pass without tokens")
