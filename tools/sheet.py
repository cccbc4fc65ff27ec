"""The rows of a table in a text file: csv and its kin, JSON lines, a list in JSON."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

from ..errors import ToolError
from .cells import Numbers, iso
from .paths import printable, shown
from .text import TextFile

HEAD = 200  # lines that show how a file is written
MAX_COLUMNS = 2000
MAX_RECORD = 100  # lines of one record; a quote that is open for longer was none
MAX_JSON = 16 * 1024 * 1024  # characters of JSON that is no JSON lines
DELIMITERS = ",;\t|"

Line = tuple[int, str]


class Row(NamedTuple):
    """One row."""

    line: int
    """Where it starts, from 1."""
    cells: list[str]
    """As they are written; those of the last columns may be missing."""


class OpenQuoteError(Exception):
    """A quote that does not end: as long as quotes mean something, there are no rows."""


class Sheet:
    """A table, read once from the start.

    Attributes:
        columns: their names; JSON may add some on the way.
        sample: the first rows.
        numbers: how numbers are written.
        too_long: lines that are too long to be rows.
        odd: rows with another number of cells than there are columns, and the line of the first.
    """

    def __init__(self, text: TextFile, path: str, *, quotes: bool = True) -> None:
        """Read the head.

        Args:
            text: the file.
            path: its name.
            quotes: whether a cell that starts with a quote ends with one.

        Raises:
            ToolError: it holds no table.
            OpenQuoteError: see `quotes`.
        """
        self.columns: list[str] = []
        self.too_long = self.odd = self.odd_line = 0
        self._path, self._quotes = path, quotes
        self._places: dict[str, int] = {}
        lines = self._lines(text)
        head = list(islice(lines, HEAD))
        first = next((line.lstrip() for _, line in head if line.strip()), "")
        if not first:
            raise ToolError(f"no table: {shown(path)} is empty, or of very long lines")
        everything = chain(head, lines)
        if first[0] in "[{":
            self.rows = (
                self._json_lines(everything) if _is_object(first) else self._json(lines, head)
            )
        else:
            self.rows = self._separated(head, everything)
        self.sample = list(islice(self.rows, HEAD))
        if not self.columns:
            raise ToolError(f"no table: {shown(path)} has no rows")
        self.rows = chain(self.sample, self.rows)
        self.numbers = Numbers(cell for row in self.sample for cell in row.cells)

    def _lines(self, text: TextFile) -> Iterator[Line]:
        number = 0
        for block in text.blocks():
            if block.length is not None:
                number += 1
                self.too_long += 1
                continue
            for line in block.lines():
                number += 1
                yield number, line

    # ------------------------------------------------------------------------- separated values

    def _separated(self, head: list[Line], lines: Iterator[Line]) -> Iterator[Row]:
        texts = [line for _, line in head if line.strip() and not line.startswith("#")]
        asked = re.fullmatch(r"sep=(.)", head[0][1])  # a spreadsheet's own note
        fields = next((line for _, line in head if line.startswith("#fields\t")), None)
        if asked:
            texts, lines = texts[1:], islice(lines, 1, None)
        comments = fields is not None or (head[0][1].startswith("#") and len(texts) < len(head))
        delimiter = asked[1] if asked else "\t" if fields else self._delimiter(texts)
        if comments:
            lines = ((number, line) for number, line in lines if not line.startswith("#"))
        rows = self._records(lines, delimiter)
        if fields is not None:
            self.columns = [printable(name) for name in fields.split("\t")[1:]]
            return rows
        first = list(islice(rows, HEAD))
        if not first:
            return rows
        # The last comment may name the columns.
        before = [line[1:] for at, line in head if at < first[0].line and line[:1] == "#"]
        names = before[-1].split(delimiter) if before else []
        if len(names) > 1 and len(names) == len(first[0].cells):
            self.columns = _unique(names)
        elif _is_header(first):
            self.columns = _unique(first.pop(0).cells)
        else:
            self.columns = [str(at) for at in range(1, len(first[0].cells) + 1)]
        if len(self.columns) > MAX_COLUMNS:
            raise ToolError(f"{shown(self._path)} has more than {MAX_COLUMNS} columns")
        return self._even(chain(first, rows))

    def _even(self, rows: Iterable[Row]) -> Iterator[Row]:
        width = len(self.columns)
        for row in rows:
            if len(row.cells) != width:
                self.odd += 1
                self.odd_line = self.odd_line or row.line
            yield row

    def _delimiter(self, lines: list[str]) -> str:
        def score(delimiter: str) -> tuple[float, int]:
            widths = [len(cells) for cells in self._reader(lines[:50], delimiter)]
            usual = max(set(widths), key=widths.count)
            fits = widths.count(usual) / len(widths) if usual > 1 and widths[0] > 1 else 0.0
            return round(fits, 1), usual

        name = self._path.removesuffix(".gz")
        if name.endswith((".tsv", ".tab")) and any("\t" in line for line in lines):
            return "\t"
        best = max(DELIMITERS, key=score)
        if score(best)[0] < 0.5 and not name.endswith((".csv", ".tsv")):
            raise ToolError(
                f"no table: the lines of {shown(self._path)} have no columns; "
                "count and search work on any text"
            )
        return best

    def _reader(self, lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
        quoting = csv.QUOTE_MINIMAL if self._quotes else csv.QUOTE_NONE
        reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, skipinitialspace=True)
        try:
            yield from reader
        except csv.Error:  # a cell of more characters than the module allows
            raise OpenQuoteError from None

    def _records(self, lines: Iterable[Line], delimiter: str) -> Iterator[Row]:
        start = taken = marks = 0

        def feed() -> Iterator[str]:
            nonlocal start, taken, marks
            for number, line in lines:
                start = start if taken else number
                taken += 1
                marks += line.count('"')
                if taken > MAX_RECORD:
                    raise OpenQuoteError
                yield f"{line}\n"

        for cells in self._reader(feed(), delimiter):
            if taken > 1 and marks % 2:
                raise OpenQuoteError  # only the end of the file ended it
            if any(cells):
                yield Row(start, cells)
            taken = marks = 0

    # ------------------------------------------------------------------------------------- JSON

    def _json_lines(self, lines: Iterable[Line]) -> Iterator[Row]:
        for number, line in lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line, parse_float=str, parse_int=str)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                yield Row(number, self._cells(row))
            else:
                self.odd += 1
                self.odd_line = self.odd_line or number

    def _json(self, lines: Iterator[Line], head: list[Line]) -> Iterator[Row]:
        parts: list[str] = []
        size = 0
        for _, line in chain(head, lines):
            parts.append(line)
            if (size := size + len(line) + 1) > MAX_JSON:
                raise ToolError(f"{shown(self._path)} is too large for JSON that is one value")
        if self.too_long:
            raise ToolError(f"no table: {shown(self._path)} is JSON with very long lines")
        text = "\n".join(parts)
        decoder = json.JSONDecoder(parse_float=str, parse_int=str)
        found = re.compile(r"\s*\[?\s*").match(text)
        at, line, counted = found.end() if found else 0, 1, 0
        while at < len(text) and text[at] != "]":
            line, counted = line + text.count("\n", counted, at), at
            try:
                row, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                raise ToolError(f"{shown(self._path)} is bad JSON from line {line} on") from None
            if not isinstance(row, dict):
                raise ToolError(f"no table: {shown(self._path)}:{line} is no JSON object")
            yield Row(line, self._cells(row))
            while at < len(text) and text[at] in ", \t\r\n":
                at += 1

    def _cells(self, row: dict[str, object]) -> list[str]:
        cells = [""] * len(self.columns)
        for name, value in _flat(row):
            at = self._places.setdefault(name, len(self._places))
            if at >= MAX_COLUMNS:
                del self._places[name]
                continue
            if at == len(self.columns):
                self.columns.append(name)
                cells.append("")
            cells[at] = value
        return cells


def _flat(row: dict[str, object], above: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Names and values; those of objects within it have their names behind a point."""
    for key, value in row.items():
        name = printable(f"{above}{key}")
        if isinstance(value, dict) and depth < 4:
            yield from _flat(value, f"{name}.", depth + 1)
        elif isinstance(value, str):
            yield name, value
        else:
            yield name, "" if value is None else json.dumps(value, ensure_ascii=False)


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


_YEAR = re.compile(r"(?:19|20)\d\d")


def _is_header(rows: list[Row]) -> bool:
    """Whether the first row holds names: no numbers or dates but years, and none twice."""
    first = [cell.strip() for cell in rows[0].cells]
    names = [cell for cell in first if cell]
    if len(set(names)) < len(names) or 2 * len(names) < len(first):
        return False
    plain = Numbers()
    values = [cell for cell in names if plain.parse(cell) or iso(cell)]
    years = all(_YEAR.fullmatch(cell) for cell in values)
    return not values or (years and first[0] not in values)


def _unique(names: list[str]) -> list[str]:
    """Names of columns, each once and none empty."""
    found: dict[str, None] = {}
    for at, name in enumerate(names, 1):
        name = printable(name.strip()) or f"column {at}"
        found[f"{name} ({at})" if name in found else name] = None
    return list(found)
