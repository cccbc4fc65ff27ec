"""Latent attention: one key for all heads, which holds the value; what is stored, and attention."""

from __future__ import annotations

import numpy as np
from helpers.feature_sets import in_turn
from helpers.kv import JUNK, NO_CENTERS, NO_SINKS, Cache, descriptor, read_queries
from helpers.kv_q8 import ByteCache, Queries, raw_bytes
from helpers.runners import Runner, Table
from helpers.tolerances import error

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import rope
from triplepoint.jit.kernels.attention import attention, reference, scratch_bytes, token_tile
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, key_format, layer_bytes
from triplepoint.jit.kernels.latent import latent_store

LATENT, ROTATED, HEADS, TOKENS, EPS, SCALE = 96, 32, 3, PAGE + 21, 1e-6, 0.3
DIM = LATENT + ROTATED
# Of the largest value: rounding of the cache, and of queries that meet it.
NEAR = {"f32": 1e-5, "bf16": 0.01, "k16v8": 0.01, "q8": 0.02}


def _turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Adjacent pairs [tokens, heads, dims], rotated and stored apart."""
    return rope.reference(np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1), cos, sin)


@in_turn("runner", "kv", ["f32", "bf16", "k16v8", "q8"])
def test_stored_and_attended(runner: Runner, rng: np.random.Generator, kv: KVFormat) -> None:
    """Keys and queries are as in numpy; values are the first dims of keys, and stored once."""
    absorbed = rng.standard_normal((TOKENS, HEADS, LATENT)).astype(np.float32)
    q = rng.standard_normal((TOKENS, HEADS, 2 * ROTATED)).astype(np.float32)
    rows = rng.standard_normal((TOKENS, DIM)).astype(np.float32)
    weight = (1 + 0.2 * rng.standard_normal(LATENT)).astype(np.float32)
    cos, sin = rope.tables(TOKENS, ROTATED, 1e4)
    target = runner.target
    if kv == "q8":
        keys = ByteCache(target, 1, DIM, n_pages=2)
        raw = np.zeros(TOKENS * HEADS * DIM // 32 * raw_bytes(target), np.uint8)
    else:
        keys = Cache(target, key_format(kv), 1, DIM, n_pages=2)
        raw = np.zeros(TOKENS * HEADS * DIM * 4, np.uint8)
    # Nothing but keys; the values of a real model are a multiple of 64 dims.
    pages = [np.full(layer_bytes(kv, 1, DIM, LATENT), JUNK, np.uint8) for _ in range(2)]
    tile, span = token_tile(HEADS), (0, TOKENS, 0)
    where, tiles = descriptor(span, tile=tile)
    kernel = spec(latent_store, kv=kv, latent=LATENT, heads=HEADS, rotated=ROTATED)
    args = [absorbed, q, rows, weight, cos, sin, raw, Table(pages), 0, LATENT, q.shape[2],
            q.shape[2], DIM, EPS, SCALE, where]  # fmt: skip
    runner.call(kernel, args, 0, TOKENS * (HEADS + 1))
    for page, whole in zip(pages, keys.pages, strict=True):
        whole[keys.offsets[0] :][: len(page)] = page

    c = rows[:, :LATENT].astype(np.float64)
    c = (c / np.sqrt((c * c).mean(-1, keepdims=True) + EPS) * weight).astype(np.float32)
    key = np.concatenate([c, _turned(rows[:, None, LATENT:], cos, sin)[:, 0]], axis=1)
    query = SCALE * np.concatenate([absorbed, _turned(q[..., ROTATED:], cos, sin)], axis=2)
    with np.errstate(over="ignore"):  # of what lies behind the last position
        k_got = keys.read()[0][:TOKENS, 0]
    v_got = k_got[:, :LATENT]
    q_got = (
        Queries(raw, query.shape, target).values
        if kv == "q8"
        else read_queries(raw, query.shape, target, key_format(kv))
    )
    for got, want in ((k_got, key), (q_got, query)):
        assert error(got, want) <= NEAR[kv], kv

    out = np.full((TOKENS, HEADS, LATENT), np.nan, np.float32)
    scratch = np.full(scratch_bytes(HEADS, DIM, LATENT), 0xFF, np.uint8)
    kernel = spec(attention, head_dim=DIM, kv_heads=1, group=HEADS, kv=kv, value_dim=LATENT)
    args = [raw, Table(pages), 0, 0, out, HEADS * LATENT, scratch, tiles, where, NO_SINKS,
            NO_CENTERS]  # fmt: skip
    runner.call(kernel, args, 0, len(tiles))

    assert error(out, reference(q_got, k_got[:, None], v_got[:, None], 0)) <= NEAR[kv]
