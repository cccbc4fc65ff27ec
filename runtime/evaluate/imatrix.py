"""Importance matrices: the mean square of each matrix's input columns, over a text.

An error in a weight moves the output by that error times the weight's input; so columns whose
input is large must come back closest. A pass is built by a graph that looks at what each
product gets.

The file is llama.cpp's: a GGUF file with two tensors a matrix, the sums of squares and the number
of rows that were summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import ModelError
from ...jit.compile import spec
from ...jit.kernels.imatrix_accumulate import (
    COLUMNS,
    expert_square_sums,
    row_scales,
    square_sums,
)
from ...jit.pool import aligned
from ...jit.tape import PerThread
from ..engine.model.plan import Plan
from ..engine.passes.request import Request
from ..forward.descriptor import TOKENS
from ..forward.graph import GraphBuilder
from ..forward.tensors import Activation, QuantizedActivation, padded
from ..gguf.types import GGMLType
from ..gguf.write import GGUFWriter
from ..quantize.quantize import whole_file
from ..weights.matrix import Matrix
from .perplexity import chunks_of

if TYPE_CHECKING:
    from ..engine.engine import Engine


@dataclass(slots=True)
class Seen:
    """The accumulated squares of the input of one matmul, or of several with the same input.

    Attributes:
        names: tensors that it is multiplied by; width: its columns; norm: weights that it is
            multiplied by first, after its row was scaled.
        sums: float32 [matrices, padded width], of one pass; counts: float32 [matrices], the rows.
        each: rows of a token; 0 where the kernel fills in `counts`.
    """

    names: tuple[str, ...]
    width: int
    norm: np.ndarray | None
    sums: np.ndarray
    counts: np.ndarray
    each: int
    total: np.ndarray = field(init=False)
    total_counts: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.total = np.zeros((len(self.sums), self.width))
        self.total_counts = np.zeros(len(self.counts))

    def drain(self, tokens: int) -> None:
        """Add the sums of a pass of `tokens` tokens to the totals, and clear them."""
        squares = 1.0 if self.norm is None else self.norm[: self.width].astype(np.float64) ** 2
        self.total += self.sums[:, : self.width] * squares
        self.total_counts += tokens * self.each if self.each else self.counts
        self.sums[:] = 0
        self.counts[:] = 0


@dataclass(frozen=True, slots=True)
class _Input:
    """Where the input of a matrix lies before it is prepared."""

    row: Activation
    scales: np.ndarray
    norm: np.ndarray | None


class WatchingGraph(GraphBuilder):
    """A graph builder that sums the squares of every matmul's input, except the output head's."""

    def __init__(self, *args, **named) -> None:
        super().__init__(*args, **named)
        self.seen: list[Seen] = []
        self._inputs: dict[int, _Input] = {}

    def _prepare(
        self,
        name: str,
        x: Activation,
        into: Sequence[Matrix],
        weight: np.ndarray | None,
        eps: float,
        outputs: bool,
    ) -> QuantizedActivation:
        ready = super()._prepare(name, x, into, weight, eps, outputs)
        if outputs:
            return ready
        assert isinstance(x.data, np.ndarray), "decode is not watched"
        scales = np.ones(self.max_tokens * x.each, np.float32)
        rows = self.units(TOKENS, x.each)
        if weight is not None:
            args = [x.data, scales, x.stride, x.width, float(eps)]
            self.tape.op(f"{name}.scales", spec(row_scales), args, rows)
        parts = [part for matrix in into for part in matrix.parts]
        for part in parts:
            self._inputs[id(part)] = _Input(x, scales, weight)
        # Of a tensor that is taken in parts no part sees the whole input.
        whole = (part for part in parts if not part.experts and not part.whole)
        names = tuple(name for part in whole for name in part.sources)
        if names:
            seen = self._see(names, x, weight, 1, x.each)
            args = [x.data, scales, seen.sums, rows, x.stride]
            self.tape.op(f"{name}.squares", spec(square_sums), args, _units(x))
        return ready

    def before_experts(
        self, w: Matrix, lists: Sequence[np.ndarray | PerThread], units: np.ndarray, share: int
    ) -> None:
        """Add the op that accumulates the squared input of each expert of `w`."""
        x = self._inputs[id(w)]
        seen = self._see(w.sources, x.row, x.norm, w.experts, 0)
        args = [x.row.data, x.scales, seen.sums, seen.counts, units, w.units, *lists,
                x.row.stride, seen.sums.shape[1]]  # fmt: skip
        kernel = spec(expert_square_sums, share=share)
        self.tape.op(f"{w.sources[0]}.squares", kernel, args, _units(x.row))

    def _see(
        self,
        names: tuple[str, ...],
        x: Activation,
        norm: np.ndarray | None,
        matrices: int,
        each: int,
    ) -> Seen:
        sums = aligned((matrices, padded(x.width)), np.float32)
        seen = Seen(names, x.width, norm, sums, np.zeros(matrices, np.float32), each)
        self.seen.append(seen)
        return seen


def _units(x: Activation) -> np.ndarray:
    return np.array([padded(x.width) // COLUMNS], np.int64)


@dataclass(slots=True)
class Collected:
    """The importance matrix: sums [matrices, columns] and counts [matrices], float64, by tensor."""

    sums: dict[str, np.ndarray]
    counts: dict[str, np.ndarray]
    chunks: int
    size: int

    @property
    def unused_experts(self) -> int:
        """Return the number of experts that received no token, over all layers."""
        names = [n for n in self.counts if len(self.counts[n]) > 1 and "ffn_down" in n]
        return sum(int((self.counts[name] == 0).sum()) for name in names)

    def write(self, path: str | Path, dataset: str) -> None:
        """Write the importance matrix atomically; dataset: the name of the text."""
        nbytes = sum(4 * (values.size + len(values)) for values in self.sums.values())
        with whole_file(Path(path), nbytes) as unfinished, GGUFWriter(unfinished) as writer:
            writer.add("general.type", "imatrix")
            writer.add("imatrix.datasets", [dataset])
            writer.add("imatrix.chunk_count", self.chunks)
            writer.add("imatrix.chunk_size", self.size)
            tensors = {}
            for name in sorted(self.sums):
                tensors[f"{name}.in_sum2"] = self.sums[name]
                tensors[f"{name}.counts"] = self.counts[name][:, None]
            for name, values in tensors.items():
                writer.declare(name, values.shape, GGMLType.F32)
            for name, values in tensors.items():
                writer.write(name, values.astype("<f4"))


def collect(
    engine: Engine,
    ids: Sequence[int],
    size: int = 512,
    *,
    max_chunks: int | None = None,
    on_chunk: Callable[[int, int], None] | None = None,
) -> Collected:
    """Collect the importance matrix over the tokens `ids` of a text, in chunks of `size`.

    on_chunk: called with the number of chunks done, and of all.

    Raises:
        ModelError: the text is shorter than a chunk, or made numbers that are not finite.
    """
    chunks = chunks_of(ids, size, engine.tokenizer, max_chunks)
    session = engine.session(size)
    sequence = session.sequence
    watch = Plan(engine.loaded, "imatrix", session.phases.max_tokens, WatchingGraph)
    seen = watch.graph.seen
    for n, chunk in enumerate(chunks):
        session.truncate(0)
        for at in range(0, len(chunk), watch.max_tokens):
            part = chunk[at : at + watch.max_tokens]
            sequence.append(part)
            engine.core.scheduler.run_on(watch, Request(sequence, sequence.n_cached, part))
            for each in seen:
                each.drain(len(part))
        if on_chunk:
            on_chunk(n + 1, len(chunks))
    sums = {name: each.total for each in seen for name in each.names}
    bad = next((name for name, values in sums.items() if not np.isfinite(values).all()), None)
    if bad is not None:
        raise ModelError(f"{engine.model.name}: what enters {bad} is not finite; check the model")
    counts = {name: each.total_counts for each in seen for name in each.names}
    return Collected(sums, counts, len(chunks), size)
