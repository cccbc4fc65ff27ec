"""Plain-text tables of traces: by regime, turn or layer, of many traces, of two compared."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import TraceError
from .diff import Diff, PhasePair
from .events import AnyEvent, MessageEvent, PhaseEvent, RunStart
from .reader import Trace
from .records import LayerRecord
from .sanitize import short
from .timeline import call_text, duration, rate, totals

_GAP = "  "


@dataclass(frozen=True)
class Table:
    """A plain-text table: headings, and rows of texts.

    ``words`` are the columns of words, which are left-aligned; the rest are figures.
    """

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Collection[int] = (0,)

    def lines(self) -> list[str]:
        """Return the table as aligned lines, with control characters escaped."""
        cells = [[short(cell, 200) for cell in row] for row in [self.headings, *self.rows]]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return [
            _GAP.join(
                cell.ljust(width) if i in self.words else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]


def by_regime(trace: Trace) -> Table:
    """Return a table of engine time by regime, the longest first."""
    groups: dict[str, list[PhaseEvent]] = {}
    ran = [phase for phase in trace.phases if phase.tokens]  # a fork computes nothing
    for phase in ran:
        groups.setdefault(phase.regime, []).append(phase)
    everything = sum(phase.wall_s for phase in ran)
    rows = []
    for regime, phases in sorted(groups.items(), key=lambda g: -sum(p.wall_s for p in g[1])):
        wall, tokens = sum(p.wall_s for p in phases), sum(p.tokens for p in phases)
        as_predicted = sum(p.predicted == p.observed for p in phases)
        rows.append(
            (
                regime,
                f"{len(phases)}",
                f"{tokens:,}",
                duration(wall),
                _share(wall, everything),
                rate(tokens / wall) if wall > 0 else "",
                f"{as_predicted} of {len(phases)}",
            )
        )
    return Table(("regime", "phases", "tokens", "time", "share", "tok/s", "as predicted"), rows)


def by_turn(trace: Trace) -> Table:
    """Return a table of turns: times and reused tokens of each question."""
    rows = []
    for turn in trace.turns:
        if not turn.began:
            continue
        sums = totals(turn)
        rows.append(
            (
                f"{turn.number}",
                short(turn.question, 40),
                f"{len({phase.step for phase in turn.phases if phase.step})}",
                "" if sums.ttft_s is None else duration(sums.ttft_s),
                "" if sums.tpot_s is None else duration(sums.tpot_s),
                f"{sums.input_tokens:,}",
                _share(sums.cached_tokens, sums.input_tokens),
                f"{sums.output_tokens:,}",
                duration(sums.engine_s),
                duration(sums.tool_s),
            )
        )
    headings = ("turn", "question", "steps", "TTFT", "TPOT", "input", "cached", "output")
    return Table((*headings, "engine", "tools"), rows, words=(0, 1))


def cut_off(trace: Trace) -> str:
    """Describe where a question was interrupted; empty where none was."""
    last = trace.cut_off
    if last is None:
        return ""
    turn, step = getattr(last, "turn", 0), getattr(last, "step", 0)
    where = f" in turn {turn}" + (f", step {step}" if step else "") if turn else ""
    return (
        f"cut off{where}, {_before(last)}: the run was killed, or is still running; the last event "
        f"is a {short(last.event, 24)} of {_when(last.ts, '%H:%M:%S')} UTC"
    )


def _when(ts: float, form: str) -> str:
    """Format a time of day or a date; a question mark where the trace has no valid one."""
    return time.strftime(form, time.gmtime(ts)) if 0 < ts < 1e11 else "?"


def _before(last: AnyEvent) -> str:
    """Name the last recorded activity."""
    if isinstance(last, RunStart):
        return "before the question was read"
    if isinstance(last, MessageEvent) and last.role != "assistant":
        what = {"tool": "the results of the tools", "user": "the question"}.get(last.role, "it")
        return f"in the prefill of {what}"
    if isinstance(last, PhaseEvent) and last.phase == "prefill":
        return "in the decode that follows this prefill"
    if isinstance(last, PhaseEvent) and last.purpose == "tool_call":
        return "in a tool call"
    return "after what is shown here"


def by_layer(trace: Trace) -> list[tuple[str, Table]]:
    """Return a title and a table of layers for each profiled phase."""
    tables = []
    for number, phase in enumerate(trace.phases, 1):
        if phase.layers:
            title = f"phase {number}, {phase.purpose.replace('_', ' ')}: {phase.label}"
            title += f", {phase.tokens:,} tokens in {duration(phase.wall_s)}"
            tables.append((short(title, 160), Table(_LAYERS, _layer_rows(phase))))
    return tables


def of_tuning(trace: Trace) -> list[str]:
    """Describe how passes were executed and why, with corrections by phase."""
    settings = trace.header.tuning if trace.header is not None else {}
    if not settings:
        return ["the execution policy was not recorded"]
    rows = []
    for name, setting in settings.items():
        known = setting if isinstance(setting, dict) else {}
        rows.append((name, f"{known.get('value', '')}", f"{known.get('why', '')}"))
    lines = Table(("setting", "value", "why"), rows, words=(0, 1, 2)).lines()
    for number, phase in enumerate(trace.phases, 1):
        lines += [
            f"phase {number}, {short(phase.purpose, 24)}: {short(line, 160)}"
            for line in (*phase.tuning, phase.taken)
            if line
        ]
    return lines


_LAYERS = ("layer", "time", "share", "attention", "feed-forward", "other", "waiting")


def _layer_rows(phase: PhaseEvent) -> list[Sequence[str]]:
    rows = [_layer(layer, phase.wall_s) for layer in phase.layers]
    # What no op has had: Python, the grammar, threads on their way into a pass.
    rest = phase.wall_s - sum(layer.wall_s for layer in phase.layers)
    rows.append(("between passes", duration(max(rest, 0.0)), _share(rest, phase.wall_s), *[""] * 4))
    return rows


def _layer(layer: LayerRecord, wall: float) -> Sequence[str]:
    name = "outside" if layer.layer is None else f"{layer.layer}"
    parts = (layer.attention_s, layer.ffn_s, layer.other_s, layer.wait_s)
    return (
        name,
        duration(layer.wall_s),
        _share(layer.wall_s, wall),
        *(duration(part) if part else "" for part in parts),
    )


def of_many(found: Iterable[tuple[Path, Trace | TraceError]]) -> Table:
    """Return a table of trace files: when, what, with which model, and the cost."""
    rows: list[Sequence[str]] = []
    for path, trace in found:
        if isinstance(trace, TraceError):
            rows.append((path.stem, "", "", "", "", "", "", "unreadable", short(str(trace), 60)))
            continue
        header, sums = trace.header, totals(trace)
        turns = [turn for turn in trace.turns if turn.began]
        rows.append(
            (
                path.stem,
                _when(trace.events[0].ts if trace.events else 0, "%Y-%m-%d %H:%M"),
                short(header.model.name, 28) if header else "",
                f"{len(turns)}",
                f"{len(trace.phases)}",
                f"{sums.input_tokens:,}",
                f"{sums.output_tokens:,}",
                trace.end.status if trace.end else "cut off" if trace.cut_off else "unfinished",
                short(turns[0].question if turns else "", 48),
            )
        )
    headings = ("run", "began (UTC)", "model", "turns", "phases", "input", "output", "status")
    return Table((*headings, "question"), rows, words=(0, 1, 2, 7, 8))


def of_pairs(diff: Diff) -> Table:
    """Return a table of the aligned phases of two runs."""
    rows = [_pair(pair, diff.tokens_known) for pair in diff.phases]
    return Table(("phase", "tokens", "regime", "first", "second", "ratio", "note"), rows, (0, 2, 6))


def _pair(pair: PhasePair, tokens_known: bool) -> Sequence[str]:
    a, b, phase = pair.first, pair.second, pair.either
    regimes = [p.regime for p in (a, b) if p is not None]
    counts = [f"{p.tokens:,}" for p in (a, b) if p is not None]
    purposes = [p.purpose for p in (a, b) if p is not None]
    note = "only in the second" if a is None else "only in the first" if b is None else ""
    if tokens_known and a is not None and b is not None and a.token_ids != b.token_ids:
        note = "different tokens"
    ratio = pair.time_ratio
    return (
        f"{phase.turn}.{phase.step} {' → '.join(dict.fromkeys(purposes)).replace('_', ' ')}",
        counts[0] if len(set(counts)) == 1 else " → ".join(counts),
        regimes[0] if len(set(regimes)) == 1 else " → ".join(regimes),
        "" if a is None else duration(a.wall_s),
        "" if b is None else duration(b.wall_s),
        "" if ratio is None else f"{ratio:.2f}×",
        note,
    )


def verdict(diff: Diff) -> list[str]:
    """Summarize a diff in lines: settings, tokens, tools, regimes, times, answers."""
    lines = [
        f"{name}: {short(str(a), 60)} → {short(str(b), 60)}" for name, a, b in diff.settings
    ] or ["the settings are the same"]
    lines.append(_tokens(diff))
    for a, b in diff.tools[:5]:
        texts = [call_text(t.name, t.arguments) if t else "no call" for t in (a, b)]
        what = " → ".join(short(text, 60) for text in dict.fromkeys(texts))
        lines.append(f"tools: {what}" + (" (different result)" if len(set(texts)) == 1 else ""))
    changes = len(diff.regime_changes)
    lines.append(f"regimes: {changes} of {len(diff.phases)} phases changed")
    first, second = diff.total()
    if first > 0:
        alike = sum(pair.same_work for pair in diff.phases)
        lines.append(
            f"times: {duration(first)} → {duration(second)}, {second / first:.2f}× over the "
            f"{alike} phases of equal size"
        )
    if diff.answers[0] != diff.answers[1]:
        a, b = (short(str(answer), 80) for answer in diff.answers)
        lines.append(f"answers: {a} → {b}")
    return lines


def _tokens(diff: Diff) -> str:
    found = diff.first_difference
    if found is None:
        if not diff.same_tokens:
            return "tokens: the same until one of the runs has no more phases"
        return "tokens: " + (
            "the same" if diff.tokens_known else "the same number (redacted, so not compared)"
        )
    phase = diff.phases[found.phase].either
    where = f"{phase.purpose.replace('_', ' ')} of step {phase.turn}.{phase.step}"
    where = f"phase {found.phase + 1} ({where})"
    if not diff.tokens_known:
        return f"tokens: a different number in {where} (redacted, so ids are not compared)"
    a, b = ("none" if x is None else str(x) for x in (found.first, found.second))
    return f"tokens: first difference in {where} at token {found.position + 1}: {a} → {b}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else ""
