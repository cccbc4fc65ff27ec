"""``triplepoint regimes``: the phase diagram of a model on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...errors import EngineError, SettingError
from ...traces.find import resolve
from ...traces.reader import Trace
from ...traces.sanitize import printable
from ..bench import predictions
from ..engine.engine import Engine
from ..engine.engine_timer import EngineTimer
from ..forward.logits import ROWS
from ..physics.calibrate import DECODES, calibrated
from ..physics.calibration import Calibration, busy
from ..physics.costs import ModelCost
from ..regimes.blocks import blocks
from ..regimes.diagram import BOUNDS, Diagram, Picture, Step, diagram, steps
from ..regimes.facts import experts_touched, kind_of, short_facts
from ..regimes.html import regimes_page
from ..regimes.svg import side_by_side, svg
from .atomic_write import atomic_write, check_outputs
from .load_engine import (
    load_engine,
)
from .output import Output
from .tables import BUSY
from .traces import default_folder

_STYLES = {
    "compute": "black on #ee7f2d",
    "memory": "black on #3f9fd8",
    "dispatch": "black on #d678ac",
}
RECALIBRATE = (
    "runs on a quiet machine may differ; when it is quiet, measure again with --recalibrate"
)
_TITLE = "The regimes of "
_ONE_REGION = 0.95  # share of the plane; on a quiet machine no model has one region alone
_COLUMNS = 100  # of the terminal's picture, at most
_LEAST_CONTEXT = 3  # two sizes of phases and two lengths of the cache make a plane
_MEASURED = ((1, 8, 64, 512), (0, 256, 1024, 4096))  # tokens and KV lengths of --measure


def run(args: argparse.Namespace, output: Output) -> int:
    """Calibrate the model if necessary, and draw the diagram."""
    kind = _kind(args.output)
    check_outputs(args.output)
    if args.beside and (kind == "html" or args.run):
        what = "a run" if args.run else "an .html page"
        raise SettingError(
            f"--beside draws only diagrams, as .svg; it cannot be combined with {what}"
        )
    if args.context is not None and args.context < _LEAST_CONTEXT:
        raise SettingError(f"--context: a diagram needs {_LEAST_CONTEXT} tokens or more")
    recorded, path = _steps(args.run)
    drawn: list[tuple[Picture, Calibration]] = []
    for model in (args.model, *(args.beside or ())):
        one = argparse.Namespace(**{**vars(args), "model": model})
        engine = load_engine(one, output)
        try:
            drawn.append(_picture(one, output, engine, path))
            if recorded not in ("", engine.model.name):
                output.note(f"the run is of {recorded}, the diagram of {engine.model.name}")
        finally:
            engine.close()
    pictures = [picture for picture, _ in drawn]
    if args.output:
        with atomic_write(args.output) as file:
            file.write(_drawing(pictures, kind))
    for picture in pictures:
        _show(output, picture)
    if args.output:
        output.line(args.output)
    documents = [_document(picture, found) for picture, found in drawn]
    output.json({**documents[0], "beside": documents[1:]} if args.beside else documents[0])
    return 0


def _drawing(pictures: Sequence[Picture], kind: str) -> str:
    """Return the SVG or HTML text of the file."""
    if len(pictures) == 1:
        return svg(pictures[0]) if kind == "svg" else regimes_page(pictures[0])
    names: list[str] = []
    told: list[Picture] = []
    for one in pictures:
        assert one.cost is not None, "it was drawn from it"
        name = one.title.removeprefix(_TITLE)
        names.append(f"{kind_of(one.cost)}: {name}, {one.cost.layers} layers")
        told.append(replace(one, notes=short_facts(one.cost)))
    machine = pictures[0].notes[0].partition("  ·  ")[2]
    return side_by_side(f"{machine}; {pictures[0].notes[1]}", names, told)


def _kind(name: str | None) -> str:
    """Return ``svg`` or ``html``, by a file's suffix.

    Raises:
        SettingError: neither; a PNG would need a renderer that is not part of this.
    """
    if name is None:
        return ""
    kind = Path(name).suffix.lower().lstrip(".")
    if kind == "png":
        raise SettingError(f"-o {name}: cannot write PNG; write an .svg file and convert it")
    if kind not in ("svg", "html"):
        raise SettingError(f"-o {name}: the file name must end in .svg or .html")
    return kind


def _steps(name: str | None) -> tuple[str, list[Step]]:
    """Return the model of a trace's last run, and the steps of the run to draw."""
    if name is None:
        return "", []
    trace = Trace.load(resolve(name, default_folder()))
    last = (trace.runs or [trace])[-1]
    found = steps(last)
    if not found:
        raise EngineError(f"{name}: the trace has no phase measured by a local engine")
    return last.header.model.name if last.header else "", found


def _picture(
    args: argparse.Namespace, output: Output, engine: Engine, path: list[Step]
) -> tuple[Picture, Calibration]:
    found = calibrated(EngineTimer(engine), recalibrate=args.recalibrate)
    drawn = diagram(engine.loaded.cost, found, engine.context)
    if busy(found, engine.machine) or drawn.largest() > _ONE_REGION:
        output.note(f"the calibration looks disturbed: {BUSY}; {RECALIBRATE}")
    batches = _batches(args.batch or (), engine, found)
    measured: list[Any] = []
    if args.measure:
        room = engine.context - DECODES - 2
        points = [(s, p) for s in _MEASURED[0] for p in _MEASURED[1] if s + p < room]
        measured = list(predictions.check(engine, found, points))
    model, machine = engine.model, found.machine
    name = model.name.removeprefix("synthetic ")
    notes = [
        f"{model.architecture} {model.quant}, {model.parameters / 1e6:,.0f} M parameters, "
        f"{engine.kv} KV cache  ·  {machine.cpu}, {machine.threads} threads, {engine.target}",
        f"int8 {machine.int8_gops:,.0f} GOP/s, bf16 {machine.bf16_gflops:,.0f} GFLOP/s, read "
        f"L3 {machine.read_gbps['L3']:,.0f} and DRAM {machine.read_gbps['DRAM']:,.0f} GB/s, "
        f"measured {found.date[:10]}",
    ]
    return Picture(
        f"{_TITLE}{name}", notes, drawn, path, measured, batches, engine.loaded.cost
    ), found


def _batches(sizes: Iterable[int], engine: Engine, found: Calibration) -> list[Diagram]:
    """Return a diagram for each batch size.

    Raises:
        SettingError: a pass does not hold so many.
    """
    if bad := [size for size in sizes if not 1 <= size <= ROWS]:
        raise SettingError(f"a batch has 1 to {ROWS} sequences, not {bad[0]}")
    return [diagram(engine.loaded.cost, found, engine.context, size) for size in sizes]


def _show(output: Output, picture: Picture) -> None:
    """Print the picture as blocks, and a legend."""
    if output.as_json:
        return
    width = min(_COLUMNS, output.console.width) if output.on_terminal else _COLUMNS
    output.line(picture.title, "bold")
    for note in picture.notes:
        output.line(note)
    output.line()
    output.line("new tokens")
    for line in blocks(picture, width):
        if not output.in_color:
            output.line("".join(text for text, _ in line).rstrip())
            continue
        for text, bound in line:
            mark = text if text not in ("c", "m", "d") else " "
            output.piece(mark if bound else text, _STYLES.get(bound, ""))
        output.end_line()
    output.line(f"{'positions in the KV cache before the pass':>{width}}")
    for bound, style in _STYLES.items():
        output.piece(f" {bound[0]} ", style)
        output.piece(f" {bound}-bound   ")
    output.line()
    for kv, tokens in picture.diagram.triple_points():
        output.line(f"* triple point: {2**tokens:.0f} tokens at context {2**kv:,.0f}")
    if picture.cost is not None:
        from ..regimes.facts import facts

        for line in facts(picture.cost):
            output.line(line)
    for line in _by_batch(picture.batches, picture.cost):
        output.line(line)
    for n, step in enumerate(picture.path):
        if step.number:
            before = picture.path[n - 1].observed
            output.line(
                f"{step.number} {before} → {step.observed}: {step.purpose.replace('_', ' ')}, "
                f"{step.tokens:,} tokens at context {step.kv_before:,}, {step.rate:,.0f} tok/s"
            )
    for point in picture.measured:
        output.line(
            f"measured: {point.tokens:,} tokens at context {point.start:,}: "
            f"{point.tokens / point.seconds:,.0f} tok/s, {point.bound}; "
            f"expected {point.expected.tokens_per_s:,.0f}, {point.expected.seen.bound}"
        )


def _by_batch(batches: Sequence[Diagram], cost: ModelCost | None) -> Iterator[str]:
    """Yield a line for each batch size: the share of the plane that each bound has.

    It also shows, for a decode step, the experts that a layer reads for all sequences, and their
    states.
    """
    if batches:
        yield "sequences   memory  compute  dispatch   decode, all of them"
    for d in batches:
        parts = [f"{d.region(bound):>8.0%}" for bound in ("memory", "compute", "dispatch")]
        leads = ("compute", "memory", "dispatch")[int(d.bounds()[0, 0])]
        more = ""
        if cost is not None and cost.experts:
            more += f", {experts_touched(cost, d.batch):,.1f} of {cost.experts} experts a layer"
        if cost is not None and cost.state_bytes:
            more += f", {d.batch * cost.state_bytes / 2**20:,.3g} MiB of states"
        yield f"{d.batch:>9} {' '.join(parts)}   {d.rates[0, 0]:,.0f} tok/s, {leads}-bound{more}"


def _grid(d: Diagram) -> dict[str, Any]:
    """Return the bounds of each row of the grid, as letters, and its rates."""
    return {
        "bounds": ["".join("cmd "[b] if b >= 0 else " " for b in row) for row in d.bounds()],
        "tokens_per_s": [[float(f"{r:.4g}") for r in row] for row in d.rates],
    }


def _document(picture: Picture, found: Calibration) -> dict[str, Any]:
    """Return the grid and the lines as numbers, for ``--json``."""
    d, cost = picture.diagram, picture.cost
    return {
        "title": printable(picture.title),
        "kv_bytes": cost.kv_bytes if cost else None,
        "state_bytes": cost.state_bytes if cost else None,
        "calibration": asdict(found),
        "kv": [round(float(2**x), 2) for x in d.kv],
        "tokens": [round(float(2**y), 2) for y in d.tokens],
        **_grid(d),
        "triple_points": [
            {"kv": round(2**kv, 1), "tokens": round(2**tokens, 1)}
            for kv, tokens in d.triple_points()
        ],
        "batches": [
            {
                "batch": d.batch,
                "experts": experts_touched(cost, d.batch) if cost and cost.experts else None,
                "regions": {bound: round(d.region(bound), 4) for bound in BOUNDS},
                **_grid(d),
            }
            for d in picture.batches
        ],
        "run": [asdict(step) for step in picture.path],
        "measured": [
            {
                "tokens": point.tokens,
                "kv": point.start,
                "seconds": point.seconds,
                "bound": point.bound,
                "expected_s": point.expected.seconds,
                "expected_bound": point.expected.seen.bound,
            }
            for point in picture.measured
        ],
    }
