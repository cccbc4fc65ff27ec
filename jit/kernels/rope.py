"""Query and key of one position: per-head RMSNorm, rotary embedding, and the write to the KV cache.

    (a, b) -> (a cos - b sin, b cos + a sin)     for the pairs (i, i + head_dim / 2)   (RoPE, NeoX)

See `kvcache.py` for where keys and values go.
"""

from __future__ import annotations

import numpy as np

from ..dot import to_bf16_bits
from ..simd import F32, I64, F32s, I8s, I64s, Kernel, Ptr, V, f32, i16, i32, kernel
from . import cache_q8
from .kvcache import PAGE, KVFormat, head_part, head_words

TOKENS = 16  # one head's keys of 16 positions share cache lines: written together, they stay in L1


@kernel
def rope_store(
    k: Kernel,
    q: F32s,
    keys: F32s,
    values: F32s,
    q_norm: F32s,
    k_norm: F32s,
    cos: F32s,
    sin: F32s,
    q_out: I8s,
    pages: I64s,
    k_offset: I64,
    v_offset: I64,
    q_stride: I64,
    kv_stride: I64,
    eps: F32,
    scale: F32,
    state: I64s,
    *,
    head_dim: int,
    kv_heads: int,
    group: int,
    norm: bool,
    kv: KVFormat,
) -> None:
    """Unit = (tile of TOKENS tokens, kv head), kv head fastest: queries, key, value of each token.

    q float32 [tokens, q_stride], keys and values [tokens, kv_stride]; state = [tokens, position of
    token 0]; pages and offsets as in `kvcache.py`. q_out is float32 [tokens, heads, head_dim], or
    the same as bf16 pairs where the target multiplies those, or the blocks of `cache_q8.py`; it
    carries the attention scale.
    """
    heads, half = kv_heads * group, head_dim // 2
    key_words, value_words = (head_words(kv, head_dim, part) for part in ("k", "v"))
    with k.units() as unit:
        head, first = unit % kv_heads, unit // kv_heads * TOKENS
        with k.range(first, (first + TOKENS).min(state.load(0)), name="token") as token:
            position = state.load(1) + token
            angles = cos.at(position * half), sin.at(position * half)
            for member in range(group):
                h = head * group + member
                low, high = _rotated(
                    k, q.at(token * q_stride + h * head_dim), q_norm, angles, eps, head_dim, norm
                )
                at = (token * heads + h) * head_dim
                _store_query(k, q_out, at, low, high, scale, kv)
            at = token * kv_stride + head * head_dim
            low, high = _rotated(k, keys.at(at), k_norm, angles, eps, head_dim, norm)
            page, within = position // PAGE, position % PAGE
            k_part = head_part(k, pages, page, k_offset, head, key_words)
            v_part = head_part(k, pages, page, v_offset, head, value_words)
            _store_key(k, k_part, within, low + high, head_dim, kv)
            _store_value(k, v_part, within, values.at(at), head_dim, kv)


def _rotated(
    k: Kernel, x: Ptr, weight: Ptr, angles: tuple[Ptr, Ptr], eps: V, head_dim: int, norm: bool
) -> tuple[list[V], list[V]]:
    """Both halves of a head after norm and rotation, as registers."""
    half = head_dim // 2
    lanes = min(k.lanes, half)
    offsets = range(0, half, lanes)
    low, high = ([x.load(base + i, lanes) for i in offsets] for base in (0, half))
    if norm:
        total = k.zeros(f32, lanes)
        for v in low + high:
            total = k.fma(v, v, total)
        inverse = 1.0 / (total.hsum() * (1.0 / head_dim) + eps).sqrt()
        wide = inverse.splat(lanes)
        low = [v * wide * weight.load(i, lanes) for v, i in zip(low, offsets, strict=True)]
        high = [v * wide * weight.load(half + i, lanes) for v, i in zip(high, offsets, strict=True)]
    out_low, out_high = [], []
    for a, b, i in zip(low, high, offsets, strict=True):
        c, s = (angle.load(i, lanes) for angle in angles)
        out_low.append(k.fma(a, c, 0.0 - b * s))
        out_high.append(k.fma(b, c, a * s))
    return out_low, out_high


def _pairs(k: Kernel, values: list[V]) -> list[V]:
    """float32 vectors of consecutive dims -> int32 vectors of bf16 pairs, half as many lanes."""
    out = []
    for v in values:
        bits = to_bf16_bits(v)
        even, odd = (bits.shuffle(range(n, v.lanes, 2)) for n in range(2))
        out.append(even | (odd << 16))
    return out


def bf16_pairs(k: Kernel, kv: KVFormat) -> bool:
    """Whether attention multiplies bf16 pairs on this target (else float32)."""
    return kv == "bf16" and k.target.has_bf16_dot


def _store_query(
    k: Kernel, out: Ptr, at: V, low: list[V], high: list[V], scale: V, kv: KVFormat
) -> None:
    scaled = [v * scale.splat(v.lanes) for v in low + high]
    if kv == "q8":
        cache_q8.store_query(k, out, at, scaled)
        return
    if bf16_pairs(k, kv):
        row, vectors = out.cast(i32).at(at // 2), _pairs(k, scaled)
    else:
        row, vectors = out.cast(f32).at(at), scaled
    for n, v in enumerate(vectors):
        row.store(n * v.lanes, v)


def _store_key(k: Kernel, part: Ptr, within: V, dims: list[V], head_dim: int, kv: KVFormat) -> None:
    """Scatter one key into its lane: the stride between dims is a whole vector."""
    if kv == "q8":
        cache_q8.store_key(k, part, within, dims)
        return
    lanes = k.lanes
    vectors = [v.bitcast(i32) for v in dims] if kv == "f32" else _pairs(k, dims)
    rows = head_dim if kv == "f32" else head_dim // 2
    column = part.at(within // lanes * (rows * lanes) + within % lanes)
    at = 0
    for v in vectors:
        for n in range(v.lanes):
            column.store(at * lanes, v.at(n))
            at += 1


def _store_value(k: Kernel, part: Ptr, within: V, source: Ptr, head_dim: int, kv: KVFormat) -> None:
    if kv == "q8":
        cache_q8.store_value(k, part, within, source, head_dim)
        return
    lanes = min(k.lanes, head_dim)
    if kv == "f32":
        row = part.cast(f32).at(within * head_dim)
        for i in range(0, head_dim, lanes):
            row.store(i, source.load(i, lanes))
        return
    pair = part.cast(i16).at(within // 2 * (2 * head_dim) + within % 2)
    for i in range(0, head_dim, lanes):
        bits = to_bf16_bits(source.load(i, lanes)).to(i16)
        for n in range(lanes):
            pair.store(2 * (i + n), bits.at(n))


def tables(positions: int, head_dim: int, base: float) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of the angles p * base^(-2i/head_dim): float32 [positions, dim/2] each."""
    inverse = base ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    angles = np.arange(positions, dtype=np.float64)[:, None] * inverse
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def reference(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """x float [tokens, heads, dim], cos and sin [tokens, dim/2] -> float32 rotated."""
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    c, s = cos[:, None, :], sin[:, None, :]
    return np.concatenate([a * c - b * s, b * c + a * s], axis=-1).astype(np.float32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float32 rounded to nearest-even bf16, kept as float32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)
