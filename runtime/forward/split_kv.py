"""Split-KV passes: attention is divided by chunks of the KV cache, not by KV heads alone.

For few tokens of a model with fewer KV heads than threads, or with a number of them that does not
come out even. It costs two barriers a layer in decode, one in a prefill, and memory for the parts'
results, which grows with the KV length.

The idea is that of Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023).
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
from . import descriptor
from .batch import Span
from .descriptor import Tiling
from .graph import GraphBuilder
from .tensors import Activation, AttentionSpec, HeadShape

TOKENS = 32  # of a pass at most: more have work for all threads
MAX_BYTES = 64 << 20  # of parts' results; reserved at once, touched as the KV length grows


class SplitKVGraph(GraphBuilder):
    """A graph whose attention splits the KV cache over threads, as Flash-Decoding does."""

    parts_shared_out = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        chunks = self.kv.capacity // PAGE
        min_rows = self.max_tokens * self.heads.heads
        self.max_rows = max(min_rows, min(chunks * min_rows, MAX_BYTES // (self.heads.out_dim * 4)))
        """Maximum part rows (a token's head in a chunk): there is memory for their results."""
        self._max_entries = chunks * self.max_tokens
        # Entries and which count their number is, by heads and window.
        self._parts: dict[tuple[HeadShape, int], tuple[np.ndarray, int]] = {}

    def fits(self, spans: Sequence[Span]) -> bool:
        """Return whether a pass's rows and KV lengths fit the memory for part rows."""
        ends = [(len(span.ids), -(-(span.start + len(span.ids)) // PAGE)) for span in spans]
        rows = sum(count * chunks for count, chunks in ends) * self.heads.heads
        return sum(count for count, _ in ends) <= self.max_tokens and rows <= self.max_rows

    def _entries(self, tiling: Tiling, window: int) -> tuple[np.ndarray, int]:
        """Return the work of `attention_partial` for one window: int64 [max_entries, 2], count."""
        entries, heads = aligned((self._max_entries, 2), np.int64), tiling.heads.heads

        def describe(_: Sequence[Span], counts: Sequence[int]) -> int:
            found = entries_of(tiling.tiles[: tiling.table.entries], heads, window)[1]
            entries[: len(found)] = found
            return len(found)

        return entries, self.counted(describe)

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
        assert not rule.first, "positions that nobody sees are no matter of these kernels"
        assert h.heads <= self.heads.heads, "there is room for the parts of the usual heads"
        parts = self.buffers.get("attention.parts", self.max_rows, h.out_dim)
        stats = self.buffers.get("attention.stats", self.max_rows, 4)
        scratch = self.scratch("scores", scratch_bytes(h.group, h.head_dim, h.value_dim))
        if (h, window) not in self._parts:
            self._parts[h, window] = self._entries(tiling, window)
        entries, count = self._parts[h, window]
        self.tape.op(
            "attention",
            spec(attention_partial, **sizes, window=window, cap=rule.cap),
            [*inputs, parts, stats, scratch, tiling.tiles, tiling.rows, entries,
             self.units(count), self.kv.centers[rule.table or 0]],
            self.units(count, h.kv_heads),
            mode=STATIC if self.decode else DYNAMIC,
        )  # fmt: skip
        shape = {key: value for key, value in sizes.items() if key not in ("kv", "centered")}
        if sinks is not None:
            shape["sink"] = True
        self.tape.op(
            "attention.merge",
            spec(attention_reduce, **shape, window=window),
            [parts, stats, out.data, out.stride, scratch, tiling.tiles, tiling.rows,
             self.kv.tables[0][0] if sinks is None else sinks],
            self.units(descriptor.TOKENS, h.heads),
        )  # fmt: skip
