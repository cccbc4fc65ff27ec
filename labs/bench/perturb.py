"""Ablation ops: each halves a resource of a pass, to attribute its time.

They change what a pass reads or multiplies and nothing else; its results mean nothing afterwards.
`causal_profile.py` lays them down between the ops of a model.
"""

from __future__ import annotations

from triplepoint.jit.kernels.panels import FORMATS
from triplepoint.jit.simd import I64, I8s, I32s, I64s, Kernel, i32, i64, kernel


@kernel
def stream_only(k: Kernel, data: I8s, sink: I8s, unit_bytes: I64) -> None:
    """Read the units [begin, end) of `unit_bytes` bytes, a multiple of a vector, and no more."""
    vector = 4 * k.lanes
    total = k.var(k.zeros(i32, k.lanes))
    with k.range(k.begin * unit_bytes, k.end * unit_bytes, step=vector) as at:
        total.set(total.value ^ data.at(at).cast(i32).load(0, k.lanes))
    sink.cast(i32).store(0, total.value)


@kernel
def stream_experts_only(
    k: Kernel, data: I8s, sink: I8s, units_each: I64, active: I32s, *, fmt: str, blocks: int
) -> None:
    """Read what `gemm_experts` would: unit = (active expert, panel), `units_each` an expert."""
    vector, panel_bytes = 4 * k.lanes, FORMATS[fmt].panel_bytes(blocks, k.lanes)
    total = k.var(k.zeros(i32, k.lanes))
    with k.units() as unit:
        expert = active.load(unit // units_each).to(i64)
        panel = data.at((expert * units_each + unit % units_each) * panel_bytes)
        with k.range(0, panel_bytes, step=vector, name="at") as at:
            total.set(total.value ^ panel.at(at).cast(i32).load(0, k.lanes))
    sink.cast(i32).store(0, total.value)


@kernel
def alias(k: Kernel, active: I32s, *, count: int, mask: int) -> None:
    """Replace entry n by entry n & mask: -2 makes neighbors equal, -1 is the identity; one unit."""
    with k.units(), k.range(0, count, name="entry") as n:
        active.store(n, active.load(n & mask))


@kernel
def subsample(k: Kernel, starts: I32s, pairs: I32s, units: I64s, *, divide: int) -> None:
    """Reduce each active expert's pairs to one in `divide`, at least one; one unit.

    starts, pairs, units as `moe.group` leaves them, units[2] being the number of active experts.
    """
    one = k.const(1, i32)
    with k.units():
        free, start = k.var(k.const(0, i32)), k.var(starts.load(0))
        with k.range(0, units.load(2), name="expert") as n:
            end = starts.load(n + 1)
            remaining = ((end - start.value) // divide).max(one)
            with k.range(0, remaining.to(i64), name="pair") as p:
                pairs.store(free.value.to(i64) + p, pairs.load(start.value.to(i64) + p))
            starts.store(n, free.value)
            free.set(free.value + remaining)
            start.set(end)
        starts.store(units.load(2), free.value)
