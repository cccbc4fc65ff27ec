"""The record of one request: times of its events, and the phases of its sessions.

Metrics, the status page and traces are all built from it.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ....traces.events import PassEvent, PhaseEvent
from ....traces.writer import new_run_id
from ..http.api_error import APIError
from ..models.events import (
    Answered,
    Call,
    CallPart,
    Closed,
    Done,
    Event,
    Failed,
    PromptRead,
    Text,
    Thought,
)
from ..models.generate import GenerationRequest, Recorder
from .meter import Meters

if TYPE_CHECKING:
    from ...engine.passes.shared_pass import SharedPass
    from ...engine.session import Session


@dataclass(frozen=True, slots=True)
class RecordedPhase:
    """A recorded phase of one of the sessions of a request."""

    choice: int
    """Number of the answer that it belongs to; the prefill belongs to answer 0."""
    event: PhaseEvent
    ended: float
    """When it ended, in Unix seconds."""
    shared: list[tuple[int, SharedPass]]
    """Shared passes that computed it, each after the phase's index in the pass."""

    def passes(self) -> list[PassEvent]:
        """Return the trace events of its shared passes."""
        return [done.event(index) for index, done in self.shared]


@dataclass(eq=False)
class RequestRecord(Recorder):
    """Times, phases and outcome of one request; times are of `time.perf_counter`, except `at`."""

    model: str
    """Name of its model."""
    meters: Meters = field(default_factory=Meters)
    """Throughput of all requests, to which its tokens are added."""
    request_id: str = ""
    """Request ID in HTTP, which several records may share."""
    id: str = field(default_factory=new_run_id)
    """Run ID of its trace."""
    at: float = field(default_factory=time.time)
    """Arrival in Unix seconds."""
    arrived: float = field(default_factory=time.perf_counter)
    started: float | None = None
    """When the model started to work on it."""
    first: float | None = None
    """When the first piece of an answer was emitted."""
    ended: float | None = None
    gaps: list[float] = field(default_factory=list)
    """Seconds between consecutive pieces of an answer."""
    read: PromptRead | None = None
    """Event at the end of its prefill."""
    done: list[Done] = field(default_factory=list)
    answers: dict[int, Answered] = field(default_factory=dict)
    phases: list[RecordedPhase] = field(default_factory=list)
    """Phases, in the order in which they ended."""
    spans: list[dict[str, Any]] = field(default_factory=list)
    """Summaries of the phases for the status page, which `slim` does not drop."""
    request: GenerationRequest | None = None
    context: int = 0
    speculative: dict[str, object] = field(default_factory=dict)
    error: APIError | None = None
    """Why it failed."""
    cancelled: bool = False
    """Whether its client disconnected before it had ended."""
    written: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Tokens of each answer so far, and their seconds."""

    def __post_init__(self) -> None:
        self._computed, self._computed_at = 0, 0.0  # tokens of the prompt, and when
        self._last: dict[int, float] = {}

    def heard(self, event: Event) -> None:
        """Record an event, in the thread that made it."""
        if isinstance(event, Text | Thought | Call | CallPart):
            self.answers.setdefault(event.choice, Answered()).add(event)
            if isinstance(event, Call) and event.streamed:  # its parts were counted
                return
            now = time.perf_counter()
            self.first = self.first or now
            if (last := self._last.get(event.choice)) is not None:
                self.gaps.append(now - last)
            self._last[event.choice] = now
        elif isinstance(event, PromptRead):
            self.reading(event.tokens - event.cached, event.seconds)
            self.read = event
        elif isinstance(event, Done):
            self.done.append(event)
            self.wrote(event.choice, event.tokens, event.seconds)
        elif isinstance(event, Failed):
            # Without its traceback and cause: their frames hold the engine and the whole body.
            self.error = copy.copy(event.error)
        elif isinstance(event, Closed):
            wanted = 1 if self.request is None else self.request.choices
            self.cancelled = len(self.done) < wanted

    def reading(self, computed: int, seconds: float) -> None:
        more, now = computed - self._computed, time.perf_counter()
        if more > 0:
            self.meters.prompt.add(more, now - max(self._computed_at, now - seconds))
            self._computed, self._computed_at = computed, now

    def wrote(self, choice: int, tokens: int, seconds: float) -> None:
        before, _ = self.written.get(choice, (0, 0.0))
        self.written[choice] = tokens, seconds
        if tokens > before:
            self.meters.generation.add(tokens - before)

    def phase_ended(self, session: Session, choice: int) -> None:
        if session.last_phase is None:
            return
        self.context, self.speculative = session.context, session.phases.drafting.settings.as_dict()
        if self.request is not None and self.request.by is not None:  # an agent's
            phase, (tokens, spent) = session.last_phase, self.written.get(choice, (0, 0.0))
            if phase.phase == "decode":
                self.wrote(choice, tokens + phase.tokens, spent + phase.wall_s)
        event, at = session.last_phase, time.time()
        shared = session.phases.metrics.shared_passes()
        self.phases.append(RecordedPhase(choice, event, at, shared))
        self.spans.append(
            {
                "choice": choice,
                "regime": event.regime,
                "bound": event.observed,
                "contended": event.contended,
                "start": at - event.wall_s,
                "end": at,
                "tokens": event.tokens,
            }
        )

    def slim(self) -> None:
        """Drop what the status page does not show, once the request has ended and was counted."""
        self.phases, self.gaps, self.answers, self.request = [], [], {}, None

    @property
    def state(self) -> str:
        """State: ``waiting``, ``prefill``, ``decode``, ``done``, ``failed`` or ``cancelled``."""
        if self.ended is not None:
            if self.error is not None:
                return "failed"
            return "cancelled" if self.cancelled else "done"
        if self.started is None:
            return "waiting"
        return "prefill" if self.read is None else "decode"

    @property
    def tokens(self) -> int:
        """Number of tokens of its answers so far."""
        return sum(tokens for tokens, _ in list(self.written.values()))
