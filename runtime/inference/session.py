"""One conversation on an engine: its tokens, its KV cache, and the passes that extend them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...errors import ContextOverflowError, EngineError, PassCancelledError
from ...jit.tape import NativeTape, Tape
from ...traces.events import PhaseEvent
from ..forward.choice import choose_ops
from ..forward.graph import ZERO, Graph
from ..forward.kv import KVCache
from ..forward.split import TOKENS as SPLIT_TOKENS
from ..forward.split import SplitGraph
from ..physics.costs import PassCost
from .accounts import Accounts
from .copies import Copies
from .decoding import Constraint, Decoding
from .lookup import Lookup
from .pace import Pace
from .plan import Plan
from .sampling import GREEDY, Sampling
from .verify import Verify

if TYPE_CHECKING:
    from pathlib import Path

    from .engine import Engine
    from .snapshot import Saved

SCORE_CHUNK = 32  # tokens of one pass that keeps every token's logits

G = TypeVar("G", bound=Graph)


class Session:
    """Tokens and their KV cache.

    Attributes:
        tokens: every accepted token, in order.
        n_cached: how many of them are in the KV cache.
        context: most tokens that fit.
        last_phase: what the last prefill or decode did.
        on_progress: called between the chunks of a prefill with (done, total, tokens/s).
        profile: whether phases record their time by layer.
        lost: why not all that was kept of it on disk could be used; empty otherwise.
        prefill_plan, decode_plan: the passes of many tokens and of one.
        accounts: what the phases of this session did.
        shortcuts: how decodes need fewer passes than tokens; the engine's, if not set.
        sources: ranges of positions, first and end, that are likely to be quoted.
    """

    def __init__(self, engine: Engine, cache: KVCache, context: int) -> None:
        """Use `Engine.session`."""
        self.engine = engine
        self.cache = cache
        self.context = context
        self.tokens: list[int] = []
        self.n_cached = 0
        self.last_phase: PhaseEvent | None = None
        self.on_progress: Callable[[int, int, float], None] | None = None
        self.profile = False
        self.lost = ""
        # For `score`, when it is first needed: its plan, and the logits of that.
        self._score: tuple[Plan[Graph], np.ndarray] | None = None
        self._logits_at = -1  # number of tokens whose last one this session's logits belong to
        choice = engine.choice
        self.decode_plan = Plan(self, "decode", 1, choice.logits, Graph)
        most = min(engine.tuning.chunk, context)
        self.prefill_plan = Plan(self, "prefill", most, choice.logits, Graph)
        self.accounts = Accounts(self)
        self.shortcuts = engine.shortcuts
        self.sources: Sequence[tuple[int, int]] = ()
        self._verify: Verify | None = None
        self._split: dict[str, Plan[SplitGraph]] = {}
        self._guessing: tuple[Lookup, Pace, Copies] | None = None
        tape = Tape("choose", engine.threads)
        state = self.decode_plan.graph.state
        choose_ops(tape, state, choice, choice.logits, state[ZERO : ZERO + 1])
        self._choose: NativeTape = tape.finish(engine.library, engine.pool)

    # --- what callers do

    def prefill(self, ids: Sequence[int], *, purpose: str = "prompt") -> PhaseEvent:
        """Append `ids` and compute everything that is not yet in the cache.

        Raises:
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: stop() was called; the tokens stay, uncached ones are computed by
                the next call.
            ModelError: the model's file was changed while in use.
        """
        self.rouse()
        ids = [int(i) for i in ids]
        self.check_ids(ids)
        total = len(self.tokens) + len(ids)
        if total > self.context:
            raise ContextOverflowError(
                f"{len(ids)} new tokens after {len(self.tokens)} make {total}, but the context "
                f"holds {self.context}; shorten the input or load the model with a larger context"
            )
        self.tokens.extend(ids)
        return self.compute(purpose, len(ids))

    def decode(
        self,
        *,
        max_tokens: int,
        stop: Collection[int] = (),
        constraint: Constraint | None = None,
        sampling: Sampling = GREEDY,
        purpose: str = "answer",
    ) -> Iterator[int]:
        """Yield sampled tokens until one of `stop` (yielded too) or `max_tokens`.

        Each is appended to `tokens`; the last one is computed by the next prefill. When the
        iterator ends or is closed, `last_phase` tells what it did.

        Raises:
            ContextOverflowError: the context is full.
            PassCancelledError: stop() was called.
            EngineError: no token can be chosen.
        """
        if not self.tokens:
            raise EngineError("nothing to decode from: prefill some tokens first")
        if max_tokens < 1:
            raise EngineError(f"max_tokens must be 1 or more, not {max_tokens}")
        return Decoding(self, max_tokens, stop, constraint, sampling, purpose).run()

    def truncate(self, n: int) -> None:
        """Forget every token after the first `n`."""
        if not 0 <= n <= len(self.tokens):
            raise EngineError(f"cannot keep {n} tokens of {len(self.tokens)}")
        if self._guessing is not None:
            self._guessing[0].truncate(n)
        del self.tokens[n:]
        self.n_cached = min(self.n_cached, n)
        self.cache.truncate(self.n_cached)
        if self._logits_at != n:
            self._logits_at = -1

    def fork(self, n: int | None = None) -> Session:
        """Another session with the first `n` tokens of this one; with all, if not given.

        Nothing is computed again: both use the same pages of the KV cache, and the first to write
        on a shared one gets a copy of that. So neither sees what becomes of the other, and both go
        on bit for bit as if they had read everything themselves.

        Raises:
            EngineError: there are not so many tokens.
        """
        with self.engine.lock:
            n = len(self.tokens) if n is None else n
            if not 0 <= n <= len(self.tokens):
                raise EngineError(f"cannot fork at token {n} of {len(self.tokens)}")
            cached = min(self.n_cached, n)
            other = Session(self.engine, self.cache.fork(cached), self.context)
            other.tokens, other.n_cached = self.tokens[:n], cached
            other.profile, other.shortcuts = self.profile, self.shortcuts
        return other

    def save(self, folder: str | Path) -> Saved:
        """Keep the tokens and their KV cache in a folder, for `Engine.load_session`.

        Only pages that are not there yet are written: after a turn, its own. The folder and its
        files are for this user alone.

        Raises:
            EngineError: they cannot be written; what was there before still is.
        """
        from .snapshot import save

        return save(self, folder)

    def adopt_tokens(self, tokens: Sequence[int]) -> None:
        """Begin with these tokens, none of them computed yet."""
        assert not self.tokens, "only a new session can"
        self.check_ids(tokens)
        self.tokens = list(tokens)

    def taken_over(self, purpose: str, wall_s: float) -> PhaseEvent:
        """A phase for a trace: the tokens as they are, none of them computed here.

        Args:
            purpose: where they come from, e.g. ``fork``.
            wall_s: what it took to have them.
        """
        at, nothing = self.n_cached, PassCost()
        ids = list(self.tokens)
        event = self.accounts.finish("prefill", purpose, ids, at, wall_s, 0.0, nothing, 0, "none")
        event.tokens, event.predicted = 0, event.observed
        return event

    def stop(self) -> None:
        """End the running pass, from any thread; the session stays usable."""
        self.engine.pool.stop()

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token: float32 [n_vocab], valid until the next pass."""
        if not self.has_logits:
            raise EngineError(
                "the last token has not been computed: prefill([]) computes what is left"
            )
        choice = self.engine.choice
        return choice.logits[0, : choice.n_vocab]

    @property
    def has_logits(self) -> bool:
        """Whether the engine's logits are this session's, after its last token."""
        return self._logits_at == len(self.tokens) and self.engine.logits_of is self

    def keep_logits(self) -> None:
        """The logits of the pass just played are those after the last token."""
        self._logits_at = len(self.tokens)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Those whose passes make up phases."""
        verify = () if self._verify is None else (self._verify.plan,)
        return self.prefill_plan, self.decode_plan, *verify, *self._split.values()

    @property
    def guessing(self) -> tuple[Lookup, Pace, Copies]:
        """Where tokens stood before, how many are worth a guess, and how texts are copied."""
        if self._guessing is None or self._guessing[0].tokens is not self.tokens:
            copies = Copies(self.engine.tokenizer)
            self._guessing = Lookup(self.tokens), Pace(self), copies
        return self._guessing

    @property
    def verify(self) -> Verify:
        """The pass of a few tokens whose logits are kept; laid down when it is first needed."""
        if self._verify is None:
            self._verify = Verify(self)
        return self._verify

    def score(self, ids: Sequence[int]) -> np.ndarray:
        """Append `ids` and return the logits after each of them: float32 [len(ids), n_vocab]."""
        out = np.empty((len(ids), self.engine.choice.n_vocab), np.float32)
        done = 0
        for rows in self.scores(ids):
            out[done : done + len(rows)] = rows
            done += len(rows)
        return out

    def scores(self, ids: Sequence[int]) -> Iterator[np.ndarray]:
        """Append `ids`, and yield the logits after them some rows at a time.

        Each piece, float32 [n, n_vocab], is valid until the next one or another pass.
        """
        ids = [int(i) for i in ids]
        self.check_ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        if self.n_cached != len(self.tokens):
            self.compute("resume", 0)
        choice = self.engine.choice
        if self._score is None:
            rows = np.zeros((SCORE_CHUNK, choice.logits.shape[1]), np.float32)
            self._score = Plan(self, "score", SCORE_CHUNK, rows, Graph), rows
        plan, rows = self._score
        for at in range(0, len(ids), SCORE_CHUNK):
            part = ids[at : at + SCORE_CHUNK]
            with self.engine.lock:
                self.engine.pool.clear_stop()
                self.tokens.extend(part)
                self.run_pass(plan, part, len(part))
            yield rows[: len(part), : choice.n_vocab]

    def plan(self, name: str, kind: type[G]) -> Plan[G]:
        """A prefill laid down by another kind of graph, for `follow`."""
        most = min(self.engine.tuning.chunk, self.context)
        return Plan(self, name, most, self.engine.choice.logits, kind)

    def follow(self, plan: Plan[G], ids: Sequence[int]) -> Iterator[int]:
        """Append `ids` in passes of `plan`, without logits; yields each pass's number of tokens."""
        self.check_ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        for at in range(0, len(ids), plan.most_tokens):
            part = ids[at : at + plan.most_tokens]
            with self.engine.lock:
                self.engine.pool.clear_stop()
                self.tokens.extend(part)
                self.run_pass(plan, part, 0)
            yield len(part)

    def prepare(self) -> None:
        """Lay down and choose now what the first phases else would while somebody waits."""
        self.engine.tuning.prepare()
        if (self.shortcuts.jump or self.shortcuts.speculate) and self._verify is None:
            self._verify = Verify(self)

    def rouse(self) -> None:
        """A prefill will soon come: threads that sleep may as well wake up meanwhile."""
        # Not in the midst of another session's pass, which would lose its players.
        if self.engine.lock.acquire(blocking=False):
            try:
                self.engine.pool.rouse()
            finally:
                self.engine.lock.release()

    # --- passes

    def check_ids(self, ids: Sequence[int]) -> None:
        most = self.engine.choice.n_vocab
        bad = next((i for i in ids if not 0 <= i < most), None)
        if bad is not None:
            raise EngineError(f"token id {bad} is not in the vocabulary of {most}")

    def compute(self, purpose: str, new: int) -> PhaseEvent:
        """Prefill tokens[n_cached:] in chunks, logits for the last one."""
        pool = self.engine.pool
        cost, passes, plan_name = PassCost(), 0, self.prefill_plan.name
        with self.engine.lock:
            if self.tokens and not self.has_logits:
                # They come with the last token: it is computed again where all is cached.
                self.n_cached = min(self.n_cached, len(self.tokens) - 1)
            before, total = self.n_cached, len(self.tokens)
            pool.clear_stop()
            self.accounts.reset()
            started = time.perf_counter()
            while self.n_cached < total:
                at = self.n_cached
                share = self.engine.tuning.part(total - at, self.prefill_plan.most_tokens)
                part = self.tokens[at : at + share]
                plan = self.decode_plan if len(part) == 1 else self.prefill_plan
                outputs = int(at + len(part) == total)
                # One token is not worth its own plan name unless it is all there was.
                plan_name = plan.name if passes == 0 else plan_name
                played = self.run_pass(plan, part, outputs)
                cost += self.accounts.cost(played, len(part), at, outputs)
                passes += 1
                if self.on_progress and self.n_cached < total:
                    done = self.n_cached - before
                    rate = done / (time.perf_counter() - started)
                    self.on_progress(done, total - before, rate)
            wall = time.perf_counter() - started
            self._logits_at = total or -1
            kernel = self.accounts.kernel_seconds()
        ids = self.tokens[before:total]
        return self.accounts.finish(
            "prefill", purpose, ids, before, wall, kernel, cost, passes, plan_name
        )

    def choose(self, tape: NativeTape | None = None) -> None:
        """Choose a token greedily from the logits that are there, or by a tape of its own."""
        pool = self.engine.pool
        players, pool.active = pool.active, 1  # to wake a thread would take longer
        try:
            self._play(tape or self._choose)
        finally:
            pool.active = players

    def run_pass(
        self, plan: Plan, part: Sequence[int], outputs: int, panels: np.ndarray | None = None
    ) -> Plan:
        """One forward pass of `part`, which follows what is cached.

        outputs: how many of its last tokens give logits; panels: of the output head, the wanted
        ones. Returns the plan that was played: `plan`, or one like it whose attention is split.
        """
        self.engine.check_files()
        start, count = self.n_cached, len(part)
        self.cache.own(start, start + count)
        tuning = self.engine.tuning
        tuning.before(count, start)
        if count <= SPLIT_TOKENS and tuning.split(count, start):
            plan = self._split_like(plan, count, start)
        graph = plan.graph
        graph.ids[:count] = part
        graph.set_pass(count, start, outputs, panels)
        # If the pass does not come to its end, the logits are nobody's.
        self.engine.logits_of, self._logits_at = self, -1
        self._play(plan.tape)
        self.engine.check_files()  # what was read of a file that was cut meanwhile are zeros
        tuning.after()
        self.n_cached = start + count
        return plan

    def _split_like(self, plan: Plan, tokens: int, start: int) -> Plan:
        """The plan like `plan` whose attention is split, where there is one for such a pass."""
        found = self._split.get(plan.name)
        if found is None:
            if plan not in self.plans:
                return plan
            most = min(plan.most_tokens, SPLIT_TOKENS)
            found = Plan(self, plan.name, most, plan.logits, SplitGraph)
            self._split[plan.name] = found
        return found if found.graph.fits(tokens, start) else plan

    def _play(self, tape: NativeTape) -> None:
        """Play a tape to its end, with a breath for Python's signal handlers now and then."""
        pool, at, end = self.engine.pool, 0, len(tape)
        while True:
            at = tape.play(at)
            if at == end:
                return
            if pool.stopped:
                pool.clear_stop()
                raise PassCancelledError(
                    "the pass was stopped; the session keeps what it had before"
                )
