"""8-bit weights as sizes and signs: exactly their products, up to the ends of what bytes hold."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import CheckedCache, Native

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.sign_magnitude import (
    EIGHT_BITS,
    SignMagnitude,
    block_bytes,
    splits_signs,
)
from triplepoint.jit.simd import I8s, I32s, Kernel, i32, kernel
from triplepoint.jit.targets import TARGETS, CpuTarget, runnable

FEW = [target for target in runnable() if splits_signs("q8_0", target)]


@kernel
def block_sums(k: Kernel, w: I8s, x: I8s, unpacked: I8s, out: I32s) -> None:
    """One block of 32 of 2 * lanes rows, for two tokens."""
    lanes, product, words = k.lanes, SignMagnitude(k), w.cast(i32)
    with k.units():
        groups = (
            (group, [words.load((2 * group + half) * lanes, lanes) for half in range(2)])
            for group in range(8)
        )
        product.store(groups, unpacked)
        for token, pair in enumerate(product.sums(unpacked, [x, x.at(32)])):
            for half, total in enumerate(pair):
                out.store((2 * token + half) * lanes, total)


def test_which_have_them() -> None:
    """Feature sets that multiply unsigned by signed bytes and have 16 registers."""
    assert {str(t) for t in TARGETS.values() if splits_signs("q8_0", t)} == {"x86-64-v2", "avx2"}
    assert all(not splits_signs("q4_0", t) for t in TARGETS.values())
    assert len({*EIGHT_BITS}) == 3


@pytest.mark.parametrize("target", FEW, ids=str)
@pytest.mark.parametrize("kind", ["random", "least", "largest", "ends"])
def test_sums(target: CpuTarget, kind: str, rng: np.random.Generator) -> None:
    """sum(w * x) for every row, weights from -128 on, activations from -127 on."""
    rows = 2 * target.lanes
    if kind == "random":
        w, x = rng.integers(-128, 128, (rows, 32)), rng.integers(-127, 128, (2, 32))
    elif kind == "ends":
        w, x = rng.choice([-128, 127], (rows, 32)), rng.choice([-127, 127], (2, 32))
    else:
        w = np.full((rows, 32), -128 if kind == "least" else 127)
        x = np.stack([np.full(32, -127), np.full(32, 127)])
    w, x = w.astype(np.int8), x.astype(np.int8)
    # K-group after K-group, of each the rows' four bytes one after the other.
    laid = np.ascontiguousarray(w.reshape(rows, 8, 4).swapaxes(0, 1))
    out = np.zeros((2, rows), np.int32)
    unpacked = np.zeros(block_bytes(target.lanes), np.uint8)
    runner = Native(target, CheckedCache(None))
    runner.call(spec(block_sums), [laid, x, unpacked, out], 0, 1)

    assert np.array_equal(out, x.astype(np.int64) @ w.astype(np.int64).T)
