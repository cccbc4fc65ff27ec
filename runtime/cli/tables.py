"""Tables printed row by row, as Markdown, CSV, or JSON with the samples."""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

from ...traces.sanitize import printable
from .output import Output

if TYPE_CHECKING:
    from ..physics.machine import MachineProfile

Form = Literal["md", "csv", "json"]
T = TypeVar("T")
BUSY = "other programs slowed the measurement, so these results hold only for a machine this busy"


class Column(NamedTuple, Generic[T]):
    """A column of a Markdown table; its width is fixed, since rows are printed one by one."""

    heading: str
    width: int
    cell: Callable[[T], str] | None = None
    """Formats a result as the cell's text; None if rows are given as cells."""
    is_text: bool = False

    def place(self, text: str) -> str:
        """Pad `text` to the column's width: words are left-aligned, figures right-aligned."""
        return text.ljust(self.size) if self.is_text else text.rjust(self.size)

    @property
    def rule(self) -> str:
        """Return the rule under the heading, in Markdown."""
        return "-" * self.size if self.is_text else "-" * (self.size - 1) + ":"

    @property
    def size(self) -> int:
        return max(self.width, len(self.heading))


class Row(NamedTuple):
    """A table row in every output format."""

    cells: Sequence[str]
    """Texts of the Markdown columns."""
    fields: Mapping[str, Any]
    """Names and values of CSV and JSON."""
    samples: Mapping[str, Any] = {}
    """Names and values that only JSON has."""


def show(output: Output, form: Form, columns: Sequence[Column[Any]], rows: Iterable[Row]) -> None:
    """Print the rows as a Markdown table, CSV or JSON, each as soon as it is known."""
    if form == "json":
        mark = "["
        try:
            for row in rows:
                text = json.dumps({**row.fields, **row.samples}, indent=2)
                print(f"{mark}\n{textwrap.indent(text, '  ')}", end="", flush=True)
                mark = ","
        except BaseException:
            if mark == ",":  # what there is stays JSON; the error is for the other stream
                output.as_json = False
                print("\n]")
            raise
        print("\n]" if mark == "," else "[]")
    elif form == "csv":
        import csv

        table = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL, lineterminator="\n")
        for number, row in enumerate(rows):
            fields = _flat(row.fields)
            if number == 0:
                table.writerow(fields)
            table.writerow(fields.values())
            sys.stdout.flush()
    else:
        # The head comes with the first row: what fails before that leaves no empty table.
        for number, row in enumerate(rows):
            if number == 0:
                _line(output, [column.place(column.heading) for column in columns])
                _line(output, [column.rule for column in columns])
            pairs = zip(columns, row.cells, strict=True)
            _line(output, [column.place(cell) for column, cell in pairs])


def show_each(
    output: Output,
    form: Form,
    columns: Sequence[Column[T]],
    results: Iterable[T],
    values: Callable[[T], tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> list[T]:
    """Print a row for each result as soon as it is known, and return all results.

    values: its fields and its samples, see `Row`.
    """
    found: list[T] = []

    def rows() -> Iterator[Row]:
        for result in results:
            found.append(result)
            yield Row([c.cell(result) for c in columns if c.cell], *values(result))

    show(output, form, columns, rows())
    return found


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested fields: ``effects.compute`` is a field of ``effects``."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": one for inner, one in _flat(value).items()}
        else:
            found[name] = value
    return found


def plain(
    output: Output,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    words: Collection[int] = (0,),
) -> None:
    """Print a table whose rows are all known; `words` are the columns that hold no figures."""
    from ...traces.report import Table

    output.headed(Table(head, rows, words).lines())


def block(output: Output, title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Print a titled block of names and values."""
    output.line(title, "bold")
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        output.line(f"  {name.ljust(width)}  {value}".rstrip())


def paragraph(output: Output, text: str, width: int = 80) -> None:
    """Print words in lines of at most this many columns, also where no terminal shows them."""
    output.line(textwrap.fill(text, width, break_on_hyphens=False))


def _line(output: Output, cells: Sequence[str]) -> None:
    output.line("| " + " | ".join(cells) + " |")


def rate(value: float) -> str:
    """Format a number with three or four significant digits: 0.123, 12.3, 123, 1,234."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 1 or not value else f"{value:.3f}"


def between(values: Sequence[float]) -> str:
    """Format the range of some figures: min … max."""
    return f"{rate(min(values))} … {rate(max(values))}"


def percent(share: float) -> str:
    """Format a fraction as a whole percentage."""
    return f"{share:.0%}"


def megabytes(count: float) -> str:
    """Format bytes as MB or GB."""
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


# --- what the machine reached meanwhile


def limits_of(profiles: Iterable[MachineProfile]) -> dict[str, float]:
    """Return the median of each machine limit, as measured during the benchmark."""
    import statistics

    return {name: statistics.median(values) for name, values in _columns(profiles).items()}


def _columns(profiles: Iterable[MachineProfile]) -> dict[str, list[float]]:
    profiles = list(profiles)
    return {
        "int8_gops": [p.int8_gops for p in profiles],
        "bf16_gflops": [p.bf16_gflops for p in profiles],
        "fp32_gflops": [p.fp32_gflops for p in profiles],
        "dram_gbps": [p.read_gbps["DRAM"] for p in profiles],
    }


def notes(output: Output, kv: str, repeat: int, profiles: Sequence[MachineProfile]) -> None:
    """Print notes under a Markdown table: where, when and how it was measured, and the limits."""
    import statistics

    from ...jit.targets import TARGETS

    first, found = profiles[0], _columns(profiles)
    form = f", {kv} KV" if kv else ""
    output.line()
    output.line(
        f"{printable(first.cpu)}, {_plural(first.cores, 'core')}, "
        f"{_plural(first.threads, 'thread')}, {first.target}"
        f"{form}; {now()}; medians of {repeat}"
    )
    tiles = first.target in TARGETS and TARGETS[first.target].has_amx
    int8 = "int8 without tiles" if tiles else "int8"  # see `gemm_amx.py`: tiles are not its limit
    shown = ("int8_gops", int8, "GOP/s"), ("bf16_gflops", "bf16", "GFLOP/s")
    shown += ("fp32_gflops", "fp32", "GFLOP/s"), ("dram_gbps", "DRAM read", "GB/s")
    texts = [
        f"{name} {rate(statistics.median(found[key]))} {unit} ({between(found[key])})"
        for key, name, unit in shown
    ]
    output.line("limits in this run, median (min … max): " + ", ".join(texts))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def now() -> str:
    """Return the current time, in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())
