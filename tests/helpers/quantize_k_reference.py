"""The numpy reference of `quantize_k.py`: the same sums in the same order, for many blocks at once.

Arrays are float32 [i, block, lane]: weight i of sub-block `lane`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from triplepoint.jit.kernels import quantize_weighted
from triplepoint.jit.kernels.quantize import half
from triplepoint.jit.kernels.quantize_k import HUGE, REFITS, ROUNDS, SAME, TINY
from triplepoint.jit.kernels.quantize_store import KTYPES, KType

Array = np.ndarray
_f32 = np.float32


def reference(rows: Array, weights: Array, fmt: str, by_size: bool = False) -> Array:
    """rows float32 [..., n * 256], weights the same shape -> uint8 [blocks, bytes of a block]."""
    form = KTYPES[fmt]
    x, w = _turned(rows, form), _turned(weights, form)
    if by_size:
        mean = _folded(_sum(x * x)) * _f32(1 / 256)
        w = w * np.sqrt(mean + x * x)
    if form.mins:
        whole, halves, q = _with_min(form, x, w)
    else:
        whole, halves, q = _without_min(form, x, w)
    stored = [np.ascontiguousarray(v[..., 0]) for v in halves]
    return _STORE[fmt](q.astype(np.uint8), [v.astype(np.int32) for v in whole], stored)


def reference_blocks(rows: Array, weights: Array, fmt: str) -> Array:
    """rows float32 [..., n * 512], weights the same shape -> uint8 [blocks, bytes of a block]."""
    form = quantize_weighted.TYPES[fmt]
    x, w = _turned(rows, form), _turned(weights, form)
    if form.any_min:
        a, b = (_as_half(v) for v in _search_min(form, x, w))
        q, head = _between((x + b) * _inverse(a), 0, form.max_q), [a, _f32(0) - b]
    else:
        a = _as_half(_search_plain(form, x, w))
        q = _between(x * _inverse(a), -form.middle, form.middle - 1) + _f32(form.middle)
        head = [a]
    stored = q.astype(np.uint8).transpose(1, 2, 0).reshape(-1, 32)
    parts = [half(v.reshape(-1, 1)) for v in head]
    if form.max_q == 31:
        parts.append(np.packbits(stored >> 4, axis=1, bitorder="little"))
    return np.concatenate([*parts, stored[:, :16] & 15 | (stored[:, 16:] & 15) << 4], axis=1)


def _turned(values: Array, form: KType) -> Array:
    return values.reshape(-1, form.lanes, form.size).transpose(2, 0, 1).astype(_f32)


def _sum(terms: Array) -> Array:
    """Over the weights of each sub-block, one after the other."""
    total = np.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


def _folded(values: Array) -> Array:
    """[block, lanes] -> [block, 1], halves on halves."""
    while values.shape[-1] > 1:
        middle = values.shape[-1] // 2
        values = values[..., :middle] + values[..., middle:]
    return values


def _inverse(value: Array) -> Array:
    some = np.abs(value) > _f32(TINY)
    return np.where(some, _f32(1) / np.where(some, value, _f32(1)), _f32(0))


def _between(value: Array, low: int, high: int) -> Array:
    return np.rint(np.clip(value, _f32(low), _f32(high)))


def _as_half(value: Array) -> Array:
    fits = np.where(np.abs(value) < 65504, value, _f32(0))
    return fits.astype(np.float16).astype(_f32)


# --- with a min


def _with_min(form: KType, x: Array, w: Array) -> tuple[list[Array], list[Array], Array]:
    a, b = _search_min(form, x, w)
    d = _as_half(a.max(-1, keepdims=True) / _f32(form.scales))
    e = _as_half(b.max(-1, keepdims=True) / _f32(form.mins))
    big_a = _between(a * _inverse(d), 0, form.scales)
    big_b = _between(b * _inverse(e), 0, form.mins)

    def quants(a: Array, b: Array, d: Array, e: Array) -> Array:
        return _between((x + b * e) * _inverse(a * d), 0, form.max_q)

    def error_of(a: Array, b: Array, d: Array, e: Array) -> Array:
        off = a * d * quants(a, b, d, e) - b * e - x
        return _sum(w * off * off)

    for _ in range(REFITS):
        best, from_a, from_b = np.full_like(big_a, HUGE), big_a, big_b
        for step_b, step_a in itertools.product((-1, 0, 1), repeat=2):
            new_a = _between(from_a + _f32(step_a), 0, form.scales)
            new_b = _between(from_b + _f32(step_b), 0, form.mins)
            error = error_of(new_a, new_b, d, e)
            better = error < best
            best, big_a, big_b = (
                np.where(better, *pair) for pair in ((error, best), (new_a, big_a), (new_b, big_b))
            )
        aq = big_a * quants(big_a, big_b, d, e)
        aa, ab, bb, ax, bx = (
            _folded(_sum(terms))
            for terms in (w * aq * aq, w * aq * big_b, w * big_b * big_b, w * aq * x, w * big_b * x)
        )
        per_det = _inverse(aa * bb - ab * ab)
        new_d = _as_half((bb * ax - ab * bx) * per_det)
        new_e = _as_half((ab * ax - aa * bx) * per_det)
        better = _folded(error_of(big_a, big_b, new_d, new_e)) < _folded(best)
        d, e = np.where(better, new_d, d), np.where(better, new_e, e)
    q = quants(big_a, big_b, d, e)
    return [big_a, big_b], [d, e], q


def _search_min(form: KType, x: Array, w: Array) -> tuple[Array, Array]:
    low = x.min(0) if form.any_min else np.minimum(x.min(0), _f32(0))
    per_width = _inverse(x.max(0) - low)
    w_sum, wx_sum = _sum(w + np.zeros_like(x)), _sum(w * x)
    least = _f32(0) - low
    state = [least * (least * w_sum + _f32(2) * wx_sum), np.zeros_like(low), least]

    def fit(q: Array) -> None:
        wq = w * q
        q_sum, qq_sum, qx_sum = _sum(wq), _sum(wq * q), _sum(wq * x)
        det = w_sum * qq_sum - q_sum * q_sum
        per_det = _inverse(det)
        a = (w_sum * qx_sum - q_sum * wx_sum) * per_det
        b = (q_sum * qx_sum - qq_sum * wx_sum) * per_det
        plain = det <= w_sum * qq_sum * _f32(SAME)
        if not form.any_min:
            plain |= b < 0
        a = np.where(plain, qx_sum * _inverse(qq_sum), a)
        b = np.where(plain, _f32(0), b)
        a_error = a * (a * qq_sum - _f32(2) * qx_sum)
        b_error = b * (b * w_sum + _f32(2) * wx_sum)
        error = a_error + b_error - (a + a) * b * q_sum
        better = error < state[0]
        state[:] = [np.where(better, n, o) for n, o in zip((error, a, b), state, strict=True)]

    for steps in form.grids:
        fit(_between((x - low) * (per_width * _f32(steps)), 0, form.max_q))
    for _ in range(ROUNDS):
        fit(_between((x + state[2]) * _inverse(state[1]), 0, form.max_q))
    return state[1], state[2]


# --- without


def _without_min(form: KType, x: Array, w: Array) -> tuple[list[Array], list[Array], Array]:
    a = _search_plain(form, x, w)
    top = np.take_along_axis(a, np.abs(a).argmax(-1)[..., None], -1)
    d = _as_half(top / _f32(-form.scales))
    big_a = _between(a * _inverse(d), -form.scales, form.scales - 1)

    def quants(d: Array) -> Array:
        return _between(x * _inverse(big_a * d), -form.middle, form.middle - 1)

    def error_of(d: Array) -> Array:
        off = big_a * d * quants(d) - x
        return _folded(_sum(w * off * off))

    best = error_of(d)
    for _ in range(REFITS):
        aq = big_a * quants(d)
        aa, ax = _folded(_sum(w * aq * aq)), _folded(_sum(w * aq * x))
        new_d = _as_half(ax * _inverse(aa))
        error = error_of(new_d)
        better = error < best
        best, d = np.where(better, error, best), np.where(better, new_d, d)
    return [big_a], [d], quants(d) + _f32(form.middle)


def _search_plain(form: KType, x: Array, w: Array) -> Array:
    far = np.take_along_axis(x, np.abs(x).argmax(0)[None], 0)[0]
    per_far = _inverse(far)
    state = [np.zeros_like(far), np.zeros_like(far)]

    def fit(q: Array) -> None:
        wq = w * q
        qq_sum, qx_sum = _sum(wq * q), _sum(wq * x)
        a = qx_sum * _inverse(qq_sum)
        gain = qx_sum * a
        better = gain > state[0]
        state[:] = [np.where(better, n, o) for n, o in zip((gain, a), state, strict=True)]

    for steps in form.grids:
        fit(_between(x * (per_far * _f32(-steps)), -form.middle, form.middle - 1))
    for _ in range(ROUNDS):
        fit(_between(x * _inverse(state[1]), -form.middle, form.middle - 1))
    return state[1]


# --- how each is stored: q uint8 [i, block, lane], integers [block, lane], fp16 [block]


def _bytes(*parts: Array) -> Array:
    """[block, n] each, as uint8 side by side."""
    return np.concatenate([p.astype(np.int64).astype(np.uint8) for p in parts], axis=1)


def _halves(values: list[Array]) -> list[Array]:
    return [half(v[:, None]) for v in values]


def _store_q45(q: Array, whole: list[Array], halves: list[Array], fifth: bool = False) -> Array:
    a, b = whole
    scales = [a[:, :4] | (a[:, 4:] >> 4) << 6, b[:, :4] | (b[:, 4:] >> 4) << 6,
              (a[:, 4:] & 15) | (b[:, 4:] & 15) << 4]  # fmt: skip
    by_sub = q.transpose(1, 2, 0)  # [block, lane, i]
    nibbles = (by_sub[:, 0::2] & 15) | (by_sub[:, 1::2] & 15) << 4
    high = np.packbits(by_sub >> 4, axis=1, bitorder="little")[:, 0]
    parts = [*_halves(halves), *scales, *([high] if fifth else []), nibbles.reshape(len(a), -1)]
    return _bytes(*parts)


def _store_q5(q: Array, whole: list[Array], halves: list[Array]) -> Array:
    return _store_q45(q, whole, halves, fifth=True)


def _by_quarter(q: Array) -> Array:
    """[i, block, lane] -> [block, half, quarter, 32]."""
    return q.transpose(1, 2, 0).reshape(q.shape[1], 2, 4, 32)


def _pairs(q: Array) -> Array:
    """Two bits of each quarter in one byte: [block, 64]."""
    by_quarter = _by_quarter(q) & 3
    packed = sum(by_quarter[:, :, n].astype(np.int64) << (2 * n) for n in range(4))
    return np.asarray(packed).reshape(len(by_quarter), 64)


def _store_q6(q: Array, whole: list[Array], halves: list[Array]) -> Array:
    by_quarter = _by_quarter(q) & 15
    low = (by_quarter[:, :, :2] | by_quarter[:, :, 2:] << 4).reshape(q.shape[1], 128)
    return _bytes(low, _pairs(q >> 4), whole[0], *_halves(halves))


def _store_q3(q: Array, whole: list[Array], halves: list[Array]) -> Array:
    third = np.packbits((_by_quarter(q) >> 2).reshape(-1, 8, 32), axis=1, bitorder="little")[:, 0]
    a = whole[0] + 32
    low = (a[:, :8] & 15) | (a[:, 8:] & 15) << 4
    tops = (a >> 4).reshape(-1, 4, 4)
    high = tops[:, 0] | tops[:, 1] << 2 | tops[:, 2] << 4 | tops[:, 3] << 6
    return _bytes(third, _pairs(q), low, high, *_halves(halves))


def _store_q2(q: Array, whole: list[Array], halves: list[Array]) -> Array:
    return _bytes(whole[0] | whole[1] << 4, _pairs(q), *_halves(halves))


_STORE: dict[str, Callable[[Array, list[Array], list[Array]], Array]] = {
    "q2_k": _store_q2,
    "q3_k": _store_q3,
    "q4_k": _store_q45,
    "q5_k": _store_q5,
    "q6_k": _store_q6,
}
