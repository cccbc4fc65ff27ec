"""The int8 KV cache as numpy sees it: an independent reading of the layout in `cache_q8.py`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from helpers.kv import Cache

from triplepoint.jit.kernels.cache_q8 import dim_groups, key_vectors, wide
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, layer_offsets, page_bytes
from triplepoint.jit.targets import CpuTarget

JUNK = 0x5E  # a byte of 94, a scale of 4e18


def quantize(x: np.ndarray, dims: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 [..., n * dims] -> int8 of the same shape, and a float32 scale for each `dims`.

    The scale is the least bf16 that is no less than the largest magnitude / 127.
    """
    blocks = np.ascontiguousarray(x, np.float32).reshape(*x.shape[:-1], -1, dims)
    least = np.abs(blocks).max(axis=-1) * np.float32(1 / 127)
    scale = (((least.view(np.uint32) + 0xFFFF) >> 16) << 16).astype(np.uint32).view(np.float32)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 1e-30)
    q = np.rint(blocks * inverse[..., None]).astype(np.int8)
    return q.reshape(x.shape), scale


def dequantize(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """What `quantize` kept: float32 of the shape of `q`."""
    blocks = q.reshape(*scale.shape, -1).astype(np.float32)
    return (blocks * scale[..., None]).reshape(q.shape)


@dataclass
class ByteCache:
    """Pages of one or more layers, and one layer's keys and values within them.

    Attributes:
        pages: uint8 arrays that start as JUNK.
    """

    target: CpuTarget
    kv_heads: int
    head_dim: int
    n_pages: int = 1
    layers: int = 2
    layer: int = 1
    pages: list[np.ndarray] = field(default_factory=list)

    def __post_init__(self) -> None:
        size = page_bytes("q8", self.layers, self.kv_heads, self.head_dim)
        self.pages = [np.full(size, JUNK, np.uint8) for _ in range(self.n_pages)]

    @property
    def offsets(self) -> tuple[int, int]:
        """Byte offsets of this layer's K and V."""
        return layer_offsets("q8", self.layer, self.kv_heads, self.head_dim)

    @property
    def _flip(self) -> int:
        """What is added to the bytes of keys: on some targets they are unsigned."""
        return 0 if self.target.signed_bytes else 128

    def _keys(self, page: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Views: scales uint16 [head, tile, block, T], bytes uint8 [head, tile, block, 8, T, 4]."""
        tile, blocks = key_vectors(self.target) * self.target.lanes, self.head_dim // 32
        each = 2 * tile + 32 * tile
        size = self.kv_heads * PAGE // tile * blocks * each
        part = page[self.offsets[0] :][:size].reshape(self.kv_heads, PAGE // tile, blocks, each)
        data = part[..., 2 * tile :]
        return part[..., : 2 * tile].view(np.uint16), data.reshape(*data.shape[:3], 8, tile, 4)

    def _values(self, page: np.ndarray) -> tuple[np.ndarray, list[tuple[range, np.ndarray]]]:
        """Views: scales uint16 [head, position], for some dims int8 [head, p / 4, dims, 4]."""
        each = PAGE * (2 + self.head_dim)
        part = page[self.offsets[1] :][: self.kv_heads * each].reshape(self.kv_heads, each)
        groups = []
        for dims in dim_groups(self.head_dim):
            start = PAGE * (2 + dims.start)
            data = part[:, start : start + PAGE * len(dims)].view(np.int8)
            groups.append((dims, data.reshape(self.kv_heads, PAGE // 4, len(dims), 4)))
        return part[:, : 2 * PAGE].view(np.uint16), groups

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """What keys and values stand for: float32 [positions, kv heads, dim] each."""
        keys, values = [], []
        for page in self.pages:
            scales, data = self._keys(page)
            # [head, tile, block, 8, T, 4] -> [head, tile, T, block, 8, 4]
            q = data.transpose(0, 1, 4, 2, 3, 5).reshape(self.kv_heads, PAGE, self.head_dim)
            scale = _floats(scales.transpose(0, 1, 3, 2).reshape(self.kv_heads, PAGE, -1))
            keys.append(dequantize((q - np.uint8(self._flip)).view(np.int8), scale))
            scales, groups = self._values(page)
            parts = [g.transpose(0, 1, 3, 2).reshape(self.kv_heads, PAGE, -1) for _, g in groups]
            values.append(dequantize(np.concatenate(parts, axis=2), _floats(scales)[..., None]))
        both = (np.concatenate(parts, axis=1) for parts in (keys, values))
        keys, values = (np.ascontiguousarray(x.transpose(1, 0, 2)) for x in both)
        return keys, values

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Put float32 [positions, kv heads, dim] at positions 0 …, quantized."""
        (kq, ks), (vq, vs) = quantize(keys, 32), quantize(values, self.head_dim)
        tile = key_vectors(self.target) * self.target.lanes
        for position in range(len(keys)):
            page, p = self.pages[position // PAGE], position % PAGE
            scales, data = self._keys(page)
            scales[:, p // tile, :, p % tile] = _bits(ks[position])
            stored = kq[position].view(np.uint8) + np.uint8(self._flip)
            data[:, p // tile, :, :, p % tile] = stored.reshape(self.kv_heads, -1, 8, 4)
            scales, groups = self._values(page)
            scales[:, p] = _bits(vs[position, :, 0])
            for dims, part in groups:
                part[:, p // 4, :, p % 4] = vq[position, :, dims.start : dims.stop]

    def set_value_scale(self, position: int, head: int, scale: np.float32) -> None:
        """Overwrite the scale of one value."""
        scales, _ = self._values(self.pages[position // PAGE])
        scales[head, position % PAGE] = _bits(np.array([scale]))[0]


class MixedCache:
    """Pages of one layer with keys as in `Cache`, in bf16, and values as in `ByteCache`."""

    def __init__(self, target: CpuTarget, kv_heads: int, head_dim: int, n_pages: int = 1) -> None:
        self._keys = Cache(target, "bf16", kv_heads, head_dim, n_pages, layers=1, layer=0)
        self._values = ByteCache(target, kv_heads, head_dim, n_pages, layers=1, layer=0)
        self.offsets = layer_offsets("k16v8", 0, kv_heads, head_dim)

    @property
    def pages(self) -> list[np.ndarray]:
        """Copies of the pages: uint8."""
        end, begin = self._keys.offsets[1], self._values.offsets[1]
        both = zip(self._keys.pages, self._values.pages, strict=True)
        return [np.concatenate([keys[:end], values[begin:]]) for keys, values in both]

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Put float32 [positions, kv heads, dim] at positions 0 …, rounded and quantized."""
        self._keys.write(keys, values)
        self._values.write(keys, values)


AnyCache = Cache | ByteCache | MixedCache


def cache_of(
    target: CpuTarget, kv: KVFormat, kv_heads: int, head_dim: int, n_pages: int = 1
) -> AnyCache:
    """Pages in any format."""
    if kv == "k16v8":
        return MixedCache(target, kv_heads, head_dim, n_pages)
    if kv == "q8":
        return ByteCache(target, kv_heads, head_dim, n_pages)
    return Cache(target, kv, kv_heads, head_dim, n_pages)


def _floats(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _bits(values: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)


class Queries:
    """Queries as the kernels have them, each 32 dims with a float32 scale of their own.

    Attributes:
        raw: uint8, what `attention` reads; values: float32, what that stands for.
    """

    def __init__(self, raw: np.ndarray, shape: tuple[int, ...], target: CpuTarget) -> None:
        self.target = target
        self.raw = raw
        count = int(np.prod(shape)) // 32
        blocks = raw[: count * self.block_bytes(target)].reshape(*shape[:-1], -1, raw_bytes(target))
        self.scales = blocks[..., :4].copy().view(np.float32)
        self.starts = blocks[..., 4:8].copy().view(np.int32)
        data = blocks[..., 8:].copy()
        if wide(target):
            words = data.view(np.int16).reshape(*data.shape[:-1], 8, 2, 2)
            # even dims of four, then the odd ones
            self.q = words.swapaxes(-1, -2).reshape(*data.shape[:-1], 32)
        else:
            self.q = data.view(np.int8).astype(np.int16)
        self.values = (self.q * self.scales).astype(np.float32).reshape(shape)

    @staticmethod
    def block_bytes(target: CpuTarget) -> int:
        return raw_bytes(target)

    @classmethod
    def of(cls, x: np.ndarray, target: CpuTarget) -> Queries:
        """float32 [tokens, heads, dim], quantized."""
        blocks = np.ascontiguousarray(x, np.float32).reshape(*x.shape[:-1], -1, 32)
        most = np.abs(blocks).max(axis=-1, keepdims=True)
        inverse = np.divide(np.float32(127), most, out=np.zeros_like(most), where=most > 0)
        q = np.rint(blocks * inverse).astype(np.int16)
        out = np.zeros((*blocks.shape[:-1], raw_bytes(target)), np.uint8)
        out[..., :4] = (most * np.float32(1 / 127)).astype(np.float32).view(np.uint8)
        zero = 0 if target.signed_bytes else 128
        out[..., 4:8] = (-zero * q.sum(-1, keepdims=True)).astype(np.int32).view(np.uint8)
        if wide(target):
            words = q.reshape(*q.shape[:-1], 8, 2, 2).swapaxes(-1, -2)
            out[..., 8:] = np.ascontiguousarray(words).reshape(q.shape).view(np.uint8)
        else:
            out[..., 8:] = q.astype(np.int8).view(np.uint8)
        return cls(out.reshape(-1), x.shape, target)


def raw_bytes(target: CpuTarget) -> int:
    """Bytes of 32 dims of a query."""
    return 8 + 32 * (2 if wide(target) else 1)
