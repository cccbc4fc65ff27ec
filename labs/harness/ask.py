"""`python -m labs.harness.ask MODEL.gguf --trees FOLDER [--sample N] [--out FILE]`.

The agent as it is shipped, `Agent(engine, workspace=tree)`; for tasks that change files with the
tools that edit, in a copy, judged by the files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from triplepoint import Agent, EditTools
from triplepoint.runtime.suites.attempt import let_go

from .judge import judge_files, snapshot
from .runner import Asker, Reply, command, hear
from .trees import copied

if TYPE_CHECKING:
    from triplepoint import Engine

    from .gold import Tree
    from .questions import Question


def asker(
    engine: Engine,
    harness: Mapping[str, object] | None = None,
    watch: Callable[[Question, Agent], object] = lambda *_: None,
) -> Asker:
    """Return an asker over the agent, with settings in place of the model's default harness.

    watch: called with each agent before it is asked.
    """

    def ask(question: Question, folder: Path, tree: Tree) -> Reply:
        if question.kind == "edit":
            return _work(engine, question, folder, harness, watch)
        agent = Agent(engine, workspace=folder, trace=False, harness=harness)
        watch(question, agent)
        reply = Reply()
        try:
            for turn in question.turns:
                hear(agent, turn.ask, reply)
        finally:
            let_go(agent)
        return reply

    return ask


def _work(
    engine: Engine,
    question: Question,
    folder: Path,
    harness: Mapping[str, object] | None,
    watch: Callable[[Question, Agent], object],
) -> Reply:
    reply = Reply()
    with tempfile.TemporaryDirectory(prefix="triplepoint-harness-") as temporary:
        root = copied(folder, Path(temporary))
        before = snapshot(root)
        agent = Agent(
            engine,
            workspace=root,
            tools=EditTools(root),
            policy="yes",
            trace=False,
            harness=harness,
        )
        watch(question, agent)
        try:
            hear(agent, question.turns[0].ask, reply)
        finally:
            let_go(agent)
        reply.verdict = judge_files(question, root, before, reply.answers[-1])
    return reply


if __name__ == "__main__":
    raise SystemExit(command("ask", __doc__, asker, {}))
