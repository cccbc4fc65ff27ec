"""Draws a run over its predicted regime map: tokens of a pass over KV length, log-log."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from .charts import HEIGHT, WIDTH, Axis, Plot, element, path, svg, titled
from .event_log import EventLog
from .events import PhaseEvent
from .spans import Leaf

_LETTERS = {"c": "compute", "m": "memory", "d": "dispatch"}  # of a header's map
_DENSE = 80  # phases from which on the line between them is fainter
_HALF = 1.19  # from the first value of the map to the edge of its cells, as a factor


def phase_diagram(trace: EventLog, leaves: Sequence[Leaf]) -> str:
    """Return the diagram as SVG; each mark has its leaf's number in ``data-leaf``."""
    points = [(n, one.event) for n, one in enumerate(leaves) if isinstance(one.event, PhaseEvent)]
    known = trace.header.regime_map if trace.header else {}
    sizes, kvs = _numbers(known.get("tokens")), _numbers(known.get("kv"))
    max_kv = 1.1 * max([64, *kvs, *(phase.kv_before for _, phase in points)])
    max_tokens = 1.3 * max([16, *sizes, *(_tokens(phase) for _, phase in points)])
    plot = Plot(
        Axis(0.75, max_kv, 52, WIDTH - 8, log=True, ticks=_decades(max_kv)),
        Axis(0.78, max_tokens, HEIGHT - 42, 8, log=True, ticks=_decades(max_tokens)),
    )
    bounds = known.get("bounds")
    if isinstance(bounds, list) and sizes and kvs:
        rows = [str(row)[: len(kvs)] for row in bounds[: len(sizes)]]
        cells = [[_LETTERS.get(letter, "unknown") for letter in row] for row in rows]
        ground = plot.heat(_edges(kvs, max_kv), _edges(sizes, max_tokens), cells)
        plot.parts += [element("path", kind=f"ground {kind}", d=d) for kind, d in ground.items()]
    plot.axes("tokens in the KV cache", "tokens in the pass")
    centers = [plot.place((max(p.kv_before, 1), _tokens(p))) for _, p in points]
    line = "path dense" if len(points) > _DENSE else "path"
    plot.parts.append(element("path", kind=line, d=path(centers) if centers else ""))
    for (n, phase), (x, y) in zip(points, centers, strict=True):
        words = f"{phase.purpose.replace('_', ' ')}: {phase.label}, {phase.tokens:,} tokens after "
        title = titled(f"{words}{phase.kv_before:,}")
        kind = f"dot point {phase.observed}"
        plot.parts.append(
            element("path", title, kind=kind, data_leaf=str(n), d=_shape(phase, x, y))
        )
    return svg(plot.parts, WIDTH, HEIGHT, "Phase diagram")


def _tokens(phase: PhaseEvent) -> float:
    return 1.0 if phase.phase == "decode" else max(phase.tokens / max(phase.passes, 1), 1.0)


def _numbers(value: Any) -> list[float]:
    """Return an axis of a map; empty where a trace has no valid one."""
    found = value if isinstance(value, list) else []
    good = all(isinstance(one, int | float) and 0 < one < math.inf for one in found)
    return found if good else []


def _decades(limit: float) -> list[float]:
    return [10.0**n for n in range(int(math.log10(limit)) + 1)]


def _edges(axis: Sequence[float], last: float) -> list[float]:
    """Return the cell edges, halfway between neighbors."""
    between = (math.sqrt(a * b) for a, b in itertools.pairwise(axis))
    return [axis[0] / _HALF, *between, last]


def _shape(phase: PhaseEvent, x: float, y: float) -> str:
    """Return a triangle, square or circle, so that bounds differ without colors."""
    if phase.observed == "compute":
        return f"M{x:.1f} {y - 5.5:.1f}l5 9.5h-10z"
    if phase.observed == "memory":
        return f"M{x - 4:.1f} {y - 4:.1f}h8v8h-8z"
    return f"M{x - 4.4:.1f} {y:.1f}a4.4 4.4 0 1 0 8.8 0a4.4 4.4 0 1 0 -8.8 0z"
