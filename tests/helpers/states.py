"""States of sequences and the runs of a pass, as kernels of recurrent layers read them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from helpers.runners import Runner, Table

from triplepoint.jit.compile import Spec
from triplepoint.jit.kernels.batch import STATE_ENTRIES, TILE_SLOTS, describe_runs

FRONT = 5  # float32 values of other layers before the part of the layer at hand


class States:
    """The states of some sequences, which passes change."""

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.arrays = [np.concatenate([np.full(FRONT, 7, np.float32), p.ravel()]) for p in parts]

    def part(self, sequence: int) -> np.ndarray:
        """What a sequence's state is now: float32, flat."""
        assert (self.arrays[sequence][:FRONT] == 7).all()
        return self.arrays[sequence][FRONT:]

    def tables(self) -> tuple[Table, list[np.ndarray]]:
        """Entries before the page tables of all sequences, and where passes leave states."""
        to = [np.full_like(array, np.nan) for array in self.arrays]
        for array in to:
            array[:FRONT] = 7
        entries = [x for pair in zip(self.arrays, to, strict=True) for x in pair]
        return Table(entries), to


def run_pass(
    runner: Runner,
    kernel: Spec,
    states: States,
    spans: Sequence[tuple[int, int]],
    before: Sequence[object],
    after: Sequence[object],
    units: int,
    cut: int = 0,
) -> None:
    """Run a kernel for `spans`, (sequence, rows) each; `units` of each sequence.

    before, after: the arguments around pages, offset and runs. cut: the unit where another thread
    takes over, if not 0.
    """
    runs = np.zeros((len(spans), TILE_SLOTS), np.int64)
    assert STATE_ENTRIES == 2
    places = [(0, rows, 2 * (sequence + 1)) for sequence, rows in spans]
    describe_runs(runs, places)
    table, to = states.tables()
    args = [*before, table, FRONT, runs, *after]
    total = units * len(spans)
    for begin, end in ((0, cut), (cut, total)) if cut else ((0, total),):
        runner.call(kernel, args, begin, end)  # pyright: ignore[reportArgumentType]
    for sequence, _ in spans:
        states.arrays[sequence] = to[sequence]


def cuts(rows: int, size: int) -> list[slice]:
    """`rows` rows in passes of `size`."""
    return [slice(at, min(at + size, rows)) for at in range(0, rows, size)]
