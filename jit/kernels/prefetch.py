"""Prefetch of weights ahead of their use.

A panel meets all tiles of tokens before the next one is read. So that memory is busy all the time
and not only during the first tile, every tile prefetches its own share of the next panel.

A single tile reads on without a stop: it prefetches what comes `near` bytes later (K-quant decode
from DRAM on a Zen 5: 0.58 µs a panel; 0.72 with prefetches a whole panel ahead, 1.28 without). One
or two tokens go through plain blocks faster than these arrive, and there what the hardware fetches
by itself is best (Q4_0: 37 GB/s for one thread, 30 with prefetches); K-quants read a
block in several strides, which it does not follow.

On a Xeon with AMX it is otherwise: decode of the 0.6B shape takes 0.78 (Q4_0) and 0.70 (Q4_K_M) of
the time if it prefetches what comes 2 KiB later, with two threads. 1 KiB does as well, 1.5 half as
well; 3, 8 and 12 do no better than no prefetches. On a Zen 4 they make no difference, or a pass of
few tokens slower (Q4_0: decode 0.92 to 1.00, two tokens 0.91 to 0.96).

A Xeon without AMX gains as much, whatever the feature set (Emerald Rapids, 8 KiB ahead, one token
in Q4_0: 0.66 of the time with SSE, 0.75 with AVX2, 0.78 with AVX-512), and into L2 a little more
with 512 bits. So whose CPU it is decides, not what it can do.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from ..simd import Kernel, Ptr, Value
from ..targets import CpuTarget

LINE = 64
SILENT = 2  # tokens up to which AMD's CPUs fetch plain blocks best by themselves


def near(target: CpuTarget) -> int:
    """Return a single tile's prefetch distance in bytes; a Zen 5: best of 4, 8, 12 and 18 KiB."""
    return 2048 if target.has_amx else 8192


def silent(target: CpuTarget) -> int:
    """Return the maximum tokens for which a single tile of plain blocks prefetches nothing."""
    return 0 if target.has_amx or target.intel else SILENT


def locality(target: CpuTarget) -> int:
    """Return the cache level of prefetches, as in `Ptr.prefetch`; with AMX L2 was not tried."""
    return 2 if target.intel and target.lanes == 16 and not target.has_amx else 3


@dataclass(frozen=True, slots=True)
class Pieces:
    """The parts of a panel, of equal sizes, before each of which a tile prefetches."""

    count: Value | int
    nbytes: int

    @property
    def lines(self) -> int:
        """Number of cache lines of a piece."""
        return -(-self.nbytes // LINE)


@dataclass(frozen=True, slots=True)
class TileIndex:
    """A tile's index among the tiles of a panel."""

    number: Value
    tiles: Value
    lines: Value
    """Lines that the tile prefetches of the next panel before each piece of its own."""


class Prefetcher:
    """The prefetcher of one tile: its share of the next panel, or what a single tile reads next.

    A share is a run of lines without gaps, which the hardware's streamer follows: 13 tokens from
    DRAM run 1.05 to 1.16 times as fast as if each tile prefetched every second piece (two threads
    of an Ice Lake, Q8_0, Q5_0, Q4_K, Q6_K).
    """

    def __init__(
        self,
        k: Kernel,
        panel: Ptr,
        following: Value,
        index: TileIndex,
        pieces: Pieces,
        enabled: Value | None = None,
    ) -> None:
        """Set up; the next panel is `following` bytes after this one. enabled: False for none."""
        self.k, self.panel, self.pieces = k, panel, pieces
        self.single = index.tiles.eq(1)
        if enabled is not None:
            self.single = self.single & enabled
        # Where there are more tiles than lines in a piece the last ones have nothing to prefetch.
        shared = (index.tiles > 1) & (index.number * index.lines < pieces.lines)
        self.lines = shared.select(index.lines, 0)
        self.following = following + index.number * pieces.count * (index.lines * LINE)

    def prefetch(self, piece: Value) -> None:
        """Prefetch what belongs to piece `piece` of this tile's panel."""
        level = locality(self.k.target)
        with self.k.if_(self.single):
            ahead = self.panel.at(piece * self.pieces.nbytes + near(self.k.target))
            for line in range(self.pieces.lines):
                ahead.prefetch(line * LINE, level)
        start = self.panel.at(self.following + piece * (self.lines * LINE))
        # Nested, not a loop: around that LLVM would keep the sums of a tile in memory.
        with ExitStack() as inside:
            for line in range(-(-self.pieces.lines // 2)):
                inside.enter_context(self.k.if_(self.lines > line))
                start.prefetch(line * LINE, level)
