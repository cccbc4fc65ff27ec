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
    """The event that a run starts."""

    run: str
    """Identifier of the run, the same as in the trace."""
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
    """The event that a tool call is about to run."""

    call_id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    """``harness`` for a call that the runtime made; empty for one of the model."""


@dataclass(frozen=True, slots=True)
class ToolCallFinished:
    """The event that a tool call has run, or was refused."""

    call_id: str
    name: str
    result: str
    """The result text that the model gets, errors included."""
    error: str | None
    """Why the call failed; None for success."""
    duration_s: float


@dataclass(frozen=True, slots=True)
class PhaseFinished:
    """The event that a prefill or a decode ended."""

    phase: PhaseEvent
    reuse: Reuse | None = None
    """Prefix reuse of a prefill; None for a decode."""


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
