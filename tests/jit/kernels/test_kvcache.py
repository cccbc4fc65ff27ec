"""Sizes and places of the KV cache."""

from __future__ import annotations

import pytest

from triplepoint.jit.kernels.kvcache import (
    PAGE,
    KVFormat,
    head_words,
    layer_offsets,
    page_bytes,
)


@pytest.mark.parametrize(("kv", "word"), [("bf16", 2), ("f32", 4)])
def test_bytes_by_hand(kv: KVFormat, word: int) -> None:
    """A page holds K and V of 256 positions of every head of every layer, without gaps."""
    layers, kv_heads, dim = 28, 8, 128
    assert head_words(kv, dim) * 4 == PAGE * dim * word
    assert page_bytes(kv, layers, kv_heads, dim) == layers * 2 * kv_heads * PAGE * dim * word


@pytest.mark.parametrize("kv", ["bf16", "f32"])
def test_parts_tile_the_page(kv: KVFormat) -> None:
    """K and V of the layers follow one another from byte 0 to the end of the page."""
    part = 3 * head_words(kv, 64) * 4
    starts = [at for layer in range(4) for at in layer_offsets(kv, layer, 3, 64)]

    assert starts == [n * part for n in range(8)]
    assert starts[-1] + part == page_bytes(kv, 4, 3, 64)


def test_values_in_bytes_under_keys_in_bf16() -> None:
    """A page of k16v8 has the keys of bf16 and the values of q8: three quarters, and scales."""
    keys, values = (head_words("k16v8", 64, part) for part in ("k", "v"))

    assert keys == head_words("bf16", 64, "k")
    assert values == head_words("q8", 64, "v")
    assert page_bytes("k16v8", 4, 3, 64) == 4 * 3 * 4 * (keys + values)
    assert layer_offsets("k16v8", 1, 3, 64) == (12 * (keys + values), 12 * (2 * keys + values))
    scales = 2 * PAGE * 12
    assert page_bytes("k16v8", 4, 3, 64) == 0.75 * page_bytes("bf16", 4, 3, 64) + scales
