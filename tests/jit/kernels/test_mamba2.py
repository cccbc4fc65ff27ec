"""Mamba-2: against numpy, and the same bits however a sequence is cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.runners import Native, Runner
from helpers.states import States, cuts, run_pass
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.delta_rule import stored
from triplepoint.jit.kernels.mamba2 import (
    gated_group_norm,
    gated_group_norm_reference,
    mamba2,
    reference,
    scratch_bytes,
)

ASKS = ()  # see helpers/feature_sets.py

# heads, dims of a head, groups, dims of a state
SHAPES = [(4, 64, 2, 128), (8, 32, 1, 32), (3, 16, 3, 16)]


class Layer:
    """A layer's numbers, and rows that pass through it."""

    def __init__(self, rng: np.random.Generator, shape: tuple[int, int, int, int], rows: int):
        self.shape = heads, dim, groups, n = shape

        def noise(*size: int) -> np.ndarray:
            return rng.standard_normal(size).astype(np.float32)

        self.u = noise(rows, heads * dim + 2 * groups * n)
        self.step = noise(rows, heads)
        self.a, self.dt, self.skip = -np.exp(noise(heads)), noise(heads), noise(heads)
        self.start = noise(2, heads, n, dim) * np.float32(0.5)

    def want(self, rows: slice, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        numbers = self.a, self.dt, self.skip
        return reference(self.u[rows], self.step[rows], *numbers, state, groups=self.shape[2])

    def run(
        self,
        runner: Runner,
        rows: slice,
        states: States,
        spans: list[tuple[int, int]],
        cut: int = 0,
    ) -> np.ndarray:
        """Outputs of a pass of `rows`."""
        heads, dim, groups, n = self.shape
        u, step = (np.ascontiguousarray(x[rows]) for x in (self.u, self.step))
        out = np.full((len(u), heads * dim), np.nan, np.float32)
        kernel = spec(mamba2, heads=heads, head_dim=dim, groups=groups, state_dim=n)
        before: list[Any] = [u, step, self.a, self.dt, self.skip, out, u.shape[1], heads,
                             out.shape[1]]  # fmt: skip
        scratch = np.zeros(scratch_bytes(), np.uint8)
        run_pass(runner, kernel, states, spans, before, [scratch], heads, cut)
        return out


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mamba2(runner: Runner, rng: np.random.Generator, shape: Any) -> None:
    """Rows of two sequences behind their own states, over more than one block of tokens."""
    layer = Layer(rng, shape, 24)
    states = States([stored(state) for state in layer.start])
    got = layer.run(runner, slice(24), states, [(1, 5), (0, 19)])
    for rows, number in ((slice(5), 1), (slice(5, 24), 0)):
        want, after = layer.want(rows, layer.start[number])

        assert_close(got[rows], want, "recurrence", shape)
        assert_close(states.part(number), stored(after), "recurrence", shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits_in_any_cut(native: Native, rng: np.random.Generator, shape: Any) -> None:
    """In passes of 1, 7, 16, 17 rows or all, by one thread or two: the same bits."""
    layer = Layer(rng, shape, 40)
    whole = States([stored(layer.start[0])])
    want = layer.run(native, slice(40), whole, [(0, 40)])
    for size in (1, 7, 16, 17, 40):
        states = States([stored(layer.start[0])])
        parts = [
            layer.run(native, part, states, [(0, part.stop - part.start)], 1)
            for part in cuts(40, size)
        ]

        assert np.array_equal(np.concatenate(parts), want), size
        assert np.array_equal(states.part(0), whole.part(0)), size


@pytest.mark.parametrize("groups", [1, 3])
def test_gated_group_norm(runner: Runner, rng: np.random.Generator, groups: int) -> None:
    """The gate comes first, then the norm of each group."""
    y, z = (rng.standard_normal((5, 96)).astype(np.float32) for _ in range(2))
    weight = rng.standard_normal(96).astype(np.float32)
    want = gated_group_norm_reference(y, z, weight, 1e-5, groups)
    kernel = spec(gated_group_norm, groups=groups, width=96 // groups)
    runner.call(kernel, [y, z, weight, 96, 96, 1e-5], 0, 5 * groups)

    assert_close(y, want, "silu")
