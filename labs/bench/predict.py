"""``python -m labs.bench.predict``: the cost model's predictions, validated against the clock."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from triplepoint.runtime.cli.arguments import numbers
from triplepoint.runtime.cli.bench.options import Depths, common_options, form_of
from triplepoint.runtime.cli.load_engine import load_engine
from triplepoint.runtime.cli.option_groups import OptionGroup, argument
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import BUSY, Column, rate, show_each
from triplepoint.runtime.engine.passes.shared_pass import GOAL

from .command import DEPTHS, fitting, run_command

if TYPE_CHECKING:
    from triplepoint.runtime.bench.predictions import Checked
    from triplepoint.runtime.physics.calibration import Calibration

_COLUMNS: Sequence[Column[Checked]] = (
    Column("tokens", 6, lambda point: f"{point.tokens:,}"),
    Column("KV", 6, lambda point: f"{point.start:,}"),
    Column("expected ms", 11, lambda point: f"{point.expected.seconds * 1e3:.3f}"),
    Column("measured ms", 11, lambda point: f"{point.seconds * 1e3:.3f}"),
    Column("t/s", 9, lambda point: rate(point.tokens / point.seconds)),
    Column("error", 7, lambda point: f"{point.error:+.0%}"),
    Column("in trace", 8, lambda p: f"{median(p.phase_errors):+.0%}" if p.phase_errors else ""),
    Column("DRAM", 5, lambda point: f"{point.dram_gbps:.0f}"),
    Column("int8", 6, lambda point: f"{point.int8_gops:,.0f}"),
    Column("expected", 8, lambda point: point.expected.seen.bound, is_text=True),
    Column("observed", 8, lambda point: point.bound, is_text=True),
)


class Phases(OptionGroup):
    """The phases."""

    predict: list[int] = argument(
        "N,…", nargs="?", type=numbers, default=[1, 4, 16, 64, 256, 1024, 4096]
    )
    """tokens per phase"""


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: phases and model."""
    for group in (Phases, *common_options(), Depths.but(n_depth={"default": DEPTHS})):
        group.add_to(bench)


def run(args: argparse.Namespace, output: Output) -> int:
    """Calibrate, then predict and measure each point; a row is printed as soon as it is known."""
    from triplepoint.runtime.bench import predictions
    from triplepoint.runtime.engine.engine_timer import EngineTimer
    from triplepoint.runtime.physics.calibrate import DECODES, calibrated
    from triplepoint.runtime.physics.calibration import busy

    form = form_of(args)
    with load_engine(args, output) as engine:
        points = [(n, depth) for depth in args.n_depth for n in args.predict]
        points = fitting(points, engine, DECODES + 2)
        fitted = calibrated(EngineTimer(engine), recalibrate=True)
        if busy(fitted, engine.machine):
            output.note(BUSY)
        results = predictions.check(engine, fitted, points, args.repetitions)
        found = show_each(output, form, _COLUMNS, results, _values)
    if form == "md":
        _notes(output, fitted, found)
    return 0


def _values(point: Checked) -> tuple[dict[str, Any], dict[str, Any]]:
    from dataclasses import asdict

    fields = {
        "n_tokens": point.tokens,
        "n_depth": point.start,
        "expected_s": point.expected.seconds,
        "measured_s": point.seconds,
        "error": point.error,
        "phase_errors": point.phase_errors,
        "dram_gbps": point.dram_gbps,
        "int8_gops": point.int8_gops,
        "expected_bound": point.expected.seen.bound,
        "observed_bound": point.bound,
    }
    return fields, {"expected": asdict(point.expected)}


def _notes(output: Output, fitted: Calibration, found: Sequence[Checked]) -> None:
    """Note all errors together, and the inputs of the predictions."""
    output.line()
    texts = {
        "with the limits measured just before": [point.error for point in found],
        "of uncontended phases in traces": [e for point in found for e in point.phase_errors],
    }
    for name, signed in filter(lambda text: text[1], texts.items()):
        errors = sorted(map(abs, signed))
        ninth = errors[min(len(errors) - 1, round(0.9 * (len(errors) - 1)))]
        within = sum(error <= GOAL for error in errors)
        output.line(
            f"error {name}: median {median(errors):.1%}, 90th percentile {ninth:.1%}, "
            f"most {errors[-1]:.1%}; {within} of {len(errors)} within {GOAL:.0%}"
        )
    same = sum(point.expected.seen.bound == point.bound for point in found)
    output.line(f"bound as expected at {same} of {len(found)} points")
    e, m = fitted.efficiency, fitted.machine
    output.line(
        f"calibration: GEMMs read at {e.read:.0%} of {m.read_gbps['DRAM']:.1f} GB/s (DRAM) or "
        f"{m.read_gbps['L3']:.0f} GB/s (L3) and multiply at {e.products:.0%} of "
        f"{m.int8_gops:,.0f} GOP/s, "
        f"attention at {e.attention_read:.0%} and {e.attention:.0%} of {m.bf16_gflops:,.0f} "
        f"GFLOP/s; a pass costs as {e.extra_tokens:.1f} tokens more; elementwise "
        f"{e.row_s * 1e6:.2f} µs a token; a barrier {e.barrier_s * 1e6:.2f} µs, in decode "
        f"{e.decode_barrier_s * 1e6:.2f} µs; waiting "
        f"{e.waiting:.1%}"
    )


if __name__ == "__main__":
    raise SystemExit(run_command("predict", add_options, run))
