"""The library of recorded runs, `examples/runs`: its contents, and how to record them.

    python -m labs.recording.record_examples [NAME …]     records them anew, all by default

They are traces like any other: they can be shown, verified and replayed. Those of the embedded
model name its hash, so they are recorded anew when it changes.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.run_metadata import run_start
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.replay.examples import SUFFIX, folder, root
from triplepoint.traces.events import MessageEvent, PhaseEvent, RunEnd, ToolEvent, TurnEnd
from triplepoint.traces.reader import Trace

SYNTHETIC = "synthetic:qwen3-0.6b:q4_0:layers=2"
_INCIDENT = "examples/incident"

CHAT = (
    "Which files are in this folder?",
    "What is on line 2 of notes.txt?",
    "What's the error in worker.log?",
)
SEARCHES = (
    "Which file mentions retry?",
    "Which file mentions db-2?",
    "Which file mentions timeout?",
    "Which file mentions payment?",
)


def record(name: str, path: Path) -> Trace:
    """Record one of `RUNS` into a file, which is replaced; return its description."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / f"{name}{SUFFIX}"
        RUNS[name](made)
        trace = Trace.load(made)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    header = trace.header
    assert header is not None, "a recorded run begins with its header"
    # Where this was recorded is nobody's business; what ran, a replay finds by its name.
    header.workspace = _INCIDENT if header.workspace else ""
    header.model.path = "" if header.model.name.startswith("triplepoint") else SYNTHETIC
    with Trace.to_file(path, run=header.run) as copy:
        for event in trace.events:
            copy.write(event)
    return Trace.load(path)


def _chat(path: Path) -> None:
    _run_questions(CHAT, path)


def _search(path: Path) -> None:
    _run_questions(SEARCHES, path)


def _run_questions(questions: Sequence[str], path: Path) -> None:
    """Put questions in a row to the embedded model, about the example folder."""
    workspace = root() / _INCIDENT
    with Engine.load("nano") as engine, Agent(engine, workspace=workspace, trace=path) as agent:
        for question in questions:
            for _ in agent.stream(question):
                pass


def _seed(path: Path) -> None:
    """Record the reference run's shape:

    a prompt of 220 tokens, a call of 30, a result of 5,000, an answer of 60.
    """
    _made_up(path, 8192, 220, [(30, "read_file", 5000)], 60)


def _edit(path: Path) -> None:
    """Record a long session of edits: read, change, test, look again, 24 times over."""
    chance = random.Random(2)
    sizes = {  # tokens of a call and of its result, at least and at most
        "search": ((18, 32), (60, 400)),
        "read_file": ((20, 34), (300, 1200)),
        "edit_file": ((60, 260), (25, 60)),
        "run_command": ((20, 40), (80, 700)),
    }
    order = ["search", "read_file", *["read_file", "edit_file", "run_command", "edit_file"] * 5]
    order += ["run_command", "edit_file"]
    calls = [
        (chance.randint(*sizes[name][0]), name, chance.randint(*sizes[name][1])) for name in order
    ]
    _made_up(path, 16384, 1400, calls, 180)


def _made_up(
    path: Path, context: int, prompt: int, calls: Sequence[tuple[int, str, int]], answer: int
) -> None:
    """Record a run of these sizes in random tokens on real matrices.

    calls: tokens of each call, its tool, and tokens of its result.
    """
    chance = random.Random(1)
    with (
        Engine.load(SYNTHETIC, context=context) as engine,
        Agent(engine, system="", trace=path) as agent,
    ):
        session, trace = agent.session, agent.trace

        def feed(count: int, purpose: str, step: int) -> None:
            ids = [chance.randrange(engine.tokenizer.n_vocab) for _ in range(count)]
            note(session.prefill(ids, purpose=purpose), step)

        def say(count: int, purpose: str, step: int) -> str:
            ids = list(session.decode(max_tokens=count, purpose=purpose))
            assert session.last_phase is not None
            note(session.last_phase, step)
            return engine.tokenizer.decode(ids, special=True)

        def note(phase: PhaseEvent, step: int) -> None:
            phase.turn, phase.step = 1, step
            trace.write(phase)

        trace.write(run_start(agent.setup, "made-up tokens"))
        text = f"({prompt} made-up tokens; nothing in this run means anything but sizes and times)"
        trace.write(MessageEvent(role="user", content=text, turn=1, step=1))
        feed(prompt, "prompt", 1)
        for step, (tokens, name, result) in enumerate(calls, 1):
            say(tokens, "tool_call", step)
            text = f"({result:,} made-up tokens)"
            trace.write(ToolEvent(name=name, result=text, turn=1, step=step))
            feed(result, "tool_result", step + 1)
        text = say(answer, "answer", len(calls) + 1)
        trace.write(TurnEnd(turn=1, answer=text))
        trace.write(RunEnd(status="answered", answer=text))


RUNS: dict[str, Callable[[Path], None]] = {
    "chat": _chat,
    "edit": _edit,
    "search": _search,
    "seed": _seed,
}


def main(chosen: Sequence[str]) -> None:
    """Record the runs and print the files' sizes."""
    for name in chosen or list(RUNS):
        path = folder() / f"{name}{SUFFIX}"
        trace = record(name, path)
        size = path.stat().st_size / 1024
        print(f"{path}: {len(trace.turns)} turns, {len(trace.phases)} phases, {size:,.0f} KiB")


if __name__ == "__main__":
    main(sys.argv[1:])
