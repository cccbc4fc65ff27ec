"""Weight panels: rows interleaved so that one vector register holds one K-group of every row.

A *panel* is `2 * lanes` output rows, the pair of vectors that a register tile works on. Its blocks
follow one another in memory, so a thread that owns a range of panels reads one sequential stream.
Lane = output row: no horizontal sums, and one layout serves GEMV (decode) and GEMM (prefill).

| format | K in a block | bytes of a block, for L lanes |
|--------|--------------|-------------------------------|
| q4_0   | 32 | 2 x [L fp16 scales], then 4 x 2 x [L x 4 bytes]: low nibbles K-group g, high g + 4 |
| q5_0   | 32 | 2 x [L fp16 scales], 2 x [L int32 fifth bits], then nibbles as q4_0 |
| iq4_nl | 32 | as q4_0; a nibble is a place in a table (`codebook.py`) |
| mxfp4  | 32 | 2 x [L exponents, see `half_power`], then nibbles as iq4_nl |
| nvfp4  | 32 | 2 x 2 x [L scales, see `small_scale`], then nibbles: high ones two K-groups on |
| q4_1, q5_1 | 32 | the same with 2 x [L fp16 mins] after the scales |
| q8_0   | 32 | 2 x [L fp16 scales], then 8 x 2 x [L x 4 bytes], + 128 if target wants unsigned |
| f32    | 1  | 2 x [L float32] |
| f16, bf16 | 1 | 2 x [L 16-bit values] |
| q4_k, q5_k, q6_k | 256 | see `panels_k.py` |
| q2_k, q3_k, iq4_xs, iq3, iq2, iq1 | 256 | see `panels_small.py` |

NVFP4 has scales for the first 16 weights of a block and for the others, and after a panel's blocks
2 x [L float32], 128 times the factor that the tensor of a row has in the file.

Bit g of byte i of a word of fifth bits belongs to weight 4 g + i: K-group g is one shift away.

The two halves of a panel come from two addresses: for a plain matrix the second is `lanes` rows on;
for a fused gate/up pair the halves are gate rows and up rows, so one tile holds both.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..simd import I64, I8s, I32s, Kernel, Ptr, Value, Var, f32, i8, i16, i32, kernel
from ..targets import CpuTarget
from .activations import ActivationFormat, group_of
from .codebook import TABLES
from .grids import spread
from .grids8 import EIGHTS, PAIRED, half_float, half_float_reference
from .mathlib import f16_to_f32
from .panels_k import pack_block as pack_block_k
from .panels_k import reference as pack_reference_k
from .panels_small import GRIDS

SUM_BASE = 1.5 * 2.0**23
SUM_BASE_BITS = 0x4B400000


@dataclass(frozen=True, slots=True)
class Format:
    """The layout of a weight type in a GGUF file and in panels."""

    name: str
    """Lower-case GGML name."""
    block: int
    """Values along K in one block."""
    file_bytes: int
    """Bytes of one block of one row in the file."""
    family: Literal["float", "blocks", "k"]
    """Family of GEMM kernels for it: ``float``, ``blocks`` (of 32) or ``k`` (K-quants)."""
    row_bytes: int
    """Bytes of one block of one row in a panel; the file's, or a little more."""
    max_q: int | None = None
    """Largest stored weight where weights are small and unsigned (``blocks`` only)."""
    has_min: bool = False
    """Whether a block's min is added to its weights, instead of a zero point."""
    scales: tuple[int, ...] = (0,)
    """Byte offsets of a block's fp16 scale and min in the file (of the float itself: 0)."""

    @property
    def scale_bytes(self) -> int:
        """Bytes of a scale or float, as stored at the offsets in `scales`."""
        return {"f32": 4, "mxfp4": 1}.get(self.name, 2)

    @property
    def sub_blocks(self) -> int:
        """Parts of a block of ``blocks`` that have their own scales."""
        return 2 if self.name == "nvfp4" else 1

    @property
    def has_fifth(self) -> bool:
        """Whether weights have five bits: nibbles and a bit."""
        return self.max_q == 31

    @property
    def head_bytes(self) -> int:
        """Bytes of a block of ``blocks`` before its nibbles or bytes, for one row."""
        first = 2 if self.sub_blocks > 1 else self.scale_bytes
        return first + 2 * self.has_min + 4 * self.has_fifth

    @property
    def quantized(self) -> bool:
        """Whether products with this format take int8 activations."""
        return self.family != "float"

    @property
    def exponent(self) -> int:
        """The exponent bits of a float or scale, all of which are set in infinities and NaNs."""
        known = {"f32": 0x7F800000, "bf16": 0x7F80, "mxfp4": 0xFF}
        return known.get(self.name, 0x7C00)

    def not_finite(self, data: np.ndarray) -> np.ndarray:
        """Return the byte offsets of non-finite floats and scales in uint8 `data`, whole blocks.

        int64, ascending.
        """
        size = self.scale_bytes
        found = [np.empty(0, np.int64)]
        blocks = data.reshape(-1, self.file_bytes)
        for at in self.scales:
            bits = np.ascontiguousarray(blocks[:, at : at + size]).view(f"<u{size}")[:, 0]
            if self.name == "iq1_m":
                bits = half_float_reference(self.name, blocks)
            bad = np.flatnonzero((bits & self.exponent) == self.exponent)
            found.append(bad * self.file_bytes + at)
        return np.sort(np.concatenate(found))

    def panel_block_bytes(self, lanes: int) -> int:
        """Return the bytes of one block of one panel of 2 * lanes rows."""
        return 2 * lanes * self.row_bytes

    def factor_bytes(self, lanes: int) -> int:
        """Return the bytes of the rows' factors that follow a panel's blocks."""
        return 2 * lanes * 4 if self.name == "nvfp4" else 0

    def panel_bytes(self, blocks: int, lanes: int) -> int:
        """Return the bytes of a panel of `blocks` blocks."""
        return blocks * self.panel_block_bytes(lanes) + self.factor_bytes(lanes)

    def zero_point(self, target: CpuTarget) -> int:
        """Return what a product subtracts from a weight, folded into the sum's initial value."""
        small = {"q4_0": 8, "q5_0": 16, "mxfp4": 12, "nvfp4": 12, "iq3_s": 15, "iq3_xxs": 31}
        if self.name in small:
            return small[self.name]
        if self.name in EIGHTS:
            return -min(TABLES[self.name])
        whole_bytes = self.name in ("q8_0", "iq4_nl", "iq4_xs")
        return 128 if whole_bytes and not target.signed_bytes else 0

    def sum_base(self, target: CpuTarget) -> int:
        """Return a block's initial int32 sum: 0, or `SUM_BASE`'s bits (`gemm_blocks.py`).

        With 16 registers there is no room for the offsets that this takes.
        Scales of MXFP4 reach 2^127: an offset would not be finite.
        """
        if target.registers < 32 or target.dot == "maddubs" or self.name == "mxfp4":
            return 0
        return SUM_BASE_BITS

    def activation(self, target: CpuTarget, depth: int) -> ActivationFormat:
        """Return the activation format for products with rows of `depth` weights of this format."""
        zero_point = self.zero_point(target)
        if self.family == "float":
            return ActivationFormat("float", 1)
        if self.name in ("iq4_xs", *GRIDS) or (self.name in EIGHTS and self.name not in PAIRED):
            return ActivationFormat("zero", 8, zero_point)
        if self.family == "k":
            return ActivationFormat("pairs32" if self.name in ("q4_k", "q5_k") else "pairs16", 8)
        if self.sub_blocks > 1:
            return ActivationFormat("pairs16", 1)
        # With -1 for a zero point the block's field is the plain sum of q: what a min meets.
        if self.has_min:
            zero_point = -1
        if target.dot == "maddubs":
            return ActivationFormat("factors", group_of(depth // 32), zero_point)
        base = self.sum_base(target) if zero_point > 0 else 0
        return ActivationFormat("zero", 1, zero_point, base)


FORMATS = {
    f.name: f
    for f in (
        Format("f32", 1, 4, "float", 4),
        Format("f16", 1, 2, "float", 2),
        Format("bf16", 1, 2, "float", 2),
        Format("q8_0", 32, 34, "blocks", 34),
        Format("q4_0", 32, 18, "blocks", 18, max_q=15),
        Format("q4_1", 32, 20, "blocks", 20, max_q=15, has_min=True, scales=(0, 2)),
        Format("iq4_nl", 32, 18, "blocks", 18),
        Format("mxfp4", 32, 17, "blocks", 17, max_q=24),
        # In the file two blocks share 36 bytes: their four scales come first.
        Format("nvfp4", 32, 18, "blocks", 18, max_q=24, scales=()),
        Format("q5_0", 32, 22, "blocks", 22, max_q=31),
        Format("q5_1", 32, 24, "blocks", 24, max_q=31, has_min=True, scales=(0, 2)),
        Format("q2_k", 256, 84, "k", 84, scales=(80, 82)),
        Format("q3_k", 256, 110, "k", 114, scales=(108,)),
        Format("q4_k", 256, 144, "k", 148, scales=(0, 2)),
        Format("q5_k", 256, 176, "k", 180, scales=(0, 2)),
        Format("q6_k", 256, 210, "k", 210, scales=(208,)),
        Format("iq4_xs", 256, 136, "k", 138),
        # Wider than the file has them: see `panels_small.py`.
        Format("iq3_s", 256, 110, "k", 138),
        Format("iq3_xxs", 256, 98, "k", 138),
        Format("iq2_s", 256, 82, "k", 106),
        Format("iq2_xs", 256, 74, "k", 106),
        Format("iq2_xxs", 256, 66, "k", 106),
        Format("iq1_m", 256, 56, "k", 106, scales=(48,)),
        Format("iq1_s", 256, 50, "k", 106),
    )
}


@kernel
def pack(
    k: Kernel,
    first: I8s,
    second: I8s,
    panels: I8s,
    row_bytes: I64,
    step_rows: I64,
    first_rows: I64,
    second_rows: I64,
    blocks: I64,
    bad: I32s,
    *,
    fmt: str,
) -> None:
    """Repack rows from the file's layout into panels; unit = panel.

    bad[unit] becomes 0, or something else where a float or scale is NaN or infinite.

    Half h of panel u takes rows u * step_rows + lane of `first` (h = 0) or `second` (h = 1).
    Rows at or past `first_rows` and `second_rows`, each counted from its own address, become zeros.
    """
    form = FORMATS[fmt]
    lanes = k.lanes
    block_bytes = form.panel_block_bytes(lanes)
    flip = 0x80808080 - (1 << 32) if fmt == "q8_0" and not k.target.signed_bytes else 0
    with k.units() as unit:
        out = panels.at(unit * (blocks * block_bytes + form.factor_bytes(lanes)))
        seen = k.var(k.const(0, i32))
        for half, (source, rows) in enumerate(((first, first_rows), (second, second_rows))):
            with k.range(0, lanes, name="lane") as lane:
                row = unit * step_rows + lane
                # A padding row reads row 0 and keeps none of it.
                inside = row < rows
                src = source.at(inside.select(row, 0) * row_bytes)
                keep32 = inside.select(k.const(-1, i32), 0)
                with k.range(0, blocks, name="block") as block:
                    a, b = src.at(block * form.file_bytes), out.at(block * block_bytes)
                    _see_scales(form, a, seen)
                    if form.sub_blocks > 1:
                        _pack_nvfp4(k, src, block, b, half, lane, keep32)
                    else:
                        _pack_block(k, fmt, a, b, half, lane, keep32, flip)
                if form.factor_bytes(lanes):
                    factors = out.at(blocks * block_bytes).cast(f32)
                    factors.store(lane + half * lanes, k.f32(FACTOR))
        bad.store(unit, _not_finite(form, seen))


@kernel
def look(k: Kernel, data: I8s, row_bytes: I64, blocks: I64, bad: I32s, *, fmt: str) -> None:
    """Find NaN and infinity in a matrix in the file's layout; unit = row; `bad` as of `pack`."""
    form = FORMATS[fmt]
    with k.units() as unit:
        row, seen = data.at(unit * row_bytes), k.var(k.const(0, i32))
        with k.range(0, blocks, name="block") as block:
            _see_scales(form, row.at(block * form.file_bytes), seen)
        bad.store(unit, _not_finite(form, seen))


def _see_scales(form: Format, block: Ptr, seen: Var) -> None:
    """Record in `seen` whether a float or scale of a block in the file has the exponent of a NaN.

    One more than an exponent of all ones reaches the bit above it; no other does.
    """
    for at in form.scales:
        kind = {1: i8, 2: i16, 4: i32}[form.scale_bytes]
        spread = form.name == "iq1_m"
        stored = half_float(form.name, block) if spread else block.at(at).cast(kind).load()
        bits = stored.to(i32, signed=False)
        seen.set(seen.value | ((bits & form.exponent) + (form.exponent & -form.exponent)))


def _not_finite(form: Format, seen: Var) -> Value:
    # The sign bit of 32 must be written as the negative number that it is.
    above = form.exponent + (form.exponent & -form.exponent)
    return seen.value & (above if above < 1 << 31 else above - (1 << 32))


def _pack_block(
    k: Kernel, fmt: str, src: Ptr, out: Ptr, half: int, lane: Value, keep: Value, flip: int
) -> None:
    """Pack one block of one row into its lane of half `half`."""
    lanes, form = k.lanes, FORMATS[fmt]
    if form.family == "k":
        pack_block_k(k, fmt, src, out, half, lane, keep)
        return
    if fmt == "f32":
        out.cast(i32).store(lane + half * lanes, src.cast(i32).load() & keep)
        return
    keep16 = keep.to(i16)
    if fmt == "mxfp4":
        out.store(lane + half * lanes, (half_power(src.load()) & keep).to(i8))
    else:
        out.cast(i16).store(lane + half * lanes, src.cast(i16).load() & keep16)
    if fmt in ("f16", "bf16"):
        return
    if form.has_min:
        minimum = src.cast(i16).load(1) & keep16
        out.at(4 * lanes).cast(i16).store(lane + half * lanes, minimum)
    if form.has_fifth:
        bits = _by_group(src.at(form.head_bytes - 4).cast(i32).load())
        fifth = out.at(2 * lanes * (form.head_bytes - 4)).cast(i32)
        fifth.store(lane + half * lanes, bits)
    groups = out.at(2 * lanes * form.head_bytes).cast(i32)
    values = src.at(form.head_bytes).cast(i32)
    for group in range((form.file_bytes - form.head_bytes) // 4):
        # A padding row's scale is 0, so whatever its weights are they count for nothing.
        groups.store(lane + (2 * group + half) * lanes, values.load(group) ^ flip)


def load_floats(k: Kernel, fmt: str, data: Ptr, at: Value | int, lanes: int) -> Value:
    """Load f32, f16 or bf16 values from index `at` on as float32."""
    if fmt == "f32":
        return data.cast(f32).load(at, lanes)
    bits = data.cast(i16).load(at, lanes)
    if fmt == "f16":
        return f16_to_f32(k, bits)
    return (bits.to(i32, signed=False) << 16).bitcast(f32)


FACTOR = 128.0  # of a tensor with none of its own: what fp16 and the tables differ by


def small_scale(scale: Value) -> Value:
    """Convert an int8 UE4M3 scale of NVFP4, 0 for its NaN, to int32 of 7 bits.

    Seven bits up it is the fp16 of 2^-8 times the scale, denormals and all.
    """
    wide = scale.to(i32, signed=False)
    return wide.eq(0x7F).select(wide & 0, wide & 0x7F)


def nvfp4_block(row: Ptr, block: Value) -> tuple[Ptr, Ptr]:
    """Return the file addresses of both scales and the 16 nibble bytes of a row's block of 32."""
    odd = block & 1
    pair = row.at((block - odd) * 18)
    return pair.at(odd * 2), pair.at(odd * 16 + 4)


def _pack_nvfp4(
    k: Kernel, row: Ptr, block: Value, out: Ptr, half: int, lane: Value, keep: Value
) -> None:
    scales, nibbles = nvfp4_block(row, block)
    where = lane + half * k.lanes
    for sub in range(2):
        scale = (small_scale(scales.load(sub)) & keep).to(i8)
        out.store(where + sub * 2 * k.lanes, scale)
    words = out.at(4 * k.lanes).cast(i32)
    for n in range(4):
        words.store(where + 2 * n * k.lanes, nibbles.cast(i32).load(n))


def half_power(exponent: Value) -> Value:
    """Convert an int8 exponent e of MXFP4 to the float32 exponent of 2^(e - 128): int32, 1 less.

    The tables have twice what a nibble stands for. Scales that would be denormal are 0: that takes
    less than 1e-37 from a weight, and a block of zeros need not be multiplied by a denormal.
    """
    return exponent.to(i32, signed=False).max(1) - 1


def _by_group(bits: Value) -> Value:
    """Move bit n of an int32 to bit n / 4 of byte n % 4."""
    out = bits & 0
    for group in range(8):
        out = out | spread((bits >> (4 * group)) & 15, group)
    return out


def pack_reference(
    first: np.ndarray, second: np.ndarray, fmt: str, target: CpuTarget, step_rows: int
) -> np.ndarray:
    """Pack first, second uint8 [rows, row_bytes] as `pack` does -> [panels, blocks, bytes].

    With factors of the rows [panels, bytes].
    """
    form, lanes = FORMATS[fmt], target.lanes
    blocks, panels = first.shape[1] // form.file_bytes, -(-len(first) // step_rows)
    out = np.zeros((panels, blocks, form.panel_block_bytes(lanes)), np.uint8)
    numbers = np.arange(panels)[:, None] * step_rows + np.arange(lanes)
    for half, source in enumerate((first, second)):
        inside = numbers < len(source)
        data = source[np.where(inside, numbers, 0)].reshape(panels, lanes, blocks, -1)
        if form.family == "k":
            for panel, lane in np.ndindex(panels, lanes):
                where, known = half * lanes + lane, bool(inside[panel, lane])
                pack_reference_k(out[panel], data[panel, lane], fmt, lanes, where, known)
            continue
        put, known = functools.partial(_put, out, half), inside[..., None, None]
        if not form.quantized:
            put(0, (data * known)[..., None, :])
            continue
        head, values = data * known, data[..., form.head_bytes :]
        if fmt == "nvfp4":
            pairs = data.reshape(panels, lanes, -1, 36)
            scales = np.where(pairs[..., :4] == 0x7F, 0, pairs[..., :4] & 0x7F)
            head, values = scales.reshape(panels, lanes, blocks, 2) * known, pairs[..., 4:]
        elif fmt == "mxfp4":
            head = (np.maximum(data[..., :1], 1) - 1) * known
        if fmt in ("nvfp4", "mxfp4"):
            put(0, head[..., None])
        else:
            put(0, head[..., None, :2])
        if form.has_min:
            put(4 * lanes, head[..., None, 2:4])
        if form.has_fifth:
            fifths = data[..., form.head_bytes - 4 : form.head_bytes]
            bits = np.unpackbits(fifths, -1, 32, "little").reshape(panels, lanes, blocks, 8, 4)
            by_group = np.packbits(bits.swapaxes(-1, -2), axis=-1, bitorder="little")
            put(2 * lanes * (form.head_bytes - 4), by_group.swapaxes(-1, -2))
        if fmt == "q8_0" and not target.signed_bytes:
            values = values ^ 0x80
        put(2 * lanes * form.head_bytes, values.reshape(panels, lanes, blocks, -1, 4))
    if not form.factor_bytes(lanes):
        return out
    factors = np.full((panels, 2 * lanes), FACTOR, np.float32).view(np.uint8)
    return np.concatenate([out.reshape(panels, -1), factors], axis=1)


def _put(out: np.ndarray, half: int, at: int, values: np.ndarray) -> None:
    """Store values [panels, lanes, blocks, count, bytes] of a half, from byte `at` of blocks on."""
    panels, lanes, blocks, count, size = values.shape
    there = out[:, :, at : at + count * 2 * lanes * size]
    there = there.reshape(panels, blocks, count, 2, lanes, size)
    there[:, :, :, half] = values.transpose(0, 2, 3, 1, 4)
