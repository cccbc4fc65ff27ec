"""Partition of a pass's tokens into register tiles, for products and attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from ..dot import few_registers
from ..simd import Kernel, Ptr, Value, Var, f32, i16
from ..targets import CpuTarget
from .epilogue import Epilogue, apply_epilogue, prefetch_outputs
from .mathlib import f16_to_f32
from .panels_k import offsets
from .prefetch import LINE, Pieces, Prefetcher, TileIndex

RowPointers = Callable[[Value, int], tuple[list[Ptr], list[Ptr]]]
"""(first, tokens) -> the addresses of these rows of x, and of these rows of out."""

Sums = list[list[Var]]
"""For each row of x, the running sums of both halves of a panel."""

TileGemm = Callable[[Ptr, Value, Value, RowPointers, Value], None]
"""Emits one panel's product: (panel, bytes from there to the next panel, number of rows, their
addresses, the panel's column of out counted in panels)."""


def tile_tokens(target: CpuTarget) -> int:
    """Return the tokens of a register tile of two vectors: their sums take four registers each.

    Measured on a Zen 5: with 32 registers 6 ran at 0.82 of the int8 peak, 5 and 7 at 0.82 and 0.79;
    with 16, 3 for a dot product of one instruction and 2 where it needs registers in between.
    """
    if target.registers >= 32:
        return 6
    return 2 if target.dot == "maddubs" else 3


def quant_tile_tokens(target: CpuTarget) -> int:
    """Return the tokens of a tile for quantized weights, four of which fit in 16 registers, too.

    There the sums of a block spill, but its weights are unpacked for more tokens. AVX2 on a Zen 4:
    four tokens take 0.74 to 0.85 (Q2_K, Q3_K, IQ3, IQ2, IQ1) of the time of two tiles of two or
    three, 252 take 0.92 to 0.98.
    """
    return 4 if few_registers(target) else tile_tokens(target)


def few_tile_tokens(target: CpuTarget) -> int:
    """Return the tokens of a tile in passes of few, whose weights each tile unpacks anew.

    13 tokens from a core's own cache run 1.03 to 1.13 times as fast in tiles of 7 and 6 as in those
    of 5, 4 and 4 (an Ice Lake; 36 take the same time). On AMD's CPUs it was not measured.
    """
    wide = target.intel and target.registers >= 32 and target.dot == "vpdpbusd"
    return quant_tile_tokens(target) + wide


def single_tile_tokens(target: CpuTarget) -> int:
    """Return the maximum tokens that are one tile by themselves, though sums exceed the registers.

    Measured on a Cascade Lake: one tile of 7, 8, 9 tokens in place of two runs 1.25, 1.17 and 1.11
    times as fast with Q4_0 from a core's own cache, 1.5 times with Q8_0. A small tile waits for its
    own sums, and each tile unpacks the weights anew. On a Zen 5 and on aarch64 it was not measured.
    """
    alone = target.registers >= 32 and target.dot in ("vpdpbusd", "sdot", "usdot")
    return 9 if alone else quant_tile_tokens(target)


def rows_in_order(x: Ptr, x_stride: Value | int, out: Ptr, out_stride: Value) -> RowPointers:
    """Return a function that maps tiles to consecutive rows of x and out."""

    def pointers(first: Value, tokens: int) -> tuple[list[Ptr], list[Ptr]]:
        # One address for all rows: with the depth constant, a row is a displacement.
        start = x.at(first * x_stride)
        rows = [start.at(t * x_stride) for t in range(tokens)]
        return rows, [out.at((first + t) * out_stride) for t in range(tokens)]

    return pointers


def for_tiles(
    k: Kernel, count: Value, max_tile: int, body: Callable[[Value, int], None], min_tile: int = 1
) -> None:
    """Split `count` tokens into the fewest tiles of at most `max_tile`, as equal as possible.

    `body(first, tokens)` is emitted once for each tile size; 8 tokens become 4 + 4, not 7 + 1,
    since a tile costs nearly the same whatever its size. `min_tile` is at most the smallest tile
    (there are none below `max_tile` - 1 from (max_tile - 1)^2 tokens on).
    """
    for_numbered_tiles(
        k,
        count,
        k.i64(max_tile),
        lambda first, tokens, _: body(first, tokens),
        (min_tile, max_tile),
    )


def for_numbered_tiles(
    k: Kernel,
    count: Value,
    max_tile: Value,
    body: Callable[[Value, int, TileIndex], None],
    sizes: tuple[int, int],
    max_single_tile: int = 0,
    lines: int = 0,
    alone: int = 0,
) -> None:
    """Split tokens as `for_tiles` does, but up to `max_single_tile` are one; pass a `TileIndex`.

    sizes: the smallest and the largest tile that there can be; lines: of a piece of a panel; alone:
    tiles of fewer tokens are always the only one.
    """
    # One division for all tiles: on some CPUs it takes as long as dozens of dot products.
    tiles = (count + (max_tile - 1)) // max_tile
    if max_single_tile:
        tiles = (count <= max_single_tile).select(count.min(1), tiles)
    size = count // tiles.max(1)
    each = (tiles + (lines - 1)) // tiles.max(1)
    larger = count - size * tiles  # so many tiles, the first ones, have a token more
    next_first = k.var(k.i64(0))
    with k.range(0, tiles, name="tile") as n:
        first, tokens = next_first.value, size + (n < larger).select(k.i64(1), 0)
        next_first.set(first + tokens)
        for size_here in range(sizes[0], sizes[1] + 1):
            with k.if_(tokens.eq(size_here)):
                only = size_here < alone
                index = TileIndex(k.i64(0), k.i64(1), each) if only else TileIndex(n, tiles, each)
                body(first, size_here, index)


class PanelTile(ABC):
    """The register tile of one weight format; `blocks`: blocks of a panel, along K."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int | Value) -> None:
        self.k, self.fmt, self.blocks, self.lanes = k, fmt, blocks, k.lanes
        self.epilogue: Epilogue = epilogue

    @property
    @abstractmethod
    def pieces(self) -> Pieces:
        """The pieces of a panel that `products` prefetches one by one."""

    def unpack(self, panel: Ptr, scratch: Ptr) -> None:
        """Unpack a panel's weights to bytes, for all tiles to read; not for floats."""
        raise NotImplementedError(self.fmt)

    @abstractmethod
    def products(
        self, panel: Ptr, prefetcher: Prefetcher, rows: list[Ptr], sums: Sums, unpacked: Ptr | None
    ) -> None:
        """Add the products of `rows` with a panel to `sums`; from `unpacked` if given."""

    def emit(
        self,
        panel: Ptr,
        prefetcher: Prefetcher,
        rows: list[Ptr],
        outs: list[Ptr],
        unit: Value,
        unpacked: Ptr | None,
    ) -> None:
        """Multiply `rows` by a panel and apply the epilogue."""
        sums = [[self.k.var(self.k.zeros(f32, self.lanes)) for _ in range(2)] for _ in rows]
        prefetch_outputs(self.k, self.epilogue, outs, unit)
        self.products(panel, prefetcher, rows, sums, unpacked)
        apply_epilogue(self.k, self.epilogue, sums, outs, unit)


class SuperTile(PanelTile):
    """The register tile of a format whose blocks have 256 values of each row (`panels_k.py`)."""

    def __init__(self, k: Kernel, fmt: str, epilogue: Epilogue, blocks: int) -> None:
        super().__init__(k, fmt, epilogue, blocks)
        self.at = offsets(fmt, k.lanes)
        """Byte offsets of the parts of a panel's block, by name."""

    @property
    def pieces(self) -> Pieces:
        """Eight pieces of each block, one with each activation block."""
        return Pieces(self.blocks * 8, -(-self.at["end"] // (8 * LINE)) * LINE)

    def _half_floats(self, data: Ptr, part: str, half: int) -> Value:
        bits = data.at(self.at[part]).cast(i16).load(half * self.lanes, self.lanes)
        return f16_to_f32(self.k, bits)
