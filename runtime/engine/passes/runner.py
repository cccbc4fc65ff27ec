"""Runs a pass: rows of one sequence, or of several, on the plan that fits their number."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np

from ....errors import EngineError, PassCancelledError
from ....jit import sigbus
from ....jit.kernels.kvcache import PAGE
from ...forward.batch import Span
from ...forward.logits import greedy
from ...forward.shared_prefix import NO_SHARING, PrefixFinder
from ...physics.costs import Part
from .logits import Logits
from .request import StepResult
from .sequence import Status
from .shared_pass import SharedPass

if TYPE_CHECKING:
    from ....jit.tape import CompiledTape, TapeTimes
    from ...forward.shared_prefix import Reading, SharedPrefix
    from ..model.loaded_model import LoadedModel
    from ..model.plan import Plan, Plans
    from ..policy.autotune import Autotuner
    from .request import Batch, Request
    from .sequence import TokenSequence

SELDOM = 8  # rows of a decode between looks whether it will need a page; so many at most
LOOK_S = 1e-3  # between looks at the files that are mapped
ASIDE_S = 1e-4  # between looks whether logits were copied


class Runner:
    """The runner of one engine's passes, one at a time.

    Attributes:
        shared: passes so far that had rows of several sequences.
        joins: whether sequences that begin with the same pages read these together;
            benchmarks turn it off.
        shared_observers: called after each shared pass, for observation only.
    """

    def __init__(self, loaded: LoadedModel, plans: Plans) -> None:
        self._loaded, self._plans = loaded, plans
        self.shared = 0
        self.joins = True
        self.shared_observers: list[Callable[[SharedPass], None]] = []
        self._given: list[Logits] = []  # by the last pass
        self._prefixes, self._ahead = PrefixFinder(), PrefixFinder()
        self._times: dict[Plan, TapeTimes] = {}  # of the last shared pass on each
        self._state = threading.RLock()  # reentrant: see `Scheduler`
        self._running: Sequence[TokenSequence] = ()  # whose pass it is
        self._cancelled = False  # that pass, since all of them were stopped
        self._decode: Plan | None = None  # of one row, as it was asked for last
        self._looked, self._faults = 0.0, sigbus.faults[0]
        self._checks = [file.check for file in loaded.model.files]  # of all that passes read from
        if loaded.weights.check is not None:
            self._checks.append(loaded.weights.check)

    @contextmanager
    def observe_shared(self, callback: Callable[[SharedPass], None]) -> Iterator[None]:
        """Call `callback` after each shared pass while the context is open."""
        self.shared_observers.append(callback)
        try:
            yield
        finally:
            self.shared_observers.remove(callback)

    def run(self, batch: Batch, plan: Plan | None = None) -> list[StepResult]:
        """Compute a batch; the caller has the engine's lock, and its pages can be written.

        plan: another one than usual, for rows of one sequence.

        Raises:
            PassCancelledError: `cancel` ended the pass; nothing was computed.
            ModelError: the model's file was changed while in use.
        """
        if len(batch.parts) == 1:
            return [self._run_one(*batch.parts[0], plan)]
        return self._run_several(batch)

    def _run_one(self, request: Request, count: int, plan: Plan | None) -> StepResult:
        loaded, tuning, sequence = self._loaded, self._loaded.tuning, request.sequence
        choice, start = loaded.outputs, request.start
        split = tuning.before(count, start)
        whole = count == len(request.ids)
        outputs, masks = request.outputs if whole else 0, request.masks
        ids = request.ids if whole else request.ids[:count]
        spans = (Span(sequence.cache.table, start, ids, outputs),)
        if plan is None:
            plan = self._one_row(tuning) if count == 1 else self._plans.prefill
        if split:
            plan = self._plans.split(plan, spans)
        if self._given:
            self._make_room()
        bound = plan.graph.head_bound if request.greedy_only else None
        if bound is not None and not bound.pays():
            bound = None
        plan.graph.set_pass(spans, request.panels, bounded=bound is not None)
        mask = masks[0] if masks else None
        if mask is not None or choice.use_mask[0]:
            choice.set_masks(0, (mask,))
        times = sequence.measured.get(plan)
        if times is None:
            times = sequence.measured[plan] = plan.tape.account()
        self._run_for((sequence,), plan.tape, times)
        self._check_files()
        if tuning.trial is not None:
            tuning.after()
        result = StepResult(count, plan=plan)
        if bound is not None:
            result.head_share = bound.observe()
        if plan.graph.experts_hit:
            result.experts = [int(hit[0]) for hit in plan.graph.experts_hit]
        if outputs:
            chosen: list[int] = []
            if masks:  # else it is to be made later, under a mask that is not known yet
                ends_so = plan.graph.decode  # its tape ends with the choice
                chosen = [choice.chosen[0]] if ends_so else self._choose(masks, 1)
            result.logits = self._give(request, 0, chosen)
        end = start + count
        if end % SELDOM < count <= SELDOM:  # a first token does not wait for pages yet to come
            loaded.layout.memory.prepare(loaded.layout.page_bytes, [(end, SELDOM)])
        return result

    def _one_row(self, tuning: Autotuner) -> Plan:
        """Return the plan of one row, which every token needs."""
        if self._decode is None or self._decode.graph.register_tiles is not tuning.tiles:
            self._decode = self._plans.decode
        return self._decode

    def _run_several(self, batch: Batch) -> list[StepResult]:
        loaded, tuning = self._loaded, self._loaded.tuning
        spans: list[Span] = []
        parts: list[Part] = []
        masks: list[np.ndarray | None] = []
        total = behind = wanted = 0
        for request, count in batch.parts:
            start, ids, outputs = request.start, request.ids, request.outputs
            if count < len(ids):
                ids, outputs = ids[:count], 0
            spans.append(Span(request.sequence.cache.table, start, ids, outputs))
            parts.append(Part(count, start, outputs))
            if outputs:
                given = len(request.masks)
                masks += request.masks
                wanted += given
                if outputs > given:
                    masks += [None] * (outputs - given)
            total, behind = total + count, behind + start * count
        behind //= total
        shared = self._look(self._prefixes, batch.parts)
        reading = (
            NO_SHARING if shared is None else shared.reading(*self._plans.prefill.graph.joined)
        )
        expected, expected_s = tuning.expect_mixed(parts, reading)
        plan: Plan = self._plans.prefill
        tiles = 0 if shared is None else shared.readers(plan.graph.joined[0])
        if tuning.before(total, behind, tiles):
            plan = self._plans.split(plan, spans)
        self._make_room()
        plan.graph.set_pass(spans, shared=shared)
        began = time.perf_counter()
        times = self._times.get(plan)
        if times is None:
            times = self._times[plan] = plan.tape.account()
        times.reset()
        self._run_for([request.sequence for request, _ in batch.parts], plan.tape, times)
        self._check_files()
        if tuning.trial is not None:
            tuning.after()
        seconds = time.perf_counter() - began
        threads = loaded.pool.active
        kernel, elementwise, _ = plan.seconds(times)
        self.shared += 1
        done = SharedPass(
            loaded=loaded,
            number=self.shared,
            labels=[request.sequence.label for request, _ in batch.parts],
            parts=parts,
            together=reading.spans,
            why=batch.why,
            plan=plan,
            expected=expected,
            expected_s=expected_s,
            ended=time.time(),
            seconds=seconds,
            kernel_s=kernel / threads,
            elementwise_s=elementwise / threads,
            threads=threads,
            experts=[int(count[0]) for count in plan.graph.experts_hit],
        )
        for observer in self.shared_observers:
            observer(done)
        chosen = self._choose(masks, threads) if wanted else []
        results, at = list[StepResult](), 0
        for place, (request, count) in enumerate(batch.parts):
            result = StepResult(count, None, plan, shared=done, place=place)
            if request.outputs and count == len(request.ids):
                result.logits = self._give(request, at, chosen[at : at + len(request.masks)])
                at += request.outputs
            results.append(result)
        ends = [(request.start + count, count) for request, count in batch.parts]
        if any(count <= SELDOM for _, count in ends):
            loaded.layout.memory.prepare(loaded.layout.page_bytes, ends)
        return results

    def reading(self, parts: Sequence[tuple[Request, int]]) -> Reading:
        """Return the shared prefixes that a pass with these parts would read once."""
        shared = self._look(self._ahead, parts)
        return NO_SHARING if shared is None else shared.reading(*self._plans.prefill.graph.joined)

    def _look(
        self, finder: PrefixFinder, parts: Sequence[tuple[Request, int]]
    ) -> SharedPrefix | None:
        """Find the pages that the sequences of a pass share."""
        if not self.joins:
            return None
        key = [(one.sequence.cache.version, one.start // PAGE, count) for one, count in parts]
        return finder.find(key, (one.sequence.cache for one, _ in parts))

    def choose(self, logits: Logits, row: int, mask: np.ndarray | None) -> int:
        """Choose the greedy token of one row, without waiting for other sequences' passes."""
        with self._aside(logits) as free:
            if not free or logits.first < 0:
                return greedy(logits.rows[row], mask)
            at = logits.first + row
            self._loaded.outputs.set_masks(at, (mask,))
            return self._run_choice(at, 1, 1)[0]

    def hidden(self, logits: Logits, row: int) -> np.ndarray:
        """Copy one row of `Logits.hidden`, without waiting for other sequences' passes."""
        with self._aside(logits):
            return logits.hidden[row].copy()

    @contextmanager
    def _aside(self, logits: Logits) -> Iterator[bool]:
        """Wait for the lock, or until the logits were copied; yield whether the lock is held."""
        lock, me, trying = self._loaded.lock, threading.get_ident(), self._loaded.trying
        self._loaded.give_back()
        trying.add(me)
        free = lock.acquire(timeout=ASIDE_S)
        while not free and logits.first >= 0:
            free = lock.acquire(timeout=ASIDE_S)
        try:
            yield free
        finally:
            if free:
                lock.release()
            trying.discard(me)

    def cancel(self, sequence: TokenSequence) -> None:
        """Cancel the running pass, from any thread, if all of its sequences were stopped."""
        with self._state:
            stopped = [one.status is Status.STOPPED for one in self._running]
            if sequence in self._running and all(stopped):
                self._cancelled = True
                self._loaded.pool.stop()

    def run_aside(self, tape: CompiledTape) -> None:
        """Run a tape outside the scheduled passes; the caller has the engine's lock."""
        self._run_tape(tape, tape.times)

    # --- how it is done

    def _check_files(self) -> None:
        """Raise ModelError if a file that passes read from was changed since it was mapped.

        After each pass: what was read of a file that was cut meanwhile are zeros. It looks once a
        millisecond at most, and where a mapping lost a page: passes of the smallest models take
        less than a look would be worth.
        """
        now, faults = time.perf_counter(), sigbus.faults[0]
        if now - self._looked > LOOK_S or faults != self._faults:
            for check in self._checks:
                check()
            self._looked, self._faults = now, faults  # only if all is well

    def _give(self, request: Request, first: int, chosen: list[int]) -> Logits:
        logits = Logits(self._loaded.outputs, first, request.outputs, chosen)
        if request.pick is not None:
            with suppress(EngineError):  # it is for its own sequence to meet, which draws again
                chosen.append(request.pick(logits.rows[0]))
        self._given.append(logits)
        return logits

    def _make_room(self) -> None:
        for logits in self._given:
            if not logits.released:
                logits.make_room()
        self._given.clear()

    def _choose(self, masks: Sequence[np.ndarray | None], threads: int) -> list[int]:
        """Choose greedily in the first rows of the last pass."""
        self._loaded.outputs.set_masks(0, masks)
        return self._run_choice(0, len(masks), threads)

    def _run_choice(self, first: int, count: int, threads: int) -> list[int]:
        loaded, pool = self._loaded, self._loaded.pool
        loaded.outputs.rows(first, count)
        active, tape = pool.active, self._plans.choose
        if active != threads:  # to wake a thread for one row would take longer
            pool.set_active(threads)
        try:
            self._run_tape(tape, tape.times)
        finally:
            if active != threads:
                pool.set_active(active)
        return loaded.outputs.tokens[first : first + count].tolist()

    def _run_for(
        self, sequences: Sequence[TokenSequence], tape: CompiledTape, times: TapeTimes
    ) -> None:
        """Run a tape that these sequences wait for."""
        try:
            with self._state:
                self._running = sequences
            self._run_tape(tape, times)
        finally:
            with self._state:
                self._running = ()
                if self._cancelled:  # one that came too late is not the next one's
                    self._cancelled = False
                    self._loaded.pool.clear_stop()

    def _run_tape(self, tape: CompiledTape, times: TapeTimes) -> None:
        """Run a tape to its end, in slices between which Python's signal handlers run."""
        pool, at, end = self._loaded.pool, 0, len(tape.names)
        while True:
            at = tape.run(at, times)
            if at == end:
                return
            if pool.stopped:
                pool.clear_stop()
                raise PassCancelledError(
                    "the pass was stopped; the sequence keeps its earlier tokens"
                )
