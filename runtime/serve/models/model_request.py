"""What a handler makes of a request: work for a model, and the writer of the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .generate import GenerationRequest
from .loaded_model import LoadedModel
from .writer import Writer

Prepare: TypeAlias = Callable[[LoadedModel], GenerationRequest]


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
