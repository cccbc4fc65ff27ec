"""``triplepoint doctor --agent``: which settings of the harness suit a model file."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from ...errors import SettingError
from ...traces.timeline import duration
from ..agent.harness.tuned import keep, shown
from ..suites.harness_tuning import CHANGES, ON_SERVER, HarnessTuner, Report, check_tunable
from .exit_codes import Exit
from .load_engine import choose_model, is_server, load_engine
from .output import Output

_LINE_EVERY = 60.0  # seconds between two lines where there is no terminal


def run(args: argparse.Namespace, output: Output) -> int:
    """Tune, show what was found, and keep it; nothing is written before the end."""
    if is_server(choose_model(args)):
        raise SettingError(ON_SERVER)
    args.target = args.kv = None
    output.interruption = "interrupted; the harness's settings are as they were"
    with load_engine(args, output) as engine, tempfile.TemporaryDirectory() as folder:
        check_tunable(engine)
        name = engine.model.name
        output.aside.line(f"tuning the harness for {name}: {args.minutes} min, if that is enough")

        def started(ranked: int, asked: int, seconds: float) -> None:
            output.aside.line(
                f"{len(CHANGES)} settings are ranked over {ranked} questions, then {asked} are "
                f"answered twice: about {duration(seconds)} more"
            )

        watch, minutes = _Watch(output), float(args.minutes)
        tuner = HarnessTuner(
            engine, Path(folder), minutes=minutes, progress=watch, on_start=started
        )
        with output.progress:
            report = tuner.run()
        path = keep(engine.model.sha256, report.tuned)
    _show(report, output)
    output.line(f"kept for this file: {report.tuned.name} ({path})", "green")
    ranking = [
        {"settings": o.change, "score": o.score, "shares": o.shares, "tokens": o.mean_tokens}
        for o in report.ranking
    ]
    found = {**asdict(report), "ranking": ranking, "sha256": engine.model.sha256}
    output.json({"model": name, **found, "file": str(path)})
    return Exit.OK


class _Watch:
    """Shows how far it is: a line that is drawn over on a terminal, now and then one elsewhere."""

    def __init__(self, output: Output) -> None:
        self._output, self._said_at = output, time.monotonic()

    def __call__(self, what: str, left: float) -> None:
        text = f"{what}, about {duration(left)} left" if left else what
        self._output.progress.show(text)
        if not sys.stderr.isatty() and time.monotonic() - self._said_at > _LINE_EVERY:
            self._said_at = time.monotonic()
            self._output.aside.line(text)


def _show(report: Report, output: Output) -> None:
    tuned, questions = report.tuned, len(report.ranking[0].shares)
    output.line(f"settings by their score over {questions} questions, 0 to 1", "bold")
    for one in report.ranking:
        output.line(f"  {one.score:.3f}  {one.mean_tokens:>6,.0f} tokens  {shown(one.change)}")
    given = f"{tuned.rate:.0%} ({tuned.low:.0%} to {tuned.high:.0%}) right"
    output.line(f"{tuned.questions} fresh questions, in {duration(report.seconds)} in all", "bold")
    output.line(f"  {given} with {tuned.name}")
    if report.best:
        output.line(
            f"  {shown(report.best)} beside the default: {report.gained} gained, {report.lost} lost"
        )
