"""KV cache pages as numpy sees them: an independent reading of the layout in `kvcache.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from triplepoint.jit.kernels.batch import ROW_SLOTS, TILE_SLOTS, describe, own_indices
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, layer_offsets, page_bytes
from triplepoint.jit.kernels.rope import to_bf16
from triplepoint.jit.targets import CpuTarget


def descriptor(*spans: tuple[int, int, int], tile: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and tiles of a pass of (first position, rows, page table) each."""
    count = sum(rows for _, rows, _ in spans)
    rows = own_indices(np.zeros((count, ROW_SLOTS), np.int64))
    tiles = np.zeros((count, TILE_SLOTS), np.int64)
    return rows, tiles[: describe(rows, tiles, spans, tile)]


NO_SINKS = np.zeros(1, np.float32)  # what attention without sinks is given
NO_CENTERS = NO_SINKS  # what it is given where keys keep their biases
JUNK = 0x7E  # 0x7E7E is 8.5e37 in bf16, 0x7E7E7E7E the same in float32


@dataclass
class Cache:
    """Pages of one or more layers, and one layer's keys and values within them.

    Attributes:
        pages: uint8 arrays that start as JUNK, large but finite numbers in either format. The
            kernels may multiply what lies behind the last position, by zero.
    """

    target: CpuTarget
    kv: KVFormat
    kv_heads: int
    head_dim: int
    n_pages: int = 1
    layers: int = 2
    layer: int = 1
    pages: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = page_bytes(self.kv, self.layers, self.kv_heads, self.head_dim)
        self.pages = [np.full(size, JUNK, np.uint8) for _ in range(self.n_pages)]

    @property
    def offsets(self) -> tuple[int, int]:
        """Byte offsets of this layer's K and V."""
        return layer_offsets(self.kv, self.layer, self.kv_heads, self.head_dim)

    def _parts(self, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views of K and V: [head, position, dim] in the order of the layout, elements apart."""
        lanes, dim, heads = self.target.lanes, self.head_dim, self.kv_heads
        word = np.float32 if self.kv == "f32" else np.uint16
        size = PAGE * heads * dim * np.dtype(word).itemsize
        k, v = (page[at : at + size].view(word) for at in self.offsets)
        if self.kv == "f32":
            keys = k.reshape(heads, PAGE // lanes, dim, lanes).transpose(0, 1, 3, 2)
            return keys, v.reshape(heads, PAGE, dim)
        keys = k.reshape(heads, PAGE // lanes, dim // 2, lanes, 2).transpose(0, 1, 3, 2, 4)
        return keys, v.reshape(heads, PAGE // 2, dim, 2).transpose(0, 1, 3, 2)

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values of every position: float32 [positions, kv heads, dim] each."""
        shape = (self.kv_heads, PAGE, self.head_dim)
        both = [[_as_f32(p.reshape(shape)) for p in self._parts(page)] for page in self.pages]
        keys, values = (np.concatenate(parts, axis=1) for parts in zip(*both, strict=True))
        return keys.transpose(1, 0, 2), values.transpose(1, 0, 2)

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Put float32 [positions, kv heads, dim] at positions 0 …, rounded as the format asks."""
        for n, page in enumerate(self.pages):
            for part, data in zip(self._parts(page), (keys, values), strict=True):
                here = data[n * PAGE : (n + 1) * PAGE].transpose(1, 0, 2)
                whole = part.reshape(self.kv_heads, PAGE, self.head_dim).copy()
                whole[:, : here.shape[1]] = here if self.kv == "f32" else _as_bits(here)
                part[...] = whole.reshape(part.shape)


def _as_f32(values: np.ndarray) -> np.ndarray:
    if values.dtype == np.float32:
        return values.copy()
    return (values.astype(np.uint32) << 16).view(np.float32)


def _as_bits(values: np.ndarray) -> np.ndarray:
    """float32 -> uint16 bf16 bits, to nearest even."""
    return (to_bf16(values).view(np.uint32) >> 16).astype(np.uint16)


def uses_bf16_queries(target: CpuTarget, kv: KVFormat, head_dim: int) -> bool:
    return kv == "bf16" and (
        target.bf16 == "dot" or (target.bf16 == "tiles" and head_dim % 32 == 0)
    )


def queries(q: np.ndarray, target: CpuTarget, kv: KVFormat) -> np.ndarray:
    """float32 [tokens, heads, dim] as `attention` reads them: uint8."""
    pairs = uses_bf16_queries(target, kv, q.shape[-1])
    stored = _as_bits(q) if pairs else np.ascontiguousarray(q, np.float32)
    return np.ascontiguousarray(stored).reshape(-1).view(np.uint8)


def read_queries(raw: np.ndarray, shape: tuple[int, ...], target: CpuTarget, kv: KVFormat):
    """What `rope_store` wrote, as float32 of `shape`."""
    if uses_bf16_queries(target, kv, shape[-1]):
        return _as_f32(raw[: 2 * int(np.prod(shape))].view(np.uint16)).reshape(shape)
    return raw.view(np.float32).reshape(shape)
