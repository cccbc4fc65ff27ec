"""When things happened: a run as spans inside spans, in whole nanoseconds.

    run > turn > step > phase, tool

A trace says of a phase or a tool when it was recorded, at its end, and how long it took. From that
the spans follow. They nest exactly: a child lies within its parent, and the phases and tools of a
run do not overlap, also where the clock was set back in between.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from .events import MessageEvent, PhaseEvent, RunEnd, RunStart, ToolEvent, TurnEnd
from .reader import Trace

_MOST_NS = 1 << 62  # what a signed 64-bit field of an export can hold


@dataclass
class Leaf:
    """A phase or a tool call. Times are Unix nanoseconds."""

    event: PhaseEvent | ToolEvent
    start: int
    end: int


@dataclass
class StepSpan:
    """One reply of the model: what was fed, what it wrote, and the calls that it made."""

    number: int
    leaves: list[Leaf] = field(default_factory=list)
    start: int = 0
    end: int = 0


@dataclass
class TurnSpan:
    """One question, up to its answer."""

    number: int
    steps: list[StepSpan] = field(default_factory=list)
    start: int = 0
    end: int = 0
    question: str = ""
    close: TurnEnd | None = None

    @property
    def leaves(self) -> Iterator[Leaf]:
        """Its phases and tool calls, in order."""
        for step in self.steps:
            yield from step.leaves


@dataclass
class RunSpan:
    """One conversation."""

    run: str
    header: RunStart | None
    turns: list[TurnSpan] = field(default_factory=list)
    start: int = 0
    end: int = 0
    close: RunEnd | None = None

    @property
    def leaves(self) -> Iterator[Leaf]:
        """Its phases and tool calls, in order."""
        for turn in self.turns:
            yield from turn.leaves


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds; 0 for what is no time."""
    if not math.isfinite(seconds) or seconds <= 0:
        return 0
    return round(min(seconds * 1e9, _MOST_NS))


def of_runs(trace: Trace) -> list[RunSpan]:
    """The spans of each run of a trace, in order."""
    return [_run(one) for one in trace.runs]


def _run(trace: Trace) -> RunSpan:
    first = trace.events[0]
    latest = free = nanoseconds(first.ts)  # last record; end of the last phase or tool
    run = RunSpan(first.run, trace.header, start=latest, close=trace.end)
    for event in trace.events:
        latest = now = max(nanoseconds(event.ts), latest)
        if isinstance(event, PhaseEvent | ToolEvent):
            took = event.wall_s if isinstance(event, PhaseEvent) else event.duration_s
            turn = _turn(run, event.turn, max(now - nanoseconds(took), free))
            start = max(now - nanoseconds(took), free, turn.start)
            step = _step(turn, event.step, start)
            step.leaves.append(Leaf(event, start, now))
            step.end = turn.end = free = now
        elif isinstance(event, MessageEvent | TurnEnd):
            turn = _turn(run, event.turn, now)
            turn.end = now
            if isinstance(event, TurnEnd):
                turn.close = event
            elif event.role == "user" and not turn.question:
                turn.question = event.content
    run.end = latest
    tasks = {turn.number: turn.question for turn in trace.turns}
    for turn in run.turns:
        turn.question = turn.question or tasks.get(turn.number, "")
    return run


def _turn(run: RunSpan, number: int, at: int) -> TurnSpan:
    """The turn that is running, or a new one that begins now."""
    if not run.turns or run.turns[-1].number != number:
        before = run.turns[-1].end if run.turns else at
        run.turns.append(TurnSpan(number, start=max(at, before), end=max(at, before)))
    return run.turns[-1]


def _step(turn: TurnSpan, number: int, at: int) -> StepSpan:
    if not turn.steps or turn.steps[-1].number != number:
        turn.steps.append(StepSpan(number, start=at, end=at))
    return turn.steps[-1]
