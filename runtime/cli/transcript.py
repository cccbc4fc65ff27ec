"""How a conversation looks: questions, tool calls with a short form of their results, answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...traces.text import short

if TYPE_CHECKING:
    from ...traces.events import RunStart, ToolEvent
    from ...traces.reader import Turn
    from .output import Output

_WIDTH = 96


def show_header(output: Output, header: RunStart) -> None:
    """One line on what ran where."""
    model = header.model
    kind = ", ".join(word for word in (model.architecture, model.quant) if word)
    parts = [
        f"run {header.run}",
        f"{model.name} ({kind})" if kind else model.name,
        header.target,
        f"{header.threads} thread{'s' * (header.threads > 1)}" if header.threads else "",
        f"kv {header.kv}" if header.kv else "",
        header.machine.cpu,
    ]
    output.line(", ".join(part for part in parts if part), "dim")


def show_turn(output: Output, turn: Turn) -> None:
    """A recorded turn: the question, the calls and the answer."""
    output.line(f"? {turn.question}", "bold")
    for tool in turn.tools:
        show_call(output, tool)
        show_result(output, tool)
    if turn.answer is not None:
        output.line(turn.answer)


def show_call(output: Output, tool: ToolEvent) -> None:
    """A tool call, on one line."""
    from ...traces.timeline import call_text

    output.line(short(f"> {call_text(tool)}", _WIDTH), "cyan")


def show_result(output: Output, tool: ToolEvent) -> None:
    """What came back, on one line: its beginning and its size."""
    output.line(f"  {result_text(tool)}", "red" if tool.error else "dim")


def result_text(tool: ToolEvent) -> str:
    """The first line of a result, and how much there is of it; or the error."""
    if tool.error:
        return short(f"error: {tool.error}", _WIDTH)
    lines = tool.result.splitlines() or [""]
    first = short(lines[0].replace("\t", "  "), _WIDTH - 24)
    if len(lines) == 1:
        return first
    return f"{first}  ({len(lines)} lines, {len(tool.result):,} characters)"
