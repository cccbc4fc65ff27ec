"""``triplepoint replay --verify``: run the model again and compare every token."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from ...errors import ReplayError, SettingError
from ...traces.events import RunStart
from ...traces.reader import Trace
from ...traces.sanitize import printable, short
from ...traces.timeline import call_text
from ..engine.engine import Engine
from ..replay import replay
from ..replay.live_tools import LiveTools
from ..replay.replay import PhaseCheck, VerifyReport
from ..replay.workload import check_replayable
from .engine_from_trace import engine_of, folder_of
from .output import Output
from .transcript import show_header


def run(trace: Trace, args: argparse.Namespace, output: Output) -> int:
    """Run the model again on every run of the trace; return 1 if a token differs or none exists."""
    for one in trace.runs:  # before a model is loaded for nothing
        if one.header is None:
            raise ReplayError(
                f"{trace.path}: no run_start event, so the model and settings are unknown"
            )
        check_replayable(one.header)
        replay.check_has_tokens(trace, one.header)
    reports = []
    for number, one in enumerate(trace.runs):
        assert one.header is not None
        show_header(output, one.header)
        engine, notes = _engine(one.header, args, output)

        def show(check: PhaseCheck) -> None:
            output.line(check_text(check), "" if check.same else "bold red")

        for note in (*notes, *replay.check_settings(one.header, engine)):
            output.line(f"note: {note}", "yellow")
        live = args.live_tools
        tools = _live_tools(trace, one.header, args, engine) if live else None
        report = replay.verify(trace, engine, run=number, tools=tools, on_phase=show)
        good = report.ok or report.within_rounding
        style = "bold red" if not good else "green" if report.sampled else "yellow"
        for line in verdict(report):
            output.line(line, style)
        reports.append(report)
        engine.close()
    if not reports:
        raise ReplayError(f"{trace.path}: the trace is empty")
    some = any(report.sampled for report in reports)
    ok = some and all(report.ok for report in reports)
    good = some and all(report.ok or report.within_rounding for report in reports)
    output.json({"trace": str(trace.path), "ok": ok, "runs": [report_json(r) for r in reports]})
    return 0 if good else 1


def _engine(header: RunStart, args: argparse.Namespace, output: Output) -> tuple[Engine, list[str]]:
    """Load the engine to verify a run on.

    Raises:
        SettingError: it cannot hold the run: by --context, or because another model was given.
    """
    recorded = header.config.get("context")
    if args.context and isinstance(recorded, int) and args.context < recorded:
        raise SettingError(
            f"--context {args.context} is less than the {recorded} tokens that the run was "
            "recorded with; leave it out"
        )
    try:
        return engine_of(header, args, output, recorded)
    except SettingError as error:
        if args.model is None:
            raise
        raise SettingError(
            f"{error}. The trace was recorded with {printable(header.model.name)}: give that model "
            "with -m"
        ) from None


def check_text(check: PhaseCheck) -> str:
    """Format the verification of a phase on one line."""
    phase = check.recorded
    head = f"phase {check.number:<3} {short(phase.purpose, 24).replace('_', ' '):<12}"
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


def verdict(report: VerifyReport) -> list[str]:
    """Format the verdict of a verification: whether tokens differ, where, by how much, and why."""
    if report.ok:
        sampled = report.sampled
        phases = "phase" if report.total == 1 else "phases"
        if not sampled:
            why = "the run has no sampled token to compare"
            return [f"not verified: {why} ({report.total} {phases})"]
        tools = f", and {report.tools} live tool results" if report.tools else ""
        return [f"verified: {report.total} {phases}, {sampled} sampled tokens{tools}, all the same"]
    run = f"{len(report.phases)} of {report.total} phases were run"
    if tool := report.tool_difference:
        name = call_text(tool.call.name, tool.call.arguments)
        return [
            f"not verified: {short(name, 60)} now gives a different result ({run})",
            f"  recorded  {short(tool.call.result, 90)}",
            f"  now       {short(tool.now, 90)}",
            "  likely cause: the data that the tool reads has changed since",
        ]
    if answer := report.answer_difference:
        return [
            f"not verified: the tokens of turn {answer.turn} do not say its answer ({run})",
            f"  recorded  {short(answer.recorded, 90)}",
            f"  sampled   {short(answer.sampled, 90)}",
            "  likely cause: the trace was changed, or has lost a phase",
        ]
    last = report.first_difference
    if last is None or last.difference is None:
        return [f"not verified: not every phase was run ({run})"]
    found = last.difference
    where = f"phase {last.number} gave a different token"
    head = f"not verified: {where} ({run})"
    if report.within_rounding:
        head = f"the same up to rounding: {where}; another target can round differently ({run})"
    lines = [head, f"  after     {short(found.before, 90)}"]
    if found.margin is not None:
        lines.append(f"  margin    {found.margin:.2g} of the range of the logits")
    return [*lines, f"  likely cause: {found.cause}"]


def _live_tools(
    trace: Trace, header: RunStart, args: argparse.Namespace, engine: Engine
) -> LiveTools:
    """Open the run's tools, on its folder or another one."""
    folder = folder_of(trace, header, args.dir)
    if not folder:
        raise ReplayError("the run had no folder; give one with --dir")
    return LiveTools(engine, header, folder)


def report_json(report: VerifyReport) -> dict[str, Any]:
    """Return a verification for ``--json``."""
    return {
        "run": report.run,
        "ok": report.ok,
        "sampled": report.sampled,
        "within_rounding": report.within_rounding,
        "notes": report.notes,
        "live_tools": report.tools,
        "tool_difference": None
        if report.tool_difference is None
        else {
            "name": report.tool_difference.call.name,
            "arguments": report.tool_difference.call.arguments,
            "recorded": report.tool_difference.call.result,
            "now": report.tool_difference.now,
        },
        "answer_difference": None
        if report.answer_difference is None
        else asdict(report.answer_difference),
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
