"""The tool table: SQL queries over the rows of one file, by SQLite."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice, takewhile
from typing import Any

from ..errors import ToolError
from .paths import check_text, printable, shown
from .search import MAX_SECONDS
from .text import BUDGET, TextFile, unpacked
from .workspace import Workspace

MAX_CELLS, MAX_COLUMNS = 3_000_000, 500
MAX_QUERY, MAX_VALUE = 4000, 1_000_000  # of a query: its characters; bytes of what it computes
MAX_ROWS, MAX_CELL = 50, 200  # of a result: rows, and characters of a cell
MAX_COLUMNS_TEXT = 600  # characters of the columns in a message
MAX_JSON = 16_000_000  # characters of one value
HEAD, BATCH = 50, 1000  # lines that show what separates cells; rows stored at once

_NUMBER = (
    r"(?:-(?=[$€£¥]))?([$€£¥]?) ?[-+]?(?:0|[1-9]\d{0,14}|[1-9]\d{0,2}(?:T\d{3}){1,4}|(?=P\d))"
    r"(?:P\d{1,15})?(?:[eE][-+]?\d{1,2})? ?([$€£¥%]?)"
)
_FORMS = {  # what is between thousands and before decimals; 1,234.50 is tried before 1.234,50
    re.compile(_NUMBER.replace("T", rf"\{marks[0]}").replace("P", rf"\{marks[1]}"), re.A): marks
    for marks in (",.", ".,")
}
_NOTHING = ("-", "n/a", "N/A", "na", "NA", "nan", "NaN", "none", "None", "null", "NULL")
_NO_NAME = re.compile(r"(?!(?:19|20)\d\d\Z)[-+]?\d+(?:[.,]\d+)*|\d{4}-\d\d-\d\d.*")
_ALLOWED = ("SELECT", "READ", "FUNCTION", "RECURSIVE")


@dataclass
class _Column:
    name: str
    example: str = ""
    odd: str = ""  # what is no number in it, where most cells are
    forms: list[re.Pattern[str]] = field(default_factory=lambda: list(_FORMS))  # that all cells fit
    units: set[str] = field(default_factory=set[str])

    def see(self, cells: Iterable[str | None]) -> None:
        """Learn from some cells whether all are numbers, and how these are written."""
        given = [cell for cell in cells if cell and cell not in _NOTHING]
        for form in tuple(self.forms if given else ()):
            found = [form.fullmatch(cell) for cell in given]
            self.units.update(one[1] or one[2] for one in found if one)
            if None in found:
                self.forms.remove(form)
                bad = [cell for cell in given if not any(one.fullmatch(cell) for one in _FORMS)]
                if not self.forms and (self.example or 2 * len(bad) <= len(given)):
                    self.odd = (bad or given)[0]
        self.example = self.example or (given or [""])[0]

    def sql(self) -> tuple[str, str]:
        """Return the SQL of the column's declaration and of its values from text cells."""
        name = value = quoted(self.name)
        if len(self.units) != 1 or not self.forms:
            self.odd = self.odd or (" ".join(sorted(self.units)) if self.forms else "")
            return f"{name} TEXT", name
        thousand, point = _FORMS[self.forms[0]]
        for old, new in ((" ", ""), (*self.units, ""), (thousand, ""), (point, ".")):
            value = f"replace({value}, '{old}', '{new}')" if old else value
        # REAL: 1 / 2 is a half.
        return f"{name} REAL", f"CASE WHEN {name} NOT IN {_NOTHING} THEN {value} END"


def ask_table(workspace: Workspace, path: str, query: str, *, max_chars: int) -> str:
    """Run an SQL query over the table `t` of a file's rows.

    Args:
        workspace, path: the file, by its cleaned path.
        query: one SELECT.
        max_chars: cap on the characters of the rows shown.

    Raises:
        ToolError: there is no table, or it cannot answer this; says which columns there are.
    """
    check_text("query", query, MAX_QUERY)
    with closing(open_table(workspace, path)) as table:
        return table.answer(query, max_chars)


def open_table(workspace: Workspace, path: str) -> Table:
    """Read the rows of a file, given its cleaned path.

    Raises:
        ToolError: there is no table.
    """
    for strict in (True, False):
        table = Table(path, strict)
        try:
            with workspace.open(path) as file, closing(unpacked(file, path)) as inside:
                table.load(TextFile(inside, path, BUDGET))
        except csv.Error:  # a quote that does not end: all are characters like others
            table.close()
            continue
        except BaseException:
            table.close()
            raise
        return table
    raise ToolError(f"no table: {shown(path)} has cells that are too long")


class Table:
    """The rows of a file as the table `t` of an in-memory database.

    Attributes:
        columns: their names, and whether each holds numbers.
    """

    columns: dict[str, bool]

    def __init__(self, path: str, strict: bool) -> None:
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._path, self._strict = path, strict
        self._columns: list[_Column] = []
        self._rows = self._odd = self._long = 0
        self._cut = False

    def load(self, text: TextFile) -> None:
        """Load the rows. Raises csv.Error for invalid quotes."""
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE)
        run, made, cells, end = self._database.execute, 0, 0, time.monotonic() + MAX_SECONDS
        rows = self._read(self._lines(text))
        while not self._cut and (batch := list(islice(rows, BATCH))):
            width = len(self._columns)
            for name in (quoted(column.name) for column in self._columns[made:]):
                run(f"ALTER TABLE cells ADD {name}" if made else f"CREATE TABLE cells ({name})")
                made += 1
            even = [[*row[:width], *[None] * (width - len(row))] for row in batch]
            for column, one in zip(self._columns, zip(*even, strict=True), strict=True):
                if column.forms:
                    column.see(one)
            try:
                marks = ",".join("?" * width)
                self._database.executemany(f"INSERT INTO cells VALUES ({marks})", even)
            except sqlite3.Error:
                raise ToolError(f"no table: {shown(self._path)} has too long rows") from None
            self._rows, cells = self._rows + len(batch), cells + width * len(batch)
            self._cut = cells > MAX_CELLS or time.monotonic() > end
        self._cut = self._cut or text.cut
        if not self._rows:
            raise ToolError(f"no table: {shown(self._path)} has no rows that can be read")
        types, values = zip(*(column.sql() for column in self._columns), strict=True)
        names = (column.name for column in self._columns)
        self.columns = {name: of.endswith("REAL") for name, of in zip(names, types, strict=True)}
        run(f"CREATE TABLE t ({', '.join(types)})")
        run(f"INSERT INTO t SELECT {', '.join(values)} FROM cells")
        run("DROP TABLE cells")
        file = self._path.rpartition("/")[2].casefold()
        for name in {file, file.split(".")[0]} - {"t", ""}:
            run(f"CREATE VIEW {quoted(name)} AS SELECT * FROM t")
        allowed = {getattr(sqlite3, f"SQLITE_{one}") for one in _ALLOWED}
        self._database.set_authorizer(lambda action, _, name, *__: action not in allowed)

    def _lines(self, text: TextFile) -> Iterator[str]:
        for block in text.blocks():
            self._long += block.length is not None
            yield from block.lines() if block.length is None else ()

    def _read(self, lines: Iterator[str]) -> Iterator[list[str | None]]:
        head = list(islice(lines, HEAD))
        if head and head[0].startswith("sep="):  # a spreadsheet's own note
            head.pop(0)
        start = next((line.strip() for line in head if line.strip()), "")
        if not start:
            raise ToolError(f"no table: {shown(self._path)} is empty")
        return (self._objects if start[0] in "[{" else self._cells)(head, chain(head, lines))

    def _cells(self, head: list[str], lines: Iterator[str]) -> Iterator[list[str | None]]:
        comments = list(takewhile(lambda line: line.startswith("#"), head))
        data = (line for line in lines if not (comments and line.startswith("#")))
        mark = self._delimiter(head[len(comments) :])
        rows = filter(any, self._csv(data, mark))
        start = next(rows, [])
        named = [line for line in comments if line.startswith("#fields\t")] or comments[-1:] or [""]
        names = named[0].lstrip("# ").removeprefix("fields\t").split(mark)
        if len(names) == len(start) > 1 or any(map(_NO_NAME.fullmatch, start)):
            rows = chain([start], rows)
            start = names if len(names) == len(start) else [""] * len(start)
        for name in start:
            self._add(name)
        for row in rows:
            self._odd += len(row) != len(self._columns)
            yield [cell.strip() or None for cell in row]

    def _csv(self, lines: Iterable[str], mark: str) -> Iterator[list[str]]:
        quoting = csv.QUOTE_MINIMAL if self._strict else csv.QUOTE_NONE
        ended = (f"{line}\n" for line in lines)
        return csv.reader(
            ended, delimiter=mark, quoting=quoting, strict=True, skipinitialspace=True
        )

    def _delimiter(self, lines: list[str]) -> str:
        bare = re.sub('"[^"]*"', "", "\n".join(lines)).split("\n")

        def fits(mark: str) -> tuple[float, int]:
            widths = [line.count(mark) + 1 for line in bare if line.strip()] or [1]
            usual = max(set(widths), key=widths.count)
            return (usual > 1) * round(widths.count(usual) / len(widths), 1), usual

        best = max("\t,;|", key=fits)
        if fits(best)[0] < 0.5 and not re.search(r"\.[ct]sv\b", self._path):
            lines_of = f"no table: the lines of {shown(self._path)} have no columns"
            raise ToolError(f"{lines_of}; count and search work on any text")
        return best

    def _objects(self, head: list[str], lines: Iterator[str]) -> Iterator[list[str | None]]:
        whole = "".join(head).lstrip().startswith("[")
        texts = filter(str.strip, lines)
        found = (_decoded("\n".join(texts)) or ()) if whole else map(_decoded, texts)
        names: dict[str, None] = {}
        for one in found:
            if isinstance(one, dict):
                for name in one if one.keys() - names.keys() else ():
                    if name not in names:
                        self._add(name)
                        names[name] = None
                yield [_text(one.get(name)) for name in names]
            else:
                self._odd += 1

    def _add(self, name: str) -> None:
        if len(self._columns) >= MAX_COLUMNS:
            raise ToolError(f"{shown(self._path)} has more than {MAX_COLUMNS} columns")
        name = printable(name.strip())[:100] or f"column_{len(self._columns) + 1}"
        while any(name.casefold() == one.name.casefold() for one in self._columns):
            name += "_2"
        self._columns.append(_Column(name))

    def close(self) -> None:
        """Release the rows."""
        self._database.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query from our own code, in full.

        Raises:
            ToolError: it takes too long.
        """
        self._limit()
        try:
            return self._database.execute(query).fetchall()
        except sqlite3.Error as error:
            raise ToolError(f"bad query: {printable(str(error))}") from None

    def _limit(self) -> None:
        end = time.monotonic() + MAX_SECONDS
        self._database.set_progress_handler(lambda: time.monotonic() > end, 10_000)

    def answer(self, query: str, max_chars: int, *, told: bool = True) -> str:
        """Return a query's rows as text, with notes and, if requested, the table's columns."""
        self._limit()
        try:
            rows = list(self._result(self._database.execute(query), max_chars))
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            why = {
                "interrupted": f"it takes more than {MAX_SECONDS:g} seconds",
                "not authorized": "query must be one SELECT",
            }.get(str(error), printable(str(error)))
            raise ToolError(f"bad query: {why}; {self._columns_text()}") from None
        about = [f"[{self._columns_text()}]"] if told else []
        return "\n".join([*rows, *self._notes(query), *about])

    def _result(self, cursor: sqlite3.Cursor, max_chars: int) -> Iterator[str]:
        if cursor.description is None:
            raise sqlite3.Warning("not authorized")
        yield _line((one[0] for one in cursor.description), max_chars)
        size = more = 0
        for number, row in enumerate(cursor, 1):
            line = _line(row, max_chars)
            size += len(line) + 1
            if more or number > MAX_ROWS or (size > max_chars and number > 1):
                more += 1
            else:
                yield line
        if more:
            yield f"[cut: {more} more rows]"

    def _notes(self, query: str) -> Iterator[str]:
        file = self._path.rpartition("/")[2].casefold()
        names = {file, file.split(".")[0], *(column.name.casefold() for column in self._columns)}
        for name in re.findall(r'(?i)(?<!as )"([^"]+)"', query):
            if name.casefold() not in names:
                yield f"[note: no column is called {shown(name)}; it counts as text]"
        for column in self._columns:
            word = rf"(?i)(?<!\w){re.escape(column.name)}(?!\w)"
            if column.odd and re.search(word, query):
                odd = f"not all of it is one kind of number: {_cell(column.odd)}"
                yield f"[note: {quoted(column.name)} counts as text; {odd}]"
        for is_so, note in (
            (self._cut, f"cut: too large; only the first {self._rows} rows were read"),
            (not self._strict, "note: quotes are not those of csv; they count as characters"),
            (self._odd, f"note: {self._odd} rows do not fit the columns"),
            (self._long, f"cut: {self._long} very long lines left out"),
        ):
            if is_so:
                yield f"[{note}]"

    def _columns_text(self) -> str:
        text = f"the table t has the {self._rows} rows of {shown(self._path)}; columns:"
        for at, one in enumerate(self._columns):
            text += f" {quoted(one.name)} ({_cell(one.example)[:30] or 'empty'}),"
            if len(text) > MAX_COLUMNS_TEXT and at + 1 < len(self._columns):
                return f"{text} and {len(self._columns) - at - 1} more"
        return text[:-1]


def quoted(name: str) -> str:
    """Quote a column's name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def _cell(value: object) -> str:
    if isinstance(value, float):
        value = f"{round(value, 6) if abs(value) > 0.001 else value:.15g}"
    text = "NULL" if value is None else printable(str(value))
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"


def _line(cells: Iterable[object], limit: int) -> str:
    return " | ".join(map(_cell, cells))[: max(limit, MAX_CELL)]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text) if len(text) <= MAX_JSON else None
    except (ValueError, RecursionError):
        return None


def _text(value: object) -> str | None:
    if not isinstance(value, str | None):
        value = json.dumps(value, ensure_ascii=False)
    return printable((value or "").strip()) or None
