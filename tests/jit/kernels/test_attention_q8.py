"""Attention over the int8 cache, for prefill and decode."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import DOT
from helpers.kv import NO_CENTERS, NO_SINKS, descriptor
from helpers.kv_q8 import ByteCache, Queries, dequantize, quantize
from helpers.runners import Native, Runner, Table
from helpers.tolerances import error

from triplepoint.jit.compile import build_assembly, spec
from triplepoint.jit.dot import KEY_INSTRUCTION
from triplepoint.jit.kernels.attention import attention, reference, scratch_bytes, token_tile
from triplepoint.jit.kernels.cache_q8 import wide
from triplepoint.jit.kernels.kvcache import PAGE
from triplepoint.jit.targets import TARGETS

ASKS = (DOT,)  # see helpers/feature_sets.py

# head size, KV heads, query heads of each: groups 1, 2, 7 and 8, all sizes
SHAPES = [(64, 2, 2), (128, 1, 7), (32, 3, 1), (96, 1, 8)]
QEMU_SHAPES = SHAPES[:1] + SHAPES[2:3]

# Of the largest output, against the same integers: 14 bits of probabilities and float32 differ.
SAME_INTEGERS = 5e-4
# Root mean square, of that of the outputs, against what was not quantized. A byte of normal values
# is off by 0.7 % of their deviation (0.8 % in a value of 128 dims), a score of deviation 2
# therefore by 0.02: 1.5 % come out, up to 2.3 % for a single token.
FLOATS = 3e-2


class Case:
    """Random queries, and keys and values of `positions` positions in a cache."""

    def __init__(
        self, runner: Runner, rng: np.random.Generator, shape: tuple, positions: int
    ) -> None:
        self.dim, self.kv_heads, self.group = shape
        self.runner = runner
        size = (positions, self.kv_heads, self.dim)
        self.keys = rng.standard_normal(size).astype(np.float32)
        self.values = rng.standard_normal(size).astype(np.float32)
        # Scores spread over several units, so that the softmax has something to choose.
        q = rng.standard_normal((positions, self.kv_heads * self.group, self.dim))
        self.q = (q * 2 / np.sqrt(self.dim)).astype(np.float32)
        pages = -(-positions // PAGE)
        self.cache = ByteCache(runner.target, self.kv_heads, self.dim, n_pages=pages)
        self.cache.write(self.keys, self.values)

    def run(self, start: int, tokens: int) -> np.ndarray:
        """Outputs of `tokens` tokens from position `start`: float32 [tokens, heads, dim]."""
        heads = self.kv_heads * self.group
        q = Queries.of(self.q[start : start + tokens], self.runner.target)
        out = np.full((tokens, heads, self.dim), np.nan, np.float32)
        scratch = np.full(scratch_bytes(self.group, self.dim), 0xFF, np.uint8)
        rows, tiles = descriptor((start, tokens, 0), tile=token_tile(self.group))
        sizes = {"head_dim": self.dim, "kv_heads": self.kv_heads, "group": self.group}
        args = [q.raw, Table(self.cache.pages), *self.cache.offsets, out, heads * self.dim, scratch,
                tiles, rows, NO_SINKS, NO_CENTERS]  # fmt: skip
        units = len(tiles) * self.kv_heads
        self.runner.call(spec(attention, **sizes, kv="q8"), args, 0, units)
        return out

    def want(self, start: int, tokens: int) -> np.ndarray:
        """The reference on the values that the cache and the queries hold."""
        q = Queries.of(self.q[start : start + tokens], self.runner.target).values
        seen = slice(0, start + tokens)
        keys = dequantize(*quantize(self.keys[seen], 32))
        values = dequantize(*quantize(self.values[seen], self.dim))
        return reference(q, keys, values, start)

    def want_exact(self, start: int, tokens: int) -> np.ndarray:
        """The reference on what was not quantized."""
        seen = slice(0, start + tokens)
        q = self.q[start : start + tokens]
        return reference(q, self.keys[seen], self.values[seen], start)

    def check(self, start: int, tokens: int) -> None:
        got, exact = self.run(start, tokens), self.want_exact(start, tokens)
        assert error(got, self.want(start, tokens)) <= SAME_INTEGERS, (start, tokens)
        rms = np.sqrt(np.mean((got - exact) ** 2) / np.mean(exact**2))
        assert rms <= FLOATS, (start, tokens)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prefill(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """A prompt of any length from position 0: every token sees itself and what came before."""
    for tokens in (1, 2, 17, 70, PAGE + 45):
        Case(native, rng, shape, tokens).check(0, tokens)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_after_a_prefix(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Tokens that follow a cache: one (decode) or several, within a page and across pages."""
    case = Case(native, rng, shape, 2 * PAGE + 30)
    for start, tokens in ((1, 1), (15, 1), (255, 1), (256, 1), (541, 1), (250, 13), (500, 42)):
        case.check(start, tokens)


def test_wide_heads(native: Native, rng: np.random.Generator) -> None:
    """Heads of 256, whose dims are more than one group of registers on every target."""
    case = Case(native, rng, (256, 1, 1), PAGE + 20)
    for start, tokens in ((0, 20), (PAGE - 3, 7), (PAGE + 19, 1)):
        case.check(start, tokens)


@pytest.mark.parametrize("shape", QEMU_SHAPES, ids=str)
def test_a_few_positions(runner: Runner, rng: np.random.Generator, shape: tuple) -> None:
    """The same on every feature set: a prompt, then one token of a second page."""
    case = Case(runner, rng, shape, PAGE + 3)
    for start, tokens in ((0, 20), (PAGE + 2, 1)):
        case.check(start, tokens)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_same_bits_in_any_chunk(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """A token's output has the same bits alone, in any chunk and in the whole prompt."""
    total = PAGE + 60
    case = Case(native, rng, shape, total)
    whole = case.run(0, total)
    for start, tokens in ((0, 1), (3, 5), (100, 70), (250, 20), (255, 1), (256, 1), (total - 1, 1)):
        part = case.run(start, tokens)
        assert np.array_equal(part, whole[start : start + tokens]), (start, tokens)


def test_the_future_is_not_seen(native: Native, rng: np.random.Generator) -> None:
    """What lies after a token's position, even NaN, does not change it by a bit."""
    case = Case(native, rng, (64, 2, 2), 300)
    before = case.run(100, 9)
    keys, values = case.keys.copy(), case.values.copy()
    keys[109:] = 1e30
    values[109:] = -1e30
    case.cache.write(keys, values)
    assert np.array_equal(case.run(100, 9), before)

    for page in case.cache.pages:
        page[:] = 0xFF  # every scale is NaN, every byte -1 or 255
    case.cache.write(case.keys[:109], case.values[:109])
    assert np.array_equal(case.run(100, 9), before)


def test_one_key_takes_all(runner: Runner, rng: np.random.Generator) -> None:
    """A score far above the others gives that position's value, in whichever chunk it is."""
    case = Case(runner, rng, (64, 2, 2), PAGE + 40)
    last = PAGE + 39
    case.q[last] = 1.0
    values = dequantize(*quantize(case.values, 64))
    for winner in (0, PAGE - 1, PAGE, last):
        keys = case.keys.copy()
        keys[winner] = 50.0
        case.cache.write(keys, case.values)
        got = case.run(last, 1)[0]

        assert np.allclose(got.reshape(2, 2, 64), values[winner][:, None], rtol=1e-6, atol=1e-30)


def test_many_small_ones_count(native: Native) -> None:
    """255 positions of a 3,000th of the largest probability each keep their 8 % of the mass."""
    case = Case(native, np.random.default_rng(7), (64, 1, 1), PAGE)
    gap = np.log(3000.0)
    case.q[:] = 1.0
    case.keys[:] = 0.0
    case.keys[0] = gap / 64
    case.values[:] = 1.0
    case.values[0] = 0.0
    case.cache.write(case.keys, case.values)
    got = case.run(PAGE - 1, 1)
    keys = dequantize(*quantize(case.keys, 32))
    weight = 255 * np.exp(-keys[0].sum())

    assert 0.07 < weight < 0.09
    assert np.allclose(got, weight / (1 + weight), rtol=0.05)


def test_equal_scores_give_the_mean(native: Native, rng: np.random.Generator) -> None:
    """Queries of zeros weigh all positions alike."""
    case = Case(native, rng, (32, 3, 1), 300)
    case.q[:] = 0
    got = case.run(299, 1)[0]
    values = dequantize(*quantize(case.values, 32))

    assert np.allclose(got, values.mean(0, dtype=np.float64), atol=1e-4)


def test_large_and_small_values(native: Native, rng: np.random.Generator) -> None:
    """Scores of ±10,000 and values of 1e±18 neither overflow nor vanish; zeros stay zeros."""
    case = Case(native, rng, (64, 2, 2), 280)
    case.q *= 3000
    case.values[:, 0] *= 1e18
    case.values[:, 1] *= 1e-18
    case.values[:20] = 0
    case.cache.write(case.keys, case.values)
    got = case.run(0, 280)

    assert np.isfinite(got).all()
    assert not got[:20].any()
    for head in range(2):
        most = np.abs(case.values[:, head]).max()
        assert 0.1 * most < np.abs(got[:, 2 * head : 2 * head + 2]).max() <= 1.01 * most


def test_not_a_number_is_not_lost(native: Native, rng: np.random.Generator) -> None:
    """A value of NaN makes NaN of what sees it, and of nothing else."""
    case = Case(native, rng, (64, 2, 2), 40)
    case.cache.set_value_scale(17, 0, np.float32(np.nan))
    got = case.run(0, 40)

    assert np.isfinite(got[:17]).all()
    assert np.isfinite(got[:, 2:]).all()
    assert np.isnan(got[17:, :2]).all()


@pytest.mark.parametrize("name", TARGETS)
def test_instruction(name: str) -> None:
    """The products are made of the target's integer dot product, whether this CPU has it or not."""
    target = TARGETS[name]
    assembly = build_assembly(spec(attention, head_dim=32, kv_heads=1, group=1, kv="q8"), target)
    wanted = "pmaddwd" if wide(target) and target.arch != "any" else KEY_INSTRUCTION[target.dot]
    assert wanted in assembly
