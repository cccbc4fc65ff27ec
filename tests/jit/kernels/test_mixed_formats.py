"""Keys in one format and values in another: each lies as in a cache of its own format."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import BF16, DOT
from helpers.kv import JUNK, descriptor
from helpers.runners import Runner, Table

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import rope
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, layer_offsets, page_bytes
from triplepoint.jit.kernels.rope import query_words, rope_store, tables

ASKS = (DOT, BF16)  # see helpers/feature_sets.py
KV_HEADS, GROUP = 2, 3


def _stored(
    runner: Runner, rng: np.random.Generator, dim: int, kv: KVFormat
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What 21 tokens leave of keys, of values and of queries, as bytes, on a page's last lines."""
    tokens, start, heads = 21, PAGE - 24, KV_HEADS * GROUP
    q, k, v = (
        rng.standard_normal((tokens, n, dim)).astype(np.float32) for n in (heads, *[KV_HEADS] * 2)
    )
    cos, sin = tables(PAGE, dim, 10000.0)
    page = np.full(page_bytes(kv, 1, KV_HEADS, dim), JUNK, np.uint8)
    raw = np.full(q.size * 4, 0xFF, np.uint8)
    rows, _ = descriptor((start, tokens, 0), tile=rope.TOKENS)
    kernel = spec(rope_store, head_dim=dim, kv_heads=KV_HEADS, group=GROUP, norm=False, kv=kv)
    k_at, v_at = layer_offsets(kv, 0, KV_HEADS, dim)
    args = [q, k, v, cos, cos, cos, cos, sin, cos, raw, Table([page]), k_at, v_at, heads * dim,
            KV_HEADS * dim, 1e-6, 0.1, np.array([tokens]), rows]  # fmt: skip
    runner.call(kernel, args, 0, -(-tokens // rope.TOKENS) * KV_HEADS)
    return page[:v_at], page[v_at:], raw


@pytest.mark.parametrize("dim", [32, 96, 128])
def test_stored_as_in_the_format_of_each(runner: Runner, dim: int) -> None:
    """Keys and queries have the bytes of a bf16 cache, values those of a q8 cache."""
    formats: tuple[KVFormat, ...] = ("k16v8", "bf16", "q8")
    mixed, wide, narrow = (_stored(runner, np.random.default_rng(3), dim, kv) for kv in formats)
    queries = 4 * query_words(runner.target, "bf16", dim) * 21 * KV_HEADS * GROUP

    assert np.array_equal(mixed[0], wide[0])
    assert np.array_equal(mixed[1], narrow[1])
    assert np.array_equal(mixed[2][:queries], wide[2][:queries])
    assert (mixed[0] != JUNK).any()
    assert (mixed[1] != JUNK).any()
