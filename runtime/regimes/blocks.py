"""Draws the phase diagram as blocks of color, for terminals."""

from __future__ import annotations

import math

import numpy as np

from .diagram import BOUNDS, Picture, tick_label, ticks


def blocks(picture: Picture, width: int, rows: int = 20) -> list[list[tuple[str, str]]]:
    """Draw the diagram as lines of cells (text, bound or ""): tokens upwards, KV to the right."""
    width = max(width, 10)  # the labels and two cells; a narrower terminal breaks the lines
    d = picture.diagram
    bounds = d.bounds()
    marks = _marks(picture, width - 8, rows)
    lines: list[list[tuple[str, str]]] = []
    labels: dict[int, int] = {}
    for n in ticks(2 ** float(d.tokens[-1])):
        at = round(math.log2(n) / float(d.tokens[-1]) * (rows - 1))
        labels[rows - 1 - at] = n
    for row in range(rows):
        line = [(f"{tick_label(labels[row]) if row in labels else '':>6} ", "")]
        for col in range(width - 8):
            i = _nearest(d.tokens, (rows - 1 - row) / (rows - 1))
            j = _nearest(d.kv, col / (width - 9))
            bound = int(bounds[i, j])
            name = BOUNDS[bound] if bound >= 0 else ""
            line.append((marks.get((row, col), name[:1] or " "), name))
        lines.append(line)
    axis = [" "] * width
    for n in ticks(2 ** float(d.kv[-1])):
        at = 7 + round(math.log2(n) / float(d.kv[-1]) * (width - 9))
        for k, letter in enumerate(tick_label(n)):
            if at + k < width:
                axis[at + k] = letter
    lines.append([("".join(axis).rstrip(), "")])
    return lines


def _marks(picture: Picture, width: int, rows: int) -> dict[tuple[int, int], str]:
    """Return the cells of the triple points and of the run's numbered transitions."""
    d = picture.diagram
    found: dict[tuple[int, int], str] = {}

    def at(kv: float, tokens: float) -> tuple[int, int]:
        """Return the cell of a point, clamped to the edges."""
        row = rows - 1 - round(min(tokens / float(d.tokens[-1]), 1.0) * (rows - 1))
        return row, round(min(kv / float(d.kv[-1]), 1.0) * (width - 1))

    for step in picture.path:
        tokens = 0.0 if step.phase == "decode" else math.log2(step.tokens)
        plot = at(math.log2(max(1, step.kv_before)), tokens)
        found[plot] = str(step.number % 10) if step.number else "o"
    for kv, tokens in d.triple_points():
        found[at(kv, tokens)] = "*"
    return found


def _nearest(axis: np.ndarray, share: float) -> int:
    return int(np.argmin(np.abs(axis - share * axis[-1])))
