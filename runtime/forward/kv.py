"""The KV cache of one session: pages of 256 positions, made as the context grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...jit.kernels.kvcache import PAGE, KVFormat, page_bytes
from ...jit.pool import aligned
from ..memory import Arena


class KVCache:
    """Pages and their table.

    Attributes:
        format: ``bf16``, ``q8`` or ``f32``.
        capacity: positions the table has room for, a multiple of 256.
        pages: int64 [capacity / 256], addresses that kernels read.
        tables: rotary tables, cos and sin of each: float32 [capacity, rotated dims / 2].
    """

    def __init__(
        self,
        format_: KVFormat,
        layers: int,
        kv_heads: int,
        head_dim: int,
        context: int,
        tables: Sequence[tuple[np.ndarray, np.ndarray]],
    ) -> None:
        self.format: KVFormat = format_
        self.capacity = -(-context // PAGE) * PAGE
        self.page_bytes = page_bytes(format_, layers, kv_heads, head_dim)
        self.bytes_per_position = self.page_bytes / PAGE
        self.pages = aligned(max(8, self.capacity // PAGE), np.int64)
        self.tables = tables
        self._arenas: list[Arena] = []

    def reserve(self, positions: int) -> None:
        """Make sure that positions 0 … positions - 1 have a page."""
        while len(self._arenas) * PAGE < positions:
            arena = Arena(self.page_bytes)
            self.pages[len(self._arenas)] = arena.take(self.page_bytes).ctypes.data
            self._arenas.append(arena)

    @property
    def nbytes(self) -> int:
        """Bytes of the pages made so far."""
        return sum(arena.nbytes for arena in self._arenas)
