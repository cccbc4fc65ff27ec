"""Products of many tokens with AMX tiles: bit-identical to `gemm.py`, and faster.

A block of 32 along K gives the sums of 16 tokens and half a panel in one product of tiles, exact in
int32; what comes after is what `gemm_blocks.py` does with its sums, in the same order.

A panel is taken in chunks of K whose weights, unpacked to signed bytes without their zero point,
stay in the L1 cache; all tiles of tokens go through a chunk before the next, and their float sums
wait in memory of the thread's own.

The activations of 16 tokens lie together for this (`arrange`), `TILE_BYTES` for each block of 32:

    16 x 32 int8, 16 x float32 scale, 16 x what stands behind the scale in a block, as float32

Passes of few tokens, and tokens that fill no tile, go the way of `gemm.py`.

What bounds it is not the product of tiles (5.3 ns on the Xeon that was tried), but what follows it:
while tiles are at work such a core does one FMA of 512 bits in a cycle, not two, but still two
additions: so the sums become floats by an addition (see `gemm_blocks.py`), and two FMAs for each
token are left. A block takes 20 ns where the VNNI kernel takes 33. K-quants were tried and are not
here: the mins of their blocks take more FMAs than tiles save (0.8 to 1.0 times as fast).
"""

from __future__ import annotations

from .. import amx
from ..amx import LEFT, RIGHT, ROWS, SUMS
from ..simd import I64, F32s, I8s, I64s, Kernel, Ptr, Value, Var, f32, i8, i16, i32, kernel
from ..targets import CpuTarget
from .activations import BLOCK_BYTES
from .epilogue import GATES, Epilogue, apply_epilogue
from .gemm import tile_gemm
from .gemm_blocks import block_scales, k_groups
from .mathlib import f16_to_f32
from .panels import FORMATS, SUM_BASE, SUM_BASE_BITS
from .tiles import RowPointers, rows_in_order

TAKEN = ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4")
FROM = 48  # tokens that tiles pay for
MIN_PER_TILE = 10  # tokens that one more tile pays for
DEPTH = 32  # of a product: a block
SCALES_AT = ROWS * DEPTH
FIELDS_AT = SCALES_AT + ROWS * 4
TILE_BYTES = FIELDS_AT + ROWS * 4
VECTOR = 64  # bytes
HALF_BLOCK = DEPTH // 4 * VECTOR  # bytes of the unpacked weights of a block of half a panel
GROUP = len(SUMS)  # blocks that are on their way at once
CHUNK = 4 * GROUP  # blocks whose weights are unpacked at once
# Where things lie in a thread's own memory.
WEIGHTS_AT = 0
FACTORS_AT = WEIGHTS_AT + 2 * CHUNK * HALF_BLOCK  # scales
MINS_AT = FACTORS_AT + 2 * CHUNK * VECTOR
SUMS_AT = MINS_AT + 2 * CHUNK * VECTOR
TOTALS_AT = SUMS_AT + GROUP * ROWS * VECTOR


def takes(fmt: str, target: CpuTarget) -> bool:
    """Return whether `gemm_amx` supports panels of `fmt`."""
    return target.has_amx and fmt in TAKEN


def scratch_bytes(tokens: int) -> int:
    """Return the bytes of scratch of one thread for up to `tokens` tokens."""
    return TOTALS_AT + -(-tokens // ROWS) * ROWS * 2 * VECTOR


def tiles_bytes(tokens: int, blocks: int) -> int:
    """Return the bytes of the arranged activations of `tokens` rows of `blocks` blocks."""
    return -(-tokens // ROWS) * blocks * TILE_BYTES


@kernel
def arrange(k: Kernel, x: I8s, tiles: I8s, blocks: I64, count: I64s) -> None:
    """Rearrange rows of quantized blocks for tiles; unit = row of x [rows, blocks, 40].

    Nothing is done if there are fewer rows (`count[0]`) than tiles pay for.
    """
    with k.if_(count.load(0) >= FROM), k.units() as unit:
        source = x.at(unit * (blocks * BLOCK_BYTES))
        row = unit % ROWS
        target = tiles.at(unit // ROWS * (blocks * TILE_BYTES))
        with k.range(0, blocks, name="block") as block:
            here, there = source.at(block * BLOCK_BYTES), target.at(block * TILE_BYTES)
            there.store(row * DEPTH, here.load(8, DEPTH))
            there.at(SCALES_AT).cast(f32).store(row, here.cast(f32).load(0))
            there.at(FIELDS_AT).cast(f32).store(row, here.cast(i32).load(1).to(f32))


@kernel
def gemm_amx(
    k: Kernel,
    weights: I8s,
    x: I8s,
    tiles: I8s,
    out: F32s,
    out_stride: I64,
    count: I64s,
    scratch: I8s,
    *,
    fmt: str,
    epilogue: Epilogue,
    blocks: int,
    tile: int = 0,
    max_single_tile: int = 0,
) -> None:
    """Multiply int8 activation blocks `x` [tokens, blocks] by panels of that depth; unit = panel.

    `tiles` are the same blocks as `arrange` lays them out, `scratch` is this thread's own, of
    `scratch_bytes`; the rest as in `gemm_quant`, whose tiles are those of tokens that are left.
    """
    form, lanes = FORMATS[fmt], k.lanes
    rest = tile_gemm(k, fmt, epilogue, blocks, scratch, tile, max_single_tile)
    tokens = count.load(0)
    full = (tokens < FROM).select(k.i64(0), (tokens + (ROWS - MIN_PER_TILE)) // ROWS)
    covered = (full * ROWS).min(tokens)
    pointers = rows_in_order(x, blocks * BLOCK_BYTES, out, out_stride)

    def behind(first: Value, tokens: int) -> tuple[list[Ptr], list[Ptr]]:
        return pointers(first + covered, tokens)

    panel_bytes = form.panel_bytes(blocks, lanes)
    columns = lanes if epilogue in GATES else 2 * lanes
    with k.if_(full > 0):
        amx.configure(k, DEPTH)
    with k.units() as unit:
        panel = weights.at(unit * panel_bytes)
        with k.if_(full > 0):
            product = _Product(k, fmt, blocks, tiles, scratch, out.at(unit * columns), out_stride)
            product.emit(panel, full)
            _finish(k, scratch, epilogue, pointers, covered, unit)
        with k.if_(covered < tokens):
            rest(panel, k.i64(panel_bytes), tokens - covered, behind, unit)
    with k.if_(full > 0):
        amx.release(k)


def _finish(
    k: Kernel, scratch: Ptr, epilogue: Epilogue, pointers: RowPointers, covered: Value, unit: Value
) -> None:
    """Apply the epilogue to the sums of all tokens."""
    totals, lanes = scratch.at(TOTALS_AT).cast(f32), k.lanes
    with k.range(0, covered, name="row") as row:
        at = row // ROWS * (2 * ROWS) + row % ROWS
        pair = [k.var(totals.load((at + half * ROWS) * lanes, lanes)) for half in range(2)]
        apply_epilogue(k, epilogue, [pair], pointers(row, 1)[1], unit)


class _Product:
    """The product of one panel by tiles."""

    def __init__(
        self, k: Kernel, fmt: str, blocks: int, tiles: Ptr, scratch: Ptr, out: Ptr, stride: Value
    ) -> None:
        """Set up the product; out, stride: the first row's outputs, the distance between rows."""
        self.k, self.form, self.lanes, self.blocks = k, FORMATS[fmt], k.lanes, blocks
        self.tiles, self.scratch, self.out, self.stride = tiles, scratch, out, stride
        self.block_bytes = self.form.panel_block_bytes(k.lanes)

    def emit(self, panel: Ptr, tiles: Value) -> None:
        """Emit all chunks of the panel, each for all tiles of tokens."""
        k, blocks = self.k, self.blocks
        with k.range(0, blocks // GROUP, step=CHUNK // GROUP, name="chunk") as first:
            groups = (blocks // GROUP - first).min(CHUNK // GROUP)
            with k.range(0, groups, name="unpack") as group:
                self._unpack(panel, first + group, group, GROUP)
            self._run(first, tiles, groups, GROUP)
        if left := blocks % GROUP:
            last = k.i64(blocks // GROUP)
            self._unpack(panel, last, k.i64(0), left)
            self._run(last, tiles, k.i64(1), left)

    def _unpack(self, panel: Ptr, first: Value, group: Value, blocks: int) -> None:
        """Unpack the `blocks` blocks of group number `first` to slot `group` of the chunk."""
        k, lanes, form = self.k, self.lanes, self.form
        following = form.panel_bytes(self.blocks, lanes)
        for n in range(blocks):
            block = panel.at((first * GROUP + n) * self.block_bytes)
            for line in range(0, self.block_bytes, VECTOR):
                block.at(following).prefetch(line, 2)
            for half in range(2):
                scales = block_scales(k, form, block, half)
                self._vector(FACTORS_AT, k.i64(half), group, n).store(0, scales)
                if form.has_min:
                    mins = block.cast(i16).at(2 * lanes).load(half * lanes, lanes)
                    self._vector(MINS_AT, k.i64(half), group, n).store(0, f16_to_f32(k, mins))
            for at, words in k_groups(k, form, block):
                for half, word in enumerate(words):
                    signed = (word.bitcast(i8) - form.zero_point(k.target)).bitcast(i32)
                    self._weights(k.i64(half), group, n).cast(i32).store(at * lanes, signed)

    def _run(self, first: Value, tiles: Value, groups: Value, blocks: int) -> None:
        """Multiply all tiles of tokens by a chunk of `groups` groups of `blocks` blocks.

        first: number of its first group. A product begins a group before its sums are stored and
        used, in the tile before if need be; behind the last tile it is done in vain, with that one
        once more.
        """
        k, zero, tile_bytes = self.k, self.k.i64(0), self.blocks * TILE_BYTES
        rows = self.tiles.at(first * (GROUP * TILE_BYTES))
        with k.range(0, 2, name="half") as half:
            for n in range(blocks):
                self._start(rows, half, zero, n)
            with k.range(0, tiles, name="tile") as tile:
                here = rows.at(tile * tile_bytes)
                following = rows.at((tile + 1).min(tiles - 1) * tile_bytes)
                stored = self.scratch.at(TOTALS_AT + (tile * 2 + half) * (ROWS * VECTOR)).cast(f32)
                totals = [k.var(k.zeros(f32, self.lanes)) for _ in range(ROWS)]
                with k.if_(first.ne(0)):
                    for row, total in enumerate(totals):
                        total.set(stored.load(row * self.lanes, self.lanes))
                self._prefetch(tile, half)
                with k.range(0, groups, name="group") as group:
                    last = group.eq(groups - 1)
                    then = last.select(zero, group + 1)
                    base = k.b.select(last.value, following.value, here.value)
                    for n in range(blocks):
                        amx.store(k, SUMS[n], self._sums(n), VECTOR)
                        self._start(Ptr(k, base, i8), half, then, n)
                        self._add(here, half, group, n, totals)
                for row, total in enumerate(totals):
                    stored.store(row * self.lanes, total.value)

    def _prefetch(self, tile: Value, half: Value) -> None:
        """Prefetch the output lines of a tile: its rows are far from each other."""
        for row in range(ROWS):
            self.out.at((tile * ROWS + row) * self.stride + half * self.lanes).prefetch(0)

    def _start(self, rows: Ptr, half: Value, group: Value, n: int) -> None:
        """Start the product of block n of a group."""
        k, left, right = self.k, LEFT[n % 2], RIGHT[n % 2]
        amx.load(k, left, rows.at((group * GROUP + n) * TILE_BYTES), DEPTH)
        amx.load(k, right, self._weights(half, group, n), VECTOR)
        amx.zero(k, SUMS[n])
        amx.dot(k, SUMS[n], left, right)

    def _add(self, rows: Ptr, half: Value, group: Value, n: int, totals: list[Var]) -> None:
        """Add the scaled sums of block n of a group to the totals."""
        k, lanes = self.k, self.lanes
        scale = self._vector(FACTORS_AT, half, group, n).load(0, lanes)
        mins = self._vector(MINS_AT, half, group, n).load(0, lanes) if self.form.has_min else None
        offset = scale * -SUM_BASE
        tile = rows.at((group * GROUP + n) * TILE_BYTES)
        scales, fields = (tile.at(at).cast(f32) for at in (SCALES_AT, FIELDS_AT))
        sums = self._sums(n).cast(i32)
        # Exponents of MXFP4 reach 2^127: an offset would not be finite.
        based = self.form.name != "mxfp4"
        for row, total in enumerate(totals):
            whole = sums.load(row * lanes, lanes)
            if based:
                part = k.fma((whole + SUM_BASE_BITS).bitcast(f32), scale, offset)
            else:
                part = whole.to(f32) * scale
            if mins:
                part = k.fma(fields.splat(row, lanes), mins, part)
            total.set(k.fma(part, scales.splat(row, lanes), total.value))

    def _sums(self, n: int) -> Ptr:
        """Return where the sums of a group's block n are stored: int32 [ROWS, lanes]."""
        return self.scratch.at(SUMS_AT + n * (ROWS * VECTOR))

    def _weights(self, half: Value, group: Value, n: int) -> Ptr:
        return self.scratch.at(WEIGHTS_AT + (half * CHUNK + group * GROUP + n) * HALF_BLOCK)

    def _vector(self, kind: int, half: Value, group: Value, n: int) -> Ptr:
        """Return where a block's scales or mins lie: float32 [lanes]."""
        return self.scratch.at(kind + (half * CHUNK + group * GROUP + n) * VECTOR).cast(f32)
