"""Query and key of a position: norm, rotation, and the write to the cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from helpers.feature_sets import BF16
from helpers.kv import JUNK, Cache, descriptor, read_queries, uses_bf16_queries
from helpers.runners import Native, Runner, Table
from helpers.tolerances import TOLERANCES, assert_close, error

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import rope
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat
from triplepoint.jit.kernels.rope import rope_store, tables, to_bf16
from triplepoint.jit.targets import detect

ASKS = (BF16,)  # see helpers/feature_sets.py
EPS = 1e-6


@dataclass(frozen=True)
class Heads:
    """A shape of attention."""

    dim: int
    kv_heads: int
    group: int

    @property
    def heads(self) -> int:
        return self.kv_heads * self.group

    def __str__(self) -> str:
        return f"{self.dim}x{self.kv_heads}x{self.group}"


SHAPES = [Heads(32, 3, 2), Heads(64, 1, 7), Heads(96, 2, 1), Heads(128, 1, 2)]


class Layer:
    """Random projections of `tokens` tokens, and what should become of them.

    rotated: dims of a head that are; None: all. adjacent: whether pairs lie side by side.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        heads: Heads,
        tokens: int,
        start: int,
        norm: bool,
        *,
        rotated: int | None = None,
        adjacent: bool = False,
        bias: bool = False,
        more: dict[str, bool] | None = None,
    ) -> None:
        self.more = more or {}
        self.temperatures = (1 + rng.random(start + tokens)).astype(np.float32)
        self.rotated = heads.dim if rotated is None else rotated
        self.adjacent, self.bias = adjacent, bias
        count = heads.heads + 2 * heads.kv_heads
        self.biases = rng.standard_normal((count, heads.dim)).astype(np.float32)
        self.heads, self.start, self.norm = heads, start, norm
        shapes = ((tokens, heads.heads), *[(tokens, heads.kv_heads)] * 2)
        self.q, self.k, self.v = (
            rng.standard_normal((*shape, heads.dim)).astype(np.float32) for shape in shapes
        )
        self.q_norm, self.k_norm = (
            (rng.standard_normal(heads.dim) * 0.2 + 1).astype(np.float32) for _ in range(2)
        )
        self.scale = 1 / math.sqrt(heads.dim)
        self.cos, self.sin = tables(start + tokens, self.rotated, 10000.0)

    def __len__(self) -> int:
        return len(self.q)

    def _rotated(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
        x = x + bias if self.bias else x
        if self.norm:
            wide = x.astype(np.float64)
            x = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + EPS) * weight
        here = slice(self.start, self.start + len(self))
        first, rest = x[..., : self.rotated], x[..., self.rotated :]
        if self.adjacent:
            first = np.concatenate([first[..., 0::2], first[..., 1::2]], axis=-1)
        turned = rope.reference(first, self.cos[here], self.sin[here])
        return np.concatenate([turned, rest.astype(np.float32)], axis=-1)

    @property
    def want(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Scaled queries, keys and values."""
        ends = self.heads.heads, self.heads.heads + self.heads.kv_heads
        q_bias, k_bias, v_bias = np.split(self.biases, ends)
        q = self._rotated(self.q, self.q_norm, q_bias) * np.float32(self.scale)
        if "temperature" in self.more:
            q = q * self.temperatures[self.start :, None, None]
        v = self.v + v_bias if self.bias else self.v
        if "norm_values" in self.more:
            v = v / np.sqrt((v.astype(np.float64) ** 2).mean(-1, keepdims=True) + EPS)
            v = v.astype(np.float32)
        return q, self._rotated(self.k, self.k_norm, k_bias), v

    def run(self, runner: Runner, cache: Cache, part: slice = slice(None)) -> np.ndarray:
        """Call the kernel for `part` of the tokens; their queries as float32."""
        h = self.heads
        q, k, v = (np.ascontiguousarray(x[part]) for x in (self.q, self.k, self.v))
        raw = np.full(q.size * 4, 0xFF, np.uint8)
        span = self.start + (part.start or 0), len(q), 0
        rows, _ = descriptor(span, tile=rope.TOKENS)
        sizes = {"head_dim": h.dim, "kv_heads": h.kv_heads, "group": h.group}
        form = {"rotated": self.rotated, "adjacent": self.adjacent, "bias": self.bias}
        kernel = spec(rope_store, **sizes, norm=self.norm, kv=cache.kv, **form, **self.more)
        given = np.stack([q, np.full_like(q, np.nan)], axis=2) if "gated" in self.more else q
        args = [given, k, v, self.q_norm, self.k_norm, self.biases, self.cos, self.sin,
                self.temperatures, raw, Table(cache.pages), *cache.offsets, given[0].size,
                h.kv_heads * h.dim, EPS, self.scale, np.array([len(q)]), rows]  # fmt: skip
        runner.call(kernel, args, 0, -(-len(q) // rope.TOKENS) * h.kv_heads)
        return read_queries(raw, q.shape, runner.target, cache.kv)


def _check(layer: Layer, cache: Cache, q: np.ndarray, runner: Runner) -> None:
    q_want, k_want, v_want = layer.want
    here = slice(layer.start, layer.start + len(layer))
    keys, values = cache.read()
    if cache.kv == "f32":
        assert_close(keys[here], k_want, "rope", "keys")
        assert np.array_equal(values[here], v_want)
    else:
        assert_close(keys[here], k_want, "bf16", "keys")
        # Where float32 rounds otherwise than float64 a bf16 may be the next one: seldom.
        assert (keys[here] == to_bf16(k_want)).mean() > 0.999
        assert np.array_equal(values[here], to_bf16(v_want))
    kind = "bf16" if uses_bf16_queries(runner.target, cache.kv, q.shape[-1]) else "rope"
    assert_close(q, q_want, kind, "queries")
    outside = np.ones(len(keys), bool)
    outside[here] = False
    assert (keys[outside] > 1e37).all()  # junk as before
    assert (values[outside] > 1e37).all()


@pytest.mark.parametrize("kv", ["f32", "bf16"])
@pytest.mark.parametrize("heads", SHAPES, ids=str)
def test_rotated_and_stored(
    native: Native, rng: np.random.Generator, heads: Heads, kv: KVFormat
) -> None:
    """Queries, keys and values are as in numpy, at their positions and nowhere else.

    The tokens cross from one page into the next.
    """
    layer = Layer(rng, heads, 37, PAGE - 20, norm=True)
    cache = Cache(native.target, kv, heads.kv_heads, heads.dim, n_pages=2)
    q = layer.run(native, cache)

    _check(layer, cache, q, native)


@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_few_tokens(runner: Runner, rng: np.random.Generator, kv: KVFormat) -> None:
    """The same for a few tokens from position 0, without the norms of Qwen3."""
    layer = Layer(rng, Heads(64, 2, 2), 3, 0, norm=False)
    cache = Cache(runner.target, kv, 2, 64)
    q = layer.run(runner, cache)

    _check(layer, cache, q, runner)


FORMS = [
    (Heads(128, 2, 2), {"adjacent": True}),
    (Heads(96, 1, 3), {"adjacent": True, "bias": True}),
    (Heads(128, 1, 2), {"rotated": 96}),  # 48 pairs and 32 dims that stay
    (Heads(64, 2, 1), {"rotated": 24, "bias": True}),  # 12 pairs: registers of 4
    (Heads(64, 2, 2), {"rotated": 0, "bias": True}),
    (Heads(64, 2, 2), {"more": {"temperature": True}}),
    (Heads(64, 2, 2), {"rotated": 16, "more": {"gated": True}}),
]


@pytest.mark.parametrize(("heads", "form"), FORMS, ids=str)
@pytest.mark.parametrize("native", ["generic", detect().name], indirect=True)
def test_other_pairs(native: Native, rng: np.random.Generator, heads: Heads, form: dict) -> None:
    """Pairs that lie side by side, dims that are not rotated, biases of all three."""
    layer = Layer(rng, heads, 21, PAGE - 9, heads.group == 2, **form)
    cache = Cache(native.target, "f32", heads.kv_heads, heads.dim, n_pages=2)
    q = layer.run(native, cache)

    _check(layer, cache, q, native)


@pytest.mark.parametrize("native", ["generic", detect().name], indirect=True)
def test_normed_values(native: Native, rng: np.random.Generator) -> None:
    """Values are normed head by head; nothing else changes."""
    layer = Layer(rng, Heads(96, 2, 1), 21, 3, norm=True, more={"norm_values": True})
    cache = Cache(native.target, "f32", 2, 96)
    layer.run(native, cache)
    _, values = cache.read()

    assert_close(values[3:24], layer.want[2], "rope")


@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_queries_alone(runner: Runner, rng: np.random.Generator, kv: KVFormat) -> None:
    """A layer that reads another's keys rotates queries as others do, and stores nothing."""
    layer = Layer(rng, Heads(64, 2, 2), 3, 0, norm=True)
    cache, other = (Cache(runner.target, kv, 2, 64) for _ in range(2))
    want = layer.run(runner, cache)
    layer.more = {"store": False}

    assert np.array_equal(layer.run(runner, other), want)
    assert all((page == JUNK).all() for page in other.pages)


@pytest.mark.parametrize("native", [detect().name], indirect=True)
def test_adjacent_and_halves_give_the_same_scores(native: Native, rng: np.random.Generator) -> None:
    """Rows rearranged as in llama's files, and rotated so, make the same products q k."""
    heads, scores = Heads(64, 1, 2), []
    layer = Layer(rng, heads, 30, 0, norm=False)
    order = np.arange(64).reshape(2, 32).T.ravel()
    for adjacent in (False, True):
        cache = Cache(native.target, "f32", 1, 64)
        layer.adjacent = adjacent
        if adjacent:
            layer.q, layer.k = layer.q[..., order], layer.k[..., order]
        q = layer.run(native, cache)
        keys, _ = cache.read()
        scores.append(np.einsum("thd,pd->htp", q, keys[:30, 0]))

    assert_close(scores[1], scores[0], "rope")


def test_other_layers_are_untouched(native: Native, rng: np.random.Generator) -> None:
    """A layer writes to its own part of a page only."""
    layer = Layer(rng, Heads(32, 3, 2), 17, 0, norm=True)
    cache = Cache(native.target, "bf16", 3, 32, layers=3, layer=1)
    layer.run(native, cache)

    part = len(cache.pages[0]) // 3
    assert (cache.pages[0][:part] == JUNK).all()
    assert (cache.pages[0][2 * part :] == JUNK).all()


@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_same_bits_in_any_chunk(native: Native, rng: np.random.Generator, kv: KVFormat) -> None:
    """Whatever the chunks that the tokens come in, the cache and the queries have the same bits."""
    layer = Layer(rng, Heads(32, 3, 2), 40, 250, norm=True)
    whole = Cache(native.target, kv, 3, 32, n_pages=2)
    q = layer.run(native, whole)
    for chunk in (1, 7, 16, 39):
        cache = Cache(native.target, kv, 3, 32, n_pages=2)
        parts = [slice(at, min(at + chunk, 40)) for at in range(0, 40, chunk)]
        got = np.concatenate([layer.run(native, cache, part) for part in parts])

        assert np.array_equal(got, q)
        for a, b in zip(cache.pages, whole.pages, strict=True):
            assert np.array_equal(a, b)


def test_tables_far_out() -> None:
    """Angles are computed in float64: at position 100,000 they are still right to float32."""
    cos, sin = tables(100_001, 64, 1e6)
    angle = 100_000 * 1e6 ** (-np.arange(0, 64, 2) / 64)

    assert error(cos[-1], np.cos(angle)) <= TOLERANCES["rope"]
    assert error(sin[-1], np.sin(angle)) <= TOLERANCES["rope"]


def test_bf16_rounds_to_nearest_even() -> None:
    """to_bf16 keeps what fits, rounds halves to even, and is at most half a unit off."""
    fits = np.array([1.0, -2.5, 0.0, 3.0e38, 1e-38], np.float32).view(np.uint32) & 0xFFFF0000
    fits = fits.view(np.float32)
    assert np.array_equal(to_bf16(fits), fits)
    one = np.float32(1.0)
    ulp = np.float32(2.0**-7)
    halves = np.array([one + ulp / 2, one + ulp * 3 / 2], np.float32)
    assert to_bf16(halves).tolist() == [1.0, 1.0 + 2 * ulp]
