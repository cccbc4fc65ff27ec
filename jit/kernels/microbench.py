"""Loops that measure this machine's peak rates of memory reads and of dot products."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .. import amx
from ..dot import Dot, bf16_dot
from ..simd import I64, I8s, Kernel, Ptr, f32, i8, i32, kernel
from ..targets import CpuTarget
from .sign_magnitude import splits_signs

Peak = Literal["int8", "w8a8", "fp32", "bf16"]
"""The kind of products. int8: of weights up to 15, the fastest that the target has; w8a8: of 8-bit
weights, which take more instructions where no single one multiplies them."""
CHAINS = 12  # independent sums: more than the latency of any dot product times its rate
OPERANDS = 4 * CHAINS  # vectors that the products draw on
VECTORS = OPERANDS + CHAINS  # and those that the sums start from
STEPS = 64  # dot steps on each chain in one unit
TILE_STEPS = 8  # products of AMX tiles into each of their sums in one unit


def operations(peak: Peak, target: CpuTarget) -> int:
    """Return the operations (multiply and add count as two) of one unit of `multiply`."""
    lanes = target.lanes
    if peak == "bf16" and target.bf16 == "tiles":
        return 2 * 2 * (amx.ROWS * lanes * lanes) * len(amx.SUMS) * TILE_STEPS
    each = {"int8": 4, "w8a8": 4, "fp32": 1, "bf16": 2}[peak]
    return 2 * each * lanes * CHAINS * STEPS


def operands(lanes: int) -> np.ndarray:
    """Return operands and zeroed sums for `multiply`: uint8 [VECTORS, 4 * lanes]."""
    made = np.zeros((VECTORS, 4 * lanes), np.uint8)
    made[:OPERANDS] = 1
    return made


@kernel
def read(k: Kernel, data: I8s, sink: I8s, unit_bytes: I64) -> None:
    """Read units [begin, end) of `unit_bytes`, a multiple of 4 vectors; store a checksum."""
    vector = 4 * k.lanes
    sums = [k.var(k.zeros(i32, k.lanes)) for _ in range(4)]
    with k.range(k.begin * unit_bytes, k.end * unit_bytes, step=4 * vector) as at:
        for n, total in enumerate(sums):
            total.set(total.value ^ data.at(at + n * vector).cast(i32).load(0, k.lanes))
    out = (sums[0].value ^ sums[1].value) ^ (sums[2].value ^ sums[3].value)
    sink.cast(i32).store(0, out)


@kernel
def multiply(k: Kernel, operands: I8s, sink: I8s, *, peak: Peak) -> None:
    """Add STEPS products to each of CHAINS sums in a unit; operands: VECTORS vectors.

    Each sum starts from memory: LLVM would compute sums that start alike once for all.
    Sums of AMX tiles start from zero: a product of them is never computed for another.
    A dot product of one instruction stays in registers. Where it takes several, each step of each
    chain reads an operand of its own, or LLVM would compute the common part once.
    """
    lanes = k.lanes
    if peak == "bf16" and k.target.bf16 == "tiles":
        _multiply_tiles(k, operands, sink)
        return
    whole = peak in ("int8", "w8a8")
    element = i32 if whole else f32
    words = operands.cast(i32)
    a, b = words.load(0, lanes), words.load(lanes, lanes)
    # Magnitudes and signs (`sign_magnitude.py`): products of magnitudes, and signs on the others.
    signs = peak == "w8a8" and splits_signs("q8_0", k.target)
    mask = words.load(OPERANDS * lanes, lanes)  # zero: no sign
    dot = Dot(k, max_q=127 if signs else None if peak == "w8a8" else 15)
    zero = k.zeros(element, lanes)
    starts = operands.cast(element).at(OPERANDS * lanes)
    sums = [
        k.var(dot.begin(start) if whole else start)
        for start in (starts.load(n * lanes, lanes) for n in range(CHAINS))
    ]
    one = dot.kind in ("vpdpbusd", "sdot", "usdot")
    with k.units(), k.range(0, STEPS, name="step") as step:
        own = words.at(step % (OPERANDS // CHAINS) * (CHAINS * lanes))
        for n, total in enumerate(sums):
            if whole:
                if peak == "w8a8" and not one:  # a weight meets many tokens: its size is taken once
                    w, x = own.load(0, lanes), own.load(n * lanes, lanes)
                    x = x ^ mask if signs else x
                else:
                    w, x = a if one else own.load(n * lanes, lanes), b
                total.set(dot.step(total.value, w, x))
            elif peak == "bf16":
                total.set(bf16_dot(k, total.value, a, b))
            else:
                total.set(k.fma(a.bitcast(f32), b.bitcast(f32), total.value))
    out = sums[0].value
    for total in sums[1:]:
        out = out + total.value
    sink.cast(element).store(0, dot.end(out, zero) if whole else out)


def _multiply_tiles(k: Kernel, operands: Ptr, sink: Ptr) -> None:
    """Multiply bf16 tiles; one row of the sums goes to `sink`."""
    row = 4 * k.lanes
    amx.configure(k, row)
    for n in range(2):
        amx.load(k, amx.LEFT[n], operands.at(n * amx.ROWS * row), row)
        amx.load(k, amx.RIGHT[n], operands.at((n + 1) * amx.ROWS * row), row)
    for tile in amx.SUMS:
        amx.zero(k, tile)
    with k.units(), k.range(0, TILE_STEPS, name="step"):
        for n, tile in enumerate(amx.SUMS):
            amx.dot_bf16(k, tile, amx.LEFT[n % 2], amx.RIGHT[n // 2])
    sums = k.scratch(f32, amx.ROWS * k.lanes)
    out = k.zeros(f32, k.lanes)
    for tile in amx.SUMS:
        amx.store(k, tile, sums, row)
        out = out + sums.load(0, k.lanes)
    sink.cast(f32).store(0, out)
    amx.release(k)


@kernel
def noop(k: Kernel, sink: I8s) -> None:
    """Do nothing, so that only dispatch and the barrier remain."""
    sink.store(0, k.const(0, i8))
