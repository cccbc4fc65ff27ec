"""The expected speed of known models on this machine, without a download.

A model's shape and types give what a pass has to read and multiply (`costs.py`), this machine's
measured limits how long that takes. What kernels reach of the limits is the calibration's where one
is kept of just this model, else what is usual.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from ...jit.kernels.attention import token_tile
from ...jit.kernels.kvcache import KVFormat
from ...jit.targets import TARGETS
from ..engine.model.model_cost import Sized, size_up
from ..forward.kv import resident_positions
from ..hub.aliases import KnownModel, known_models
from ..physics import calibration
from ..physics.costs import ModelCost
from ..physics.latency_model import Efficiency, LatencyEstimate, Passes, estimate
from ..physics.machine import MachineProfile
from ..synthetic.write import SyntheticModel

PROMPT = 1000  # tokens of the prompt whose TTFT is told
CONTEXT = 4096  # tokens in the cache for the second decode speed, and for the memory
TOGETHER = 8  # sequences of a pass, where more than one is told
FLUENT = 8.0  # tokens a second that a model must write to be a good choice: people read as fast
YEAR = 12  # months in which models of a size have become much better
KV: KVFormat = "bf16"
_OVERHEAD = 400 << 20  # bytes of Python, kernels, buffers and the vocabulary
USUAL = Efficiency(read=0.8)
"""Typical efficiency: decode reached 63 to 94 % of the best measured memory bandwidth with six
models on two CPUs (docs/measured.md), and 71 % on a busy machine."""
_CHUNK = 512  # tokens of a pass, as engines choose it as a rule


@dataclass(frozen=True, slots=True)
class Speed:
    """The expected speed of a model here."""

    ttft_s: float
    """Seconds from a prompt of `PROMPT` tokens to the first token of the answer."""
    decode: float
    decode_deep: float
    """Decode tokens a second with an empty KV cache, and at context `CONTEXT`."""
    together: float
    """Decode tokens a second of `TOGETHER` sequences in shared passes, at context `CONTEXT`."""
    basis: Literal["calibration", "limits"]
    """Source of the efficiency: a calibration, or the typical one (`USUAL`)."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The expected fit and speed of a model here."""

    model: KnownModel
    parameters: int
    """Number of weights, embeddings and all experts included."""
    memory: int
    """Bytes of memory with a KV cache of `CONTEXT` tokens."""
    fits: bool
    """Whether as much memory is available."""
    ttft_s: float
    """Seconds from a prompt of `PROMPT` tokens to the first token of the answer."""
    decode: float
    decode_deep: float
    """Decode tokens a second with an empty KV cache, and at context `CONTEXT`."""
    basis: Literal["calibration", "limits"]
    """Source of the efficiency: a calibration, or the typical one (`USUAL`)."""


def reach(
    machine: MachineProfile, available: int, models: Iterable[KnownModel] | None = None
) -> list[Reach]:
    """Estimate fit and speed of `models` (by default all known) in `available` bytes."""
    return [_reach(model, machine, available) for model in models or known_models()]


def best(found: Sequence[Reach]) -> Reach | None:
    """Choose the best model that fits, calls tools and decodes `FLUENT` tokens a second."""
    models = {one.model.alias: one for one in found}
    order = (models[model.alias] for model in _preferred([one.model for one in found]))
    return next(filter(_is_good, order), None)


def best_here(machine: MachineProfile, available: int) -> Reach | None:
    """Choose the best known model, without estimates of less preferred ones."""
    order = (_reach(model, machine, available) for model in _preferred(known_models()))
    return next(filter(_is_good, order), None)


def _preferred(models: Sequence[KnownModel]) -> list[KnownModel]:
    """Order by preference: models at most `YEAR` older than the newest first, then by weights, most
    first. File sizes mislead: a type that a model was trained for takes less room."""
    newest = max((_month(model.date) for model in models), default=0)

    def rank(model: KnownModel) -> tuple[bool, int]:
        return newest - _month(model.date) <= YEAR, _parameters(model)

    return sorted(models, key=rank, reverse=True)


def _is_good(one: Reach) -> bool:
    return one.fits and one.model.tools and one.decode >= FLUENT


def cost_of(model: KnownModel, lanes: int, kv: KVFormat = KV) -> ModelCost:
    """Return the cost model's inputs for a model, on a target of `lanes` SIMD lanes."""
    return sized(_synthetic(model), lanes, kv).cost


def sized(model: SyntheticModel, lanes: int, kv: KVFormat = KV) -> Sized:
    """Compute bytes of packed weights, KV cache and states, and pass costs, from a GGUF header."""
    from ..gguf.open import open_gguf

    target = next(one for one in TARGETS.values() if one.lanes == lanes)
    with TemporaryDirectory(prefix="triplepoint-") as folder:
        path = Path(folder) / "header.gguf"
        model.write_header(path)
        with open_gguf(path) as gguf:
            return size_up(gguf, target, kv, mtp=False)


def usual_passes(cost: ModelCost) -> Passes:
    """Return the typical partition of work into passes."""
    tile = token_tile(cost.heads // cost.kv_heads)
    return Passes(_CHUNK, tile, 5 * cost.layers + 4, 8 * cost.layers + 4)


def here() -> MachineProfile:
    """Return this machine's limits with all cores; measured in half a second if not known yet."""
    from ...jit.compile import Library
    from ...jit.pool import Pool
    from ...jit.targets import chosen
    from ..physics import machine

    target = chosen()
    library = Library(target)
    with Pool(library, machine.physical_cores()) as pool:
        return machine.profile(library, pool)


def known_here(target: str | None = None) -> MachineProfile | None:
    """Return this machine's limits with all its cores; None if they were never measured."""
    from ...jit.targets import named
    from ..physics import machine

    return machine.known(named(target).name, machine.physical_cores())


def speed(cost: ModelCost, machine: MachineProfile) -> Speed:
    """Estimate the speed of a model with these inputs of the cost model, with KV format `KV`."""
    known = calibration.load(calibration.path_of(cost, machine, KV))
    usual = usual_passes(cost)

    def expected(tokens: int, start: int, batch: int = 1) -> LatencyEstimate:
        if known is not None:
            return known.estimate(cost, tokens, start, machine, batch)
        return estimate(cost, machine, USUAL, usual, tokens, start, batch)

    return Speed(
        expected(PROMPT, 0).seconds,
        expected(1, 0).tokens_per_s,
        expected(1, CONTEXT).tokens_per_s,
        expected(1, CONTEXT, TOGETHER).tokens_per_s,
        "limits" if known is None else "calibration",
    )


def _reach(model: KnownModel, machine: MachineProfile, available: int) -> Reach:
    synthetic = _synthetic(model)
    one = sized(synthetic, TARGETS[machine.target].lanes)
    resident = resident_positions(CONTEXT, one.layout.window, one.layout.near_share)
    cached = round(resident * one.cost.kv_bytes)
    # The vocabulary, and in mixtures that `synthetic:` does not have, wider types.
    more = max(0, model.nbytes - synthetic.nbytes())
    memory = one.packed + more + cached + one.state + _OVERHEAD
    found = speed(one.cost, machine)
    return Reach(
        model=model,
        parameters=_parameters(model),
        memory=memory,
        fits=memory <= available,
        ttft_s=found.ttft_s,
        decode=found.decode,
        decode_deep=found.decode_deep,
        basis=found.basis,
    )


def _synthetic(model: KnownModel) -> SyntheticModel:
    return SyntheticModel(model.alias, model.quant, model.shape)


def _parameters(model: KnownModel) -> int:
    return sum(math.prod(dims) for _, dims, _ in _synthetic(model).tensors())


def _month(date: str) -> int:
    """Return the months since the year 0, of a date like ``2026-04``."""
    year, _, month = date.partition("-")
    return 12 * int(year) + int(month)
