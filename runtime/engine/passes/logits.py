"""Logits of a pass, which are copied before another pass overwrites them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from ...forward.logits import OutputBuffers


@dataclass(eq=False, slots=True)
class Logits:
    """The logits of one sequence from one pass.

    They lie in the engine's buffers, which all passes share. Before another pass overwrites them
    they are copied, unless they were released.
    """

    buffers: OutputBuffers = field(repr=False)
    """The engine's output buffers."""
    first: int
    """First row in `buffers`; -1: the rows were copied."""
    count: int
    """Number of rows."""
    tokens: list[int]
    """Tokens that the pass chose in the first rows; -1: none could be chosen."""
    released: bool = False
    """Whether the logits are no longer needed."""
    copies: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    """Copies of `rows` and `hidden`, once made."""

    @property
    def rows(self) -> np.ndarray:
        """Logits: float32 [count, n_vocab], valid until the next pass of the engine."""
        if self.copies is not None:
            return self.copies[0]
        rows = slice(self.first, self.first + self.count)
        return self.buffers.logits[rows, : self.buffers.n_vocab]

    @property
    def hidden(self) -> np.ndarray:
        """Hidden states: float32 [count, width], valid as `rows`; see `OutputBuffers.hidden`."""
        if self.copies is not None:
            return self.copies[1]
        return self.buffers.hidden[self.first : self.first + self.count]

    def copy(self, rows: slice = slice(-1, None)) -> Logits:
        """Copy the last row, or others, to outlive the pass; safe while other threads run passes.

        `make_room` comes before the pass that overwrites them: if they are where they were, what
        was copied is whole.
        """
        while True:
            first = self.first
            found = self.rows[rows].copy(), self.hidden[rows].copy()
            if self.first == first:
                return Logits(self.buffers, -1, len(found[0]), [], copies=found)

    def make_room(self) -> None:
        """Copy the logits, as another pass is about to overwrite them."""
        self.copies, self.first = (self.rows.copy(), self.hidden.copy()), -1
