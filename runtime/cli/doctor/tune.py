"""``triplepoint doctor --agent``: which settings of the harness suit a model file."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path

from ....errors import SettingError
from ...agent.harness.defaults import is_bare
from ...agent.harness.tuned import keep, shown
from ...suites.harness_tuning import HarnessTuner, Report
from ..load_engine import choose_model, is_server, load_engine
from ..output import Output


def run(args: argparse.Namespace, output: Output) -> None:
    """Tune the harness for a model file, show the result, and save it at the end."""
    if is_server(choose_model(args)):
        raise SettingError(
            "the model runs on a server, which does not say how likely it finds a text; only the "
            "harness of a model file can be tuned"
        )
    args.target = args.kv = None
    output.interruption = "interrupted; the harness's settings are as they were"
    with load_engine(args, output) as engine, tempfile.TemporaryDirectory() as folder:
        if is_bare(engine):
            raise SettingError(f"{engine.model.name} was trained on the bare loop; nothing to tune")
        name, digest = engine.model.name, engine.model.sha256
        say, show = output.aside.line, output.progress.show
        say(f"tuning the harness for {name}, in {args.minutes} min if the machine allows")
        with output.progress:
            report = HarnessTuner(engine, Path(folder), args.minutes, say, show).run()
        keep(digest, report.tuned)
    _show(report, output)
    output.json({"model": name, "sha256": digest, **asdict(report)})


def _show(report: Report, output: Output) -> None:
    best, tuned = report.ranking[0], report.tuned
    output.line(f"settings by score over {len(best.shares)} questions; tokens of a prompt", "bold")
    for one in report.ranking:
        mean = sum(one.tokens) / len(one.tokens)
        output.line(f"  {one.score:.3f}  {mean:>6,.0f}  {shown(one.change)}")
    gained, lost = (sum(pair == p for p in report.pairs) for pair in ((True, False), (False, True)))
    output.line(f"{shown(best.change)} beside the default: {gained} gained, {lost} lost")
    output.line(f"kept for this file: {tuned.text}", "green")
