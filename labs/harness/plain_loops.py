"""`python -m labs.harness.plain_loops URL MODEL --loop pydantic-ai --trees FOLDER [--out FILE]`.

Agent loops of other people over a server of OpenAI's wire format, with three plain tools that list,
read and search: `pydantic-ai`, and smolagents' two agents. What they ask is what everyone asks, so
the difference to `labs.harness.ask` over the same weights is the harness. Needs
``pydantic-ai-slim[openai]`` or ``smolagents[openai]``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .questions import frozen, sample
from .runner import Asker, Reply, ask_all, report

if TYPE_CHECKING:
    from .gold import Tree
    from .questions import Question

SYSTEM = (
    "You answer questions about the files of a folder. Look at the files with the tools, then "
    "answer briefly."
)
REQUESTS, TOKENS = 12, 512  # of one question; of one reply
LONGEST, HITS = 12_000, 60  # characters of a file; lines of a search

Tools = list[Callable[..., str]]
Loop = Callable[[str, str, Tools], Callable[[str], tuple[str, int]]]
"""Given a URL, a model and tools: what answers a question, with the number of its calls."""


def tools_over(root: Path) -> Tools:
    """Return three plain tools over a folder."""

    def list_dir(path: str = ".") -> str:
        """List what is in a folder.

        Args:
            path: The folder.
        """
        try:
            names = sorted(p.name + "/" * p.is_dir() for p in (root / path).iterdir())
        except OSError as error:
            return f"error: {path}: {error.strerror}"
        return "\n".join(names) or "(empty)"

    def read_file(path: str) -> str:
        """Read a text file.

        Args:
            path: The file.
        """
        try:
            text = (root / path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"error: {path}: {error.strerror}"
        return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n[the rest is cut off]"

    def search(text: str) -> str:
        """Find the lines of all files that contain a text, in upper or lower case.

        Args:
            text: The text.
        """
        hits: list[str] = []
        for path in sorted(p for p in root.rglob("*") if p.is_file()):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            name = path.relative_to(root)
            found = ((n, one) for n, one in enumerate(lines, 1) if text.lower() in one.lower())
            hits += [f"{name}:{n}: {one[:300]}" for n, one in found]
        return "\n".join(hits[:HITS]) or "no line has it"

    return [list_dir, read_file, search]


def pydantic_ai(url: str, model: str, tools: Tools) -> Callable[[str], tuple[str, int]]:
    """Build an agent of pydantic-ai (a `Loop`); a second question continues the conversation."""
    ai, limits = import_module("pydantic_ai"), import_module("pydantic_ai.usage").UsageLimits
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider
    chat = import_module("pydantic_ai.models.openai").OpenAIChatModel
    agent = ai.Agent(
        chat(model, provider=provider(base_url=f"{url}/v1", api_key="none")),
        system_prompt=SYSTEM,
        tools=tools,
        model_settings={"temperature": 0, "max_tokens": TOKENS},
    )
    said: list[Any] = []

    def ask(text: str) -> tuple[str, int]:
        asked = agent.run_sync(
            text, message_history=said or None, usage_limits=limits(request_limit=REQUESTS)
        )
        said[:] = asked.all_messages()
        return str(asked.output), asked.usage.tool_calls

    return ask


def smolagents(kind: str) -> Loop:
    """Return a `Loop` of smolagents; kind: ``ToolCallingAgent``, or ``CodeAgent``, in Python."""

    def loop(url: str, model: str, tools: Tools) -> Callable[[str], tuple[str, int]]:
        smol = import_module("smolagents")
        served = smol.OpenAIServerModel(
            model, api_base=f"{url}/v1", api_key="none", temperature=0, max_tokens=TOKENS
        )
        agent = getattr(smol, kind)(
            tools=[smol.tool(one) for one in tools], model=served, max_steps=REQUESTS,
            verbosity_level=0, instructions=SYSTEM,
        )  # fmt: skip
        asked: list[str] = []

        def ask(text: str) -> tuple[str, int]:
            answer = str(agent.run(text, reset=not asked))
            asked.append(text)
            steps = agent.memory.steps
            return answer, sum(bool(getattr(one, "observations", None)) for one in steps)

        return ask

    return loop


LOOPS: dict[str, Loop] = {
    "pydantic-ai": pydantic_ai,
    "smolagents-tools": smolagents("ToolCallingAgent"),
    "smolagents-code": smolagents("CodeAgent"),
}


def asker(loop: Loop, url: str, model: str) -> Asker:
    """Return an asker over a loop; any end other than an answer counts as a limit."""

    def ask(question: Question, folder: Path, tree: Tree) -> Reply:
        reply, run = Reply(), loop(url, model, tools_over(folder))
        for turn in question.turns:
            try:
                answer, calls = run(turn.ask)
            except Exception as error:  # each has its own ways to give up
                return Reply([*reply.answers, f"{type(error).__name__}: {error}"], "limit")
            reply.answers.append(answer)
            reply.calls += calls
        return reply

    return ask


def main(argv: list[str] | None = None) -> int:
    """Ask, and print the results; the server reports tokens."""
    parser = argparse.ArgumentParser(prog="labs.harness.plain_loops", description=__doc__)
    parser.add_argument("url", metavar="URL", help="of the server, without /v1")
    parser.add_argument("model", metavar="MODEL", help="as the server calls it")
    parser.add_argument("--loop", choices=LOOPS, default="pydantic-ai")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="a fixed N (40)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="rows; go on where they end")
    args = parser.parse_args(argv)
    questions = [one for one in sample(frozen(), args.sample) if one.kind != "edit"]
    asks = asker(LOOPS[args.loop], args.url, args.model)
    rows = ask_all(args.loop, args.model, asks, questions, args.trees, args.out)
    print(f"\n{args.loop}, {args.model}")
    print("\n".join(report(rows)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
