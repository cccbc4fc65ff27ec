"""Runs a request on an engine: prefills the prompt, decodes the answers, and emits events.

Every wire format builds a `GenerationRequest`, and its response from the events.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, TypeVar

from ....errors import ContextOverflowError, PassCancelledError
from ...conversation.requirement import grammar_of
from ...conversation.turn import Turn, TurnRequest, TurnResult
from ..http.api_error import APIError, as_api_error, too_long
from ..http.notes import current_notes, note
from .choice_streamer import ChoiceStreamer
from .events import Closed, Done, Event, Failed, FinishReason, PromptProgress, PromptRead
from .prompts import Prompt

if TYPE_CHECKING:
    from ...engine.engine import Engine
    from ...engine.session import Session

Work: TypeAlias = "Callable[[Generation, Engine], None]"
Emit: TypeAlias = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A prompt, and the settings of its answers."""

    prompt: Prompt
    turn: TurnRequest
    """Settings of the decode; `turn_for` adds those of the prompt and the model. A limit of 0
    tokens means prefill only."""
    choices: int = 1
    """Number of answers; each has a seed of its own."""
    cached: bool = True
    """Whether the prompt may use the prefix cache."""
    progress: bool = False
    """Whether to emit the progress of the prefill."""
    pieces: bool = False
    """Whether to emit calls while they are decoded."""
    ids: bool = False
    """Whether texts come with their token IDs."""
    timed: bool = False
    """Whether each piece comes with the tokens and seconds so far."""
    by: Work | None = None
    """Work that replaces prefill and decode and emits the same events, such as an agent's."""
    operation: Literal["chat", "text_completion", "embeddings"] = "chat"
    """Operation name in metrics."""
    lengths: tuple[int, ...] = ()
    """Token count of each text, if texts are prefilled one by one (embeddings)."""

    def turn_for(self, engine: Engine, choice: int = 0) -> TurnRequest:
        """Return the settings of one answer, with those of prompt and model filled in."""
        turn, prompt = self.turn, self.prompt
        sampling, limits = turn.sampling.over(engine.sampling), turn.limits
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        return replace(
            turn,
            sampling=replace(sampling, seed=(seed + choice) % 2**64),
            required=prompt.required,
            limits=replace(limits, thinking_tokens=prompt.thinking_tokens),
            opened=prompt.opened,
            prefill=prompt.prefill,
            ends=engine.tokenizer.stop_ids | (turn.ends or frozenset()),
        )


class Stoppable(Protocol):
    """A computation that can be stopped, such as a `Session`."""

    def stop(self) -> None:
        """Stop computing; callable from any thread."""

    def close(self) -> None:
        """Free all resources."""


S = TypeVar("S", bound=Stoppable)


class Pauses:
    """A listener for tool runs, to keep prefixes cached meanwhile; this one does nothing."""

    def paused(self, session: Session) -> None:
        """Handle the end of an answer that ends with tool calls, before its `Done`."""

    def tool_began(self, session: Session, name: str) -> None:
        """Handle the start of a tool that runs within the request."""

    def tool_ended(self, session: Session) -> None:
        """Handle the end of a tool that ran within the request."""


class Recorder:
    """A listener for the phases of a request; this one does nothing."""

    id: str = ""
    request_id: str = ""

    def phase_ended(self, session: Session, choice: int) -> None:
        """Record the session's last phase, in the session's thread; see `Session.last_phase`."""

    def reading(self, computed: int, seconds: float) -> None:
        """Record the prompt tokens that are computed, `seconds` after the start of the prefill."""

    def wrote(self, choice: int, tokens: int, seconds: float) -> None:
        """Record the tokens that an answer has after `seconds` of decode."""


class Generation:
    """A running request; `run` computes it in the calling thread.

    Args:
        emit: called with each event, in the threads that make them.
        namespace: within which prefixes are shared; see `PrefixCache`.
    """

    def __init__(
        self,
        emit: Emit,
        namespace: str = "",
        pauses: Pauses | None = None,
        record: Recorder | None = None,
    ) -> None:
        self.emit, self.namespace = emit, namespace
        self.pauses, self.record = pauses or Pauses(), record or Recorder()
        self._notes = current_notes()
        self._cancelled = False
        self._why: APIError | None = None
        self._sessions: list[Stoppable] = []
        self._lock = threading.Lock()

    def cancel(self, why: APIError | None = None) -> None:
        """Cancel the request, from any thread, before its next pass.

        Its last event is `Closed`; with `why`, `Failed`.
        """
        with self._lock:
            self._cancelled, self._why = True, self._why or why
            for session in self._sessions:
                session.stop()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    @property
    def last_event(self) -> Event:
        """Final event of a cancelled request: `Closed`, or `Failed` if a reason was given."""
        return Closed() if self._why is None else Failed(self._why)

    def run(self, engine: Engine, request: GenerationRequest) -> None:
        """Prefill the prompt and decode the answers; emit `Closed` or `Failed` at the end."""
        try:
            self._run(engine, request)
        except BaseException as error:
            if self._cancelled and isinstance(error, PassCancelledError):
                self.emit(self.last_event)
            else:
                self.emit(Failed(as_api_error(error, self.record.request_id)))
        else:
            self.emit(Closed())
        finally:
            with self._lock:
                sessions, self._sessions = self._sessions, []
            for session in sessions:
                session.close()

    def _run(self, engine: Engine, request: GenerationRequest) -> None:
        if request.by is not None:
            request.by(self, engine)
            return
        ids, context = request.prompt.ids, engine.context
        if len(ids) + 1 > context:
            raise too_long(len(ids), context, request.prompt.param)
        request.turn.sampling.check(engine.tokenizer.n_vocab)
        session = self._session(engine, request)
        session.sequence.label = self.record.id
        self._watch_prefill(session, ids, emit=request.progress)
        try:
            phase = session.prefill(ids, check=self.check, borders=request.prompt.borders)
        except ContextOverflowError as error:  # of memory
            _, fits = error.memory or (0, context)
            raise too_long(len(ids), fits, request.prompt.param) from error
        self.record.phase_ended(session, 0)
        required = request.prompt.required
        for text in grammar_of(engine.tokenizer, required).unheld if required else ():
            note(text, self._notes)
        read = PromptRead(len(ids), phase.shared_tokens, phase.wall_s, request.prompt.notes)
        self.emit(read)
        if request.choices == 1:
            self._answer(engine, session, request, 0)
            return
        others = [self.track(session.fork()) for _ in range(1, request.choices)]
        failures: list[BaseException] = []

        def answer(choice: int, own: Session) -> None:
            try:
                self._answer(engine, own, request, choice)
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=answer, args=(n, own), name=f"choice {n}", daemon=True)
            for n, own in enumerate(others, 1)
        ]
        for thread in threads:
            thread.start()
        answer(0, session)
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _session(self, engine: Engine, request: GenerationRequest) -> Session:
        session = self.track(engine.session())
        session.sequence.shares, session.sequence.namespace = request.cached, self.namespace
        return session

    def _watch_prefill(self, session: Session, ids: Sequence[int], *, emit: bool) -> None:
        """Record the progress of a prefill between its passes; emit it as events if `emit`."""
        began = time.perf_counter()
        cached = 0
        if session.sequence.shares:
            cached = session.phases.core.prefix_cache.count(list(ids), self.namespace)

        def progressed(done: int, _total: int, _rate: float) -> None:
            spent = time.perf_counter() - began
            self.record.reading(done - min(cached, done), spent)
            if emit:
                self.emit(PromptProgress(len(ids), min(cached, done), done, spent))

        session.phases.on_progress = progressed

    def track(self, one: S) -> S:
        """Register a session to be stopped with the request and closed at its end; return it."""
        with self._lock:
            self._sessions.append(one)
        return one

    def check(self) -> None:
        """Raise `PassCancelledError` if the request was cancelled."""
        if self._cancelled:
            raise PassCancelledError("the client is gone")

    def _answer(
        self, engine: Engine, session: Session, request: GenerationRequest, choice: int
    ) -> None:
        """Decode one answer; retry once if it misfits a schema that no grammar enforces in full."""
        again = request.prompt.again
        if again is None:
            self._write(engine, session, request, choice, self.emit)
            return
        events: list[Event] = []
        first = self._write(engine, session, request, choice, events.append)
        if first is not None and first.misfit:
            problem = first.misfit
            why = f"an answer did not fit its schema and was requested again: {problem}"
            note(why, self._notes)
            prompt = again(first.reply.answer, problem)
            session = self._session(engine, request)
            with contextlib.suppress(ContextOverflowError):  # the first answer stays
                session.prefill(prompt.ids, check=self.check, borders=prompt.borders)
                events = []
                retry = replace(request, prompt=prompt)
                second = self._write(engine, session, retry, choice, events.append)
                problem = "" if second is None else second.misfit
            if problem:
                note(f"the answer does not fit its schema: {problem}", self._notes)
        for event in events:
            self.emit(event)

    def _write(
        self, engine: Engine, session: Session, request: GenerationRequest, choice: int, emit: Emit
    ) -> TurnResult | None:
        """Decode one answer; return None if the limit is 0 tokens."""
        if request.turn.limits.max_tokens == 0:
            emit(Done(choice, "length", 0, 0, 0.0))
            return None
        turn = Turn(session, request.turn_for(engine, choice), engine.tokenizer, self.check)
        streamer = ChoiceStreamer(
            emit,
            turn.reader,
            choice,
            turn.recorder,
            pieces=request.pieces,
            ids=request.ids,
            timed=request.timed,
            tokenizer=engine.tokenizer if request.prompt.is_turn else None,
        )
        try:
            for token, pieces in turn.tokens():
                # First: a token that was read is counted.
                self.record.wrote(choice, turn.count, turn.seconds)
                streamer.take(token, pieces)
        finally:
            result = turn.finish()
            if turn.count:
                self.record.phase_ended(session, choice)
        reply = result.reply
        if reply.repaired and not result.fits:
            reply.calls = []  # they stay text
        streamer.rest(reply.calls, as_text=reply.repaired and bool(reply.calls))
        stop, ended = result.stop_text, result.reason == "end"
        reason: FinishReason = "stop" if ended or stop else "length"
        if streamer.calls and reason == "stop":
            reason = "tool_calls"
            self.pauses.paused(session)
        thought = len(result.thought)
        emit(Done(choice, reason, turn.count, thought, turn.seconds, stop))
        return result
