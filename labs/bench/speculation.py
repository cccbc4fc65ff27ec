"""The gain of drafting and forced tokens in known calls; `draft_gain.py` has that of real runs.

    python -m labs.bench.speculation -m synthetic:qwen3-0.6b:q4_0

A decode whose tokens are given makes the passes that it would make if the model said them, so what
a model with random weights would accept is what the text says. The texts: a call that edits a file
that was read, with its lines in JSON strings; and calls of three schemas that repeat nothing. Every
text is decoded with and without, in turns. What drafts cost, and how many have to be right for
that, says `draft_lengths.py`.
"""

from __future__ import annotations

import inspect
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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

TOKENS = 240  # of an answer
OFF, ON = SpeculativeConfig(jump_forward=False, draft_tokens=0), SpeculativeConfig()


# --- the texts


def document() -> str:
    """Return the result of a file read: this package's ledger, numbered by line."""
    from triplepoint.runtime.conversation import ledger

    lines = inspect.getsource(ledger).splitlines()[20:140]
    return "\n".join(f"{n:>4}  {line}" for n, line in enumerate(lines, 21))


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


@tool
def edit_file(path: str, old: str, new: str) -> str:
    """Replaces a text in a file."""
    return f"{path} {old} {new}"


def change(lines: Sequence[str]) -> ToolCall:
    """Return a call that changes two lines of a method."""
    old = "\n".join(line[6:] for line in lines[71:86])
    new = re.sub(r"\bspans?\b", "stretch", old).replace("int", "float", 1)
    return ToolCall("edit_file", {"path": "runtime/ledger.py", "old": old, "new": new})


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
            f"{statistics.median(gains):.2f} ({spread}) | {last.passes} | {last.forced_tokens} | "
            f"{last.accepted_tokens} of {last.drafted_tokens} |"
        )


HEAD = (
    "| text | tokens | tok/s without | with | times as fast | passes | forced | drafts accepted |\n"
    "|---|--:|--:|--:|--:|--:|--:|--:|"
)


def calls(engine: Engine, repeat: int) -> list[Measured]:
    """Measure the tool calls, each under the grammar of all of them.

    The edit is drafted from the file; the others, which have nothing of it, are not drafted at all.
    """
    text = document()
    edit = change(text.splitlines())
    found = [_call(engine, repeat, ToolSet([*TOOLS, edit_file]), edit, text, ON)]
    alone = replace(ON, draft_tokens=0)
    return found + [_call(engine, repeat, TOOLS, call, text[:2000], alone) for call in CALLS]


def _call(
    engine: Engine, repeat: int, tools: ToolSet, call: ToolCall, file: str, on: SpeculativeConfig
) -> Measured:
    grammar = CallGrammar(engine.tokenizer, tools.schemas(), "hermes")
    opening = engine.tokenizer.encode(grammar.form.opening, special=True)
    end = sorted(engine.tokenizer.stop_ids)[-1:]
    file_ids = engine.tokenizer.encode(f"{file}\n")
    prompt = file_ids + opening
    text = grammar.form.render([call])
    ids = [*engine.tokenizer.encode(text, special=True)[len(opening) :], *end]
    measured = Measured(call.name, len(ids))
    turns = []
    for speculative, into in ((OFF, measured.off), (on, measured.on)):
        session = engine.session()
        session.phases.drafting.settings, session.phases.drafting.sources = (
            speculative,
            [(0, len(file_ids))],
        )
        session.prefill(prompt)
        turns.append((session, into))
    for _ in range(repeat):
        for session, into in turns:
            into.append(_again(session, len(prompt), ids, _opened(grammar, opening)))
    return measured


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
                "drafted": one.on[-1].drafted_tokens,
                "accepted": one.on[-1].accepted_tokens,
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
