"""``python -m labs.bench.sweep``: a published article's tables, on this machine."""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from triplepoint.errors import SettingError
from triplepoint.runtime.cli.bench.options import common_options, form_of
from triplepoint.runtime.cli.load_engine import choose_model, load_engine
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import Column, Row, rate, show

from .command import run_command

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine

    from .sweep_points import Point

_FIRST = {
    "prompt": "prompt",
    "threads": "threads",
    "kv": "positions",
    "quant": "weights",
    "layers": "layer",
}
_UNDER = {
    "prompt": "Tokens/s; decode follows a prompt of that length.",
    "threads": "Tokens/s with a prompt of 1,000 tokens, or as many as the context holds.",
    "kv": "Attention for one tile of tokens, on all threads; the article used one core.",
    "quant": "Tokens/s of one shape. GEMMs run in int8 for every quantized format, so no format "
    "is better for prefill and worse for decode, unlike in the article: fewer bytes "
    "always help decode, and prefill pays only for unpacking.",
    "layers": "In the article, every ninth layer of a mixture took half the time of its neighbors "
    "because of routing; a dense model's layers are all alike.",
}


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: the swept quantity and the model."""
    bench.add_argument("sweep", choices=tuple(_FIRST), help="quantity to vary")
    for group in common_options():
        group.add_to(bench)


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure one sweep and print it, each figure also as a share of its column's largest."""
    from dataclasses import asdict

    form = form_of(args)
    points = list(_points(args, output))
    if not points:
        raise SettingError("nothing to measure: the model's context is too small for this sweep")
    if form == "json":
        fields = [asdict(p) for p in points]
        print(json.dumps(fields, indent=2))
        return 0
    ours, theirs = _names([p.values for p in points]), _names([p.article for p in points])
    columns = [Column(_FIRST[args.sweep], 9)]
    columns += [Column(name, 20) for name in ours] + [
        Column(f"article {name}", 20) for name in theirs
    ]
    columns.append(Column("note", max(len(p.note) for p in points), is_text=True))
    rows = [
        Row(
            (
                p.label,
                *(_cell(name, p.values, [q.values for q in points]) for name in ours),
                *(_cell(name, p.article, [q.article for q in points]) for name in theirs),
                p.note,
            ),
            {
                "label": p.label,
                **{name: p.values.get(name, "") for name in ours},
                **{f"article {name}": p.article.get(name, "") for name in theirs},
            },
        )
        for p in points
    ]
    show(output, form, columns, rows)
    if form == "md":
        output.line()
        output.line(_UNDER[args.sweep])
        if theirs:
            output.line(
                "The article's columns are Qwen3-30B-A3B in Q4 on other machines: compare the "
                "shares of each column's maximum, in parentheses."
            )
    return 0


def _points(args: argparse.Namespace, output: Output) -> Iterator[Point]:
    from triplepoint.runtime.physics.machine import physical_cores, usable_cores
    from triplepoint.runtime.physics.thread_sweep import thread_counts

    from . import sweep_points as sweeps

    def with_(**changes: object) -> Engine:
        changed = copy.copy(args)
        for name, value in changes.items():
            setattr(changed, name, value)
        return load_engine(changed, output)

    repeat = args.repetitions
    if args.sweep == "threads":
        counts = [args.threads] if args.threads else thread_counts(physical_cores(), usable_cores())
        yield from sweeps.by_threads(lambda n: with_(threads=n), counts, repeat)
        return
    if args.sweep == "quant":
        parts = choose_model(args).split(":")
        if parts[0] != "synthetic" or len(parts) < 3:
            raise SettingError(
                f"-m {args.model}: `sweep quant` needs a synthetic model, which can be "
                "made in every format; give one such as -m synthetic:qwen3-0.6b:q4_0"
            )
        names = {q: ":".join([*parts[:2], q, *parts[3:]]) for q in sweeps.QUANTS}
        yield from sweeps.by_quant(lambda q: with_(model=names[q]), sweeps.QUANTS, repeat)
        return
    with load_engine(args, output) as engine:
        sweep = {"prompt": sweeps.by_prompt, "kv": sweeps.by_kv, "layers": sweeps.by_layer}
        yield from sweep[args.sweep](engine, repeat)


def _names(rows: Sequence[Mapping[str, float]]) -> list[str]:
    """Return every name, in the order of the first row that has it."""
    found: dict[str, None] = {}
    for row in rows:
        found |= dict.fromkeys(row)
    return list(found)


def _cell(name: str, row: Mapping[str, float], rows: Sequence[Mapping[str, float]]) -> str:
    """Format a figure and its share of the column's largest."""
    if name not in row:
        return ""
    largest = max(other[name] for other in rows if name in other)
    return f"{rate(row[name])} ({row[name] / largest:.2f})" if largest else rate(row[name])


if __name__ == "__main__":
    raise SystemExit(run_command("sweep", add_options, run))
