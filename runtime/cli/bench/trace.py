"""``triplepoint bench trace``: the work of a recorded run as a benchmark."""

from __future__ import annotations

import argparse
from functools import partial
from statistics import median
from typing import Any

from ....jit.kernels.kvcache import key_format, value_format
from ....traces.sanitize import printable, short
from ....traces.timeline import duration
from ...engine.engine import Engine
from ...physics.machine import RooflineProbe
from ...replay import workload
from ...replay.timing import Timed, measure
from ..engine_from_trace import engine_of, load_trace, positions_for
from ..output import Output
from ..tables import Column, between, notes, percent, rate, show_each
from .options import form_of


def run(args: argparse.Namespace, output: Output) -> None:
    """Repeat the recorded work and print a row for each phase, then the sums."""
    trace = load_trace(args.trace)
    chosen, header = workload.chosen_run(trace, -1)
    context = positions_for(header, workload.work_items(chosen), args.model)
    engine, remarks = engine_of(header, args, output, context)
    with engine:
        for remark in remarks:
            output.note(remark)
        limits = RooflineProbe(engine.loaded.library, engine.loaded.pool)
        found = measure(trace, engine, repeat=args.repetitions, between=limits.sample)
        columns: list[Column[Timed]] = [
            Column("phase", 18, lambda timed: short(timed.name, 40), is_text=True),
            Column("tokens", 6, lambda timed: f"{timed.tokens:,}"),
            Column("KV before", 9, lambda timed: "" if timed.kv is None else f"{timed.kv:,}"),
            Column("time", 8, lambda timed: duration(median(timed.seconds))),
            Column("t/s", 16, lambda timed: f"{rate(timed.median)} ± {rate(timed.spread)}"),
            Column("min … max", 16, lambda timed: between(timed.rates)),
            Column("regime", 24, lambda timed: timed.regime, is_text=True),
            Column("of limit", 8, lambda t: "" if t.share is None else percent(t.share)),
        ]
        show_each(output, form_of(args), columns, found, partial(_values, engine, args.trace))
        if form_of(args) == "md":
            output.line()
            model = engine.model
            recorded = "" if model.sha256 == header.model.sha256 else f", of {header.model.name}"
            output.line(f"{printable(args.trace)}{recorded}, on {model.name} {model.quant}")
            notes(output, engine.kv, args.repetitions, limits.samples)


def _values(engine: Engine, name: str, timed: Timed) -> tuple[dict[str, Any], dict[str, Any]]:
    model = engine.model
    fields: dict[str, Any] = {
        "trace": name,
        "model_filename": str(model.path),
        "model_type": f"{model.architecture} {model.name} {model.quant}".strip(),
        "cpu_info": engine.machine.cpu,
        "backends": str(engine.target),
        "n_threads": engine.threads,
        "type_k": key_format(engine.kv),
        "type_v": value_format(engine.kv),
        "phase": timed.name,
        "kind": timed.kind,
        "n_tokens": timed.tokens,
        "n_depth": timed.kv,
        "median_ns": round(median(timed.seconds) * 1e9),
        "median_ts": timed.median,
        "stddev_ts": timed.spread,
        "min_ts": min(timed.rates),
        "max_ts": max(timed.rates),
        "regime": timed.regime,
        "limit_share": timed.share,
    }
    samples = {"samples_ns": [round(s * 1e9) for s in timed.seconds], "samples_ts": timed.rates}
    return fields, samples
