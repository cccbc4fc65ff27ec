"""The table of phases: each one's regime, time, and fraction of the roofline.

Works from a trace alone. Plain text for pipes, rich for terminals; both from the same rows, and
both show control characters of names, arguments and results only as escapes.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .event_log import EventLog, Turn
from .events import DraftRecord, MissRecord, PhaseEvent, ToolEvent
from .sanitize import short

if TYPE_CHECKING:
    from rich.console import RenderableType

HEADINGS = ("phase", "regime", "predicted", "tokens", "KV", "time", "tok/s", "of limit")
_PREDICTED, _TIME = HEADINGS.index("predicted"), HEADINGS.index("time")
_LEFT = 3  # the first columns are text, the rest numbers
_LEAVE_OUT = ("KV", "of limit", "tok/s", "predicted", "tokens")
"""Columns that a narrow terminal does without, the first one first."""
_GAP = 2
_STYLES = {"compute": "red", "memory": "blue", "dispatch": "yellow", "tool": "dim", "title": "bold"}
_CALL_WIDTH = 60
_TITLE_WIDTH = 90
_MAX_REGIMES = 8  # in the line below the table; a long chat goes through hundreds


@dataclass(frozen=True)
class Row:
    """A line of the table: a phase, a tool call, or the title of a turn."""

    cells: tuple[str, ...]
    """For a phase one text for each of `HEADINGS`; else a text across, and perhaps a time."""
    kind: str
    """The observed bound of a phase (``unknown`` of none), ``tool`` or ``title``."""


@dataclass(frozen=True)
class Totals:
    """The cost of a whole trace, or of a turn."""

    input_tokens: int
    """Tokens of the context over all passes, cached ones included."""
    cached_tokens: int
    output_tokens: int
    ttft_s: float | None
    """Time to the first sampled token of the first turn."""
    tpot_s: float | None
    """Mean time of a sampled token."""
    engine_s: float
    """Time spent in phases."""
    tool_calls: int
    tool_s: float


def totals(trace: EventLog | Turn) -> Totals:
    """Add up a trace or one of its turns, even where the run was killed."""
    prefills = [p for p in trace.phases if p.phase == "prefill"]
    decodes = [p for p in trace.phases if p.phase == "decode"]
    sampled = sum(p.tokens for p in decodes)
    first = (
        seconds
        for turn in ([trace] if isinstance(trace, Turn) else trace.turns)
        for seconds in (turn.end and turn.end.ttft_s, *(p.ttft_s for p in turn.phases))
    )
    return Totals(
        input_tokens=sum(p.input_tokens for p in prefills),
        cached_tokens=sum(p.input_tokens - p.computed_tokens for p in prefills),
        output_tokens=sampled,
        ttft_s=next((seconds for seconds in first if seconds is not None), None),
        tpot_s=sum(p.wall_s for p in decodes) / sampled if sampled else None,
        engine_s=sum(p.wall_s for p in trace.phases),
        tool_calls=len(trace.tools),
        tool_s=sum(tool.duration_s for tool in trace.tools),
    )


def rows(trace: EventLog) -> list[Row]:
    """Return the table's rows in recorded order; if there are several turns, each with a title."""
    turns = trace.turns
    lines: list[Row] = []
    for turn in turns:
        if len(turns) > 1 and turn.began:
            title = f"turn {turn.number}: {short(turn.question, _TITLE_WIDTH)}"
            lines.append(Row((title,), "title"))
        events = sorted([*turn.phases, *turn.tools], key=lambda event: event.seq)
        lines += [phase_row(e) if isinstance(e, PhaseEvent) else tool_row(e) for e in events]
    return lines


def phase_row(phase: PhaseEvent) -> Row:
    """Return the row of a phase; it shows the predicted bound only where it differs."""
    ran = phase.tokens != 0  # else pages were shared, or came from disk
    cells = (
        short(phase.purpose, 24).replace("_", " "),
        phase.label if ran else "nothing to compute",
        phase.predicted if ran and phase.predicted != phase.observed else "",
        f"{phase.tokens:,}",
        f"{phase.kv_after:,}",
        duration(phase.wall_s),
        rate(phase.tokens_per_s) if ran else "",
        _share(phase) if ran and phase.observed != "unknown" else "",
    )
    return Row(cells, phase.observed if ran else "unknown")


def _share(phase: PhaseEvent) -> str:
    return f"{phase.limit_share:.0%} {short(limit_name(phase), 12)}"


def tool_row(tool: ToolEvent) -> Row:
    """Return the row of a tool call, with the size of its result or its error."""
    outcome = f"error: {tool.error}" if tool.error else f"{len(tool.result):,} characters"
    call = short(call_text(tool.name, tool.arguments), _CALL_WIDTH)
    return Row((f"  {call}: {short(outcome, _CALL_WIDTH)}", duration(tool.duration_s)), "tool")


def call_text(name: str, arguments: Mapping[str, Any]) -> str:
    """Format a call in Python syntax: ``read_file(path="app.log")``."""
    pairs = (f"{k}={json.dumps(v, ensure_ascii=False)}" for k, v in arguments.items())
    return f"{name}({', '.join(pairs)})"


def limit_name(phase: PhaseEvent) -> str:
    """Return the name of the limit that a phase's utilization refers to.

    Peak arithmetic, a memory level's bandwidth, or the time (busy: the part outside barriers and
    dispatch).
    """
    if phase.observed == "memory":
        return phase.memory_level or "memory"
    return {"compute": "peak", "dispatch": "busy", "unknown": ""}[phase.observed]


def transitions(trace: EventLog) -> str:
    """Describe the sequence of regimes, with repeated neighbors counted."""
    names = [phase.regime for phase in trace.phases if phase.tokens][:1]
    names += [after.regime for _, after in trace.transitions]
    parts = _counted(names)
    more = len(parts) - _MAX_REGIMES
    return " → ".join(parts[:_MAX_REGIMES] + ([f"… ({more} more)"] if more > 0 else []))


def _counted(names: Sequence[str]) -> list[str]:
    """Shorten ``a b a b a c`` to ``(a → b) × 2``, ``a``, ``c``: greedily from the left."""
    parts: list[str] = []
    at = 0
    while at < len(names):
        best, times = 1, 1
        for size in (2, 3, 4):
            piece, count = names[at : at + size], 1
            while names[at + count * size : at + (count + 1) * size] == piece:
                count += 1
            if count > 1 and count * size > best * times:
                best, times = size, count
        piece = " → ".join(names[at : at + best])
        parts.append(f"({piece}) × {times}" if times > 1 else piece)
        at += best * times
    return parts


def summary(trace: EventLog) -> list[str]:
    """Return the summary lines below the table: totals, regimes, drafts, sharing."""
    sums = totals(trace)
    lines = [f"regimes: {path}"] if (path := transitions(trace)) else []
    parts = []
    if sums.ttft_s is not None:
        parts.append(f"TTFT {duration(sums.ttft_s)}")
    if sums.tpot_s is not None:
        parts.append(f"TPOT {duration(sums.tpot_s)}")
    parts.append(f"input {sums.input_tokens:,} tokens ({sums.cached_tokens:,} cached)")
    parts.append(f"output {sums.output_tokens:,}")
    if sums.tool_calls:
        calls = "call" if sums.tool_calls == 1 else "calls"
        parts.append(f"{sums.tool_calls} tool {calls} {duration(sums.tool_s)}")
    lines.append(", ".join(parts))
    lines += fewer_passes(trace)
    lines += states_and_experts(trace)
    lines += company(trace)
    lines += [miss_text(phase.miss) for phase in trace.phases if phase.miss is not None]
    return [*lines, torn] if (torn := torn_text(trace)) else lines


def torn_text(trace: EventLog) -> str:
    """Quote the beginning of a torn last line; empty where there is none."""
    if trace.torn is None:
        return ""
    return f"incomplete: the last line is cut off: {short(trace.torn, 60)}"


def fewer_passes(trace: EventLog) -> list[str]:
    """Describe the decoded tokens that drafting or forcing saved a pass for; empty for none."""
    decodes = [phase for phase in trace.phases if phase.phase == "decode"]
    drafted, forced = (
        sum(getattr(p, f"{n}_tokens") for p in decodes) for n in ("drafted", "forced")
    )
    parts = []
    if forced:
        parts.append(f"{forced:,} tokens forced by the grammar")
    if drafted:
        right, saved = (sum(p.accepted_tokens for p in decodes), sum(p.saved_s for p in decodes))
        gain = f"{duration(saved)} saved" if saved >= 0 else f"{duration(-saved)} lost"
        about = "; ".join(filter(None, (_by_source(decodes), gain if right else "")))
        about = f" ({about})" if about else ""
        parts.append(f"{right:,} of {drafted:,} drafted tokens accepted{about}")
    if not parts:
        return []
    made = sum(p.tokens for p in decodes)
    passes = sum(p.passes for p in decodes)
    return [f"decoded {made:,} tokens in {passes:,} passes: {', '.join(parts)}"]


def _by_source(decodes: Sequence[PhaseEvent]) -> str:
    """Describe each source's draft acceptance, unless only the context drafted."""
    found: dict[str, list[DraftRecord]] = {}
    for phase in decodes:
        for record in phase.drafts:
            found.setdefault(record.source, []).append(record)
    if found.keys() <= {"lookup"}:
        return ""
    each = (
        f"{short(name, 20)} {sum(one.accepted for one in records):,} of "
        f"{sum(one.drafted for one in records):,}"
        for name, records in sorted(found.items())
    )
    return ", ".join(each)


def states_and_experts(trace: EventLog) -> list[str]:
    """Describe the recurrent states of a hybrid model and the experts read of a sparse one."""
    model = trace.header.model if trace.header is not None else None
    lines = []
    if model is not None and model.state_bytes:
        passes = sum(phase.passes for phase in trace.phases)
        moved = 2 * model.state_bytes * passes
        lines.append(
            f"state {_bytes(model.state_bytes)} at any length: {_bytes(moved)} read and written "
            f"in {passes:,} passes; {_bytes(model.kv_bytes)} of KV cache per token"
        )
    if model is not None and model.experts:
        kinds = (("prefill", "a prefill's pass"), ("decode", "a decode's"))
        found = ((name, _experts(trace, phase)) for phase, name in kinds)
        parts = ", ".join(f"{each:.3g} in {name}" for name, each in found if each)
        read = f": a layer read {parts}" if parts else ""
        lines.append(f"experts {model.experts_used} of {model.experts} per token{read}")
    return lines


def _experts(trace: EventLog, kind: str) -> float:
    """Return the mean distinct experts per layer and pass, over all passes of a kind."""
    phases = [p for p in trace.phases if p.phase == kind and p.experts is not None and p.passes]
    passes = sum(phase.passes for phase in phases)
    return sum((phase.experts or 0.0) * phase.passes for phase in phases) / max(1, passes)


def _bytes(count: float) -> str:
    """Format bytes by powers of 1,000, with about three digits."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} GB"


def company(trace: EventLog) -> list[str]:
    """Describe the work in passes shared with other sequences; empty for none."""
    shares = [phase.shared for phase in trace.phases if phase.shared is not None]
    if not (count := sum(share.passes for share in shares)):
        return []
    everything = sum(phase.passes for phase in trace.phases)
    others = sum(share.sequences * share.passes for share in shares) / count
    seconds = sum(share.seconds for share in shares)
    return [
        f"shared {count:,} of {everything:,} passes, {others:.3g} sequences in each on average: "
        f"its share took {duration(seconds)}"
    ]


def miss_text(miss: MissRecord) -> str:
    """Explain on one line why tokens were recomputed."""
    whose = "" if miss.message is None else f" of message {miss.message}"
    why = f": {short(miss.why, 80)}" if miss.why else ""
    return (
        f"recomputed {miss.tokens:,} tokens in {duration(miss.seconds)}: token {miss.position:,} "
        f"differs, in the {short(miss.field, 40)}{whose} ({short(miss.label, 40)}){why}"
    )


def plain(trace: EventLog, width: int | None = None) -> str:
    """Return the timeline as plain text, for pipes and files; ends without a newline.

    Args:
        width: columns of a terminal without colors, as for `rich`.
    """
    table = ["".join(cells).rstrip() for cells, _ in _table(trace, width)]
    below = summary(trace)
    if width is not None:
        below = [part for line in below for part in textwrap.wrap(line, width) or [""]]
    return "\n".join([*table, *below])


def rich(trace: EventLog, width: int | None = None) -> RenderableType:
    """Return the timeline as a colored rich renderable, for terminals.

    Args:
        width: columns of the terminal; on a narrow one a star replaces the wrong predictions,
            and on a narrower one columns are left out.
    """
    from rich.console import Group
    from rich.text import Text

    lines = []
    for cells, kind in _table(trace, width):
        style = _STYLES.get(kind, "")
        if kind in ("compute", "memory", "dispatch"):  # the color is for the regime alone
            lines.append(Text.assemble(cells[0], (cells[1], style), *cells[2:]))
        else:
            lines.append(Text("".join(cells), style=style))
    return Group(*lines, *(Text(line, style="dim") for line in summary(trace)))


def _table(trace: EventLog, width: int | None = None) -> list[tuple[list[str], str]]:
    """Yield the padded cells and the kind of each line; predictions only where needed."""
    body = rows(trace)
    phases = [row.cells for row in body if row.kind not in ("tool", "title")]
    widths = [max(len(c[i]) for c in [HEADINGS, *phases]) + _GAP for i in range(len(HEADINGS))]
    widths[0] -= _GAP
    star = width is not None and sum(widths) > width
    if star:
        widths[_PREDICTED] = 2
    if not any(cells[_PREDICTED] for cells in phases):
        widths[_PREDICTED], star = 0, False
    for name in _LEAVE_OUT:
        if width is None or sum(widths) <= width:
            break
        widths[HEADINGS.index(name)] = 0
    star = star and bool(widths[_PREDICTED])
    lines = [(_padded(HEADINGS, widths, star), "title")]
    for row in body:
        if row.kind == "tool":
            text, time = row.cells
            room = sum(widths[: _TIME + 1]) - len(time) - _GAP
            lines.append(([short(text, room).ljust(room + _GAP), time], row.kind))
        elif row.kind == "title":
            title = row.cells[0]
            lines.append(([title if width is None else short(title, width)], row.kind))
        else:
            lines.append((_padded(row.cells, widths, star), row.kind))
    if star:
        lines.append((["* the cost model predicted another regime"], "tool"))
    return lines


def _padded(cells: tuple[str, ...], widths: list[int], star: bool) -> list[str]:
    """Pad cells, gap included: text to the left, numbers to the right."""
    if star:
        before, after = cells[:_PREDICTED], cells[_PREDICTED + 1 :]
        cells = (*before, "*" if cells[_PREDICTED] else "", *after)
    padded = []
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        gap = min(_GAP if i else 0, width // 2)
        padded.append(" " * gap + cell.ljust(width - gap) if i < _LEFT else cell.rjust(width))
    return [text[:width] for text, width in zip(padded, widths, strict=True)]


def duration(seconds: float) -> str:
    """Format a time with a suitable unit: ``840 µs``, ``3.1 ms``, ``12.4 s``, ``3 min 05 s``."""
    if 0 < seconds < 1e-6:
        return f"{seconds * 1e9:.0f} ns"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    if not seconds < 1e9:  # thirty years, or no number: a trace may say anything
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"


def rate(per_second: float) -> str:
    """Format tokens per second: ``14,200``, ``88.5``, ``3.21``."""
    if per_second >= 1000:
        return f"{per_second:,.0f}"
    return f"{per_second:.1f}" if per_second >= 10 else f"{per_second:.2f}"
