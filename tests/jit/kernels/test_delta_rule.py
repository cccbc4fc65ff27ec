"""The gated delta rule: against numpy, and the same bits however a sequence is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from helpers.runners import Native, Runner
from helpers.states import States, cuts, run_pass
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.delta_rule import delta_rule, reference, scratch_bytes, stored

ASKS = ()  # see helpers/feature_sets.py
EPS = 1e-6


@dataclass(frozen=True)
class Shape:
    """Heads of a layer: dims of keys and values, key and value heads, how they belong together."""

    dk: int
    dv: int
    keys: int
    values: int
    tiled: bool = True
    paired: bool = False


SHAPES = [
    Shape(128, 128, 1, 2),
    Shape(32, 32, 2, 4),
    Shape(64, 16, 2, 6, tiled=False, paired=True),
    Shape(32, 48, 3, 3),
]


class Layer:
    """A layer's numbers, and rows that pass through it."""

    def __init__(self, rng: np.random.Generator, shape: Shape, rows: int) -> None:
        s, self.shape = shape, shape

        def noise(*size: int) -> np.ndarray:
            return rng.standard_normal(size).astype(np.float32)

        self.u = noise(rows, 2 * s.keys * s.dk + s.values * s.dv)
        self.z = noise(rows, s.values * s.dv)
        self.alpha, self.b = noise(rows, s.values) * 2, noise(rows, s.values)
        self.a, self.dt = -np.exp(noise(s.values)), noise(s.values)
        self.weight = noise(s.dv)

    def state(self, rng: np.random.Generator) -> np.ndarray:
        s = self.shape
        return rng.standard_normal((s.values, s.dk, s.dv)).astype(np.float32) * np.float32(0.3)

    def want(self, rows: slice, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        u, z, alpha, b = (x[rows] for x in (self.u, self.z, self.alpha, self.b))
        s, numbers = self.shape, (self.a, self.dt, self.weight)
        return reference(u, z, alpha, b, *numbers, state, EPS, key_heads=s.keys, tiled=s.tiled)

    def run(
        self,
        runner: Runner,
        rows: slice,
        states: States,
        spans: list[tuple[int, int]],
        cut: int = 0,
    ) -> np.ndarray:
        """Outputs of a pass of `rows`."""
        s = self.shape
        u, z, alpha, b = (
            np.ascontiguousarray(x[rows]) for x in (self.u, self.z, self.alpha, self.b)
        )
        if s.paired:  # of each key head the b of its value heads, then their alpha
            both = [x.reshape(len(u), s.keys, -1) for x in (b, alpha)]
            alpha = b = np.ascontiguousarray(np.concatenate(both, axis=2).reshape(len(u), -1))
        out = np.full((len(u), s.values * s.dv), np.nan, np.float32)
        sizes = {"key_dim": s.dk, "value_dim": s.dv, "key_heads": s.keys, "value_heads": s.values}
        kernel = spec(delta_rule, **sizes, tiled=s.tiled, paired=s.paired)
        before: list[Any] = [u, z, alpha, b, self.a, self.dt, self.weight, out, u.shape[1],
                             z.shape[1], alpha.shape[1], out.shape[1]]  # fmt: skip
        scratch = np.zeros(scratch_bytes(s.dk), np.uint8)
        run_pass(runner, kernel, states, spans, before, [scratch, EPS], s.values, cut)
        return out


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_delta_rule(runner: Runner, rng: np.random.Generator, shape: Shape) -> None:
    """Rows of two sequences behind their own states, over more than one block of tokens."""
    layer = Layer(rng, shape, 24)
    first, second = layer.state(rng), layer.state(rng)
    states = States([stored(first), stored(second)])
    got = layer.run(runner, slice(24), states, [(1, 5), (0, 19)])
    for rows, before, number in ((slice(5), second, 1), (slice(5, 24), first, 0)):
        want, after = layer.want(rows, before)

        assert_close(got[rows], want, "recurrence", shape)
        assert_close(states.part(number), stored(after), "recurrence", shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits_in_any_cut(native: Native, rng: np.random.Generator, shape: Shape) -> None:
    """In passes of 1, 7, 16, 17 rows or all, by one thread or two: the same bits."""
    layer = Layer(rng, shape, 40)
    start = stored(layer.state(rng))
    whole = States([start])
    want = layer.run(native, slice(40), whole, [(0, 40)])
    for size in (1, 7, 16, 17, 40):
        states = States([start])
        parts = [
            layer.run(native, part, states, [(0, part.stop - part.start)], 1)
            for part in cuts(40, size)
        ]

        assert np.array_equal(np.concatenate(parts), want), size
        assert np.array_equal(states.part(0), whole.part(0)), size


def test_the_same_in_company(native: Native, rng: np.random.Generator) -> None:
    """Beside rows of another sequence a row gets what it gets alone, bit for bit."""
    layer = Layer(rng, SHAPES[1], 12)
    state = stored(layer.state(rng))
    alone, both = States([state]), States([state, stored(layer.state(rng))])
    want = layer.run(native, slice(4, 12), alone, [(0, 8)])
    got = layer.run(native, slice(12), both, [(1, 4), (0, 8)])

    assert np.array_equal(got[4:], want)
    assert np.array_equal(both.part(0), alone.part(0))


def test_stays_right_over_many_tokens(native: Native, rng: np.random.Generator) -> None:
    """After 2,000 tokens the state is still the reference's: errors do not add up."""
    layer = Layer(rng, Shape(32, 16, 1, 1), 2000)
    state = layer.state(rng)
    states = States([stored(state)])
    got = layer.run(native, slice(2000), states, [(0, 2000)])
    want, after = layer.want(slice(2000), state)

    assert_close(got[-100:], want[-100:], "recurrence")
    assert_close(states.part(0), stored(after), "recurrence")
