"""The loops that measure a machine: they really do the work that they are timed for."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.runners import CheckedCache, Native, Runner

from triplepoint.jit import amx
from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import microbench
from triplepoint.jit.kernels.rope import to_bf16
from triplepoint.jit.targets import TARGETS, CpuTarget, runnable


def test_read_touches_every_byte(runner: Runner, rng: np.random.Generator) -> None:
    """The checksum is over all words of the given units, and of no others."""
    lanes, unit = runner.target.lanes, 16 * runner.target.lanes
    data = rng.integers(0, 256, 6 * unit, dtype=np.uint8)
    sink = np.zeros(4 * lanes, np.uint8)
    runner.call(spec(microbench.read), [data, sink, unit], 1, 5)
    words = data[unit : 5 * unit].view(np.int32).reshape(-1, lanes)

    assert np.array_equal(sink.view(np.int32), np.bitwise_xor.reduce(words, axis=0))


def _operands(runner: Runner, values: np.ndarray) -> np.ndarray:
    """The same vector of values in every place that the loop draws from; sums start at zero."""
    found = np.zeros((microbench.VECTORS, 4 * runner.target.lanes), np.uint8).view(values.dtype)
    found[: microbench.OPERANDS] = np.tile(values, found.shape[1] // len(values))
    return found


@pytest.mark.parametrize("peak", ["int8", "w8a8", "fp32"])
def test_multiply_does_its_products(runner: Runner, peak: microbench.Peak) -> None:
    """Each lane ends at units x steps x chains x the product of one step."""
    lanes, units, whole = runner.target.lanes, 3, peak != "fp32"
    values = np.full(4, 1, np.int8) if whole else np.full(1, 1.0, np.float32)
    sink = np.zeros(lanes, np.int32 if whole else np.float32)
    runner.call(spec(microbench.multiply, peak=peak), [_operands(runner, values), sink], 0, units)

    one = 4 if whole else 1
    assert (sink == units * microbench.STEPS * microbench.CHAINS * one).all()


def test_no_sum_is_computed_for_another(runner: Runner) -> None:
    """Each sum starts from a vector of its own: one for all would take a twelfth of the work."""
    lanes = runner.target.lanes
    operands = _operands(runner, np.full(1, 1.0, np.float32))
    operands[microbench.OPERANDS :] = 2.0 ** np.arange(microbench.CHAINS)[:, np.newaxis]
    sink = np.zeros(lanes, np.float32)
    runner.call(spec(microbench.multiply, peak="fp32"), [operands, sink], 0, 1)

    assert (sink == microbench.STEPS * microbench.CHAINS + 2.0**microbench.CHAINS - 1).all()


BF16_TARGETS = [target for target in runnable() if target.bf16 != "none"]


@pytest.mark.parametrize("target", BF16_TARGETS, ids=str)
def test_multiply_bf16(target: CpuTarget) -> None:
    """The same for bf16 pairs, where there is an instruction."""
    native, lanes = Native(target, CheckedCache(None)), target.lanes
    pair = to_bf16(np.full(1, 3.0, np.float32)).view(np.uint16)[[1, 1]]
    sink = np.zeros(lanes, np.float32)
    native.call(spec(microbench.multiply, peak="bf16"), [_operands(native, pair), sink], 0, 3)

    each = microbench.STEPS * microbench.CHAINS
    if target.bf16 == "tiles":  # 16 pairs in a product
        each = microbench.TILE_STEPS * len(amx.SUMS) * 16
    assert (sink == 3 * each * 18).all()


def test_operations_count_both() -> None:
    """A multiply-add counts as two operations, an int8 dot product of four as eight."""
    target = TARGETS["avx512-bf16"]
    fp32 = microbench.operations("fp32", target)
    assert fp32 == 2 * 16 * microbench.CHAINS * microbench.STEPS
    assert microbench.operations("bf16", target) == 2 * fp32
    assert microbench.operations("int8", target) == 4 * fp32
    tiles = microbench.operations("bf16", TARGETS["amx-bf16"])
    assert tiles == 2 * (16 * 16 * 32) * 4 * microbench.TILE_STEPS


def test_nothing_is_an_op(native: Native) -> None:
    """The empty op writes its one byte and no more."""
    sink = np.full(2, 9, np.uint8)
    native.call(spec(microbench.noop), [sink], 0, 1)
    assert sink.tolist() == [0, 9]
