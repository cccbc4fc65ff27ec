"""What a phase did, from the counts of its passes and the stamps of their ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...jit.kernels.attention import token_tile
from ...traces.events import PassEvent, PhaseEvent, ShareRecord
from ..physics.costs import Bound, PassCost, Prediction, layer_cost, observe, pass_cost, predict
from ..physics.latency_model import Efficiency, attainable
from .layer_profile import layer_times

if TYPE_CHECKING:
    from ..physics.machine import MachineProfile
    from .runner import Rows
    from .session import Session
    from .shared_pass import SharedPass


class PhaseMetrics:
    """The accounts of one session's phases; `reset` begins one, `finish` ends it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._shared: list[tuple[int, SharedPass]] = []  # and this session's place in each
        self._part = PassCost()  # of these
        self._touched: list[float] = []  # experts that each layer's passes took since `reset`

    def reset(self) -> None:
        """Start the sums anew."""
        for times in self._session.measured.values():
            times.reset()
        self._shared, self._part = [], PassCost()
        cost = self._session.engine.cost
        self._touched = [0] * cost.sparse_layers

    def kernel_seconds(self) -> float:
        """Mean time of a thread inside kernels since `reset`."""
        work = sum(float(times.work_seconds().sum()) for times in self._session.measured.values())
        return work / self.active_threads() + sum(
            p.share(at) * p.kernel_s for at, p in self._shared
        )

    def rows_seconds(self) -> float:
        """The part of it in kernels that neither multiply by weights nor attend."""
        total = 0.0
        for plan, times in self._session.measured.items():
            if times.passes:
                work = times.work_seconds().sum(axis=0)
                total += float(work[plan.rows].sum())
        part = sum(p.share(at) * p.elementwise_s for at, p in self._shared)
        return total / self.active_threads() + part

    def pass_seconds(self) -> float:
        """Time inside passes since `reset`: of those that others shared, by its number of rows."""
        alone = self._session.measured.values()
        own = sum(float((t.work_seconds() + t.wait_seconds()).sum()) for t in alone)
        return own / self.active_threads() + self.shared_seconds()

    def shared_seconds(self) -> float:
        """The part of them in passes that others shared."""
        return sum(p.share(at) * p.seconds for at, p in self._shared)

    def pass_events(self) -> list[PassEvent]:
        """What a trace says of the shared passes since `reset`."""
        return [shared.event(place) for place, shared in self._shared]

    def active_threads(self) -> float:
        """Threads that run a pass since `reset`, on average."""
        all_ = self._session.measured.values()
        passes = sum(times.passes for times in all_) + len(self._shared)
        if not passes:
            return self._session.engine.pool.active
        threads = sum(p.threads for _, p in self._shared)
        return (sum(times.active_threads for times in all_) + threads) / passes

    def cost(self, rows: Rows, start: int) -> PassCost:
        """Counts of a pass that computed `rows` from position `start` on.

        Of one that other sessions shared, this session's part: see `part_cost`.
        """
        engine, plan = self._session.engine, rows.plan
        assert plan is not None, "a pass has computed them"
        tile = token_tile(engine.network.config.heads.group)
        model, read = engine.cost, None
        tokens, outputs = rows.computed, rows.outputs if rows.logits is not None else 0
        if rows.shared is not None:
            share = rows.shared.share(rows.place)
            self._shared.append((rows.place, rows.shared))
            self._touched = [
                a + share * b for a, b in zip(self._touched, rows.shared.experts, strict=True)
            ]
            cost = rows.shared.cost(rows.place)
            self._part += cost
            return cost
        if model.experts and not plan.graph.decode:
            self._touched = [a + b for a, b in zip(self._touched, rows.experts, strict=True)]
            read = float(sum(rows.experts))
        else:
            self.add_steps(1)
        return pass_cost(model, tokens, start, outputs, plan.tape.barriers, tile, read)

    def _experts(self, cost: PassCost, passes: int) -> float | None:
        """Distinct experts that a layer touched in a pass, on average."""
        model = self._session.engine.cost
        if not model.experts or not passes:
            return None
        return round(cost.experts_read / (passes * model.sparse_layers), 2)

    def add_steps(self, passes: int) -> None:
        """Count what passes of one token took."""
        used = self._session.engine.cost.experts_used
        self._touched = [count + passes * used for count in self._touched]

    def _company(self) -> ShareRecord | None:
        """What the phase had of passes that other sessions shared."""
        if not self._shared:
            return None
        passes = len(self._shared)
        return ShareRecord(
            passes=passes,
            sequences=round(sum(p.sequences for _, p in self._shared) / passes, 2),
            seconds=self.shared_seconds(),
            flops=self._part.flops,
            bytes=self._part.bytes,
        )

    def _experts_by_layer(self, passes: int) -> list[float]:
        """The same for each layer."""
        return [round(count / max(1, passes), 2) for count in self._touched]

    def finish(
        self,
        phase: str,
        purpose: str,
        ids: list[int],
        before: int,
        wall: float,
        kernel: float,
        cost: PassCost,
        passes: int,
        plan: str,
        adopted: int = 0,
    ) -> PhaseEvent:
        """The event of a phase that has ended; it is the session's last one.

        adopted: of `ids`, the first ones, which another session had computed.
        """
        session = self._session
        engine = session.engine
        known = engine.calibration
        machine = known.machine if known else engine.machine
        reached = known.efficiency if known else Efficiency()  # of a typical machine
        prediction = predict(cost, engine.cost, machine, passes)
        rates = attainable(cost, engine.cost, machine, reached, passes)
        # Of passes that others shared its part counts, not the time that it waited for theirs.
        inside = self.pass_seconds() if self._shared else wall
        seen = observe(prediction, inside, kernel, rates, self.rows_seconds())
        computed, start = len(ids) - adopted, before + adopted
        bound, seconds = self._expected(phase, computed, start, passes, prediction)
        event = PhaseEvent(
            phase=phase,  # pyright: ignore[reportArgumentType]
            purpose=purpose,
            predicted=bound,
            predicted_by=known.name if known else "roofline",
            predicted_wall_s=seconds,
            observed=seen.bound,
            tokens=len(ids),
            kv_before=before,
            kv_after=session.n_cached,
            cached_tokens=start,
            shared_tokens=adopted,
            recomputed_tokens=session.recomputed,
            shared=self._company(),
            wall_s=wall,
            flops=cost.flops,
            bytes=cost.bytes,
            mfu=seen.mfu,
            mbu=seen.mbu,
            dispatch_share=seen.dispatch_share,
            limit_share=seen.limit_share,
            threads=round(self.active_threads()),
            plan=plan,
            memory_level=prediction.level,
            experts=self._experts(cost, passes),
            experts_by_layer=self._experts_by_layer(passes),
            token_ids=ids,
            passes=passes,
            predicted_s=prediction.as_dict(),
            bound_shares={str(name): share for name, share in seen.shares.items()},
        )
        session.recomputed = 0
        event.tuning = engine.tuning.phase(phase == "decode", computed, start, passes, wall)
        if session.profile:
            event.layers = layer_times(session.measured)
            self._judge_layers(event, cost, machine, reached)
        session.last_phase = event
        return event

    def _expected(
        self, phase: str, tokens: int, start: int, passes: int, least: Prediction
    ) -> tuple[Bound, float]:
        """The bound and the seconds that were to be expected before the phase.

        Without a calibration that is the roofline's: a least time, not a likely one.
        """
        engine = self._session.engine
        known = engine.calibration
        if known is None:
            return least.bound, least.limit_s
        if phase == "prefill":
            expected = known.estimate(engine.cost, max(1, tokens), start)
            return expected.seen.bound, expected.seconds
        # Time grows with the cache in a straight line: the pass in the middle stands for all.
        expected = known.estimate(engine.cost, 1, start + passes // 2)
        return expected.seen.bound, passes * expected.seconds

    def _judge_layers(
        self, event: PhaseEvent, total: PassCost, machine: MachineProfile, reached: Efficiency
    ) -> None:
        """Say of each layer what was reached of the limits, and what it was bound by."""
        model, passes = self._session.engine.cost, event.passes
        for record in event.layers:
            if record.layer is None:
                continue
            read = self._touched[record.layer] if self._touched else 0
            cost = layer_cost(model, total, passes, read)
            # A level is chosen by what a whole pass reads: a layer's bytes are cold again.
            least = predict(cost, model, machine, level=event.memory_level)
            rates = attainable(cost, model, machine, reached, level=event.memory_level)
            seen = observe(least, record.wall_s, record.wall_s - record.wait_s, rates)
            record.mfu, record.mbu, record.observed = seen.mfu, seen.mbu, seen.bound
