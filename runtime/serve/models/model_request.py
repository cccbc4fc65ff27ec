"""What a handler makes of a request: work for a model, and the writer of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from ...engine.sampling.settings import Sampling
from ...tokens.tokenizer import Tokenizer
from ..settings import Limits, ServerSettings
from .generate import GenerationRequest
from .loaded_model import LoadedModel
from .loading import Models
from .prompts import Conversation, Prompt
from .writer import Writer

Prepare: TypeAlias = Callable[[LoadedModel], GenerationRequest]


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
        """See `ModelRequest.ping_s`."""
        ...

    @property
    def max_answer(self) -> int | None:
        """Tokens of an answer; None: as many as fit."""
        ...

    def conversation(self, model: LoadedModel, limits: Limits, /) -> Conversation:
        """Return the conversation that the model continues."""
        ...

    def sampling(self, tokenizer: Tokenizer, /) -> Sampling:
        """Return the settings of decodes."""
        ...

    def request_for(self, prompt: Prompt, model: LoadedModel, limits: Limits) -> GenerationRequest:
        """Return the request to the engine for one prompt."""
        ...


class ChatService(Protocol):
    """What knows the models and the agents of a server."""

    models: Models
    settings: ServerSettings

    def agent_request(
        self, model: LoadedModel, folder: Path, body: ChatRequest
    ) -> GenerationRequest:
        """Return the request to the agent of a folder."""
        ...


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Work for a model, and how it is answered; `Answer` runs it."""

    model: str
    prepares: Sequence[Prepare]
    """Make requests to the engine; each runs by itself. Answers are numbered consecutively."""
    writer: Writer
    streamed: bool
    """Whether the answer is sent as it is made."""
    choices: int = 1
    """Number of answers to each of these."""
    ping_s: float | None = None
    """Silence after which a stream gets a comment; None: as the server's settings say."""

    @classmethod
    def chat(
        cls, service: ChatService, body: ChatRequest, writer_for: Callable[[str], Writer]
    ) -> ModelRequest:
        """Make the request to a model, or to the agent of that name.

        Args:
            service: of the server.
            body: of the request.
            writer_for: makes the writer, given the name that clients are shown.
        """
        shown, name, folder = service.models.answering(body.model)
        limits = service.settings.limits

        def prepare(model: LoadedModel) -> GenerationRequest:
            if folder is not None:
                return service.agent_request(model, folder, body)
            prompt = model.prompts.prompt(body.conversation(model, limits))
            return body.request_for(prompt, model, limits)

        return cls(name, [prepare], writer_for(shown), body.stream, ping_s=body.ping_s)
