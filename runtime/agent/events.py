"""The events that `Agent.stream` yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import LimitReachedError

if TYPE_CHECKING:
    from ...traces.events import PhaseEvent
    from ..conversation.ledger import Reuse
    from .result import RunResult, Status


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run starts."""

    run: str
    """Its identifier, the same as in the trace."""
    turn: int


@dataclass(frozen=True, slots=True)
class Notice:
    """A note for the user that is not an error."""

    message: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call is about to run."""

    call_id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    """``harness``: the runtime made the call, and not the model."""


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """A call has run, or was refused."""

    call_id: str
    name: str
    result: str
    """The text that the model is given, errors included."""
    error: str | None
    """Why it failed; None when it did not."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class PhaseFinished:
    """A prefill or a decode ended."""

    phase: PhaseEvent
    reuse: Reuse | None = None
    """For a prefill: how much of the context was there already."""


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The last event of a run that was answered or reached a limit."""

    result: RunResult[Any]

    @property
    def status(self) -> Status:
        """Return how the run ended."""
        return self.result.status


AgentEvent: TypeAlias = (
    RunStarted
    | Notice
    | TextDelta
    | ThinkingDelta
    | ToolCallStarted
    | ToolCallFinished
    | PhaseFinished
    | RunFinished
)


def delta_of(piece: tuple[str, str]) -> AgentEvent:
    """Convert a piece of the reply and its mode to an event."""
    mode, text = piece
    return TextDelta(text) if mode == "answer" else ThinkingDelta(text)


def result_of(last: AgentEvent | None) -> RunResult[Any]:
    """Return the run's result from the last event of its stream.

    Raises:
        LimitReachedError: a limit ended it.
    """
    assert isinstance(last, RunFinished), "a stream that did not raise ends in RunFinished"
    if last.status == "limit":
        raise LimitReachedError(last.result.message)
    return last.result
