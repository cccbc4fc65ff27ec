"""Asking for weights before they are needed.

A panel meets all tiles of tokens before the next one is read. So that memory is busy all the time
and not only during the first tile, every tile asks for its own share of the next panel.

A single tile reads on without a stop: it asks for what comes `NEAR` bytes later (K-quant decode
from DRAM on a Zen 5: 0.58 µs a panel; 0.72 with questions a whole panel ahead, 1.28 with none). One
or two tokens go through plain blocks faster than these arrive, and there what the hardware fetches
by itself is best (Q4_0: 37 GB/s for one thread, 30 with questions in between); K-quants read a
block in several strides, which it does not follow.
"""

from __future__ import annotations

from ..simd import Kernel, Ptr, V

LINE = 64
NEAR = 8192  # bytes; of 4, 8, 12 and a panel's 18 KiB the best for all formats


class Ahead:
    """One tile's share of the questions."""

    def __init__(
        self,
        k: Kernel,
        panel: Ptr,
        following: V,
        count: V,
        first: V,
        most: int,
        *,
        silent: int = 0,
    ) -> None:
        """For the tile that starts at token `first` of `count`, cut as `for_tiles` cuts.

        The next panel lies `following` bytes after this one. Up to `silent` tokens nothing is
        asked for.
        """
        self.k = k
        self.tiles = (count + (most - 1)) // most
        self.panel = panel.at((self.tiles > 1).select(following, NEAR))
        turn = (first * self.tiles + (count - 1)) // count
        self.turn = (count > silent).select(turn, -1) if silent else turn

    def ask(self, piece: V, nbytes: int) -> None:
        """Ask for piece number `piece`, of `nbytes` bytes as all are, if it is this tile's.

        This tile's are `turn`, `turn` + `tiles`, ...
        """
        with self.k.if_((piece % self.tiles).eq(self.turn)):
            for line in range(0, nbytes, LINE):
                self.panel.prefetch(piece * nbytes + line)
