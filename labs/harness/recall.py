"""`python -m labs.harness.recall MODEL.gguf --trees FOLDER [--budget N] [--kind K] [--misses]`.

Whether the lines that carry the answers stand in the evidence that is gathered for the questions
of the frozen set, within a budget of the model's tokens, and how long gathering takes. A turn
counts as found if all its gold lines stand there, or what was computed has the answer. Not asked:
what has no gold lines, tasks, and questions that cannot be answered. Counts over more than `MANY`
lines are told apart: no excerpt can hold them.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from triplepoint.runtime.evidence import Evidence, Gatherer
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.suites.statistics import wilson
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import Workspace

from . import trees
from .gold import Line
from .judge import judge
from .questions import Question, Turn, frozen

MANY = 20


@dataclass(frozen=True)
class Row:
    """One turn."""

    question: Question
    turn: Turn
    gold: int
    """The number of lines with the answer."""
    found: int
    """The number of those that are in the evidence."""
    tokens: int
    cold: tuple[float, float]
    """Seconds of gathering without an index, by the clock and of this thread."""
    warm: tuple[float, float]
    """Seconds of gathering with a warm index, by the clock and of this thread."""
    needs_files: bool
    missed: tuple[Line, ...] = ()

    @property
    def many(self) -> bool:
        """Return whether the answer is a count over more lines than can be shown."""
        counts = [int(n) for n in re.findall(r"^(\d+) lines", self.turn.note)]
        counts += [int(n) for n in re.findall(r" by number: .*? (\d+)(?:,|$)", self.turn.note)]
        return any(count > MANY for count in counts)


def is_shown(line: Line, evidence: Evidence) -> bool:
    """Return whether the evidence has a gold line, with its file and number."""
    if not line.number:
        folder, _, name = line.path.rpartition("/")
        listed = [c for c in evidence.calls if c.tool == "list_dir"]
        return any(
            c.arguments["path"] == (folder or ".") and name in c.result.split("\n") for c in listed
        )
    text = line.text[:60]
    best = (one.text for one in evidence.best if (one.path, one.number) == (line.path, line.number))
    if any(text in one for one in best):
        return True
    for call in evidence.calls:
        mark = f"{line.path}:{line.number}:" if call.tool == "search" else f"{line.number}\t"
        if call.tool == "read_file" and call.arguments["path"] != line.path:
            continue
        if any(one.startswith(mark) and text in one for one in call.result.split("\n")):
            return True
    return False


def look(
    question: Question, gatherers: Sequence[Gatherer], budget: int, tokenizer: Tokenizer
) -> Iterator[Row]:
    """Yield a row for each turn of a question, each after those before it."""

    def count(text: str) -> int:
        return len(tokenizer.encode(text))

    for place, turn in enumerate(question.turns):
        earlier = [one.ask for one in question.turns[:place]]
        taken, evidence = [], Evidence()
        for gatherer in gatherers:
            began = time.perf_counter(), time.thread_time()
            evidence = gatherer.gather(turn.ask, earlier, budget=budget, count=count)
            taken.append((time.perf_counter() - began[0], time.thread_time() - began[1]))
        missed = tuple(line for line in turn.lines if not is_shown(line, evidence))
        reckoned = " ".join(call.result for call in evidence.reckoned)
        if reckoned and judge(question, reckoned, place) == "right":
            missed = ()
        yield Row(
            question, turn, len(turn.lines), len(turn.lines) - len(missed), evidence.tokens,
            taken[0], taken[-1], evidence.needs_files, missed,
        )  # fmt: skip


def report(rows: Sequence[Row]) -> list[str]:
    """Render the rows as lines of text."""
    lined = [r for r in rows if r.gold and not r.question.unanswerable]
    asked = [row for row in lined if not row.many]
    lines = [f"{'':<14}    n  found   from     to  lines  tokens"]
    lines.append(_figures("all", asked))
    for kind in sorted({row.question.kind for row in asked}):
        lines.append(_figures(kind, [row for row in asked if row.question.kind == kind]))
    lines.append(_figures("package trees", [r for r in asked if trees.is_package(r.question.tree)]))
    lines.append(_figures("not English", [r for r in asked if r.question.language != "en"]))
    lines.append(_figures(f"over {MANY} lines", [row for row in lined if row.many]))
    for title, pairs in (
        ("scan, no index", [row.cold for row in rows]),
        ("index warm", [row.warm for row in rows]),
    ):
        clock, own = ([pair[place] for pair in pairs] for place in (0, 1))
        lines.append(
            f"{title}: median {_quantile(clock, 0.5):.1f} ms, 95 % within "
            f"{_quantile(clock, 0.95):.1f} ms; of the CPU {_quantile(own, 0.5):.1f} and "
            f"{_quantile(own, 0.95):.1f} ms"
        )
    for title, part in {
        "answered from files": [r for r in rows if r.question.kind not in ("plain", "absent")],
        "not there": [r for r in rows if r.question.kind == "absent"],
        "no file needed": [r for r in rows if r.question.kind == "plain"],
    }.items():
        lines.append(f"{title}: {sum(r.needs_files for r in part)} of {len(part)} look at files")
    return lines


def _figures(title: str, rows: Sequence[Row]) -> str:
    count = len(rows)
    share = sum(row.found == row.gold for row in rows) / max(count, 1)
    low, high = wilson(share, count)
    lines = sum(row.found for row in rows) / max(sum(row.gold for row in rows), 1)
    tokens = sum(row.tokens for row in rows) / max(count, 1)
    figures = f"{count:>4} {share:>6.1%} {low:>6.1%} {high:>6.1%} {lines:>6.1%} {tokens:>7,.0f}"
    return f"{title:<14} {figures}"


def _quantile(times: Sequence[float], share: float) -> float:
    """Return the milliseconds within which a share of the times lies."""
    return sorted(times)[min(int(share * len(times)), len(times) - 1)] * 1e3 if times else 0.0


def main(argv: list[str] | None = None) -> int:
    """Gather for each question, and report."""
    parser = argparse.ArgumentParser(prog="labs.harness.recall", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf", help="its tokenizer counts")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--budget", type=int, default=1500, metavar="TOKENS")
    parser.add_argument("--kind", action="append", metavar="KIND", help="only this kind")
    parser.add_argument("--misses", action="store_true", help="tell what was not found")
    args = parser.parse_args(argv)
    tokenizer = Tokenizer.from_gguf(open_gguf(args.model))
    questions = [one for one in frozen() if one.kind != "edit"]
    questions = [one for one in questions if not args.kind or one.kind in args.kind]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="triplepoint-recall-") as temporary:
        for tree in sorted({one.tree for one in questions}):
            with Workspace(trees.build(tree, args.trees)) as workspace:
                cold = Gatherer(workspace, index=False)
                warm = Gatherer(workspace, cache=Path(temporary), background=False)
                warm.warm()
                for question in questions:
                    if question.tree == tree:
                        rows += look(question, (cold, warm), args.budget, tokenizer)
                warm.close()
    for row in rows if args.misses else ():
        if row.missed and not row.question.unanswerable and not row.many:
            print(f"{row.question.id} {row.found}/{row.gold}: {row.turn.ask}")
            for line in row.missed[:3]:
                print(f"    {line.path}:{line.number}: {line.text[:100]}")
        if row.needs_files != (row.question.kind != "plain"):
            print(f"{row.question.id} needs_files={row.needs_files}: {row.turn.ask}")
    print("\n".join(report(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
