"""``python -m labs.bench.kernels``: each kernel alone, at the shapes of real models."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from triplepoint.runtime.cli.bench.options import BenchFormat, Repetitions, form_of
from triplepoint.runtime.cli.make.options import ConversionOptions
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import Column, limits_of, notes, percent, rate, show_each

from .command import run_command

if TYPE_CHECKING:
    from .kernel_times import KernelResult


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: the kernels and their inputs."""
    bench.add_argument(
        "kernels",
        nargs="?",
        type=lambda text: text.split(","),
        default=[],
        metavar="NAME,…",
        help="gemm, experts, attention, prepare, rope, argmax (default: all)",
    )
    ConversionOptions.only("threads").add_to(bench)
    bench.add_argument(
        "--target",
        metavar="T",
        help="CPU target, e.g. avx2, or all that run here (default: the best)",
    )
    Repetitions.add_to(bench)
    BenchFormat.add_to(bench)


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print; a row is printed as soon as it is known."""
    from triplepoint.jit import targets

    from . import kernel_times

    form = form_of(args)
    name = args.target or os.environ.get("TRIPLEPOINT_TARGET")
    chosen = targets.runnable() if name == "all" else [targets.chosen(args.target)]
    results = (
        result
        for target in reversed(chosen)
        for result in kernel_times.run(
            target, threads=args.threads, kernels=args.kernels, repeat=args.repetitions
        )
    )
    columns: list[Column[KernelResult]] = [
        Column("backend", max(len(str(one)) for one in chosen), lambda r: r.target, is_text=True),
        Column("kernel", 9, lambda r: r.work.kernel, is_text=True),
        Column("data", 5, lambda r: r.work.variant, is_text=True),
        Column("shape", 15, lambda r: r.work.shape, is_text=True),
        Column("tokens", 6, lambda r: str(r.work.tokens)),
        Column("depth", 5, lambda r: str(r.work.depth)),
        Column("µs", 10, lambda r: rate(r.median * 1e6)),
        Column("GOP/s", 6, lambda r: rate(r.gops) if r.work.operations else ""),
        Column("GB/s", 6, lambda r: rate(r.gbps)),
        Column("of limit", 11, lambda r: f"{percent(r.share)} {r.bound}"),
        Column("min … max", 13, lambda r: f"{percent(min(r.shares))} … {percent(max(r.shares))}"),
    ]
    found = show_each(output, form, columns, results, _values)
    if form == "md":
        for target in reversed(chosen):
            samples = [p for r in found if r.target == str(target) for p in r.limits]
            notes(output, "", args.repetitions, samples)
    return 0


def _values(result: KernelResult) -> tuple[dict[str, Any], dict[str, Any]]:
    work, shares = result.work, result.shares
    fields = {
        "backends": result.target,
        "n_threads": result.threads,
        "kernel": work.kernel,
        "data": work.variant,
        "shape": work.shape,
        "n_tokens": work.tokens,
        "n_depth": work.depth,
        "median_ns": result.median * 1e9,
        "gops": result.gops,
        "gbps": result.gbps,
        "limit": result.bound,
        "limit_share": result.share,
        "limit_share_min": min(shares),
        "limit_share_max": max(shares),
        **limits_of(result.limits),
    }
    samples = {"samples_ns": [s * 1e9 for s in result.seconds], "samples_limit_share": shares}
    return fields, samples


if __name__ == "__main__":
    raise SystemExit(run_command("kernels", add_options, run))
