"""Attention's two products over a bf16 cache by AMX tiles: 16 rows by 16 positions, or dims.

The cache lies as tiles want it: the keys of 16 positions are a tile for each 32 dims, and the
values of 32 positions a tile for each 16 dims (`kvcache.py`). Queries and probabilities are bf16
pairs, whose rows are the other side of a product.

All rows of a pass go this way, a single one, too: a product of tiles adds in an order of its own,
and with one way for all the bits of a row depend on nothing but that row and what it sees. Rows
that a tile has too many are computed in vain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from .. import amx
from ..amx import LEFT, RIGHT, ROWS, SUMS
from ..simd import Kernel, Ptr, Value, f32, i32
from .attention_float import Ahead, FloatRow, Following, Merge, RowAt, turn_values
from .kvcache import PAGE
from .tiles import for_tiles

LANES = 16
PAIRS = LANES  # of dims or positions that a tile is deep
LINE = 64  # bytes of a tile's row
TILE_WORDS = ROWS * LANES

RowTiles = Callable[[], Iterator[tuple[Value, int]]]
"""Loops over the tiles of rows; the code inside is emitted for each (first tile, tiles)."""


def padded(rows: int) -> int:
    """Round a number of rows up to whole tiles."""
    return -(-rows // ROWS) * ROWS


@contextmanager
def configured(k: Kernel) -> Iterator[None]:
    """Configure this thread's AMX tiles for the code inside."""
    amx.configure(k, LINE)
    yield
    amx.release(k)


class _Tiles:
    """What both products on AMX tiles have in common."""

    def __init__(self, k: Kernel) -> None:
        self.k = k

    def _tiled(
        self, rows: Value, count: Value, body: Callable[[Value, int, RowTiles], None]
    ) -> None:
        """Call `body(first, columns, row tiles)`: up to four columns of tiles at once for one tile
        of rows, else two for two."""
        k = self.k
        with k.if_(rows <= ROWS):
            for_tiles(k, count, 4, lambda first, columns: body(first, columns, self._one))
        with k.if_(rows > ROWS):
            by_two = partial(self._by_two, (rows + (ROWS - 1)) // ROWS)
            for_tiles(k, count, 2, lambda first, columns: body(first, columns, by_two))

    def _one(self) -> Iterator[tuple[Value, int]]:
        yield self.k.i64(0), 1

    def _by_two(self, tiles: Value) -> Iterator[tuple[Value, int]]:
        """Loop over pairs of row tiles, then the last one if the number is odd."""
        with self.k.range(0, tiles // 2 * 2, step=2, name="rows") as tile:
            yield tile, 2
        with self.k.if_((tiles % 2) > 0):
            yield tiles - 1, 1

    def _zero(self, sums: int) -> None:
        for n in range(sums):
            amx.zero(self.k, SUMS[n])

    def _multiply(self, right: Ptr, stride: int, n: int, tiles: int, columns: int) -> None:
        """Multiply column n by each tile of rows, which are loaded."""
        amx.load(self.k, RIGHT[n % 2], right, stride)
        for t in range(tiles):
            amx.dot_bf16(self.k, SUMS[t * columns + n], LEFT[t], RIGHT[n % 2])


class TileKeys(_Tiles):
    """Attention's products q k for one head size, on AMX tiles over bf16 keys."""

    def __init__(self, k: Kernel, head_dim: int, queries: Ptr) -> None:
        """Set up products; queries: scratch for a tile's rows."""
        super().__init__(k)
        self.queries, self.query_words = queries, head_dim // 2

    def qk(
        self, query: RowAt, keys: Ptr, scores: Ptr, rows: Value, count: Value, after: Following
    ) -> None:
        """Compute the scores as `FloatKeys.qk` does; `scores` has room for whole tiles."""
        k, words = self.k, self.query_words
        with k.range(0, rows, name="row") as row:
            line, mine = query(row), self.queries.at(row * words)
            for at in range(0, words, LANES):
                mine.store(at, line.load(at, LANES))
        ahead = Ahead.of(k, after)

        def block_tile(first: Value, blocks: int, row_tiles: RowTiles) -> None:
            for tile, tiles in row_tiles():
                self._zero(tiles * blocks)
                with k.range(0, words // PAIRS, name="dims") as d:
                    for t in range(tiles):
                        line = self.queries.at((tile + t) * (ROWS * words) + d * PAIRS)
                        amx.load(k, LEFT[t], line, 4 * words)
                    for n in range(blocks):
                        ahead.prefetch(LANES)
                        block = keys.at((first + n) * (LANES * words) + d * TILE_WORDS)
                        self._multiply(block, LINE, n, tiles, blocks)
                for t in range(tiles):
                    for n in range(blocks):
                        to = scores.at((tile + t) * (ROWS * PAGE) + (first + n) * LANES)
                        amx.store(k, SUMS[t * blocks + n], to, 4 * PAGE)

        self._tiled(rows, (count + (LANES - 1)) // LANES, block_tile)


class TileValues(_Tiles):
    """Attention's products p v for one head size, on AMX tiles over bf16 values."""

    def __init__(self, k: Kernel, head_dim: int, value_dim: int, piece: Ptr | None) -> None:
        """Set up products; piece: scratch for values that are dims of keys (`key_values.py`)."""
        super().__init__(k)
        self.value_dim, self.piece = value_dim, piece
        self.key_words = head_dim // 2
        self.prob_words = PAGE // 2
        self.sums = k.scratch(f32, len(SUMS) * TILE_WORDS)
        self.tail = k.scratch(i32, len(SUMS) * TILE_WORDS)

    def probabilities(self, scores: Ptr, out: Ptr, values: Ptr) -> FloatRow:
        """Return the writer of one row's probabilities, in the form that `pv` multiplies."""
        return _TileRow(self.k, out, pairs=True)

    def pv(
        self, probs: Ptr, values: Ptr, rows: Value, count: Value, merge: Merge, after: Following
    ) -> None:
        """Compute the products with the values as `FloatValues.pv` does."""
        k = self.k
        whole, part = count // (2 * PAIRS), count % (2 * PAIRS)
        ahead = Ahead.of(k, after)

        def dims_tile(first: Value, vectors: int, row_tiles: RowTiles) -> None:
            base, width = values.at(first * LANES), self.value_dim
            if self.piece is not None:
                base, width = self.piece, vectors * LANES
                turn_values(k, values, self.key_words, first, vectors, count, self.piece)
            with k.if_(part > 0):
                self._cut(base.at(whole * (PAIRS * width)), width, vectors, part)

            def step(tile: Value, tiles: int, s: Value, rows_of: Ptr, stride: int) -> None:
                for t in range(tiles):
                    line = probs.at((tile + t) * (ROWS * self.prob_words) + s * PAIRS)
                    amx.load(k, LEFT[t], line, 4 * self.prob_words)
                for n in range(vectors):
                    self._multiply(rows_of.at(n * LANES), stride, n, tiles, vectors)

            for tile, tiles in row_tiles():
                self._zero(tiles * vectors)
                with k.range(0, whole, name="positions") as s:
                    ahead.prefetch(LANES * vectors)
                    step(tile, tiles, s, base.at(s * (PAIRS * width)), 4 * width)
                with k.if_(part > 0):
                    step(tile, tiles, whole, self.tail, 4 * vectors * LANES)
                for n in range(tiles * vectors):
                    amx.store(k, SUMS[n], self.sums.at(n * TILE_WORDS), LINE)
                with k.range(tile * ROWS, ((tile + tiles) * ROWS).min(rows), name="row") as row:
                    here = row - tile * ROWS
                    mine = self.sums.at(here // ROWS * (vectors * TILE_WORDS) + here % ROWS * LANES)
                    add = merge.row(row)
                    for n in range(vectors):
                        add((first + n) * LANES, mine.load(n * TILE_WORDS, LANES))

        self._tiled(rows, k.i64(self.value_dim // LANES), dims_tile)

    def _cut(self, base: Ptr, width: int, vectors: int, part: Value) -> None:
        """Copy the last `part` values into whole tiles, zero-padded: a page may hold NaN there."""
        k, zero = self.k, self.k.zeros(i32, LANES)
        pairs, odd = (part + 1) // 2, (part % 2) > 0
        with k.range(0, pairs, name="last") as pair:
            half = odd & (pair + 1).eq(pairs)
            mask = half.select(k.const(0xFFFF, i32), k.const(-1, i32)).splat(LANES)
            for n in range(vectors):
                here = base.load(pair * width + n * LANES, LANES) & mask
                self.tail.store((pair * vectors + n) * LANES, here)
        with k.range(pairs * vectors, k.i64(PAIRS * vectors), name="none") as at:
            self.tail.store(at * LANES, zero)


class _TileRow(FloatRow):
    """One row's probabilities, zero-padded to whole tiles."""

    def finish(self, blocks: Value) -> Value:
        with self.k.if_((blocks % 2) > 0):
            self.out.store(blocks * (LANES // 2), self.k.zeros(i32, LANES // 2))
        return self.k.f32(1)
