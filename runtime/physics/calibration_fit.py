"""Fit the efficiency of a model's kernels to passes timed by `calibrate.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .costs import ModelCost, part_times, pass_cost
from .latency_model import (
    PRODUCTS_OVERLAP,
    Efficiency,
    LatencyEstimate,
    Passes,
    attention_arithmetic_s,
    estimate,
)
from .machine import MachineProfile

STEADY = 0.85  # of a limit, some moments later: less is another machine
MAX_EXTRA = 16.0  # tokens that unpacking is worth at most: more is noise
BEST = 3  # one in so many repeats counts, the fastest: a neighbor only ever adds time


@dataclass(frozen=True, slots=True)
class Sample:
    """One timed prefill, or the mean of a few passes of one token."""

    tokens: int
    start: int
    """Tokens of the pass, and tokens in the KV cache before it."""
    parts: dict[str, float]
    """Seconds by part (products, head, attention, rows), as the mean over the threads."""
    wall_s: float
    """Seconds from its start to its end."""
    machine: MachineProfile
    """The machine's limits, measured before and after it."""
    before: MachineProfile | None = None
    """The machine's limits, measured before it alone."""
    forecast: float = 0.0
    """Seconds that the engine predicted over those that it took."""

    @property
    def kernel_s(self) -> float:
        return sum(self.parts.values())


def steady(a: MachineProfile, b: MachineProfile) -> bool:
    """Return whether two profiles of a machine have about equal peaks and DRAM bandwidths."""
    pairs = ((a.int8_gops, b.int8_gops), (a.read_gbps["DRAM"], b.read_gbps["DRAM"]))
    return all(min(pair) >= STEADY * max(pair) for pair in pairs)


def fit(model: ModelCost, passes: Passes, taken: Sequence[Sequence[Sample]]) -> Efficiency:
    """Fit the kernel efficiency that explains six kinds of timed passes.

    taken: single tokens with little cache, with a long one; a few tokens; some more; some tens with
    a long cache; some hundred with none.
    """
    single, deep, few, more, tens, whole = taken
    many = [_one_pass(s, passes.chunk) for s in whole]
    ideal = Efficiency(1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def minimum(s: Sample) -> LatencyEstimate:
        return estimate(model, s.machine, ideal, passes, s.tokens, s.start)

    read = _median(single, lambda s: _weights_s(model, s) / s.parts["products"])
    attention_read = _median(deep, lambda s: minimum(s).attention_s / s.parts["attention"])
    attention = _median(tens, lambda s: _attention_share(model, passes, s, attention_read))
    products, extra = _products_share(model, few, more, many, read)
    reached = dataclasses.replace(ideal, attention_read=attention_read, attention=attention)

    def rows(s: Sample) -> float:
        # What attention takes for a row, whatever it sees, counts with the elementwise work.
        seen = estimate(model, s.machine, reached, passes, s.tokens, s.start).attention_s
        return (s.parts["rows"] + max(0.0, s.parts["attention"] - seen)) / s.tokens

    row_s = _median(whole, rows)
    waiting = _median(many, lambda s: _lost(s, 0.0) / s.kernel_s)
    waiting = min(0.05, max(0.0, waiting))
    barrier_s = _median(few, lambda s: _lost(s, waiting) / passes.prefill_barriers)
    decode_s = _median(single, lambda s: _lost(s, waiting) / passes.decode_barriers)
    return Efficiency(
        read=_share(read),
        attention_read=_share(attention_read),
        products=_share(products),
        attention=_share(attention),
        extra_tokens=extra,
        row_s=row_s,
        decode_rows_s=_median(single, lambda s: s.parts["rows"]),
        barrier_s=max(1e-8, barrier_s),
        decode_barrier_s=max(1e-8, decode_s),
        waiting=waiting,
    )


def _one_pass(s: Sample, chunk: int) -> Sample:
    """Return the mean pass of a prefill without a cache, which may be several chunks."""
    count = -(-s.tokens // chunk)
    parts = {name: part / count for name, part in s.parts.items()}
    return dataclasses.replace(s, tokens=s.tokens // count, parts=parts, wall_s=s.wall_s / count)


def _products_share(
    model: ModelCost,
    few: Sequence[Sample],
    more: Sequence[Sample],
    many: Sequence[Sample],
    read: float,
) -> tuple[float, float]:
    """Fit the products' share of the peak, and the cost of unpacking in tokens.

    With t seconds for each weight and token at the peak, a pass of n tokens takes
    (n w + extra u) t / share for the w weights that a token is multiplied by and the u that were
    read: two passes, `more` and `many`, give the two unknown. In the pass of a `few` tokens
    arithmetic takes no longer than products do altogether.
    """

    def spent(s: Sample) -> float:
        arithmetic = _without(s.parts["products"], _weights_s(model, s) / read, PRODUCTS_OVERLAP)
        return arithmetic / alone(s)

    def alone(s: Sample) -> float:
        return _products_s(model, s) / s.tokens

    more_s, many_s = (_median(samples, spent) for samples in (more, many))
    more_n, many_n = more[0].tokens, many[0].tokens
    more_u, many_u = (_unpacking(model, n) for n in (more_n, many_n))
    extra = 0.0
    if many_n > more_n:
        extra = (more_s * many_n - many_s * more_n) / max(1e-9, many_s * more_u - more_s * many_u)
        share = (many_n + extra * many_u) / many_s
        few_n, few_s = few[0].tokens, _median(few, lambda s: s.parts["products"] / alone(s))
        extra = min(extra, (few_s * share - few_n) / _unpacking(model, few_n))
    extra = min(MAX_EXTRA, max(0.0, extra))
    return (many_n + extra * many_u) / many_s, extra


def _unpacking(model: ModelCost, tokens: int) -> float:
    """Return how many weights a pass reads for each that one token is multiplied by."""
    return model.layer_weights(model.expected_experts(tokens)) / model.token_weights


def _products_s(model: ModelCost, s: Sample) -> float:
    """Return the minimum seconds of arithmetic of the layers' products."""
    cost = pass_cost(model, s.tokens, s.start, 0, 0, s.tokens)
    return part_times(cost, model, s.machine).linear_s


def _weights_s(model: ModelCost, s: Sample) -> float:
    """Return the minimum seconds to read the layers' weights."""
    cost = pass_cost(model, s.tokens, s.start, 1, 0, s.tokens)
    level = s.machine.level_of(cost.bytes)
    return model.layer_bytes(cost.experts_read) / s.machine.bandwidth(level)


def _attention_share(model: ModelCost, passes: Passes, s: Sample, read: float) -> float:
    """Return attention's share of the arithmetic peak, net of read time."""
    ideal = Efficiency(1.0, read, 1.0, 1e6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    reading = estimate(model, s.machine, ideal, passes, s.tokens, s.start).attention_s
    cost = pass_cost(model, s.tokens, s.start, 1, 0, passes.tile)
    rest = _without(s.parts["attention"], reading, 1.0)
    return attention_arithmetic_s(part_times(cost, model, s.machine)) / rest


def _without(time_s: float, other_s: float, p: float) -> float:
    """Solve for what makes `time_s` together with `other_s`; at least a tenth of it."""
    rest = max(0.0, time_s**p - other_s**p)
    return max(0.1 * time_s, float(rest ** (1 / p)))


def _lost(s: Sample, waiting: float) -> float:
    """Return the seconds outside kernels beyond a share of those inside."""
    return max(0.0, s.wall_s - s.kernel_s * (1 + waiting))


def _median(samples: Sequence[Sample], value: Callable[[Sample], float]) -> float:
    return float(np.median([value(s) for s in samples]))


def _share(value: float) -> float:
    """Clamp to a share that is a valid divisor; slightly over 1 if a probe was disturbed."""
    return min(1.5, max(0.02, value))


def fastest(samples: Sequence[Sample], best: MachineProfile) -> list[Sample]:
    """Return the fastest samples, one in `BEST`, with the peaks of `best`: the full clock's."""
    found = sorted(samples, key=lambda s: s.wall_s)[: max(1, len(samples) // BEST)]
    limits = dataclasses.replace(best, read_gbps=samples[0].machine.read_gbps)
    return [dataclasses.replace(s, machine=limits) for s in found]


def together(machines: Sequence[MachineProfile]) -> MachineProfile:
    """Merge profiles: the best of each limit, but the median for DRAM, which is shared."""
    best = machines[0]
    for machine in machines[1:]:
        best = best.merged(machine)
    dram = float(np.median([machine.read_gbps["DRAM"] for machine in machines]))
    return dataclasses.replace(best, read_gbps={**best.read_gbps, "DRAM": dram}, samples=1)
