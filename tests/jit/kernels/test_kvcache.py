"""Sizes and places of the KV cache."""

from __future__ import annotations

import pytest

from triplepoint.jit.kernels.kvcache import (
    PAGE,
    KVFormat,
    head_words,
    layer_offsets,
    page_bytes,
    words_per_position,
)


@pytest.mark.parametrize(("kv", "word"), [("bf16", 2), ("f32", 4)])
def test_bytes_by_hand(kv: KVFormat, word: int) -> None:
    """A page holds K and V of 256 positions of every head of every layer, without gaps."""
    layers, kv_heads, dim = 28, 8, 128
    assert words_per_position(kv, dim) * 4 == dim * word
    assert head_words(kv, dim) * 4 == PAGE * dim * word
    assert page_bytes(kv, layers, kv_heads, dim) == layers * 2 * kv_heads * PAGE * dim * word


@pytest.mark.parametrize("kv", ["bf16", "f32"])
def test_parts_tile_the_page(kv: KVFormat) -> None:
    """K and V of the layers follow one another from byte 0 to the end of the page."""
    part = 3 * head_words(kv, 64) * 4
    starts = [at for layer in range(4) for at in layer_offsets(kv, layer, 3, 64)]

    assert starts == [n * part for n in range(8)]
    assert starts[-1] + part == page_bytes(kv, 4, 3, 64)
