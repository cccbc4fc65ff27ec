"""The gain of forced tokens in known calls; `draft_gain.py` has that of drafts in real runs.

    python -m labs.bench.speculation -m synthetic:qwen3-0.6b:q4_0

A decode whose tokens are given makes the passes that it would make if the model said them. The
texts are calls of three schemas, decoded with forced tokens and without, in turns. What drafts
cost, and how many have to be right for that, says `draft_lengths.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar, TurnConstraint
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.teacher_forcing import decode_teacher_forced
from triplepoint.tools.tool import ToolSet, tool

from . import draft_lengths
from .command import Report, run_report
from .draft_lengths import DraftCosts

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.engine.session import Session
    from triplepoint.traces.events import PhaseEvent

OFF, ON = SpeculativeConfig(jump_forward=False, draft_tokens=0), SpeculativeConfig()
FORCED = SpeculativeConfig(draft_tokens=0)


# --- the texts


@tool
def read_file(path: str, start: int = 1, end: int | None = None) -> str:
    """Reads lines of a text file."""
    return f"{path} {start} {end}"


@tool
def search(pattern: str, path: str = ".", regex: bool = False) -> str:
    """Finds the lines that hold a text."""
    return f"{pattern} {path} {regex}"


@tool
def set_level(
    service: Literal["ingest", "index", "gateway"],
    level: Literal["debug", "info", "warning", "error"],
    minutes: int,
    persistent: bool,
) -> str:
    """Sets how much a service writes to its log."""
    return f"{service} {level} {minutes} {persistent}"


TOOLS = ToolSet([read_file, search, set_level])
CALLS = (
    ToolCall("read_file", {"path": "logs/worker.log", "start": 120, "end": 180}),
    ToolCall("search", {"pattern": "disk full", "path": "logs", "regex": False}),
    ToolCall(
        "set_level",
        {"service": "gateway", "level": "warning", "minutes": 30, "persistent": True},
    ),
)


# --- measuring


@dataclass
class Measured:
    """One text, decoded with and without, several times in turns."""

    name: str
    tokens: int
    off: list[PhaseEvent] = field(default_factory=list)
    on: list[PhaseEvent] = field(default_factory=list)

    @property
    def speedups(self) -> list[float]:
        """Time without over time with, by round."""
        return [a.wall_s / b.wall_s for a, b in zip(self.off, self.on, strict=True)]

    def row(self) -> str:
        """Return a line of the table."""
        last, gains = self.on[-1], self.speedups
        speed = [
            self.tokens / statistics.median(p.wall_s for p in ps) for ps in (self.off, self.on)
        ]
        spread = f"{min(gains):.2f} … {max(gains):.2f}"
        return (
            f"| {self.name} | {self.tokens} | {speed[0]:.1f} | {speed[1]:.1f} | "
            f"{statistics.median(gains):.2f} ({spread}) | {last.passes} | {last.forced_tokens} |"
        )


HEAD = (
    "| text | tokens | tok/s without | with | times as fast | passes | forced |\n"
    "|---|--:|--:|--:|--:|--:|--:|"
)


def calls(engine: Engine, repeat: int) -> list[Measured]:
    """Measure the tool calls, each under the grammar of all of them."""
    grammar = CallGrammar(engine.tokenizer, TOOLS.schemas(), "hermes")
    opening = engine.tokenizer.encode(grammar.form.opening, special=True)
    end = sorted(engine.tokenizer.stop_ids)[-1:]
    prompt = [*engine.tokenizer.encode("Look. " * 64), *opening]
    found = []
    for call in CALLS:
        text = grammar.form.render([call])
        ids = [*engine.tokenizer.encode(text, special=True)[len(opening) :], *end]
        measured = Measured(call.name, len(ids))
        turns = []
        for speculative, into in ((OFF, measured.off), (FORCED, measured.on)):
            session = engine.session()
            session.phases.drafting.settings = speculative
            session.prefill(prompt)
            turns.append((session, into))
        for _ in range(repeat):
            for session, into in turns:
                into.append(_again(session, len(prompt), ids, _opened(grammar, opening)))
        found.append(measured)
    return found


def _opened(grammar: CallGrammar, opening: Sequence[int]) -> TurnConstraint:
    constraint = grammar.constraint()
    for token in opening:
        constraint.advance(token)
    return constraint


def _again(
    session: Session, start: int, ids: Sequence[int], constraint: TurnConstraint | None
) -> PhaseEvent:
    session.truncate(start)
    session.prefill([])
    return decode_teacher_forced(session, ids, constraint=constraint)


class Timed(TurnConstraint):
    """A constraint that measures its own time."""

    seconds = 0.0

    def _timed(self, what: Callable[..., Any], *args: Any) -> Any:
        began = time.perf_counter()
        try:
            return what(*args)
        finally:
            self.seconds += time.perf_counter() - began

    def mask(self) -> np.ndarray | None:
        """Time the mask: see `TurnConstraint`."""
        return self._timed(super().mask)

    def advance(self, token: int) -> None:
        """Time the advance: see `TurnConstraint`."""
        self._timed(super().advance, token)

    def forced(self) -> int | None:
        """Time the forced tokens: see `TurnConstraint`."""
        return self._timed(super().forced)


def grammar_cost(engine: Engine, repeat: int) -> list[tuple[str, float, float]]:
    """Return, for each call decoded token by token, the grammar's µs a token and share of time."""
    grammar = CallGrammar(engine.tokenizer, TOOLS.schemas(), "hermes")
    opening = engine.tokenizer.encode(grammar.form.opening, special=True)
    session = engine.session()
    session.phases.drafting.settings = OFF
    session.prefill([*engine.tokenizer.encode("Look. "), *opening])
    start, found = len(session.tokens), []
    for call in CALLS:
        ids = engine.tokenizer.encode(grammar.form.render([call]), special=True)[len(opening) :]
        spent, wall = [], []
        for _ in range(repeat):
            constraint = Timed(grammar)
            for token in opening:
                constraint.advance(token)
            constraint.seconds = 0.0
            wall.append(_again(session, start, ids, constraint).wall_s)
            spent.append(constraint.seconds)
        middle = statistics.median(spent)
        found.append((call.name, 1e6 * middle / len(ids), middle / statistics.median(wall)))
    return found


@dataclass
class Savings:
    """The measurements of one engine."""

    texts: list[Measured]
    grammar: list[tuple[str, float, float]]
    costs: DraftCosts

    def lines(self) -> list[str]:
        """Return three tables in Markdown."""
        lines = [*HEAD.split("\n"), *(one.row() for one in self.texts), ""]
        lines += ["| call | grammar, µs a token | of the time |", "|---|--:|--:|"]
        lines += [f"| {n} | {each:.1f} | {share:.2%} |" for n, each, share in self.grammar]
        return [*lines, "", *self.costs.lines()]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as numbers."""
        texts = [
            {
                "text": one.name,
                "tokens": one.tokens,
                "seconds_without": [phase.wall_s for phase in one.off],
                "seconds_with": [phase.wall_s for phase in one.on],
                "passes": one.on[-1].passes,
                "forced": one.on[-1].forced_tokens,
            }
            for one in self.texts
        ]
        grammar = [
            {"call": name, "us_per_token": each, "share": share}
            for name, each, share in self.grammar
        ]
        return {"texts": texts, "grammar": grammar, "drafts": self.costs.as_dict()}


def measure(engine: Engine, repeat: int) -> Savings:
    """Decode every text `repeat` times with and without.

    Raises:
        EngineError: the context is too short for the texts, or the vocabulary has no end of turn.
    """
    costs = draft_lengths.measure(engine, repeat)
    return Savings(calls(engine, repeat), grammar_cost(engine, repeat), costs)


def report(engine: Engine, repeat: int) -> Report:
    """Return the measurement as lines and as numbers."""
    found = measure(engine, repeat)
    return found.lines(), found.as_dict()


if __name__ == "__main__":
    raise SystemExit(run_report("speculation", report))
