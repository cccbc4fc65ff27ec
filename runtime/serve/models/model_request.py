"""A request to a model: functions that prepare it, and the writer of the response."""

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
    """A request to a model, and how it is answered; `Answer` runs it."""

    model: str
    prepares: Sequence[Prepare]
    """Functions that build engine requests, each of which runs by itself; answers are numbered
    consecutively."""
    writer: Writer
    streamed: bool
    """Whether the response is streamed."""
    choices: int = 1
    """Number of answers to each engine request."""
    ping_s: float | None = None
    """Seconds of silence after which a stream gets a comment; None: the server's setting."""
