"""Weights of a loaded model: packed once into panels, by all threads, from the mapped file.

Quantized matrices meet int8 activations (`jit/kernels/activations.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from ...errors import UnsupportedModelError
from ...jit.compile import Library, spec
from ...jit.kernels.embed import embed
from ...jit.kernels.head_bound import COPY, HEAD
from ...jit.kernels.panels import FORMATS, Format
from ...jit.pool import Pool, aligned
from ...jit.tape import DYNAMIC, Tape
from ..gguf.file import GGUFFile
from ..memory import Arena
from . import packing
from .matrix import Matrix
from .packing import PIECE, Source, all_finite

COPIED_BYTES = 64 << 20  # of an output head with a copy: a smaller one may lie in a cache
COPIED_SHARE = 1 / 8  # of all weights, that it has at least


class WeightLoader:
    """A collector of the matrices that a model requests, which packs all of them at once.

    A model requests matrices and vectors by name; `pack_all` does the work in one tape.

    Attributes:
        requested: names of all tensors that were requested.
    """

    def __init__(self, gguf: GGUFFile, library: Library) -> None:
        self.gguf = gguf
        self.library = library
        self.lanes = library.target.lanes
        self.requested: set[str] = set()
        self._wanted: list[Matrix] = []
        self._tables: list[str] = []

    def table(self, name: str, rows: int = 0, depth: int = 0) -> np.ndarray:
        """Return the rows of a matrix in the file's layout, for passes that gather rows: uint8.

        rows, depth: its shape, to be checked; 0: not checked.
        """
        if rows:
            self._tensor(name, (rows, depth))
        if self.format_of(name).factor_bytes(self.lanes) and _related(name) in self.gguf.tensors:
            message = f"{self.gguf.path_of(name)}: the rows of {name}, which are read one by one,"
            raise UnsupportedModelError(f"{message} have their own scale factor ({_related(name)})")
        self._tables.append(name)
        return self.gguf.data(name)

    def matrix(self, name: str, rows: int, depth: int, experts: int = 0) -> Matrix:
        """Request the matrix `name` of shape [rows, depth], or [experts, rows, depth].

        Raises:
            GGUFError: it is missing or has another shape.
            UnsupportedModelError: its type has no kernel.
        """
        return self._want((name,), rows, depth, experts)

    def columns(self, name: str, rows: int, widths: Sequence[int]) -> list[Matrix]:
        """Request the matrix `name` split by columns into matrices of these widths."""
        whole, found = sum(widths), list[Matrix]()
        for n, width in enumerate(widths):
            matrix = self._want((name,), rows, width, 0, whole)
            matrix.before, matrix.whole = sum(widths[:n]), whole
            found.append(matrix)
        return found

    def gate_up(self, gate: str, up: str, rows: int, depth: int, experts: int = 0) -> Matrix:
        """Request two matrices of one shape, fused so that one tile computes silu(gate) * up.

        If they have different types, which a file may well mix, they stay apart.
        """
        forms = {self.format_of(name) for name in (gate, up) if name in self.gguf.tensors}
        if len(forms) < 2:
            return self._want((gate, up), rows, depth, experts)
        matrix = self.matrix(gate, rows, depth, experts)
        matrix.up = self.matrix(up, rows, depth, experts)
        return matrix

    def halves(self, name: str, rows: int, depth: int, experts: int = 0) -> Matrix:
        """Request a tensor [2 * rows, depth], the gate first, fused as by `gate_up`."""
        return self._want((name, name), rows, depth, experts)

    def add_head_copy(self, head: Matrix) -> None:
        """Request what a head's products are bounded by (`head_bound.py`), if that is worth it."""
        if head.format is HEAD:
            nbytes = head.units * HEAD.panel_bytes(head.blocks, self.lanes)
            if nbytes >= max(COPIED_BYTES, COPIED_SHARE * self.packed_bytes):
                head.copy = replace(head, format=COPY)
                self._wanted.append(head.copy)

    def vector(self, name: str, width: int, padded: int | None = None) -> np.ndarray:
        """Return a vector, such as a norm's weights, as float32, with zeros up to `padded`."""
        return self.array(name, (width,), padded)

    def array(self, name: str, shape: tuple[int, ...], padded: int | None = None) -> np.ndarray:
        """Return a float tensor of any shape as float32, each row with zeros up to `padded`."""
        info = self._tensor(name, shape)
        data = self.gguf.data(name)
        kind = info.type.name.lower()
        if kind == "f32":
            values = data.view("<f4")
        elif kind == "f16":
            values = data.view("<f2").astype(np.float32)
        elif kind == "bf16":
            values = (data.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            where = self.gguf.path_of(name)
            raise UnsupportedModelError(f"{where}: tensor {name} is {kind}, not a float")
        if not np.isfinite(values).all():
            self._refuse_number(name)
        out = np.zeros((*shape[:-1], padded or shape[-1]), np.float32)
        out[..., : shape[-1]] = values.reshape(shape)
        return out

    def format_of(self, name: str) -> Format:
        self.requested.add(name)
        info = self.gguf.tensors[name]
        kind = info.type.name.lower()
        form = FORMATS.get(kind)
        if form is None:
            known = ", ".join(f.upper() for f in FORMATS)
            message = f"{self.gguf.path_of(name)}: tensor {name} is {info.type.name}"
            raise UnsupportedModelError(f"{message}, which has no kernel yet; supported: {known}")
        return form

    def _tensor(self, name: str, shape: tuple[int, ...]):
        self.requested.add(name)
        info = self.gguf.tensors.get(name)
        if info is None:
            self.gguf.refuse_tensor(name, f"no tensor {name!r}", "shape")
        # A matrix of one row may be a vector in the file.
        if tuple(info.shape) not in (shape, shape[1:] if shape[0] == 1 else shape):
            message = (
                f"tensor {name!r} has shape {list(info.shape)}, but the metadata say {list(shape)}"
            )
            self.gguf.refuse_tensor(name, message, "shape")
        return info

    def _want(
        self, names: tuple[str, ...], rows: int, depth: int, experts: int, whole: int = 0
    ) -> Matrix:
        both = len(names) == 2 and names[0] == names[1]
        shape = (*((experts,) if experts else ()), 2 * rows if both else rows, whole or depth)
        (form, *_) = [self.format_of(n) for n in names if self._tensor(n, shape)]
        block = self.gguf.tensors[names[0]].type.block_size  # NVFP4's are two of its panels'
        if depth % block:
            message = f"tensor {names[0]!r} has rows of {depth}, not a multiple of {block}"
            if whole:  # sound for who multiplies it as one
                where = self.gguf.path_of(names[0])
                message = f"{message}, in each of the parts that are computed one by one"
                remedy = "quantize the model again with `triplepoint make quantize`"
                raise UnsupportedModelError(f"{where}: {message}; {remedy}")
            self.gguf.refuse_tensor(names[0], message, "shape")
        fused = len(names) == 2
        units = -(-rows // (self.lanes if fused else 2 * self.lanes))
        nothing = np.empty(0, np.uint8)
        matrix = Matrix(form, rows, depth, units, fused, names, nothing, experts)
        if form.factor_bytes(self.lanes):
            for name in names:
                self._factors(name, experts)
        self._wanted.append(matrix)
        return matrix

    def _factors(self, name: str, experts: int) -> np.ndarray:
        """Return the scale of an NVFP4 tensor, or of each expert: float32."""
        # For activations of four bits, which are not computed with here.
        self.requested.add(_related(name, "input_scale"))
        info = self.gguf.tensors.get(_related(name))
        if info is None:
            return np.ones(1, np.float32)
        wide = experts if info.shape == (experts,) else 1
        return self.vector(info.name, wide)

    def _multiply_factors(self, matrix: Matrix) -> None:
        """Multiply the tensors' factors into those of the panels."""
        size = matrix.format.factor_bytes(self.lanes)
        panels = matrix.panels.reshape(matrix.copies, matrix.units, -1)
        halves = np.split(panels[..., -size:].view("<f4"), 2, axis=-1)
        sources = matrix.sources if matrix.fused else matrix.sources * 2
        for half, name in zip(halves, sources, strict=True):
            half *= self._factors(name, matrix.experts)[:, None, None]

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the matrices that passes read from the file, row by row."""
        return tuple(self._tables)

    @property
    def packed_bytes(self) -> int:
        """Bytes of all requested matrices in packed form."""
        return sum(self._packed_sizes())

    def _packed_sizes(self) -> list[int]:
        sizes = [m.units * m.format.panel_bytes(m.blocks, self.lanes) for m in self._wanted]
        return [size * m.copies for size, m in zip(sizes, self._wanted, strict=True)]

    def size_only(self) -> None:
        """Give every requested matrix panels of its size but no memory, to count bytes only."""
        for matrix, total in zip(self._wanted, self._packed_sizes(), strict=True):
            matrix.panels = np.broadcast_to(np.zeros(1, np.uint8), (total,))

    def place(self, arena: Arena) -> None:
        """Assign every requested matrix its range of `arena`."""
        for matrix, total in zip(self._wanted, self._packed_sizes(), strict=True):
            matrix.panels = arena.take(total)

    @property
    def arena_bytes(self) -> int:
        """Bytes of an arena that has room for all requested matrices."""
        return sum(-(-size // 64) * 64 for size in self._packed_sizes())

    @property
    def wanted(self) -> tuple[Matrix, ...]:
        """The requested matrices, in the order of their ranges of the arena."""
        return tuple(self._wanted)

    def pack_all(
        self,
        pool: Pool,
        progress: Callable[[float], None] | None = None,
        arena: Arena | None = None,
    ) -> Arena:
        """Pack every requested matrix into `arena`; call `progress` with the fraction done."""
        self.gguf.check_unchanged()
        arena = arena or Arena(self.arena_bytes)
        self.place(arena)
        work = [(m, [self._source(m, n) for n in range(m.copies)]) for m in self._wanted]
        packed = {name for matrix in self._wanted for name in matrix.sources}
        for name in self._tables:
            form, data = self.format_of(name), self.gguf.data(name)
            blocks = self.gguf.tensors[name].shape[-1] // form.block
            if name not in packed and not all_finite(data, form, blocks, self.library, pool):
                self._refuse_number(name)
        for matrix in packing.pack_all(work, self.library, pool, progress):
            self._refuse_number(*matrix.sources)
        for matrix in self._wanted:
            if matrix.format.factor_bytes(self.lanes):
                self._multiply_factors(matrix)
        self.gguf.check_unchanged()
        return arena

    def row_norms(self, matrix: Matrix, columns: np.ndarray | None, pool: Pool) -> np.ndarray:
        """Compute the norm of each row of a matrix times `columns`: float64 [rows]."""
        (name,), rows, depth = matrix.sources, matrix.rows, matrix.depth
        values, blocks = aligned(rows * depth, np.float32), matrix.blocks
        args = [self.gguf.data(name), np.arange(rows, dtype=np.int32), values,
                blocks * matrix.format.file_bytes, blocks, depth]  # fmt: skip
        tape, kernel = Tape("norms", pool.threads), spec(embed, fmt=matrix.format.name)
        tape.op(name, kernel, args, np.array([rows], np.int64), mode=DYNAMIC, chunk=8)
        native, at = tape.finish(self.library, pool), 0
        while at < len(native):
            at = native.run(at)
        scaled = values.reshape(rows, depth) * (1 if columns is None else columns[:depth])
        return np.sqrt(np.square(scaled, dtype=np.float64).sum(axis=1))

    def _refuse_number(self, *names: str) -> NoReturn:
        """Raise the GGUFError that locates a NaN or infinity in these tensors."""
        self.gguf.check_unchanged()
        for name in names:
            info, form, data = self.gguf.tensors[name], self.format_of(name), self.gguf.data(name)
            step = PIECE // form.file_bytes * form.file_bytes
            for start in range(0, len(data), step):
                found = form.not_finite(data[start : start + step])
                if len(found):
                    at = start + int(found[0])
                    row, block = divmod(at // form.file_bytes, info.shape[-1] // form.block)
                    what = f"a scale of block {block}" if form.quantized else f"weight {block}"
                    message = f"{what} of row {row} is NaN or infinite"
                    self.gguf.refuse_tensor(name, message, "data", at)
        raise AssertionError(f"{names}: the kernel found a value that is not finite")

    def _source(self, matrix: Matrix, expert: int) -> Source:
        sources = [_part(self.gguf.data(name), expert, matrix.copies) for name in matrix.sources]
        panels = _part(matrix.panels, expert, matrix.copies)
        form = matrix.format
        row_bytes = (matrix.whole or matrix.depth) // form.block * form.file_bytes
        if matrix.fused:
            first, second = sources
            if matrix.sources[0] == matrix.sources[1]:
                second = second[matrix.rows * row_bytes :]
            return Source(first, second, panels, row_bytes, self.lanes, matrix.rows, matrix.rows,
                          matrix.blocks, matrix.units)  # fmt: skip
        # The second half of a panel is the same matrix, `lanes` rows on.
        first = sources[0][matrix.before // form.block * form.file_bytes :]
        rest = max(0, matrix.rows - self.lanes)
        second = first[self.lanes * row_bytes :] if rest else first
        return Source(first, second, panels, row_bytes, 2 * self.lanes, matrix.rows, rest,
                      matrix.blocks, matrix.units)  # fmt: skip


def _related(name: str, what: str = "scale") -> str:
    """Return the name of the scale tensor that belongs to the matrix `name`."""
    return name.removesuffix("weight") + what


def _part(data: np.ndarray, n: int, parts: int) -> np.ndarray:
    """Return the n-th of `parts` equal parts."""
    size = len(data) // parts
    return data[n * size : (n + 1) * size]
