"""The phase diagram as SVG: one diagram, or several side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from ...traces.charts import Axis, Plot, Point, document, element, path, text, titled
from .diagram import BOUNDS, Diagram, Line, Picture, Step, tick_label, ticks

WORDS = {
    "compute": "arithmetic is the limit",
    "memory": "reading is the limit",
    "dispatch": "barriers and waiting",
}
WIDTH, HEIGHT = 1200, 760
LEFT, TOP, RIGHT, BOTTOM = 66, 118, 1180, 700
SHADES = 12  # of each color: the nearer a boundary, the duller
LOW = 2**-0.45  # tokens at the bottom: a little room below one, for runs of single ones


def svg(picture: Picture) -> str:
    """Render a picture as an SVG file."""
    notes = (text(LEFT, 70 + 19 * n, note) for n, note in enumerate(picture.notes))
    parts = [text(LEFT, 44, picture.title, "title"), *notes]
    parts += drawing(picture, (LEFT, TOP, RIGHT, BOTTOM)).parts
    return document(parts, WIDTH, HEIGHT, picture.title, picture.notes)


def side_by_side(title: str, kinds: Sequence[str], pictures: Sequence[Picture]) -> str:
    """Render several pictures as one SVG file, each under its name and its notes."""
    each, gap, top, height = 366, 26, 128, 330
    parts = [text(LEFT, 28, title)]
    for n, (kind, picture) in enumerate(zip(kinds, pictures, strict=True)):
        left = LEFT + n * (each + gap)
        parts.append(text(left, 62, kind, "title"))
        parts += [text(left, 84 + 18 * row, note) for row, note in enumerate(picture.notes)]
        box = (left, top, left + each, top + height)
        parts += drawing(picture, box, str(n), first=not n).parts
    width = LEFT + len(pictures) * (each + gap)
    return document(parts, width, top + height + 50, title, kinds)


def drawing(
    picture: Picture, box: tuple[float, float, float, float], name: str = "", *, first: bool = True
) -> Plot:
    """Draw the diagram into a box of left, top, right and bottom.

    Args:
        name: distinguishes its clips from those of others in the document.
        first: of those side by side, which has the names of the upper axis.
    """
    d = picture.diagram
    left, top, right, bottom = box
    max_kv, max_tokens = float(2 ** d.kv[-1]), float(2 ** d.tokens[-1])
    kvs, sizes = ticks(max_kv), ticks(max_tokens)
    plot = Plot(
        Axis(1.0, max_kv, left, right, log=True, ticks=kvs, label=tick_label),
        Axis(LOW, max_tokens, bottom, top, log=True, ticks=sizes, label=tick_label),
    )
    plot.axes("positions in the KV cache before the pass", "new tokens" if first else "")
    for x, y in _along(picture.path, plot):
        plot.take(x, y)
    triples = [(point, _log2(plot, point)) for point in d.triple_points()]
    for _, (x, y) in triples:
        plot.take(x, y, 12, 12)
    fits = element("path", d=_inside(d, plot))
    plot.parts += [element("clipPath", fits, id=f"fits{name}"), f'<g clip-path="url(#fits{name})">']
    _ground(d, plot)
    figures = [*_contours(d, plot), *_batches(picture.batches, plot)]
    plot.parts += [element("path", kind="edge", d=_paths(d.boundaries(), plot)), "</g>"]
    for _, (x, y) in triples[:1]:
        around = [(x + dx, y + dy) for dy in (-24, 24, 0) for dx in (66, -66, 0)]
        plot.label(around, "triple point", "over strong")
    _names(d, plot)
    for points, words in figures:
        plot.label(points, words)
    _measured(picture, plot)
    _path(picture.path, plot)
    for (kv, tokens), (x, y) in triples:
        words = (
            f"{2**tokens:.0f} tokens at context {2**kv:,.0f}: compute, memory and dispatch equal"
        )
        plot.parts.append(element("circle", titled(words), kind="ring", cx=x, cy=y, r=8))
    return plot


def _log2(plot: Plot, point: Point) -> Point:
    """Return where a point of the diagram is, given log2 of both lengths."""
    return plot.place((2 ** point[0], 2 ** point[1]))


def _paths(lines: Sequence[Line], plot: Plot) -> str:
    return "".join(path(_log2(plot, point) for point in line) for line in lines)


def _inside(d: Diagram, plot: Plot) -> str:
    """Return the outline of what fits the context: tokens and positions are at most as many."""
    kvs = np.logspace(0.0, float(d.kv[-1]), 160, base=2).tolist()
    edge = [plot.place((kv, max(1.0, d.context - kv))) for kv in kvs]
    corners = [(plot.left, plot.bottom), (plot.left, plot.top)]
    return path([*corners, *edge, (plot.right, plot.bottom)]) + "z"


def _ground(d: Diagram, plot: Plot) -> None:
    shade = np.clip(np.ceil(np.sqrt(np.clip(d.lead(), 0, 1)) * SHADES), 1, SHADES).astype(int)
    cells = np.argmax(d.shares, axis=0) * 100 + shade
    middles = (2 ** ((axis[1:] + axis[:-1]) / 2) for axis in (d.kv, d.tokens))
    xs, ys = (middle.tolist() for middle in middles)
    ends = 2 ** float(d.kv[-1]), 2 ** float(d.tokens[-1])
    found = plot.heat([1.0, *xs, ends[0]], [LOW, *ys, ends[1]], cells.tolist())
    for n, boxes in sorted(found.items(), key=str):
        bound, share = divmod(int(str(n)), 100)
        opacity = f"{0.2 + 0.5 * share / SHADES:.2f}"
        kind = f"fill {BOUNDS[bound]}"
        plot.parts.append(element("path", kind=kind, fill_opacity=opacity, d=boxes))


def _contours(d: Diagram, plot: Plot) -> Iterator[tuple[list[Point], str]]:
    """Draw lines of equal speed; yields where the figure of each may go."""
    for level, lines in d.contours():
        plot.parts.append(element("path", kind="thin", d=_paths(lines, plot)))
        line = max(lines, key=len)
        points = (line[int((len(line) - 1) * share)] for share in (0.5, 0.35, 0.65, 0.2, 0.8))
        fitting = [p for p in points if 2 ** p[0] + 2 ** p[1] < 0.9 * d.context]
        yield [_log2(plot, p) for p in fitting], f"{tick_label(level)} tok/s"


def _batches(batches: Sequence[Diagram], plot: Plot) -> Iterator[tuple[list[Point], str]]:
    """Draw where the memory-bound region ends with more sequences at once; yields as above."""
    for d in batches:
        if lines := d.edge("memory"):
            kind = "batch line memory dashed"
            plot.parts.append(element("path", kind=kind, d=_paths(lines, plot)))
            points = [_log2(plot, point) for point in max(lines, key=len)]
            yield points[len(points) // 4 :], f"B = {d.batch}"


def _names(d: Diagram, plot: Plot) -> None:
    """Write each regime's name where its region is widest; small ones have none."""
    bounds = d.bounds()
    for n, name in enumerate(BOUNDS):
        region = bounds == n
        if region.sum() < 0.004 * region.size:
            continue
        cells = ((float(d.kv[col]), float(d.tokens[row])) for row, col in _widest(region))
        at = plot.free([_log2(plot, cell) for cell in cells], 76, 22)
        if at is not None:
            plot.parts.append(text(at[0], at[1] - 4, name, "over strong", "middle"))
            plot.parts.append(text(at[0], at[1] + 13, WORDS[name], "over", "middle"))


def _widest(region: np.ndarray) -> np.ndarray:
    """Return a region's cells, those farthest from its edge first."""
    depth, left = np.zeros(region.shape), np.pad(region, 1)
    while left.any():
        depth += left[1:-1, 1:-1]
        inner = (
            left[1:-1, 1:-1] & left[:-2, 1:-1] & left[2:, 1:-1] & left[1:-1, :-2] & left[1:-1, 2:]
        )
        left = np.pad(inner, 1)
    cells = np.argwhere(region)
    deep = depth[region]
    middle = cells[deep == deep.max()].mean(axis=0)
    return cells[np.lexsort((((cells - middle) ** 2).sum(axis=1), -deep))]


def _measured(picture: Picture, plot: Plot) -> None:
    for point in picture.measured:
        x, y = plot.place((max(1, point.start), point.tokens))
        rate, expected = point.tokens / point.seconds, point.expected
        words = (
            f"{point.tokens:,} tokens at context {point.start:,}: {rate:,.0f} tok/s, "
            f"{point.bound}; expected {expected.tokens_per_s:,.0f} tok/s, {expected.seen.bound}"
        )
        shape = f"M{x:.0f} {y - 6:.0f}l6 6l-6 6l-6-6z"
        plot.parts.append(element("path", titled(words), kind=f"dot {point.bound}", d=shape))


def _ends(step: Step, plot: Plot) -> tuple[Point, Point]:
    """Return where a phase begins and ends: single tokens go along the bottom, prefills stay."""
    single = step.phase == "decode"
    tokens = 1 if single else step.tokens
    after = step.kv_after if single else step.kv_before
    return plot.place((max(1, step.kv_before), tokens)), plot.place((max(1, after), tokens))


def _curve(start: Point, end: Point) -> list[Point]:
    """Return points of the curve from one phase to the next: level in x at both ends."""
    (x1, y1), (x2, y2) = start, end
    shares = [n / 20 for n in range(21)]
    return [(x1 + (x2 - x1) * t * t * (3 - 2 * t), y1 + (y2 - y1) * t) for t in shares]


def _along(steps: Sequence[Step], plot: Plot) -> Iterator[Point]:
    """Yield points along a run."""
    for before, after in itertools.pairwise(steps):
        yield from _curve(_ends(before, plot)[1], _ends(after, plot)[0])


def _path(steps: Sequence[Step], plot: Plot) -> None:
    """Draw a run, with a number at each change of its regime."""
    if not steps:
        return
    ends = [_ends(step, plot) for step in steps]
    curves = [_curve(before[1], after[0]) for before, after in itertools.pairwise(ends)]
    points = itertools.chain(ends[0], *curves, ends[-1])
    shape = path(points)
    plot.parts += [element("path", kind=kind, d=shape) for kind in ("run under", "run")]
    numbers: list[Point] = []
    for step, (start, end), curve in zip(steps, ends, [[], *curves], strict=True):
        words = (
            f"{step.purpose.replace('_', ' ')}: {step.tokens:,} tokens at context "
            f"{step.kv_before:,}, {step.rate:,.0f} tok/s, {step.observed}"
        )
        if step.predicted != step.observed:
            words += f" (predicted: {step.predicted})"
        kind, title = step.observed, titled(words)
        if step.phase == "decode":
            size = {"x1": start[0], "x2": end[0], "y1": start[1], "y2": end[1], "stroke_width": 5}
            plot.parts.append(element("line", title, kind=f"line {kind}", **size))
        else:
            dot = element("circle", title, kind=f"dot {kind}", cx=start[0], cy=start[1], r=7)
            plot.parts.append(dot)
        if step.number:
            apart = (p for p in _outward(curve) if all(math.dist(p, q) > 24 for q in numbers))
            numbers.append(next(apart, curve[10]))
            x, y = numbers[-1]
            plot.parts.append(element("circle", kind="ring", cx=x, cy=y, r=10))
            plot.parts.append(text(x, y + 4, f"{step.number}", "name", "middle"))


def _outward(curve: Sequence[Point]) -> list[Point]:
    """Return the points of a curve, its middle first."""
    return sorted(curve[2:-2], key=lambda point: abs(curve.index(point) - 10))
