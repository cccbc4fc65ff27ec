"""What a request asks for: work of a model, and the format that the answer is written in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias

from ...engine.sampling.settings import Sampling
from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError
from ..settings import Limits
from .events import Event
from .generate import GenerationRequest
from .loading import LoadedModel
from .prompts import Conversation

PING = b": ping\n\n"  # a comment in a stream that is silent
Prepare: TypeAlias = Callable[[LoadedModel], GenerationRequest]


class Writer(Protocol):
    """Makes the answer to one request, in one wire format, of its events."""

    last: ClassVar[bytes] = b""
    """What ends every stream."""

    def of(self, model: LoadedModel) -> None:
        """Hear which model answers, before any event."""

    def stream(self, event: Event) -> bytes:
        """Return the events of a stream that tell of one of ours; none if empty."""
        ...

    def end(self) -> bytes:
        """Return what ends the stream, when all went well."""
        return self.last

    def failed(self, error: APIError) -> bytes:
        """Return what ends a stream that fails in its midst."""
        return error.event() + self.last

    def silent(self) -> bytes:
        """Return what keeps a stream alive: proxies are content with a comment, clients that
        look how long they have waited want an event, where the format has one."""
        return PING

    def add(self, event: Event) -> None:
        """Take an event into the answer that `whole` gives."""
        ...

    def whole(self) -> dict[str, Any] | list[dict[str, Any]] | bytes:
        """Return the answer that is not streamed; it may be JSON already."""
        ...


class ChatRequest(Protocol):
    """The body of a request that a model or an agent may answer."""

    model: str | None
    stream: bool

    @property
    def fields_set(self) -> set[str]:
        """Names of the parameters that are given."""
        ...

    @property
    def ping_s(self) -> float | None:
        """See `Asked.ping_s`."""
        ...

    @property
    def max_answer(self) -> int | None:
        """Tokens of an answer; None: as many as fit."""
        ...

    def conversation(self, model: LoadedModel, limits: Limits, /) -> Conversation:
        """Return what the model is asked."""
        ...

    def sampling(self, tokenizer: Tokenizer, /) -> Sampling:
        """Return the settings of decodes."""
        ...

    def generation(self, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """Return what is asked of the engine."""
        ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What a handler makes of a request; `Answer` does it."""

    model: str | None
    prepares: Sequence[Prepare]
    """Make what is asked of the model; each is worked on by itself, and their answers are counted
    through."""
    writer: Writer
    streamed: bool
    """Whether the answer is sent as it is made."""
    choices: int = 1
    """Answers to each."""
    ping_s: float | None = None
    """Silence after which a stream gets a comment; None: as the server's settings say."""

    @classmethod
    def chat(cls, service: Any, body: ChatRequest, writer_for: Callable[[str], Writer]) -> Asked:
        """Ask a model, or the agent of that name.

        Args:
            service: the server's `Service`.
            body: of the request.
            writer_for: makes the writer, given the name that clients are shown.
        """
        shown, name, folder = service.models.answering(body.model)
        writer, limits = writer_for(shown), service.settings.limits

        def prepare(model: LoadedModel) -> GenerationRequest:
            if folder is None:
                return body.generation(model, limits)
            asked, sampling = (
                body.conversation(model, limits),
                body.sampling(model.engine.tokenizer),
            )
            given = body.fields_set
            return service.agent_request(model, folder, asked, given, sampling, body.max_answer)

        return cls(name, [prepare], writer, body.stream, ping_s=body.ping_s)
