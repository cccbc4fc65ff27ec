"""``triplepoint bench``: a model's speed, also compared with llama.cpp."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from ....errors import SettingError
from ....jit.kernels.kvcache import key_format, value_format
from ....traces.sanitize import printable
from ...bench import runner as bench
from ...bench.compare import Baseline, Pair, PairedBenchmark
from ...bench.runner import PARTS, Result, cases
from ...engine.engine import Engine
from ...physics.machine import RooflineProbe
from ...physics.timed_passes import Case
from ..load_engine import load_engine
from ..output import Output
from ..tables import Column, Form, Row, between, limits_of, notes, now, percent, show, show_each
from .options import form_of


def run(args: argparse.Namespace, output: Output) -> None:
    """Measure prefill and decode speed; print each row as soon as it is measured."""
    form = form_of(args)
    todo = args.tests or cases(args.n_prompt, args.n_gen, args.n_depth)
    if not todo:
        raise SettingError("nothing to measure: all lengths are 0; set -p, -n or --tests")
    with load_engine(args, output) as engine:
        if args.compare or args.baseline_python:
            _against(args, output, form, engine, todo)
        else:
            _speed(args, output, form, engine, todo)


# --- a model's speed


def _speed(
    args: argparse.Namespace, output: Output, form: Form, engine: Engine, todo: Sequence[Case]
) -> None:
    limits = RooflineProbe(engine.loaded.library, engine.loaded.pool)
    results = bench.run(engine, todo, repeat=args.repetitions, limits=limits)
    model, target = engine.model, str(engine.target)
    columns: list[Column[Result]] = [
        Column("model", max(len(_model(engine)), 24), lambda _: _model(engine), is_text=True),
        Column("size", 10, lambda _: _size(model.nbytes)),
        Column("params", 9, lambda _: _count(model.parameters)),
        Column("backend", max(len(target), 10), lambda _: target, is_text=True),
        Column("threads", 7, lambda _: str(engine.threads)),
        Column("test", 15, lambda result: result.case.name),
        Column("t/s", 20, lambda result: f"{result.median:.2f} ± {result.spread:.2f}"),
        Column("min … max", 20, lambda result: between(result.rates)),
        Column("of limit", 12, lambda result: f"{percent(result.share)} {result.bound}"),
    ]
    found = show_each(output, form, columns, results, partial(_speed_values, engine))
    if form == "md":
        _breakdown(output, found)
        notes(output, engine.kv, args.repetitions, limits.samples)


def _speed_values(engine: Engine, result: Result) -> tuple[dict[str, Any], dict[str, Any]]:
    ns = [seconds * 1e9 for seconds in result.seconds]
    fields = {
        **_about(engine, result.case),
        "avg_ns": round(statistics.mean(ns)),
        "stddev_ns": round(statistics.stdev(ns)) if len(ns) > 1 else 0,
        "avg_ts": statistics.mean(result.rates),
        "stddev_ts": result.spread,
        "median_ts": result.median,
        "min_ts": min(result.rates),
        "max_ts": max(result.rates),
        "limit": result.bound,
        "limit_share": result.share,
        **_spent(result),
        **limits_of(result.limits),
    }
    return fields, _samples(result)


def _breakdown(output: Output, results: Sequence[Result]) -> None:
    """Print a second table: the shares of the threads' time in each row."""
    columns: list[Column[Any]] = [Column("test", 15), *(Column(part, 9) for part in PARTS)]
    rows = [Row((r.case.name, *(f"{r.spent[part]:.1%}" for part in PARTS)), {}) for r in results]
    output.line()
    show(output, "md", columns, rows)


# --- ours beside llama.cpp's


def _against(
    args: argparse.Namespace, output: Output, form: Form, engine: Engine, todo: Sequence[Case]
) -> None:
    limits = RooflineProbe(engine.loaded.library, engine.loaded.pool)
    with Baseline(args.baseline_python or sys.executable) as peer:
        contest = PairedBenchmark(engine, peer, todo, repeat=args.repetitions, limits=limits)
        columns: list[Column[Pair]] = [
            Column("test", 15, lambda m: m.case.name),
            Column("triplepoint t/s", 20, lambda m: f"{m.ours.median:.2f} ± {m.ours.spread:.2f}"),
            Column("llama.cpp t/s", 20, lambda m: f"{m.best.median:.2f} ± {m.best.spread:.2f}"),
            Column("its best setting", 18, lambda m: m.setting, is_text=True),
            Column("ratio", 12, lambda m: f"{m.ratio:.2f} ± {m.ratio_spread:.2f}"),
            Column("min … max", 13, lambda m: between(m.ratios)),
            Column("of limit", 12, lambda m: f"{percent(m.ours.share)} {m.ours.bound}"),
            Column("theirs", 6, lambda m: percent(m.best.share)),
        ]
        values = partial(_match_values, engine, peer.name)
        found = show_each(output, form, columns, contest.run(), values)
        if form == "md":
            _breakdown(output, [match.ours for match in found])
            output.line()
            name = (
                f"{_model(engine)}, {_size(engine.model.nbytes)}, {_count(engine.model.parameters)}"
            )
            output.line(f"{name}; {engine.target} against {peer.name}")
            output.line(f"its build: {printable(peer.system)}")
            notes(output, engine.kv, args.repetitions, limits.samples)
        if peer.idle_cpu_s > 0.1:
            output.error(f"the peer used {peer.idle_cpu_s:.1f} s of CPU while it was our turn")


def _match_values(engine: Engine, peer: str, match: Pair) -> tuple[dict[str, Any], dict[str, Any]]:
    ours, best = match.ours, match.best
    fields = {
        **_about(engine, match.case),
        "peer": peer,
        "peer_setting": match.setting,
        "median_ts": ours.median,
        "peer_median_ts": best.median,
        "ratio": match.ratio,
        "ratio_stddev": match.ratio_spread,
        "ratio_min": min(match.ratios),
        "ratio_max": max(match.ratios),
        "limit": ours.bound,
        "limit_share": ours.share,
        "peer_limit_share": best.share,
        **_spent(ours),
        **limits_of(ours.limits),
    }
    theirs = {name: _samples(result) for name, result in match.theirs.items()}
    return fields, {**_samples(ours), "samples_ratio": match.ratios, "theirs": theirs}


# --- what all have in common


def _about(engine: Engine, case: Case) -> dict[str, Any]:
    """Return the model, machine and test of a row, under llama-bench's names."""
    model = engine.model
    return {
        "model_filename": str(model.path),
        "model_type": _model(engine),
        "model_size": model.nbytes,
        "model_n_params": model.parameters,
        "cpu_info": engine.machine.cpu,
        "backends": str(engine.target),
        "n_threads": engine.threads,
        "type_k": key_format(engine.kv),
        "type_v": value_format(engine.kv),
        "n_prompt": case.prompt,
        "n_gen": case.generate,
        "n_depth": case.depth,
        "test_time": now(),
    }


def _samples(result: Result) -> dict[str, Any]:
    """Return the fields that only JSON has: every repetition."""
    return {
        "samples_ns": [round(seconds * 1e9) for seconds in result.seconds],
        "samples_ts": result.rates,
        "samples_limit_share": result.shares,
    }


def _spent(result: Result) -> dict[str, float]:
    """Return the shares of our threads' time, by field name."""
    return {f"share_{part}": share for part, share in result.spent.items()}


def _model(engine: Engine) -> str:
    model = engine.model
    return printable(f"{model.architecture} {model.name} {model.quant}".strip())


def _size(size: int) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def _count(parameters: int) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.2f} B"
    return f"{parameters / 1e6:.2f} M"
