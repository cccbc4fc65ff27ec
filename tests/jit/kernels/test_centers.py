"""Keys with large biases: stored without them where pairs turn slowly, attended to with them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from helpers.feature_sets import BF16
from helpers.kv import JUNK, NO_SINKS, descriptor
from helpers.runners import Native, Runner, Table
from helpers.tolerances import error

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import rope
from triplepoint.jit.kernels.attention import attention, reference, scratch_bytes, token_tile
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, layer_offsets, page_bytes
from triplepoint.jit.kernels.rope import (
    center_angles,
    center_biases,
    equalizers,
    rope_store,
    tables,
)
from triplepoint.jit.kernels.split_kv import attention_partial, attention_reduce, entries_of

ASKS = (BF16,)  # see helpers/feature_sets.py
BASE = 1e6
LARGE = 200.0  # Qwen2.5-Coder-0.5B has biases of keys up to 211
NEAR = {"bf16": 0.012, "k16v8": 0.02, "q8": 0.06}
KV_HEADS, GROUP = 2, 3
HEADS = KV_HEADS * GROUP


@dataclass(frozen=True)
class Form:
    """Which dims of a head are pairs."""

    dim: int
    rotated: int
    adjacent: bool = False


FORMS = (Form(64, 64), Form(64, 32, adjacent=True), Form(128, 128), Form(96, 96))


class Layer:
    """Projections of `tokens` tokens, and biases of keys that are large where pairs turn slowly."""

    def __init__(self, rng: np.random.Generator, form: Form, tokens: int) -> None:
        self.form, self.tokens = form, tokens
        self.q, self.k, self.v = (
            rng.standard_normal((tokens, heads, form.dim)).astype(np.float32)
            for heads in (HEADS, KV_HEADS, KV_HEADS)
        )
        self.cos, self.sin = tables(-(-tokens // PAGE) * PAGE, form.rotated, BASE)
        biases = rng.standard_normal((HEADS + 2 * KV_HEADS, form.dim)).astype(np.float32)
        of_keys = biases[HEADS : HEADS + KV_HEADS]
        slow = center_biases(np.ones_like(of_keys), self.cos, self.sin, form.adjacent) > 0
        of_keys[slow] = rng.choice([-LARGE, LARGE], int(slow.sum()))
        self.biases = biases
        self.means = center_biases(of_keys, self.cos, self.sin, form.adjacent)
        self.norms = np.ones((KV_HEADS, form.dim))

    def spread(self, rng: np.random.Generator) -> None:
        """Make some dims of keys far larger, as training does, and queries smaller in turn."""
        pairs = np.exp(rng.standard_normal((KV_HEADS, self.form.rotated // 2)) * 1.5)
        both = np.repeat(pairs, 2, axis=1) if self.form.adjacent else np.tile(pairs, 2)
        rest = np.ones((KV_HEADS, self.form.dim - self.form.rotated))
        self.norms = np.concatenate([both, rest], axis=1)
        sizes = self.norms.astype(np.float32)
        self.k *= sizes
        self.q /= np.repeat(sizes, GROUP, axis=0)
        self.biases[:HEADS] /= np.repeat(sizes, GROUP, axis=0)
        of_keys, fast = self.biases[HEADS : HEADS + KV_HEADS], self.means == 0
        of_keys[fast] *= sizes[fast]

    def _rotated(self, x: np.ndarray) -> np.ndarray:
        first, rest = x[..., : self.form.rotated], x[..., self.form.rotated :]
        if self.form.adjacent:
            first = np.concatenate([first[..., 0::2], first[..., 1::2]], axis=-1)
        turned = rope.reference(first, self.cos[: self.tokens], self.sin[: self.tokens])
        return np.concatenate([turned, rest], axis=-1)

    @property
    def want(self) -> np.ndarray:
        """The reference on keys that nobody rounded: float32 [tokens, heads, dim]."""
        q_bias, k_bias, v_bias = np.split(self.biases, (HEADS, HEADS + KV_HEADS))
        q = self._rotated(self.q + q_bias) / np.float32(math.sqrt(self.form.dim))
        return reference(q, self._rotated(self.k + k_bias), self.v + v_bias, 0)

    def run(
        self,
        runner: Runner,
        kv: KVFormat,
        *,
        centered: bool = True,
        split: bool = False,
        equalized: bool = False,
    ) -> np.ndarray:
        """Store all rows, then attend: float32 [tokens, heads, dim]."""
        dim, tokens = self.form.dim, self.tokens
        pairs = self.form.rotated // 2 * centered
        nbytes = page_bytes(kv, 1, KV_HEADS, dim)
        pages = Table([np.full(nbytes, JUNK, np.uint8) for _ in range(-(-tokens // PAGE))])
        cache = [pages, *layer_offsets(kv, 0, KV_HEADS, dim)]
        sizes = {"head_dim": dim, "kv_heads": KV_HEADS, "group": GROUP, "centered": pairs}
        q = np.full(tokens * HEADS * 4 * (dim + 2 * pairs), 0xFF, np.uint8)
        rows, tiles = descriptor((0, tokens, 0), tile=token_tile(GROUP))
        kernel = spec(rope_store, **sizes, norm=False, kv=kv, bias=True,
                      rotated=self.form.rotated, adjacent=self.form.adjacent,
                      equalized=equalized)  # fmt: skip
        biases = np.concatenate([self.biases, self.means])
        if equalized:
            left = self.biases[HEADS : HEADS + KV_HEADS] - self.means
            factors = equalizers(self.norms, left, self.form.rotated // 2, self.form.adjacent)
            biases = np.concatenate([biases, *factors])
        args = [self.q, self.k, self.v, self.cos, self.cos, biases, self.cos, self.sin, self.cos,
                q, *cache, HEADS * dim, KV_HEADS * dim, 0.0, 1 / math.sqrt(dim),
                np.array([tokens]), rows]  # fmt: skip
        runner.call(kernel, args, 0, -(-tokens // rope.TOKENS) * KV_HEADS)

        out = np.full((tokens, HEADS, dim), np.nan, np.float32)
        scratch = np.full(scratch_bytes(GROUP, dim), 0xFF, np.uint8)
        centers = center_angles(self.cos, self.sin)
        if not split:
            args = [q, *cache, out, HEADS * dim, scratch, tiles, rows, NO_SINKS, centers]
            runner.call(spec(attention, **sizes, kv=kv), args, 0, len(tiles) * KV_HEADS)
            return out
        count, entries = entries_of(tiles, HEADS)
        parts, stats = np.empty((count, dim), np.float32), np.empty((count, 4), np.float32)
        args = [q, *cache, parts, stats, scratch, tiles, rows, entries, np.array([len(entries)]),
                centers]  # fmt: skip
        kernel = spec(attention_partial, **sizes, kv=kv)
        runner.call(kernel, args, 0, len(entries) * KV_HEADS)
        del sizes["centered"]
        args = [parts, stats, out, HEADS * dim, scratch, tiles, rows, NO_SINKS]
        runner.call(spec(attention_reduce, **sizes), args, 0, tokens * HEADS)
        return out


@pytest.mark.parametrize("kv", NEAR)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_biases_cost_no_accuracy(
    native: Native, rng: np.random.Generator, form: Form, kv: KVFormat
) -> None:
    """Attention is as exact as without biases, over two pages, where it else is not."""
    layer = Layer(rng, form, PAGE + 40)
    want = layer.want

    assert error(layer.run(native, kv), want) < NEAR[kv]
    assert error(layer.run(native, kv, centered=False), want) > 2 * NEAR[kv]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_large_dims_cost_no_accuracy(native: Native, rng: np.random.Generator, form: Form) -> None:
    """Bytes of equalized keys are far closer than those of keys whose dims differ in size."""
    layer = Layer(rng, form, PAGE + 40)
    layer.spread(rng)
    want = layer.want

    equal, plain = (error(layer.run(native, "q8", equalized=e), want) for e in (True, False))
    assert equal < plain / 2, (equal, plain)


def test_few_tokens(runner: Runner, rng: np.random.Generator) -> None:
    """The same for three tokens, on all targets."""
    layer = Layer(rng, Form(32, 32), 3)

    assert error(layer.run(runner, "bf16"), layer.want) < NEAR["bf16"]


@pytest.mark.parametrize("kv", NEAR)
def test_split_has_the_same_bits(native: Native, rng: np.random.Generator, kv: KVFormat) -> None:
    """Chunks that are computed apart give the same bits."""
    layer = Layer(rng, FORMS[0], PAGE + 40)

    assert np.array_equal(layer.run(native, kv), layer.run(native, kv, split=True))


@pytest.mark.parametrize("adjacent", [False, True])
def test_factors_of_pairs(rng: np.random.Generator, adjacent: bool) -> None:
    """Both dims of a pair have one factor, by their root mean square; the others their own."""
    norms, biases = rng.random((2, 80)) + 0.1, rng.standard_normal((2, 80))
    up, down = equalizers(norms, biases, 32, adjacent)
    power = norms**2 + biases**2
    first, second = (slice(0, 64, 2), slice(1, 64, 2)) if adjacent else (slice(32), slice(32, 64))
    power[:, first] = power[:, second] = (power[:, first] + power[:, second]) / 2

    ratio = up / np.sqrt(power)
    assert np.allclose(ratio, ratio[:, :1], rtol=0.01)
    assert np.array_equal(up[:, first], up[:, second])
    assert np.allclose(up * down, 1)
    assert np.isfinite(equalizers(0 * norms, 0 * biases, 32, adjacent)).all()


@pytest.mark.parametrize("adjacent", [False, True])
def test_slow_pairs_alone(rng: np.random.Generator, adjacent: bool) -> None:
    """Taken off is what turns once in more than 32,768 positions, in the file's order of dims."""
    biases = rng.standard_normal((2, 80)).astype(np.float32)
    cos, sin = tables(PAGE, 64, BASE)
    pair = np.arange(64) // 2 if adjacent else np.arange(64) % 32
    slow = 2 * np.pi * BASE ** (pair / 32) > rope.SLOW

    found = center_biases(biases, cos, sin, adjacent)

    assert np.array_equal(found[:, :64], np.where(slow, biases[:, :64], 0))
    assert not found[:, 64:].any()
    assert 0 < slow.sum() < 64
