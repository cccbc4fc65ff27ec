"""Converts a run to nested spans, in integer nanoseconds.

    run > turn > step > phase > pass
                      > tool

A trace says of a phase or a tool when it was recorded, at its end, and how long it took. From that
the spans follow. They nest exactly: a child lies within its parent, and the phases and tools of a
run do not overlap, also where the clock was set back in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from .event_log import EventLog
from .events import MessageEvent, PassEvent, PhaseEvent, RunEnd, RunStart, ToolEvent, TurnEnd

_MAX_NS = 1 << 62  # what a signed 64-bit field of an export can hold


@dataclass(kw_only=True)
class Span:
    """An interval of time: its begin and end, in Unix nanoseconds."""

    start: int
    end: int


@dataclass
class PassSpan(Span):
    """The span of a pass that a phase shared with other sequences."""

    event: PassEvent


@dataclass
class Leaf(Span):
    """The span of a phase or a tool call."""

    event: PhaseEvent | ToolEvent
    passes: list[PassSpan] = field(default_factory=list)
    """The phase's passes that other sequences shared."""


@dataclass
class StepSpan(Span):
    """The span of a step: one reply of the model, with its prefill, decode and tool calls."""

    number: int
    leaves: list[Leaf] = field(default_factory=list)


@dataclass
class TurnSpan(Span):
    """The span of a turn: one question, up to its answer."""

    number: int
    steps: list[StepSpan] = field(default_factory=list)
    question: str = ""
    close: TurnEnd | None = None
    outcome: RunEnd | None = None
    """How the question ended; None when it was killed or is still running."""

    @property
    def began(self) -> bool:
        """Return whether the turn has messages or calls; else it only restored a conversation."""
        return bool(self.question or self.close or any(step.number for step in self.steps))

    @property
    def leaves(self) -> Iterator[Leaf]:
        """Yield the turn's phases and tool calls, in order."""
        for step in self.steps:
            yield from step.leaves


@dataclass
class RunSpan(Span):
    """The span of a run: one conversation."""

    log: EventLog
    """The run's events."""
    turns: list[TurnSpan] = field(default_factory=list)

    @property
    def run(self) -> str:
        """Return the run's identifier."""
        return self.log.run

    @property
    def header(self) -> RunStart | None:
        """Return the run's header."""
        return self.log.header

    @property
    def leaves(self) -> Iterator[Leaf]:
        """Yield the run's phases and tool calls, in order."""
        for turn in self.turns:
            yield from turn.leaves

    @property
    def begun(self) -> list[TurnSpan]:
        """Return the turns that have messages or calls, without restored ones."""
        return [turn for turn in self.turns if turn.began]


def nanoseconds(seconds: float) -> int:
    """Round seconds to integer nanoseconds; 0 for an invalid time."""
    if not math.isfinite(seconds) or seconds <= 0:
        return 0
    return round(min(seconds * 1e9, _MAX_NS))


def of_runs(trace: EventLog) -> list[RunSpan]:
    """Return the spans of each run of a trace, in order."""
    return [_run(one) for one in trace.runs]


def _run(trace: EventLog) -> RunSpan:
    latest = free = nanoseconds(trace.events[0].ts)  # last record; end of the last phase or tool
    run = RunSpan(trace, start=latest, end=latest)
    shared: list[PassEvent] = []  # of the phase that follows them
    for event in trace.events:
        if isinstance(event, PassEvent):
            shared.append(event)
            continue
        latest = now = max(nanoseconds(event.ts), latest)
        if isinstance(event, PhaseEvent | ToolEvent):
            took = event.wall_s if isinstance(event, PhaseEvent) else event.duration_s
            turn = _turn(run, event.turn, max(now - nanoseconds(took), free))
            start = max(now - nanoseconds(took), free, turn.start)
            step = _step(turn, event.step, start)
            leaf = Leaf(event, start=start, end=now)
            if isinstance(event, PhaseEvent):
                leaf.passes, shared = list(_passes(shared, start, now)), []
            step.leaves.append(leaf)
            step.end = turn.end = free = now
        elif isinstance(event, MessageEvent | TurnEnd):
            turn = _turn(run, event.turn, now)
            turn.end = now
            if isinstance(event, TurnEnd):
                turn.close = event
            elif event.role == "user" and not turn.question:
                turn.question = event.content
        elif isinstance(event, RunEnd) and run.turns:
            # It says whose it is: a question may fail before anything is recorded of it.
            turn = run.turns[-1]
            if event.totals.get("turn", turn.number) == turn.number:
                turn.outcome = event
    run.end = latest
    tasks = {turn.number: turn.question for turn in trace.turns}
    for turn in run.turns:
        turn.question = turn.question or tasks.get(turn.number, "")
    return run


def _passes(events: list[PassEvent], at: int, end: int) -> Iterator[PassSpan]:
    """Place a phase's shared passes one after another inside it."""
    for event in events:
        ended = min(max(nanoseconds(event.ts), at), end)
        start = min(max(nanoseconds(event.ts) - nanoseconds(event.wall_s), at), ended)
        yield PassSpan(event, start=start, end=ended)
        at = ended


def _turn(run: RunSpan, number: int, at: int) -> TurnSpan:
    """Return the running turn, or a new one that begins now."""
    if not run.turns or run.turns[-1].number != number:
        before = run.turns[-1].end if run.turns else at
        run.turns.append(TurnSpan(number, start=max(at, before), end=max(at, before)))
    return run.turns[-1]


def _step(turn: TurnSpan, number: int, at: int) -> StepSpan:
    if not turn.steps or turn.steps[-1].number != number:
        turn.steps.append(StepSpan(number, start=at, end=at))
    return turn.steps[-1]
