"""The evaluation set that no generator wrote: `python -m labs.nano.suite DIR`.

The real agent with its grammar and its own limits answers over real files through the real
tools, a conversation with one agent as `triplepoint chat` has it. Greedy, so that two runs are
the same. DIR holds the TOML files (labs/nano/suite in a checkout; `suite_files` has their
form), `verdict` the rules. A turn counts as right when its answer obeys its rules, holds nothing
invented and was not ended by a limit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triplepoint.errors import TriplepointError
from triplepoint.runtime.suites.suite_files import FOLLOW_UP, Folder, Talk, Turn, read_suite
from triplepoint.runtime.suites.verdict import (
    accept,
    as_evidence,
    evidence,
    invented,
    says_cannot,
    says_none,
)

if TYPE_CHECKING:
    from triplepoint.runtime.agent.agent import Agent
    from triplepoint.runtime.engine.engine import Engine


@dataclass(slots=True)
class Verdict:
    """A judged answer.

    Attributes:
        turn, of: its place in its conversation, from 1, and how many turns that has.
        status: how the run ended: "answered", or what ended it.
        invented: what the answer has that was in no result and no question.
    """

    folder: str
    family: str
    turn: int
    of: int
    ask: str
    expected: str
    answer: str
    status: str
    right: bool
    invented: list[str]
    calls: list[str] = field(default_factory=list)

    @property
    def miss(self) -> str:
        """The class of the miss."""
        if self.status != "answered":
            return "ended by a limit"
        if self.invented:
            return "invented text"
        if self.expected == "says that it cannot":
            return "does not say that it cannot"
        if says_cannot(self.answer):
            return "says that it cannot"
        if says_none(self.answer) and "says that there is none" not in self.expected:
            return "says that there is none"
        return "wrong text" if self.calls else "wrong text, no call"


def expectation(turn: Turn) -> str:
    """Describe the rules of a question, for the list of misses."""
    if turn.cannot:
        return "says that it cannot"
    words = [" | ".join(group) for group in (*turn.has, *turn.says)]
    words += ["says that there is none"] * (turn.none or turn.absent) + [
        "or says that it cannot"
    ] * turn.or_cannot
    return "; ".join([*words, *(f"without {fact}" for fact in turn.lacks)])


def judge_talk(engine: Engine, root: Path, talk: Talk) -> list[Verdict]:
    """Hold one conversation over the files below `root`."""
    from triplepoint.runtime.agent.agent import Agent

    agent = Agent(engine, workspace=root, trace=False)
    questions: list[str] = []
    results: list[str] = []
    verdicts: list[Verdict] = []
    for place, turn in enumerate(talk.turns):
        questions.append(turn.ask)
        answer, status, calls = _ask(agent, questions, results)
        made_up = invented(answer, evidence(questions, results))
        right = status == "answered" and not made_up and accept(turn, answer)
        family, of = talk.family_of(place), len(talk.turns)
        rule = expectation(turn)
        verdict = Verdict(talk.folder, family, place + 1, of, turn.ask, rule, answer, status,
                          right, made_up, calls)  # fmt: skip
        verdicts.append(verdict)
    return verdicts


def _ask(agent: Agent, questions: list[str], results: list[str]) -> tuple[str, str, list[str]]:
    """Ask; return the last answer, status and calls; add the tools' results to `results`."""
    from triplepoint.runtime.agent.events import RunFinished, ToolCallFinished, ToolCallStarted

    answer, status = "", "error"
    calls: list[str] = []
    arguments: dict[str, Any] = {}
    try:
        for event in agent.stream(questions[-1]):
            if isinstance(event, ToolCallStarted):
                arguments = event.arguments
                calls.append(f"{event.name}({json.dumps(arguments, ensure_ascii=False)})")
            elif isinstance(event, ToolCallFinished):
                results.append(as_evidence(event.result, event.error, arguments, questions))
            elif isinstance(event, RunFinished):
                answer, status = event.result.answer, event.result.status
    except TriplepointError as error:
        status = f"{type(error).__name__}: {error}"
    return answer, status, calls


# ------------------------------------------------------------------------------------ running

_engine: Engine | None = None


def _start(model: str) -> None:
    global _engine
    from triplepoint.runtime.engine.engine import Engine

    _engine = Engine.load(model, threads=1)


def _job(root: Path, talk: Talk) -> list[Verdict]:
    assert _engine is not None
    return judge_talk(_engine, root, talk)


def judge(folders: list[Folder], model: str, workers: int = 1) -> Iterator[Verdict]:
    """Judge all questions; return the verdicts in the order of the set.

    Args:
        folders: from `read_suite`.
        model: for `Engine.load`: ``nano``, or the path of a GGUF file.
        workers: processes, of one thread each.
    """
    with tempfile.TemporaryDirectory() as place:
        roots = {folder.name: Path(place, folder.name) for folder in folders}
        for folder in folders:
            folder.write(roots[folder.name])
        jobs = [(roots[talk.folder], talk) for folder in folders for talk in folder.talks]
        if workers == 1:
            from triplepoint.runtime.engine.engine import Engine

            with Engine.load(model, threads=1) as engine:
                for root, talk in jobs:
                    yield from judge_talk(engine, root, talk)
            return
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, spawn, _start, (model,)) as pool:
            for verdicts in pool.map(_job, *zip(*jobs, strict=True), chunksize=4):
                yield from verdicts


# ----------------------------------------------------------------------------------- reporting


def share(right: int, asked: int) -> str:
    return f"{right}/{asked} ({right / asked:.0%})" if asked else "–"


def table(verdicts: list[Verdict]) -> str:
    """Format families and lengths of conversations as tables of Markdown."""
    families = sorted({v.family for v in verdicts} - {FOLLOW_UP})
    rows: list[tuple[str, list[Verdict]]] = [
        (family, [v for v in verdicts if v.family == family]) for family in (*families, FOLLOW_UP)
    ]
    lengths = sorted({v.of for v in verdicts})
    lines = ["| Family | right | invented | limits |", "|---|---|---|---|"]
    lines += [_row(name, some) for name, some in rows if some]
    lines += [_row("**all**", verdicts), "", "| Conversation | right | invented | limits |"]
    lines += ["|---|---|---|---|"]
    for length in lengths:
        name = "1 turn" if length == 1 else f"{length} turns"
        lines.append(_row(name, [v for v in verdicts if v.of == length]))
    return "\n".join(lines)


def _row(name: str, some: list[Verdict]) -> str:
    made_up = sum(bool(v.invented) for v in some)
    limits = sum(v.status != "answered" for v in some)
    return f"| {name} | {share(sum(v.right for v in some), len(some))} | {made_up} | {limits} |"


def show_misses(verdicts: list[Verdict]) -> Iterator[str]:
    """List the wrong answers by class, with what was expected."""
    missed = [v for v in verdicts if not v.right]
    for kind, count in Counter(v.miss for v in missed).most_common():
        yield f"\n{kind}: {count}"
        for v in missed:
            if v.miss == kind:
                yield f"  [{v.folder}, {v.family}, turn {v.turn} of {v.of}] {v.ask}"
                yield f"    expected {v.expected}"
                yield f"    answer   {v.answer[:200]!r}   {' '.join(v.calls)[:200]}"
                if v.invented:
                    yield f"    invented {v.invented[:5]}"


def main() -> None:
    parser = argparse.ArgumentParser(description="nano on the hand-written judge set.")
    parser.add_argument("path", type=Path, help="folder of the set, or one file of it")
    parser.add_argument("--gguf", default="nano", help="model file (default: the embedded one)")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1),
                        help="processes of one thread each (default: %(default)s)")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write all verdicts here")
    parser.add_argument("--misses", action="store_true", help="list wrong answers by class")
    args = parser.parse_args()
    folders = read_suite(args.path)
    verdicts = list(judge(folders, args.gguf, args.workers))
    print(table(verdicts))
    if args.misses:
        print("\n".join(show_misses(verdicts)))
    if args.json:
        found = [{**asdict(v), "miss": None if v.right else v.miss} for v in verdicts]
        args.json.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
