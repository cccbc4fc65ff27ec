"""`python -m labs.harness.oracle MODEL.gguf --trees FOLDER [--sample N] [--out FILE]`.

The model is asked each question once, without tools, with a few neighbors of the gold lines, these
lines again, and what was computed: what the model can do when the harness does all it can. Of a
question that cannot be answered it sees the lines that come near, and that a search finds nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from triplepoint.runtime.suites.attempt import let_go

from .gold import Line, Tree
from .runner import Asker, Reply, command, hear, plain_agent

if TYPE_CHECKING:
    from triplepoint import Engine

    from .questions import Question, Turn

SYSTEM = (
    "You answer questions about the files of a folder from the lines that you are shown. "
    "Answer briefly. If the lines do not hold the answer, say that it is not there."
)
PLAIN = "You answer briefly."
"""Where no file is needed."""
NEIGHBORS = 2
NAMES = 40
WIDTH = 240
NO_TOOLS = "without tools it cannot change files"


def laid_out(turn: Turn, tree: Tree, *, alone: bool) -> str:
    """Render a turn for the model: the question `alone` if it needs no file."""
    if alone:
        return turn.ask
    parts = []
    if not turn.lines and not turn.note:
        names = list(tree.files)[:NAMES]
        parts.append("Files in the folder:\n" + "\n".join(names))
    if shown := _with_neighbors(turn.lines, tree):
        parts.append(shown)
    if gold := [f"{line.path}:{line.number}: {line.text}" for line in turn.lines if line.number]:
        title = "Most relevant lines" if turn.need else "About something else"
        parts.append(f"{title}:\n" + "\n".join(gold))
    if turn.note:
        parts.append(f"Computed: {turn.note}" if turn.need else turn.note)
    return "\n\n".join([*parts, f"Question: {turn.ask}"])


def _with_neighbors(lines: tuple[Line, ...], tree: Tree) -> str:
    shown: dict[str, set[int]] = {}
    for line in lines:
        if line.number and line.path in tree.texts:
            last = len(tree.texts[line.path])
            near = range(line.number - NEIGHBORS, line.number + NEIGHBORS + 1)
            shown.setdefault(line.path, set()).update(n for n in near if 1 <= n <= last)
    blocks = []
    for path, places in shown.items():
        text = (f"{n}: {tree.texts[path][n - 1][:WIDTH]}" for n in sorted(places))
        blocks.append(f"--- {path}\n" + "\n".join(text))
    names = [line.path for line in lines if not line.number]
    if names:
        blocks.append("Files:\n" + "\n".join(names))
    return "\n\n".join(blocks)


def asker(engine: Engine) -> Asker:
    """Return an asker that shows the model the gold lines."""

    def ask(question: Question, folder: Path, tree: Tree) -> Reply:
        agent = plain_agent(engine, PLAIN if question.kind == "plain" else SYSTEM)
        reply = Reply()
        try:
            for turn in question.turns:
                hear(agent, laid_out(turn, tree, alone=question.kind == "plain"), reply)
        finally:
            let_go(agent)
        return reply

    return ask


if __name__ == "__main__":
    raise SystemExit(command("oracle", __doc__, asker, {"edit": NO_TOOLS}))
