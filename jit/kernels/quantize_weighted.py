"""Float weights to Q4_0, Q4_1, Q5_0 and Q5_1 where an imatrix says what errors cost.

Lane = block of 32. Scale and min are found as for a sub-block of `quantize_k.py`, by weighted least
squares over several grids, then rounded to fp16, and every q is made anew for these. The scale of
Q4_0 and Q5_0 may have either sign, and the min of Q4_1 and Q5_1 too.
"""

from __future__ import annotations

from ..simd import I64, F32s, I8s, Kernel, Value, f32, i32, kernel
from .panels import FORMATS
from .quantize import LANES, store_blocks, transpose
from .quantize_k import Search, as_half, quants_min, quants_plain, search_min, search_plain
from .quantize_store import KType

TYPES = {
    "q4_0": KType(32, 15, 0, 0, 18 * LANES, 32 * LANES),
    "q4_1": KType(32, 15, 0, 0, 20 * LANES, 32 * LANES, any_min=True),
    "q5_0": KType(32, 31, 0, 0, 22 * LANES, 32 * LANES),
    "q5_1": KType(32, 31, 0, 0, 24 * LANES, 32 * LANES, any_min=True),
}


@kernel
def quantize_weighted(
    k: Kernel, rows: F32s, weights: F32s, grids: F32s, out: I8s, period: I64, *, fmt: str
) -> None:
    """Quantize `rows` to blocks of `fmt`; unit = 16 blocks, one after the other.

    weights: [period * 512], what an error of each weight costs, over and over; grids:
    `KType.grids`.
    """
    form = TYPES[fmt]
    x, w, q = (k.scratch(f32, form.weights) for _ in range(3))
    with k.units() as unit:
        transpose(k, rows.at(unit * form.weights), x, form.size, form.lanes)
        transpose(k, weights.at((unit % period) * form.weights), w, form.size, form.lanes)
        search = Search(k, form, x, w, q, grids)
        scale: list[Value]
        if form.any_min:
            a, b = (as_half(k, value) for value in search_min(k, form, search))
            scale, make, middle = [a, 0.0 - b], quants_min(form, a, b), 0
        else:
            a = as_half(k, search_plain(k, form, search))
            scale, make, middle = [a], quants_plain(form, a), form.middle
        to = out.at(unit * form.nbytes)
        store_blocks(k, FORMATS[fmt], x, scale, lambda v: make(v).to(i32) + middle, to)
