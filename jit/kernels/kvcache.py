"""The layout of keys and values: pages of 256 positions, each holding all layers and KV heads.

A page table (int64 addresses) leads to the pages, so a cache grows page by page, and pages can be
shared between branches of a conversation. A pass may hold rows of several sequences, each with a
table of its own: kernels get one base address, `pages`, and for each row or tile the distance of
its table from there, in entries. Within a page every layer has a K part and a V part, and
every KV head is contiguous, for `lanes` L and positions p of the page:

    bf16   K: int32 [p / L][dim / 2][L]   a pair of dims of one position in each int32
           V: int16 [p / 2][dim][2]       a pair of positions of one dim in each int32
    f32    K: float32 [p / L][dim][L]     V: float32 [p][dim]
    q8     bytes with scales; see `cache_q8.py`

Keys and values may lie in different formats: ``k16v8`` has bf16 keys and q8 values. Keys decide how
far scores are off, values only how far a mean is.

K has lane = position, so scores need no horizontal sums; V has lane = dim, for the same reason.
Where values are the first dims of keys there is no V part: see `key_values.py`.
"""

from __future__ import annotations

from typing import Literal

from ..kv_formats import KVFormat
from ..simd import Kernel, Ptr, Value, i32

Stored = Literal["bf16", "q8", "f32"]
"""How a number of the cache is stored, be it of a key or of a value."""
Part = Literal["k", "v"]
KeyForm = Literal["centered", "equalized"]
"""What stored keys are that have biases: see `rope.py`."""
PAGE = 256  # positions; also the chunk of attention's online softmax
SCALE_DIMS = 32  # dims of a key that share a scale in q8; a value has one scale for all its dims


def key_format(kv: KVFormat) -> Stored:
    """Return how keys are stored."""
    return "bf16" if kv == "k16v8" else kv


def value_format(kv: KVFormat, *, in_keys: bool = False) -> Stored:
    """Return how values are stored; in_keys: they are dims of keys."""
    return "q8" if kv == "k16v8" and not in_keys else key_format(kv)


def head_words(kv: KVFormat, head_dim: int, part: Part = "k") -> int:
    """Return the int32 words of K (or of V) of one head in one page."""
    stored = key_format(kv) if part == "k" else value_format(kv)
    words = PAGE * head_dim // {"f32": 1, "bf16": 2, "q8": 4}[stored]
    if stored != "q8":
        return words
    scales = head_dim // SCALE_DIMS if part == "k" else 1
    return words + PAGE * scales // 2


def layer_bytes(kv: KVFormat, kv_heads: int, head_dim: int, value_dim: int = 0) -> int:
    """Return a layer's bytes in a page; value_dim: of values that are the first dims of keys."""
    words = head_words(kv, head_dim, "k")
    return 4 * kv_heads * (words if value_dim else words + head_words(kv, head_dim, "v"))


def page_bytes(kv: KVFormat, layers: int, kv_heads: int, head_dim: int) -> int:
    """Return the bytes of one page."""
    return layers * layer_bytes(kv, kv_heads, head_dim)


def layer_offsets(kv: KVFormat, layer: int, kv_heads: int, head_dim: int) -> tuple[int, int]:
    """Return the byte offsets of a layer's K and V within a page."""
    start = layer * layer_bytes(kv, kv_heads, head_dim)
    return start, start + 4 * kv_heads * head_words(kv, head_dim, "k")


def head_part(k: Kernel, pages: Ptr, page: Value, offset: Value, head: Value, words: int) -> Ptr:
    """Return the address of one head's K or V in one page, as int32 words."""
    part = k.pointer(pages.load(page) + offset, i32)
    return part.at(head * words)
