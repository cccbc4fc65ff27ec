"""table: rows of a file filtered, grouped and added up, exactly."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from difflib import get_close_matches
from heapq import heappush, heapreplace

from ..errors import ToolError
from .cells import EXACT, Numbers, iso, plain, quotient
from .paths import check_text, one_form, printable, shown
from .search import MAX_BYTES, MAX_PATTERN, MAX_SECONDS
from .sheet import OpenQuoteError, Row, Sheet
from .text import TextFile, unpacked
from .workspace import Workspace

MAX_GROUPS = 100_000
MAX_TOP = 50  # rows or groups shown at most
ROWS = 10  # shown where no number is asked for
GROUPS = 30
MAX_NAMED = 600  # characters of the columns in a message
MAX_CELL = 120  # characters of a cell in a result
MAX_VALUES = 5000  # different values of a column that are kept, to say what it has
FIRST = 3  # rows that a result names

_WAYS = {
    "sum": "sum total add", "mean": "mean average avg", "min": "min minimum smallest lowest",
    "max": "max maximum largest highest", "count": "count number rows", "list": "list show select",
}  # fmt: skip
_DO = {word: way for way, words in _WAYS.items() for word in words.split()}
_OPS = r"(?:>=|<=|!=|<>|==|=|>|<|\s(?:contains|is\snot|is)\s)"
_QUOTED = re.compile(r"""(["'`])(.*)\1""")


def ask_table(
    workspace: Workspace,
    path: str,
    where: str = "",
    group: str = "",
    value: str = "",
    do: str = "",
    top: int = 0,
    *,
    max_chars: int,
) -> str:
    """Answer a question about the rows of a table, with their lines.

    The arguments are those of `PlainFileTools.table`, with a cleaned path. Without `do` all figures
    of `value` are told, or of a group the sum, or rows; without `top` a usual number of them.

    Raises:
        ToolError: there is no table, or no such column; says what there is.
    """
    for name, text in (("where", where), ("group", group), ("value", value), ("do", do)):
        check_text(name, text)
        if len(text) > MAX_PATTERN:
            raise ToolError(f"{name} has {len(text)} characters; {MAX_PATTERN} are allowed")
    way = _DO.get(do.strip().casefold(), "" if not do.strip() else "?")
    if way == "?":
        raise ToolError(f"do={shown(do)} is not known; it is one of {', '.join(_WAYS)}")
    if not isinstance(top, int) or not 0 <= top <= MAX_TOP:
        raise ToolError(f"top must be a number up to {MAX_TOP}")
    for quotes in (True, False):
        with workspace.open(path) as file, closing(unpacked(file, path)) as inside:
            try:
                text = TextFile(inside, path, MAX_BYTES)
                question = _Question(
                    Sheet(text, path, quotes=quotes), path, where, group, value, way
                )
                question.run()
            except OpenQuoteError:
                continue
            notes = list(question.notes())
            if text.cut:
                notes.append(f"[cut: {shown(path)} read only at the start: too large]")
            if not quotes:
                notes.append("[note: a quote in the file does not end; all are plain characters]")
            return "\n".join([*question.answer(top, max_chars), *notes])
    raise ToolError(f"no table: {shown(path)} has cells that are too long")


# ------------------------------------------------------------------------------------ conditions


class Condition:
    """One column compared with one value: numbers as numbers, dates as ISO text, else as text."""

    def __init__(self, column: int, op: str, value: str, numbers: Numbers) -> None:
        self.column, self.op, self.value = column, op, value
        self._numbers, self._text = numbers, _text(value)
        # A model writes numbers with a point, or as the file has them.
        found = Numbers().parse(value) or numbers.parse(value)
        self._number = None if found is None else found[0]
        self._date = iso(value) or (value if re.fullmatch(r"\d{4}", value) else None)

    def holds(self, cell: str) -> bool:
        """Whether it is true of a cell."""
        mine = _text(cell)
        if self.op == "contains":
            return self._text in mine
        if self.op in ("=", "!=") and mine == self._text:
            return self.op == "="
        if self._number is not None and (number := self._numbers.parse(cell)) is not None:
            return _compare(self.op, number[0], self._number)
        if self._date is not None and (day := iso(cell)) is not None:
            # As much of it as was given: 2026-03 is all of that month.
            return _compare(self.op, day[: len(self._date)], self._date)
        if self._number is not None and self.op not in ("=", "!="):
            return False
        return _compare(self.op, mine, self._text)


def _compare(op: str, one: Decimal | str, other: Decimal | str) -> bool:
    order = (one > other) - (one < other)  # type: ignore[operator]
    return {"=": order == 0, "!=": order != 0, "<": order < 0, "<=": order <= 0,
            ">": order > 0, ">=": order >= 0}[op]  # fmt: skip


def _text(cell: str) -> str:
    return one_form(cell.strip().casefold())


def conditions(where: str, sheet: Sheet, path: str) -> list[Condition]:
    """The conditions of a text such as ``state = paid and euro >= 100``."""
    if not where.strip():
        return []
    names = sorted((n for n in sheet.columns[:500] if len(n) < 200), key=len, reverse=True)
    known = "|".join(re.escape(name) for name in names)
    joint = rf"(?i)(?:\s+and\s+|\s*&&\s*|\s*,\s*)(?=[\"'`]?(?:{known})[\"'`]?\s*{_OPS})"
    found: list[Condition] = []
    for term in re.split(joint, where.strip()):
        whole = re.match(rf"(?is)[\"'`]?({known})[\"'`]?\s*({_OPS})\s*(.*)", term)
        whole = whole or re.match(rf"(?is)(.*?)\s*({_OPS})\s*(.*)", term)
        if whole is None:
            raise ToolError(
                f"where={shown(where)} has no comparison; write a column, one of = != < <= > >= "
                f"contains, and a value; {_columns(sheet)}"
            )
        column = _column(whole[1], sheet, path)
        value = quoted[2] if (quoted := _QUOTED.fullmatch(whole[3].strip())) else whole[3].strip()
        if quoted is None and (more := re.search(rf"(?i)\s(?:and|or)\s+(.+?)\s*{_OPS}", value)):
            if value[more.start() :].split()[0].casefold() == "or":
                raise ToolError("where joins conditions with and only; ask once for each")
            _column(more[1], sheet, path)
        op = " ".join(whole[2].casefold().split())
        op = {"==": "=", "is": "=", "<>": "!=", "is not": "!="}.get(op, op)
        found.append(Condition(column, op, value, sheet.numbers))
    return found


def _column(name: str, sheet: Sheet, path: str) -> int:
    """The place of the column that is meant.

    Raises:
        ToolError: there is none; names those that there are.
    """
    wanted = name.strip().strip("\"'`")
    for form in (str, _text, lambda text: re.sub(r"[\W_]+", "", _text(text))):
        alike = [at for at, one in enumerate(sheet.columns) if form(one) == form(wanted)]
        if len(alike) == 1:
            return alike[0]
    raise ToolError(f"no column '{shown(wanted)}' in {shown(path)}; {_columns(sheet)}")


def _columns(sheet: Sheet) -> str:
    """The names of the columns, each with a value, as far as they fit a message."""
    told = ""
    for at, name in enumerate(sheet.columns):
        cells = (row.cells[at].strip() for row in sheet.sample if at < len(row.cells))
        example = printable(next((cell for cell in cells if cell), "empty"))
        one = f"{name[:60]} ({example[:30]}{'…' * (len(example) > 30)})"
        if len(told) + len(one) > MAX_NAMED:
            return f"columns: {told} and {len(sheet.columns) - at} more"
        told += f", {one}" if told else one
    return f"columns: {told}"


# -------------------------------------------------------------------------------------- answers


@dataclass
class _Figures:
    """What was added up of some rows."""

    rows: int = 0
    numbers: int = 0
    total: Decimal = Decimal(0)
    least: tuple[Decimal, int] | None = None
    most: tuple[Decimal, int] | None = None
    first: list[int] = field(default_factory=list)

    def add(self, value: Decimal | None, line: int) -> None:
        self.rows += 1
        if len(self.first) < FIRST:
            self.first.append(line)
        if value is None:
            return
        self.numbers += 1
        self.total = EXACT.add(self.total, value)
        if self.least is None or value < self.least[0]:
            self.least = value, line
        if self.most is None or value > self.most[0]:
            self.most = value, line

    def figure(self, way: str) -> Decimal | None:
        """What groups are ordered by."""
        if way == "count" or not self.numbers:
            return Decimal(self.rows) if way == "count" else None
        if way == "mean":
            return EXACT.divide(self.total, Decimal(self.numbers))
        found = {"min": self.least, "max": self.most}.get(way)
        return found[0] if found else self.total

    def text(self, way: str) -> str:
        value = self.figure(way)
        if value is None or way != "mean":
            return "no numbers" if value is None else plain(value)
        text, exact = quotient(self.total, self.numbers)
        return text if exact else f"{text} (rounded)"


class _Question:
    """One question: `run` reads the rows, then `answer` and `notes` tell."""

    def __init__(
        self, sheet: Sheet, path: str, where: str, group: str, value: str, way: str
    ) -> None:
        self._sheet, self._path, self._name = sheet, path, printable(path)
        self._where = " ".join(printable(where).split())
        self._conditions = conditions(where, sheet, path)
        self._group = _column(group, sheet, path) if group.strip() else None
        self._way = way
        self._values: list[int] = []
        if value.strip():
            self._values = self._columns_of(value)
        elif way in ("sum", "mean", "min", "max"):
            raise ToolError(f"do={way} needs value: a column of numbers; {_columns(sheet)}")
        self._reckons = bool(self._values) and way not in ("list", "count")
        if self._reckons and len(self._values) > 1:
            raise ToolError(f"value must be one column for do={way or 'sum'}")
        self.rows = 0
        self._all = _Figures()
        self._groups: dict[str, _Figures] = {}
        self._kept: list[tuple[Decimal, int, Row]] = []
        self._listed: list[Row] = []
        self._seen: list[dict[str, None]] = [{} for _ in self._conditions]
        self._units: dict[str, int] = {}
        self._bad: dict[str, int] = {}
        self._no_numbers = self._empty = self._over = 0
        self._stopped = ""

    def _columns_of(self, value: str) -> list[int]:
        try:
            return [_column(value, self._sheet, self._path)]
        except ToolError:
            if "," not in value:
                raise
            return [_column(name, self._sheet, self._path) for name in value.split(",")]

    def run(self) -> None:
        """Read the rows, for as long as a search takes at most."""
        end = time.monotonic() + MAX_SECONDS
        for row in self._sheet.rows:
            if self.rows % 256 == 0 and time.monotonic() > end:
                self._stopped = (
                    f"[cut: stopped after {MAX_SECONDS:g} seconds at line {row.line}; "
                    "the rows from there on are not in these figures]"
                )
                return
            self.rows += 1
            if self._fits(row):
                self._take(row)

    def _sampled(self) -> list[str]:
        """The first cells that are reckoned with."""
        rows = self._sheet.sample if self._reckons else []
        return [_cell(row, self._values[0]) for row in rows]

    def _fits(self, row: Row) -> bool:
        fits = True
        for one, seen in zip(self._conditions, self._seen, strict=True):
            cell = _cell(row, one.column)
            if len(seen) < MAX_VALUES and len(cell) <= MAX_CELL:
                seen[cell] = None
            fits = fits and one.holds(cell)
        return fits

    def _take(self, row: Row) -> None:
        number = self._number(_cell(row, self._values[0])) if self._reckons else None
        self._all.add(number, row.line)
        if self._group is not None:
            key = printable(_cell(row, self._group).strip()[:MAX_CELL]) or "(empty)"
            if key not in self._groups and len(self._groups) >= MAX_GROUPS:
                self._over += 1
                return
            self._groups.setdefault(key, _Figures()).add(number, row.line)
        elif self._way in ("min", "max") and number is not None:
            # The heap's first is the one that goes: of those alike, the last.
            item = (number.copy_negate() if self._way == "min" else number, -row.line, row)
            if len(self._kept) < MAX_TOP:
                heappush(self._kept, item)
            elif item[:2] > self._kept[0][:2]:
                heapreplace(self._kept, item)
        elif len(self._listed) < MAX_TOP:
            self._listed.append(row)

    def _number(self, cell: str) -> Decimal | None:
        found = self._sheet.numbers.parse(cell)
        if found is None:
            self._empty += not cell.strip()
            self._no_numbers += bool(cell.strip())
            if cell.strip() and len(self._bad) < FIRST:
                self._bad.setdefault(printable(cell.strip()[:30]), 1)
            return None
        if found[1] and len(self._units) < 10:
            self._units[found[1]] = self._units.get(found[1], 0) + 1
        return found[0]

    # ------------------------------------------------------------------------------------- told

    def answer(self, top: int, max_chars: int) -> Iterator[str]:
        """What was asked for: the rows that took part, then figures, groups or rows."""
        taken, name = self._all.rows, shown(self._path)
        if self._where:
            yield f"{name}: {taken} of {self.rows} rows with {shown(self._where)}"
            if not taken:
                yield from self._what_there_is()
                return
        else:
            asked = self._reckons or self._group is not None
            yield f"{name}: {self.rows} rows" + ("" if asked else f"; {_columns(self._sheet)}")
        if self._reckons and not self._all.numbers:
            value = self._sheet.columns[self._values[0]]
            raise ToolError(
                f"column '{shown(value)}' of {name} holds no numbers ({', '.join(self._bad)})"
            )
        if self._group is not None:
            yield from self._by_group(top or GROUPS, max_chars)
        elif self._reckons:
            yield from self._figures(top, max_chars)
        elif self._way != "count":
            yield from self._rows(self._listed, taken, top or ROWS, max_chars)
        if self._way in ("count", "sum", "mean") or self._reckons:
            yield f"first rows: {', '.join(self._at(line) for line in self._all.first)}"

    def _figures(self, top: int, max_chars: int) -> Iterator[str]:
        value = shown(self._sheet.columns[self._values[0]])
        unit = f" {next(iter(self._units))}" if len(self._units) == 1 else ""
        for way in [self._way] if self._way else ["sum", "mean", "min", "max"]:
            found = {"min": self._all.least, "max": self._all.most}.get(way)
            at = f" ({self._at(found[1])})" if found else f" (over {self._all.numbers} numbers)"
            yield f"{way} of {value}: {self._all.text(way)}{unit}{at}"
        if self._kept:
            best = [
                row for _, _, row in sorted(self._kept, key=lambda kept: kept[:2], reverse=True)
            ]
            alike = sum(one[0] == max(self._kept, key=lambda k: k[:2])[0] for one in self._kept)
            yield from self._rows(best[: top or min(alike, ROWS)], 0, MAX_TOP, max_chars)

    def _by_group(self, top: int, max_chars: int) -> Iterator[str]:
        assert self._group is not None
        way = self._way if self._way not in ("", "list") else "sum" if self._reckons else "count"
        least = way == "min"

        def order(item: tuple[str, _Figures]) -> tuple[bool, Decimal]:
            figure = item[1].figure(way)
            value = Decimal(0) if figure is None else figure
            return figure is None, value if least else value.copy_negate()

        of = f" of {shown(self._sheet.columns[self._values[0]])}" if self._reckons else ""
        by = shown(self._sheet.columns[self._group])
        yield f"{way}{of} by {by}, {len(self._groups)} different:"
        size = number = 0
        for number, (key, figures) in enumerate(sorted(self._groups.items(), key=order)):
            rows = f"{figures.rows} rows, " if way != "count" else ""
            line = f"{figures.text(way)}  {key}  ({rows}first: {self._at(figures.first[0])})"
            size += len(line) + 1
            if number == top or (number and size > max_chars):
                yield f"[cut: {len(self._groups) - number} more]"
                return
            yield line

    def _rows(self, rows: list[Row], total: int, top: int, max_chars: int) -> Iterator[str]:
        size = number = 0
        chosen = self._values if self._way == "list" and self._values else None
        for row in rows[:top]:
            places = range(len(self._sheet.columns)) if chosen is None else chosen
            cells = (f"{shown(self._sheet.columns[at])}={_brief(_cell(row, at))}" for at in places)
            line = f"{self._at(row.line)}: {', '.join(cells)}"[:2000]
            size += len(line) + 1
            if number and size > max_chars:
                break
            number += 1
            yield line
        if total > number:
            yield f"[cut: {total - number} more rows]"

    def _what_there_is(self) -> Iterator[str]:
        """Of each column that was compared: the values nearest to the one that was asked for."""
        for one, seen in zip(self._conditions, self._seen, strict=True):
            values = {_text(cell): cell.strip() for cell in seen if cell.strip()}
            wanted = _text(one.value)
            near = [v for k, v in values.items() if wanted and (wanted in k or k in wanted)]
            near = near or [values[k] for k in get_close_matches(wanted, values, 5, 0.6)]
            told = ", ".join(_brief(value) for value in (near or list(values.values()))[:8])
            word = "has near values" if near else "has"
            more = "" if near or len(values) <= 8 else ", …"
            yield f"column {shown(self._sheet.columns[one.column])} {word}: {told}{more}"

    def _at(self, line: int) -> str:
        return f"{self._name}:{line}"

    def notes(self) -> Iterator[str]:
        """What is not in the figures, and why."""
        if self._no_numbers:
            examples = ", ".join(self._bad)
            yield f"[left out, no numbers: {self._no_numbers} cells, such as {examples}]"
        unsure = [cell for cell in self._sampled() if self._sheet.numbers.is_unsure(cell)]
        if unsure and (read := self._sheet.numbers.parse(unsure[0])):
            yield f"[note: {_brief(unsure[0])} can be thousands or decimals; read as {read[0]}]"
        if self._empty:
            yield f"[left out, empty: {self._empty} cells]"
        if len(self._units) > 1:
            told = ", ".join(f"{unit} {count}" for unit, count in self._units.items())
            yield f"[note: cells with different units are added up as they are: {told}]"
        if self._over:
            yield f"[cut: {self._over} rows of further groups; more than {MAX_GROUPS}]"
        if self._sheet.odd:
            at = self._at(self._sheet.odd_line)
            yield f"[note: {self._sheet.odd} rows do not fit the columns, the first at {at}]"
        if self._sheet.too_long:
            yield f"[cut: {self._sheet.too_long} very long lines left out]"
        if self._stopped:
            yield self._stopped


def _cell(row: Row, at: int) -> str:
    return row.cells[at] if at < len(row.cells) else ""


def _brief(cell: str) -> str:
    text = printable(cell.strip())
    return text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"
