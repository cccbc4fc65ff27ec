"""Query and key of one position: bias, per-head RMSNorm, rotary embedding, write to the KV cache.

    (a, b) -> (a cos - b sin, b cos + a sin)                                            (RoPE)

for the pairs (i, i + n / 2) of the first n dims of a head (NeoX), or the pairs (2 i, 2 i + 1) of
them (as in llama's files); the dims behind stay as they are. Of adjacent pairs the first ones are
stored before the second ones, in queries and keys alike: scores do not depend on the order of dims.

Where keys have large biases, 16 bits are too few for them: of a key in bf16 with a bias of 200 the
rest is rounded to 1. In pairs that turn slowly the rotated bias hardly changes over a page, so the
bias b as it is at the page's center c is taken off before a key is stored, and each score with the
page gets it back in float32, one number for a page and a query:

    q . k = q . (k - R(c) b) + sum over slow pairs of cos(c) u + sin(c) v,
    u = q_a b_a + q_b b_b,  v = q_b b_a - q_a b_b                       (a, b: a pair's dims)

Both follow from the file and the position alone: bits depend on nothing else.

See `kvcache.py` for where keys and values go. Source: RoFormer, Su et al., arXiv:2104.09864.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..dot import bf16_pairs_of, to_bf16_bits
from ..simd import F32, I64, F32s, I8s, I64s, Kernel, Ptr, Value, f32, i16, i32, kernel
from ..targets import CpuTarget
from . import cache_q8
from .batch import ROW_POSITION, ROW_SLOTS, ROW_TABLE
from .key_blocks import KeyBlock, store_value_pair
from .kvcache import (
    PAGE,
    SCALE_DIMS,
    KVFormat,
    Stored,
    head_part,
    head_words,
    key_format,
    value_format,
)

AHEAD = 2  # rows: what others have computed comes from L3, or from their L2
SLOW = 32768  # positions of a turn: in pairs that take longer, biases of keys are taken off
TINY = 1e-30  # keys that are all zeros need no factors
TOKENS = 16  # one head's keys of 16 positions share cache lines: written together, they stay in L1


@kernel
def rope_store(
    k: Kernel,
    q: F32s,
    keys: F32s,
    values: F32s,
    q_norm: F32s,
    k_norm: F32s,
    biases: F32s,
    cos: F32s,
    sin: F32s,
    temperatures: F32s,
    q_out: I8s,
    pages: I64s,
    k_offset: I64,
    v_offset: I64,
    q_stride: I64,
    kv_stride: I64,
    eps: F32,
    scale: F32,
    count: I64s,
    rows: I64s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    norm: bool,
    kv: KVFormat,
    rotated: int = -1,
    adjacent: bool = False,
    bias: bool = False,
    norm_values: bool = False,
    temperature: bool = False,
    store: bool = True,
    gated: bool = False,
    centered: int = 0,
    equalized: bool = False,
) -> None:
    """Prepare each row's query, key and value; unit = (TOKENS rows, kv head), kv head fastest.

    q float32 [tokens, q_stride], keys and values [tokens, kv_stride]; biases: of all query heads,
    keys and values, one after the other; cos, sin [positions, rotated / 2]; count[0]: rows of the
    pass; rows: as `batch.py` has them; pages, tables and offsets as in `kvcache.py`. q_out is
    float32 [tokens, heads, head_dim], or the same as bf16 pairs where the target multiplies those,
    or the blocks of `cache_q8.py`; it carries the attention scale. `rotated`: dims of a head that
    are rotated; -1: all.

    With `temperature` a query is multiplied by temperatures[position], too. With `norm_values`
    values are normed without weights. Without `store` there are queries only: keys and values are
    those of another layer. `gated`: behind each head's query stand as many values that gate what
    attention makes of it (`activations.gate_by_queries`). `centered`: all pairs, where
    biases of keys are taken off. These are behind the biases, for each KV head (`center_biases`),
    and behind each query u and v of all pairs. `equalized`: behind these are what queries are
    multiplied by, and what keys are, for each KV head (`equalizers`).
    """
    heads = kv_heads * group
    q_step = 2 * head_dim if gated else head_dim
    rotated = head_dim if rotated < 0 else rotated
    form = Head(k, head_dim, rotated, adjacent)
    of_keys, of_values = key_format(kv), value_format(kv)
    row_words = query_words(k.target, of_keys, head_dim)
    stride = row_words + 2 * centered
    key_words, value_words = (head_words(kv, head_dim, part) for part in ("k", "v"))
    more = (heads + 2 * kv_heads) * head_dim if bias else 0

    def of_head(number: int, head: Value) -> Dims:
        """Return the number-th vector of a KV head behind the biases."""
        return form.read(biases.at((number * kv_heads + head) * head_dim + more))

    block = KeyBlock.empty(k, key_words // PAGE) if of_keys != "q8" else None
    with k.units() as unit:
        head, first = unit % kv_heads, unit // kv_heads * TOKENS
        end = (first + TOKENS).min(count.load(0))

        def value_of(token: Value) -> list[Value]:
            at = token * kv_stride + head * head_dim
            own = biases.at((heads + kv_heads + head) * head_dim) if bias else None
            lanes = min(k.lanes, head_dim)
            value = [_plus(values.at(at), own, d, lanes) for d in range(0, head_dim, lanes)]
            if norm_values:
                inverse = inverse_rms(k, value, head_dim, eps)
                value = [v * inverse for v in value]
            return value

        with k.range(first, end, name="token") as token:
            with k.if_(token + AHEAD < end):
                later = token + AHEAD
                at = later * q_stride + head * (group * q_step)
                _prefetch(q.at(at), group * q_step)
                for x in (keys, values) if store else ():
                    _prefetch(x.at(later * kv_stride + head * head_dim), head_dim)
            row = rows.at(token * ROW_SLOTS)
            position, table = row.load(ROW_POSITION), pages.at(row.load(ROW_TABLE))
            angles = cos.at(position * (rotated // 2)), sin.at(position * (rotated // 2))
            for member in range(group):
                h = head * group + member
                own = biases.at(h * head_dim) if bias else None
                query = form.read(q.at(token * q_stride + h * q_step), own)
                if norm:
                    query = form.normed(query, q_norm, eps)
                rotated_query = form.rotate(query, angles)
                factor = scale * temperatures.load(position) if temperature else scale
                line = q_out.cast(i32).at((token * heads + h) * stride)
                if centered:
                    mean = of_head(0, head)
                    _store_centers(line.at(row_words).cast(f32), rotated_query, mean, factor)
                if equalized:
                    up = of_head(int(centered > 0), head).all
                    rotated_query = [a * b for a, b in zip(rotated_query, up, strict=True)]
                store_query(k, line, rotated_query, factor, of_keys)
            if store:
                own = biases.at((heads + head) * head_dim) if bias else None
                key = form.read(keys.at(token * kv_stride + head * head_dim), own)
                if norm:
                    key = form.normed(key, k_norm, eps)
                page, within = position // PAGE, position % PAGE
                k_part = head_part(k, table, page, k_offset, head, key_words)
                v_part = head_part(k, table, page, v_offset, head, value_words)
                rotated_key = form.rotate(key, angles)
                if centered:
                    mean = of_head(0, head)
                    at = (page * PAGE + PAGE // 2) * (rotated // 2)
                    center = form.rotate(mean, (cos.at(at), sin.at(at)))
                    rotated_key = [a - b for a, b in zip(rotated_key, center, strict=True)]
                if equalized:
                    down = of_head(1 + (centered > 0), head).all
                    rotated_key = [a * b for a, b in zip(rotated_key, down, strict=True)]
                if block is None:
                    store_key(k, k_part, within, rotated_key, head_dim, of_keys)
                    store_value(k, v_part, within, value_of(token), head_dim, of_values)
                else:
                    ends, follows = block.ends(row, token + 1 < end), block.held.value > 0
                    block.put(within, key_vectors(k, rotated_key, of_keys))
                    with k.if_(ends):
                        block.write(k_part, within)
                    if of_values == "bf16":
                        # Of two positions in this unit the even one writes both values.
                        even = (within & 1).eq(0)
                        with k.if_(even & ends.eq(0)):
                            store_value_pair(v_part, within, value_of(token), value_of(token + 1))
                        with k.if_(even.select(ends, follows.eq(0))):
                            store_value(k, v_part, within, value_of(token), head_dim, of_values)
                    else:
                        store_value(k, v_part, within, value_of(token), head_dim, of_values)


def _prefetch(x: Ptr, count: int) -> None:
    """Prefetch `count` floats."""
    for at in range(0, count, 16):
        x.prefetch(at)


def _plus(x: Ptr, bias: Ptr | None, at: int, lanes: int) -> Value:
    value = x.load(at, lanes)
    return value + bias.load(at, lanes) if bias else value


@dataclass(frozen=True, slots=True)
class Dims:
    """A head in registers: the rotated dims, as firsts and seconds of pairs, and the rest."""

    low: list[Value]
    high: list[Value]
    rest: list[Value]

    @property
    def all(self) -> list[Value]:
        return self.low + self.high + self.rest


@dataclass(frozen=True, slots=True)
class Head:
    """The layout of a head's dims, and which of them are pairs."""

    k: Kernel
    head_dim: int
    rotated: int
    adjacent: bool

    @property
    def lanes(self) -> int:
        """Dims in a register: pairs and the rest must each fill whole registers."""
        lanes = self.k.lanes
        while self.rotated // 2 % lanes or (self.head_dim - self.rotated) % lanes:
            lanes //= 2
        return lanes

    def read(self, x: Ptr, bias: Ptr | None = None) -> Dims:
        """Load a head's dims, in the order in which they are stored."""
        lanes, half = self.lanes, self.rotated // 2
        if self.adjacent:
            low, high = [], []
            for at in range(0, self.rotated, 2 * lanes):
                a, b = (_plus(x, bias, at + n * lanes, lanes) for n in range(2))
                low.append(a.shuffle(range(0, 2 * lanes, 2), b))
                high.append(a.shuffle(range(1, 2 * lanes, 2), b))
        else:
            low, high = (
                [_plus(x, bias, base + at, lanes) for at in range(0, half, lanes)]
                for base in (0, half)
            )
        rest = [_plus(x, bias, at, lanes) for at in range(self.rotated, self.head_dim, lanes)]
        return Dims(low, high, rest)

    def normed(self, x: Dims, weight: Ptr, eps: Value) -> Dims:
        """Compute x / sqrt(mean(x^2) + eps) * weight."""
        wide, w = inverse_rms(self.k, x.all, self.head_dim, eps), self.read(weight)
        parts = ((x.low, w.low), (x.high, w.high), (x.rest, w.rest))
        return Dims(*([a * wide * b for a, b in zip(*part, strict=True)] for part in parts))

    def rotate(self, x: Dims, angles: tuple[Ptr, Ptr]) -> list[Value]:
        """Rotate by this position's angles; return all dims."""
        k, lanes = self.k, self.lanes
        low, high = [], []
        for n, (a, b) in enumerate(zip(x.low, x.high, strict=True)):
            c, s = (angle.load(n * lanes, lanes) for angle in angles)
            low.append(k.fma(a, c, 0.0 - b * s))
            high.append(k.fma(b, c, a * s))
        return low + high + x.rest


def inverse_rms(k: Kernel, values: list[Value], head_dim: int, eps: Value) -> Value:
    """Compute 1 / sqrt(mean(x^2) + eps) of a head, in every lane."""
    lanes = values[0].lanes
    total = k.zeros(f32, lanes)
    for v in values:
        total = k.fma(v, v, total)
    return (1.0 / (total.hsum() * (1.0 / head_dim) + eps).sqrt()).splat(lanes)


def _pairs(k: Kernel, values: list[Value]) -> list[Value]:
    """Convert float32 vectors of consecutive dims to half as many int32 vectors of bf16 pairs."""
    if k.target.bf16 != "none" and values[0].lanes == k.lanes:
        return [bf16_pairs_of(k, v) for v in values]
    out = []
    for v in values:
        bits = to_bf16_bits(v)
        even, odd = (bits.shuffle(range(n, v.lanes, 2)) for n in range(2))
        out.append(even | (odd << 16))
    return out


def bf16_pairs(target: CpuTarget, stored: Stored, head_dim: int) -> bool:
    """Return whether attention multiplies bf16 pairs on this target (else float32)."""
    return stored == "bf16" and (target.bf16 == "dot" or bf16_tiles(target, stored, head_dim))


def bf16_tiles(target: CpuTarget, stored: Stored, head_dim: int) -> bool:
    """Return whether attention uses AMX tiles, which are 32 dims deep."""
    return stored == "bf16" and target.bf16 == "tiles" and head_dim % 32 == 0


def query_words(target: CpuTarget, keys: Stored, head_dim: int) -> int:
    """Return the int32 words of one head's query, as attention reads it."""
    if keys == "q8":
        return head_dim // SCALE_DIMS * cache_q8.query_words(target)
    return head_dim // 2 if bf16_pairs(target, keys, head_dim) else head_dim


def store_query(k: Kernel, row: Ptr, dims: list[Value], scale: Value, keys: Stored) -> None:
    """Store one head's query times `scale` as attention reads it: int32 [query_words]."""
    scaled = [v * scale.splat(v.lanes) for v in dims]
    if keys == "q8":
        cache_q8.store_query(k, row, scaled)
        return
    pairs = bf16_pairs(k.target, keys, sum(v.lanes for v in dims))
    for n, v in enumerate(_pairs(k, scaled) if pairs else [v.bitcast(i32) for v in scaled]):
        row.store(n * v.lanes, v)


def _store_centers(out: Ptr, query: list[Value], mean: Dims, scale: Value) -> None:
    """Store u and v of a rotated query: float32 [2, pairs]."""
    count, lanes = len(mean.low), mean.low[0].lanes
    for n, (a, b) in enumerate(zip(mean.low, mean.high, strict=True)):
        x, y, factor = query[n], query[count + n], scale.splat(lanes)
        out.store(n * lanes, (x * a + y * b) * factor)
        out.store((count + n) * lanes, (y * a - x * b) * factor)


def slow_pairs(cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Return which pairs of a rotary table turn slowly: bool [pairs]."""
    return np.abs(np.arctan2(sin[1], cos[1])) < 2 * np.pi / SLOW


def center_biases(
    biases: np.ndarray, cos: np.ndarray, sin: np.ndarray, adjacent: bool
) -> np.ndarray:
    """Return the key biases in pairs that rotate slowly, zeros elsewhere.

    Args:
        biases: float32 [kv heads, head_dim], in the file's order of dims.
        cos: the rotary table's cosines, float32 [positions, pairs].
        sin: its sines, of the same shape.
        adjacent: whether pairs are neighbors, as in `rope_store`.

    Returns:
        float32 [kv heads, head_dim].
    """
    pairs, slow = cos.shape[1], slow_pairs(cos, sin)
    of_dims = np.repeat(slow, 2) if adjacent else np.tile(slow, 2)
    found = np.zeros_like(biases)
    found[:, : 2 * pairs] = np.where(of_dims, biases[:, : 2 * pairs], 0)
    return found


def equalizers(norms: np.ndarray, biases: np.ndarray, pairs: int, adjacent: bool) -> np.ndarray:
    """Return factors that make the dims of keys about as large as each other, and their inverses.

    A pair has one factor, so that it may be rotated. Of a normed x a row w of the matrix makes
    numbers of size |w| about the bias. Factors are rounded to bf16: other orders of summation do
    not change them.

    Args:
        norms: of the rows of the matrix times the norm's weights, float [kv heads, head_dim].
        biases: what is left of them in stored keys, of the same shape.
        pairs: the first 2 * pairs dims are rotated.
        adjacent: whether pairs are neighbors, as in `rope_store`.

    Returns:
        float32 [2, kv heads, head_dim]: of queries, and of keys.
    """
    power = norms.astype(np.float64) ** 2 + biases.astype(np.float64) ** 2
    rotated = power[:, : 2 * pairs].reshape(len(power), *((-1, 2) if adjacent else (2, -1)))
    axis = 2 if adjacent else 1
    rotated[:] = rotated.mean(axis=axis, keepdims=True)
    size = np.sqrt(power)
    size = np.maximum(size, 1e-3 * size.max(axis=1, keepdims=True)) + TINY
    factors = to_bf16(size / np.exp(np.log(size).mean(axis=1, keepdims=True)))
    return np.stack([factors, 1 / factors]).astype(np.float32)


def center_angles(cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Return cos and sin at the center of each page: float32 [pages, 2, pairs]."""
    return np.stack([cos[PAGE // 2 :: PAGE], sin[PAGE // 2 :: PAGE]], axis=1)


def key_vectors(k: Kernel, dims: list[Value], stored: Stored) -> list[Value]:
    """Return a key as vectors of the cache's int32 words; not for q8."""
    return [v.bitcast(i32) for v in dims] if stored == "f32" else _pairs(k, dims)


def store_key(
    k: Kernel,
    part: Ptr,
    within: Value,
    dims: list[Value],
    head_dim: int,
    stored: Stored,
    value_dim: int = 0,
) -> None:
    """Scatter one key into its lane: the stride between dims is a whole vector.

    value_dim: number of first dims that are the value, too; 0: none.
    """
    if stored == "q8":
        cache_q8.store_key(k, part, within, dims, value_dim)
        return
    lanes = k.lanes
    vectors = key_vectors(k, dims, stored)
    rows = head_dim if stored == "f32" else head_dim // 2
    column = part.at(within // lanes * (rows * lanes) + within % lanes)
    at = 0
    for v in vectors:
        for n in range(v.lanes):
            column.store(at * lanes, v.at(n))
            at += 1


def store_value(
    k: Kernel, part: Ptr, within: Value, dims: list[Value], head_dim: int, stored: Stored
) -> None:
    if stored == "q8":
        cache_q8.store_value(k, part, within, dims)
        return
    lanes = dims[0].lanes
    if stored == "f32":
        row = part.cast(f32).at(within * head_dim)
        for n, v in enumerate(dims):
            row.store(n * lanes, v)
        return
    pair = part.cast(i16).at(within // 2 * (2 * head_dim) + within % 2)
    for i, v in enumerate(dims):
        bits = to_bf16_bits(v).to(i16)
        for n in range(lanes):
            pair.store(2 * (i * lanes + n), bits.at(n))


def frequencies(dims: int, base: float) -> np.ndarray:
    """Compute base^(-2i/dims), the angle between positions of pair i: float64 [dims / 2]."""
    return base ** (-np.arange(0, dims, 2, dtype=np.float64) / dims)


def tables(positions: int, head_dim: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute cos and sin of angles p * base^(-2i/head_dim): float32 [positions, dim/2] each."""
    return tables_of(positions, frequencies(head_dim, base))


def tables_of(
    positions: int, frequencies: np.ndarray, magnitude: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute magnitude * cos and sin of position * frequency: float32 [positions, dims / 2]."""
    angles = np.arange(positions, dtype=np.float64)[:, None] * frequencies
    cos, sin = np.cos(angles) * magnitude, np.sin(angles) * magnitude
    return cos.astype(np.float32), sin.astype(np.float32)


def reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate x float [tokens, heads, dim], cos and sin [tokens, dim/2] -> float32."""
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1).astype(np.float32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Round float32 to nearest-even bf16; return float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
