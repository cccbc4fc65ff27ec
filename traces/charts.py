"""SVG charts: lines, steps, areas, dots, bars, heat maps, legends, non-overlapping labels.

A chart is data (`Lines`, `Bars`) or drawn into a `Plot`. Colors are names of `assets/charts.css`:
of a bound (``compute``), or ``s0`` to ``s8``. `figures` gives charts for a page, which has the
style sheet; `document` a file of its own, whose colors are in it, for light and dark. No scripts,
no references; a title and a description for those who cannot see it.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from .html_page import asset, markup

Point = tuple[float, float]
COLORS = 9  # of series; then they begin again
WIDTH, HEIGHT = 440, 290  # of a chart on a page: its texts can be read on a phone
LETTER = 6.6  # wide, of texts of 12 px, on average


@dataclass(frozen=True)
class Series:
    """The points of a series, joined or not."""

    name: str
    points: Sequence[Point]
    kind: Literal["line", "steps", "area", "dots", "dotted line"] = "line"
    dashed: bool = False


def element(name: str, *inside: str, kind: str = "", **attributes: float | str) -> str:
    """Return an SVG element; ``kind`` is its class, and underscores in names become hyphens."""
    given = {"class": kind} if kind else {}
    for key, value in attributes.items():
        text = value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")
        given[key.rstrip("_").replace("_", "-")] = text
    texts = "".join(f' {key}="{value}"' for key, value in given.items())
    return f"<{name}{texts}>{''.join(inside)}</{name}>"


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return an SVG text element; ``anchor`` is the part of the text at x."""
    return element("text", markup(words), kind=kind, x=x, y=y, text_anchor=anchor)


def titled(words: str) -> str:
    """Return an SVG title element, for tooltips and screen readers."""
    return element("title", markup(words))


def path(points: Iterable[Point]) -> str:
    """Return the SVG path data of a line through the points."""
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def number(value: float) -> str:
    """Format a number in few characters: 12k, 0.003, 1.5M."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    if value and abs(value) < 1e-3:
        return f"{value:.2g}"
    return f"{value:.4g}"


class Axis:
    """A linear or logarithmic axis: maps numbers to coordinates between two ends."""

    def __init__(
        self,
        low: float,
        high: float,
        start: float,
        end: float,
        *,
        log: bool = False,
        ticks: Sequence[float] | None = None,
        label: Callable[[float], str] = number,
    ) -> None:
        self.low, self.high = (math.log10(low), math.log10(high)) if log else (low, high)
        self.start, self.end, self.log, self.label = start, end, log, label
        self.ticks = self._ticks() if ticks is None else ticks

    @classmethod
    def over(cls, values: Iterable[float], start: float, end: float, *, log: bool = False) -> Axis:
        """Make an axis that spans all values, and 0 if it is not ``log``."""
        good = [v for v in values if math.isfinite(v) and (v > 0 or not log)] or [1.0, 10.0]
        low, high = min(good), max(good)
        if log:
            share = max(0.04 * math.log10(high / low), 0.02 if high / low > 1.001 else 0.5)
            return cls(low / 10**share, high * 10**share, start, end, log=True)
        low = min(low, 0.0)
        room = 0.04 * (high - low) or max(1.0, abs(low))
        return cls(low - room * (low < 0), high + room, start, end)

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value, clamped to the ends of the axis."""
        at = math.log10(max(value, 1e-300)) if self.log else value
        share = (at - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.0, max(0.0, share))

    def _ticks(self) -> list[float]:
        """Return round numbers on the axis."""
        span = self.high - self.low
        if self.log:
            parts = (1, 2, 3, 5, 7) if span < 1 else (1, 2, 5) if span < 2.5 else (1,)
            decades = range(math.floor(self.low), math.ceil(self.high) + 1)
            every = max(1, len(decades) // 6)
            found = [p * 10.0**d for d in decades if d % every == 0 for p in parts]
            return [v for v in found if self.low <= math.log10(v) <= self.high]
        step = 10.0 ** math.floor(math.log10(span / 4))
        step *= next(m for m in (1, 2, 2.5, 5, 10) if span / (m * step) <= 5.5)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [n * step for n in range(first, last + 1)]


class Plot:
    """A plot: two axes, and the SVG elements drawn over them, in order."""

    def __init__(self, across: Axis, up: Axis) -> None:
        self.across, self.up = across, up
        self.left, self.right = across.start, across.end
        self.bottom, self.top = up.start, up.end
        self.parts = [self.box("plot")]
        self._taken: list[tuple[float, float, float, float]] = []  # middles, and half of the sizes

    def box(self, kind: str = "") -> str:
        """Return the SVG rectangle of the area between the axes."""
        size = {"width": self.right - self.left, "height": self.bottom - self.top}
        return element("rect", kind=kind, x=self.left, y=self.top, **size)

    def place(self, point: Point) -> Point:
        """Return the coordinates of a point."""
        return self.across(point[0]), self.up(point[1])

    def axes(self, x: str = "", y: str = "") -> None:
        """Draw lines at the ticks, their numbers, and the axes' names."""
        for value in self.across.ticks:
            at = self.across(value)
            self.parts.append(element("path", kind="grid", d=f"M{at:.1f} {self.top}V{self.bottom}"))
            self.parts.append(text(at, self.bottom + 16, self.across.label(value), "", "middle"))
        for value in self.up.ticks if y else ():
            at = self.up(value)
            self.parts.append(element("path", kind="grid", d=f"M{self.left} {at:.1f}H{self.right}"))
            self.parts.append(text(self.left - 7, at + 4, self.up.label(value), "", "end"))
        self.parts.append(text((self.left + self.right) / 2, self.bottom + 34, x, "", "middle"))
        if y:
            rotated = (
                f"translate({self.left - 44:.0f} {(self.top + self.bottom) / 2:.0f}) rotate(-90)"
            )
            name = element("text", markup(y), text_anchor="middle", transform=rotated)
            self.parts.append(name)

    def draw(self, one: Series, color: str) -> None:
        """Draw a series; values that are not finite are skipped."""
        good = [p for p in one.points if math.isfinite(p[0]) and math.isfinite(p[1])]
        points = [self.place(point) for point in good]
        line = f"line {color}" + " dashed" * one.dashed
        if one.kind == "steps":
            corners = itertools.pairwise(points)
            points[1:] = [p for (_, y), (x, new) in corners for p in ((x, y), (x, new))]
        if one.kind == "area" and points:
            ends = [(points[-1][0], self.bottom), (points[0][0], self.bottom)]
            around = path([*points, *ends]) + "z"
            self.parts.append(element("path", kind=f"fill {color}", d=around, fill_opacity="0.25"))
        if one.kind != "dots" and len(points) > 1:
            self.parts.append(element("path", kind=line, d=path(points)))
        if one.kind.startswith("dot"):
            circles = (element("circle", kind=f"dot {color}", cx=x, cy=y, r=4) for x, y in points)
            self.parts += circles

    def heat(
        self, xs: Sequence[float], ys: Sequence[float], cells: Sequence[Sequence[object]]
    ) -> dict[object, str]:
        """Return a path over all cells of each value; None is skipped.

        Args:
            xs, ys: edges of the cells, one more than cells in a row, and than rows.
        """
        found: dict[object, list[str]] = {}
        for row, line in enumerate(cells):
            y1, y2 = self.up(ys[row + 1]), self.up(ys[row])
            start = 0
            for col in range(1, len(line) + 1):
                if col < len(line) and line[col] == line[start]:
                    continue
                x1, x2 = self.across(xs[start]), self.across(xs[col])
                box = f"M{x1:.0f} {y1:.0f}H{x2:.0f}V{y2:.0f}H{x1:.0f}z"
                found.setdefault(line[start], []).append(box)
                start = col
        found.pop(None, None)
        return {value: "".join(boxes) for value, boxes in found.items()}

    def take(self, x: float, y: float, wide: float = 8.0, high: float = 8.0) -> None:
        """Reserve a box, given its center and half its size, so that labels avoid it."""
        self._taken.append((x, y, wide, high))

    def free(self, points: Iterable[Point], wide: float, high: float) -> Point | None:
        """Reserve and return the first point with room for a label of half-size (wide, high)."""
        for x, y in points:
            inside = self.left + wide <= x <= self.right - wide
            inside &= self.top + high <= y <= self.bottom - high
            if inside and all(
                abs(x - a) >= wide + w or abs(y - b) >= high + h for a, b, w, h in self._taken
            ):
                self.take(x, y, wide, high)
                return x, y
        return None

    def label(self, points: Iterable[Point], words: str, kind: str = "over") -> None:
        """Write words at the first point with room for them, if there is one."""
        at = self.free(points, LETTER * len(words) / 2 + 3, 8.0)
        if at is not None:
            self.parts.append(text(at[0], at[1] + 4, words, kind, "middle"))

    def mark(self, x: float, y: float, words: str) -> None:
        """Draw a ring, with words next to it where they have room."""
        self.parts.append(element("circle", titled(words), kind="ring", cx=x, cy=y, r=5))
        wide = LETTER * len(words) / 2 + 12
        around = [(x + dx * wide, y + dy) for dy in (-14, 14, -30, 30, -46, 46) for dx in (1, -1)]
        self.label(around, words)


@dataclass(frozen=True)
class Lines:
    """A chart of lines, steps or dots over two axes."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    notes: Sequence[str] = ()
    marks: Sequence[tuple[float, float, str]] = ()
    """Points that are labeled with words."""

    @property
    def height(self) -> float:
        """Return the height on a page."""
        return HEIGHT

    def draw(self, left: float, top: float, width: float, height: float) -> list[str]:
        """Return the plot in a box."""
        points = [p for one in self.series for p in one.points] + [m[:2] for m in self.marks]
        plot = Plot(
            Axis.over((x for x, _ in points), left + 56, left + width - 14, log=self.log_x),
            Axis.over((y for _, y in points), top + height - 42, top + 8, log=self.log_y),
        )
        plot.axes(self.x, self.y)
        for n, one in enumerate(self.series):
            plot.draw(one, f"s{n % COLORS}")
        for x, y, words in self.marks:
            plot.mark(*plot.place((x, y)), words)
        return plot.parts


@dataclass(frozen=True)
class Bar:
    """A bar between two values, with texts at its ends."""

    name: str
    low: float
    high: float
    words: tuple[str, str] = ("", "")
    color: str = "s0"


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, each under its name."""

    title: str
    x: str
    bars: Sequence[Bar]
    base: float = 0.0
    """The value at which a line is drawn across all bars."""
    log: bool = False
    notes: Sequence[str] = ()

    @property
    def height(self) -> float:
        """Return the height on a page."""
        return min(HEIGHT, 50 + 40 * len(self.bars))

    def draw(self, left: float, top: float, width: float, height: float) -> list[str]:
        """Return the plot in a box, which few bars do not fill."""
        height = min(height, 42 + 40 * len(self.bars))
        ends = [v for bar in self.bars for v in (bar.low, bar.high)] + [self.base]
        room = [LETTER * max((len(b.words[n]) for b in self.bars), default=0) + 14 for n in (0, 1)]
        if any(bar.high < bar.low for bar in self.bars):
            room = [max(room)] * 2
        bottom = top + height - 42
        plot = Plot(
            Axis.over(ends, left + room[0], left + width - room[1], log=self.log),
            Axis(0, 1, bottom, top),
        )
        plot.axes(self.x)
        each = (bottom - top) / max(1, len(self.bars))
        for n, bar in enumerate(self.bars):
            y = top + n * each
            low, high = sorted((plot.across(bar.low), plot.across(bar.high)))
            size = {"width": max(1.5, high - low), "height": 0.42 * each}
            box = element("rect", kind=f"fill {bar.color}", x=low, y=y + 0.46 * each, rx=3, **size)
            plot.parts += [text(left + 8, y + 0.36 * each, bar.name, "over"), box]
            below, above = bar.words if bar.low <= bar.high else bar.words[::-1]
            for at, words, anchor in ((low - 5, below, "end"), (high + 5, above, "start")):
                plot.parts.append(text(at, y + 0.67 * each + 4, words, "over", anchor))
        at = plot.across(self.base)
        plot.parts.append(element("path", kind="base", d=f"M{at:.1f} {top:.0f}V{bottom:.0f}"))
        return plot.parts


Chart = Lines | Bars


def _legend(series: Sequence[Series], left: float, top: float, width: float) -> list[list[str]]:
    """Return the names of series with their colors, in rows 17 high."""
    rows: list[list[str]] = [[]]
    at = left
    for n, one in enumerate(series):
        wide = 30 + LETTER * len(one.name)
        if at + wide > left + width and rows[-1]:
            rows.append([])
            at = left
        y, color = top + 17 * len(rows), f"fill s{n % COLORS}"
        box = element("rect", kind=color, x=at, y=y - 9, width=11, height=9, rx=2)
        rows[-1] += [box, text(at + 16, y, one.name, "name")]
        at += wide
    return rows


def svg(parts: Iterable[str], width: float, height: float, title: str, kind: str = "chart") -> str:
    """Return an SVG element for a page that has the style sheet."""
    named = {"role": "img", "aria_label": markup(title)}
    return element("svg", *parts, kind=kind, viewBox=f"0 0 {width:.0f} {height:.0f}", **named)


def figures(*charts: Chart) -> str:
    """Return charts for a page, side by side where they fit, each under its title."""
    found = []
    for chart in charts:
        parts = chart.draw(0, 4, WIDTH, chart.height - 4)
        drawing = svg(parts, WIDTH, chart.height, chart.title)
        notes = "".join(f"<p>{markup(note)}</p>" for note in chart.notes)
        caption = f"{markup(chart.title)}{notes}"
        if isinstance(chart, Lines) and len(chart.series) > 1:
            names = (one.name for one in chart.series)
            caption += legend((f"s{n % COLORS}", name) for n, name in enumerate(names))
        found.append(f"<figure><figcaption>{caption}</figcaption>{drawing}</figure>")
    return f'<div class="charts">{"".join(found)}</div>'


def legend(names: Iterable[tuple[str, str]]) -> str:
    """Return a legend of colors and names, for a page."""
    parts = (
        f'<span><i class="swatch {color}"></i>{markup(words)}</span>' for color, words in names
    )
    return f'<div class="legend">{"".join(parts)}</div>'


def document(
    parts: Iterable[str], width: float, height: float, title: str, about: Iterable[str] = ()
) -> str:
    """Return a standalone SVG file, in the reader's light or dark colors."""
    ground = element("rect", kind="page", width=width, height=height, rx=12)
    described = element("desc", markup("; ".join(about)))
    inside = [titled(title), described, f"<style>{_own_style()}</style>", ground, *parts]
    drawing = svg(inside, width, height, title)
    return drawing.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def side_by_side(*charts: Chart, width: float = 640, height: float = 420) -> str:
    """Return a standalone SVG file with the charts side by side."""
    parts: list[str] = []
    for n, chart in enumerate(charts):
        left, top = n * width + 18, 40.0
        parts.append(text(left, 32, chart.title, "title"))
        for note in chart.notes:
            top += 17
            parts.append(text(left, top, note))
        if isinstance(chart, Lines):
            rows = _legend(chart.series, left, top, width - 36)
            parts += [part for row in rows for part in row]
            top += 17 * len(rows)
        parts += chart.draw(left - 8, top + 6, width - 20, height - top - 18)
    titles, about = [chart.title for chart in charts], [n for c in charts for n in c.notes]
    return document(parts, width * len(charts), height, "; ".join(titles), about)


def _own_style() -> str:
    """Return the style of a standalone file, as hex colors, since some viewers lack names."""
    names = re.findall(r"(--[a-z]+): (.*?);", asset("theme.css"))

    def colored(scheme: int) -> str:
        found = asset("charts.css")
        for name, value in names:
            found = found.replace(f"var({name})", value)
        return re.sub(r"light-dark\((.*?), (.*?)\)", rf"\{scheme}", found)

    light, dark = colored(1), colored(2)
    rules = zip(light.splitlines(), dark.splitlines(), strict=True)
    changed = "".join(after for before, after in rules if before != after)
    return f"{light}@media (prefers-color-scheme: dark) {{{changed}}}"
