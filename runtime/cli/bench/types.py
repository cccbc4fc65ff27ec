"""``triplepoint bench types``: a model's size, error and speed in each of several types."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from ...bench.weight_types import CHUNK, TypeResult, compare_types
from ...quantize.mixes import mix_of
from ..load_engine import load_engine
from ..output import Output
from ..tables import Column, between, megabytes, notes, rate, show_each
from .options import form_of


def run(args: argparse.Namespace, output: Output) -> None:
    """Quantize the model into a temporary folder; print a row for each type."""
    from ...physics.machine import RooflineProbe

    kinds = [mix_of(name).name for name in args.types]
    args.context = max(CHUNK, args.n_gen + 1)

    def load(path: Path):
        return load_engine(argparse.Namespace(**{**vars(args), "model": str(path)}), output)

    with load_engine(args, output) as base, tempfile.TemporaryDirectory() as folder:
        quant, limits = base.model.quant, RooflineProbe(base.loaded.library, base.loaded.pool)
        columns: list[Column[TypeResult]] = [
            Column("type", 12, lambda r: r.name or f"{quant}, as it is", is_text=True),
            Column("bits/weight", 11, lambda r: f"{8 * r.nbytes / r.parameters:.2f}"),
            Column("size", 10, lambda r: megabytes(r.nbytes)),
            Column("error", 7, lambda r: f"{r.error:.2%}"),
        ]
        if args.text:
            columns += [Column("perplexity", 16, _perplexity), Column("KL", 8, _divergence)]
        columns += [
            Column("decode t/s", 10, lambda r: rate(statistics.median(r.rates))),
            Column("min … max", 16, lambda r: between(r.rates)),
        ]
        before = limits.sample()
        results = compare_types(
            base, kinds, Path(folder), load, tokens=args.n_gen, repeat=args.repetitions,
            text=args.text, max_chunks=args.chunks,
        )  # fmt: skip
        show_each(output, form_of(args), columns, results, _values)
        if form_of(args) == "md":
            notes(output, base.kv, args.repetitions, [before, limits.sample()])
    if form_of(args) == "md":
        output.line(
            "error: root mean square of what the matrices are away from those of the model as it "
            "is, relative to their own; decode: rounds of all types in turns, "
            f"{args.n_gen} tokens each"
        )
        if not quant.startswith(("F", "BF")):
            output.line("the model was quantized already, and its own errors are not in these")


def _perplexity(result: TypeResult) -> str:
    found = result.perplexity
    return f"{found.value:.3f} ± {found.error:.3f}" if found else ""


def _divergence(result: TypeResult) -> str:
    found = result.perplexity.divergence if result.perplexity else None
    return f"{found.kl.value:.4f}" if found else ""


def _values(result: TypeResult) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = {
        "type": result.name,
        "bits_per_weight": 8 * result.nbytes / result.parameters,
        "nbytes": result.nbytes,
        "error": result.error,
        "median_ts": statistics.median(result.rates),
        "min_ts": min(result.rates),
        "max_ts": max(result.rates),
    }
    if result.perplexity:
        fields |= result.perplexity.as_dict()
    return fields, {"samples_ts": result.rates}
