"""The events of a trace in order, and views of them: turns, phases, the end.

Whatever reads a trace needs no more than an `EventLog`. `Trace` (`reader.py`) adds the file.
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
    """The events of one question, up to its answer."""

    number: int
    messages: list[MessageEvent] = field(default_factory=list)
    phases: list[PhaseEvent] = field(default_factory=list)
    tools: list[ToolEvent] = field(default_factory=list)
    end: TurnEnd | None = None
    """The turn's end event; None when the run ended before the turn did."""
    task: str = ""
    """The question of a turn that continues from a later step of another run."""

    @property
    def question(self) -> str:
        """Return the user's message that opened the turn."""
        return next((m.content for m in self.messages if m.role == "user"), self.task)

    @property
    def began(self) -> bool:
        """Return whether the turn has messages or calls; else it only restored a conversation."""
        return bool(self.messages or self.tools or any(phase.step for phase in self.phases))

    @property
    def answer(self) -> str | None:
        """Return the answer; None when there was none."""
        return self.end.answer if self.end else None


class EventLog:
    """The recorded events of a trace."""

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
        """Return the run's identifier; empty before its first event."""
        return self.events[0].run if self.events else ""

    @property
    def header(self) -> RunStart | None:
        """Return the first run's header."""
        return next((e for e in self.events if isinstance(e, RunStart)), None)

    @property
    def history(self) -> HistoryEvent | None:
        """Return the conversation that the first run continues; None where it starts one."""
        return next((e for e in self.events if isinstance(e, HistoryEvent)), None)

    @property
    def contents(self) -> dict[str, Any]:
        """Return the contents that recipes name, by digest, from headers and content events."""
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
        """Return whether text and token ids were left out of any of its runs."""
        return any(isinstance(e, RunStart) and e.redacted for e in self.events)

    @property
    def end(self) -> RunEnd | None:
        """Return the last run's end; None when it was killed or is still running."""
        marks = [e for e in self.events if isinstance(e, RunEnd | RunStart)]
        if not marks or not isinstance(marks[-1], RunEnd) or self.cut_off is not None:
            return None
        return marks[-1]

    @property
    def cut_off(self) -> AnyEvent | None:
        """Return the last event of a question without an end: killed, or still running."""
        last: AnyEvent | None = None
        for event in self.events:
            # A header without a task is of a conversation without a question so far.
            is_question = (
                event.task if isinstance(event, RunStart) else isinstance(event, _OF_A_QUESTION)
            )
            if isinstance(event, RunEnd):
                last = None
            elif is_question or last is not None:
                last = event
        return last

    @property
    def answer(self) -> str | None:
        """Return the last answer."""
        for event in reversed(self.events):
            if isinstance(event, TurnEnd | RunEnd) and event.answer:
                return event.answer
        return None

    @property
    def phases(self) -> list[PhaseEvent]:
        """Return all phases, in order."""
        return [e for e in self.events if isinstance(e, PhaseEvent)]

    @property
    def tools(self) -> list[ToolEvent]:
        """Return all tool calls, in order."""
        return [e for e in self.events if isinstance(e, ToolEvent)]

    @property
    def transitions(self) -> list[tuple[PhaseEvent, PhaseEvent]]:
        """Return adjacent phases in different regimes.

        A phase that computed nothing, as a fork does, ran in none.
        """
        ran = [phase for phase in self.phases if phase.tokens]
        return [(a, b) for a, b in pairwise(ran) if a.regime != b.regime]

    @property
    def turns(self) -> list[Turn]:
        """Return the events of each turn, in order."""
        turns: dict[tuple[str, int], Turn] = {}
        for event in self.events:
            if isinstance(event, RunStart) and event.parent_step:
                number, _, step = event.parent_step.partition(".")
                if number.isdecimal() and step != "1":  # its question is in the header
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
        """Return one trace for each run in the file, in order."""
        groups: dict[str, list[AnyEvent]] = {}
        for event in self.events:
            groups.setdefault(event.run, []).append(event)
        return [type(self)(events, path=self.path) for events in groups.values()]
