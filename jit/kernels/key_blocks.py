"""Buffers of keys and values of consecutive positions, stored into the cache as whole vectors.

In the cache a vector has one word of the keys of `lanes` positions, and each int32 a dim of the
values of two (`kvcache.py`). Written row by row, each word of a key is a store of its own, and so
is each dim of a value. So the rows of a block of `lanes` positions are held until the last of them
is there, and then turned in registers. Where a pass has only some positions of a block, nothing
is written in the lanes of the others: another thread, or another pass, writes these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..dot import to_bf16_bits
from ..simd import Kernel, Ptr, Value, Var, i32
from .batch import ROW_POSITION, ROW_SLOTS, ROW_TABLE
from .key_values import transposed

FEW = 4  # keys from which on they are turned, which takes as long for one as for a whole block
UNROLL = 4


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """The buffered keys of one block of positions."""

    k: Kernel
    words: int
    """Number of int32 words of a key."""
    rows: Ptr
    """int32 [lanes, words], each key in the row of its lane."""
    held: Var
    """Number of buffered keys, all of consecutive positions."""

    @classmethod
    def empty(cls, k: Kernel, words: int) -> KeyBlock:
        return cls(k, words, k.scratch(i32, k.lanes * words), k.var(k.i64(0)))

    def ends(self, row: Ptr, more: Value) -> Value:
        """Return whether a row is the last of its block in the pass; more: whether one follows."""
        position = row.load(ROW_POSITION) + 1
        # Where none follows this row is as good as any: what it says does not count.
        following = self.k.choose(more, row.at(ROW_SLOTS), row)
        other_table = following.load(ROW_TABLE).ne(row.load(ROW_TABLE))
        other_table = other_table | following.load(ROW_POSITION).ne(position)
        return other_table | (position & (self.k.lanes - 1)).eq(0)

    def put(self, within: Value, vectors: Sequence[Value]) -> None:
        """Buffer the key of position `within` of a page: int32 vectors of its words."""
        row, at = self.rows.at((within & (self.k.lanes - 1)) * self.words), 0
        for v in vectors:
            row.store(at, v)
            at += v.lanes
        self.held.set(self.held.value + 1)

    def write(self, part: Ptr, within: Value) -> None:
        """Write the buffered keys, of which `within` is the last, to their head's part."""
        k, lanes, words = self.k, self.k.lanes, self.words
        lane, held = within & (lanes - 1), self.held.value
        first, block = lane + 1 - held, part.at((within - lane) * words)
        # Without masked stores of one instruction only whole blocks are turned.
        many = held >= (FEW if k.target.bits == 512 else lanes)
        alone = lane + 1  # where those end that are written one by one
        if words >= lanes:
            alone = many.select(first, alone)
            with k.if_(many):
                self._turn(block, first, lane)
        unroll = math.gcd(words, UNROLL)
        with k.range(first, alone) as n, k.range(0, words, step=unroll, name="word") as w:
            for at in (w + u for u in range(unroll)):
                block.store(at * lanes + n, self.rows.load(n * words + at))
        self.held.set(k.i64(0))

    def _turn(self, block: Ptr, first: Value, last: Value) -> None:
        k, lanes, words = self.k, self.k.lanes, self.words
        low, high = (x.to(i32).splat(lanes) for x in (first, last))
        inside = (k.iota(lanes) >= low) & (k.iota(lanes) <= high)

        def square(start: Value) -> None:
            rows = [self.rows.load(start + n * words, lanes) for n in range(lanes)]
            for n, vector in enumerate(transposed(k, rows, 1)):
                at = (start + n) * lanes
                if k.target.bits == 512:
                    block.store_where(at, vector, inside)
                else:
                    block.store(at, vector)

        with k.range(0, words // lanes * lanes, step=lanes, name="square") as start:
            square(start)
        if words % lanes:
            square(k.i64(words - lanes))  # some words of it a second time


def store_value_pair(part: Ptr, within: Value, even: list[Value], odd: list[Value]) -> None:
    """Write the values of positions `within`, which is even, and the next, as bf16.

    float32 vectors of all their dims.
    """
    row, at = part.at(within // 2 * sum(v.lanes for v in even)), 0
    for a, b in zip(even, odd, strict=True):
        row.store(at, to_bf16_bits(a) | (to_bf16_bits(b) << 16))
        at += a.lanes
