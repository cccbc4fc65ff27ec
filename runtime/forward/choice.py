"""The choice of the next token: ops over the logits of the last one, and their buffers."""

from __future__ import annotations

import numpy as np

from ...jit.compile import spec
from ...jit.kernels import argmax
from ...jit.pool import aligned
from ...jit.tape import Tape
from .graph import ONE, PARTS


def choose_ops(
    tape: Tape, state: np.ndarray, choice: Choice, logits: np.ndarray, row: np.ndarray
) -> None:
    """Greedy choice among one row of `logits`, under the mask if there is one.

    logits: float32 [rows, stride of the choice's own]; row: int64 [1], which of them, read when it
    is played.
    """
    part_args = [logits, row, logits.shape[1], choice.mask, choice.use_mask, choice.best,
                 choice.where, choice.n_vocab]  # fmt: skip
    tape.op("argmax", spec(argmax.argmax_part), part_args, state[PARTS : PARTS + 1])
    final = [choice.best, choice.where, choice.token]
    tape.op("argmax.final", spec(argmax.argmax_final), final, state[ONE : ONE + 1])


class Choice:
    """Buffers of the output: logits of the last token, the grammar's mask, the chosen token."""

    def __init__(self, n_vocab: int) -> None:
        self.n_vocab = n_vocab
        step = 32 * argmax.PARTS
        self.logits = aligned((1, -(-n_vocab // step) * step), np.float32)
        self.mask = aligned(-(-n_vocab // 32) + 16, np.uint32)
        self.use_mask = aligned(8, np.int64)
        self.best = aligned(argmax.PARTS, np.float32)
        self.where = aligned(argmax.PARTS, np.int64)
        self.token = aligned(8, np.int64)
