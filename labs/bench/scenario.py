"""The project's reference run, with all features on and with all off.

    python -m labs.bench.scenario -m synthetic:qwen3-0.6b:q4_0

A prompt of 220 tokens, a tool call, a result of 5,000 tokens, an answer that quotes it; then a
second question of 40 tokens and an answer that repeats nothing. Off: each turn reads the
conversation from its beginning, as through an interface that keeps nothing, and every token costs a
pass. On: only what is new is read, what the grammar forces is not decoded, and what can be copied
is drafted. The tokens are given, so both write the same; they are run in turns.
"""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from triplepoint.errors import EngineError, SettingError
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.grammar import CallGrammar, TurnConstraint
from triplepoint.runtime.engine.teacher_forcing import decode_teacher_forced

from .command import Report, run_report
from .speculation import OFF, ON, TOOLS

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.engine.session import Session
    from triplepoint.traces.events import PhaseEvent

PROMPT, RESULT, ANSWER, QUESTION, SECOND = 220, 5000, 160, 40, 60  # tokens
CALL = ToolCall("read_file", {"path": "app.log"})


def document() -> str:
    """Return the result of a file read: this package's ledger, numbered by line."""
    from triplepoint.runtime.conversation import ledger

    lines = inspect.getsource(ledger).splitlines()[20:140]
    return "\n".join(f"{n:>4}  {line}" for n, line in enumerate(lines, 21))


def quoting(lines: Sequence[str]) -> str:
    """Return an answer that quotes pieces of the file, with a sentence before each."""
    sentences = (
        "The first thing to look at is how a run of tokens is described. ",
        "Further down it is said what was reused, which matters for your question. ",
        "And this is the part that decides, as far as I can see. ",
        "The rest follows from there. ",
    )
    pieces = [lines[4:13], lines[26:36], lines[50:62], lines[80:95]]
    both = zip(sentences, pieces, strict=True)
    return "\n".join(f"{text}\n```\n{chr(10).join(piece)}\n```" for text, piece in both)


def original() -> str:
    """Return an answer that shares nothing with the file."""
    from triplepoint.runtime.physics import costs

    return inspect.getdoc(costs) or ""


@dataclass(frozen=True)
class Step:
    """A segment that is prefilled or decoded."""

    name: str
    ids: list[int]
    said: bool = False
    call: bool = False
    """Whether it is decoded under the grammar of tool calls."""


@dataclass
class Measured:
    """One step, several times."""

    step: Step
    off: list[PhaseEvent] = field(default_factory=list)
    on: list[PhaseEvent] = field(default_factory=list)

    @property
    def seconds(self) -> tuple[float, float]:
        """Median seconds without and with."""
        off, on = (statistics.median(p.wall_s for p in phases) for phases in (self.off, self.on))
        return off, on

    @property
    def gains(self) -> list[float]:
        """Time without over time with, by round."""
        return [a.wall_s / b.wall_s for a, b in zip(self.off, self.on, strict=True)]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as numbers."""
        return {
            "step": self.step.name,
            "tokens": len(self.step.ids),
            **{
                name: {
                    "seconds": [phase.wall_s for phase in phases],
                    "regime": phases[-1].regime,
                    "computed": phases[-1].tokens,
                    "passes": phases[-1].passes,
                }
                for name, phases in (("off", self.off), ("on", self.on))
            },
        }


def steps(engine: Engine) -> list[Step]:
    """Return the run, in this model's tokens.

    Raises:
        EngineError: the vocabulary has no end of turn.
        SettingError: the context is too short for the run.
    """
    tokenizer = engine.tokenizer
    if not tokenizer.stop_ids:
        raise EngineError("the model's vocabulary has no token that ends a turn")
    grammar = CallGrammar(tokenizer, TOOLS.schemas(), "hermes")
    call = tokenizer.encode(grammar.form.render([CALL]), special=True)
    end = sorted(tokenizer.stop_ids)[-1:]
    text = document()
    result = tokenizer.encode(f"{_source()[-1000:]}\n{text}\n{_source()}")[:RESULT]
    answer = tokenizer.encode(quoting(text.splitlines()))[:ANSWER]
    parts = [
        Step("prompt", tokenizer.encode(_source())[-PROMPT:]),
        Step("tool call", [*call, *end], said=True, call=True),
        Step("tool result", result),
        Step("answer", [*answer, *end], said=True),
        Step("second question", tokenizer.encode(original())[-QUESTION:]),
        Step("second answer", [*tokenizer.encode(original())[:SECOND], *end], said=True),
    ]
    needed = sum(len(part.ids) for part in parts)
    if needed > engine.context:
        raise SettingError(
            f"the run is {needed:,} tokens long, and the context of {engine.model.name} holds "
            f"{engine.context:,}; take a model with a longer one, such as "
            "synthetic:qwen3-0.6b:q4_0"
        )
    return parts


def measure(engine: Engine, repeat: int) -> list[Measured]:
    """Run it `repeat` times each way, in turns, after one warm-up each."""
    found = [Measured(step) for step in steps(engine)]
    grammar = CallGrammar(engine.tokenizer, TOOLS.schemas(), "hermes")
    for number in range(repeat + 1):
        for on in (False, True):
            phases = _run_tape(engine, [one.step for one in found], grammar, on)
            for one, phase in zip(found, phases, strict=True):
                if number:
                    (one.on if on else one.off).append(phase)
    return found


def _run_tape(
    engine: Engine, parts: Sequence[Step], grammar: CallGrammar, on: bool
) -> list[PhaseEvent]:
    session, phases = engine.session(), []
    session.phases.drafting.settings = ON if on else OFF
    for part in parts:
        start = len(session.tokens)
        if not part.said:
            phases.append(_feed(session, part.ids, whole=not on))
            session.phases.drafting.sources = [(start, len(session.tokens))] if on else []
            continue
        constraint: TurnConstraint | None = grammar.constraint() if part.call else None
        phases.append(decode_teacher_forced(session, part.ids, constraint=constraint))
    return phases


def _feed(session: Session, ids: Sequence[int], *, whole: bool) -> PhaseEvent:
    before = list(session.tokens) if whole else []
    if whole:
        session.truncate(0)
    return session.prefill([*before, *ids])


def _source() -> str:
    """Return a long text: parts of this package's own source."""
    from triplepoint.runtime.conversation import chat, grammar, reply
    from triplepoint.runtime.conversation.formats import toolcalls

    return "\n".join(inspect.getsource(module) for module in (reply, toolcalls, grammar, chat))


HEAD = (
    "| step | tokens | off: computed | seconds | regime | on: computed | seconds | regime "
    "| times as fast |\n|---|--:|--:|--:|---|--:|--:|---|--:|"
)


def lines(found: Sequence[Measured]) -> list[str]:
    """Return the table in Markdown, a step a line, and the whole run."""
    table: list[str] = [*HEAD.split("\n")]
    for one in found:
        off, on = one.seconds
        table.append(
            f"| {one.step.name} | {len(one.step.ids):,} | {_computed(one.off[-1])} | {off:.3f} | "
            f"{one.off[-1].regime} | {_computed(one.on[-1])} | {on:.3f} | {one.on[-1].regime} | "
            f"{_spread(one.gains)} |"
        )
    totals = [
        [sum(phases[n].wall_s for phases in way) for n in range(len(found[0].on))]
        for way in ([one.off for one in found], [one.on for one in found])
    ]
    off, on = (statistics.median(each) for each in totals)
    gains = [a / b for a, b in zip(*totals, strict=True)]
    return [*table, f"| whole run | | | {off:.3f} | | | {on:.3f} | | {_spread(gains)} |"]


def _computed(phase: PhaseEvent) -> str:
    if phase.phase == "prefill":
        return f"{phase.tokens:,} tokens"
    return f"{phase.passes:,} passes"


def _spread(gains: Sequence[float]) -> str:
    return f"{statistics.median(gains):.2f} ({min(gains):.2f} … {max(gains):.2f})"


def report(engine: Engine, repeat: int) -> Report:
    """Return the measurement as lines and as numbers."""
    found = measure(engine, repeat)
    return lines(found), {"steps": [one.as_dict() for one in found]}


if __name__ == "__main__":
    raise SystemExit(run_report("scenario", report))
