"""A request on an engine: a prompt is read, answers are written, and events tell of it.

This is the one form in which the server knows a request. Every wire format makes a
`GenerationRequest`, and makes its answer of the events.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from ...errors import GrammarError, PassCancelledError
from ..inference.sampling import Sampling
from ..inference.speculative_config import SpeculativeConfig
from .api_error import APIError, as_api_error, too_long
from .logprobs import LogprobRecorder, TokenLogprob
from .plain_reader import PlainReader
from .prompts import Prompt

if TYPE_CHECKING:
    from ..conversation.reply import ReplyReader
    from ..conversation.toolcalls import ToolCall
    from ..inference.decoding import Constraint
    from ..inference.engine import Engine
    from ..inference.session import Session

Work: TypeAlias = "Callable[[Generation, Engine], None]"
FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What is asked of a model.

    Attributes:
        max_tokens: of each answer; None: as many as fit.
        stops: texts that end an answer.
        choices: how many answers; each has a seed of its own.
        logprobs: likeliest tokens to be told beside each token; None: no probabilities are told.
        progress: whether to tell how far the prompt is read.
        pieces: whether to tell of calls while they are written.
        cached: whether the prompt may be taken from what was computed before.
        by: what answers in place of the bare model; told of by the same events.
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
    by: Work | None = None


@dataclass(slots=True)
class PromptProgress:
    """The prompt is being read: so many tokens are in the cache, and so many were before."""

    tokens: int
    cached: int
    processed: int
    seconds: float


@dataclass(slots=True)
class PromptRead:
    """The prompt is in the cache; what follows are answers."""

    tokens: int
    cached: int
    seconds: float
    notes: tuple[str, ...] = ()
    """What was changed in it so that it begins as those before; see `programs.normalize`."""


@dataclass(slots=True)
class Text:
    """A piece of an answer."""

    choice: int
    text: str
    logprobs: list[TokenLogprob] | None = None


@dataclass(slots=True)
class Thought:
    """A piece of what the model thinks."""

    choice: int
    text: str


@dataclass(slots=True)
class CallPart:
    """A piece of the arguments of a call that is being written."""

    choice: int
    index: int
    id: str
    name: str
    text: str
    first: bool


@dataclass(slots=True)
class Call:
    """A tool call, whole. `arguments` is JSON."""

    choice: int
    index: int
    id: str
    name: str
    arguments: str
    told: bool = False
    """Whether parts have told all of it already."""


@dataclass(slots=True)
class Done:
    """An answer has ended."""

    choice: int
    reason: FinishReason
    tokens: int
    reasoning_tokens: int
    seconds: float
    stop: str | None = None
    """The text that ended it, if one of `stops` did."""


@dataclass(slots=True)
class Failed:
    """The request has failed; nothing follows."""

    error: APIError


@dataclass(slots=True)
class Closed:
    """All answers have ended, or the request was cancelled; nothing follows."""


@dataclass(slots=True)
class Silence:
    """Nothing has come for a while."""


Event: TypeAlias = (
    Silence
    | PromptProgress
    | PromptRead
    | Text
    | Thought
    | CallPart
    | Call
    | Done
    | Failed
    | Closed
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

    def phase_ended(self, session: Session, choice: int) -> None:
        """See `Session.last_phase`."""
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
        emit: Callable[[Event], None],
        namespace: str = "",
        pauses: Pauses | None = None,
        record: Recorder | None = None,
    ) -> None:
        self._emit, self.namespace, self._pauses, self._record = emit, namespace, pauses, record
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
                self._emit(Failed(as_api_error(error)))
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
            raise too_long(len(ids), context)
        request.sampling.check(engine.tokenizer.n_vocab)
        session = self.opened(engine.session())
        session.shares, session.namespace = request.cached, self.namespace
        if self._record is not None:
            session.label = self._record.id
        if request.progress:
            self._tell_progress(session, ids)
        phase = session.prefill(ids, check=self.check, borders=request.prompt.borders)
        self.note(session, 0)
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

    def _tell_progress(self, session: Session, ids: Sequence[int]) -> None:
        """Tell between its passes how far a prompt is read."""
        began = time.perf_counter()
        cached = session.engine.prefix_cache.count(list(ids), self.namespace)

        def told(done: int, _total: int, _rate: float) -> None:
            spent = time.perf_counter() - began
            self._emit(PromptProgress(len(ids), min(cached, done), done, spent))

        session.on_progress = told

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
        """Write one answer."""
        tokenizer, turn, emit = engine.tokenizer, request.prompt.turn, self._emit
        began = time.perf_counter()
        room = session.context - len(session.tokens)
        constraint: Constraint | None = turn.constraint() if turn is not None else None
        reader = (
            turn.reader(tokenizer, request.stops)
            if turn is not None
            else PlainReader(tokenizer, request.stops)
        )
        recorder = None
        if request.logprobs is not None:
            constraint = recorder = LogprobRecorder(session, constraint, request.logprobs)
            session.speculative = SpeculativeConfig(jump_forward=False, draft_tokens=0)
        tokens = session.decode(
            max_tokens=min(request.max_tokens or room, room),
            stop=tokenizer.stop_ids,
            constraint=constraint,
            sampling=_seeded(request.sampling.over(engine.sampling), choice),
        )
        count, told, token = 0, 0, -1
        begun: dict[int, str] = {}  # identifiers of calls that were told of in parts
        try:
            for token in tokens:
                count += 1
                self.check()
                self._tell(reader.push(token), choice, recorder)
                if request.pieces:
                    self._tell_parts(reader, choice, begun)
                if len(reader.calls) > told:
                    told = self._tell_calls(reader, reader.calls, choice, told, begun)
                if reader.stopped:
                    break
        finally:
            if isinstance(tokens, Generator):
                tokens.close()
            if count:
                self.note(session, choice)
        reply = reader.finish()
        if reply.broken:
            raise GrammarError(f"a malformed call got past the grammar: {reply.broken[0]}")
        self._tell(reader.rest, choice, recorder)
        if request.pieces:
            self._tell_parts(reader, choice, begun)
        told = self._tell_calls(reader, reply.calls, choice, told, begun)
        stop = reader.stop_text
        reason: FinishReason = "stop" if token in tokenizer.stop_ids or stop else "length"
        if told and reason == "stop":
            reason = "tool_calls"
            if self._pauses is not None:
                self._pauses.paused(session)
        seconds = time.perf_counter() - began
        emit(Done(choice, reason, count, len(reader.thought), seconds, stop))

    def _tell(
        self,
        pieces: Iterable[tuple[str, str]],
        choice: int,
        recorder: LogprobRecorder | None,
    ) -> None:
        """Tell of pieces of text."""
        for mode, text in pieces:
            noted = recorder.take() if recorder is not None else None
            self._emit(Text(choice, text, noted) if mode == "answer" else Thought(choice, text))

    def _tell_parts(
        self, reader: ReplyReader | PlainReader, choice: int, begun: dict[int, str]
    ) -> None:
        """Tell of what was read of calls that are being written."""
        for piece in reader.call_pieces():
            first = piece.index not in begun
            own = begun.setdefault(piece.index, new_call_id())
            self._emit(CallPart(choice, piece.index, own, piece.name, piece.text, first))

    def _tell_calls(
        self,
        reader: ReplyReader | PlainReader,
        calls: Sequence[ToolCall],
        choice: int,
        told: int,
        begun: Mapping[int, str],
    ) -> int:
        """Tell of the calls from this number on; how many there are."""
        for index, call in enumerate(calls[told:], told):
            arguments = reader.call_arguments(index) if index in begun else None
            if arguments is not None:
                event = Call(choice, index, begun[index], call.name, arguments, told=True)
            else:
                arguments = json.dumps(call.arguments, ensure_ascii=False)
                event = Call(choice, index, call.id or new_call_id(), call.name, arguments)
            self._emit(event)
        return len(calls)


def new_call_id() -> str:
    """An identifier of a call: nine letters, as Mistral's templates want them."""
    return f"c{secrets.token_hex(4)}"


def timings(read: PromptRead, done: Done) -> dict[str, Any]:
    """What llama-server calls ``timings``; and what was normalized in the prompt, if anything."""
    computed, milliseconds = read.tokens - read.cached, 1e3 * read.seconds
    written, spent = done.tokens, 1e3 * done.seconds
    return {
        "cache_n": read.cached,
        "prompt_n": computed,
        "prompt_ms": round(milliseconds, 3),
        "prompt_per_token_ms": round(milliseconds / max(computed, 1), 3),
        "prompt_per_second": round(1e3 * computed / max(milliseconds, 1e-6), 3),
        "predicted_n": written,
        "predicted_ms": round(spent, 3),
        "predicted_per_token_ms": round(spent / max(written, 1), 3),
        "predicted_per_second": round(1e3 * written / max(spent, 1e-6), 3),
        **({"normalized": list(read.notes)} if read.notes else {}),
    }


def progress_of(progress: PromptProgress) -> dict[str, Any]:
    """What llama-server calls ``prompt_progress``."""
    return {
        "total": progress.tokens,
        "cache": progress.cached,
        "processed": progress.processed,
        "time_ms": round(1e3 * progress.seconds),
    }


def _seeded(sampling: Sampling, choice: int) -> Sampling:
    """With a seed of this choice's own."""
    seed = sampling.seed if sampling.seed is not None else secrets.randbits(63)
    return replace(sampling, seed=(seed + choice) % 2**64)
