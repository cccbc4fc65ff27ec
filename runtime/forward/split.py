"""A pass whose attention is shared out by parts of the KV cache, not by KV heads alone.

For few tokens of a model with fewer KV heads than threads, or with a number of them that does not
come out even. It costs two barriers a layer in decode, one in a prefill, and memory for the parts'
results, which grows with the KV length.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...jit.compile import spec
from ...jit.kernels.attention import scratch_bytes, token_tile
from ...jit.kernels.attention_split import attention_merge, attention_parts, chunks
from ...jit.kernels.kvcache import PAGE
from ...jit.pool import aligned
from ...jit.tape import DYNAMIC, STATIC
from .graph import Graph
from .rows import AttentionRule, Row

TOKENS = 32  # of a pass at most: more have work for all threads
MOST_BYTES = 64 << 20  # of parts' results; reserved at once, touched as the KV length grows


class SplitGraph(Graph):
    """See above.

    Attributes:
        most_chunks: of the cache, for whose results there is memory.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rows = self.most_tokens * self.heads.heads
        each = self._rows * self.heads.head_dim * 4
        self.most_chunks = max(1, min(self.kv.capacity // PAGE, MOST_BYTES // each))
        self._parts: dict[int, np.ndarray] = {}  # units by window
        self._merged = aligned(1, np.int64)

    def fits(self, tokens: int, start: int) -> bool:
        """Whether a pass is short enough, and the cache before it."""
        return tokens <= self.most_tokens and chunks(tokens, start) <= self.most_chunks

    def set_pass(
        self, tokens: int, start: int, outputs: int, panels: np.ndarray | None = None
    ) -> None:
        super().set_pass(tokens, start, outputs, panels)
        tiles = -(-tokens // token_tile(self.heads.group))
        for window, units in self._parts.items():
            units[0] = tiles * self.heads.kv_heads * chunks(tokens, start, window)
        self._merged[0] = tokens * self.heads.heads

    def _attention(
        self, sizes: dict[str, Any], rule: AttentionRule, inputs: list[Any], out: Row
    ) -> None:
        # A head's keys are read by other threads than the one that rotated them.
        self.tape.ops[-1].barrier = True
        h, window = self.heads, rule.window
        rows = self.most_chunks * self._rows
        parts = self.buffers.get("attention.parts", rows, h.head_dim)
        stats = self.buffers.get("attention.stats", rows, 4)
        scratch = self.scratch("scores", scratch_bytes(h.group, h.head_dim))
        if window not in self._parts:
            self._parts[window] = aligned(1, np.int64)
        self.tape.op(
            "attention",
            spec(attention_parts, **sizes, window=window, cap=rule.cap),
            [*inputs, parts, stats, self._rows, scratch, self.state],
            self._parts[window],
            mode=STATIC if self.decode else DYNAMIC,
        )
        shape = {key: value for key, value in sizes.items() if key != "kv"}
        self.tape.op(
            "attention.merge",
            spec(attention_merge, **shape, window=window),
            [parts, stats, self._rows, out.data, out.stride, scratch, self.state],
            self._merged,
        )
