"""``python -m labs.bench.ablation``: the chosen settings compared with fixed ones."""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triplepoint.errors import SettingError
from triplepoint.runtime.cli.bench.options import (
    Tests,
    common_options,
    form_of,
    tests,
)
from triplepoint.runtime.cli.load_engine import load_engine
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import Column, rate, show_each

from .command import run_command

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.physics.timed_passes import Case

    from .fixed_settings import Ablation, AgentRun, Compared

BETTER = 1.03  # of the policy's speed: what a fixed setting may reach


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: settings, workload, model."""
    bench.add_argument(
        "settings",
        nargs="?",
        type=lambda text: text.split(","),
        default=["threads", "chunk", "kv_split", "spin", "pages"],
        metavar="SETTING,…",
        help="settings to fix: threads, chunk, kv_split, spin, pages, tile, max_single_tile "
        "(default: all but the last two)",
    )
    text = "tests by name, such as pp36,tg32@1024 (default: decodes and prefills of all sizes)"
    for group in (*common_options(), Tests.but(tests={"help": text})):
        group.add_to(bench)
    bench.add_argument("--workload", metavar="TRACE", help="also time this trace's phases")


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print; a row is printed as soon as it is known."""
    from .fixed_settings import GROUPS, POLICY, TESTS, Ablation

    form = form_of(args)
    if wrong := set(args.settings) - set(GROUPS):
        raise SettingError(f"no such setting: {min(wrong)}; choose from {', '.join(GROUPS)}")
    cases: list[Case | AgentRun] = list(args.tests or tests(TESTS))

    def load(given: Mapping[str, Any]) -> Engine:
        changed = copy.copy(args)
        changed.tune = [*(args.tune or ()), *given.items()]
        return load_engine(changed, output)

    runs = [_schedule(args.workload)] if args.workload else []
    cases += runs
    ablation = Ablation(load, cases, args.settings)
    try:
        _check(cases if args.tests else runs, ablation, output)
        if not ablation.cases:
            raise SettingError(
                "nothing to measure: the context is too small for these tests; choose shorter "
                "ones with --tests"
            )
        fixed = [name for name in ablation.names if name != POLICY]
        columns: list[Column[Compared]] = [
            Column("test", 15, lambda one: one.name),
            Column("chosen t/s", 12, lambda one: rate(one.rate)),
            *(Column(name, 11, partial(_next_to_chosen, name)) for name in fixed),
        ]
        results = ablation.run(args.repetitions)
        found = show_each(output, form, columns, results, lambda one: _values(one, fixed))
        if form == "md":
            _notes(output, ablation, found, fixed, args.repetitions)
    finally:
        ablation.close()
    return 0


def _check(workload: Sequence[Case | AgentRun], ablation: Ablation, output: Output) -> None:
    """Report what of a run does not fit the context, and refuse what does not fit at all.

    Raises:
        SettingError: something does not.
    """
    measured = {case.name: case for case in ablation.cases}
    within = f"a context of {ablation.context:,}"
    for case in workload:
        if case.name not in measured:
            raise SettingError(f"{case.name} does not fit {within}; choose shorter tests")
        if (fits := measured[case.name].tokens) < case.tokens:
            output.note(f"{case.name}: its first {fits:,} of {case.tokens:,} tokens fit {within}")


def _schedule(name: str) -> AgentRun:
    from triplepoint.traces.reader import Trace

    from .fixed_settings import AgentRun

    trace = Trace.load(name)
    return AgentRun.of(trace, f"run {Path(name).stem}")


def _next_to_chosen(name: str, compared: Compared) -> str:
    return f"{compared.ratio(name):.2f} ± {compared.spread(name):.2f}"


def _values(compared: Compared, fixed: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = {
        "test": compared.name,
        "chosen_ts": compared.rate,
        **{name: compared.ratio(name) for name in fixed},
        **{f"{name} spread": compared.spread(name) for name in fixed},
    }
    return fields, {"seconds": compared.seconds}


def _notes(
    output: Output, ablation: Ablation, found: list[Compared], fixed: list[str], repeat: int
) -> None:
    from triplepoint.traces.timeline import duration

    output.line()
    output.line(
        f"Speed relative to the automatic settings: medians of {repeat} rounds ± half the "
        "interquartile range. Above 1, the fixed setting is faster."
    )
    tuning = ablation.policy
    chosen = {name: setting["value"] for name, setting in tuning.describe().items()}
    chosen["spin_s"] = duration(tuning.spin)
    output.line("chosen: " + ", ".join(f"{name} {value}" for name, value in chosen.items()))
    for compared in found:
        better = [n for n in fixed if compared.ratio(n) - compared.spread(n) > BETTER]
        if better:
            output.line(f"{compared.name}: faster by more than 3 %: {', '.join(better)}", "yellow")


if __name__ == "__main__":
    raise SystemExit(run_command("ablation", add_options, run))
