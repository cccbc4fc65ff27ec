"""Charts: well-formed SVG without references, round ticks, hostile words escaped."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from triplepoint.traces.charts import (
    Axis,
    Bar,
    Bars,
    Lines,
    Plot,
    Series,
    figures,
    number,
    side_by_side,
)


def test_charts_are_well_formed() -> None:
    """Lines of every kind and bars, with any words and any numbers; nothing is loaded."""
    words = '<script>"&\x1b[2J'
    series = [Series(words, [(1, 2), (10, math.inf), (100, 3)])]
    series += [Series(kind, [(1, 2), (5, 4)], kind) for kind in ("steps", "area", "dots")]  # pyright: ignore[reportArgumentType]
    series.append(Series("b", [], "dotted line", dashed=True))
    lines = Lines(words, "x", "y", series, log_x=True, notes=[words], marks=[(1, 2, words)])
    bars = Bars("b", "x", [Bar(words, 0, 3, ("0", "3")), Bar("c", 5, 1)], base=2)
    empty = [Bars("none", "x", []), Lines("none", "x", "y", [])]
    for drawn in (side_by_side(lines, bars, *empty), figures(lines, bars, *empty)):
        tree = ElementTree.fromstring(drawn)
        assert tree.tag.endswith("svg") or len(tree.findall(".//svg[@role='img']")) == 4
        assert "<script" not in drawn
        assert "\x1b" not in drawn
        assert "href" not in drawn


def test_a_file_of_its_own_has_its_colors() -> None:
    """For light and dark, as colors: not everything that draws SVG knows names of them."""
    drawn = side_by_side(Lines("a", "x", "y", [Series("s", [(1, 2)])]))

    assert "var(" not in drawn
    assert "light-dark(" not in drawn
    light, dark = drawn.split("@media (prefers-color-scheme: dark)")
    assert "fill: #f4f4f1" in light
    assert "fill: #14161a" in dark


def test_steps_go_level_and_up() -> None:
    """A value holds until the next point."""
    plot = Plot(Axis(0, 10, 0, 10), Axis(0, 10, 10, 0))
    plot.draw(Series("s", [(0, 0), (4, 6)], "steps"), "s0")

    assert 'd="M0.0 10.0L4.0 10.0L4.0 4.0"' in plot.parts[-1]


def test_labels_keep_apart() -> None:
    """The first place with room is taken; where there is none, nothing is written."""
    plot = Plot(Axis(0, 100, 0, 100), Axis(0, 100, 100, 0))

    assert plot.free([(50, 50)], 20, 10) == (50, 50)
    assert plot.free([(60, 50), (50, 80)], 20, 10) == (50, 80)
    assert plot.free([(60, 50), (5, 20)], 20, 10) is None
    drawn = len(plot.parts)
    plot.label([(55, 55)], "words")
    assert len(plot.parts) == drawn


def test_equal_cells_are_one_rectangle() -> None:
    """A heat map has a path for each value, with one box for neighbors in a row."""
    plot = Plot(Axis(0, 3, 0, 30), Axis(0, 2, 20, 0))
    found = plot.heat([0, 1, 2, 3], [0, 1, 2], [["a", "a", None], ["b", "a", "a"]])

    assert found == {"a": "M0 10H20V20H0zM10 0H30V10H10z", "b": "M0 0H10V10H0z"}


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_within(log: bool) -> None:
    """Round numbers, some, and within the axis."""
    for values in ([1.0, 2.0], [3.0, 40_000.0], [5.0], [0.02, 0.03]):
        axis = Axis.over(values, 0, 100, log=log)
        assert 2 <= len(axis.ticks) <= 16
        assert all(-1e-6 <= axis(tick) <= 100 + 1e-6 for tick in axis.ticks)
        assert axis(values[0]) <= axis(values[-1])


def test_numbers_are_short() -> None:
    """Few characters, any size."""
    assert [number(v) for v in (0, 0.00012, 0.5, 1234, 12_345, 2.5e6, 3e9)] == [
        "0",
        "0.00012",
        "0.5",
        "1234",
        "12.3k",
        "2.5M",
        "3G",
    ]
