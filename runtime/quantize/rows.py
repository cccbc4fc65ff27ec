"""Conversion of rows of weights between types, by native kernels on all cores.

A tensor passes through in pieces of a few megabytes: read from the file's mapping as float32,
looked through for what is not a number, and quantized. So memory does not grow with the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from ...jit.compile import Library, Spec, spec
from ...jit.kernels import embed, quantize, quantize_k, quantize_weighted
from ...jit.kernels.panels import FORMATS
from ...jit.kernels.quantize_store import KTYPES
from ...jit.pool import Pool, aligned
from ...jit.tape import DYNAMIC, Tape
from ..gguf.types import GGMLType

PIECE = 1 << 21  # weights that are made at a time: 8 MiB of float32
_UNIT = 32 * quantize.LANES  # weights that a unit of the smallest kernel takes
_LARGEST = 60000.0  # of a weight, where it or its block's scale must fit fp16
_WIDE = (GGMLType.F32, GGMLType.BF16)

BLOCKS32 = tuple(GGMLType[name] for name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "MXFP4"))
MADE = (GGMLType.F32, GGMLType.F16, GGMLType.BF16, *BLOCKS32,
        *(GGMLType[name.upper()] for name in KTYPES))  # fmt: skip
WEIGHTED = frozenset(GGMLType[name.upper()] for name in (*KTYPES, *quantize_weighted.TYPES))
"""Types that an imatrix changes."""


class RowMaker:
    """A converter of weight rows between types, as files store them."""

    def __init__(self, library: Library, pool: Pool) -> None:
        self.library = library
        self.pool = pool
        self._floats = aligned(PIECE, np.float32)

    def convert(
        self,
        name: str,
        data: np.ndarray,
        source: GGMLType,
        target: GGMLType,
        width: int,
        weights: np.ndarray | None = None,
    ) -> Iterator[np.ndarray]:
        """Convert the rows of `data` to `target`, in pieces (uint8), each valid until the next.

        data: uint8 [rows * bytes of a row]; width: weights of a row; weights: float32
        [parts, width], what an error of each column costs, for as many equal parts of the rows
        (experts). Same types are handed on as they are.

        Raises:
            ModelError: a weight is not finite, or too large for fp16.
            UnsupportedModelError: `source` has no kernel.
        """
        if source is target:
            yield from _whole_pieces(data)
            return
        if source.name.lower() not in FORMATS:
            raise UnsupportedModelError(f"tensor {name} is {source.name}, which cannot be read yet")
        row_bytes = source.nbytes((width,))
        rows = len(data) // row_bytes
        parts = 1 if weights is None else len(weights)
        step = max(1, PIECE // width)
        for part in range(parts):
            columns = None if weights is None else np.ascontiguousarray(weights[part], np.float32)
            first, last = rows * part // parts, rows * (part + 1) // parts
            for at in range(first, last, step):
                count = min(step, last - at)
                piece = data[at * row_bytes : (at + count) * row_bytes]
                values = self.widen(piece, source, count, width)
                _check(name, values, width, at, target)
                yield self._narrow(values, target, width, columns)

    def widen(self, data: np.ndarray, source: GGMLType, rows: int, width: int) -> np.ndarray:
        """Convert rows to float32 [rows * width], a view that the next call overwrites."""
        if rows * width > len(self._floats):
            self._floats = aligned(-(-rows * width // _UNIT) * _UNIT, np.float32)
        form = FORMATS[source.name.lower()]
        blocks = width // form.block
        ids = np.arange(rows, dtype=np.int32)
        args = [data, ids, self._floats, blocks * form.file_bytes, blocks, width]
        self._run_tape(spec(embed.embed, fmt=form.name), args, rows, 8)
        return self._floats[: rows * width]

    def _narrow(
        self, values: np.ndarray, target: GGMLType, width: int, weights: np.ndarray | None
    ) -> np.ndarray:
        """Convert float32 values of whole rows to uint8, the bytes of `target`."""
        if target is GGMLType.F32:
            return values.view(np.uint8)
        if target is GGMLType.F16:
            return values.astype("<f2").view(np.uint8)
        if target is GGMLType.BF16:
            return bfloat16(values).view(np.uint8)
        name, nbytes = target.name.lower(), target.nbytes((len(values),))
        if target in BLOCKS32:
            # The last unit makes 16 blocks whether there are as many or not.
            units = -(-len(values) // _UNIT)
            self._floats[len(values) : units * _UNIT] = 0
            out = np.empty(target.nbytes((units * _UNIT,)), np.uint8)
            kernel, args = spec(quantize.quantize_blocks, fmt=name), [self._floats, out]
            if weights is not None and target in WEIGHTED:
                grids = np.array(quantize_weighted.TYPES[name].grids, np.float32)
                columns = np.resize(weights, math.lcm(width, _UNIT))
                kernel = spec(quantize_weighted.quantize_weighted, fmt=name)
                args = [self._floats, columns, grids, out, len(columns) // _UNIT]
            self._run_tape(kernel, args, units, 8)
            return out[:nbytes]
        form, out = KTYPES[name], np.empty(nbytes, np.uint8)
        # Without an imatrix plain least squares are best, but for two bits.
        by_size = weights is None and target is GGMLType.Q2_K
        columns = np.ones(width, np.float32) if weights is None else weights
        args = [values, columns, np.array(form.grids, np.float32), out, width // 256]
        kernel = spec(quantize_k.quantize_k, fmt=name, by_size=by_size)
        self._run_tape(kernel, args, len(values) // 256, 32)
        return out

    def _run_tape(self, kernel: Spec, args: list[np.ndarray | int], units: int, chunk: int) -> None:
        tape = Tape("quantize", self.pool.threads)
        tape.op(kernel.label, kernel, args, np.array([units], np.int64), mode=DYNAMIC, chunk=chunk)
        native, at = tape.finish(self.library, self.pool), 0
        while at < len(native):
            at = native.run(at)


def bfloat16(values: np.ndarray) -> np.ndarray:
    """Convert finite float32 to the bits of bfloat16, to nearest, ties to even: uint16."""
    bits = values.view(np.uint32)
    return ((bits + (0x7FFF + ((bits >> 16) & 1))) >> 16).astype(np.uint16)


def _check(name: str, values: np.ndarray, width: int, first_row: int, target: GGMLType) -> None:
    limit = np.inf if target in _WIDE else _LARGEST
    low, high = values.min(), values.max()
    if -limit < low and high < limit:  # not so where one is a NaN
        return
    where = int(np.argmax(~(np.abs(values) < limit)))
    row, column = first_row + where // width, where % width
    raise ModelError(
        f"tensor {name} has the weight {values[where]} in row {row}, column {column}, which "
        f"{target.name} cannot hold: the file is damaged, or the weights went wrong in training"
    )


def _whole_pieces(data: np.ndarray) -> Iterator[np.ndarray]:
    for at in range(0, len(data), 4 * PIECE):
        yield data[at : at + 4 * PIECE]
