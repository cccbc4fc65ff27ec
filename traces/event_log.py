"""The events of a trace in their order, and what follows from them: turns, phases, the end.

All that looks at a trace needs no more than this. `Trace` (`reader.py`) is one that knows its file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

from .events import (
    AnyEvent,
    ContentEvent,
    HistoryEvent,
    MessageEvent,
    PhaseEvent,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
)
from .records import content_digest

_OF_A_QUESTION = (MessageEvent, ToolEvent, TurnEnd)


@dataclass
class Turn:
    """One question and everything up to its answer."""

    number: int
    messages: list[MessageEvent] = field(default_factory=list)
    phases: list[PhaseEvent] = field(default_factory=list)
    tools: list[ToolEvent] = field(default_factory=list)
    end: TurnEnd | None = None
    """None when the run ended before the turn did."""
    task: str = ""
    """The question of a turn that goes on from a later step of another run."""

    @property
    def question(self) -> str:
        """The user's message that opened the turn."""
        return next((m.content for m in self.messages if m.role == "user"), self.task)

    @property
    def began(self) -> bool:
        """Whether anything was said or done in it; else it only took over a conversation."""
        return bool(self.messages or self.tools or any(phase.step for phase in self.phases))

    @property
    def answer(self) -> str | None:
        """The answer; None when there was none."""
        return self.end.answer if self.end else None


class EventLog:
    """The events of a trace, as they were recorded."""

    def __init__(
        self,
        events: list[AnyEvent] | None = None,
        *,
        path: Path | None = None,
        torn: str | None = None,
    ) -> None:
        self.events: list[AnyEvent] = [] if events is None else events
        self.path = path
        self.torn = torn
        """Text of an unfinished last line; None when the file ends with a whole one."""

    @property
    def run(self) -> str:
        """The run's identifier; empty before its first event."""
        return self.events[0].run if self.events else ""

    @property
    def header(self) -> RunStart | None:
        """The first run's header."""
        return next((e for e in self.events if isinstance(e, RunStart)), None)

    @property
    def history(self) -> HistoryEvent | None:
        """The conversation that the first run goes on with; None where it begins one."""
        return next((e for e in self.events if isinstance(e, HistoryEvent)), None)

    @property
    def contents(self) -> dict[str, Any]:
        """What recipes name, by digest: of headers, and of events of their own."""
        found: dict[str, Any] = {}
        for event in self.events:
            if isinstance(event, ContentEvent):
                found[event.digest] = event.value
            elif isinstance(event, RunStart):
                given = (event.tools, event.config.get("output"))
                found |= {content_digest(value): value for value in given if value}
        return found

    @property
    def redacted(self) -> bool:
        """Whether text and token ids were left out of one of its runs."""
        return any(isinstance(e, RunStart) and e.redacted for e in self.events)

    @property
    def end(self) -> RunEnd | None:
        """The last run's end; None when it was killed or still goes on."""
        marks = [e for e in self.events if isinstance(e, RunEnd | RunStart)]
        if not marks or not isinstance(marks[-1], RunEnd) or self.cut_off is not None:
            return None
        return marks[-1]

    @property
    def cut_off(self) -> AnyEvent | None:
        """The last event of a question that has no end: it was killed there, or still goes on."""
        last: AnyEvent | None = None
        for event in self.events:
            # A header without a task is of a conversation in which nothing was asked yet.
            asks = event.task if isinstance(event, RunStart) else isinstance(event, _OF_A_QUESTION)
            if isinstance(event, RunEnd):
                last = None
            elif asks or last is not None:
                last = event
        return last

    @property
    def answer(self) -> str | None:
        """The last answer that was given."""
        for event in reversed(self.events):
            if isinstance(event, TurnEnd | RunEnd) and event.answer:
                return event.answer
        return None

    @property
    def phases(self) -> list[PhaseEvent]:
        """All phases, in order."""
        return [e for e in self.events if isinstance(e, PhaseEvent)]

    @property
    def tools(self) -> list[ToolEvent]:
        """All tool calls, in order."""
        return [e for e in self.events if isinstance(e, ToolEvent)]

    @property
    def transitions(self) -> list[tuple[PhaseEvent, PhaseEvent]]:
        """Neighboring phases that ran in different regimes.

        A phase that computed nothing, as a fork does, ran in none.
        """
        ran = [phase for phase in self.phases if phase.tokens]
        return [(a, b) for a, b in pairwise(ran) if a.regime != b.regime]

    @property
    def turns(self) -> list[Turn]:
        """The events of each turn, in order."""
        turns: dict[tuple[str, int], Turn] = {}
        for event in self.events:
            if isinstance(event, RunStart) and event.parent_step:
                number, _, step = event.parent_step.partition(".")
                if number.isdecimal() and step != "1":  # its question stands in the header
                    turns[event.run, int(number)] = Turn(int(number), task=event.task)
            if not isinstance(event, MessageEvent | PhaseEvent | ToolEvent | TurnEnd):
                continue
            turn = turns.setdefault((event.run, event.turn), Turn(event.turn))
            if isinstance(event, MessageEvent):
                turn.messages.append(event)
            elif isinstance(event, PhaseEvent):
                turn.phases.append(event)
            elif isinstance(event, ToolEvent):
                turn.tools.append(event)
            else:
                turn.end = event
        return list(turns.values())

    @property
    def runs(self) -> list[Self]:
        """One trace for each run in the file, in order."""
        groups: dict[str, list[AnyEvent]] = {}
        for event in self.events:
            groups.setdefault(event.run, []).append(event)
        return [type(self)(events, path=self.path) for events in groups.values()]
