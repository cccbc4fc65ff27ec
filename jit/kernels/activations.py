"""RMSNorm, int8 quantization of activations, and elementwise activations and bounds.

    y = x / sqrt(mean(x^2) + eps) * weight                          (RMSNorm)
    d = max|y| / 127,  q = round(y / d)              (per block of 32, or per 8 blocks for K-quants)

A quantized block is 40 bytes: float32 d, int32 base - zero_point * sum(q), 32 x int8. The second
field is what an accumulator starts from (`base`: see `gemm_blocks.py`), so the zero point of the
weights costs nothing in the product. (K-quants have sums of their own there: see
`ActivationFormat`.)

Where a dot product ends in a product of int16 anyway (`target.dot` is ``maddubs``), a factor there
costs nothing: 4 blocks share a scale s, and each has an integer factor m, up to 1024 (kind
``factors``). The low half of the first field is m then, d = s m, and the second field
-zero_point * sum(q) * m. The field itself, as a float, is s in the group's first block: its low
half makes s larger by less than 2^-12, of which m and q know.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import add
from typing import Literal, NamedTuple

import numpy as np

from ..simd import F32, I64, F32s, I8s, I32s, Kernel, Ptr, Value, f32, i8, i16, i32, i64, kernel
from .mathlib import ROUND, gelu, sigmoid, softplus, tanh

BLOCK = 32
BLOCK_BYTES = 8 + BLOCK
Kind = Literal["float", "zero", "factors", "pairs32", "pairs16"]
GROUPS = (4, 2, 1)  # blocks of ``factors`` that share a scale; the first that divides the row
FACTOR = 1024  # largest one: sums of 32 products of bytes, times it, fit in 31 bits
STEP = (1 + 2**-7) / (127 * (FACTOR - 1))
MIN_STEP_BITS = 7 << 23  # of 2^-120: what is smaller than 127 of it has few values, not none
TINY = 1e-36  # a block whose values are all smaller counts as zeros: 127 / d would overflow
UNROLL = 4  # independent sums, so one FMA need not wait for the last


class ActivationFormat(NamedTuple):
    """The input format of a matrix: float32 rows, or int8 blocks of one kind."""

    kind: Kind
    """float32 rows (``float``), or int8 blocks whose second field is the zero point's share
    (``zero``; ``factors``, see above), the int16 sums of this block and the next (``pairs32``, even
    blocks), or those of its two halves (``pairs16``)."""
    group: int
    """Number of consecutive blocks that share a scale."""
    zero_point: int = 0
    """Zero point of the weights."""
    base: int = 0
    """Constant added to the zero point's share (``zero``)."""


@kernel
def prepare(
    k: Kernel,
    x: F32s,
    weight: F32s,
    out: I8s,
    x_stride: I64,
    width: I64,
    padded: I64,
    eps: F32,
    zero_point: I64,
    base: I64,
    wanted: I32s,
    *,
    norm: bool,
    kind: Kind,
    group: int,
    gather: bool = False,
) -> None:
    """Normalize (if `norm`) and quantize (unless `kind` is float) rows; unit = row of `out`.

    Row t of `out`, blocks of 40 bytes or float32 [padded], is made of row t of `x`
    [tokens, x_stride]; with `gather`, of row wanted[t]. `padded` is `width` rounded up, with zeros
    in x and weight.
    """
    lanes = k.lanes
    with k.units("token") as token:
        row = x.at((wanted.load(token).to(i64) if gather else token) * x_stride)
        scale = _norm_scale(k, row, width, padded, eps) if norm else None

        def value(at: Value, count: int = lanes) -> Value:
            xs = row.load(at, count)
            return xs * scale.splat(count) * weight.load(at, count) if scale else xs

        if kind == "float":
            target = out.cast(f32).at(token * padded)
            with k.range(0, padded, step=lanes) as i:
                target.store(i, value(i))
        else:
            blocks = padded // BLOCK
            target = out.at(token * blocks * BLOCK_BYTES)

            def each(step: Callable[[Ptr, list[list[Value]]], None]) -> None:
                """Call `step` with the address and values of groups of blocks."""
                alone = 1 if kind == "factors" else 8 if k.target.registers >= 32 else 4
                together = alone if group == 1 else group
                whole = blocks // together * together
                for start, stop, count in ((k.i64(0), whole, together), (whole, blocks, 1)):
                    if count <= together and (count > 1 or group == 1):
                        with k.range(start, stop, step=count, name="block") as block:
                            values = [
                                [value((block + b) * BLOCK + n) for n in range(0, BLOCK, lanes)]
                                for b in range(count)
                            ]
                            step(target.at(block * BLOCK_BYTES), values)

            # Scales first, of the whole row: each of them is waited for, but not one by one.
            each(lambda at, values: _write_scales(kind, values, at, shared=group > 1))
            each(lambda at, values: _write_bytes(k, kind, values, at, zero_point, base))


@kernel
def add_norm(
    k: Kernel,
    x: F32s,
    y: F32s,
    weight: F32s,
    x_stride: I64,
    y_stride: I64,
    width: I64,
    padded: I64,
    eps: F32,
    scale: F32,
    *,
    scaled: bool = False,
) -> None:
    """Add a norm: x += rmsnorm(y); unit = token. x, y [tokens, x_stride or y_stride], as `prepare`.

    With `scaled` the sum is multiplied by `scale`.
    """
    lanes = k.lanes
    with k.units("token") as token:
        target, row = x.at(token * x_stride), y.at(token * y_stride)
        inverse = _norm_scale(k, row, width, padded, eps).splat(lanes)
        with k.range(0, padded, step=lanes) as i:
            value = row.load(i, lanes) * inverse * weight.load(i, lanes)
            total = target.load(i, lanes) + value
            target.store(i, total * scale.splat(lanes) if scaled else total)


@kernel
def add_bias(k: Kernel, x: F32s, bias: F32s, x_stride: I64, padded: I64) -> None:
    """Add a bias: x += bias; unit = token. x [tokens, x_stride], bias [padded]."""
    lanes = k.lanes
    with k.units("token") as token:
        row = x.at(token * x_stride)
        with k.range(0, padded, step=lanes) as i:
            row.store(i, row.load(i, lanes) + bias.load(i, lanes))


@kernel
def gate_heads(
    k: Kernel,
    x: F32s,
    gate: F32s,
    x_stride: I64,
    gate_stride: I64,
    heads: I64,
    *,
    head_dim: int,
    gates: int,
) -> None:
    """Gate heads: x = softplus(gate) * x; unit = (token, head), head fastest.

    x [tokens, x_stride] has `heads` heads of `head_dim`, a multiple of 32. gate [tokens,
    gate_stride] has `gates` values for a head: one, or one for each dim.
    """
    lanes = k.lanes
    with k.units() as unit:
        token, head = unit // heads, unit % heads
        row = x.at(token * x_stride + head * head_dim)
        own = gate.at(token * gate_stride + head * gates)
        one = softplus(k, own.splat(0, lanes)) if gates == 1 else None
        with k.range(0, head_dim, step=lanes) as i:
            factor = softplus(k, own.load(i, lanes)) if one is None else one
            row.store(i, row.load(i, lanes) * factor)


@kernel
def gelu_times(k: Kernel, x: F32s, y: F32s, x_stride: I64, y_stride: I64, padded: I64) -> None:
    """Multiply by GELU: x = gelu(x) * y; unit = token. x, y [tokens, x_stride or y_stride]."""
    lanes = k.lanes
    with k.units("token") as token:
        row, other = x.at(token * x_stride), y.at(token * y_stride)
        with k.range(0, padded, step=lanes) as i:
            value = row.load(i, lanes)
            # What is not finite stays so: gelu would make a number of it.
            row.store(i, (gelu(k, value) + (value - value)) * other.load(i, lanes))


@kernel
def square(k: Kernel, x: F32s, x_stride: I64, padded: I64) -> None:
    """Square the positive part: x = relu(x)^2; unit = row. x [rows, x_stride]."""
    lanes = k.lanes
    with k.units("row") as unit:
        row = x.at(unit * x_stride)
        with k.range(0, padded, step=lanes) as i:
            value = row.load(i, lanes)
            above = value.max(0.0) + (value - value)  # a maximum would hide what is not finite
            row.store(i, above * above)


@kernel
def soft_cap(k: Kernel, x: F32s, stride: I64, parts: I64, cap: F32) -> None:
    """Cap softly: x = cap tanh(x / cap); unit = (row, part), `parts` of `stride` values a row.

    A part must be a multiple of the lanes.
    """
    lanes = k.lanes
    size = stride // parts
    wide, inverse = cap.splat(lanes), (1.0 / cap).splat(lanes)
    with k.units() as unit:
        row = x.at(unit * size)
        with k.range(0, size, step=lanes) as i:
            row.store(i, tanh(k, row.load(i, lanes) * inverse) * wide)


@kernel
def gate_by_queries(
    k: Kernel, x: F32s, gates: F32s, x_stride: I64, gate_stride: I64, *, heads: int, dim: int
) -> None:
    """Gate attention outputs: x *= sigmoid(gate); unit = (row, head), head fastest.

    x float32 [rows, x_stride] has `dim` values of each head; gates [rows, gate_stride] has twice as
    many, of which the first half is the query and the second the gate.
    """
    lanes = k.lanes
    with k.units() as unit:
        row, head = unit // heads, unit % heads
        target = x.at(row * x_stride + head * dim)
        gate = gates.at(row * gate_stride + head * (2 * dim) + dim)
        with k.range(0, dim, step=lanes) as i:
            target.store(i, target.load(i, lanes) * sigmoid(k, gate.load(i, lanes)))


def _norm_scale(k: Kernel, row, width: Value, padded: Value, eps: Value) -> Value:
    """Return 1 / sqrt(mean(x^2) + eps) of one row."""
    lanes = k.lanes
    sums = [k.var(k.zeros(f32, lanes)) for _ in range(UNROLL)]
    with k.range(0, padded, step=lanes * UNROLL) as i:
        for u, total in enumerate(sums):
            xs = row.load(i + u * lanes, lanes)
            total.set(k.fma(xs, xs, total.value))
    total = (sums[0].value + sums[1].value) + (sums[2].value + sums[3].value)
    return 1.0 / (total.hsum() / width.to(f32) + eps).sqrt()


def _write_scales(kind: Kind, blocks: list[list[Value]], out: Ptr, *, shared: bool) -> None:
    """Write the first fields of blocks of 32 float32 in registers, and 1 / d into the second.

    What there is one of for each block is computed for all of them in one vector; `shared`: all of
    them have one scale.
    """
    # The bits of floats without a sign are in the order of their values, and those of NaN come
    # after all: so a NaN gives d = NaN, and is not lost as it would be to a float maximum.
    magnitudes = [
        functools.reduce(Value.max, [v.bitcast(i32) & 0x7FFFFFFF for v in values])
        for values in blocks
    ]
    maxima = fold_each(magnitudes, Value.max)
    if kind == "factors":
        heads, inverses = _factors(maxima.bitcast(f32))
    else:
        maxima = (maxima.hmax().splat(maxima.lanes) if shared else maxima).bitcast(f32)
        heads, inverses = maxima * (1.0 / 127.0), (maxima > TINY).select(127.0 / maxima, 0.0)
    for b in range(len(blocks)):
        block = out.at(b * BLOCK_BYTES).cast(f32)
        block.store(0, _lane(heads, b))
        block.store(1, _lane(inverses, b))


def _write_bytes(
    k: Kernel, kind: Kind, blocks: list[list[Value]], out: Ptr, zero_point: Value, base: Value
) -> None:
    """Write the bytes and second fields of blocks whose scales are written."""
    lanes, count = k.lanes, len(blocks)
    halves: list[tuple[Value, Value]] = []
    for b, values in enumerate(blocks):
        block = out.at(b * BLOCK_BYTES)
        inverse = block.cast(f32).splat(1, lanes)
        quantized = [(v * inverse + ROUND).bitcast(i32) for v in values]
        for n, q in enumerate(quantized):
            block.at(8 + n * lanes).store(0, q.to(i8))
        half = len(values) // 2
        first, second = (
            functools.reduce(add, part) for part in (quantized[:half], quantized[half:])
        )
        halves.append((first, second))
    # A sum fits in 16 bits, where of `ROUND` there is nothing left: two are added up at once.
    if kind == "pairs16":
        fields = fold_each([_pair(*both) for both in halves], _plus_i16)
    else:
        wholes = [first + second for first, second in halves]
        evens, odds = wholes[::2], wholes[1::2] or wholes
        fields = fold_each([_pair(*both) for both in zip(evens, odds, strict=True)], _plus_i16)
        if kind == "pairs32":  # for which only even blocks have a use
            fields = fields.shuffle([b // 2 for b in range(count)])
        else:
            sums = fields.bitcast(i16).to(i32)
            fields = base.to(i32).splat(sums.lanes) - zero_point.to(i32).splat(sums.lanes) * sums
    for b in range(count):
        block, field = out.at(b * BLOCK_BYTES).cast(i32), _lane(fields, b)
        block.store(1, field * (block.load(0) & 0xFFFF) if kind == "factors" else field)


def _factors(maxima: Value) -> tuple[Value, Value]:
    """Return the first fields and 1 / d of blocks with maxima `maxima`, in one vector.

    The scale has 7 bits of a mantissa and is rounded up, so that no m exceeds `FACTOR`. As integers
    floats compare as they do by value, and a NaN stays one.
    """
    largest = maxima.bitcast(i32).hmax().bitcast(f32)
    step = ((largest * STEP).bitcast(i32).max(MIN_STEP_BITS) & -65536).splat(maxima.lanes)
    limit = step.bitcast(f32) * 127.0
    factors = (maxima / limit).min(FACTOR - 1.0).max(0.0).to(i32) + 1
    heads = (step | factors).bitcast(f32)
    first = _lane(heads, 0).splat(maxima.lanes)
    return heads, 1.0 / (first * factors.to(f32))


def _plus_i16(a: Value, b: Value) -> Value:
    return (a.bitcast(i16) + b.bitcast(i16)).bitcast(i32)


def _pair(low: Value, high: Value) -> Value:
    """Combine two int32 of 16 bits each into one."""
    return (low & 0xFFFF) | (high << 16)


def fold_each(vectors: list[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """Reduce each of n vectors by `combine`, in any order, to one lane each; n a power of two.

    Two vectors at a time become one, with half as many lanes of each.
    """
    lanes = each = vectors[0].lanes
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        if each > 1:
            firsts = [n for n in range(2 * lanes) if n % each < each // 2]
            lasts = [n + each // 2 for n in firsts]
            vectors = [combine(a.shuffle(firsts, b), a.shuffle(lasts, b)) for a, b in pairs]
            each //= 2
        else:
            vectors = [a.shuffle(range(2 * a.lanes), b) for a, b in pairs]
    value = vectors[0]
    while each > 2 or (each > 1 and value.lanes > 2):
        value = combine(*(value.shuffle(range(n, value.lanes, 2)) for n in range(2)))
        each //= 2
    return combine(value.at(0), value.at(1)) if each > 1 else value


def _lane(value: Value, lane: int) -> Value:
    return value.at(lane) if value.lanes > 1 else value


def group_of(blocks: int) -> int:
    """Return how many blocks of ``factors`` share a scale in rows of `blocks` blocks."""
    return next(group for group in GROUPS if blocks % group == 0)


def rmsnorm_reference(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Compute RMSNorm: x float [tokens, width] -> float32 of the same shape."""
    wide = x.astype(np.float64)
    scale = 1 / np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + eps)
    return (wide * scale * weight).astype(np.float32)


def quantize_reference(
    y: np.ndarray, zero_point: int, group: int = 1, kind: Kind = "zero", base: int = 0
) -> np.ndarray:
    """Quantize y float32 [tokens, K], K a multiple of 32 * group -> uint8 [tokens, K / 32, 40].

    The second field of odd blocks means nothing for `pairs32`; it is 0 here. A block with a value
    that is not finite gets a d that is not finite; its q mean nothing.
    """
    blocks = y.reshape(len(y), -1, BLOCK).astype(np.float32)
    if kind == "factors":
        return _factors_reference(blocks, zero_point, group)
    peak = np.abs(blocks).max(axis=-1).reshape(len(y), -1, group).max(axis=-1)
    peak = np.repeat(peak, group, axis=1)[..., None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        inverse = np.where(peak > TINY, np.float32(127) / peak, np.float32(0)).astype(np.float32)
        q = np.rint(blocks * inverse).astype(np.int32)
    out = np.zeros((*blocks.shape[:2], BLOCK_BYTES), np.uint8)
    out[..., :4] = (peak * np.float32(1 / 127)).astype(np.float32).view(np.uint8)
    out[..., 4:8] = field_reference(q, zero_point, kind, base)[..., None].view(np.uint8)
    out[..., 8:] = q.astype(np.int8).view(np.uint8)
    return out


def field_reference(q: np.ndarray, zero_point: int, kind: Kind, base: int = 0) -> np.ndarray:
    """Compute blocks' second fields: q int32 [tokens, blocks, 32] -> int32 [tokens, blocks]."""
    whole = q.sum(axis=-1, dtype=np.int32)
    if kind == "zero":
        return base - zero_point * whole
    out = np.zeros((*whole.shape, 2), np.int16)
    if kind == "pairs16":
        out[...] = q.reshape(*whole.shape, 2, BLOCK // 2).sum(axis=-1)
    else:
        out[:, 0::2, 0], out[:, 0::2, 1] = whole[:, 0::2], whole[:, 1::2]
    return out.view(np.int32)[..., 0]


def _factors_reference(blocks: np.ndarray, zero_point: int, group: int) -> np.ndarray:
    largest = np.abs(blocks).max(axis=-1).reshape(len(blocks), -1, group)
    step = (largest.max(axis=-1, keepdims=True) * np.float32(STEP)).view(np.int32)
    step = np.maximum(step, MIN_STEP_BITS) & -65536
    with np.errstate(invalid="ignore"):
        ratio = largest / (step.view(np.float32) * np.float32(127))
        m = np.fmax(np.fmin(ratio, np.float32(FACTOR - 1)), 0).astype(np.int32) + 1
    heads = (step | m).reshape(*blocks.shape[:2], 1)
    m = m.reshape(heads.shape)
    out = np.zeros((*blocks.shape[:2], BLOCK_BYTES), np.uint8)
    out[..., :4] = heads.view(np.uint8)
    with np.errstate(invalid="ignore"):
        q = np.rint(blocks * (np.float32(1) / _scales(out, group))).astype(np.int32)
    sums = field_reference(q, zero_point, "zero")[..., None] * m
    out[..., 4:8] = sums.astype(np.int32).view(np.uint8)
    out[..., 8:] = q.astype(np.int8).view(np.uint8)
    return out


def _scales(blocks: np.ndarray, group: int) -> np.ndarray:
    """Compute d of blocks of ``factors``: float32 [tokens, blocks, 1]."""
    heads = blocks[..., :4].copy().view(np.int32)
    first = np.repeat(heads[:, ::group].view(np.float32), group, axis=1)
    with np.errstate(invalid="ignore"):
        return first * (heads & 0xFFFF).astype(np.float32)


def dequantize_reference(blocks: np.ndarray, form: ActivationFormat | None = None) -> np.ndarray:
    """Dequantize activation blocks to float32 [tokens, K]."""
    if form is not None and form.kind == "factors":
        d = _scales(blocks, form.group)
    else:
        d = blocks[..., :4].copy().view(np.float32)
    return (blocks[..., 8:].view(np.int8) * d).reshape(len(blocks), -1)
