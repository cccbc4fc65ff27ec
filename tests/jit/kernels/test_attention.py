"""Attention over the paged cache, for prefill and decode."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import BF16, NATIVE, in_turn
from helpers.kv import NO_CENTERS, NO_SINKS, Cache, descriptor, queries, uses_bf16_queries
from helpers.runners import Native, Runner, Table
from helpers.tolerances import assert_close

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import attention as module
from triplepoint.jit.kernels.attention import attention, reference, scratch_bytes, token_tile
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat
from triplepoint.jit.kernels.rope import to_bf16
from triplepoint.jit.targets import detect

ASKS = (BF16,)  # see helpers/feature_sets.py

# head size, KV heads, query heads of each, cache format: groups 1, 2, 7 and 8, all sizes
SHAPES = [(64, 2, 2, "bf16"), (128, 1, 7, "bf16"), (32, 3, 1, "f32"), (96, 1, 8, "f32")]
QEMU_SHAPES = SHAPES[:1] + SHAPES[2:3]


class Case:
    """Random queries, and keys and values of `positions` positions in a cache."""

    def __init__(
        self, runner: Runner, rng: np.random.Generator, shape: tuple, positions: int
    ) -> None:
        self.dim, self.kv_heads, self.group, self.kv = shape
        self.runner, self.positions = runner, positions
        size = (positions, self.kv_heads, self.dim)
        self.keys = rng.standard_normal(size).astype(np.float32)
        self.values = rng.standard_normal(size).astype(np.float32)
        # Scores spread over several units, so that the softmax has something to choose.
        q = rng.standard_normal((positions, self.kv_heads * self.group, self.dim))
        self.q = (q * 2 / np.sqrt(self.dim)).astype(np.float32)
        pages = -(-positions // PAGE)
        self.cache = Cache(runner.target, self.kv, self.kv_heads, self.dim, n_pages=pages)
        self.cache.write(self.keys, self.values)

    def run(
        self, start: int, tokens: int, sinks: np.ndarray | None = None, **rule: float
    ) -> np.ndarray:
        """Outputs of `tokens` tokens from position `start`: float32 [tokens, heads, dim]."""
        heads = self.kv_heads * self.group
        q = queries(self.q[start : start + tokens], self.runner.target, self.kv)
        out = np.full((tokens, heads, self.dim), np.nan, np.float32)
        scratch = np.full(scratch_bytes(self.group, self.dim), 0xFF, np.uint8)
        rows, tiles = descriptor((start, tokens, 0), tile=token_tile(self.group))
        sizes = {"head_dim": self.dim, "kv_heads": self.kv_heads, "group": self.group}
        args = [q, Table(self.cache.pages), *self.cache.offsets, out, heads * self.dim, scratch,
                tiles, rows, NO_SINKS if sinks is None else sinks, NO_CENTERS]  # fmt: skip
        if sinks is not None:
            rule["sink"] = True
        units = len(tiles) * self.kv_heads
        self.runner.call(spec(attention, **sizes, kv=self.kv, **rule), args, 0, units)
        return out

    def want(
        self,
        start: int,
        tokens: int,
        window: int = 0,
        cap: float = 0.0,
        sinks: np.ndarray | None = None,
        first: int = 0,
    ) -> np.ndarray:
        """The reference on what the cache holds."""
        rounded = to_bf16 if self.kv == "bf16" else np.asarray
        q = self.q[start : start + tokens]
        q = to_bf16(q) if uses_bf16_queries(self.runner.target, self.kv, self.dim) else q
        seen = slice(0, start + tokens)
        keys, values = rounded(self.keys[seen]), rounded(self.values[seen])
        return reference(q, keys, values, start, window, cap, sinks, first)

    @property
    def kind(self) -> str:
        dot = uses_bf16_queries(self.runner.target, self.kv, self.dim)
        return f"attention {self.kv}{' dot' if dot else ''}"


@in_turn("native", "shape", SHAPES, ASKS)
def test_prefill(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """A prompt of any length from position 0: every token sees itself and what came before."""
    for tokens in (1, 2, 17, 70, PAGE + 45):
        case = Case(native, rng, shape, tokens)
        assert_close(case.run(0, tokens), case.want(0, tokens), case.kind, tokens)


@pytest.mark.parametrize(
    "shape", [(160, 1, 2, "bf16"), (80, 2, 3, "bf16"), (256, 1, 1, "f32")], ids=str
)
@pytest.mark.parametrize("native", [detect().name], indirect=True)
def test_other_head_sizes(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Sizes that are no power of two, and larger than what registers hold."""
    case = Case(native, rng, shape, 70)
    assert_close(case.run(0, 70), case.want(0, 70), case.kind)
    assert_close(case.run(69, 1), case.want(69, 1), case.kind)


@in_turn("native", "shape", SHAPES, ASKS)
def test_after_a_prefix(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """Tokens that follow a cache: one (decode) or several, within a page and across pages."""
    case = Case(native, rng, shape, 2 * PAGE + 30)
    for start, tokens in ((1, 1), (15, 1), (255, 1), (256, 1), (541, 1), (250, 13), (500, 42)):
        got = case.run(start, tokens)
        assert_close(got, case.want(start, tokens), case.kind, (start, tokens))


@pytest.mark.parametrize("native", [NATIVE[0], NATIVE[-1]], indirect=True)
@pytest.mark.parametrize(
    ("shape", "window"), [(SHAPES[1], 19), (SHAPES[2], 1), (SHAPES[2], PAGE + 77)], ids=str
)
def test_window(native: Native, rng: np.random.Generator, shape: tuple, window: int) -> None:
    """A token sees the last `window` positions; its bits do not depend on what came with it."""
    total = 2 * PAGE + 30
    case = Case(native, rng, shape, total)
    whole = case.run(0, total, window=window)
    assert_close(whole, case.want(0, total, window), case.kind)
    for start, tokens in ((0, 1), (17, 4), (255, 1), (256, 2), (250, 90), (total - 1, 1)):
        part = case.run(start, tokens, window=window)
        assert np.array_equal(part, whole[start : start + tokens]), (start, tokens)


@in_turn("native", "shape", SHAPES, ASKS)
def test_what_a_page_holds_beyond(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """What another sequence left behind the last positions, no numbers even, changes no bit."""
    for count in (PAGE + 46, 33):
        case = Case(native, rng, shape, count)
        before = case.run(count - 1, 1)
        case.cache.pages[:] = [np.full_like(page, 0xFF) for page in case.cache.pages]  # NaN
        case.cache.write(case.keys, case.values)

        assert np.array_equal(case.run(count - 1, 1), before)


@pytest.mark.parametrize("native", [detect().name], indirect=True)
def test_what_left_the_window_is_not_seen(native: Native, rng: np.random.Generator) -> None:
    """Keys and values before the window, whatever they are, do not change a token by a bit."""
    case = Case(native, rng, (64, 2, 2, "f32"), 300)
    before = case.run(280, 9, window=20)
    case.keys[:261] = 1e30
    case.values[:261] = -1e30
    case.cache.write(case.keys, case.values)

    assert np.array_equal(case.run(280, 9, window=20), before)


@pytest.mark.parametrize("native", [NATIVE[0], NATIVE[-1]], indirect=True)
@pytest.mark.parametrize("window", [0, 19])
def test_first_positions_are_not_seen(
    native: Native, rng: np.random.Generator, window: int
) -> None:
    """What lies before the first position that is seen does not change a token by a bit."""
    case = Case(native, rng, SHAPES[2], PAGE + 30)
    for start, tokens in ((3, 1), (4, 40), (PAGE + 1, 2)):
        got = case.run(start, tokens, window=window, first=3)
        assert_close(got, case.want(start, tokens, window, first=3), case.kind)
        if not window:
            assert not np.array_equal(got, case.run(start, tokens)), "the first ones count else"
    before = case.run(5, 9, window=window, first=3)
    case.keys[:3], case.values[:3] = 1e30, -1e30
    case.cache.write(case.keys, case.values)
    assert np.array_equal(case.run(5, 9, window=window, first=3), before)


@pytest.mark.parametrize("native", [NATIVE[0], NATIVE[-1]], indirect=True)
def test_cap(native: Native, rng: np.random.Generator) -> None:
    """Scores are bounded before the softmax: with a small cap it is nearly even."""
    case = Case(native, rng, SHAPES[2], 70)
    for cap in (0.5, 50.0):
        assert_close(case.run(0, 70, cap=cap), case.want(0, 70, cap=cap), case.kind, cap)


@in_turn("runner", "shape", QEMU_SHAPES, ASKS)
def test_sinks(runner: Runner, rng: np.random.Generator, shape: tuple) -> None:
    """A head's sink takes its share of the softmax, be it above all scores or far below."""
    case = Case(runner, rng, shape, PAGE + 3)
    sinks = (5 * rng.standard_normal(case.kv_heads * case.group)).astype(np.float32)
    sinks[-1] = 60.0
    for start, tokens, window in ((0, 20, 0), (PAGE + 2, 1, 0), (PAGE + 1, 2, 9)):
        got = case.run(start, tokens, sinks, window=window)
        want = case.want(start, tokens, window, sinks=sinks)
        assert_close(got, want, case.kind, (start, tokens))


@pytest.mark.parametrize("shape", QEMU_SHAPES, ids=str)
def test_a_few_positions(runner: Runner, rng: np.random.Generator, shape: tuple) -> None:
    """The same on every feature set: a prompt, then one token of a second page."""
    case = Case(runner, rng, shape, PAGE + 3)
    for start, tokens in ((0, 20), (PAGE + 2, 1)):
        got = case.run(start, tokens)
        assert_close(got, case.want(start, tokens), case.kind, (start, tokens))


@in_turn("native", "shape", SHAPES, ASKS)
def test_same_bits_in_any_chunk(native: Native, rng: np.random.Generator, shape: tuple) -> None:
    """A token's output has the same bits alone, in any chunk and in the whole prompt."""
    total = PAGE + 60
    case = Case(native, rng, shape, total)
    whole = case.run(0, total)
    for start, tokens in ((0, 1), (3, 5), (100, 70), (250, 20), (255, 1), (256, 1), (total - 1, 1)):
        part = case.run(start, tokens)
        assert np.array_equal(part, whole[start : start + tokens]), (start, tokens)


@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_the_future_is_not_seen(native: Native, rng: np.random.Generator, kv: KVFormat) -> None:
    """Keys and values after a token's position, whatever they are, do not change it by a bit."""
    case = Case(native, rng, (64, 2, 2, kv), 300)
    before = case.run(100, 9)
    case.keys[109:] = 1e30
    case.values[109:] = -1e30
    case.cache.write(case.keys, case.values)

    assert np.array_equal(case.run(100, 9), before)


@pytest.mark.parametrize("kv", ["f32", "bf16"])
def test_one_key_takes_all(runner: Runner, rng: np.random.Generator, kv: KVFormat) -> None:
    """A score far above the others gives that position's value exactly, in whichever chunk."""
    case = Case(runner, rng, (64, 2, 2, kv), PAGE + 40)
    last = PAGE + 39
    case.q[last] = 1.0
    for winner in (0, PAGE - 1, PAGE, last):
        keys = case.keys.copy()
        keys[winner] = 50.0
        case.cache.write(keys, case.values)
        got = case.run(last, 1)[0]
        values = to_bf16(case.values) if kv == "bf16" else case.values

        assert np.allclose(got.reshape(2, 2, 64), values[winner][:, None], rtol=1e-6, atol=1e-30)


def test_equal_scores_give_the_mean(native: Native, rng: np.random.Generator) -> None:
    """Queries of zeros weigh all positions alike."""
    case = Case(native, rng, (32, 3, 1, "f32"), 300)
    case.q[:] = 0
    got = case.run(299, 1)[0]

    assert np.allclose(got, case.values.mean(0, dtype=np.float64), atol=1e-6)


def test_large_scores_stay_finite(native: Native, rng: np.random.Generator) -> None:
    """Scores of ±10,000 neither overflow nor vanish into NaN."""
    case = Case(native, rng, (64, 2, 2, "f32"), 280)
    case.q *= 3000
    got = case.run(0, 280)

    assert np.isfinite(got).all()
    assert np.abs(got).max() <= np.abs(case.values).max() * 1.00001


def test_tiles_divide_work_alike() -> None:
    """A tile holds about 32 rows, at least one token of each head of a group."""
    assert [token_tile(group) for group in (1, 2, 7, 8, 32, 40)] == [32, 16, 4, 4, 1, 1]
    assert module.CHUNK == PAGE
