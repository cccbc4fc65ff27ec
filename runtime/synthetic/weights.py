"""Random weights in a GGUF file's format: mean 0 and deviation 0.02, in any type."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from ..gguf.types import GGMLType

PIECE = 1 << 22  # bytes made at a time: stays in the cache between making and writing
DEVIATION = 0.02

# Deviation of the weights of a K-quant block under d = 1.
K_QUANTS = {
    GGMLType.Q2_K: 13.98,
    GGMLType.Q3_K: 43.34,
    GGMLType.Q4_K: 243.5,
    GGMLType.Q5_K: 490.3,
    GGMLType.Q6_K: 1365.0,
    GGMLType.IQ4_XS: 1246.2,
    GGMLType.IQ3_S: 140.2,
    GGMLType.IQ3_XXS: 142.6,
    GGMLType.IQ2_S: 56.4,
    GGMLType.IQ2_XS: 55.9,
    GGMLType.IQ2_XXS: 53.2,
    GGMLType.IQ1_M: 7.2,
    GGMLType.IQ1_S: 7.2,
}
# Where a block of it has its fp16 scale, if that is not at its start.
SCALE_AT = {GGMLType.Q2_K: 80, GGMLType.Q3_K: 108, GGMLType.Q6_K: 208}
# What a quant is on average, and so what a block's dmin takes off.
AVERAGE = {GGMLType.Q2_K: 1.5, GGMLType.Q4_K: 7.5, GGMLType.Q5_K: 15.5}

# Power of two of the scales of a block of 32, below which its quants deviate by DEVIATION.
EXPONENTS = {
    GGMLType.Q4_0: -8,
    GGMLType.Q4_1: -8,
    GGMLType.Q5_0: -9,
    GGMLType.Q5_1: -9,
    GGMLType.Q8_0: -12,
    GGMLType.IQ4_NL: -12,
}
# What a quant is on average, which the block's min takes off.
MINS = {GGMLType.Q4_1: 7.5, GGMLType.Q5_1: 15.5}
# Exponents of MXFP4 blocks: of 16, so many have the larger one. Scales of NVFP4: evenly two.
LOW_EXPONENT, HIGH_OF_16 = 119, 11
LOW_SCALE = 3


def random_weights(
    name: str, shape: tuple[int, ...], kind: GGMLType
) -> Iterator[np.ndarray[Any, np.dtype[Any]]]:
    """Yield the stored bytes of one random tensor in pieces; its name is the seed."""
    rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    if name.endswith("ssm_a"):  # a state must fade
        yield -np.exp(rng.standard_normal(shape)).astype(np.float32)
        return
    if len(shape) == 1:
        middle = 0 if name.endswith(".bias") else 1
        yield (middle + DEVIATION * rng.standard_normal(shape)).astype(np.float32)
        return
    blocks = kind.nbytes(shape) // kind.type_size
    step = PIECE // kind.type_size // 8 * 8  # whole 64-bit words of random bits for every type
    for start in range(0, blocks, step):
        count = min(step, blocks - start)
        if kind is GGMLType.MXFP4:
            raw = _random_bits(rng, count * kind.type_size)
            exponents = raw.reshape(count, kind.type_size)[:, 0]
            exponents[:] = LOW_EXPONENT + (exponents % 16 < HIGH_OF_16)
            yield raw
        elif kind is GGMLType.NVFP4:
            raw = _random_bits(rng, count * kind.type_size)
            scales = raw.reshape(count, kind.type_size)[:, :4]
            scales[:] = LOW_SCALE + (scales & 1)
            yield raw
        elif kind in EXPONENTS:
            yield _random_blocks(rng, kind, count)
        elif kind in K_QUANTS:
            yield _random_k_blocks(rng, kind, count)
        else:
            yield _normal_table(kind).take(_random_bits(rng, 2 * count).view(np.uint16))


def _random_bits(
    rng: np.random.Generator, nbytes: int
) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    words = rng.integers(0, 2**64, -(-nbytes // 8), np.uint64)
    return words.view(np.uint8)[:nbytes]


def _random_blocks(
    rng: np.random.Generator, kind: GGMLType, count: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Generate `count` blocks of uniform quants under an fp16 scale that gives DEVIATION.

    Scales have either sign: the quants of Q4_0 run from -8 to 7, and with positive scales only,
    every weight would lean to the negative.
    """
    raw = _random_bits(rng, count * kind.type_size)
    if kind is GGMLType.Q8_0:
        signed = raw.view(np.int8)
        np.maximum(signed, -127, out=signed)  # no quantizer writes -128
    halves = raw.view(np.uint16).reshape(count, kind.type_size // 2)
    scales = halves[:, 0]  # from 2^N to 1.25 × 2^N
    np.copyto(scales, (scales & 0x80FF) | ((15 + EXPONENTS[kind]) << 10))
    if kind in MINS:
        mins = -MINS[kind] * scales.view(np.float16).astype(np.float32)
        np.copyto(halves[:, 1], mins.astype(np.float16).view(np.uint16))
    return raw


def _random_k_blocks(
    rng: np.random.Generator, kind: GGMLType, count: int
) -> np.ndarray[Any, np.dtype[Any]]:
    """Generate `count` blocks of uniform quants, with 16 or 8 random scales.

    Q3_K, Q6_K and IQ1 to IQ4: scales of either sign over their whole range. Q2_K, Q4_K and Q5_K:
    scales and mins evenly over the upper half of theirs, each on its own, under a dmin that takes
    off what a quant is on average.
    """
    raw = _random_bits(rng, count * kind.type_size)
    blocks = raw.reshape(count, kind.type_size)
    at = SCALE_AT.get(kind, 0)
    d = (1 + blocks[:, at] / 1024.0) * (DEVIATION / 1.125 / K_QUANTS[kind])
    if kind in AVERAGE:
        _put_halves(blocks, at + 2, d * AVERAGE[kind])
        if kind is GGMLType.Q2_K:
            blocks[:, :16] |= 0x88
        else:
            # Bit 5 of the first four scales and mins, and (as bit 7) that of the others.
            blocks[:, 4:12] |= 0xA0
    elif kind is not GGMLType.Q6_K:
        # Products of quants and scales lean to one side: half of the blocks have theirs turned.
        d *= 1.0 - 2.0 * (blocks[:, at + 1] & 1)
    if kind is GGMLType.IQ1_M:
        # Four bits each, in the upper ones of the last four 16-bit words.
        bits = d.astype("<f2").view(np.uint16)
        for n in range(4):
            blocks[:, 49 + 2 * n] = (blocks[:, 49 + 2 * n] & 15) | ((bits >> (4 * n)) & 15) << 4
    else:
        _put_halves(blocks, at, d)
    return raw


def _put_halves(
    blocks: np.ndarray[Any, np.dtype[Any]], at: int, values: np.ndarray[Any, np.dtype[Any]]
) -> None:
    """Write one fp16 a block at byte `at`."""
    blocks[:, at : at + 2] = values.astype("<f2").view(np.uint8).reshape(-1, 2)


@cache
def _normal_table(kind: GGMLType) -> np.ndarray[Any, np.dtype[Any]]:
    """Return 65,536 normally distributed numbers as `kind` stores them, to draw from."""
    values = np.random.Generator(np.random.PCG64(0)).standard_normal(1 << 16)
    values = (values - values.mean()) / values.std() * DEVIATION
    if kind is GGMLType.F16:
        return values.astype(np.float16)
    single = values.astype(np.float32)
    if kind is GGMLType.BF16:
        return ((single.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)
    return single
