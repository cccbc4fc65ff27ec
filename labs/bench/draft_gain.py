"""What drafts and forced tokens give on real runs, by source of drafts.

    python -m labs.bench.draft_gain MODEL.gguf --trees FOLDER --out FILE [--sample N] [--seconds S]

Decodes greedily in three ways, in turns, with the same text: without drafts and forced tokens, with
forced tokens, and with drafts too. The texts: the harness's questions and tasks, as the agent is
shipped; files of the trees that are written anew with a change; and answers to questions, which
repeat nothing. Time is that of decodes alone. FILE has a row for each text and way: a second call
starts after its last text, and no text starts after S seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from triplepoint import Agent, Engine
from triplepoint.runtime.engine.drafting.config import SOURCES, SpeculativeConfig
from triplepoint.runtime.suites.attempt import let_go
from triplepoint.traces.events import PhaseEvent

from ..harness import trees
from ..harness.ask import asker
from ..harness.questions import Question, frozen, sample
from ..harness.runner import Reply, hear, plain_agent, tree_of

TOKENS = 200  # of an answer
WAYS = {
    "off": SpeculativeConfig(jump_forward=False, draft_tokens=0),
    "forced": SpeculativeConfig(draft_tokens=0),
    "all": SpeculativeConfig(),
}
CHANGES = (
    "with a type annotation added to every function",
    "with every occurrence of `self` renamed to `this`",
    "with a docstring added to the first function",
    "without its comments",
)
FILES = (
    "flask src/flask/globals.py", "requests src/requests/structures.py",
    "click src/click/_textwrap.py", "requests src/requests/hooks.py",
    "flask src/flask/signals.py", "jinja src/jinja2/constants.py",
)  # fmt: skip
KNOWLEDGE = (
    "Explain how a refrigerator works.",
    "Why is the sky blue, and sunsets red?",
    "Tell the story of a lighthouse keeper who finds a letter.",
    "What are the differences between TCP and UDP?",
    "Describe the life of Marie Curie.",
    "How does bread dough rise?",
)
Decode = Callable[[], list[PhaseEvent]]


def texts(engine: Engine, room: Path, number: int) -> Iterator[tuple[str, str, Decode]]:
    """Yield kind and name of each text, and what decodes it and returns the decodes."""

    def answer(text: str) -> list[PhaseEvent]:
        agent = plain_agent(engine, "", TOKENS)
        try:
            hear(agent, text, Reply())
            return _decodes(agent)
        finally:
            let_go(agent)

    def run_question(question: Question) -> list[PhaseEvent]:
        agents: list[Agent] = []
        asker(engine, None, lambda _, agent: agents.append(agent))(
            question, *tree_of(question.tree, room)
        )
        return [phase for agent in agents for phase in _decodes(agent)]

    for n, name in enumerate(FILES):
        tree, path = name.split()
        file = (trees.build(tree, room) / path).read_text(encoding="utf-8")[:2400]
        wish = f"Write this file anew {CHANGES[n % len(CHANGES)]}.\n\n```python\n{file}\n```"
        yield "code edits", name, partial(answer, wish)
    for text in KNOWLEDGE:
        yield "nothing to copy", text, partial(answer, text)
    for question in sample(frozen(), number):
        kind = "harness, tasks" if question.kind == "edit" else "harness, questions"
        yield kind, question.id, partial(run_question, question)


def _decodes(agent: Agent) -> list[PhaseEvent]:
    phases = [one for one in agent.trace.events if isinstance(one, PhaseEvent)]
    return [phase for phase in phases if phase.phase == "decode"]


def row(kind: str, name: str, way: str, decodes: Sequence[PhaseEvent]) -> dict[str, Any]:
    """Return the sums of a text's decodes, as a line of the file."""
    drafts: dict[str, list[int]] = {}
    for one in (record for phase in decodes for record in phase.drafts):
        drafted, accepted = drafts.get(one.source, (0, 0))
        drafts[one.source] = [drafted + one.drafted, accepted + one.accepted]
    ids = [token for phase in decodes for token in phase.token_ids]
    return {
        "kind": kind, "name": name, "way": way, "tokens": len(ids),
        "digest": hashlib.sha256(repr(ids).encode()).hexdigest()[:12],
        "passes": sum(phase.passes for phase in decodes),
        "forced": sum(phase.forced_tokens for phase in decodes),
        "wall_s": sum(phase.wall_s for phase in decodes), "drafts": drafts,
    }  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Render the sums of each kind; ratios are of sums, with the least and most of a text."""
    lines = [
        "| text | n | tokens | passes | forced | times as fast | accepted | times as fast |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in rows:
        found.setdefault(one["kind"], {}).setdefault(one["name"], {})[one["way"]] = one
    for kind, several in found.items():
        each = [ways for ways in several.values() if len(ways) == len(WAYS)]
        for ways in each:
            if len({one["digest"] for one in ways.values()}) > 1:
                lines.append(f"the text differs: {ways['off']['name']}")
        sums = Counter[str]()
        for one in (ways["all"] for ways in each):
            sums.update({key: one[key] for key in ("tokens", "passes", "forced")})
            for source, (drafted, accepted) in one["drafts"].items():
                sums.update({f"{source} drafted": drafted, f"{source} accepted": accepted})
        drafts = (
            f"{source} {sums[f'{source} accepted']} of {sums[f'{source} drafted']}"
            for source in SOURCES
            if sums[f"{source} drafted"]
        )
        lines.append(
            f"| {kind} | {len(each)} | {sums['tokens']} | {sums['passes']} | {sums['forced']} | "
            f"{_ratio(each, 'off', 'forced')} | {', '.join(drafts)} | "
            f"{_ratio(each, 'forced', 'all')} |"
        )
    return lines


def _ratio(texts: Sequence[dict[str, dict[str, Any]]], slow: str, fast: str) -> str:
    times = [(ways[slow]["wall_s"], ways[fast]["wall_s"]) for ways in texts]
    each = [a / b for a, b in times]
    whole = sum(a for a, _ in times) / sum(b for _, b in times)
    return f"{whole:.2f} ({min(each):.2f} … {statistics.median(each):.2f} … {max(each):.2f})"


def main() -> None:
    """Measure what has no row yet, and print the table."""
    parser = argparse.ArgumentParser(prog="labs.bench.draft_gain", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="questions (40)")
    parser.add_argument("--seconds", type=float, default=1e9, metavar="S", help="of this call")
    args = parser.parse_args()
    lines = args.out.read_text().splitlines() if args.out.exists() else []
    rows = [json.loads(line) for line in lines]
    done = Counter(one["name"] for one in rows)
    began = time.monotonic()
    with Engine.load(args.model) as engine:
        for n, (kind, name, decode) in enumerate(texts(engine, args.trees, args.sample)):
            if done[name] == len(WAYS):
                continue
            if time.monotonic() - began > args.seconds:
                break
            new = []
            for way in [*WAYS][n % len(WAYS) :] + [*WAYS][: n % len(WAYS)]:
                engine.core.drafting.settings = WAYS[way]
                new.append(row(kind, name, way, decode()))
            rows += new
            with args.out.open("a") as file:
                file.writelines(json.dumps(one) + "\n" for one in new)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
