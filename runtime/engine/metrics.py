"""Metrics of a phase, from the counts of its passes and the time stamps of their ops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...traces.events import PassEvent, PhaseEvent, ShareRecord
from ..physics.costs import Bound, PassCost, Prediction, layer_cost, part_times, pass_cost
from ..physics.energy import EnergyMeter
from ..physics.latency_model import attainable
from ..physics.observation import observe
from ..physics.other_work import OtherWork
from ..physics.run_delay import RunDelay
from .layer_profile import layer_times

if TYPE_CHECKING:
    from .model.loaded_model import LoadedModel
    from .passes.request import StepResult
    from .passes.sequence import TokenSequence
    from .passes.shared_pass import SharedPass


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of passes, as the mean over the threads that ran them."""

    kernel_s: float = 0.0
    """Inside kernels."""
    elementwise_s: float = 0.0
    """In kernels that neither multiply by weights nor attend."""
    inside_s: float = 0.0
    """In passes altogether."""
    active_threads: float = 1.0
    """Threads that ran a pass, on average."""


class PhaseMetrics:
    """Metrics of one sequence's phases; `reset` begins a phase, `finish` ends it."""

    def __init__(self, loaded: LoadedModel, sequence: TokenSequence) -> None:
        self._loaded, self._sequence = loaded, sequence
        self._shared: list[tuple[int, SharedPass]] = []  # and this sequence's place in each
        self._part = PassCost()  # of these
        self._touched: list[float] = []  # experts that each layer's passes took since `reset`
        self._run_delay: RunDelay | None = None  # of the pool's threads since `reset`
        self._energy: EnergyMeter | None = None  # since `reset`
        self._other: OtherWork | None = None  # since `reset`

    def reset(self) -> None:
        """Reset the sums at the beginning of a phase."""
        self._energy, self._other = EnergyMeter(), OtherWork()
        self._run_delay = RunDelay(self._loaded.pool.worker_ids)
        for times in self._sequence.measured.values():
            times.reset()
        self._shared, self._part = [], PassCost()
        cost = self._loaded.cost
        self._touched = [0] * cost.sparse_layers

    def spent(self) -> Spent:
        """Return the time of passes since `reset`; shared ones count by the share of rows."""
        kernel = elementwise = inside = active = 0.0
        passes = len(self._shared)
        for plan, times in self._sequence.measured.items():
            if times.passes:
                seconds = plan.seconds(times)
                kernel += seconds[0]
                elementwise += seconds[1]
                inside += seconds[2]
                passes += times.passes
                active += times.active_threads
        active += sum(shared.threads for _, shared in self._shared)
        threads = active / passes if passes else float(self._loaded.pool.active)
        kernel, elementwise, inside = kernel / threads, elementwise / threads, inside / threads
        for place, shared in self._shared:
            share = shared.share(place)
            kernel += share * shared.kernel_s
            elementwise += share * shared.elementwise_s
            inside += share * shared.seconds
        return Spent(kernel, elementwise, inside, threads)

    def shared_passes(self) -> list[tuple[int, SharedPass]]:
        """Return the shared passes since `reset`, with this sequence's index in each."""
        return self._shared  # `reset` begins another list

    def pass_events(self) -> list[PassEvent]:
        """Return the trace events of the shared passes since `reset`."""
        return [shared.event(place) for place, shared in self._shared]

    def cost(self, result: StepResult, start: int) -> PassCost:
        """Count the work of a pass that computed rows from position `start` on.

        Of one that other sequences shared, this sequence's part: see `part_cost`.
        """
        loaded, plan, shared = self._loaded, result.plan, result.shared
        assert plan is not None, "a pass has computed them"
        tile = loaded.attention_tile
        model, read = loaded.cost, None
        tokens, outputs = result.computed, result.logits.count if result.logits is not None else 0
        if shared is not None:
            share = shared.share(result.place)
            self._shared.append((result.place, shared))
            self._touched = [
                a + share * b for a, b in zip(self._touched, shared.experts, strict=True)
            ]
            cost = shared.cost(result.place)
            self._part += cost
            return cost
        if model.experts and not plan.graph.decode:
            self._touched = [a + b for a, b in zip(self._touched, result.experts, strict=True)]
            read = float(sum(result.experts))
        else:
            self.add_steps(1)
        return pass_cost(model, tokens, start, outputs, plan.tape.barriers, tile, read)

    def _experts(self, cost: PassCost, passes: int) -> float | None:
        """Return the distinct experts that a layer touched in a pass, on average."""
        model = self._loaded.cost
        if not model.experts or not passes:
            return None
        return round(cost.experts_read / (passes * model.sparse_layers), 2)

    def add_steps(self, passes: int) -> None:
        """Count the experts of single-token passes."""
        used = self._loaded.cost.experts_used
        self._touched = [count + passes * used for count in self._touched]

    def _company(self) -> ShareRecord | None:
        """Summarize this phase's part of the passes that other sequences shared."""
        if not self._shared:
            return None
        passes = len(self._shared)
        return ShareRecord(
            passes=passes,
            sequences=round(sum(p.sequences for _, p in self._shared) / passes, 2),
            seconds=sum(p.share(at) * p.seconds for at, p in self._shared),
            flops=self._part.flops,
            bytes=self._part.bytes,
        )

    def _experts_by_layer(self, passes: int) -> list[float]:
        """Return the distinct experts touched in a pass, on average, for each layer."""
        return [round(count / max(1, passes), 2) for count in self._touched]

    def finish(
        self,
        phase: str,
        purpose: str,
        ids: list[int],
        before: int,
        wall: float,
        spent: Spent,
        cost: PassCost,
        passes: int,
        plan: str,
        adopted: int = 0,
    ) -> PhaseEvent:
        """Build the event of a phase that has ended, and set it as the sequence's last one.

        spent: what `spent` returned at its end. adopted: of `ids`, the first ones, which another
        sequence had computed.
        """
        loaded, sequence = self._loaded, self._sequence
        known = loaded.calibration
        machine, reached = loaded.attained
        times = part_times(cost, loaded.cost, machine, passes)
        prediction = times.minimum
        # Of passes that others shared its part counts, not the time that it waited for theirs.
        inside = spent.inside_s if self._shared else wall
        seen = observe(
            prediction, inside, spent.kernel_s, attainable(times, reached), spent.elementwise_s
        )
        shares = seen.shares
        computed, start = len(ids) - adopted, before + adopted
        rows = 1 if phase == "decode" else computed
        bound, seconds, factor = self._expected(phase, rows, start, passes, prediction)
        if known is not None and self._shared:  # each of these had a prediction of its own
            alone, factor = max(0, passes - len(self._shared)) / max(1, passes), 1.0
            seconds = alone * seconds + sum(shared.expected_s for _, shared in self._shared)
        event = PhaseEvent(
            phase=phase,  # pyright: ignore[reportArgumentType]
            purpose=purpose,
            predicted=bound,
            predicted_by=(known.name if known else "roofline") + " (doubtful)" * machine.doubtful,
            predicted_wall_s=factor * seconds,
            predicted_factor=factor,
            observed=seen.bound,
            tokens=len(ids),
            kv_before=before,
            kv_after=sequence.n_cached,
            cached_tokens=start,
            shared_tokens=adopted,
            recomputed_tokens=sequence.recomputed,
            recalled_bytes=sequence.recalled,
            shared=self._company(),
            wall_s=wall,
            flops=cost.flops,
            bytes=cost.bytes,
            mfu=seen.mfu,
            mbu=seen.mbu,
            dispatch_share=seen.dispatch_share,
            limit_share=seen.limit_share,
            threads=round(spent.active_threads),
            plan=plan,
            memory_level=prediction.level,
            experts=self._experts(cost, passes),
            predicted_experts=self._expected_experts(rows) if passes else None,
            experts_by_layer=self._experts_by_layer(passes),
            token_ids=ids,
            passes=passes,
            predicted_s=prediction.as_dict(),
            bound_shares={str(name): share for name, share in shares.items()},
            run_delay_share=self._run_delay.share(wall) if passes and self._run_delay else None,
            others_share=self._other.share() if passes and self._other else None,
            joules=self._energy.joules() if passes and self._energy else None,
        )
        sequence.recomputed = sequence.recalled = 0
        # The wait for shared passes says nothing of its own: those were observed one by one.
        alone_s = 0.0 if self._shared else wall
        event.tuning = loaded.tuning.phase(phase == "decode", computed, start, passes, alone_s)
        if known is not None and passes and not self._shared:
            loaded.drift.learn(event, loaded.cost)
        if sequence.profile:
            event.layers = layer_times(sequence.measured)
            self._judge_layers(event, cost, computed, start)
        sequence.last_phase = event
        return event

    def adopted(self, purpose: str, wall_s: float) -> PhaseEvent:
        """Build the event of a sequence whose tokens were all adopted, none computed here.

        Args:
            purpose: where they come from, e.g. ``fork``.
            wall_s: seconds that it took to adopt them.
        """
        sequence, nothing = self._sequence, PassCost()
        at, ids = sequence.n_cached, list(sequence.tokens)
        spent = Spent(active_threads=self._loaded.pool.active)
        event = self.finish("prefill", purpose, ids, at, wall_s, spent, nothing, 0, "none")
        event.tokens, event.predicted = 0, event.observed
        return event

    def _expected(
        self, phase: str, rows: int, start: int, passes: int, least: Prediction
    ) -> tuple[Bound, float, float]:
        """Return bound and seconds that were predicted for the phase, and the factor from others.

        Without a calibration that is the roofline's: a least time, not a likely one.
        """
        loaded = self._loaded
        if loaded.calibration is None:
            return least.bound, least.limit_s, 1.0
        known = loaded.drift.calibration(loaded.calibration)
        if phase == "prefill":
            count, expected = 1, known.estimate(loaded.cost, max(1, rows), start)
        else:  # Time grows with the cache in a straight line: the middle pass is their mean.
            count, expected = passes, known.estimate(loaded.cost, 1, start + passes // 2)
        bound = expected.seen.bound
        return bound, count * expected.seconds, loaded.drift.factor(bound)

    def _expected_experts(self, rows: int) -> float | None:
        """Return the distinct experts of a layer that are expected of a pass; None: dense."""
        model, known = self._loaded.cost, self._loaded.calibration
        if not model.experts:
            return None
        if known is not None:
            spread = self._loaded.drift.calibration(known).expert_diversity
            model, rows = replace(model, expert_diversity=spread), min(rows, known.passes.chunk)
        return round(model.expected_experts(rows) / model.sparse_layers, 2)

    def _judge_layers(self, event: PhaseEvent, total: PassCost, tokens: int, start: int) -> None:
        """Set each layer's share of the machine's limits, and what it was bound by."""
        model, parts, passes = self._loaded.cost, self._loaded.layer_parts, event.passes
        machine, reached = self._loaded.attained
        sparse = [n for n, part in enumerate(parts) if part.sparse]
        touched = dict(zip(sparse, self._touched, strict=True))
        for record in event.layers:
            if record.layer is None:
                continue
            read = touched.get(record.layer, 0)
            cost = layer_cost(model, parts, record.layer, total, passes, read, tokens, start)
            # A level is chosen by what a whole pass reads: a layer's bytes are cold again.
            times = part_times(cost, model, machine, level=event.memory_level)
            inside = record.wall_s - record.wait_s
            seen = observe(times.minimum, record.wall_s, inside, attainable(times, reached))
            record.mfu, record.mbu, record.observed = seen.mfu, seen.mbu, seen.bound
