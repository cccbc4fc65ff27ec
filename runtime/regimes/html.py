"""The phase diagram as a self-contained HTML page with values under the pointer."""

from __future__ import annotations

from ...traces.charts import legend, svg
from ...traces.html_page import asset, header, page
from .diagram import Diagram, Picture
from .svg import LOW, WORDS, drawing

WIDE = (1240, 700)
NARROW = (420, 460)  # of a phone: its texts can be read there


def regimes_page(picture: Picture) -> str:
    """Render the HTML page: the diagram in two sizes, selected by the width of the screen."""
    drawings, boxes = [], []
    for kind, (width, height) in (("roomy", WIDE), ("narrow", NARROW)):
        plot = drawing(picture, (60, 8, width - 12, height - 46), kind)
        drawings.append(svg(plot.parts, width, height, picture.title, f"chart {kind}"))
        boxes.append([plot.left, plot.top, plot.right, plot.bottom])
    return page(
        picture.title,
        header(picture.title, *picture.notes),
        "<main><section>",
        *drawings,
        legend((bound, f"{bound}: {words}") for bound, words in WORDS.items()),
        '</section></main><div id="tip" hidden></div>',
        script=asset("regimes.js"),
        data=_cells(picture.diagram) | {"plots": boxes},
    )


def _cells(d: Diagram) -> dict[str, object]:
    """Return every second point of the grid: speed, and the three shares in per cent."""
    rows, cols = range(0, len(d.tokens), 2), range(0, len(d.kv), 2)

    def cell(row: int, col: int) -> list[float] | None:
        shares = [round(100 * float(share)) for share in d.shares[:, row, col]]
        return [float(f"{d.rates[row, col]:.4g}"), *shares] if d.inside[row, col] else None

    return {
        "tokens": [round(float(d.tokens[row]), 4) for row in rows],
        "kv": [round(float(d.kv[col]), 4) for col in cols],
        "cells": [[cell(row, col) for col in cols] for row in rows],
        "low": LOW,
    }
