"""``triplepoint replay``: show a recorded run, or run its model again and compare."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ...errors import ReplayError
from ...traces.text import short
from .output import Output
from .recorded_engine import engine_of, load_trace
from .reenact import Reenactment
from .traces import trace_json
from .transcript import show_header, show_turn

if TYPE_CHECKING:
    from ...traces.reader import Trace
    from ..replay.replay import PhaseCheck, VerifyReport


def run(args: argparse.Namespace, output: Output) -> int:
    """Show the trace, or do with it what was asked for."""
    trace = load_trace(args.trace)
    if args.verify:
        return verify(trace, args, output)
    if args.perf or args.predict:
        from . import whatif

        return whatif.run(trace, args, output)
    for one in trace.runs:
        if one.header is not None:
            show_header(output, one.header)
        if args.speed is not None and not output.as_json:
            Reenactment(output, args.speed).play(one)
        else:
            _show(one, output)
        output.line()
        output.timeline(one)
    if trace.torn is not None:
        output.line(f"torn: the last line is unfinished: {short(trace.torn, 60)}", "red")
    output.json(trace_json(trace))
    return 0


def _show(one: Trace, output: Output) -> None:
    """The conversation of one run, and how it ended if that was no answer."""
    for turn in one.turns:
        show_turn(output, turn)
    if one.end is not None and one.end.status != "answered":
        if one.end.answer:
            output.line(one.end.answer)
        output.line(f"{one.end.status}: {one.end.message}", "red")


def verify(trace: Trace, args: argparse.Namespace, output: Output) -> int:
    """Run the model again on every run of the trace; 1 when a token differs."""
    from ..replay import replay
    from ..replay.schedule import check_replayable

    reports = []
    for number, one in enumerate(trace.runs):
        if one.header is None:
            raise ReplayError(f"{trace.path}: no run_start event, so it is not known what ran")
        check_replayable(one.header)
        show_header(output, one.header)
        engine, notes = engine_of(one.header, args, output, one.header.config.get("context"))

        def show(check: PhaseCheck) -> None:
            output.line(check_text(check), "" if check.same else "bold red")

        for note in (*notes, *replay.check_settings(one.header, engine)):
            output.line(f"note: {note}", "yellow")
        report = replay.verify(trace, engine, run=number, on_phase=show)
        output.line(verdict(report), "green" if report.ok else "bold red")
        reports.append(report)
        engine.close()
    if not reports:
        raise ReplayError(f"{trace.path}: the trace is empty")
    ok = all(report.ok for report in reports)
    output.json({"trace": str(trace.path), "ok": ok, "runs": [report_json(r) for r in reports]})
    return 0 if ok else 1


def check_text(check: PhaseCheck) -> str:
    """One phase's outcome, on one line."""
    phase = check.recorded
    head = f"phase {check.number}  {short(phase.purpose, 24).replace('_', ' '):<12}"
    if phase.phase == "prefill":
        return f"{head} {phase.tokens:>6,} tokens fed"
    if check.difference is None:
        return f"{head} {phase.tokens:>6,} tokens sampled, the same"
    other = check.difference
    now = "nothing" if other.replayed is None else f"{other.replayed} {other.replayed_text!r}"
    return (
        f"{head} differs at token {other.position + 1} of {phase.tokens}: "
        f"recorded {other.recorded} {other.recorded_text!r}, now {now}"
    )


def verdict(report: VerifyReport) -> str:
    """The last line: verified or not."""
    if report.ok:
        sampled = sum(c.recorded.tokens for c in report.phases if c.recorded.phase == "decode")
        phases = "phase" if report.total == 1 else "phases"
        return f"verified: {report.total} {phases}, {sampled} sampled tokens, all the same"
    last = report.first_difference
    where = f"phase {last.number} gave another token" if last else "not every phase was run"
    return f"not verified: {where} ({len(report.phases)} of {report.total} phases were run)"


def report_json(report: VerifyReport) -> dict[str, Any]:
    """A verification for ``--json``."""
    return {
        "run": report.run,
        "ok": report.ok,
        "notes": report.notes,
        "phases": [
            {
                "number": check.number,
                "phase": check.recorded.phase,
                "purpose": check.recorded.purpose,
                "tokens": check.recorded.tokens,
                "same": check.same,
                "difference": asdict(check.difference) if check.difference else None,
                "recorded_s": check.recorded.wall_s,
                "replayed_s": check.replayed.wall_s,
            }
            for check in report.phases
        ],
    }
