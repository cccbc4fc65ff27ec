"""The int8 cache: sizes, what `rope_store` writes, and how far from it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.feature_sets import DOT
from helpers.kv import descriptor
from helpers.kv_q8 import JUNK, ByteCache, Queries, dequantize, quantize, raw_bytes
from helpers.runners import Native, Runner, Table

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import rope
from triplepoint.jit.kernels.cache_q8 import quantize_reference
from triplepoint.jit.kernels.kvcache import PAGE, head_words, layer_offsets, page_bytes
from triplepoint.jit.kernels.rope import rope_store, tables

ASKS = (DOT,)  # see helpers/feature_sets.py

# head size, KV heads, query heads of each
SHAPES = [(32, 3, 2), (64, 1, 1), (96, 2, 1), (128, 1, 2), (256, 1, 1)]


class Layer:
    """Random projections of tokens from position `start` on, and what should become of them."""

    def __init__(self, rng: np.random.Generator, shape: tuple, tokens: int, start: int) -> None:
        self.dim, self.kv_heads, self.group = shape
        heads = self.kv_heads * self.group
        self.start, self.scale = start, 1 / math.sqrt(self.dim)
        self.q = rng.standard_normal((tokens, heads, self.dim)).astype(np.float32)
        self.k, self.v = (
            rng.standard_normal((tokens, self.kv_heads, self.dim)).astype(np.float32)
            for _ in range(2)
        )
        self.k[..., 5] *= 30  # some dims of keys are far larger than the others
        self.cos, self.sin = tables(start + tokens, self.dim, 10000.0)

    def rotated(self, x: np.ndarray) -> np.ndarray:
        here = slice(self.start, self.start + len(x))
        return rope.reference(x, self.cos[here], self.sin[here])

    def run(self, runner: Runner, cache: ByteCache, part: slice = slice(None)) -> Queries:
        """Call the kernel for `part` of the tokens."""
        q, k, v = (np.ascontiguousarray(x[part]) for x in (self.q, self.k, self.v))
        raw = np.full(q.size // 32 * raw_bytes(runner.target), 0xFF, np.uint8)
        weight = np.ones(self.dim, np.float32)
        heads = self.kv_heads * self.group
        kernel = spec(
            rope_store, head_dim=self.dim, kv_heads=self.kv_heads, group=self.group, norm=False,
            kv="q8",
        )  # fmt: skip
        span = self.start + (part.start or 0), len(q), 0
        rows, _ = descriptor(span, tile=rope.TOKENS)
        args = [q, k, v, weight, weight, weight, self.cos, self.sin, weight, raw,
                Table(cache.pages), *cache.offsets, heads * self.dim, self.kv_heads * self.dim,
                1e-6, self.scale, np.array([len(q)]), rows]  # fmt: skip
        runner.call(kernel, args, 0, -(-len(q) // rope.TOKENS) * self.kv_heads)
        return Queries(raw, q.shape, runner.target)

    def check(self, cache: ByteCache, q: Queries) -> None:
        keys, values = cache.read()
        here = slice(self.start, self.start + len(self.k))
        k_want, q_want = self.rotated(self.k), self.rotated(self.q) * np.float32(self.scale)
        kept = dequantize(*quantize(k_want, 32))
        # Where rotation in float32 rounds otherwise than in float64, a byte may be the next one.
        assert (keys[here] == kept).mean() > 0.998
        _, steps = quantize(k_want, 32)
        assert (np.abs(keys[here] - k_want) <= 0.502 * np.repeat(steps, 32, axis=-1)).all()
        assert np.array_equal(values[here], dequantize(*quantize(self.v, self.dim)))
        steps = np.repeat(q.scales[..., 0], 32, axis=-1)
        assert (np.abs(q.values - q_want) <= 0.502 * steps).all()
        assert (np.abs(q.q).max(axis=-1) == 127).all()  # each scale makes the most of its byte
        zero = 0 if cache.target.signed_bytes else 128
        assert np.array_equal(q.starts[..., 0], -zero * q.q.sum(axis=-1, dtype=np.int32))


@pytest.mark.parametrize("dim", [32, 128, 256])
def test_bytes_by_hand(dim: int) -> None:
    """A byte for each value, two for a scale: one for 32 dims of a key, one for a whole value."""
    assert head_words("q8", dim, "k") * 4 == PAGE * (dim + 2 * dim // 32)
    assert head_words("q8", dim, "v") * 4 == PAGE * (dim + 2)
    assert page_bytes("q8", 28, 8, dim) == 28 * 8 * PAGE * (2 * dim + 2 * dim // 32 + 2)


def test_parts_tile_the_page() -> None:
    """K and V of the layers follow one another from byte 0 to the end of the page."""
    sizes = [3 * head_words("q8", 64, part) * 4 for _ in range(4) for part in ("k", "v")]
    starts = [at for layer in range(4) for at in layer_offsets("q8", layer, 3, 64)]

    assert starts == [sum(sizes[:n]) for n in range(8)]
    assert sum(sizes) == page_bytes("q8", 4, 3, 64)
    assert all(start % 64 == 0 for start in starts)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rotated_and_stored(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Queries, keys and values are within half a step of numpy's; the tokens cross a page."""
    layer = Layer(rng, shape, 37, PAGE - 20)
    cache = ByteCache(native.target, layer.kv_heads, layer.dim, n_pages=2)
    layer.check(cache, layer.run(native, cache))


def test_few_tokens(runner: Runner, rng: np.random.Generator) -> None:
    """The same on every feature set for a few tokens from position 0."""
    layer = Layer(rng, (64, 2, 2), 3, 0)
    cache = ByteCache(runner.target, 2, 64)
    layer.check(cache, layer.run(runner, cache))


def test_nothing_else_is_touched(native: Native, rng: np.random.Generator) -> None:
    """A layer writes its own part of a page, and of that its own positions."""
    layer = Layer(rng, (32, 3, 2), 7, 2)
    cache = ByteCache(native.target, 3, 32, layers=3, layer=1)
    layer.run(native, cache)

    part = len(cache.pages[0]) // 3
    assert (cache.pages[0][:part] == JUNK).all()
    assert (cache.pages[0][2 * part :] == JUNK).all()
    # Seven positions of three heads: 32 bytes and one scale each, for K and for V.
    assert (cache.pages[0] != JUNK).sum() <= 7 * 3 * 2 * (32 + 2)
    keys, values = cache.read()
    others = np.r_[0:2, 9:PAGE]
    assert (np.abs(keys[others]) > 1e20).all()
    assert (values[others] > 1e20).all()


def test_same_bits_in_any_chunk(native: Native, rng: np.random.Generator) -> None:
    """Whatever the chunks that the tokens come in, the cache and the queries have the same bits."""
    layer = Layer(rng, (64, 3, 2), 40, 250)
    whole = ByteCache(native.target, 3, 64, n_pages=2)
    q = layer.run(native, whole)
    for chunk in (1, 7, 16, 39):
        cache = ByteCache(native.target, 3, 64, n_pages=2)
        parts = [slice(at, min(at + chunk, 40)) for at in range(0, 40, chunk)]
        got = np.concatenate([layer.run(native, cache, part).raw for part in parts])

        assert np.array_equal(got, q.raw)
        for a, b in zip(cache.pages, whole.pages, strict=True):
            assert np.array_equal(a, b)


def test_zeros_and_the_smallest(native: Native, rng: np.random.Generator) -> None:
    """Zeros, and values too small to have an inverse, are kept as zeros; none becomes NaN."""
    layer = Layer(rng, (64, 1, 1), 3, 0)
    for x in (layer.q, layer.k, layer.v):
        x[0] = 0
        x[1] *= 1e-38
    cache = ByteCache(native.target, 1, 64)
    q = layer.run(native, cache)
    keys, values = cache.read()

    assert not q.q[:2].any()
    assert not keys[:2].any()
    assert not values[:2].any()
    assert values[2].any()


def test_not_a_number_stays_visible(native: Native, rng: np.random.Generator) -> None:
    """A NaN or an infinity gives its scale a value that is not finite."""
    layer = Layer(rng, (64, 1, 1), 2, 0)
    for x in (layer.q, layer.k, layer.v):
        x[0, 0, 3] = np.nan
        x[1, 0, 40] = np.inf
    cache = ByteCache(native.target, 1, 64)
    with np.errstate(invalid="ignore"):
        q = layer.run(native, cache)
        keys, values = cache.read()

    assert not np.isfinite(q.scales[:, 0]).all(axis=(1, 2)).any()
    assert not np.isfinite(keys[:2]).all(axis=(1, 2)).any()
    assert not np.isfinite(values[:2]).all(axis=(1, 2)).any()


def test_reference_is_the_same_rounding(rng: np.random.Generator) -> None:
    """The reference beside the kernel keeps what this folder's own quantizer keeps."""
    x = (rng.standard_normal((50, 128)) * np.exp(rng.standard_normal((50, 1)))).astype(np.float32)
    for dims in (32, 128):
        assert np.array_equal(quantize_reference(x, dims), dequantize(*quantize(x, dims)))
