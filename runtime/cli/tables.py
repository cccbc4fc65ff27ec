"""Rows that are printed as they become known: a Markdown table, CSV, or JSON with the samples."""

from __future__ import annotations

import csv
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .output import Output

Form = Literal["md", "csv", "json"]


@dataclass(frozen=True)
class Column:
    """A column of the Markdown table; it is at least `width` wide, since rows come one by one."""

    heading: str
    width: int
    is_text: bool = False

    def place(self, text: str) -> str:
        """`text` in the column: words to the left, figures to the right."""
        return text.ljust(self.size) if self.is_text else text.rjust(self.size)

    @property
    def rule(self) -> str:
        """The line under the heading."""
        return "-" * self.size if self.is_text else "-" * (self.size - 1) + ":"

    @property
    def size(self) -> int:
        return max(self.width, len(self.heading))


@dataclass(frozen=True)
class Row:
    """One row in every form.

    Attributes:
        cells: texts of the Markdown columns; fields: names and values of CSV and JSON; samples:
            what JSON alone has.
    """

    cells: Sequence[str]
    fields: dict[str, Any]
    samples: dict[str, Any] = field(default_factory=dict)


def show(output: Output, form: Form, columns: Sequence[Column], rows: Iterable[Row]) -> None:
    """Print the rows."""
    if form == "json":
        mark = "["
        for row in rows:
            text = json.dumps({**row.fields, **row.samples}, indent=2)
            print(f"{mark}\n{textwrap.indent(text, '  ')}", end="", flush=True)
            mark = ","
        print("\n]" if mark == "," else "[]")
    elif form == "csv":
        table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for number, row in enumerate(rows):
            if number == 0:
                table.writerow(row.fields)
            table.writerow(row.fields.values())
            sys.stdout.flush()
    else:
        _line(output, [column.place(column.heading) for column in columns])
        _line(output, [column.rule for column in columns])
        for row in rows:
            pairs = zip(columns, row.cells, strict=True)
            _line(output, [column.place(cell) for column, cell in pairs])


def _line(output: Output, cells: Sequence[str]) -> None:
    output.line("| " + " | ".join(cells) + " |")


def rate(value: float) -> str:
    """A figure with three or four digits that count: 0.123, 12.3, 123, 1,234."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def between(values: Sequence[float]) -> str:
    """The least and the largest of some figures."""
    return f"{rate(min(values))} … {rate(max(values))}"


def percent(share: float) -> str:
    """A share as a whole percentage."""
    return f"{share:.0%}"
