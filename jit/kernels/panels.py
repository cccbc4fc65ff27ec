"""Weight panels: rows interleaved so that one vector register holds one K-group of every row.

A *panel* is `2 * lanes` output rows, the pair of vectors that a register tile works on. Its blocks
follow one another in memory, so a thread that owns a range of panels reads one sequential stream.
Lane = output row: no horizontal sums, and one layout serves GEMV (decode) and GEMM (prefill).

| format | K in a block | bytes of a block, for L lanes |
|--------|--------------|-------------------------------|
| q4_0   | 32 | 2 x [L fp16 scales], then 4 x 2 x [L x 4 bytes]: low nibbles K-group g, high g + 4 |
| q8_0   | 32 | 2 x [L fp16 scales], then 8 x 2 x [L x 4 bytes], + 128 if target wants unsigned |
| f32    | 1  | 2 x [L float32] |
| f16, bf16 | 1 | 2 x [L 16-bit values] |
| q4_k, q5_k, q6_k | 256 | see `panels_k.py` |

The two halves of a panel come from two addresses: for a plain matrix the second is `lanes` rows on;
for a fused gate/up pair the halves are gate rows and up rows, so one tile holds both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..simd import I64, I8s, Kernel, Ptr, V, i16, i32, kernel
from ..targets import CpuTarget
from .activations import Activation, group_of
from .panels_k import pack_block as pack_block_k
from .panels_k import reference as pack_reference_k


@dataclass(frozen=True, slots=True)
class Format:
    """A weight type as it lies in a GGUF file and in panels.

    Attributes:
        name: lower-case GGML name.
        block: values along K in one block.
        file_bytes: bytes of one block of one row in the file.
        family: which product takes it: ``float``, ``blocks`` (of 32) or ``k`` (K-quants).
        row_bytes: bytes of one block of one row in a panel; the file's, or a little more.
    """

    name: str
    block: int
    file_bytes: int
    family: Literal["float", "blocks", "k"]
    row_bytes: int

    @property
    def quantised(self) -> bool:
        """Whether activations must be int8 for it."""
        return self.family != "float"

    def panel_block_bytes(self, lanes: int) -> int:
        """Bytes of one block of one panel of 2 * lanes rows."""
        return 2 * lanes * self.row_bytes

    def zero_point(self, target: CpuTarget) -> int:
        """What is subtracted from a stored weight, folded into the accumulator's start."""
        if self.name == "q4_0":
            return 8
        return 128 if self.name == "q8_0" and not target.signed_bytes else 0

    def activation(self, target: CpuTarget, depth: int) -> Activation:
        """How rows of `depth` values must be prepared to be multiplied by it."""
        if self.family == "float":
            return Activation("float", 1, 0)
        if self.family == "k":
            return Activation("pairs16" if self.name == "q6_k" else "pairs32", 8, 0)
        return Activation("zero", group_of(depth // 32), self.zero_point(target))


FORMATS = {
    f.name: f
    for f in (
        Format("f32", 1, 4, "float", 4),
        Format("f16", 1, 2, "float", 2),
        Format("bf16", 1, 2, "float", 2),
        Format("q8_0", 32, 34, "blocks", 34),
        Format("q4_0", 32, 18, "blocks", 18),
        Format("q4_k", 256, 144, "k", 148),
        Format("q5_k", 256, 176, "k", 180),
        Format("q6_k", 256, 210, "k", 210),
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
    *,
    fmt: str,
) -> None:
    """Repack rows from the file's layout into panels; unit = panel.

    Half h of panel u takes rows u * step_rows + lane of `first` (h = 0) or `second` (h = 1).
    Rows at or past `first_rows` and `second_rows`, each counted from its own address, become zeros.
    """
    form = FORMATS[fmt]
    lanes = k.lanes
    block_bytes = form.panel_block_bytes(lanes)
    flip = 0x80808080 - (1 << 32) if fmt == "q8_0" and not k.target.signed_bytes else 0
    with k.units() as unit:
        out = panels.at(unit * blocks * block_bytes)
        for half, (source, rows) in enumerate(((first, first_rows), (second, second_rows))):
            with k.range(0, lanes, name="lane") as lane:
                row = unit * step_rows + lane
                # A padding row reads row 0 and keeps none of it.
                inside = row < rows
                src = source.at(inside.select(row, 0) * row_bytes)
                keep32 = inside.select(k.const(-1, i32), 0)
                with k.range(0, blocks, name="block") as block:
                    a, b = src.at(block * form.file_bytes), out.at(block * block_bytes)
                    _pack_block(k, fmt, a, b, half, lane, keep32, flip)


def _pack_block(
    k: Kernel, fmt: str, src: Ptr, out: Ptr, half: int, lane: V, keep: V, flip: int
) -> None:
    """One block of one row into its lane of half `half`."""
    lanes = k.lanes
    if FORMATS[fmt].family == "k":
        pack_block_k(k, fmt, src, out, half, lane, keep)
        return
    if fmt == "f32":
        out.cast(i32).store(lane + half * lanes, src.cast(i32).load() & keep)
        return
    keep16 = keep.to(i16)
    scale = src.cast(i16).load() & keep16
    out.cast(i16).store(lane + half * lanes, scale)
    if fmt in ("f16", "bf16"):
        return
    groups = out.at(4 * lanes).cast(i32)  # after both halves' fp16 scales
    values = src.at(2).cast(i32)
    for group in range(4 if fmt == "q4_0" else 8):
        # A padding row's scale is 0, so whatever its weights are they count for nothing.
        groups.store(lane + (2 * group + half) * lanes, values.load(group) ^ flip)


def pack_reference(
    first: np.ndarray, second: np.ndarray, fmt: str, target: CpuTarget, step_rows: int
) -> np.ndarray:
    """What `pack` makes: first, second uint8 [rows, row_bytes] -> [panels, blocks, bytes]."""
    form, lanes = FORMATS[fmt], target.lanes
    rows, row_bytes = first.shape
    blocks = row_bytes // form.file_bytes
    panels = -(-rows // step_rows)
    out = np.zeros((panels, blocks, form.panel_block_bytes(lanes)), np.uint8)
    for panel in range(panels):
        for half, source in enumerate((first, second)):
            for lane in range(lanes):
                row = panel * step_rows + lane
                inside = row < len(source)
                data = source[row if inside else 0].reshape(blocks, form.file_bytes)
                if not form.quantised:
                    at = (half * lanes + lane) * form.file_bytes
                    out[panel, :, at : at + form.file_bytes] = data if inside else 0
                    continue
                if form.family == "k":
                    pack_reference_k(out[panel], data, fmt, lanes, half * lanes + lane, inside)
                    continue
                at = (half * lanes + lane) * 2
                out[panel, :, at : at + 2] = data[:, :2] if inside else 0
                values = data[:, 2:]
                if fmt == "q8_0" and not target.signed_bytes:
                    values = values ^ 0x80
                for group in range(values.shape[1] // 4):
                    at = 4 * lanes + ((2 * group + half) * lanes + lane) * 4
                    out[panel, :, at : at + 4] = values[:, 4 * group : 4 * group + 4]
    return out
