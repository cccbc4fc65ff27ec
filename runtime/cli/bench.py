"""``triplepoint bench``: prefill and decode speed, in llama-bench's table, CSV or JSON."""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...traces.text import printable
from .engines import load_engine
from .output import Output

if TYPE_CHECKING:
    from ..bench import Result
    from ..engine import Engine

HEADINGS = ("model", "size", "params", "backend", "threads", "test", "t/s")


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print; a row is printed as soon as it is known."""
    from .. import bench

    engine = load_engine(args, output)
    todo = bench.cases(args.n_prompt, args.n_gen, args.n_depth)
    results = bench.run(engine, todo, repeat=args.repetitions)
    form = "json" if args.json else args.output
    if form == "json":
        print(json.dumps([_fields(engine, r, samples=True) for r in results], indent=2))
    elif form == "csv":
        table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for number, result in enumerate(results):
            fields = _fields(engine, result)
            if number == 0:
                table.writerow(fields)
            table.writerow(fields.values())
            sys.stdout.flush()
    else:
        for line in _markdown(engine, results):
            output.line(line)
    engine.close()
    return 0


def _markdown(engine: Engine, results: Iterator[Result]) -> Iterator[str]:
    """The table's lines; columns have fixed widths because rows come one at a time."""
    model = engine.model
    name = printable(f"{model.architecture} {model.name} {model.quant}".strip())
    widths = (max(len(name), 24), 10, 9, max(len(str(engine.target)), 10), 7, 15, 20)
    cells = list(zip(HEADINGS, widths, strict=True))
    yield "| " + " | ".join(_place(i, text, width) for i, (text, width) in enumerate(cells)) + " |"
    rules = ("-" * w if _is_text(i) else "-" * (w - 1) + ":" for i, w in enumerate(widths))
    yield "| " + " | ".join(rules) + " |"
    fixed = (name, _size(model.path), _count(model.parameters), str(engine.target))
    for result in results:
        speed = f"{result.median:.2f} ± {result.spread:.2f}"
        row = (*fixed, str(engine.threads), result.case.name, speed)
        yield "| " + " | ".join(_place(i, row[i], widths[i]) for i in range(len(row))) + " |"


def _is_text(column: int) -> bool:
    return HEADINGS[column] in ("model", "backend")


def _place(column: int, text: str, width: int) -> str:
    return text.ljust(width) if _is_text(column) else text.rjust(width)


def _fields(engine: Engine, result: Result, *, samples: bool = False) -> dict[str, Any]:
    """One result under llama-bench's names; times in nanoseconds."""
    model, case = engine.model, result.case
    ns = [seconds * 1e9 for seconds in result.seconds]
    fields: dict[str, Any] = {
        "model_filename": str(model.path),
        "model_type": f"{model.architecture} {model.name} {model.quant}".strip(),
        "model_size": _bytes(model.path),
        "model_n_params": model.parameters,
        "cpu_info": engine.machine.cpu,
        "backends": str(engine.target),
        "n_threads": engine.threads,
        "type_k": engine.kv,
        "type_v": engine.kv,
        "n_prompt": case.prompt,
        "n_gen": case.generate,
        "n_depth": case.depth,
        "test_time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "avg_ns": round(statistics.mean(ns)),
        "stddev_ns": round(statistics.stdev(ns)) if len(ns) > 1 else 0,
        "avg_ts": statistics.mean(result.rates),
        "stddev_ts": result.spread,
    }
    if samples:
        fields["median_ts"] = result.median
        fields["samples_ns"] = [round(n) for n in ns]
        fields["samples_ts"] = result.rates
    return fields


def _bytes(path: str | Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # a model without a file of its own
        return 0


def _size(path: str | Path) -> str:
    size = _bytes(path)
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def _count(parameters: int) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.2f} B"
    return f"{parameters / 1e6:.2f} M"
