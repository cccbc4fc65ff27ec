"""Runs a pass: rows of one sequence, or of several, on the plan that fits their number."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import numpy as np

from ...errors import EngineError, PassCancelledError
from ...jit import sigbus
from ...jit.kernels.kvcache import PAGE
from ..forward.batch import Span
from ..forward.logits import greedy
from ..forward.shared_prefix import APART, PrefixFinder
from ..forward.split_kv import TOKENS as SPLIT_TOKENS
from ..physics.costs import Part
from .shared_pass import SharedPass

if TYPE_CHECKING:
    from ...jit.tape import CompiledTape, TapeTimes
    from ..forward.logits import OutputBuffers
    from ..forward.shared_prefix import Reading, SharedPrefix
    from .loaded_model import LoadedModel
    from .plan import Plan, Plans
    from .prefix_cache import PrefixCache
    from .sequence import TokenSequence

_UNCHANGED = nullcontext()
SELDOM = 8  # rows of a decode between looks whether it will need a page; so many at most
LOOK_S = 1e-3  # between looks at the files that are mapped
ASIDE_S = 1e-4  # between looks whether logits were copied


class Logits:
    """Logits that a pass gave to one sequence.

    They lie where every pass of the engine leaves its own. Before another one needs that place they
    are copied, unless nobody wants them any more.

    Attributes:
        count: rows of them.
        first: the first one in the engine's buffer; -1: they were copied.
        tokens: chosen greedily in the rows for which a mask was given beforehand; -1: none could
            be.
    """

    __slots__ = ("_choice", "_copies", "count", "first", "released", "tokens")

    def __init__(self, choice: OutputBuffers, first: int, count: int, tokens: list[int]) -> None:
        self._choice, self.first, self.count, self.tokens = choice, first, count, tokens
        self.released = False

    @property
    def rows(self) -> np.ndarray:
        """float32 [count, n_vocab], valid until the next pass of the engine."""
        if self.first < 0:
            return self._copies[0]
        return self._choice.logits[self.first : self.first + self.count, : self._choice.n_vocab]

    @property
    def hidden(self) -> np.ndarray:
        """float32 [count, width], see `OutputBuffers.hidden`; valid as long as `rows` is."""
        if self.first < 0:
            return self._copies[1]
        return self._choice.hidden[self.first : self.first + self.count]

    def copy(self, rows: slice = slice(-1, None)) -> Logits:
        """The last row, or others, for whoever wants them longer; also while other threads run
        passes.

        `make_room` comes before the pass that overwrites them: if they are where they were, what
        was copied is whole.
        """
        while True:
            first = self.first
            found = self.rows[rows].copy(), self.hidden[rows].copy()
            if self.first == first:
                made = Logits(self._choice, -1, len(found[0]), [])
                made._copies = found
                return made

    def make_room(self) -> None:
        """Another pass is about to overwrite them."""
        self._copies, self.first = (self.rows.copy(), self.hidden.copy()), -1


class Rows:
    """What a sequence wants computed next, and what became of it.

    Attributes:
        start: tokens that it had in its KV cache when it asked; ids: those that follow.
        outputs: how many of the last of them want logits.
        undo: whether some of them may be taken back, as drafts are.
        masks: for the first of these, the tokens that a greedy choice may take, as uint32 bits, or
            None for all; empty where nothing is to be chosen.
        pick: draws the first of these by its logits, float32 [n_vocab], where nothing is greedy.
            The pass does so itself: who drew from outside would wait for the pass after it.
        panels: of the output head, those that are wanted; None: all. For passes of this sequence
            alone: others get every row's logits whole.
        computed: how many of `ids` the pass took; none, where its KV cache is not as it was when
            they were asked for: pages were taken over, or taken back.
        logits: of the last ones, if it took all.
        plan: what ran; shared: the pass, if others had rows in it; place: this one's in it.
        experts: distinct ones that each layer of a mixture took, in a pass of several rows.
    """

    __slots__ = (
        "computed", "experts", "ids", "logits", "masks", "outputs", "panels", "pick", "place",
        "plan", "sequence", "shared", "start", "undo",
    )  # fmt: skip

    def __init__(
        self,
        sequence: TokenSequence,
        start: int,
        ids: Sequence[int],
        outputs: int = 0,
        masks: Sequence[np.ndarray | None] = (),
        panels: np.ndarray | None = None,
        pick: Callable[[np.ndarray], int] | None = None,
    ) -> None:
        self.pick = pick
        self.sequence, self.start, self.ids, self.outputs = sequence, start, ids, outputs
        self.undo = outputs > 1
        self.masks, self.panels = masks, panels
        self.computed = 0
        self.logits: Logits | None = None
        self.plan: Plan | None = None
        self.experts: list[int] = []
        self.shared: SharedPass | None = None
        self.place = 0


class Runner:
    """Runs the passes of one engine, one at a time.

    Attributes:
        shared: passes so far that had rows of several sequences.
        joins: whether sequences that begin with the same pages read these together; a benchmark
            turns it off to see what that gives.
        on_shared: called after each of them, if set: to watch, not to change.
    """

    def __init__(self, loaded: LoadedModel, plans: Plans, prefix_cache: PrefixCache) -> None:
        self._loaded, self._plans, self._prefix_cache = loaded, plans, prefix_cache
        self.shared = 0
        self.joins = True
        self.on_shared: Callable[[SharedPass], None] | None = None
        self._given: list[Logits] = []  # by the last pass
        self._prefixes, self._ahead = PrefixFinder(), PrefixFinder()
        self._times: dict[Plan, TapeTimes] = {}  # of the last shared pass on each
        self._state = threading.RLock()  # reentrant: see `Scheduler`
        self._running: Sequence[TokenSequence] = ()  # whose pass it is
        self._looked, self._faults = 0.0, sigbus.faults[0]
        self._checks = [file.check for file in loaded.model.files]  # of all that passes read from
        if loaded.weights.check is not None:
            self._checks.append(loaded.weights.check)

    @contextmanager
    def watched(self, told: Callable[[SharedPass], None]) -> Iterator[None]:
        """Tell of passes that several sequences share meanwhile, instead of who else is told."""
        before, self.on_shared = self.on_shared, told
        try:
            yield
        finally:
            self.on_shared = before

    def run(self, rows: Rows, count: int, plan: Plan | None = None) -> None:
        """Compute the first `count` rows of one sequence; the caller has the engine's lock.

        plan: another one than usual.

        Raises:
            PassCancelledError: `cancel` ended the pass; nothing was computed.
            ModelError: the model's file was changed while in use.
        """
        with self._changing([rows.sequence]):
            self._run(rows, count, plan)

    def _run(self, rows: Rows, count: int, plan: Plan | None) -> None:
        loaded, tuning, sequence = self._loaded, self._loaded.tuning, rows.sequence
        choice, start = loaded.outputs, rows.start
        self._check_files()
        sequence.cache.make_writable(start, start + count, undo=rows.undo)
        loaded.layout.memory.promised = 0
        tuning.before(count, start)
        whole = count == len(rows.ids)
        outputs = rows.outputs if whole else 0
        spans = (
            Span(sequence.cache.table, start, rows.ids if whole else rows.ids[:count], outputs),
        )
        if plan is None:
            plan = self._plans.decode if count == 1 else self._plans.prefill
        if count <= SPLIT_TOKENS and tuning.split(count, start):
            plan = self._plans.split(plan, spans)
        if self._given:
            self._make_room()
        plan.graph.set_pass(spans, rows.panels)
        choice.set_mask(0, rows.masks[0] if rows.masks else None)
        times = sequence.measured.get(plan)
        if times is None:
            times = sequence.measured[plan] = plan.tape.account()
        self._run_for((sequence,), plan.tape, times)
        self._check_files()  # what was read of a file that was cut meanwhile are zeros
        if tuning.trial is not None:
            tuning.after()
        rows.plan = plan
        if plan.graph.experts_hit:
            rows.experts = [int(count[0]) for count in plan.graph.experts_hit]
        if outputs:
            chosen: list[int] = []
            if rows.masks:  # else it is to be made later, under a mask that is not known yet
                ends_so = plan.graph.decode  # its tape ends with the choice
                chosen = [choice.chosen[0]] if ends_so else self._choose(rows.masks, 1)
            self._give(rows, 0, chosen)
        self._computed(rows, count)
        end = start + count
        if end % SELDOM < count <= SELDOM:  # a first token does not wait for pages yet to come
            loaded.layout.memory.prepare(loaded.layout.page_bytes, [(end, SELDOM)])

    def run_shared(self, batch: Sequence[tuple[Rows, int]], why: str = "all") -> None:
        """Compute the first so many rows of each of several sequences in one pass.

        why: it has so many rows: see `PassEvent.why`.

        Raises:
            PassCancelledError: all of them were stopped; nothing was computed.
            ModelError: the model's file was changed while in use.
        """
        with self._changing([rows.sequence for rows, _ in batch]):
            self._run_shared(batch, why)

    def _run_shared(self, batch: Sequence[tuple[Rows, int]], why: str) -> None:
        loaded, tuning = self._loaded, self._loaded.tuning
        self._check_files()
        spans: list[Span] = []
        parts: list[Part] = []
        places: list[tuple[int, int, int]] = []
        masks: list[np.ndarray | None] = []
        total = behind = wanted = 0
        for rows, count in batch:
            cache, start, ids, outputs = rows.sequence.cache, rows.start, rows.ids, rows.outputs
            cache.make_writable(start, start + count, undo=rows.undo)
            if count < len(ids):
                ids, outputs = ids[:count], 0
            spans.append(Span(cache.table, start, ids, outputs))
            parts.append(Part(count, start, outputs))
            places.append((cache.version, start // PAGE, count))
            if outputs:
                given = len(rows.masks)
                masks += rows.masks
                wanted += given
                if outputs > given:
                    masks += [None] * (outputs - given)
            total, behind = total + count, behind + start * count
        loaded.layout.memory.promised = 0
        behind //= total
        shared = self._look(self._prefixes, places, batch)
        reading = APART if shared is None else shared.reading(*self._plans.prefill.graph.joined)
        expected, expected_s = tuning.expect_mixed(parts, reading)
        tuning.before(total, behind)
        plan: Plan = self._plans.prefill
        tiles = 0 if shared is None else shared.readers(plan.graph.joined[0])
        if total <= SPLIT_TOKENS and tuning.split(total, behind, tiles):
            plan = self._plans.split(plan, spans)
        self._make_room()
        plan.graph.set_pass(spans, shared=shared)
        began = time.perf_counter()
        times = self._times.get(plan)
        if times is None:
            times = self._times[plan] = plan.tape.account()
        times.reset()
        self._run_for([rows.sequence for rows, _ in batch], plan.tape, times)
        self._check_files()
        if tuning.trial is not None:
            tuning.after()
        seconds = time.perf_counter() - began
        tuning.observe_mixed(expected, seconds)
        threads = loaded.pool.active
        loaded.pass_latency.several(total, seconds)
        kernel, elementwise, _ = plan.seconds(times)
        self.shared += 1
        done = SharedPass(
            loaded=loaded,
            number=self.shared,
            labels=[rows.sequence.label for rows, _ in batch],
            parts=parts,
            together=reading.spans,
            why=why,
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
        if self.on_shared is not None:
            self.on_shared(done)
        chosen = self._choose(masks, threads) if wanted else []
        at = 0
        for place, (rows, count) in enumerate(batch):
            rows.plan, rows.shared, rows.place = plan, done, place
            if rows.outputs and count == len(rows.ids):
                self._give(rows, at, chosen[at : at + len(rows.masks)])
                at += rows.outputs
            self._computed(rows, count)
        ends = [(rows.start + count, count) for rows, count in batch]
        if any(count <= SELDOM for _, count in ends):
            loaded.layout.memory.prepare(loaded.layout.page_bytes, ends)

    def reading(self, batch: Sequence[tuple[Rows, int]]) -> Reading:
        """What the first so many rows of each of several sequences will read together."""
        key = [(rows.sequence.cache.version, rows.start // PAGE, count) for rows, count in batch]
        shared = self._look(self._ahead, key, batch)
        return APART if shared is None else shared.reading(*self._plans.prefill.graph.joined)

    def _look(
        self,
        finder: PrefixFinder,
        key: list[tuple[int, int, int]],
        batch: Sequence[tuple[Rows, int]],
    ) -> SharedPrefix | None:
        """What the sequences of a pass have in common."""
        if not self.joins:
            return None
        return finder.find(key, (rows.sequence.cache for rows, _ in batch))

    def choose(self, logits: Logits, row: int, mask: np.ndarray | None) -> int:
        """The greedy choice in one row; where a pass of others runs, it is not waited for."""
        with self._aside(logits) as free:
            if not free or logits.first < 0:
                return greedy(logits.rows[row], mask)
            at = logits.first + row
            self._loaded.outputs.set_mask(at, mask)
            return self._run_choice(at, 1, 1)[0]

    def hidden(self, logits: Logits, row: int) -> np.ndarray:
        """A copy of one row of `Logits.hidden`; a pass of others is not waited for."""
        with self._aside(logits):
            return logits.hidden[row].copy()

    @contextmanager
    def _aside(self, logits: Logits) -> Iterator[bool]:
        """Between passes, or where that of others has copied what was here: then it goes on."""
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
        """End the running pass, from any thread, if no other sequence waits for it."""
        with self._state:
            if sequence in self._running and all(one.stopped for one in self._running):
                self._loaded.pool.stop()

    def run_aside(self, tape: CompiledTape) -> None:
        """Run a tape that no sequence's rows come from; the caller has the engine's lock."""
        self._run_tape(tape, tape.times)

    # --- how it is done

    def _changing(self, sequences: Sequence[TokenSequence]) -> AbstractContextManager[None]:
        """What undoes a pass that ends early: of KV caches nothing has to be, of states it has."""
        return _UNCHANGED if self._loaded.layout.states is None else self._undone(sequences)

    @contextmanager
    def _undone(self, sequences: Sequence[TokenSequence]) -> Iterator[None]:
        """A pass of these sequences: if it ends early, states go back to where they are known."""
        try:
            yield
        except BaseException:
            for sequence in sequences:
                sequence.n_cached = sequence.cache.seek(sequence.n_cached)
            raise

    def _check_files(self) -> None:
        """Raise ModelError if a file that passes read from was changed since it was mapped.

        It looks once a millisecond at most, and where a mapping lost a page: passes of the smallest
        models take less than a look would be worth.
        """
        now, faults = time.perf_counter(), sigbus.faults[0]
        if now - self._looked > LOOK_S or faults != self._faults:
            for check in self._checks:
                check()
            self._looked, self._faults = now, faults  # only if all is well

    def _computed(self, rows: Rows, count: int) -> None:
        # In this order: Ctrl-C in between costs that the rows are computed again.
        sequence, rows.computed = rows.sequence, count
        sequence.cache.computed(rows.start + count)
        end = sequence.n_cached = rows.start + count
        # A page that is full is kept before its windows are let go of.
        known = self._prefix_cache
        if sequence.shares and known.running and (count > 1 or end % PAGE == 0):
            known.add(sequence.cache, sequence.tokens, end, sequence.namespace)
        if self._loaded.layout.window:
            sequence.cache.slide(end)

    def _give(self, rows: Rows, first: int, chosen: list[int]) -> None:
        rows.logits = logits = Logits(self._loaded.outputs, first, rows.outputs, chosen)
        if rows.pick is not None:
            with suppress(EngineError):  # it is for its own sequence to meet, which draws again
                chosen.append(rows.pick(logits.rows[0]))
        self._given.append(logits)

    def _make_room(self) -> None:
        for logits in self._given:
            if not logits.released:
                logits.make_room()
        self._given.clear()

    def _choose(self, masks: Sequence[np.ndarray | None], threads: int) -> list[int]:
        """The greedy choice in the first rows of the last pass."""
        for row, mask in enumerate(masks):
            self._loaded.outputs.set_mask(row, mask)
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
                self._loaded.pool.clear_stop()  # one that came too late is not the next one's

    def _run_tape(self, tape: CompiledTape, times: TapeTimes) -> None:
        """Run a tape to its end, with a breath for Python's signal handlers now and then."""
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
