"""Register tile sizes: alternatives to the default, measured and saved.

A product unpacks a panel's weights once for each tile of tokens. A larger tile has less to unpack
and to read again, but its sums do not all fit into the registers; what that costs differs from CPU
to CPU. Two figures make a plan:

    tile    tokens of a tile at most, in a pass of many
    max_single_tile  tokens up to which a pass is one tile, whatever its size

No figure changes a bit of the results. `measure` runs a product of the real kernels with each
candidate, in turns; another than the usual one is taken only if it was clearly faster in every
round. Kernels for other tiles have to be compiled, which takes seconds: so this is done when it
is asked for (`triplepoint doctor --measure`), and a plan is kept by machine, target and kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...jit.compile import Library, source_hash, spec
from ...jit.kernels.activations import BLOCK_BYTES
from ...jit.kernels.gemm import gemm_quant, scratch_bytes
from ...jit.kernels.panels import FORMATS
from ...jit.kernels.tiles import quant_tile_tokens, single_tile_tokens
from ...jit.pool import Pool, aligned
from ...jit.tape import DYNAMIC, CompiledTape, Tape
from ...jit.targets import CpuTarget
from ..memory import Arena
from .machine import load_fields, now, profile_folder, run_tape, save_fields
from .thread_sweep import machine_id

FASTER = 1.03  # than the usual tile, in each round: what counts as a gain
ROUNDS = 5
RUNS = 3  # in each round, of which the best counts
FORMAT, DEPTH = "q4_0", 1024  # of the product that is measured
MAX_TILE = 16  # tokens of a tile: beyond, a kernel only grows
LONG = 126  # tokens of a pass of many: any tile of up to 9 tokens cuts it nearly evenly
SHORT_BYTES, LONG_BYTES = 16 << 20, 1 << 20  # of weights: from memory, and from a core's own cache


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The register tile sizes of GEMMs."""

    tile: int
    max_single_tile: int
    """Tokens of a tile, and tokens up to which a pass is one tile, at least `tile`."""
    gains: Mapping[str, Sequence[float]]
    """By setting, such as ``tile=8``, its speedup in each round."""
    date: str = ""
    """When it was measured; "" for the default plan."""


def default(target: CpuTarget) -> TilePlan:
    """Return the plan of a machine without measurements."""
    return TilePlan(quant_tile_tokens(target), single_tile_tokens(target), {})


def constants(target: CpuTarget, tile: int, max_single_tile: int) -> dict[str, int]:
    """Return the constants of a GEMM's kernel; none for the default plan."""
    found = {} if tile == quant_tile_tokens(target) else {"tile": tile}
    # Up to the larger of the two a pass is one tile.
    same = max(tile, max_single_tile) == max(tile, single_tile_tokens(target))
    return found | ({} if same else {"max_single_tile": max(tile, max_single_tile)})


def candidates(target: CpuTarget) -> tuple[list[int], list[int]]:
    """Return tiles that may beat the default, and token counts for `max_single_tile`."""
    tile, max_single_tile = quant_tile_tokens(target), single_tile_tokens(target)
    return [tile + max(1, tile // 3)], [
        tile if max_single_tile > tile else tile + max(2, tile // 2)
    ]


def best(gains: Mapping[int, Sequence[float]], default: int) -> int:
    """Return the candidate with the largest gain of those that gained in every round."""
    clear = {value: rounds for value, rounds in gains.items() if min(rounds) >= FASTER}
    return max(clear, key=lambda value: float(np.median(clear[value])), default=default)


def measure(library: Library, pool: Pool) -> TilePlan:
    """Measure the best tile plan of this machine: under a second, and the time to compile."""
    target = library.target
    plan, (tiles, wholes) = default(target), candidates(target)
    bench = _Bench(library, pool)
    by_tile = bench.gains(
        {n: constants(target, n, plan.max_single_tile) for n in tiles}, LONG, LONG_BYTES
    )
    by_whole: dict[int, list[float]] = {}
    for n in wholes:  # with so many tokens a tile has least room
        max_tokens = max(n, plan.max_single_tile)
        by_whole |= bench.gains({n: constants(target, plan.tile, n)}, max_tokens, SHORT_BYTES)
    tile = best(by_tile, plan.tile)
    labels = {f"tile={n}": found for n, found in by_tile.items()}
    labels |= {f"max_single_tile={n}": found for n, found in by_whole.items()}
    rounded = {name: [round(gain, 3) for gain in found] for name, found in labels.items()}
    return TilePlan(tile, max(tile, best(by_whole, plan.max_single_tile)), rounded, now())


class _Bench:
    """One product with random weights, on a pool."""

    def __init__(self, library: Library, pool: Pool) -> None:
        self.library, self.pool = library, pool
        self.panel_bytes = DEPTH // 32 * FORMATS[FORMAT].panel_block_bytes(library.target.lanes)
        self.data = Arena(SHORT_BYTES).take(SHORT_BYTES)
        self.data[:] = 0x21  # small scales, and weights that are not zero
        self.x = aligned((LONG, DEPTH // 32 * BLOCK_BYTES), np.uint8)
        self.x[:] = 0x21
        self.scratch = aligned(scratch_bytes(FORMAT, DEPTH, library.target), np.uint8)

    def gains(
        self, others: Mapping[int, Mapping[str, int]], tokens: int, nbytes: int
    ) -> dict[int, list[float]]:
        """Return each one's speed over that of the default kernel, for a pass of so many tokens."""
        every: dict[int, Mapping[str, int]] = {0: {}, **others}
        tapes = {n: self._tape(given, tokens, nbytes) for n, given in every.items()}
        for tape in tapes.values():
            run_tape(tape)
        rounds = [self._round(tapes) for _ in range(ROUNDS)]
        return {n: [seconds[0] / seconds[n] for seconds in rounds] for n in others}

    @staticmethod
    def _round(tapes: Mapping[int, CompiledTape]) -> dict[int, float]:
        """Return the best seconds of a few runs of each, in turns: a neighbor only adds time."""
        times: dict[int, list[float]] = {n: [] for n in tapes}
        for turn in range(RUNS):
            # Forth and back, so that what comes and goes in step with the turns hits all alike.
            for n in list(tapes)[:: -1 if turn % 2 else 1]:
                times[n].append(run_tape(tapes[n]))
        return {n: min(found) for n, found in times.items()}

    def _tape(self, given: Mapping[str, int], tokens: int, nbytes: int) -> CompiledTape:
        lanes, units = self.library.target.lanes, nbytes // self.panel_bytes
        out = aligned((tokens, units * 2 * lanes), np.float32)
        kernel = spec(gemm_quant, fmt=FORMAT, epilogue="store", blocks=DEPTH // 32, **given)
        args = [self.data, self.x, out, out.shape[1], np.array([tokens], np.int64), self.scratch]
        tape = Tape("tiles", self.pool.threads)
        chunk = max(1, units // (16 * self.pool.threads))
        tape.op("gemm", kernel, args, np.array([units], np.int64), mode=DYNAMIC, chunk=chunk)
        return tape.finish(self.library, self.pool)


def save(found: TilePlan, library: Library, folder: Path | None = None) -> None:
    """Save a plan to the cache; if that fails, the default stays."""
    save_fields(_path(library, folder), found)


def load(library: Library, folder: Path | None = None) -> TilePlan | None:
    """Load the plan of this machine and these kernels; None if there is no valid one."""
    return load_fields(_path(library, folder), _of_fields)


def _of_fields(fields: dict[str, Any]) -> TilePlan | None:
    gains = {str(name): [float(g) for g in found] for name, found in fields["gains"].items()}
    plan = TilePlan(int(fields["tile"]), int(fields["max_single_tile"]), gains, str(fields["date"]))
    return plan if 1 <= plan.tile <= plan.max_single_tile <= MAX_TILE else None


def _path(library: Library, folder: Path | None) -> Path:
    name = f"tiles-{machine_id(library)}-{source_hash()[:8]}.json"
    return (folder or profile_folder()) / name
