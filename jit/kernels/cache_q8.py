"""The int8 KV cache: its layout, and the quantization of queries, keys and values for it.

A key has one scale for 32 dims, since some dims are far larger than the rest in real models; a
value has one for all its dims, also where it is the first dims of a key. Scales are bf16, rounded
up, so that the largest byte stays within 127: rounded to nearest, bytes would have to saturate. One
head in one page of positions p, for tiles of T positions:

    K: [p / T][dim / 32] of { bf16 scale [T], int8 [8][T][4] }    four dims of a position together
    V: bf16 scale [p], then [dim / 64] of int8 [p / 4][64][4]     four positions of a dim together

Each is read from start to end, as one stream. Keys are unsigned, with 128 added, where the target
wants weights so; values are always signed.

A query is one block for 32 dims: float32 scale, int32 -zero_point * sum(q), then q as int8 [32] or,
where the target multiplies int16 (`wide`), as int16 [8][4], of each four dims the even ones first.
"""

from __future__ import annotations

import numpy as np

from ..simd import Kernel, Ptr, Value, f32, i8, i16, i32
from ..targets import CpuTarget
from .kvcache import PAGE, SCALE_DIMS
from .mathlib import round_to_int

SCALE_WORDS = PAGE // 2  # int32 words of the scales before the values of a page
GROUP_DIMS = 64  # dims of values that lie together: four vectors of the widest registers
QUADS = PAGE // 4  # positions whose bytes of a dim share an int32
TINY = 1e-30  # values smaller than that all count as zeros: their inverse might overflow


def key_vectors(target: CpuTarget) -> int:
    """Return the number of vectors of positions in a tile of keys: one register tile of scores."""
    return 4 if target.registers >= 32 else 2


def zero_point(target: CpuTarget) -> int:
    """Return what is added to the bytes of keys: 128 where they are unsigned, else 0."""
    return 0 if target.signed_bytes else 128


def wide(target: CpuTarget) -> bool:
    """Return whether cache bytes are widened to int16: where a byte dot product costs as much."""
    return target.dot in ("maddubs", "portable")


def query_words(target: CpuTarget) -> int:
    """Return the number of int32 words of 32 dims of a query."""
    return 2 + SCALE_DIMS // (2 if wide(target) else 4)


def quads(words: Value) -> Value:
    """Reorder int16 for `even_odd`, as int32: of each four the even ones first."""
    return words.shuffle([n + i for n in range(0, words.lanes, 4) for i in (0, 2, 1, 3)]).bitcast(
        i32
    )


def even_odd(data: Value) -> tuple[Value, Value]:
    """Split int32 of four bytes into the even ones and the odd ones, as pairs of int16."""
    words = data.bitcast(i16)
    return (words << 8).sar(8).bitcast(i32), words.sar(8).bitcast(i32)


def block_words(positions: int) -> int:
    """Return the number of int32 words of 32 dims of a tile of `positions` keys."""
    return positions // 2 + 8 * positions


def dim_groups(head_dim: int) -> list[range]:
    """Group the dims that lie together in values; the last group may be smaller."""
    return [range(at, min(at + GROUP_DIMS, head_dim)) for at in range(0, head_dim, GROUP_DIMS)]


def scales(k: Kernel, bits: Ptr, at: Value | int) -> Value:
    """Load one vector of bf16 scales as float32."""
    return (bits.cast(i16).load(at, k.lanes).to(i32, signed=False) << 16).bitcast(f32)


def store_query(k: Kernel, row: Ptr, dims: list[Value]) -> None:
    """Quantize one head of a query from registers, and store it."""
    size = query_words(k.target)
    for n, values in enumerate(_blocks(dims)):
        block = row.at(n * size)
        largest = _largest(values)
        inverse = (largest > TINY).select(127.0 / largest, 0.0)
        total = k.zeros(i32, values[0].lanes)
        for i, v in enumerate(values):
            q = round_to_int(v * inverse.splat(v.lanes))
            total = total + q
            if wide(k.target):
                block.store(2 + i * (v.lanes // 2), quads(q.to(i16)))
            else:
                block.cast(i8).store(8 + i * v.lanes, q.to(i8))
        block.cast(f32).store(0, largest * (1.0 / 127.0))
        block.store(1, total.hsum() * -zero_point(k.target))


def store_key(k: Kernel, part: Ptr, within: Value, dims: list[Value], value_dim: int = 0) -> None:
    """Quantize one key and scatter it into its lane of the tile.

    The first `value_dim` dims have one scale, written to each of their blocks: as values have.
    """
    positions = key_vectors(k.target) * k.lanes
    size = block_words(positions)
    blocks = _blocks(dims)
    tile = part.at(within // positions * (len(blocks) * size))
    lane = within % positions
    together = value_dim // SCALE_DIMS
    shared = _largest([v for block in blocks[:together] for v in block]) if together else None
    for n, values in enumerate(blocks):
        largest = shared if shared is not None and n < together else _largest(values)
        scale, inverse = _rounded_scale(largest)
        tile.at(n * size).cast(i16).store(lane, scale)
        column = tile.at(lane + (n * size + positions // 2))
        at = 0
        for v in values:
            q = round_to_int(v * inverse.splat(v.lanes)) + zero_point(k.target)
            words = q.to(i8).bitcast(i32)
            for i in range(words.lanes):
                column.store(at * positions, words.at(i) if words.lanes > 1 else words)
                at += 1


def store_value(k: Kernel, part: Ptr, within: Value, values: list[Value]) -> None:
    """Quantize one value and scatter it into its byte of each dim's four positions."""
    lanes = values[0].lanes
    scale, inverse = _rounded_scale(_largest(values))
    part.cast(i16).store(within, scale)
    data = part.at(SCALE_WORDS).cast(i8)
    for dims in dim_groups(lanes * len(values)):
        quad = data.at(within // 4 * (4 * len(dims)) + within % 4 + dims.start * PAGE)
        for d in range(dims.start, dims.stop, lanes):
            q = round_to_int(values[d // lanes] * inverse.splat(lanes)).to(i8)
            for i in range(lanes):
                quad.store(4 * (d - dims.start + i), q.at(i))


def _blocks(dims: list[Value]) -> list[list[Value]]:
    """Group vectors of consecutive dims, split where a scale ends."""
    each = SCALE_DIMS // dims[0].lanes
    return [dims[n : n + each] for n in range(0, len(dims), each)]


def _largest(values: list[Value]) -> Value:
    """Return the largest magnitude as a scalar; NaN if there is one."""
    # The bits of floats without a sign are in the order of their values, NaN after all.
    bits = [v.bitcast(i32) & 0x7FFFFFFF for v in values]
    largest = bits[0]
    for b in bits[1:]:
        largest = largest.max(b)
    return largest.hmax().bitcast(f32)


def _rounded_scale(largest: Value) -> tuple[Value, Value]:
    """Return the bits of a bf16 scale (int16) that maps `largest` to 127 at most, and 1 / scale."""
    bits = ((largest * (1.0 / 127.0)).bitcast(i32) + 0xFFFF) >> 16
    scale = (bits << 16).bitcast(f32)
    return bits.to(i16), (largest > TINY).select(1.0 / scale, 0.0)


def quantize_reference(x: np.ndarray, dims: int) -> np.ndarray:
    """Round keys (dims = 32) or values (dims = head_dim) to what the int8 cache represents.

    x float32 [..., head_dim] -> float32 of the same shape; finite values only.
    """
    blocks = np.ascontiguousarray(x, np.float32).reshape(*x.shape[:-1], -1, dims)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)
    bits = (largest * np.float32(1 / 127)).astype(np.float32).view(np.uint32) + np.uint32(0xFFFF)
    scale = (bits & np.uint32(0xFFFF0000)).view(np.float32)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(largest > TINY, np.float32(1) / scale, np.float32(0))
    q = np.rint(blocks * inverse.astype(np.float32))
    return (q * scale).reshape(x.shape).astype(np.float32)
