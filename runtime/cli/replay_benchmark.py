"""``triplepoint replay --benchmark``: the recorded work repeated, compared with the recording."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from ...traces.events import PhaseEvent
from ...traces.reader import Trace
from ...traces.report import Table
from ...traces.sanitize import short
from ...traces.timeline import duration, rate
from ..engine.engine import Engine
from ..engine.engine_timer import EngineTimer
from ..physics.calibrate import calibrated
from ..physics.machine import DOUBT
from ..replay import simulate, workload
from ..replay.machine_file import read_machine
from ..replay.report import MIN_S, PerfPhase, PerfReport, Sums, sums
from .engine_from_trace import engine_of, positions_for
from .output import Output
from .transcript import show_header


def run(trace: Trace, args: argparse.Namespace, output: Output) -> int:
    """Repeat the work of a trace's last run, or predict its times, and compare both."""
    chosen, header = workload.chosen_run(trace, -1)
    works = workload.work_items(chosen)
    engine, notes = engine_of(header, args, output, positions_for(header, works, args.model))
    with engine, output.progress:
        if args.predict:
            report = _predicted(trace, args, engine)
        else:
            report = _measured(trace, args, engine, output, len(works))
    report.notes[:0] = notes
    show_header(output, header)
    for line in text(report):
        output.line(line)
    output.json({"trace": str(trace.path), **as_dict(report)})
    return 0


def _measured(
    trace: Trace, args: argparse.Namespace, engine: Engine, output: Output, total: int
) -> PerfReport:
    def progress(phase: PerfPhase) -> None:
        output.progress.loading(phase.number / total, "running the recorded phases")

    return simulate.run_workload(trace, engine, waits=not args.skip_tool_delays, on_phase=progress)


def _predicted(trace: Trace, args: argparse.Namespace, engine: Engine) -> PerfReport:
    found, machine, notes = calibrated(EngineTimer(engine)), None, []
    if args.machine:
        machine, efficiency = read_machine(args.machine)
        if efficiency is not None:
            found = dataclasses.replace(found, efficiency=efficiency)
        else:
            notes.append(
                "assumes that kernels reach the same share of that machine's limits as of this "
                "one's"
            )
    if (machine or found.machine).doubtful:
        notes.append(f"doubtful: {DOUBT}")
    report = simulate.predict(trace, engine, found, machine)
    report.notes += notes
    return report


def text(report: PerfReport) -> list[str]:
    """Format a benchmark report as lines: settings, phases, regimes, totals."""
    lines = [f"{name}: {was} → {now}" for name, was, now in report.settings]
    lines += [f"note: {note}" for note in report.notes]
    now = "expected" if report.predicted else "now"
    lines += ["", *_phases(report, now).lines(), "", *_regimes(report, now).lines(), ""]
    return [*lines, *_totals(report)]


def _phases(report: PerfReport, now: str) -> Table:
    rows = []
    for phase in report.phases:
        was = phase.recorded
        rows.append(
            (
                f"{was.turn}.{was.step} {short(was.purpose, 24).replace('_', ' ')}",
                was.regime if phase.alike else f"{was.regime} → {phase.now.regime}",
                f"{was.tokens:,}",
                f"{was.kv_after:,}",
                duration(was.wall_s),
                duration(phase.now.wall_s),
                f"{phase.ratio:.2f}×",
                rate(was.tokens_per_s),
                rate(phase.now.tokens_per_s),
            )
        )
    headings = (
        "phase",
        "regime",
        "tokens",
        "KV",
        "recorded",
        now,
        "ratio",
        "tok/s",
        f"tok/s {now}",
    )
    return Table(headings, rows, words=(0, 1))


def _regimes(report: PerfReport, now: str) -> Table:
    def cells(sums: Sums) -> Sequence[str]:
        if not sums.phases:
            return ("", "", "")
        return (f"{sums.phases}", duration(sums.seconds), rate(sums.tokens_per_s))

    rows = [(name, *cells(was), *cells(is_now)) for name, was, is_now in report.regimes()]
    headings = ("regime", "phases", "recorded", "tok/s", f"phases {now}", now, f"tok/s {now}")
    return Table(headings, rows)


def _totals(report: PerfReport) -> list[str]:
    """Format the sums of prefill, decode and the whole run; then the changes of regime."""
    lines: list[str] = []
    for name in ("prefill", "decode"):
        was, now = (
            sums(p for p in phases if p.phase == name) for phases in (report.recorded, report.now)
        )
        if was.tokens:
            times = _change(was.seconds, now.seconds)
            if name == "decode":
                times += f", TPOT {duration(was.seconds / was.tokens)} → "
                times += duration(now.seconds / now.tokens)
            lines.append(f"{name}: {was.tokens:,} tokens, {times}")
    seconds = [sum(p.wall_s for p in phases) for phases in (report.recorded, report.now)]
    wait = report.wait_s
    with_tools = f"; with {duration(wait)} of tools {_change(*(s + wait for s in seconds))}"
    lines.append(f"engine: {_change(*seconds)}{with_tools if wait else ''}")
    changes = len(report.regime_changes)
    lines.append(f"regimes: {changes} of {len(report.phases)} phases changed")
    if changes:
        lines.append(f"  recorded  {_path(report.recorded)}")
        lines.append(f"  {'expected' if report.predicted else 'now':<8}  {_path(report.now)}")
    error = report.time_error()
    if error is not None and not report.settings:
        long = sum(p.recorded.wall_s >= MIN_S for p in report.phases)
        lines.append(
            f"times of the phases of {duration(MIN_S)} or more ({long} of {len(report.phases)}): "
            f"off by {error:.1%}, median"
        )
    return lines


def _change(was: float, now: float) -> str:
    ratio = f" ({now / was:.2f}×)" if was > 0 else ""
    return f"{duration(was)} → {duration(now)}{ratio}"


def _path(phases: Sequence[PhaseEvent], most: int = 8) -> str:
    """Format the regimes in order, without repeats."""
    names = [p.regime for n, p in enumerate(phases) if not n or phases[n - 1].regime != p.regime]
    more = len(names) - most
    return " → ".join(names[:most] + ([f"… ({more} more)"] if more > 0 else []))


def as_dict(report: PerfReport) -> dict[str, Any]:
    """Return a benchmark report for ``--json``."""
    return {
        "run": report.run,
        "predicted": report.predicted,
        "settings": [{"name": n, "recorded": a, "now": b} for n, a, b in report.settings],
        "notes": report.notes,
        "phases": [_phase_dict(phase) for phase in report.phases],
        "regimes": [
            {"regime": name, "recorded": vars_of(was), "now": vars_of(now)}
            for name, was, now in report.regimes()
        ],
        "totals": {
            "recorded_s": sums(report.recorded).seconds,
            "now_s": sums(report.now).seconds,
            "tools_s": report.wait_s,
            "regime_changes": len(report.regime_changes),
            "labels_alike": report.alike,
            "median_time_error": report.time_error(),
        },
    }


def vars_of(sums: Sums) -> dict[str, float]:
    """Return the totals of a run as a JSON object."""
    return {**dataclasses.asdict(sums), "tokens_per_s": sums.tokens_per_s}


def _phase_dict(phase: PerfPhase) -> dict[str, Any]:
    was = phase.recorded
    return {
        "number": phase.number,
        "turn": was.turn,
        "step": was.step,
        "phase": was.phase,
        "purpose": was.purpose,
        "tokens": was.tokens,
        "kv_before": was.kv_before,
        "kv_after": was.kv_after,
        "tools_s": phase.wait_s,
        "ratio": phase.ratio,
        **{
            name: {
                "wall_s": side.wall_s,
                "tokens_per_s": side.tokens_per_s,
                "regime": side.regime,
                "mfu": side.mfu,
                "mbu": side.mbu,
                "dispatch_share": side.dispatch_share,
            }
            for name, side in (("recorded", was), ("now", phase.now))
        },
    }
