"""One conversation on an engine: its tokens, its KV cache, and the passes that extend them."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import numpy as np

from ...errors import ContextOverflowError, EngineError, PassCancelledError
from ...jit.kernels.attention import token_tile
from ...jit.tape import NativeTape, Tape
from ...traces.events import PhaseEvent
from ..forward.choice import choose_ops
from ..forward.graph import Graph
from ..forward.kv import KVCache
from ..physics.costs import PassCost, decode_cost, observe, pass_cost, predict
from .profile import layer_times
from .sampling import GREEDY, Sampler, Sampling

if TYPE_CHECKING:
    from .engine import Engine

PREFILL_CHUNK = 512  # tokens of one prefill pass: enough to amortise a read of all weights
SCORE_CHUNK = 32  # tokens of one pass that keeps every token's logits


class Constraint(Protocol):
    """What may come next, e.g. a grammar."""

    def mask(self) -> np.ndarray | None:
        """uint32 bits [ceil(n_vocab / 32)] of the allowed tokens; None: all."""
        ...

    def advance(self, token: int) -> None:
        """`token` was chosen."""
        ...


G = TypeVar("G", bound=Graph)


class _Plan(Generic[G]):
    """A graph, its native tape and what it is good for."""

    def __init__(
        self, session: Session, name: str, most_tokens: int, logits: np.ndarray, kind: type[G]
    ) -> None:
        engine = session.engine
        network = engine.network
        self.graph = kind(
            name,
            engine.target,
            engine.threads,
            most_tokens,
            engine.buffers,
            network.config.heads,
            session.cache,
        )
        network.forward(self.graph, logits)
        if most_tokens == 1:
            choose_ops(self.graph.tape, self.graph.state, engine.choice)
        self.tape: NativeTape = self.graph.tape.finish(engine.library, engine.pool)
        self.name = name
        self.most_tokens = most_tokens


class Session:
    """Tokens and their KV cache.

    Attributes:
        tokens: every accepted token, in order.
        n_cached: how many of them are in the KV cache.
        context: most tokens that fit.
        last_phase: what the last prefill or decode did.
        on_progress: called between the chunks of a prefill with (done, total, tokens/s).
        profile: whether phases record their time by layer.
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
        # For `score`, when it is first needed: its plan, and the logits of that.
        self._score: tuple[_Plan[Graph], np.ndarray] | None = None
        self._touched: list[int] = []  # experts that each layer's passes took since `_reset`
        self._logits_at = -1  # number of tokens whose last one this session's logits belong to
        choice = engine.choice
        self._decode = _Plan(self, "decode", 1, choice.logits, Graph)
        self._prefill = _Plan(self, "prefill", min(PREFILL_CHUNK, context), choice.logits, Graph)
        tape = Tape("choose", engine.threads)
        choose_ops(tape, self._decode.graph.state, choice)
        self._choose: NativeTape = tape.finish(engine.library, engine.pool)

    # --- what callers do

    def prefill(self, ids: Sequence[int], *, purpose: str = "prompt") -> PhaseEvent:
        """Append `ids` and compute everything that is not yet in the cache.

        Raises:
            ContextOverflowError: they do not fit; nothing has changed.
            PassCancelledError: stop() was called; the tokens stay, uncached ones are computed by
                the next call.
        """
        ids = [int(i) for i in ids]
        self._check_ids(ids)
        total = len(self.tokens) + len(ids)
        if total > self.context:
            raise ContextOverflowError(
                f"{len(ids)} new tokens after {len(self.tokens)} make {total}, but the context "
                f"holds {self.context}; shorten the input or load the model with a larger context"
            )
        self.tokens.extend(ids)
        return self._compute(purpose, len(ids))

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
        return self._decode_tokens(max_tokens, stop, constraint, sampling, purpose)

    def truncate(self, n: int) -> None:
        """Forget every token after the first `n`."""
        if not 0 <= n <= len(self.tokens):
            raise EngineError(f"cannot keep {n} tokens of {len(self.tokens)}")
        del self.tokens[n:]
        self.n_cached = min(self.n_cached, n)
        if self._logits_at != n:
            self._logits_at = -1

    def stop(self) -> None:
        """End the running pass, from any thread; the session stays usable."""
        self.engine.pool.stop()

    @property
    def logits(self) -> np.ndarray:
        """Logits after the last token: float32 [n_vocab], valid until the next pass."""
        if not self._has_logits:
            raise EngineError(
                "the last token has not been computed: prefill([]) computes what is left"
            )
        choice = self.engine.choice
        return choice.logits[0, : choice.n_vocab]

    @property
    def _has_logits(self) -> bool:
        """Whether the engine's logits are this session's, after its last token."""
        return self._logits_at == len(self.tokens) and self.engine.logits_of is self

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
        self._check_ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        if self.n_cached != len(self.tokens):
            self._compute("resume", 0)
        choice = self.engine.choice
        if self._score is None:
            rows = np.zeros((SCORE_CHUNK, choice.logits.shape[1]), np.float32)
            self._score = _Plan(self, "score", SCORE_CHUNK, rows, Graph), rows
        plan, rows = self._score
        for at in range(0, len(ids), SCORE_CHUNK):
            part = ids[at : at + SCORE_CHUNK]
            with self.engine.lock:
                self.engine.pool.clear_stop()
                self.tokens.extend(part)
                self._pass(plan, part, len(part))
            yield rows[: len(part), : choice.n_vocab]

    def plan(self, name: str, kind: type[G]) -> _Plan[G]:
        """A prefill laid down by another kind of graph, for `follow`."""
        most = min(PREFILL_CHUNK, self.context)
        return _Plan(self, name, most, self.engine.choice.logits, kind)

    def follow(self, plan: _Plan[G], ids: Sequence[int]) -> Iterator[int]:
        """Append `ids` in passes of `plan`, without logits; yields each pass's number of tokens."""
        self._check_ids(ids)
        if len(self.tokens) + len(ids) > self.context:
            raise ContextOverflowError(f"{len(ids)} tokens do not fit a context of {self.context}")
        for at in range(0, len(ids), plan.most_tokens):
            part = ids[at : at + plan.most_tokens]
            with self.engine.lock:
                self.engine.pool.clear_stop()
                self.tokens.extend(part)
                self._pass(plan, part, 0)
            yield len(part)

    # --- passes

    def _check_ids(self, ids: Sequence[int]) -> None:
        most = self.engine.choice.n_vocab
        bad = next((i for i in ids if not 0 <= i < most), None)
        if bad is not None:
            raise EngineError(f"token id {bad} is not in the vocabulary of {most}")

    def _compute(self, purpose: str, new: int) -> PhaseEvent:
        """Prefill tokens[n_cached:] in chunks, logits for the last one."""
        pool = self.engine.pool
        cost, passes, plan_name = PassCost(), 0, self._prefill.name
        with self.engine.lock:
            if self.tokens and not self._has_logits:
                # They come with the last token: it is computed again where all is cached.
                self.n_cached = min(self.n_cached, len(self.tokens) - 1)
            before, total = self.n_cached, len(self.tokens)
            pool.clear_stop()
            self._reset()
            started = time.perf_counter()
            while self.n_cached < total:
                at = self.n_cached
                part = self.tokens[at : at + self._prefill.most_tokens]
                plan = self._decode if len(part) == 1 else self._prefill
                outputs = int(at + len(part) == total)
                # One token is not worth its own plan name unless it is all there was.
                plan_name = plan.name if passes == 0 else plan_name
                self._pass(plan, part, outputs)
                cost += self._cost(plan, len(part), at, outputs)
                passes += 1
                if self.on_progress and self.n_cached < total:
                    done = self.n_cached - before
                    rate = done / (time.perf_counter() - started)
                    self.on_progress(done, total - before, rate)
            wall = time.perf_counter() - started
            self._logits_at = total or -1
            kernel = self._kernel_seconds()
        ids = self.tokens[before:total]
        return self._finish("prefill", purpose, ids, before, wall, kernel, cost, passes, plan_name)

    def _decode_tokens(
        self,
        max_tokens: int,
        stop: Collection[int],
        constraint: Constraint | None,
        sampling: Sampling,
        purpose: str,
    ) -> Iterator[int]:
        if not self._has_logits:
            # After truncate, after another session's pass, or when the last decode's final token
            # is still to be computed.
            self._compute("resume", 0)
        sampler = None if sampling.greedy else Sampler(sampling)
        before, ids, passes = self.n_cached, [], 0
        pool = self.engine.pool
        with self.engine.lock:
            pool.clear_stop()
            self._reset()
        wall = 0.0
        try:
            started = time.perf_counter()
            mask = constraint.mask() if constraint is not None else None
            # What sessions share stays under the lock until the token is out of it.
            with self.engine.lock:
                if not self._has_logits:  # another thread's session had a pass in between
                    self._compute("resume", 0)
                self._set_mask(mask)
                self._play(self._choose)
                token = self._chosen(sampler)
            while True:
                self.tokens.append(token)
                ids.append(token)
                if constraint is not None:
                    constraint.advance(token)
                wall += time.perf_counter() - started
                yield token
                started = time.perf_counter()
                if token in stop or len(ids) >= max_tokens:
                    break
                if len(self.tokens) >= self.context:
                    raise ContextOverflowError(
                        f"the context is full: {len(self.tokens)} tokens; load the model with a "
                        f"larger context or ask for less"
                    )
                if pool.stopped:
                    raise PassCancelledError("stopped; the session keeps what it has")
                mask = constraint.mask() if constraint is not None else None
                with self.engine.lock:
                    self._set_mask(mask)
                    self._pass(self._decode, [token], 1)
                    passes += 1
                    self._logits_at = len(self.tokens)
                    token = self._chosen(sampler)
            wall += time.perf_counter() - started
        finally:
            barriers = self._decode.tape.barriers
            cost = decode_cost(self.engine.cost, before, passes, barriers)
            kernel = self._kernel_seconds()
            phase = self._finish(
                "decode", purpose, ids, before, wall, kernel, cost, passes, "decode"
            )
            phase.sampling = sampling.as_dict()
            phase.max_tokens = max_tokens
            phase.stop = sorted(stop)
            phase.constraint = type(constraint).__name__ if constraint is not None else None

    def _set_mask(self, mask: np.ndarray | None) -> None:
        choice = self.engine.choice
        choice.use_mask[0] = 0 if mask is None else 1
        if mask is not None:
            choice.mask[: len(mask)] = mask

    def _chosen(self, sampler: Sampler | None) -> int:
        choice = self.engine.choice
        if sampler is not None:
            mask = choice.mask if choice.use_mask[0] else None
            return sampler.pick(choice.logits[0, : choice.n_vocab], mask)
        token = int(choice.token[0])
        if token < 0:
            raise EngineError(
                "no token can be chosen: the logits are not finite, or none is allowed"
            )
        return token

    def _pass(self, plan: _Plan, part: Sequence[int], outputs: int) -> None:
        """One forward pass of `part`, which follows what is cached."""
        start, count = self.n_cached, len(part)
        self.cache.reserve(start + count)
        graph = plan.graph
        graph.ids[:count] = part
        graph.set_pass(count, start, outputs)
        # If the pass does not come to its end, the logits are nobody's.
        self.engine.logits_of, self._logits_at = self, -1
        self.engine.crowding.look()
        self._play(plan.tape)
        self.n_cached = start + count

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

    # --- accounts

    def _reset(self) -> None:
        self._decode.tape.reset()
        self._prefill.tape.reset()
        self._touched = [0] * (self.engine.cost.layers if self.engine.cost.experts else 0)

    def _kernel_seconds(self) -> float:
        """Mean time of a thread inside kernels since `_reset`."""
        work = self._decode.tape.work_seconds().sum() + self._prefill.tape.work_seconds().sum()
        return float(work) / self._players()

    def _players(self) -> float:
        """Threads that played a pass since `_reset`, on average."""
        tapes = (self._decode.tape, self._prefill.tape)
        passes = sum(tape.passes for tape in tapes)
        return sum(tape.players for tape in tapes) / passes if passes else self.engine.pool.active

    def _cost(self, plan: _Plan, tokens: int, start: int, outputs: int) -> PassCost:
        tile = token_tile(self.engine.network.config.heads.group)
        model, read = self.engine.cost, None
        if model.experts and not plan.graph.decode:
            counts = [int(count[0]) for count in plan.graph.touched]
            self._touched = [a + b for a, b in zip(self._touched, counts, strict=True)]
            read = float(sum(counts))
        elif model.experts:
            self._touched = [count + model.experts_used for count in self._touched]
        return pass_cost(model, tokens, start, outputs, plan.tape.barriers, tile, read)

    def _experts(self, cost: PassCost, passes: int) -> float | None:
        """Distinct experts that a layer touched in a pass, on average."""
        model = self.engine.cost
        if not model.experts or not passes:
            return None
        return round(cost.experts_read / (passes * model.layers), 2)

    def _experts_by_layer(self, phase: str, passes: int) -> list[float]:
        """The same for each layer."""
        if phase == "decode":
            return [float(self.engine.cost.experts_used)] * len(self._touched)
        return [round(count / max(1, passes), 2) for count in self._touched]

    def _finish(
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
    ) -> PhaseEvent:
        engine = self.engine
        prediction = predict(cost, engine.cost, engine.machine, passes)
        seen = observe(prediction, wall, kernel)
        event = PhaseEvent(
            phase=phase,  # pyright: ignore[reportArgumentType]
            purpose=purpose,
            predicted=prediction.bound,
            observed=seen.bound,
            tokens=len(ids),
            kv_before=before,
            kv_after=self.n_cached,
            cached_tokens=before,
            wall_s=wall,
            flops=cost.flops,
            bytes=cost.bytes,
            mfu=seen.mfu,
            mbu=seen.mbu,
            dispatch_share=seen.dispatch_share,
            limit_share=seen.limit_share,
            threads=round(self._players()),
            plan=plan,
            memory_level=prediction.level,
            experts=self._experts(cost, passes),
            experts_by_layer=self._experts_by_layer(phase, passes),
            token_ids=ids,
            passes=passes,
            predicted_s=prediction.as_dict(),
        )
        if self.profile:
            event.layers = layer_times((self._prefill.tape, self._decode.tape))
        self.last_phase = event
        return event
