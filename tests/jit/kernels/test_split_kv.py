"""Attention whose chunks are shared out: the same bits as in one go, whoever does which chunk."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import NATIVE, in_turn
from helpers.kv import NO_CENTERS, NO_SINKS, descriptor, queries, uses_bf16_queries
from helpers.kv_q8 import Queries, cache_of, dequantize, quantize
from helpers.runners import Native, Runner, Table
from helpers.tiers import quick
from helpers.tolerances import assert_close, error

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.attention import attention, reference, scratch_bytes, token_tile
from triplepoint.jit.kernels.kvcache import PAGE, key_format, value_format
from triplepoint.jit.kernels.rope import to_bf16
from triplepoint.jit.kernels.split_kv import (
    attention_partial,
    attention_reduce,
    entries_of,
)
from triplepoint.jit.targets import detect

# head size, KV heads, query heads of each, cache format
SHAPES = [
    (64, 1, 4, "bf16"), (96, 3, 3, "f32"), (32, 2, 1, "q8"), (128, 1, 7, "q8"), (64, 2, 7, "k16v8"),
    (96, 1, 20, "k16v8"),
]  # fmt: skip
QEMU_SHAPES = [(64, 1, 2, "bf16"), (32, 1, 1, "q8"), (64, 1, 2, "k16v8")]
PASSES = ((0, 1), (0, 20), (255, 1), (256, 1), (250, 13), (541, 1), (500, 42))
SAME_INTEGERS = 5e-4  # as in `test_attention_q8.py`


class Case:
    """Random queries, keys and values, attended to in one go and chunk by chunk."""

    def __init__(
        self, runner: Runner, rng: np.random.Generator, shape: tuple, positions: int
    ) -> None:
        self.dim, self.kv_heads, self.group, self.kv = shape
        self.heads = self.kv_heads * self.group
        self.runner = runner
        size = (positions, self.kv_heads, self.dim)
        self.keys = rng.standard_normal(size).astype(np.float32)
        self.values = rng.standard_normal(size).astype(np.float32)
        q = rng.standard_normal((positions, self.heads, self.dim))
        self.q = (q * 2 / np.sqrt(self.dim)).astype(np.float32)
        sizes = self.kv_heads, self.dim, -(-positions // PAGE)
        self.cache = cache_of(runner.target, self.kv, *sizes)
        self.cache.write(self.keys, self.values)
        self.sizes = {"head_dim": self.dim, "kv_heads": self.kv_heads, "group": self.group}

    def _inputs(self, start: int, tokens: int) -> list[np.ndarray | Table | int]:
        part, target = self.q[start : start + tokens], self.runner.target
        of_keys = key_format(self.kv)
        q = Queries.of(part, target).raw if of_keys == "q8" else queries(part, target, of_keys)
        return [q, Table(self.cache.pages), *self.cache.offsets]

    def _scratch(self) -> np.ndarray:
        return np.full(scratch_bytes(self.group, self.dim), 0xFF, np.uint8)

    def whole(
        self, start: int, tokens: int, sinks: np.ndarray | None = None, **rule: float
    ) -> np.ndarray:
        """Float32 [tokens, heads, dim] by `attention`."""
        out = np.full((tokens, self.heads, self.dim), np.nan, np.float32)
        rows, tiles = descriptor((start, tokens, 0), tile=token_tile(self.group))
        args = [*self._inputs(start, tokens), out, self.heads * self.dim, self._scratch(), tiles,
                rows, NO_SINKS if sinks is None else sinks, NO_CENTERS]  # fmt: skip
        units = len(tiles) * self.kv_heads
        sink = {} if sinks is None else {"sink": True}
        self.runner.call(spec(attention, **self.sizes, kv=self.kv, **rule, **sink), args, 0, units)
        return out

    def split(
        self,
        start: int,
        tokens: int,
        step: int = 2,
        window: int = 0,
        sinks: np.ndarray | None = None,
        **rule: float,
    ) -> np.ndarray:
        """The same from parts, `step` units at a time, the last ones first, each in new scratch."""
        rows, tiles = descriptor((start, tokens, 0), tile=token_tile(self.group))
        size, entries = entries_of(tiles, self.heads, window)
        parts = np.full((size, self.dim), np.nan, np.float32)
        stats = np.full((size, 4), np.nan, np.float32)
        out = np.full((tokens, self.heads, self.dim), np.nan, np.float32)
        inputs = self._inputs(start, tokens)
        kernel = spec(attention_partial, **self.sizes, kv=self.kv, window=window, **rule)
        units = len(entries) * self.kv_heads
        for at in reversed(range(0, units, step)):
            args = [*inputs, parts, stats, self._scratch(), tiles, rows, entries,
                    np.array([len(entries)]), NO_CENTERS]  # fmt: skip
            self.runner.call(kernel, args, at, min(at + step, units))
        sink = {} if sinks is None else {"sink": True}
        kernel = spec(attention_reduce, **self.sizes, window=window, **sink)
        for at in reversed(range(0, tokens * self.heads, 3 * step)):
            args = [parts, stats, out, self.heads * self.dim, self._scratch(), tiles, rows,
                    NO_SINKS if sinks is None else sinks]  # fmt: skip
            self.runner.call(kernel, args, at, min(at + 3 * step, tokens * self.heads))
        return out

    def want(self, start: int, tokens: int, window: int = 0, cap: float = 0.0) -> np.ndarray:
        """The reference on what the cache and the queries hold."""
        seen, q = slice(0, start + tokens), self.q[start : start + tokens]
        keys, values = self.keys[seen], self.values[seen]
        if key_format(self.kv) == "q8":
            q, keys = Queries.of(q, self.runner.target).values, dequantize(*quantize(keys, 32))
        elif key_format(self.kv) == "bf16":
            q = to_bf16(q) if uses_bf16_queries(self.runner.target, "bf16", self.dim) else q
            keys = to_bf16(keys)
        if value_format(self.kv) == "q8":
            values = dequantize(*quantize(values, self.dim))
        elif value_format(self.kv) == "bf16":
            values = to_bf16(values)
        return reference(q, keys, values, start, window, cap)

    def check(self, start: int, tokens: int, step: int = 2, **rule: float) -> None:
        """Parts give the bits of the whole, and those are near the reference."""
        got, want = self.split(start, tokens, step, **rule), self.want(start, tokens, **rule)  # pyright: ignore[reportArgumentType]
        assert np.array_equal(got, self.whole(start, tokens, **rule)), (start, tokens)  # pyright: ignore[reportArgumentType]
        if value_format(self.kv) == "q8":
            assert error(got, want) <= SAME_INTEGERS, (start, tokens)
        else:
            dot = " dot" if uses_bf16_queries(self.runner.target, self.kv, self.dim) else ""
            assert_close(got, want, f"attention {self.kv}{dot}", (start, tokens))


@in_turn("native", "shape", SHAPES)
def test_same_bits_as_in_one_go(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Decode, prompts and passes behind a cache, within a chunk and across several."""
    case = Case(native, rng, shape, 2 * PAGE + 30)
    for start, tokens in PASSES:
        case.check(start, tokens)


WINDOWS = [(SHAPES[0], PAGE + 77), (SHAPES[1], 1), (SHAPES[2], 19)]


@pytest.mark.parametrize("native", [NATIVE[0], NATIVE[-1]], indirect=True)
@pytest.mark.parametrize("rule", quick(WINDOWS, WINDOWS[1]), ids=str)
def test_same_bits_with_a_window(native: Native, rng: np.random.Generator, rule: tuple) -> None:
    """Tiles of a pass begin at different chunks, and none of a tile's chunks is left out."""
    shape, window = rule
    case = Case(native, rng, shape, 3 * PAGE + 30)
    for start, tokens in (*PASSES, (250, 300), (3 * PAGE + 29, 1)):
        case.check(start, tokens, window=window)


@pytest.mark.parametrize("native", [detect().name], indirect=True)
@pytest.mark.parametrize("shape", quick(SHAPES, SHAPES[0]), ids=str)
def test_same_bits_with_sinks(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """A sink is counted once, however many parts there are, with every cache."""
    case = Case(native, rng, shape, 2 * PAGE + 30)
    sinks = (3 * rng.standard_normal(case.heads)).astype(np.float32)
    for start, tokens in PASSES:
        for window in (0, 40):
            got = case.split(start, tokens, window=window, sinks=sinks)
            assert np.array_equal(got, case.whole(start, tokens, sinks, window=window))


@pytest.mark.parametrize("native", [detect().name], indirect=True)
@pytest.mark.parametrize("shape", SHAPES[1:3], ids=str)
def test_same_bits_with_a_cap(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Scores are bounded in every part."""
    case = Case(native, rng, shape, PAGE + 30)
    for start, tokens in ((0, 20), (250, 13), (PAGE + 29, 1)):
        case.check(start, tokens, cap=5.0)


@pytest.mark.parametrize("native", [detect().name], indirect=True)
@pytest.mark.parametrize("shape", SHAPES[:2], ids=str)
def test_same_bits_however_shared(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """One unit at a time, or all by one thread."""
    case = Case(native, rng, shape, 2 * PAGE + 30)
    for step in (1, 3, 1000):
        case.check(500, 42, step)


@in_turn("runner", "shape", QEMU_SHAPES)
def test_on_every_feature_set(runner: Runner, rng: np.random.Generator, shape: tuple) -> None:
    """A few tokens across the end of a chunk, then one."""
    case = Case(runner, rng, shape, PAGE + 3)
    for start, tokens in ((PAGE - 2, 4), (PAGE + 2, 1)):
        case.check(start, tokens, step=1000)
