"""Ask a set of questions and store the results: rows, resumption, intervals.

A row is a line of JSON in a file, written as soon as it is known. Who asks the same questions of
the same model in the same way again continues where the file ends. What is counted:

- *right*: as `judge` has it; of a question that cannot be answered, the answer says so;
- *wrong*: something else is stated as a fact;
- *declined*: nothing is stated, though there is an answer;
- *limit*: the run was ended by a limit of steps, tokens, context or repetition.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from triplepoint import Agent, Engine
from triplepoint.errors import ContextOverflowError, TriplepointError
from triplepoint.runtime.agent.events import RunFinished, ToolCallStarted
from triplepoint.runtime.suites.statistics import wilson

from . import trees
from .asked import Kind
from .gold import Tree
from .judge import Verdict, judge
from .questions import SHA256, Question, frozen, sample

if TYPE_CHECKING:
    from triplepoint.runtime.agent.agent import Agent as AnyAgent

Result = Literal["right", "wrong", "declined", "limit", "error"]


@dataclass
class Reply:
    """What came of the turns of a question so far."""

    answers: list[str] = field(default_factory=list)
    status: str = "answered"
    calls: int = 0
    prefilled: int = 0
    generated: int = 0
    verdict: Verdict | None = None
    """Of a task, by its files."""


@dataclass
class Row:
    """One question as one asker's model answered it."""

    by: str
    """The asker."""
    model: str
    set: str
    """The set by its SHA-256."""
    id: str
    kind: str
    """Of the question; for BFCL its category."""
    language: str
    package: bool
    """Whether the tree consists of other projects' files."""
    unanswerable: bool
    result: Result
    """Of the last turn."""
    first: Verdict | None
    """Of a first turn before it."""
    answers: list[str]
    calls: int
    prefilled: int
    """Prompt tokens that were computed."""
    generated: int
    """Tokens that were written."""
    seconds: float
    """Including the time to gather evidence."""
    printed_call: bool = False
    """Whether the answer is a call of a tool."""
    error: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the key of the row; a second row with the same key is not needed."""
        return self.by, self.model, self.set, self.id


Asker = Callable[[Question, Path, Tree], Reply]


def hear(agent: AnyAgent, text: str, reply: Reply) -> None:
    """Ask an agent one question, and add the outcome to a reply."""
    for event in agent.stream(text):
        if isinstance(event, ToolCallStarted):
            reply.calls += 1
        elif isinstance(event, RunFinished):
            usage = event.result.usage
            reply.answers.append(event.result.answer)
            reply.prefilled += usage.input_tokens - usage.cached_tokens
            reply.generated += usage.output_tokens
            if event.result.status != "answered":
                reply.status = event.result.status


def ask_all(
    name: str,
    model: str,
    asker: Asker,
    questions: Iterable[Question],
    room: Path,
    out: Path | None,
    say: Callable[[str], object] = print,
) -> list[Row]:
    """Ask each question once that has no row in `out` yet; return all rows of these questions.

    Args:
        name, model: who asks, and whom.
        asker: asks one question.
        questions: in the order in which they are asked.
        room: of the trees.
        out: file of the rows; None: they are only returned.
        say: gets a line for each question.
    """
    known = resume(out)
    rows: list[Row] = []
    held: dict[str, tuple[Path, Tree]] = {}
    for question in questions:
        row = known.get((name, model, SHA256[:12], question.id))
        if row is None:
            if question.tree not in held:
                held[question.tree] = tree_of(question.tree, room)
            row = _row(name, model, asker, question, *held[question.tree])
            append(row, out, say)
        rows.append(row)
    return rows


def resume(out: Path | None) -> dict[tuple[str, str, str, str], Row]:
    """Read the rows of a file by key, and truncate a torn last line."""
    if out is None or not out.exists():
        return {}
    with out.open("r+b") as file:
        file.truncate(out.read_bytes().rfind(b"\n") + 1)
    return {row.key: row for row in read(out)}


def append(row: Row, out: Path | None, say: Callable[[str], object]) -> None:
    """Write a row to its file, and report it in a line."""
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
    answer = " ".join((row.answers or [""])[-1].split())[:90]
    say(f"{row.result:<8} {row.seconds:6.1f} s  {row.id}  {answer}")


def tree_of(name: str, room: Path) -> tuple[Path, Tree]:
    """Return a tree's folder, and its files."""
    folder = trees.build(name, room)
    files = {p.relative_to(folder).as_posix(): p for p in sorted(folder.rglob("*")) if p.is_file()}
    return folder, Tree({path: place.read_bytes() for path, place in files.items()})


def _row(name: str, model: str, asker: Asker, question: Question, folder: Path, tree: Tree) -> Row:
    began, error = time.monotonic(), ""
    try:
        reply = asker(question, folder, tree)
    except ContextOverflowError:
        reply = Reply(status="limit")
    except TriplepointError as raised:
        reply, error = Reply(status="error"), f"{type(raised).__name__}: {raised}"
    seconds = time.monotonic() - began
    result: Result
    if reply.status == "answered":
        result = reply.verdict or judge(question, reply.answers[-1])
    else:
        result = "limit" if reply.status == "limit" else "error"
    two = len(question.turns) > 1 and len(reply.answers) > 1
    return Row(
        name, model, SHA256[:12], question.id, question.kind, question.language,
        trees.is_package(question.tree), question.unanswerable, result,
        judge(question, reply.answers[0], 0) if two else None, reply.answers, reply.calls,
        reply.prefilled, reply.generated, round(seconds, 3),
        any(is_call(one) for one in reply.answers[-1:]), error,
    )  # fmt: skip


def is_call(text: str) -> bool:
    """Return whether what is shown as an answer is a call of a tool."""
    bare = text.strip().strip("`").removeprefix("json").strip()
    return bare.startswith(("{", "[{", "<tool_call>")) and '"name"' in bare[:200]


def read(path: Path) -> list[Row]:
    """Read the rows of a file without a torn last line."""
    if not path.exists():
        return []
    whole = path.read_text(encoding="utf-8")
    return [Row(**json.loads(line)) for line in whole[: whole.rfind("\n") + 1].splitlines()]


# ------------------------------------------------------------------------------------ figures


def report(rows: Sequence[Row]) -> list[str]:
    """Render the rows as lines of text."""
    lines = [f"{'':<12}    n  right   from     to  wrong  declined  limit"]
    lines.append(_figures("all", rows))
    for kind in sorted({row.kind for row in rows}):
        lines.append(_figures(kind, [row for row in rows if row.kind == kind]))
    for title, part in {
        "package": [row for row in rows if row.package],
        "own": [row for row in rows if not row.package],
        "not English": [row for row in rows if row.language != "en"],
    }.items():
        if part:
            lines.append(_figures(title, part))
    count = max(len(rows), 1)
    answerable = [row for row in rows if not row.unanswerable and row.kind != "edit"]
    refused = sum(row.result == "declined" for row in answerable)
    right = sum(row.result == "right" for row in rows)
    seconds = sum(row.seconds for row in rows)
    lines.append(
        f"false refusals {refused} of {len(answerable)}; calls printed as answers "
        f"{sum(row.printed_call for row in rows)}; errors {sum(r.result == 'error' for r in rows)}"
    )
    lines.append(
        f"a question: {sum(row.calls for row in rows) / count:.1f} calls, "
        f"{sum(row.prefilled for row in rows) / count:,.0f} tokens prefilled, "
        f"{sum(row.generated for row in rows) / count:,.0f} generated, {seconds / count:.1f} s; "
        f"{seconds / right if right else float('inf'):.1f} s per right answer"
    )
    return lines


def _figures(title: str, rows: Sequence[Row]) -> str:
    share = {
        result: sum(row.result == result for row in rows) / max(len(rows), 1)
        for result in ("right", "wrong", "declined", "limit")
    }
    low, high = wilson(share["right"], len(rows))
    return (
        f"{title:<12} {len(rows):>4} {share['right']:>6.1%} {low:>6.1%} {high:>6.1%} "
        f"{share['wrong']:>6.1%} {share['declined']:>9.1%} {share['limit']:>6.1%}"
    )


# ------------------------------------------------------------------------------------ command


def command(
    name: str,
    about: str | None,
    make: Callable[[Engine], Asker],
    leave: Mapping[Kind, str],
    argv: list[str] | None = None,
) -> int:
    """Run the command line that all askers share; kinds in `leave` are skipped, with a reason."""
    parser = argparse.ArgumentParser(prog=f"labs.harness.{name}", description=about)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--n", type=int, metavar="N", help="ask only the first N")
    parser.add_argument("--sample", type=int, metavar="N", help="a fixed N, each kind by its share")
    parser.add_argument("--kind", action="append", metavar="KIND", help="only this kind")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rows; go on where they end")
    parser.add_argument("--threads", type=int, metavar="N", help="of the engine")
    args = parser.parse_args(argv)
    questions = frozen()
    questions = sample(questions, args.sample) if args.sample else questions
    questions = [one for one in questions if not args.kind or one.kind in args.kind]
    for kind, reason in leave.items():
        left = sum(one.kind == kind for one in questions)
        questions = [one for one in questions if one.kind != kind]
        if left:
            print(f"{left} of kind {kind} are not asked: {reason}")
    with Engine.load(args.model, threads=args.threads) as engine:
        model = Path(args.model).stem
        rows = ask_all(name, model, make(engine), questions[: args.n], args.trees, args.out)
    print(f"\n{name}, {model}, set {SHA256[:12]}")
    print("\n".join(report(rows)))
    return 0


def plain_agent(engine: Engine, system: str, tokens: int = 160) -> Agent:
    """Return an agent without tools that decodes greedily with the model's own template."""
    from triplepoint import Sampling

    sampling = Sampling(temperature=0.0)
    return Agent(engine, system=system, max_tokens=tokens, sampling=sampling, trace=False)
