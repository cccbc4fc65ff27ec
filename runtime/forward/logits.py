"""Greedy sampling: ops over the logits of a pass, and their buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import argmax
from ...jit.pool import aligned
from ...jit.tape import Tape

ROWS = 64  # of logits that a pass gives at most


def argmax_ops(tape: Tape, choice: OutputBuffers) -> None:
    """Add the ops of an argmax over the first row of logits, under its mask if there is one."""
    _ops(tape, choice, choice.zero, choice.all_parts, choice.one)


def argmax_rows_ops(tape: Tape, choice: OutputBuffers) -> None:
    """Add the ops of an argmax over consecutive rows of logits: see `OutputBuffers.rows`."""
    _ops(tape, choice, choice.first, choice.parts, choice.count)


def _ops(
    tape: Tape, choice: OutputBuffers, first: np.ndarray, parts: np.ndarray, count: np.ndarray
) -> None:
    mask, logits = choice.masks, choice.logits
    args = [logits, first, logits.shape[1], mask, mask.shape[1], choice.use_mask, choice.best,
            choice.where, choice.n_vocab]  # fmt: skip
    tape.op("argmax", spec(argmax.argmax_part), args, parts)
    final = [choice.best, choice.where, choice.tokens, first]
    tape.op("argmax.final", spec(argmax.argmax_final), final, count)


def greedy(logits: np.ndarray, mask: np.ndarray | None) -> int:
    """Return the argmax of a row of logits, float32 [n_vocab], in numpy; -1: none allowed."""
    usable = logits > argmax.NEVER
    if mask is not None:
        bits = np.unpackbits(mask.view(np.uint8), count=len(logits), bitorder="little")
        usable &= bits.astype(bool)
    return int(np.argmax(np.where(usable, logits, -np.inf))) if usable.any() else -1


class OutputBuffers:
    """Buffers of the output: logits of a pass, a grammar's mask for each, the chosen tokens."""

    def __init__(self, n_vocab: int, rows: int = ROWS) -> None:
        self.n_vocab = n_vocab
        step = 32 * argmax.PARTS
        self.hidden = np.empty((rows, 0), np.float32)
        """float32 [ROWS, padded width]: last hidden states of rows of `logits`, for a draft head;
        no columns without one."""
        self.logits = aligned((rows, -(-n_vocab // step) * step), np.float32)
        """float32 [ROWS, stride]: logits of the rows that want them, in their order."""
        self.masks = aligned((rows, -(-n_vocab // 512) * 16 + 16), np.uint32)
        """uint32 [ROWS, words]: a bit for each allowed token."""
        self.use_mask = aligned(rows, np.int64)
        """int64 [ROWS]: not 0 where the row's mask applies."""
        self._use = self.use_mask.data  # a number of its own at a third of numpy's price
        self.best = aligned((rows, argmax.PARTS), np.float32)
        self.where = aligned((rows, argmax.PARTS), np.int64)
        self.tokens = aligned(rows, np.int64)
        """int64 [ROWS]: the chosen tokens; -1 where none was allowed. `chosen`: a memory view of
        them, faster to read one by one."""
        self.chosen = self.tokens.data
        self.zero, self.first, self.parts, self.count = (aligned(8, np.int64)[:1] for _ in range(4))
        self.one, self.all_parts = np.array([1], np.int64), np.array([argmax.PARTS], np.int64)

    def set_masks(self, first: int, masks: Sequence[np.ndarray | None]) -> None:
        """Set the masks of the rows from `first` on: uint32 bits of allowed tokens; None: all."""
        for row, mask in enumerate(masks, first):
            self._use[row] = mask is not None
            if mask is not None:
                self.masks[row, : len(mask)] = mask

    def mask(self, row: int) -> np.ndarray | None:
        """Return the mask of a row; None: all tokens are allowed."""
        return self.masks[row] if self.use_mask[row] else None

    def rows(self, first: int, count: int) -> None:
        """Select the rows for the next run of `argmax_rows_ops`."""
        self.first[0], self.count[0], self.parts[0] = first, count, count * argmax.PARTS
