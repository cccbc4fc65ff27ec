"""Text of a conversation: questions, tool calls with shortened results, answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...traces.sanitize import printable, short

if TYPE_CHECKING:
    from ...traces.event_log import Turn
    from ...traces.events import RunStart
    from ...traces.reader import Trace
    from ..conversation.ledger import TokenLedger
    from ..tokens.tokenizer import Tokenizer
    from .output import Output

_WIDTH = 96
_NO_MARKS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "⟦⟧⟪⟫"}


def show_prompt(output: Output, ledger: TokenLedger, tokenizer: Tokenizer, **facts: Any) -> None:
    """Print a prompt's tokens: control tokens in ⟦⟧, origins in ⟪⟫, the rest as text."""
    parts: list[dict[str, Any]] = []
    for span in ledger.spans:
        ids, text = ledger.ids[span.start : span.end], ""
        origin = printable(f"{span.origin} {span.label}".strip().replace("_", " "))
        output.piece(f"⟪{origin.translate(_NO_MARKS)}, {span.tokens:,} tokens⟫", "cyan")
        for is_control, some in groupby(ids, tokenizer.control_ids.__contains__):
            for one in [[token] for token in some] if is_control else [some]:
                raw = tokenizer.decode_bytes(one, special=True).decode("utf-8", "backslashreplace")
                shown = ("⟦{}⟧" if is_control else "{}").format(raw.translate(_NO_MARKS))
                output.piece(shown, "bold magenta" if is_control else "")
                text += shown
        parts.append({"origin": origin, "token_ids": ids, "text": text})
    output.end_line()
    output.json({**facts, "tokens": len(ledger), "parts": parts})


def show_header(output: Output, header: RunStart) -> None:
    """Print one line on the model and machine of a run."""
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


def show_parent(output: Output, run: Trace) -> None:
    """Print which run this one continues, if any."""
    if run.header is None or not run.header.parent:
        return
    step = run.header.parent_step
    at = f", from {short(step, 24)}" if step else ""
    asked = sum(one.get("role") == "user" for one in run.history.messages) if run.history else 0
    before = f", after {asked} question{'s' * (asked != 1)}" if asked else ""
    output.line(f"continues {short(run.header.parent, 80)}{at}{before}", "dim")


def show_end(output: Output, run: Trace) -> None:
    """Print how the run ended, if it has no answer."""
    from ...traces.report import cut_off

    if where := cut_off(run):
        output.line(where, "red")
    elif run.end is not None and run.end.status != "answered":
        output.line(printable(f"{run.end.status}: {run.end.message}"), "red")


def show_rest(output: Output, trace: Trace) -> None:
    """Print a note on a trace file that is empty, or whose last line is cut off."""
    from ...traces.timeline import torn_text

    if not trace.events:
        output.line(f"{trace.path}: the trace is empty")
    if torn := torn_text(trace):
        output.line(torn, "red")


def show_turn(output: Output, turn: Turn) -> None:
    """Print a recorded turn: its question, calls and answer; skip a turn that never began."""
    if not turn.began and not turn.question:
        return
    output.line(f"? {turn.question}", "bold")
    for tool in turn.tools:
        show_call(output, tool.name, tool.arguments)
        show_result(output, tool.result, tool.error)
    if turn.answer is not None:
        output.line(turn.answer)
    if turn.end is not None:
        show_sources(output, turn.end.sources, turn.end.unsupported)


def show_call(output: Output, name: str, arguments: Mapping[str, Any], by: str = "") -> None:
    """Print a tool call on one line; mark calls that the harness made."""
    from ...traces.timeline import call_text

    mark = "> looked: " if by else "> "
    output.line(short(f"{mark}{call_text(name, arguments)}", _WIDTH), "dim cyan" if by else "cyan")


def show_result(output: Output, result: str, error: str | None) -> None:
    """Print a tool's result on one line: its size and first line; or the error."""
    if error:
        output.line(f"  {short(f'error: {error}', _WIDTH)}", "red")
    else:
        output.line(f"  {result_text(result)}", "dim")


def show_sources(
    output: Output, sources: Iterable[Sequence[Any]], unsupported: Iterable[str]
) -> None:
    """Print footnotes of an answer: the source of each fact, and facts without a source."""
    from ..agent.result import NO_SOURCE, footnotes

    for note in footnotes(sources, unsupported):
        output.line(short(note, _WIDTH), "yellow" if note.startswith(NO_SOURCE) else "dim")


def result_text(result: str) -> str:
    """Format a tool's result on one line: its only line, or its size and its first line.

    The size comes first: behind ``app.log`` it would be taken for the file's.
    """
    lines = result.splitlines() or [""]
    first = lines[0].replace("\t", "  ")
    if len(lines) == 1:
        return short(first, _WIDTH)
    size = f"result of {len(lines)} lines, {len(result):,} characters: "
    return size + short(first, _WIDTH - len(size))
