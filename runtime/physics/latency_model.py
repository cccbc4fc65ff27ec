"""The latency model: the roofline, corrected by the measured efficiency of kernels.

`costs.py` says the least that the limits allow. A kernel reaches a share of them, reading and
multiplying overlap only in part, and between kernels there are barriers. With ten measured figures
(`Efficiency`) the time of a pass is the sum of its parts:

    products   norm(weights / (read share * bandwidth), operations / (share * peak)), where those
               of some more tokens count: to unpack the weights takes as long
    head       the same for the output head, one row
    attention  cache / (read share * bandwidth) + operations / (share * peak)
    rows       tokens * time of one: norms, quantization, rotation, the choice of a token
    dispatch   barriers * cost of one + share of the time in kernels that threads wait for others

where norm(a, b) = (a^p + b^p)^(1/p) is nearly the larger of the two: products ask for the next
weights while they multiply (p = 6). Attention unpacks what it reads before it multiplies. The
figures are measured in `calibration.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .costs import (
    ModelCost,
    Part,
    PartTimes,
    Prediction,
    mixed_cost,
    part_times,
    pass_cost,
)
from .machine import MachineProfile
from .observation import Observation, observe

PRODUCTS_OVERLAP = 6.0
# Attention goes by tiles of tokens. Each but the first costs the arithmetic of so many more rows,
# one a token and query head of a key head: keys and values are unpacked again. With two query heads
# and a KV length of 3,000 on Zen 4 one token takes 11.6 ms, 16 take 39.5 and 17 take 50.
TILE_ROWS = 10.0


def length_class(start: int) -> int:
    """Round a KV length down to the first of its class, which is an eighth of it wide, or 128."""
    step = _class_width(start)
    return start // step * step


def class_middle(start: int, common: int = 0) -> int:
    """Return the KV length that represents its class.

    common: what several sequences have of it, which is read once: it is each one's own that counts.
    """
    own = max(0, start - common)
    return common + length_class(own) + _class_width(own) // 2 if own else start


def _class_width(start: int) -> int:
    return 1 << max(7, start.bit_length() - 3)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Measured shares of a machine's limits that a model's kernels reach; defaults are typical."""

    read: float = 0.95
    attention_read: float = 0.8
    """Shares of the read bandwidth that GEMMs and attention reach."""
    products: float = 0.7
    attention: float = 0.75
    """Shares of the arithmetic peak that GEMMs and attention reach."""
    extra_tokens: float = 1.0
    """Cost of loading and unpacking the weights in a pass of several tokens, as the arithmetic of
    so many more tokens."""
    row_s: float = 4e-5
    decode_rows_s: float = 1e-5
    """Seconds of norms, rotation and the like for a token: in a prefill, in a pass of one token."""
    barrier_s: float = 8e-7
    decode_barrier_s: float = 5e-7
    """Seconds of one barrier, with dispatch and time stamps of its ops: in a prefill, in a pass of
    one token."""
    waiting: float = 0.015
    """Share of the time in kernels that threads wait for each other."""


@dataclass(frozen=True, slots=True)
class Passes:
    """An engine's partition of work into passes."""

    chunk: int
    """Maximum tokens of a prefill pass."""
    tile: int
    """Tokens that share one read of the KV cache."""
    decode_barriers: int
    prefill_barriers: int
    """Barriers of a decode pass, and of a prefill pass."""


@dataclass(frozen=True, slots=True)
class LatencyEstimate:
    """Expected seconds of a phase's parts, and its expected bound."""

    tokens: int
    products_s: float
    head_s: float
    attention_s: float
    rows_s: float
    dispatch_s: float
    least: Prediction
    """Minimum times by the machine's limits."""
    attained: Prediction | None = None
    """Separate times of arithmetic and of reads, at the rates that kernels reach."""

    @property
    def seconds(self) -> float:
        return self.kernel_s + self.dispatch_s

    @property
    def kernel_s(self) -> float:
        """Seconds of a thread in kernels."""
        return self.products_s + self.head_s + self.attention_s + self.rows_s

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def seen(self) -> Observation:
        """Expected shares and bound, as they will be observed from time stamps."""
        return observe(self.least, self.seconds, self.kernel_s, self.attained, self.rows_s)


def estimate(
    model: ModelCost,
    machine: MachineProfile,
    reached: Efficiency,
    passes: Passes,
    tokens: int,
    start: int,
    batch: int = 1,
) -> LatencyEstimate:
    """Estimate the latency of `tokens` tokens at context `start`, with logits for the last.

    More than a chunk are several passes. `batch`: so many sequences at once, each alike.
    """
    parts = [0.0] * 5
    minimum, attained = [0.0] * 3, [0.0] * 3
    level, at = "", 0
    while at < tokens:
        count = even_part(tokens - at, passes.chunk)
        last = int(at + count == tokens)
        single = count * batch == 1  # more rows have the other plan
        barriers = passes.decode_barriers if single else passes.prefill_barriers
        cost = pass_cost(
            model, count, start + at, last, barriers, passes.tile if not single else 1, batch=batch
        )
        times = part_times(cost, model, machine)
        level = times.level
        rows, outputs = count * batch, last * batch
        for n, value in enumerate(_pass_seconds(times, model, reached, rows, outputs)):
            parts[n] += value
        rates = attainable(times, reached)
        for sums, of in ((minimum, times.minimum), (attained, rates)):
            sums[0] += of.compute_s
            sums[1] += of.memory_s
            sums[2] += of.dispatch_s
        at += count
    return LatencyEstimate(
        tokens * batch,
        *parts,
        least=Prediction(*minimum, level=level),
        attained=Prediction(*attained, level=level),
    )


def expect_mixed(
    model: ModelCost,
    machine: MachineProfile,
    reached: Efficiency,
    passes: Passes,
    parts: Sequence[Part],
) -> LatencyEstimate:
    """Estimate the latency of one pass with unequal rows of several sequences."""
    rows, outputs = sum(part.tokens for part in parts), sum(part.outputs for part in parts)
    cost = mixed_cost(model, parts, passes.prefill_barriers, passes.tile)
    times = part_times(cost, model, machine)
    return LatencyEstimate(
        rows,
        *_pass_seconds(times, model, reached, rows, outputs),
        least=times.minimum,
        attained=attainable(times, reached),
    )


def shared_s(alone_s: Callable[[int], float], units: int, threads: int) -> float:
    """Return the seconds of `units` equal units, one thread each, spread over `threads`.

    alone_s: seconds of all units on a number of threads that are busy to the end.
    """
    whole, rest = divmod(units, threads)
    busy = whole * threads * alone_s(threads)
    return (busy + (rest * alone_s(rest) if rest else 0.0)) / units


def even_part(tokens: int, chunk: int) -> int:
    """Return the tokens of the next pass, when `tokens` are divided into equal passes."""
    if tokens <= chunk:
        return tokens
    part = -(-tokens // -(-tokens // chunk))
    return min(chunk, -(-part // 32) * 32)


def attainable(times: PartTimes, reached: Efficiency) -> Prediction:
    """Return the separate times of arithmetic, reads and barriers, at the kernels' rates."""
    return Prediction(
        compute_s=(times.linear_s + reached.extra_tokens * times.unpack_s) / reached.products
        + attention_arithmetic_s(times) / reached.attention,
        memory_s=times.weights_s / reached.read
        + (times.cached_s + times.reread_s) / reached.attention_read,
        dispatch_s=times.barriers * reached.barrier_s,
        level=times.level,
    )


def attention_arithmetic_s(times: PartTimes) -> float:
    """Return the seconds of attention's arithmetic, with the unpacking that tiles repeat."""
    return times.attention_s + TILE_ROWS * times.tile_s


def _pass_seconds(
    times: PartTimes,
    model: ModelCost,
    reached: Efficiency,
    rows: int,
    outputs: int,
) -> tuple[float, float, float, float, float]:
    """Return the seconds of one pass: products, head, attention, rows, dispatch."""
    head_s = head_read_s = 0.0
    if outputs:
        head_s = 2.0 * outputs * model.head_weights / times.products_rate
        head_read_s = model.head_bytes / times.read_rate
    body_s = times.linear_s - head_s + reached.extra_tokens * times.unpack_s
    products = _norm(
        (times.weights_s - head_read_s) / reached.read, body_s / reached.products, PRODUCTS_OVERLAP
    )
    head = _norm(head_read_s / reached.read, head_s / reached.products, PRODUCTS_OVERLAP)
    attention = (times.cached_s + times.reread_s) / reached.attention_read
    attention += attention_arithmetic_s(times) / reached.attention
    each = reached.decode_rows_s if rows == 1 else reached.row_s * rows
    kernels = products + head + attention + each
    barrier = reached.decode_barrier_s if rows == 1 else reached.barrier_s
    dispatch = times.barriers * barrier + reached.waiting * kernels
    return products, head, attention, each, dispatch


def _norm(a: float, b: float, p: float) -> float:
    """Return a time between the larger of two and their sum: a model of their overlap."""
    return float((a**p + b**p) ** (1 / p))
