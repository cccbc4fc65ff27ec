"""Prefetching weights before they are needed.

A panel meets all tiles of tokens before the next one is read. So that memory is busy all the time
and not only during the first tile, every tile asks for its own share of the next panel.

A single tile reads on without a stop: it asks for what comes `NEAR` bytes later (K-quant decode
from DRAM on a Zen 5: 0.58 µs a panel; 0.72 with questions a whole panel ahead, 1.28 with none). One
or two tokens go through plain blocks faster than these arrive, and there what the hardware fetches
by itself is best (Q4_0: 37 GB/s for one thread, 30 with questions in between); K-quants read a
block in several strides, which it does not follow.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..simd import Kernel, Ptr, Value

LINE = 64
NEAR = 8192  # bytes; of 4, 8, 12 and a panel's 18 KiB the best for all formats


@dataclass(frozen=True, slots=True)
class TileIndex:
    """Which of how many tiles of a panel this is."""

    number: Value
    tiles: Value


class Prefetcher:
    """One tile's share of the questions."""

    def __init__(
        self,
        k: Kernel,
        panel: Ptr,
        following: Value,
        tile_index: TileIndex,
        asks: Value | None = None,
    ) -> None:
        """The next panel lies `following` bytes after this one. asks: whether to ask at all."""
        self.k = k
        self.tiles = tile_index.tiles
        self.panel = panel.at((self.tiles > 1).select(following, NEAR))
        # Pieces until the next of its own: counted down, as a division for each would cost more
        # than the questions.
        left = tile_index.number + 1
        self.left = k.var(left if asks is None else asks.select(left, 0))

    def prefetch(self, piece: Value, nbytes: int) -> None:
        """Ask for piece number `piece`, of `nbytes` bytes as all are, if it is this tile's.

        This tile's are its own number, that plus the number of tiles, ...; to be called for each
        piece in order.
        """
        left = self.left.value - 1
        self.left.set(left)
        with self.k.if_(left.eq(0)):
            self.left.set(self.tiles)
            for line in range(0, nbytes, LINE):
                self.panel.prefetch(piece * nbytes + line)
