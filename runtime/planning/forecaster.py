"""The latency and memory forecast of a model on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import SettingError
from ...jit.kernels.kvcache import KVFormat, key_format, layer_bytes, value_format
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
    """A forecaster of the latencies and speeds of a model on a machine."""

    name: str
    """The name of the model."""
    cost: ModelCost
    machine: MachineProfile
    reached: Efficiency
    passes: Passes
    kv: KVFormat = "bf16"
    """Format of the KV cache."""
    basis: str = "usual"
    """Source of the efficiency: ``calibration``, or ``usual`` for typical values."""

    @property
    def weights(self) -> float:
        """Number of weights in all matrices."""
        return self.cost.body_weights + self.cost.expert_weights + self.cost.head_weights

    @property
    def active(self) -> float:
        """Number of weights that a token uses."""
        return self.cost.token_weights + self.cost.head_weights

    def mixed_s(self, parts: Sequence[Part]) -> float:
        """Predict the seconds of a pass with rows of several sequences."""
        return expect_mixed(self.cost, self.machine, self.reached, self.passes, parts).seconds

    def phase_s(self, tokens: int, start: int, batch: int = 1) -> float:
        """Predict the seconds of a phase of one sequence, or of `batch` equal ones."""
        found = estimate(
            self.cost, self.machine, self.reached, self.passes, tokens, start, batch=batch
        )
        return found.seconds

    def speeds(self, usage: Usage) -> Speeds:
        """Predict tokens a second of prefill, and of decode, for a profile of use.

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
        """Return a forecaster of the same model and efficiency on another machine."""
        return replace(self, machine=machine)

    def with_kv(self, kv: KVFormat) -> Forecaster:
        """Return a forecaster with another KV format, at the same efficiency."""
        if kv == self.kv:
            return self
        cost = self.cost
        was, now = (layer_bytes(one, 1, cost.head_dim, cost.value_dim) for one in (self.kv, kv))
        scale = now / was
        attention = tuple(one._replace(kv_bytes=one.kv_bytes * scale) for one in cost.attention)
        cost = replace(
            cost,
            kv_bytes=cost.kv_bytes * scale,
            attention=attention,
            int8_keys=key_format(kv) == "q8",
            int8_values=value_format(kv, in_keys=cost.value_dim > 0) == "q8",
        )
        return replace(self, cost=cost, kv=kv)


def of_engine(engine: Engine, found: calibration.Calibration) -> Forecaster:
    """Return the forecaster of a loaded engine, with its calibration."""
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
    """Return the forecaster of a model by alias or as ``synthetic:SHAPE:TYPE``, without its file.

    reached: the kernels' efficiency; by default that of a calibration of this model on this
    machine, else typical.

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
