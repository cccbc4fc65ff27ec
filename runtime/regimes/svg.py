"""The phase diagram as SVG."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from ...traces.html_page import markup, svg_text
from ..physics.costs import Bound
from .diagram import BOUNDS, Diagram, Line, Picture, Step, tick_label, ticks

COLORS = {"compute": "#ee7f2d", "memory": "#3f9fd8", "dispatch": "#d678ac"}
WORDS = {
    "compute": ("compute", "arithmetic is the limit"),
    "memory": ("memory", "reading is the limit"),
    "dispatch": ("dispatch", "barriers and waiting"),
}
WIDTH, HEIGHT = 1200, 760
LEFT, TOP, RIGHT, BOTTOM = 86, 118, 1170, 668
SHADES = 12
_Name = tuple[float, float, Bound, float]  # x, y, what, height of the region there
_THIN = 58.0  # of a region in which a name has one line
_STYLE = """
text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#e8e8e4}
.t{font-size:25px;font-weight:650}.p{font-size:18px;font-weight:650}.n{font-size:13.5px;fill:#9aa0a8}.k{font-size:13px;fill:#9aa0a8}
.a{font-size:14px;fill:#c4c8cd}.c{font-size:12px;fill:#fff;fill-opacity:.82;paint-order:stroke;
stroke:#14161a;stroke-width:3px;stroke-opacity:.55}.r{font-size:21px;font-weight:650;fill:#fff;
fill-opacity:.93;letter-spacing:.03em}.s{font-size:13px;font-weight:400;letter-spacing:0;fill:#fff;
fill-opacity:.72}
.num{font-size:12.5px;font-weight:700;fill:#14161a}.tp{font-size:14px;font-weight:650;fill:#fff;
paint-order:stroke;stroke:#14161a;stroke-width:4px;stroke-opacity:.75}
"""


def svg(picture: Picture) -> str:
    """The picture as one SVG document: no scripts, no references."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{markup(picture.title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="14" fill="#14161a"/>',
        svg_text("t", LEFT, 46, picture.title),
        *(svg_text("n", LEFT, 70 + 19 * n, note) for n, note in enumerate(picture.notes)),
        *_plot(picture, PlotArea(picture.diagram), ""),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def side_by_side(title: str, kinds: Sequence[str], pictures: Sequence[Picture]) -> str:
    """Several pictures as one SVG document, each under its name and its notes."""
    each, gap, top, height = 366, 26, 128, 330
    width = LEFT + len(pictures) * (each + gap)
    bottom = top + height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 62}" role="img" '
        f'aria-label="{markup(title)}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{bottom + 62}" rx="14" fill="#14161a"/>',
        svg_text("n", LEFT, 28, title),
    ]
    for n, (kind, picture) in enumerate(zip(kinds, pictures, strict=True)):
        left = LEFT + n * (each + gap)
        plot = PlotArea(picture.diagram, (left, top, left + each, bottom))
        parts.append(svg_text("p", left, 62, kind))
        parts += [
            svg_text("n", left, 84 + 18 * row, note) for row, note in enumerate(picture.notes)
        ]
        parts += _plot(picture, plot, str(n), first=not n)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _plot(picture: Picture, plot: PlotArea, number: str, *, first: bool = True) -> list[str]:
    """The plot with its axes. number: for names in the document; first: of those beside it."""
    d = picture.diagram
    names = _name_places(d, plot, picture.path)
    box = (
        f'x="{plot.left}" y="{plot.top}" width="{plot.right - plot.left}" '
        f'height="{plot.bottom - plot.top}"'
    )
    return [
        f'<clipPath id="plot{number}"><rect {box} rx="8"/></clipPath>',
        f'<g clip-path="url(#plot{number})"><rect {box} fill="#1c1f24"/>',
        f'<clipPath id="fits{number}"><path d="{_inside(d, plot)}"/></clipPath>'
        f'<g clip-path="url(#fits{number})">',
        *_ground(d, plot),
        *_contours(d, plot, names, picture.path),
        *_boundaries(d, plot),
        *_batches(picture.batches, plot),
        "</g></g>",
        *_axes(d, plot, first),
        *_names(names),
        *_measured(picture, plot),
        *_path(picture.path, plot),
        *_triple(d, plot),
    ]


class PlotArea:
    """Where a length is on the picture, and where the plot itself is."""

    def __init__(
        self, d: Diagram, box: tuple[float, float, float, float] = (LEFT, TOP, RIGHT, BOTTOM)
    ) -> None:
        self.left, self.top, self.right, self.bottom = box
        self.most_kv, self.most_tokens = float(d.kv[-1]), float(d.tokens[-1])
        self.low = -0.45  # a little room below one token, for runs of single ones

    def x(self, log_kv: float) -> float:
        return self.left + (self.right - self.left) * log_kv / self.most_kv

    def y(self, log_tokens: float) -> float:
        share = (log_tokens - self.low) / (self.most_tokens - self.low)
        return self.bottom - (self.bottom - self.top) * share

    def kv(self, positions: int) -> float:
        """At the edge for what a longer context has held."""
        return self.x(min(math.log2(max(1, positions)), self.most_kv))

    def tokens(self, count: int) -> float:
        """At the edge, too."""
        return self.y(min(math.log2(max(1, count)), self.most_tokens))


def _ground(d: Diagram, plot: PlotArea) -> list[str]:
    """Cells of one color in a row are one rectangle; the nearer a boundary, the duller."""
    shade = np.clip(np.ceil(np.sqrt(np.clip(d.lead(), 0, 1)) * SHADES), 1, SHADES).astype(int)
    key = np.argmax(d.shares, axis=0) * 100 + shade
    ys, xs = _edges(d.tokens, plot.low, plot.most_tokens), _edges(d.kv, 0.0, plot.most_kv)
    paths: dict[int, list[str]] = {}
    for row in range(len(d.tokens)):
        y1, y2 = plot.y(ys[row + 1]), plot.y(ys[row])
        start = 0
        for col in range(1, len(d.kv) + 1):
            if col < len(d.kv) and key[row, col] == key[row, start]:
                continue
            x1, x2 = plot.x(xs[start]), plot.x(xs[col])
            box = f"M{x1:.0f} {y1:.0f}H{x2:.0f}V{y2:.0f}H{x1:.0f}z"
            paths.setdefault(int(key[row, start]), []).append(box)
            start = col
    return [
        f'<path fill="{COLORS[BOUNDS[n // 100]]}" '
        f'fill-opacity="{0.36 + 0.44 * (n % 100) / SHADES:.2f}" shape-rendering="crispEdges" '
        f'd="{"".join(boxes)}"/>'
        for n, boxes in sorted(paths.items())
    ]


def _inside(d: Diagram, plot: PlotArea) -> str:
    """The outline of what fits the context: tokens and positions together are at most as many."""
    points = [(plot.x(0.0), plot.y(plot.low)), (plot.x(0.0), plot.y(plot.most_tokens))]
    for n in range(161):
        kv = plot.most_kv * n / 160
        left = max(1.0, d.context - 2**kv)
        points.append((plot.x(kv), plot.y(min(plot.most_tokens, math.log2(left)))))
    points.append((plot.x(plot.most_kv), plot.y(plot.low)))
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) + "z"


def _edges(axis: np.ndarray, first: float, last: float) -> list[float]:
    """Between neighbors, and at both ends."""
    return [first, *((axis[1:] + axis[:-1]) / 2).tolist(), last]


def _polyline(line: Line, plot: PlotArea) -> str:
    points = [f"{plot.x(x):.1f} {plot.y(y):.1f}" for x, y in line]
    return "M" + "L".join(points)


def _contours(
    d: Diagram, plot: PlotArea, names: Sequence[_Name], path: Sequence[Step]
) -> list[str]:
    """Lines of equal speed, each with its figure where that covers nothing else."""
    out: list[str] = []
    taken = [(x, y, 130.0 if height < _THIN else 80.0) for x, y, _, height in names]
    taken += [(plot.x(x) - 40, plot.y(y), 90.0) for x, y in d.triple_points()]
    taken += [(x, y, 8.0) for x, y in _along(path, plot)]
    for level, lines in d.contours():
        shape = "".join(_polyline(line, plot) for line in lines)
        out.append(
            f'<path d="{shape}" fill="none" stroke="#fff" stroke-opacity=".42" stroke-width="1.1"/>'
        )
        line = max(lines, key=len)
        for share in (0.5, 0.35, 0.65, 0.2, 0.8):
            x, y = line[int((len(line) - 1) * share)]
            x, y, half = plot.x(x), plot.y(y), 36.0
            free = all(abs(x - a) > half + w or abs(y - b) > 24 for a, b, w in taken)
            fits = _fits(d, line[int((len(line) - 1) * share)])
            fits &= plot.left + half < x < plot.right - half
            if free and fits and plot.top + 14 < y < plot.bottom - 12:
                taken.append((x, y, half))
                out.append(svg_text("c", x, y + 4, f"{tick_label(level)} tok/s", "middle"))
                break
    return out


def _fits(d: Diagram, point: tuple[float, float]) -> bool:
    return bool(2 ** point[0] + 2 ** point[1] < 0.9 * d.context)


def _boundaries(d: Diagram, plot: PlotArea) -> list[str]:
    path = "".join(_polyline(line, plot) for line in d.boundaries())
    return _outlined(path, ".5", 6, 2.4)


def _outlined(path: str, opacity: str, under: float, over: float) -> list[str]:
    """A white line on a wider dark one."""
    return [
        f'<path d="{path}" fill="none" stroke="#14161a" stroke-opacity="{opacity}" '
        f'stroke-width="{under:g}" stroke-linejoin="round"/>',
        f'<path d="{path}" fill="none" stroke="#fff" stroke-width="{over:g}" '
        f'stroke-linejoin="round" stroke-linecap="round"/>',
    ]


def _batches(batches: Sequence[Diagram], plot: PlotArea) -> list[str]:
    """Where the memory-bound region ends with more sequences at once, each with its number."""
    out: list[str] = []
    for n, d in enumerate(batches):
        lines = d.edge("memory")
        if not lines:
            continue
        path = "".join(_polyline(line, plot) for line in lines)
        out.append(
            f'<path class="batch" d="{path}" fill="none" stroke="{COLORS["memory"]}" '
            f'stroke-width="2.2" stroke-dasharray="{9 - min(n, 4) * 1.5:g} 5"/>'
        )
        line = max(lines, key=len)
        x, y = line[int((len(line) - 1) * min(0.9, 0.25 + 0.15 * n))]
        x = min(max(plot.x(x), plot.left + 60), plot.right - 60)
        y = min(max(plot.y(y), plot.top + 18), plot.bottom - 10)
        out.append(svg_text("c", x, y, f"B = {d.batch}", "middle"))
    return out


def _axes(d: Diagram, plot: PlotArea, first: bool) -> list[str]:
    out: list[str] = []
    for n in ticks(2**plot.most_kv):
        x, y = plot.kv(n), plot.bottom
        out.append(f'<line x1="{x:.0f}" x2="{x:.0f}" y1="{y}" y2="{y + 6}" stroke="#9aa0a8"/>')
        out.append(svg_text("k", x, y + 23, tick_label(n), "middle"))
    for n in ticks(2**plot.most_tokens):
        x, y = plot.left, plot.tokens(n)
        out.append(f'<line x1="{x - 6}" x2="{x}" y1="{y:.0f}" y2="{y:.0f}" stroke="#9aa0a8"/>')
        if first:
            out.append(svg_text("k", x - 11, y + 4.5, tick_label(n), "end"))
    x, middle = (plot.left + plot.right) // 2, (plot.top + plot.bottom) // 2
    title = "positions in the KV cache before the pass"
    out.append(svg_text("a", x, plot.bottom + 48, title, "middle"))
    if not first:
        return out
    out.append(
        f'<text class="a" text-anchor="middle" transform="translate(28 {middle}) rotate(-90)">'
        f"new tokens</text>"
    )
    return out


def _names(names: Sequence[_Name]) -> list[str]:
    """Each regime's name at the widest place of its region."""
    out: list[str] = []
    for x, y, name, height in names:
        word, why = WORDS[name]
        if height < _THIN:
            out.append(
                f'<text class="r" text-anchor="middle" x="{x:.0f}" y="{y + 7:.0f}">{word}'
                f'<tspan class="s" dx="10">{why}</tspan></text>'
            )
            continue
        out.append(svg_text("r", x, y, word, "middle"))
        out.append(svg_text("s", x, y + 19, why, "middle"))
    return out


def _name_places(d: Diagram, plot: PlotArea, path: Sequence[Step]) -> list[_Name]:
    """Where the names go: beside the run's path. Regions too small for one have none."""
    bounds = d.bounds()
    xs = np.array([plot.x(float(x)) for x in d.kv])[None, :]
    ys = np.array([plot.y(float(y)) for y in d.tokens])[:, None]
    free = np.ones(bounds.shape, bool)
    for x, y in _along(path, plot):
        free &= (np.abs(xs - x) > 95) | (ys - y > 14) | (y - ys > 34)
    out: list[_Name] = []
    for n, name in enumerate(BOUNDS):
        region = bounds == n
        if region.sum() < 0.004 * region.size:
            continue
        room = region & free
        row, col = _widest(room if room.any() else region)
        x = min(max(float(xs[0, col]), plot.left + 95), plot.right - 95)
        own = np.flatnonzero(region[:, col])
        height = float(ys[own[0], 0] - ys[own[-1], 0])
        y = float(ys[own[0], 0] + ys[own[-1], 0]) / 2 if height < _THIN else float(ys[row, 0])
        out.append((x, y, name, height))
    return out


def _along(path: Sequence[Step], plot: PlotArea) -> list[tuple[float, float]]:
    """Points along a run's path."""
    out: list[tuple[float, float]] = []
    for (x1, y1), (x2, y2) in itertools.pairwise(_corners(path, plot)):
        for n in range(21):
            t = n / 20
            # The curve of `_path`: level in x at both ends, straight in y.
            out.append((x1 + (x2 - x1) * t * t * (3 - 2 * t), y1 + (y2 - y1) * t))
    return out


def _corners(path: Sequence[Step], plot: PlotArea) -> list[tuple[float, float]]:
    """Where phases begin and end."""
    out: list[tuple[float, float]] = []
    for step in path:
        y = plot.tokens(1 if step.phase == "decode" else step.tokens)
        out.append((plot.kv(step.kv_before), y))
        if step.phase == "decode":
            out.append((plot.kv(step.kv_after), y))
    return out


def _widest(region: np.ndarray) -> tuple[int, int]:
    """The cell of a region that is farthest from its edge."""
    left = np.pad(region, 1)
    best = (0, 0)
    while left.any():
        cells = np.argwhere(left)
        middle = cells.mean(axis=0)
        nearest = cells[np.argmin(((cells - middle) ** 2).sum(axis=1))]
        best = (int(nearest[0]) - 1, int(nearest[1]) - 1)
        inner = left.copy()
        inner[1:-1, 1:-1] &= left[:-2, 1:-1] & left[2:, 1:-1] & left[1:-1, :-2] & left[1:-1, 2:]
        inner[0], inner[-1], inner[:, 0], inner[:, -1] = False, False, False, False
        left = inner
    return best


def _measured(picture: Picture, plot: PlotArea) -> list[str]:
    out: list[str] = []
    for point in picture.measured:
        x, y = plot.kv(point.start), plot.tokens(point.tokens)
        rate, expected = point.tokens / point.seconds, point.expected.tokens_per_s
        agree = point.bound == point.expected.seen.bound
        title = (
            f"{point.tokens:,} tokens at context {point.start:,}: {rate:,.0f} tok/s, "
            f"{point.bound}; "
            f"expected {expected:,.0f} tok/s, {point.expected.seen.bound}"
        )
        out.append(
            f'<path d="M{x:.0f} {y - 6:.0f}l6 6l-6 6l-6-6z" fill="{COLORS[point.bound]}" '
            f'stroke="{"#fff" if agree else "#14161a"}" stroke-width="1.6">'
            f"<title>{markup(title)}</title></path>"
        )
    return out


def _path(path: Sequence[Step], plot: PlotArea) -> list[str]:
    """A run: single tokens along the bottom, prefills above, arcs between them."""
    if not path:
        return []
    legs, marks, numbers = [], [], []
    placed: list[tuple[float, float]] = []
    last: tuple[float, float] | None = None
    for step in path:
        single = step.phase == "decode"
        y = plot.tokens(1 if single else step.tokens)
        x1, x2 = plot.kv(step.kv_before), plot.kv(step.kv_after)
        x2 = x2 if single else x1
        if last is None:
            legs.append(f"M{x1:.1f} {y:.1f}")
        else:
            middle = (last[1] + y) / 2
            legs.append(f"C{last[0]:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y:.1f}")
            if step.number:
                placed.append(_apart(((last[0], last[1]), (x1, y)), placed))
                numbers.append(_number(step.number, *placed[-1]))
        if single:
            legs.append(f"L{x2:.1f} {y:.1f}")
            marks.append(
                f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{COLORS.get(step.observed, "#fff")}" stroke-width="5.5" '
                f'stroke-linecap="round">{_hover(step)}</line>'
            )
        else:
            marks.append(
                f'<circle cx="{x1:.1f}" cy="{y:.1f}" r="7.5" stroke="#fff" stroke-width="2" '
                f'fill="{COLORS.get(step.observed, "#fff")}">{_hover(step)}</circle>'
            )
        last = (x2, y)
    return [*_outlined("".join(legs), ".6", 8, 3), *marks, *numbers]


def _apart(
    leg: tuple[tuple[float, float], tuple[float, float]], placed: Sequence[tuple[float, float]]
) -> tuple[float, float]:
    """Where on the curve from one phase to the next a number has room; its middle if nowhere."""
    (x1, y1), (x2, y2) = leg
    points: list[tuple[float, float]] = []
    for t in (0.5, 0.4, 0.6, 0.3, 0.7, 0.22, 0.78, 0.16, 0.84):
        u = 1 - t  # a Bézier curve whose inner points are level with its middle
        x = x1 * (u**3 + 3 * u * u * t) + x2 * (t**3 + 3 * u * t * t)
        y = y1 * u**3 + (y1 + y2) / 2 * 3 * u * t + y2 * t**3
        points.append((x, y))
        if all((x - a) ** 2 + (y - b) ** 2 > 24**2 for a, b in placed):
            return x, y
    return points[0]


def _number(number: int, x: float, y: float) -> str:
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="10.5" fill="#fff"/>'
        f'<text class="num" text-anchor="middle" x="{x:.1f}" y="{y + 4.4:.1f}">{number}</text>'
    )


def _hover(step: Step) -> str:
    text = (
        f"{step.purpose.replace('_', ' ')}: {step.tokens:,} tokens at context {step.kv_before:,}, "
        f"{step.rate:,.0f} tok/s, {step.observed}"
    )
    if step.predicted != step.observed:
        text += f" (predicted: {step.predicted})"
    return f"<title>{markup(text)}</title>"


def _triple(d: Diagram, plot: PlotArea) -> list[str]:
    out: list[str] = []
    for n, (kv, tokens) in enumerate(d.triple_points()):
        x, y = plot.x(kv), plot.y(tokens)
        title = (
            f"{2**tokens:.0f} tokens at context {2**kv:,.0f}: compute, memory and dispatch equal"
        )
        out.append(
            f'<g><title>{title}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="15" fill="none" '
            f'stroke="#fff" stroke-opacity=".5" stroke-width="1.5"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="#14161a" stroke="#fff" '
            f'stroke-width="3"/></g>'
        )
        if n == 0:
            side = -1 if x > (plot.left + plot.right) / 2 else 1
            anchor = "end" if side < 0 else "start"
            out.append(svg_text("tp", x + 21 * side, y - 10, "triple point", anchor))
    return out
