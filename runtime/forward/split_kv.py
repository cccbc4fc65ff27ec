"""A pass whose attention is shared out by parts of the KV cache, not by KV heads alone.

For few tokens of a model with fewer KV heads than threads, or with a number of them that does not
come out even. It costs two barriers a layer in decode, one in a prefill, and memory for the parts'
results, which grows with the KV length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...jit.compile import spec
from ...jit.kernels.attention import scratch_bytes
from ...jit.kernels.kvcache import PAGE
from ...jit.kernels.split_kv import attention_partial, attention_reduce, entries_of
from ...jit.pool import aligned
from ...jit.tape import DYNAMIC, STATIC
from .batch import Span
from .graph import GraphBuilder, Tiling
from .tensors import Activation, AttentionSpec, HeadShape

TOKENS = 32  # of a pass at most: more have work for all threads
MOST_BYTES = 64 << 20  # of parts' results; reserved at once, touched as the KV length grows


class _Entries:
    """What `attention_partial` does in layers of one window: entries, their number, units."""

    def __init__(self, most: int) -> None:
        self.entries = aligned((most, 2), np.int64)
        self.count, self.units = aligned(8, np.int64)[:1], aligned(8, np.int64)[:1]

    def set(self, entries: np.ndarray, kv_heads: int) -> None:
        self.entries[: len(entries)] = entries
        self.count[0], self.units[0] = len(entries), len(entries) * kv_heads


class SplitKVGraph(GraphBuilder):
    """See above.

    Attributes:
        most_rows: part rows (a token's head in a chunk) for whose results there is memory.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        chunks = self.kv.capacity // PAGE
        least = self.most_tokens * self.heads.heads
        self.most_rows = max(least, min(chunks * least, MOST_BYTES // (self.heads.out_dim * 4)))
        self._most_entries = chunks * self.most_tokens
        self._parts: dict[tuple[HeadShape, int], _Entries] = {}  # by heads and window
        self._merged: dict[HeadShape, np.ndarray] = {}

    def fits(self, spans: Sequence[Span]) -> bool:
        """Whether a pass has few enough rows, and little enough cache before them."""
        ends = [(len(span.ids), -(-(span.start + len(span.ids)) // PAGE)) for span in spans]
        rows = sum(count * chunks for count, chunks in ends) * self.heads.heads
        return sum(count for count, _ in ends) <= self.most_tokens and rows <= self.most_rows

    def set_pass(self, spans: Sequence[Span], panels: np.ndarray | None = None) -> None:
        super().set_pass(spans, panels)
        for (h, window), parts in self._parts.items():
            tiling = self.tilings[h]
            tiles = tiling.tiles[: int(tiling.units[0]) // h.kv_heads]
            parts.set(entries_of(tiles, h.heads, window)[1], h.kv_heads)
        for h, merged in self._merged.items():
            merged[0] = sum(len(span.ids) for span in spans) * h.heads

    def _attention(
        self,
        sizes: dict[str, Any],
        rule: AttentionSpec,
        inputs: list[Any],
        out: Activation,
        tiling: Tiling,
        sinks: np.ndarray | None,
    ) -> None:
        # A head's keys are read by other threads than the one that rotated them.
        self.tape.ops[-1].barrier = True
        h, window = tiling.heads, rule.window
        assert h.heads <= self.heads.heads, "there is room for the parts of the usual heads"
        parts = self.buffers.get("attention.parts", self.most_rows, h.out_dim)
        stats = self.buffers.get("attention.stats", self.most_rows, 4)
        scratch = self.scratch("scores", scratch_bytes(h.group, h.out_dim))
        if (h, window) not in self._parts:
            self._parts[h, window] = _Entries(self._most_entries)
            self._merged.setdefault(h, aligned(8, np.int64)[:1])
        found = self._parts[h, window]
        self.tape.op(
            "attention",
            spec(attention_partial, **sizes, window=window, cap=rule.cap),
            [*inputs, parts, stats, scratch, tiling.tiles, found.entries, found.count],
            found.units,
            mode=STATIC if self.decode else DYNAMIC,
        )
        shape = {key: value for key, value in sizes.items() if key != "kv"}
        if sinks is not None:
            shape["sink"] = True
        self.tape.op(
            "attention.merge",
            spec(attention_reduce, **shape, window=window),
            [parts, stats, out.data, out.stride, scratch, tiling.tiles, tiling.rows,
             self.kv.tables[0][0] if sinks is None else sinks],
            self._merged[h],
        )  # fmt: skip
