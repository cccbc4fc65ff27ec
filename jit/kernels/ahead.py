"""Asking for the next panel while this one is worked on.

A panel meets all tiles of tokens before the next one is read. So that memory is busy all the time
and not only during the first tile, every tile asks for its own share of the next panel.
"""

from __future__ import annotations

from ..simd import Kernel, Ptr, V

LINE = 64


class Ahead:
    """One tile's share: the pieces `turn`, `turn` + `tiles`, ... of the panel at `panel`."""

    def __init__(self, k: Kernel, panel: Ptr, count: V, first: V, most: int) -> None:
        """For the tile that starts at token `first` of `count`, cut as `for_tiles` cuts."""
        self.k, self.panel = k, panel
        self.tiles = (count + (most - 1)) // most
        self.turn = (first * self.tiles + (count - 1)) // count

    def ask(self, piece: V, nbytes: int) -> None:
        """Ask for piece number `piece`, of `nbytes` bytes as all are, if it is this tile's."""
        with self.k.if_((piece % self.tiles).eq(self.turn)):
            for line in range(0, nbytes, LINE):
                self.panel.prefetch(piece * nbytes + line, locality=2)
