"""Prefetch at a barrier: while a thread waits, it prefetches what it reads next.

In decode most ops read weights at the speed of memory, and which ones is known beforehand. A thread
that waits would leave memory idle; and every op begins with a wait for its first lines.
"""

from __future__ import annotations

from typing import Any

from . import ir
from .ir import i64, ptr
from .pool_block import (
    A_DATA,
    A_UNIT_BYTES,
    A_UNITS,
    ACTIVE,
    READ_AHEAD,
    NativeBuilder,
    blocks,
)

LINES = 4  # asked for at a time, between two looks whether all have come


def read_next(
    n: NativeBuilder, b: ir.Builder, pool: ir.Value, tid: ir.Value, ahead: ir.Value
) -> tuple[Any, Any]:
    """Return the addresses between which this thread reads first after a barrier.

    It prefetches them while it waits for the others, and only then: see `prefetch_ahead`.
    """
    entry = b.block
    known, none = blocks(b.function, "ahead nothing")
    b.cbranch(b.icmp_unsigned(">", ahead, i64(1)), known, none)
    b.position_at_end(known)
    what = b.inttoptr(ahead, ptr)
    units = b.load(n.get(b, what, A_UNITS, ptr), i64)
    begin, end = n.thread_range(b, units, tid, n.get(b, pool, ACTIVE))
    each = n.get(b, what, A_UNIT_BYTES)
    start = b.add(n.get(b, what, A_DATA), b.mul(begin, each))
    size, limit_bytes = b.mul(b.sub(end, begin), each), n.get(b, pool, READ_AHEAD)
    limit = b.add(start, b.select(b.icmp_signed("<", size, limit_bytes), size, limit_bytes))
    b.branch(none)
    b.position_at_end(none)
    return b.phi((i64(0), entry), (start, known)), b.phi((i64(0), entry), (limit, known))


def prefetch_ahead(
    n: NativeBuilder,
    b: ir.Builder,
    gen: ir.Value,
    old: ir.Value,
    start: ir.Value,
    end: ir.Value,
) -> None:
    """Emit prefetches from `start` to `end` while other threads have yet to reach the barrier."""
    entry, (look, fetch, done) = b.block, blocks(b.function, "more ask asked")
    b.branch(look)
    b.position_at_end(look)
    at = b.phi((start, entry))
    waits = b.icmp_signed("==", n.atomic_load(b, gen), old)
    b.cbranch(b.op("and", waits, b.icmp_signed("<", at, end)), fetch, done)
    b.position_at_end(fetch)
    for line in range(LINES):
        n.prefetch(b, b.add(at, i64(64 * line)))
    at.add_incoming(b.add(at, i64(64 * LINES)), b.block)
    b.branch(look)
    b.position_at_end(done)
