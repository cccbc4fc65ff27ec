"""``python -m labs.bench.causal``: does the named bound move the time most?"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from triplepoint.runtime.cli.arguments import numbers
from triplepoint.runtime.cli.bench.options import BenchFormat, Depths, form_of
from triplepoint.runtime.cli.load_engine import engine_options, load_engine
from triplepoint.runtime.cli.option_groups import OptionGroup, argument
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import BUSY, Column, show_each

from .command import DEPTHS, fitting, run_command

if TYPE_CHECKING:
    from .causal_profile import Point

_COLUMNS: Sequence[Column[Point]] = (
    Column("tokens", 6, lambda p: f"{p.tokens:,}"),
    Column("KV", 6, lambda p: f"{p.start:,}"),
    Column("ms a pass", 9, lambda p: f"{p.seconds * 1e3:.3f}"),
    Column("MFU", 4, lambda p: f"{p.seen.mfu:.0%}"),
    Column("MBU", 4, lambda p: f"{p.seen.mbu:.0%}"),
    Column("dispatch", 8, lambda p: f"{p.seen.dispatch_share:.0%}"),
    Column("observed", 8, lambda p: p.seen.bound, is_text=True),
    Column("½ GEMMs", 10, lambda p: f"{-p.effects['compute']:+.1%}"),
    Column("½ bytes", 8, lambda p: f"{-p.effects['memory']:+.1%}"),
    Column("½ barriers", 10, lambda p: f"{-p.effects['dispatch']:+.1%}"),
    Column("noise", 6, lambda p: f"{max(p.noise.values()):.1%}"),
    Column("moves most", 10, lambda p: p.most, is_text=True),
    Column(
        "agrees",
        6,
        lambda p: "yes" if p.most == p.seen.bound else "tie" if p.agrees else "no",
        is_text=True,
    ),
)


class Passes(OptionGroup):
    """The passes."""

    causal: list[int] = argument(
        "N,…", nargs="?", type=numbers, default=[1, 2, 4, 8, 16, 64, 256, 1024, 4096]
    )
    """tokens per pass"""


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: passes and model."""
    depths = Depths.but(n_depth={"default": DEPTHS})
    for group in (Passes, engine_options(context=False), depths, BenchFormat):
        group.add_to(bench)


def run(args: argparse.Namespace, output: Output) -> int:
    """Calibrate, then measure each point; a row is printed as soon as it is known."""
    from triplepoint.runtime.engine.engine_timer import EngineTimer
    from triplepoint.runtime.physics.calibrate import calibrated
    from triplepoint.runtime.physics.calibration import busy

    from . import causal_profile

    form = form_of(args)
    with load_engine(args, output) as engine:
        points = fitting(product(args.causal, args.n_depth), engine, causal_profile.SINGLES)
        if busy(calibrated(EngineTimer(engine)), engine.machine):
            output.note(BUSY)
        found = show_each(output, form, _COLUMNS, causal_profile.measure(engine, points), _values)
    if form == "md":
        strictly = sum(point.most == point.seen.bound for point in found)
        agreeing = sum(point.agrees for point in found)
        dram = sorted(point.machine.read_gbps["DRAM"] for point in found)
        output.line()
        output.line(
            f"the observed bound changes the time most at {strictly} of {len(found)} points, and "
            f"at {agreeing} ({agreeing / len(found):.0%}) counting ties; a tie is within "
            f"{causal_profile.TIE:.0%} of the time or two standard errors"
        )
        output.line(f"DRAM reads during the run: {dram[0]:.0f} … {dram[-1]:.0f} GB/s")
    return 0


def _values(point: Point) -> tuple[dict[str, Any], dict[str, Any]]:
    from .causal_profile import as_fields

    fields = as_fields(point)
    return fields, {"rounds": fields.pop("rounds")}


if __name__ == "__main__":
    raise SystemExit(run_command("causal", add_options, run))
