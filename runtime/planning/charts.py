"""Small charts as SVG: lines over two axes, and bars. No scripts, no references, dark ground."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...traces.html_page import markup, svg_text

COLORS = (
    "#ee7f2d",
    "#3f9fd8",
    "#d678ac",
    "#7fc36b",
    "#e3c34d",
    "#9a8cf0",
    "#5cc8bd",
    "#e0605f",
    "#b9a48c",
)
GROUND, PLOT, INK, GRID = "#14161a", "#1c1f24", "#e8e8e4", "#2c3138"
STYLE = (
    "text{font-family:system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#e8e8e4}"
    ".t{font-size:19px;font-weight:650}.n{font-size:13px;fill:#9aa0a8}.k{font-size:12px;"
    "fill:#9aa0a8}.l{font-size:13px}.m{font-size:12px;paint-order:stroke;stroke:#14161a;stroke-width:4px}"
)


@dataclass(frozen=True)
class Series:
    """Points of a line, or only points.

    Attributes:
        dots: draw the points; line: join them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    dots: bool = False
    line: bool = True
    dashed: bool = False


@dataclass(frozen=True)
class Lines:
    """A chart of lines.

    Attributes:
        marks: places to point out, each with its words.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    notes: Sequence[str] = ()
    marks: Sequence[tuple[float, float, str]] = ()


@dataclass(frozen=True)
class Bar:
    """A bar from `low` to `high`, with words for both ends; or from `base` to `high`."""

    name: str
    low: float
    high: float
    words: tuple[str, str] = ("", "")
    color: int = 0


@dataclass(frozen=True)
class Bars:
    """A chart of bars, one below the other; `base`: where a line stands."""

    title: str
    x: str
    bars: Sequence[Bar]
    base: float = 0.0
    log: bool = False
    notes: Sequence[str] = field(default=())


def document(charts: Sequence[Lines | Bars], width: int = 600, height: int = 380) -> str:
    """Charts side by side as one SVG document."""
    whole = width * len(charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {height}" role="img" '
        f'aria-label="{markup("; ".join(chart.title for chart in charts))}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{whole}" height="{height}" rx="12" fill="{GROUND}"/>',
    ]
    for n, chart in enumerate(charts):
        box = (n * width, 0, (n + 1) * width, height)
        parts += _bars(chart, box) if isinstance(chart, Bars) else _lines(chart, box)
    return "\n".join([*parts, "</svg>"]) + "\n"


class Axis:
    """Numbers to places: in a straight line, or by their logarithms."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, log: bool) -> None:
        self.start, self.end, self.log = start, end, log
        good = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
        low, high = (min(good), max(good)) if good else (1.0, 10.0)
        if log:
            low, high = math.log10(low), math.log10(high)
        else:
            low = min(low, 0.0)
        if high - low < 1e-12:
            high = low + (1.0 if log else max(1.0, abs(low)))
        pad = 0.04 * (high - low)
        self.low, self.high = (low - pad if log else low), high + pad

    def __call__(self, value: float) -> float:
        at = math.log10(max(value, 1e-300)) if self.log else value
        share = (at - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.2, max(-0.2, share))

    def ticks(self) -> list[float]:
        """Round numbers within the axis."""
        if self.log:
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            parts = (
                (1, 2, 3, 5, 7)
                if self.high - self.low < 1
                else (1, 2, 5)
                if self.high - self.low < 2.5
                else (1,)
            )
            every = max(1, len(decades) // 7)
            found = [p * 10.0**d for d in decades if d % every == 0 for p in parts]
            return [v for v in found if self.low <= math.log10(v) <= self.high]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (m * step) <= 5.5)
        first = math.ceil(self.low / step)
        return [n * step for n in range(first, math.floor(self.high / step) + 1)]


def number(value: float) -> str:
    """A number in few characters: 12k, 0.003, 1.5M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    if value and abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:.4g}"


def _head(title: str, notes: Sequence[str], left: float) -> tuple[list[str], float]:
    lines = [svg_text("n", left, 52 + 17 * n, note) for n, note in enumerate(notes)]
    return [svg_text("t", left, 32, title), *lines], 50.0 + 17 * len(notes)


def _lines(chart: Lines, box: tuple[float, float, float, float]) -> list[str]:
    left, right, bottom = box[0] + 70, box[2] - 22, box[3] - 48
    out, top = _head(chart.title, chart.notes, box[0] + 22)
    rows = -(-len(chart.series) // 3)
    for n, one in enumerate(chart.series):  # the key
        x = box[0] + 24 + (n % 3) * (box[2] - box[0] - 40) / 3
        y = top + 17 * (n // 3)
        out.append(
            f'<rect x="{x:.0f}" y="{y - 9:.0f}" width="12" height="9" rx="2" '
            f'fill="{COLORS[n % len(COLORS)]}"/>'
        )
        out.append(svg_text("k", x + 18, y, one.name))
    top += 17 * rows
    points = [point for one in chart.series for point in one.points]
    points += [(x, y) for x, y, _ in chart.marks]
    across = Axis([p[0] for p in points], left, right, log=chart.log_x)
    up = Axis([p[1] for p in points], bottom, top, log=chart.log_y)
    out += _plot(left, top, right, bottom)
    out += _ticks_across(across, top, bottom, chart.x)
    out += _ticks_up(up, left, right, chart.y)
    for n, one in enumerate(chart.series):
        out += _series(one, COLORS[n % len(COLORS)], across, up)
    for x, y, words in chart.marks:
        px, py = across(x), up(y)
        out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="5" fill="none" stroke="#fff"/>')
        if px > (left + right) / 2:
            out.append(svg_text("m", px - 9, py - 8, words, "end"))
        else:
            out.append(svg_text("m", px + 9, py - 8, words))
    return out


def _series(one: Series, color: str, across: Axis, up: Axis) -> list[str]:
    places = [(across(x), up(y)) for x, y in one.points if math.isfinite(x) and math.isfinite(y)]
    out: list[str] = []
    if one.line and len(places) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        dash = ' stroke-dasharray="6 5"' if one.dashed else ""
        out.append(f'<path d="{path}" fill="none" stroke="{color}" stroke-width="2.2"{dash}/>')
    if one.dots or not one.line:
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{color}"/>' for x, y in places]
    return out


def _plot(left: float, top: float, right: float, bottom: float) -> list[str]:
    """The ground of a plot."""
    return [
        f'<rect x="{left:.0f}" y="{top:.0f}" width="{right - left:.0f}" '
        f'height="{bottom - top:.0f}" rx="6" fill="{PLOT}"/>'
    ]


def _ticks_across(axis: Axis, top: float, bottom: float, name: str) -> list[str]:
    """The lines, numbers and name of a horizontal axis."""
    out = [svg_text("n", (axis.start + axis.end) / 2, bottom + 36, name, "middle")]
    for value in axis.ticks():
        at = axis(value)
        out.append(f'<path d="M{at:.1f} {top:.0f}V{bottom:.0f}" stroke="{GRID}"/>')
        out.append(svg_text("k", at, bottom + 16, number(value), "middle"))
    return out


def _ticks_up(axis: Axis, left: float, right: float, name: str) -> list[str]:
    """The lines, numbers and name of a vertical axis."""
    middle = (axis.start + axis.end) / 2
    out = [
        f'<text class="n" text-anchor="middle" transform="translate({left - 50:.0f} {middle:.0f}) '
        f'rotate(-90)">{markup(name)}</text>'
    ]
    for value in axis.ticks():
        at = axis(value)
        out.append(f'<path d="M{left:.0f} {at:.1f}H{right:.0f}" stroke="{GRID}"/>')
        out.append(svg_text("k", left - 7, at + 4, number(value), "end"))
    return out


def _bars(chart: Bars, box: tuple[float, float, float, float]) -> list[str]:
    widest = max((len(bar.name) for bar in chart.bars), default=0)
    left, right, bottom = box[0] + 34 + 7.0 * widest, box[2] - 60, box[3] - 48
    out, top = _head(chart.title, chart.notes, box[0] + 22)
    ends = [v for bar in chart.bars for v in (bar.low, bar.high)] + [chart.base]
    across = Axis(ends, left + 44, right, log=chart.log)
    out += _plot(left, top, right + 22, bottom)
    out += _ticks_across(across, top, bottom, chart.x)
    each = (bottom - top) / max(1, len(chart.bars))
    for n, bar in enumerate(chart.bars):
        y = top + n * each
        low, high = sorted((across(bar.low), across(bar.high)))
        words_y = y + each / 2 + 4
        out.append(svg_text("l", left - 8, words_y, bar.name, "end"))
        out.append(
            f'<rect x="{low:.1f}" y="{y + 0.2 * each:.1f}" width="{max(1.5, high - low):.1f}" '
            f'height="{0.6 * each:.1f}" rx="3" fill="{COLORS[bar.color % len(COLORS)]}" '
            f'fill-opacity=".85"/>'
        )
        below, above = bar.words if bar.low <= bar.high else bar.words[::-1]
        for at, words, anchor in ((low - 5, below, "end"), (high + 5, above, "start")):
            if words:
                out.append(svg_text("k", at, words_y, words, anchor))
    at = across(chart.base)
    out.append(f'<path d="M{at:.1f} {top:.0f}V{bottom:.0f}" stroke="{INK}" stroke-width="1.5"/>')
    return out
