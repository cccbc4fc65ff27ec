"""What is right, computed: each method of `Tree` finds an answer and the lines that carry it.

A method refuses (`Unclear`) what is not as the question supposes: a line that is not the only one,
a tie for the most frequent, a file that is not there. So a question whose tree has changed cannot
keep an answer that has become wrong.
"""

from __future__ import annotations

import ast
import csv
import gzip
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property

SHOWN = 120
"""Maximum characters of a stored gold line, and of a requested line."""
KEPT = 5
"""Maximum number of gold lines stored for an answer."""


class Unclear(ValueError):
    """The tree does not have the one answer that a question supposes."""


@dataclass(frozen=True)
class Line:
    """A line of a file, by its number from 1."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Found:
    """The right answer to a question."""

    need: tuple[tuple[str, ...], ...]
    """Groups of forms, one of each required; ``#312`` is a computed number that must be a number of
    its own, ``@2026-03-14`` a date in any form."""
    lines: tuple[Line, ...] = ()
    """Lines with the answer, `KEPT` at most."""
    none: tuple[str, ...] = ()
    """Values that an answer must not contain: true of something else."""
    note: str = ""
    """The computed answer, if no single line has it."""

    @property
    def first(self) -> str:
        """Return the first required value, in its first form."""
        return self.need[0][0]

    def but(self, *none: str) -> Found:
        """Add values that an answer must not contain."""
        return replace(self, none=(*self.none, *none))

    def also(self, *forms: str) -> Found:
        """Add accepted forms of the first required value."""
        if not forms:
            return self
        return replace(self, need=((*self.need[0], *forms), *self.need[1:]))

    def near(self, other: Found) -> Found:
        """Return this with the lines of a near miss, whose answer must not be given."""
        none = tuple(group[0] for group in other.need)
        return replace(self, lines=other.lines, none=(*self.none, *none))

    def __and__(self, other: Found) -> Found:
        """Require both answers."""
        note = " ".join(filter(None, (self.note, other.note)))
        return Found(self.need + other.need, self.lines + other.lines, self.none + other.none, note)


_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
Row = dict[str, str]
Where = Callable[[Row], bool]
_EMPTY = ("", "NA", "-")


class Tree:
    """The files of a tree as text."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    @cached_property
    def texts(self) -> dict[str, list[str]]:
        """Return the lines of the text files, gzip unpacked."""
        found = {}
        for path, data in self.files.items():
            try:
                found[path] = unpacked(path, data).decode().splitlines()
            except (UnicodeDecodeError, OSError):
                continue
        return found

    def matches(self, pattern: str, regex: str) -> list[tuple[Line, re.Match[str]]]:
        """Return the lines that match, in the order of files; ``*`` also matches slashes."""
        paths = [path for path in self.texts if fnmatch(path, pattern)]
        if not paths:
            raise Unclear(f"no file is {pattern}")
        wanted = re.compile(regex)
        return [
            (Line(path, number, text), match)
            for path in paths
            for number, text in enumerate(self.texts[path], 1)
            if (match := wanted.search(text))
        ]

    # ------------------------------------------------------------------------------- lines

    def the(self, path: str, regex: str) -> Found:
        """Find the groups of the only line that matches."""
        found = self.matches(path, regex)
        if len(found) != 1:
            raise Unclear(f"{len(found)} lines of {path} match {regex!r}")
        return _told(*found[0])

    def key(self, path: str, regex: str) -> Found:
        """Find as `the` does; other values of the same key in the tree become `none`.

        The one group is the value. The same expression over all other files finds the values that
        would be the answer to another question.
        """
        found = self.the(path, regex)
        others = {m[1].strip() for line, m in self.matches("*", regex) if line.path != path}
        return found.but(*sorted(others - {found.first}))

    def under(self, path: str, section: str, regex: str) -> Found:
        """Find the groups of the only match below a heading; values elsewhere become `none`."""
        inside, here, others = False, [], set[str]()
        for number, text in enumerate(self.lines(path), 1):
            if re.match(r"\s*\[|\S.*:$|\S.*\{$|network=\{|<\w+ ", text):
                inside = section in text
            if match := re.search(regex, text):
                if inside:
                    here.append((Line(path, number, text), match))
                else:
                    others.add(match[1].strip())
        if len(here) != 1:
            raise Unclear(f"{len(here)} lines below {section} of {path} match {regex!r}")
        found = _told(*here[0])
        return found.but(*sorted(others - {found.first}))

    def first(self, path: str, regex: str) -> Found:
        """Find the groups of the first line that matches."""
        return self._end(path, regex, 0)

    def last(self, path: str, regex: str) -> Found:
        """Find the groups of the last line that matches."""
        return self._end(path, regex, -1)

    def _end(self, path: str, regex: str, place: int) -> Found:
        found = self.matches(path, regex)
        if not found:
            raise Unclear(f"no line of {path} matches {regex!r}")
        told = _told(*found[place])
        same = {groups(match) for _, match in found} - {groups(found[place][1])}
        others = {one for several in same for one in several} - {n for g in told.need for n in g}
        return told.but(*sorted(one for one in others if len(one) > 3)[:3])

    def line(self, path: str, number: int) -> Found:
        """Find the text of a line by its number; negative numbers count from the end."""
        lines = self.lines(path)
        place = number - 1 if number > 0 else len(lines) + number
        text = lines[place]
        if not 4 <= len(text.strip()) <= SHOWN or lines.count(text) > 1:
            raise Unclear(f"line {number} of {path} cannot be told from others: {text!r}")
        near = [lines[i].strip() for i in (place - 1, place + 1) if 0 <= i < len(lines)]
        none = tuple(one for one in near if len(one) > 8 and one not in text)
        return Found(((text.strip(),),), (Line(path, place + 1, text),), none)

    def after(self, path: str, regex: str, steps: int = 1, value: str = "(.+)") -> Found:
        """Find the groups of the line that is `steps` after the only line that matches."""
        (line, _), *more = self.matches(path, regex) or [(None, None)]
        if line is None or more:
            raise Unclear(f"not one line of {path} matches {regex!r}")
        text = self.lines(path)[line.number - 1 + steps]
        match = re.search(value, text)
        if match is None:
            raise Unclear(f"{text!r} does not match {value!r}")
        return _told(Line(path, line.number + steps, text), match)

    def lines(self, path: str) -> list[str]:
        """Return the lines of one file."""
        if path not in self.texts:
            raise Unclear(f"no file {path}")
        return self.texts[path]

    # ------------------------------------------------------------------- counts and groups

    def count(self, pattern: str, regex: str = "") -> Found:
        """Count the lines that match."""
        found = self.matches(pattern, regex)
        about = f"of {pattern} match /{regex}/" if regex else f"are in {pattern}"
        note = f"{len(found)} lines {about}"
        lines = tuple(_kept(line) for line, _ in found[:KEPT]) if regex else ()
        return Found(((f"#{len(found)}",),), lines, note=note)

    def most(self, pattern: str, regex: str, place: int = 0) -> Found:
        """Find the most frequent value of the first group; the runner-up is wrong."""
        found = self.matches(pattern, regex)
        ranked = Counter(match[1] for _, match in found).most_common()
        if len(ranked) < 2 or ranked[0][1] == ranked[1][1]:
            raise Unclear(f"{pattern} has no most frequent /{regex}/: {ranked[:3]}")
        value, times = ranked[0]
        lines = [_kept(line) for line, match in found if match[1] == value][:KEPT]
        table = ", ".join(f"{name} {n}" for name, n in ranked[:4])
        note = f"/{regex}/ in {pattern} by number: {table}"
        need = ((value,), (f"#{times}",))[place : place + 1]
        return Found(need, tuple(lines), (ranked[1][0],) if place == 0 else (), note)

    def all(self, pattern: str, regex: str) -> Found:
        """Find the groups of every line that matches, and the lines that have a new one."""
        told: dict[str, Line] = {}
        for line, match in self.matches(pattern, regex):
            for one in groups(match):
                told.setdefault(one, _kept(line))
        if not 2 <= len(told) <= 15:
            raise Unclear(f"{len(told)} things match {regex!r} in {pattern}")
        return Found(tuple((one,) for one in told), tuple(dict.fromkeys(told.values())))

    def files_with(self, regex: str, pattern: str = "*", only: int | None = 1) -> Found:
        """Find the files that match an expression, exactly `only` of them; None: any number."""
        found: dict[str, Line] = {}
        for line, _ in self.matches(pattern, regex):
            found.setdefault(line.path, line)
        if not found or (only is not None and len(found) != only):
            raise Unclear(f"{len(found)} files have {regex!r}: {sorted(found)[:5]}")
        return self._named(found, tuple(_kept(line) for line in found.values()))

    def names(self, pattern: str, leave: str = "") -> Found:
        """Find the names of all files that match a pattern."""
        found = [p for p in self.files if fnmatch(p, pattern) and not (leave and fnmatch(p, leave))]
        if not 1 <= len(found) <= 15:
            raise Unclear(f"{len(found)} files are {pattern}")
        need = []
        for path in found:
            name = path.rsplit("/", 1)[-1]
            need.append((name, path, name.rsplit(".", 1)[0] or name))
        lines = tuple(Line(path, 0, "") for path in found)
        return Found(tuple(need), lines, note=f"files by {pattern}: " + ", ".join(found))

    def number_of_files(self, pattern: str) -> Found:
        """Count the files that match a pattern."""
        found = [path for path in self.files if fnmatch(path, pattern)]
        if not found:
            raise Unclear(f"no file is {pattern}")
        return Found(((f"#{len(found)}",),), note=f"{len(found)} files by {pattern}")

    def _named(self, found: Iterable[str], lines: tuple[Line, ...]) -> Found:
        """Accept files by path, or by a path suffix that is unique."""
        need = []
        for path in found:
            parts = path.split("/")
            ends = ["/".join(parts[start:]) for start in range(len(parts))]
            own = [e for e in ends if sum(f"/{p}".endswith(f"/{e}") for p in self.files) == 1]
            stem = own[-1].rsplit(".", 1)[0]  # a common word would be found by chance
            need.append((*own, stem) if re.search(r"\w[_\d-]\w", stem) else tuple(own))
        return Found(tuple(need), lines)

    # ----------------------------------------------------------------------------- tables

    def rows(self, path: str) -> list[Row]:
        """Read the rows of a table by column: csv (, or ;), tsv, JSON lines or list, Zeek."""
        lines = self.lines(path)
        if lines[0].startswith("#separator"):
            names = next(line for line in lines if line.startswith("#fields")).split("\t")[1:]
            body = [line.split("\t") for line in lines if not line.startswith("#")]
            return [dict(zip(names, one, strict=True)) for one in body]
        if lines[0].lstrip().startswith(("{", "[")):
            text = "\n".join(lines)
            made = json.loads(text) if text.startswith("[") else [json.loads(one) for one in lines]
            return [{key: _shown(value) for key, value in one.items()} for one in made]
        mark = max("\t;,", key=lines[0].count)
        return list(csv.DictReader(io.StringIO("\n".join(lines)), delimiter=mark))

    def total(self, path: str, column: str, how: str, where: Where | None = None) -> Found:
        """Compute the sum, mean, min or max of a column; a mean to two decimals.

        Numbers are read in the form of their table: with a comma where a ``;`` parts the columns.
        """
        rows = [row for row in self.rows(path) if where is None or where(row)]
        values = [amount(row[column]) for row in rows if row.get(column, "") not in _EMPTY]
        if not values:
            raise Unclear(f"{path} has no {column}")
        made = {"sum": sum, "min": min, "max": max, "mean": lambda v: sum(v) / len(v)}[how](values)
        text = f"{made:.2f}".rstrip("0").rstrip(".") if made != int(made) else str(int(made))
        return Found(
            ((f"#{text}",),), note=f"{how} of {column} in {path}, {len(values)} rows: {text}"
        )

    def number_of_rows(self, path: str, where: Where | None = None) -> Found:
        """Count the rows that meet a condition."""
        count = sum(where is None or where(row) for row in self.rows(path))
        return Found(((f"#{count}",),), note=f"{count} such rows in {path}")

    def cell(self, path: str, column: str, where: Where) -> Found:
        """Find one cell of the only row that meets a condition."""
        found = [(i, row) for i, row in enumerate(self.rows(path)) if where(row)]
        if len(found) != 1:
            raise Unclear(f"{len(found)} rows of {path}")
        value = found[0][1][column]
        if re.fullmatch(r"[\d.]+,\d+", value):
            value = f"#{amount(value):.2f}"
        return Found(((value,),), self._line_of_row(path, found[0][0]))

    def extreme(
        self, path: str, column: str, how: str, named: str, where: Where | None = None
    ) -> Found:
        """Find column `named` of the one row with the largest or smallest value of a column."""
        rows = [
            (i, row)
            for i, row in enumerate(self.rows(path))
            if (where is None or where(row)) and row.get(column, "") not in _EMPTY
        ]
        best = (max if how == "max" else min)(amount(row[column]) for _, row in rows)
        found = {row[named]: i for i, row in rows if amount(row[column]) == best}
        if len(found) != 1:
            raise Unclear(f"{len(found)} rows of {path} have the {how} of {column}")
        ((value, place),) = found.items()
        line = self._line_of_row(path, place)
        return Found(((value,),), line, note=f"{how} of {column} in {path}: {best:g}")

    def group(self, path: str, by: str, column: str | None = None, place: int = 0) -> Found:
        """Find the value of a column with the most rows, or the largest sum of another column."""
        sums: dict[str, float] = defaultdict(float)
        for row in self.rows(path):
            if row.get(by, "") not in _EMPTY:
                sums[row[by]] += 1 if column is None else amount(row[column])
        ranked = sorted(sums.items(), key=lambda pair: -pair[1])
        (value, most), (second, less), *_ = ranked
        if most == less:
            raise Unclear(f"{path} has no largest {by}: {value}, {second}")
        table = ", ".join(f"{name} {n:.12g}" for name, n in ranked[:4])
        note = f"{column or 'rows'} of {path} by {by}: {table}"
        if place:
            return Found(((f"#{most:.12g}",),), note=note)
        return Found(((value,),), none=(second,), note=note)

    def _line_of_row(self, path: str, place: int) -> tuple[Line, ...]:
        """Return the line of a row; none if the rows of a JSON list are longer than a line."""
        lines = self.lines(path)
        if lines[0].startswith("#separator"):
            rows = [n for n, text in enumerate(lines, 1) if not text.startswith("#")]
        elif lines[0].lstrip().startswith(("{", "[")):
            rows = [n for n, text in enumerate(lines, 1) if re.match(r"\s*\[?\s*\{.*\}", text)]
        else:
            rows = list(range(2, len(lines) + 1))
        if not 0 <= place < len(rows):
            return ()
        return (_kept(Line(path, rows[place], lines[rows[place] - 1])),)

    # ---------------------------------------------------------------------------- sources

    def defined(self, name: str, pattern: str = "*.py") -> Found:
        """Find the file that defines a function or class, the only one of its name."""
        found = self.matches(pattern, rf"^\s*(?:async )?(?:def|class) {re.escape(name)}\b")
        if len(found) != 1:
            raise Unclear(f"{name} is defined {len(found)} times")
        line = found[0][0]
        return self._named([line.path], (_kept(line),))

    def default(self, path: str, function: str, parameter: str) -> Found:
        """Find the default of a parameter; `function` as ``Class.method`` or ``function``."""
        for node in _functions(ast.parse("\n".join(self.lines(path)))):
            if node[0] != function:
                continue
            args = node[1].args
            pairs = [*zip(args.kwonlyargs, args.kw_defaults, strict=True)]
            plain = [*args.posonlyargs, *args.args]
            pairs += zip(plain[len(plain) - len(args.defaults) :], args.defaults, strict=True)
            for arg, value in pairs:
                if arg.arg == parameter and value is not None:
                    text = ast.unparse(value)
                    line = Line(path, value.lineno, self.lines(path)[value.lineno - 1])
                    return Found(((text.strip("'\""), text),), (_kept(line),))
        raise Unclear(f"{path} has no default of {parameter} of {function}")

    def methods(self, path: str, name: str) -> Found:
        """Find all public methods of a class."""
        for node in ast.walk(ast.parse("\n".join(self.lines(path)))):
            if isinstance(node, ast.ClassDef) and node.name == name:
                found = [
                    n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                named = [n for n in found if not n.name.startswith("_")]
                if not 2 <= len(named) <= 8:
                    raise Unclear(f"{name} has {len(named)} methods")
                lines = (_kept(Line(path, n.lineno, self.lines(path)[n.lineno - 1])) for n in named)
                return Found(tuple((n.name,) for n in named), tuple(lines))
        raise Unclear(f"{path} has no class {name}")

    # ----------------------------------------------------------------------------- absence

    def absent(self, *regexes: str, path: str = "") -> Found:
        """Verify that nothing in the tree, not even a name, matches any of these expressions.

        Args:
            regexes: without regard to case.
            path: if given, only this file (which is there) has to lack them.
        """
        for regex in regexes:
            wanted = re.compile(regex, re.I)
            names = [] if path else [name for name in self.files if wanted.search(name)]
            found = [line for line, _ in self.matches(path or "*", f"(?i){regex}")]
            if names or found:
                raise Unclear(f"{regex!r} is there: {names[:2]} {found[:2]}")
        words = ", ".join(
            re.sub(r"\\[bs]|[\\^$()*?]", "", one).replace("|", ", ") for one in regexes
        )
        return Found((), note=f"Not found in {path or 'any file'}: {words}.")

    def no_file(self, name: str) -> Found:
        """Verify that no file has this name or path."""
        if any(f"/{path}".endswith(f"/{name}") for path in self.files):
            raise Unclear(f"{name} is there")
        return Found((), note=f"There is no file {name} in this folder.")


def unpacked(path: str, data: bytes) -> bytes:
    """Return the content of a file, unpacked if it is ``.gz``."""
    return gzip.decompress(data) if path.endswith(".gz") else data


def groups(match: re.Match[str]) -> tuple[str, ...]:
    """Return the groups of a match, or the whole match."""
    return tuple(one.strip() for one in match.groups() if one) or (match[0].strip(),)


def amount(text: str) -> float:
    """Parse a number: 1234.5, 1,234.50 or 1.234,50, with or without a currency."""
    text = re.sub(r"[^\d.,eE+-]", "", text)
    if re.fullmatch(r"-?(\d{1,3}(\.\d{3})+|\d+),\d{1,2}", text):
        text = text.replace(".", "").replace(",", ".")
    return float(text.replace(",", ""))


def _told(line: Line, match: re.Match[str]) -> Found:
    return Found(tuple((one,) for one in groups(match)), (_kept(line),))


def _kept(line: Line) -> Line:
    return replace(line, text=line.text.strip()[:SHOWN])


def _shown(value: object) -> str:
    return "" if value is None else str(value)


def _functions(
    tree: ast.AST, inside: str = ""
) -> Iterable[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{node.name}.")
        elif isinstance(node, _FUNCTION):
            yield inside + node.name, node


def dated(found: Found) -> Found:
    """Mark a date, so that any form of it is accepted: ``@2026-03-14``."""
    year, month, day = map(int, re.findall(r"\d+", found.first)[:3])
    date = f"@{year}-{month:02}-{day:02}"
    return replace(found, need=((date, *found.need[0][1:]), *found.need[1:]))
