"""Evidence first: before the model gets a question, the runtime searches for the answer.

Why: small models do not look, or look in the wrong place. The same models that got 4 of 38
questions right by calling tools themselves got 25 and 35 right when evidence lay before them.
It costs no pass of the model, so the answer is also sooner there.

The results are in the conversation as those of ordinary calls. The best lines, and what is not
there, come again right before the question: what is far from it is forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...conversation.formats.toolcalls import ToolCall
from ...conversation.messages import Message
from ...evidence.gather import Gatherer
from .policy import Context, Decision, Looked, Policy

if TYPE_CHECKING:
    from ....tools import Policy as Permissions
    from ....tools import Workspace
    from ...evidence.gather import Call, Evidence

SHARE = 4  # of the room that is left, one part in so many at most
EARLIER = 2  # questions and answers before, which a follow-up may mean

NOTHING = "Nothing in these files is about that."
AGAIN = (
    "Question: {question}\nAnswer in one or two sentences, in the words of the line that says it. "
    "If no line says it, say that it is not there."
)
SUM = "Question: {question}\nAnswer in one sentence, with what was computed."
# Of 8 general questions 1.5B got 3 right and 0.5B 4 with the tools at hand, 7 and 6 with this.
KNOWN = "Question: {question}\nAnswer briefly, from what you know."
DONE = (
    "{question}\nIf that is done, say what was changed, in one sentence. "
    "If not, go on with the tools."
)
ACT = "{question}\nDo it with the tools, or answer if it is a question, briefly and from the lines."


@dataclass(slots=True)
class EvidenceFirst(Policy):
    """Policy that adds search results for a question before the model's first reply."""

    tokens: int
    """Token budget of the evidence."""
    best: int
    """Maximum number of lines that are repeated before the question."""
    name = "evidence"
    _gatherer: Gatherer | None = field(init=False, default=None)

    def before_turn(self, context: Context) -> Decision | None:
        """Gather evidence before the first reply to a question; see `Policy.before_turn`."""
        if context.step != 1 or context.files is None:
            return None
        gatherer = self.gatherer(context.files, context.permissions)
        began = time.perf_counter()
        spoken = ("user", "assistant")
        earlier = [m.content for m in context.messages if m.role in spoken and not m.by]
        budget = min(self.tokens, context.room() // SHARE)
        found = gatherer.gather(
            context.question,
            earlier[-2 * EARLIER :],
            tuple(context.files.attached),
            _read(context.messages),
            budget=budget,
            count=context.count,
        )
        if not found.needs_files:
            if found.small_talk:
                return Decision(calls="none")
            if not all(tool.existing for tool in context.tools):
                return None
            again = Message("user", KNOWN.format(question=context.question), by="harness")
            return Decision(messages=(again,), calls="none")
        seconds = (time.perf_counter() - began) / max(1, len(found.calls))
        looked = [
            Looked(ToolCall(one.tool, dict(one.arguments)), one.result, seconds)
            for one in found.calls
        ]
        reads = all(tool.effect == "read" for tool in context.tools)
        again = Message(
            "user", _rendered(found, context.question, self.best, reads=reads), by="harness"
        )
        # A small model keeps calling where it sees calls. What was found mostly holds the answer,
        # so it answers first; not where it has to act, or nothing was found.
        enough = reads and bool(found.best or found.missing or found.reckoned or found.files)
        if reads or not found.acts:
            return Decision(
                looked=tuple(looked), messages=(again,), calls="none" if enough else None
            )
        # A task that is only described is not done. The evidence is there, so the first call acts.
        # Small models delete a file to change a line: what takes whole files has to be asked for.
        task = context.parsed
        fits = {"": True, "moves": task.moves, "removes": task.removes}
        acts = [one.name for one in context.tools if one.effect != "read" and fits[one.whole_file]]
        tools = frozenset(acts if found.best or found.named else ())
        return Decision(tuple(looked), (again,), calls="required", tools=tools)

    def gatherer(self, files: Workspace, permissions: Permissions) -> Gatherer:
        """Return the gatherer of a workspace, cached."""
        if self._gatherer is None or self._gatherer.workspace is not files:
            self._gatherer = Gatherer(files, permissions)
        return self._gatherer

    def after_result(self, context: Context, call: ToolCall, result: str) -> Decision | None:
        """Repeat the task after a successful change; see `Policy.after_result`."""
        acted = next(
            (tool.effect != "read" for tool in context.tools if tool.name == call.name), False
        )
        if not acted or result.startswith("error:"):
            return None
        again = Message("user", DONE.format(question=context.question), by="harness")
        return Decision(messages=(again,))

    def close(self) -> None:
        """Close the gatherer and its index."""
        if self._gatherer is not None:
            self._gatherer.close()
            self._gatherer = None


def _rendered(found: Evidence, question: str, limit: int, *, reads: bool) -> str:
    """Render the message right before the answer: best lines, missing names, the question.

    limit: of the best lines. reads: whether the tools only read; else it may be a task.
    """
    parts: list[str] = []
    computed = [*filter(None, [found.files]), *map(_computed, found.reckoned)]
    if computed:
        parts.append("Computed:\n" + "\n".join(computed))
    elif found.best:
        best = "\n".join(f"{one.path}:{one.number}: {one.text}" for one in found.best[:limit])
        parts.append(f"Most relevant lines:\n{best}")
    elif not (found.missing or any(call.tool == "read_file" for call in found.calls)):
        parts.append(NOTHING)
    for call in found.calls:
        if call.tool == "list_dir" and call.arguments["path"] in found.folders:
            parts.append(f"In the folder {call.arguments['path']}:\n{call.result}")
    for one in found.missing:
        near = f" Near it: {', '.join(one.nearest)}." if one.nearest else ""
        parts.append(f"There is no {one.name} in this folder.{near}")
    parts += found.notes
    parts.append((ACT if not reads else SUM if computed else AGAIN).format(question=question))
    return "\n\n".join(parts)


def _computed(call: Call) -> str:
    """Render a computed result for a small model: each figure next to its name."""
    given, path = call.arguments, call.arguments["path"]
    lines = call.result.split("\n")
    if "query" not in given:
        return lines[0] if "by" not in given else f"{path}, lines by {given['by']}:\n{call.result}"
    what = str(given["query"]).partition(" FROM t")[2].strip()
    names, *rows = [line.split(" | ") for line in lines if not line.startswith("[")]
    figures = "; ".join(
        ", ".join(f"{name} = {value}" for name, value in zip(names, row, strict=False))
        for row in rows
    )
    return f"{path} {what}: {figures}".replace(" :", ":")


def _read(messages: Sequence[Message]) -> list[str]:
    """Return the paths of the files that calls have read, the newest last."""
    calls = [call for message in messages for call in message.calls if call.name == "read_file"]
    return [path for call in calls if isinstance(path := call.arguments.get("path"), str)]
