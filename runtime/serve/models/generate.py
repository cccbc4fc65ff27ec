"""A request on an engine: a prompt is read, answers are written, and events tell of it.

This is the one form in which the server knows a request. Every wire format makes a
`GenerationRequest`, and makes its answer of the events.
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
from ...conversation.turn import Limits, Turn, TurnRequest, TurnResult
from ...engine.sampling.settings import Sampling
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
    """What is asked of a model.

    Attributes:
        max_tokens: of each answer; None: as many as fit; 0: the prompt is read only.
        stops: texts that end an answer.
        choices: how many answers; each has a seed of its own.
        logprobs: likeliest tokens to be told beside each token; None: no probabilities are told.
        sampled_probs: whether those are told that are left by sampling settings and grammar.
        progress: whether to tell how far the prompt is read.
        pieces: whether to tell of calls while they are written.
        ids: whether to tell tokens beside texts.
        timed: whether to tell with each piece how many tokens there are, and for how long.
        ends: tokens that end an answer, beside those that end every one.
        min_tokens: of each answer, before one of these or a stop token may end it.
        predict_s: seconds after which an answer ends with its next line break; 0: none.
        indent: of each line of a text but the first; a line with less ends it.
        endless: whether an answer goes on where the model would end it.
        cached: whether the prompt may be taken from what was computed before.
        by: what answers in place of the bare model; told of by the same events.
        operation: what metrics call it.
        lengths: tokens of each text, where they are read one by one.
    """

    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    choices: int = 1
    logprobs: int | None = None
    progress: bool = False
    pieces: bool = False
    cached: bool = True
    ids: bool = False
    timed: bool = False
    sampled_probs: bool = False
    ends: frozenset[int] = frozenset()
    min_tokens: int = 0
    predict_s: float = 0.0
    indent: int = 0
    endless: bool = False
    by: Work | None = None
    operation: Literal["chat", "text_completion", "embeddings"] = "chat"
    lengths: tuple[int, ...] = ()

    def turn(self, engine: Engine, choice: int = 0) -> TurnRequest:
        """The turn of one of the answers, each with a seed of its own."""
        sampling, prompt = self.sampling.over(engine.sampling), self.prompt
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        return TurnRequest(
            replace(sampling, seed=(seed + choice) % 2**64),
            prompt.required,
            Limits(
                *(self.max_tokens or None, self.min_tokens, self.predict_s, self.indent),
                prompt.thinking_tokens,
            ),
            opened=prompt.opened,
            said=prompt.said,
            stops=self.stops,
            ends=engine.tokenizer.stop_ids | self.ends,
            endless=self.endless,
            logprobs=self.logprobs,
            sampled_probs=self.sampled_probs,
        )


class Stoppable(Protocol):
    """Something that computes; see `Session`."""

    def stop(self) -> None:
        """End what it does, from any thread."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


S = TypeVar("S", bound=Stoppable)


class Pauses(Protocol):
    """Hears of tools that run, while what was computed waits for them."""

    def paused(self, session: Session) -> None:
        """An answer has ended with calls; the event that tells so comes then."""
        ...

    def tool_began(self, session: Session, name: str) -> None:
        """A tool runs in the midst of the request."""
        ...

    def tool_ended(self, session: Session) -> None:
        """It has ended."""
        ...


class Recorder(Protocol):
    """Hears of the phases of a request."""

    id: str
    request_id: str

    def phase_ended(self, session: Session, choice: int) -> None:
        """See `Session.last_phase`."""
        ...

    def reading(self, computed: int, seconds: float) -> None:
        """So many tokens of the prompt were computed, in so many seconds from its begin on."""
        ...

    def wrote(self, choice: int, tokens: int, seconds: float) -> None:
        """An answer has so many tokens, after so many seconds."""
        ...


class Generation:
    """One request while it runs, in the thread that calls `run`.

    Args:
        emit: is given the events, from the threads that make them.
        namespace: with whom it shares prefixes; see `PrefixCache`.
        pauses: hears of tools.
        record: is told of the phases.
    """

    def __init__(
        self,
        emit: Emit,
        namespace: str = "",
        pauses: Pauses | None = None,
        record: Recorder | None = None,
    ) -> None:
        self._emit, self.namespace, self._pauses, self._record = emit, namespace, pauses, record
        self._notes = current_notes()
        self._cancelled = False
        self._why: APIError | None = None
        self._sessions: list[Stoppable] = []
        self._lock = threading.Lock()

    def cancel(self, why: APIError | None = None) -> None:
        """End it, from any thread: its rows are taken back before the next pass.

        Its last event is `Closed`, or where it is told `why`, `Failed`.
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
    def request_id(self) -> str:
        """Of its request in HTTP; "" without one."""
        return "" if self._record is None else self._record.request_id

    @property
    def last_event(self) -> Event:
        """What tells that it was cancelled."""
        return Closed() if self._why is None else Failed(self._why)

    def run(self, engine: Engine, request: GenerationRequest) -> None:
        """Read the prompt and write the answers; the last event tells how it ended."""
        try:
            self._run(engine, request)
        except BaseException as error:
            if self._cancelled and isinstance(error, PassCancelledError):
                self._emit(self.last_event)
            else:
                self._emit(Failed(as_api_error(error, self.request_id)))
        else:
            self._emit(Closed())
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
        request.sampling.check(engine.tokenizer.n_vocab)
        session = self.opened(engine.session())
        sequence = session.sequence
        sequence.shares, sequence.namespace = request.cached, self.namespace
        if self._record is not None:
            session.sequence.label = self._record.id
        self._tell_progress(session, ids, emit=request.progress)
        try:
            phase = session.prefill(ids, check=self.check, borders=request.prompt.borders)
        except ContextOverflowError as error:  # of memory
            _, fits = error.memory or (0, context)
            raise too_long(len(ids), fits, request.prompt.param) from error
        self.note(session, 0)
        required = request.prompt.required
        for text in grammar_of(engine.tokenizer, required).unheld if required else ():
            note(text, self._notes)
        read = PromptRead(len(ids), phase.shared_tokens, phase.wall_s, request.prompt.notes)
        self._emit(read)
        if request.choices == 1:
            self._answer(engine, session, request, 0)
            return
        others = [self.opened(session.fork()) for _ in range(1, request.choices)]
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

    def _tell_progress(self, session: Session, ids: Sequence[int], *, emit: bool) -> None:
        """Tell between its passes how far a prompt is read."""
        began = time.perf_counter()
        cached = 0
        if session.sequence.shares:
            cached = session.phases.core.prefix_cache.count(list(ids), self.namespace)

        def told(done: int, _total: int, _rate: float) -> None:
            spent = time.perf_counter() - began
            if self._record is not None:
                self._record.reading(done - min(cached, done), spent)
            if emit:
                self._emit(PromptProgress(len(ids), min(cached, done), done, spent))

        session.phases.on_progress = told

    def opened(self, one: S) -> S:
        """What is to be stopped with the request, and closed at its end."""
        with self._lock:
            self._sessions.append(one)
        return one

    def emit(self, event: Event) -> None:
        """Tell of something."""
        self._emit(event)

    def note(self, session: Session, choice: int) -> None:
        """A phase of a session has ended."""
        if self._record is not None:
            self._record.phase_ended(session, choice)

    def tool_began(self, session: Session, name: str) -> None:
        """A tool of an agent runs, whose session this is."""
        if self._pauses is not None:
            self._pauses.tool_began(session, name)

    def tool_ended(self, session: Session) -> None:
        """It has ended."""
        if self._pauses is not None:
            self._pauses.tool_ended(session)

    def check(self) -> None:
        """Whether anybody still waits for it.

        Raises:
            PassCancelledError: nobody does.
        """
        if self._cancelled:
            raise PassCancelledError("the client is gone")

    def _answer(
        self, engine: Engine, session: Session, request: GenerationRequest, choice: int
    ) -> None:
        """Write one answer; if no grammar holds it to all of its schema, ask again for a misfit."""
        again = request.prompt.again
        if again is None:
            self._write(engine, session, request, choice, self._emit)
            return
        events: list[Event] = []
        first = self._write(engine, session, request, choice, events.append)
        if first is not None and first.misfit:
            problem = first.misfit
            why = f"an answer did not fit its schema and was requested again: {problem}"
            note(why, self._notes)
            prompt = again(first.reply.answer, problem)
            session = self.opened(engine.session())
            sequence = session.sequence
            sequence.shares, sequence.namespace = request.cached, self.namespace
            with contextlib.suppress(ContextOverflowError):  # the first answer stays
                session.prefill(prompt.ids, check=self.check, borders=prompt.borders)
                events = []
                asked = replace(request, prompt=prompt)
                second = self._write(engine, session, asked, choice, events.append)
                problem = "" if second is None else second.misfit
            if problem:
                note(f"the answer does not fit its schema: {problem}", self._notes)
        for event in events:
            self._emit(event)

    def _write(
        self, engine: Engine, session: Session, request: GenerationRequest, choice: int, emit: Emit
    ) -> TurnResult | None:
        """Write one answer and tell of it; None where none is wanted."""
        if request.max_tokens == 0:
            emit(Done(choice, "length", 0, 0, 0.0))
            return None
        turn = Turn(session, request.turn(engine, choice), engine.tokenizer, self.check)
        telling = ChoiceStreamer(
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
                if self._record is not None:  # first: whoever has read a token finds it counted
                    self._record.wrote(choice, turn.count, turn.seconds)
                telling.take(token, pieces)
        finally:
            result = turn.finish()
            if turn.count:
                self.note(session, choice)
        reply = result.reply
        if reply.repaired and not result.fits:
            reply.calls = []  # they stay text
        telling.rest(reply.calls, as_text=reply.repaired and bool(reply.calls))
        stop, ended = result.stop_text, result.reason == "end"
        reason: FinishReason = "stop" if ended or stop else "length"
        if telling.calls and reason == "stop":
            reason = "tool_calls"
            if self._pauses is not None:
                self._pauses.paused(session)
        thought = len(result.thought)
        emit(Done(choice, reason, turn.count, thought, turn.seconds, stop))
        return result
