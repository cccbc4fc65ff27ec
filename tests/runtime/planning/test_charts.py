"""Charts: well-formed SVG without references, round ticks, hostile words escaped."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest

from triplepoint.runtime.planning.charts import Axis, Bar, Bars, Lines, Series, document, number


def test_a_document_is_well_formed() -> None:
    """Lines and bars with any words and any numbers; nothing is loaded from elsewhere."""
    words = '<script>"&\x1b[2J'
    lines = Lines(
        words,
        "x",
        "y",
        [Series(words, [(1, 2), (10, math.inf), (100, 3)]), Series("b", [], dots=True)],
        log_x=True,
        marks=[(1, 2, words)],
    )
    bars = Bars("b", "x", [Bar(words, 0, 3, ("0", "3")), Bar("c", 5, 1)], base=2)
    drawn = document([lines, bars])
    tree = ElementTree.fromstring(drawn)
    assert tree.tag.endswith("svg")
    assert "<script" not in drawn
    assert "\x1b" not in drawn
    assert "href" not in drawn
    assert document([Bars("none", "x", [])])
    assert document([Lines("none", "x", "y", [])])


@pytest.mark.parametrize("log", [False, True])
def test_ticks_are_within(log: bool) -> None:
    """Round numbers, some, and within the axis."""
    for values in ([1.0, 2.0], [3.0, 40_000.0], [5.0], [0.02, 0.03]):
        axis = Axis(values, 0, 100, log=log)
        ticks = axis.ticks()
        assert len(ticks) <= 16
        assert all(-1e-6 <= axis(tick) <= 100 + 1e-6 for tick in ticks)
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
