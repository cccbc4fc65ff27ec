"""The latency and memory forecast of a model on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import SettingError
from ...jit.kernels.kvcache import PAGE, KVFormat, page_bytes
from ...jit.targets import TARGETS
from ..bench.reach import USUAL, cost_of, usual_passes
from ..hub.aliases import KnownModel, by_alias
from ..physics import calibration
from ..physics.costs import ModelCost, Part
from ..physics.latency_model import Efficiency, Passes, estimate, expect_mixed
from ..physics.machine import DOUBT, MachineProfile
from ..synthetic.write import PREFIX, SyntheticModel
from .cost import Speeds, Usage

if TYPE_CHECKING:
    from ..engine.engine import Engine

MAX_CONTEXT = 1 << 24  # tokens of a step


@dataclass(frozen=True)
class Forecaster:
    """A model on a machine."""

    name: str
    """Of the model."""
    cost: ModelCost
    machine: MachineProfile
    reached: Efficiency
    passes: Passes
    kv: KVFormat = "bf16"
    """Format of the cache."""
    basis: str = "usual"
    """Whose shares of the limits these are: ``calibration`` or ``usual``."""

    @property
    def weights(self) -> float:
        """Weights in matrices."""
        return self.cost.body_weights + self.cost.expert_weights + self.cost.head_weights

    @property
    def active(self) -> float:
        """Weights used by a token."""
        return self.cost.token_weights + self.cost.head_weights

    def mixed_s(self, parts: Sequence[Part]) -> float:
        """Return the expected seconds of a pass with rows of several sequences."""
        return expect_mixed(self.cost, self.machine, self.reached, self.passes, parts).seconds

    def phase_s(self, tokens: int, start: int, batch: int = 1) -> float:
        """Return the seconds of a phase of one sequence, or of `batch` equal ones."""
        found = estimate(
            self.cost, self.machine, self.reached, self.passes, tokens, start, batch=batch
        )
        return found.seconds

    def speeds(self, usage: Usage) -> Speeds:
        """Return tokens a second of computed prompts, and of a decode behind them.

        Raises:
            SettingError: a step has more tokens than any context.
        """
        context = max(1, round(usage.input / usage.steps))
        if context > MAX_CONTEXT:  # pass by pass, that would take for ever
            raise SettingError(
                f"a step of a question has {context:,} tokens of input, more than any context "
                f"({MAX_CONTEXT:,}); give the tokens of one question, and how many steps it has"
            )
        tokens = max(1, round(usage.computed / usage.steps))
        prefill = tokens / self.phase_s(tokens, max(0, context - tokens))
        decode = usage.concurrency / self.phase_s(1, context, usage.concurrency)
        doubt = f"; {DOUBT}" * self.machine.doubtful
        return Speeds(prefill, decode, f"predicted, {self.basis}{doubt}")

    def with_machine(self, machine: MachineProfile) -> Forecaster:
        """Return the forecast of the same model and efficiency on other limits."""
        return replace(self, machine=machine)

    def with_kv(self, kv: KVFormat) -> Forecaster:
        """Return the forecast with a cache in another format, at the same efficiency."""
        if kv == self.kv:
            return self
        was, now = (page_bytes(one, 1, 1, self.cost.head_dim) / PAGE for one in (self.kv, kv))
        cost, scale = self.cost, now / was
        attention = tuple(one._replace(kv_bytes=one.kv_bytes * scale) for one in cost.attention)
        cost = replace(
            cost, kv_bytes=cost.kv_bytes * scale, attention=attention, int8_cache=kv == "q8"
        )
        return replace(self, cost=cost, kv=kv)


def of_engine(engine: Engine, found: calibration.Calibration) -> Forecaster:
    """Return the forecast of a loaded engine, with its calibration."""
    cost = replace(engine.loaded.cost, expert_diversity=found.expert_diversity)
    return Forecaster(
        engine.model.name,
        cost,
        found.machine,
        found.efficiency,
        found.passes,
        engine.kv,
        found.name,
    )


def of_name(
    name: str, machine: MachineProfile, kv: KVFormat = "bf16", reached: Efficiency | None = None
) -> Forecaster | None:
    """Return the forecast of a model by alias or as ``synthetic:SHAPE:TYPE``, without its file.

    reached: what kernels reach of the limits; by default as the calibration of just this model on
    this machine says, or what is usual.

    Returns:
        None if the name is neither.

    Raises:
        SettingError: the machine's feature set is not known here, such as that of a later version.
    """
    known = by_alias(name)
    if known is None and name.startswith(PREFIX):
        model = SyntheticModel.parse(name)
        known = KnownModel(model.name, "", "", model.quant, 0, "", "", True, model.shape)
    if known is None:
        return None
    if machine.target not in TARGETS:
        raise SettingError(
            f"the machine has the feature set {machine.target!r}, which is not known here; known: "
            f"{', '.join(TARGETS)}"
        )
    cost = cost_of(known, TARGETS[machine.target].lanes, kv)
    saved = calibration.load(calibration.path_of(cost, machine, kv)) if reached is None else None
    if saved is not None:
        cost = replace(cost, expert_diversity=saved.expert_diversity)
        return Forecaster(name, cost, machine, saved.efficiency, saved.passes, kv, "calibration")
    basis = "usual" if reached is None else "given"
    return Forecaster(name, cost, machine, reached or USUAL, usual_passes(cost), kv, basis)
