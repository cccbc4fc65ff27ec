"""Packing of weights into panels: piece by piece, by all threads, from the mapped file.

A piece is so many panels that their source is some ten megabytes. When it is packed, the file's
pages that it was read from leave this process's memory (they stay in the system's cache); those of
the pieces that come next are prefetched. So what is in memory at any time is what is packed so far
and a few pieces, and reading from the disk goes on while the threads work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ...jit.compile import Library, spec
from ...jit.kernels.head_bound import COPY, pack_copy
from ...jit.kernels.panels import Format, look, pack
from ...jit.pool import Pool
from ...jit.tape import DYNAMIC, Tape
from ..memory import drop, will_need
from .matrix import Matrix

PIECE = 16 << 20  # bytes of panels, about
AHEAD = 64 << 20  # bytes of the file that are asked for before they are read

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Source:
    """The source of a matrix's panels: the arguments of the kernel `pack`.

    Attributes:
        first, second: uint8, rows of `row_bytes` bytes: of the halves of a panel.
        panels: uint8, where they go.
        step_rows: rows of `first`, and of `second`, from one panel to the next.
        first_rows, second_rows: rows that there are; from there on rows are zeros.
        blocks: blocks of a row.
        units: panels.
        bad: int32 [units], not 0 for a panel that has a NaN or an infinity.
    """

    first: np.ndarray
    second: np.ndarray
    panels: np.ndarray
    row_bytes: int
    step_rows: int
    first_rows: int
    second_rows: int
    blocks: int
    units: int

    @functools.cached_property
    def bad(self) -> np.ndarray:
        return np.zeros(self.units, np.int32)

    def cut(self, begin: int, end: int) -> Source:
        """Return the source of panels [begin, end) alone."""
        size = len(self.panels) // self.units
        before, rows = begin * self.step_rows, (end - begin) * self.step_rows
        first = self.first[before * self.row_bytes :]
        # A half without rows reads row 0 of whatever it is given, and keeps nothing of it.
        left = max(0, self.second_rows - before)
        second = self.second[before * self.row_bytes :] if left else first
        return Source(
            first[: rows * self.row_bytes],
            second[: rows * self.row_bytes],
            self.panels[begin * size : end * size],
            self.row_bytes,
            self.step_rows,
            self.first_rows - before,
            left,
            self.blocks,
            end - begin,
        )

    def pieces(self) -> list[Source]:
        """Split the source into pieces of about PIECE bytes of panels."""
        step = max(1, PIECE * self.units // max(1, len(self.panels)))
        return [self.cut(n, min(n + step, self.units)) for n in range(0, self.units, step)]

    @property
    def args(self) -> list[np.ndarray | int]:
        """The arguments of the kernel `pack`, in its order."""
        return [self.first, self.second, self.panels, self.row_bytes, self.step_rows,
                self.first_rows, self.second_rows, self.blocks, self.bad]  # fmt: skip


def pack_all(
    work: Sequence[tuple[Matrix, Sequence[Source]]],
    library: Library,
    pool: Pool,
    progress: Progress | None = None,
) -> Iterator[Matrix]:
    """Fill the panels of all matrices; call `progress` with the fraction done.

    work: for each matrix what it is made from, once for each expert if it has any.
    Yields matrices in which a float or scale is NaN or infinite, as soon as that is seen.
    """
    tape = Tape("pack", pool.threads)
    pieces: list[Source] = []
    matrices: list[Matrix] = []
    for matrix, sources in work:
        form = matrix.format
        kernel = spec(pack_copy) if form is COPY else spec(pack, fmt=form.name)
        for piece in (piece for source in sources for piece in source.pieces()):
            pieces.append(piece)
            matrices.append(matrix)
            units = np.array([piece.units], np.int64)
            tape.op(matrix.sources[0], kernel, piece.args, units, mode=DYNAMIC, chunk=8)
    if not pieces:
        return
    native = tape.finish(library, pool)
    total, packed = sum(len(piece.panels) for piece in pieces), 0
    done = requested = 0
    while done < len(native):
        requested = _prefetch(pieces, max(done, requested), done)
        before, done = done, native.run(done)
        for matrix, piece in zip(matrices[before:done], pieces[before:done], strict=True):
            drop(piece.first)
            drop(piece.second)
            packed += len(piece.panels)
            if piece.bad.any():
                yield matrix
        if progress and done > before:
            progress(packed / total)


def all_finite(data: np.ndarray, form: Format, blocks: int, library: Library, pool: Pool) -> bool:
    """Return whether every float or scale of a matrix in the file's layout is finite.

    data: uint8, its rows of `blocks` blocks.
    """
    row_bytes = blocks * form.file_bytes
    rows = len(data) // row_bytes
    bad, units = np.zeros(rows, np.int32), np.array([rows], np.int64)
    tape, kernel = Tape("look", pool.threads), spec(look, fmt=form.name)
    tape.op("look", kernel, [data, row_bytes, blocks, bad], units, mode=DYNAMIC, chunk=64)
    native, done = tape.finish(library, pool), 0
    while done < len(native):
        done = native.run(done)
    drop(data)
    return not bad.any()


def _prefetch(pieces: Sequence[Source], first: int, done: int) -> int:
    """Prefetch AHEAD bytes of pieces after number `done`; return the first not requested."""
    ahead = sum(len(piece.first) for piece in pieces[done:first])
    while first < len(pieces) and ahead < AHEAD:
        piece = pieces[first]
        will_need(piece.first)
        if piece.second.ctypes.data != piece.first.ctypes.data:
            will_need(piece.second)
        ahead += len(piece.first)
        first += 1
    return first
