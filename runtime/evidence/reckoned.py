"""Derives the `table` and `count` calls that compute the figures a question asks for.

Small models neither count nor add, nor call a tool for it. So where a question asks how many, or
is about a table, the harness makes the calls of `table` and `count` that its words suggest: a cell
that the question names becomes a condition, a column that it names is aggregated.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, takewhile
from typing import Any

from ...errors import ToolError
from ...tools.table import Table, open_table, quoted
from ...tools.workspace import Workspace
from .languages import FILES, HIGHEST, HOW_MANY, LINES, LOWEST, OFTEN
from .question import Question
from .reading import Key, Text, key_of
from .words import STEM, WORD, fold, is_dense, stem, terms, words

LONGEST = 80  # characters of a cell that a question may name
MAX_OPEN = 8 << 20  # bytes of the files whose tables are kept open
FEW = 4  # rows that are shown as they are
GROUPS, KINDS = 4, 20  # groups that are shown; different cells that a column to group by may have
MEASURES = 2  # columns that are reckoned with at once
PHRASES = 2  # that are counted
COUNTED = 3  # words of what is counted
MANY = 3  # lines that are counted; fewer are shown
LIMIT = 4 << 20  # characters of a table that is read for a question
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_FIRST_LINE = re.compile(r"#separator|#fields\t|\{\"|[^\t\n]+(?:\t[^\t\n]*){2}")
_DEFINED = {
    "class": r"^\s*(?:export |public |abstract |final |data )*class \w",
    "function": r"^\s*(?:export |pub |public |static |async )*(?:def|fn|func|function) \w",
    "method": r"^\s+(?:pub |public |static |async )*(?:def|fn|func|function) \w",
    "test": r"^\s*(?:async )?def test_|^\s*(?:it|test)\(|^\s*#\[test\]|^func Test",
}
"""Patterns of lines that define a construct of source code, by its name."""
_ENDINGS = {
    "python": ("py", "pyi"), "markdown": ("md",), "javascript": ("js", "mjs"), "rust": ("rs",),
    "typescript": ("ts", "tsx"), "text": ("txt",), "yaml": ("yaml", "yml"), "ruby": ("rb",),
    "shell": ("sh", "bash"),
}  # fmt: skip
"""File extensions by the name of a kind; other kinds are named by their extension."""
_STRUCTURE = (r"^\[", r"^\s*[-*] ", r"^#+ ")
"""Patterns of sections, items and headings, counted where a file has no word of the question."""

Arguments = Mapping[str, object]


def is_table(path: str, text: Text) -> bool:
    """Return whether a file may be a table, judging by its name and its first line."""
    if text.cut or len(text.whole) > LIMIT:
        return False
    return path.lower().endswith(TABLES) or _FIRST_LINE.match(text.whole[:2000]) is not None


# ------------------------------------------------------------------------------------- tables


@dataclass
class Reckoning:
    """A question's references to a table, and the queries that follow from them."""

    where: list[str] = field(default_factory=list)
    """SQL conditions, the most certain first."""
    used: set[str] = field(default_factory=set)
    named: dict[str, float] = field(default_factory=dict)
    """Columns that the question names, with the share of their words in it."""
    of_name: int = 0
    """Number of words of the file's name in the question."""
    queries: list[str] = field(default_factory=list)
    """SQL queries that answer the question."""

    @property
    def fits(self) -> float:
        found = 2 * len(self.where) + sum(self.named.values()) + 1.5 * self.of_name
        return found if self.queries else 0.0


class Tables:
    """LRU cache of open tables."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._open: OrderedDict[tuple[str, Key], _Columns] = OrderedDict()

    def get(self, path: str) -> _Columns:
        """Open the current table of a file, cached.

        Raises:
            ToolError: the file is no table.
        """
        of = path, key_of(self._workspace.stat(path))
        if of not in self._open:
            self._open[of] = _Columns(open_table(self._workspace, path))
        self._open.move_to_end(of)
        while len(self._open) > 1 and sum(key[0] for _, key in self._open) > MAX_OPEN:
            self._open.popitem(last=False)[1].table.close()
        return self._open[of]

    def close(self) -> None:
        """Close all open tables."""
        while self._open:
            self._open.popitem()[1].table.close()

    def meant(self, question: Question, paths: Iterable[str]) -> Iterator[Arguments]:
        """Return the arguments of `table` calls for the table that a question matches best."""
        best, of = Reckoning(), ""
        for path in paths:
            with suppress(ToolError):
                reckoning = of_table(self.get(path), path, question)
                if reckoning.fits > best.fits:
                    best, of = reckoning, path
        return ({"path": of, "query": query} for query in best.queries)


class _Columns:
    """Cached facts on the columns of an open table: distinct cells, and whether it is a key."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.numbers = table.columns
        self.cells = cache(self._cells)
        self.is_key = cache(self._is_key)

    def _cells(self, name: str) -> dict[str, list[tuple[int, str]]]:
        """Return the distinct texts of a column, with their index, by their first word.

        Texts of a script without spaces are all under an empty word.
        """
        found: dict[str, list[tuple[int, str]]] = {}
        for at, cell in enumerate(self.different(name)):
            if 2 <= len(cell) <= LONGEST and (word := WORD.match(fold(cell))):
                first = "" if is_dense(word[0]) else word[0]
                found.setdefault(first, []).append((at, cell))
        return found

    def different(self, name: str, condition: str = "IS NOT NULL", limit: int = -1) -> list[Any]:
        """Return the distinct cells of a column that meet a condition."""
        one = quoted(name)
        query = f"SELECT DISTINCT {one} FROM t WHERE {one} {condition} LIMIT {limit}"
        return [row[0] for row in self.table.rows(query)]

    def _is_key(self, name: str) -> bool:
        """Return whether a column looks like a key (distinct whole numbers or texts)."""
        one = quoted(name)
        broken = f"sum({one} <> round({one}))" if self.numbers[name] else "0"
        query = f"SELECT count(*), count(DISTINCT {one}), {broken} FROM t"
        rows, different, broken = self.table.rows(query)[0]
        return rows > FEW and rows == different and not broken

    def count(self, conditions: Sequence[str]) -> int:
        """Count the rows that meet all conditions."""
        return self.table.rows(f"SELECT count(*) FROM t{_where(conditions)}")[0][0]


def of_table(table: _Columns, path: str, question: Question) -> Reckoning:
    """Match a question with a table; the result has no queries if nothing matches."""
    reckoning = Reckoning(of_name=len(question.own.found_in(path.rpartition("/")[2])))
    of, telling = words(question.text), question.own.telling
    spaced, folded = f" {' '.join(of)} ", fold(question.text)
    firsts = {"", *of, *(one[: len(one) - cut] for one in telling for cut in range(3))}
    figures = {one for one in of if len(one) > 2 and one.isascii() and one.isdigit()}
    found: list[tuple[int, str, str]] = []
    for name, numbers in table.numbers.items():
        parts = words(name)
        if has := sum(bool(question.terms.found_in(one)) for one in parts):
            reckoning.named[name] = has / len(parts)
        more = 2 * (name in reckoning.named)
        if numbers and figures:
            for cell in table.different(name, f"IN ({','.join(sorted(figures))})"):
                if (text := f"{cell:.15g}") in figures:
                    found.append((len(text) + more, name, f"{quoted(name)} = {text}"))
        cells = {} if numbers else table.cells(name)
        for _, cell in sorted(one for first in firsts & cells.keys() for one in cells[first]):
            if length := _meant(cell, question, spaced, folded):
                value = "'" + cell.replace("'", "''") + "'"
                found.append((length + more, name, f"{quoted(name)} = {value}"))
    taken: set[str] = set()
    for _, name, condition in sorted(found, key=lambda one: (-one[0], one[1])):
        cell = fold(condition.partition(" = ")[2])
        if name not in reckoning.used and cell not in taken:
            reckoning.used.add(name)
            taken.add(cell)
            reckoning.where.append(condition)
    reckoning.queries = list(_queries(table, reckoning, question))
    return reckoning


def _meant(text: str, question: Question, spaced: str, folded: str) -> int:
    """Return how strongly a question names a cell, in characters; 0 if it does not."""
    if len(text) <= 4 and text.isupper():  # a code, which may be a word otherwise
        there = text in question.text
        return 4 if there and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", question.text) else 0
    if is_dense(text):
        return 2 * len(text) if fold(text) in folded else 0
    of = words(text)
    telling = question.own.telling
    if f" {' '.join(of)} " in spaced:
        return len(text) if any(one in telling for one in of) else 0
    if len(of) == 1 and len(text) > 2:  # another form of the word: rugs, snowy
        longer = (one for one in telling if one.startswith(of[0]))
        return len(text) if any(len(one) - len(of[0]) < 3 for one in longer) else 0
    return 0


def _queries(table: _Columns, reckoning: Reckoning, question: Question) -> Iterator[str]:
    rows = table.count(reckoning.where)
    while reckoning.where and not rows:  # the words that say least are not meant so
        reckoning.where.pop()
        rows = table.count(reckoning.where)
    where = _where(reckoning.where)
    if reckoning.where and rows <= FEW:
        yield f"SELECT * FROM t{where}"
        return
    highest, lowest = HIGHEST.search(question.text), LOWEST.search(question.text)
    order = "ASC" if lowest and not highest else "DESC"
    free = [name for name in table.numbers if name not in reckoning.used]
    free.sort(key=lambda name: -reckoning.named.get(name, 0))
    numbers = [one for one in free if table.numbers[one] and not table.is_key(one)]
    surest = max((reckoning.named.get(one, 0) for one in numbers), default=0)
    named = [one for one in numbers if surest and reckoning.named.get(one) == surest]
    if named or (reckoning.where and (question.counts or highest or lowest)):
        of = [quoted(one) for one in (named or numbers)[:MEASURES]]
        figures = (f"sum({one}), avg({one}), min({one}), max({one})" for one in of)
        yield f"SELECT {', '.join(['count(*)', *figures])} FROM t{where}"
    for one in map(quoted, named[:MEASURES] if highest or lowest else ()):
        given = f"{where} {'AND' if where else 'WHERE'} {one} IS NOT NULL"
        yield f"SELECT * FROM t{given} ORDER BY {one} {order} LIMIT 1"
    if (highest or lowest or question.counts) and not (named and reckoning.where):
        texts = [one for one in free if not table.numbers[one] and not table.is_key(one)]
        groups = [one for one in texts if one in reckoning.named][:1]
        if highest and not groups and not named:
            few = (one for one in texts if len(table.different(one, limit=KINDS + 1)) <= KINDS)
            groups = list(islice(few, 3))
        value = f"sum({quoted(named[0])})" if named else "count(*)"
        by = f"FROM t{where} GROUP BY 1 ORDER BY 2 {order} LIMIT {GROUPS}"
        yield from (f"SELECT {one}, {value} {by}" for one in map(quoted, groups))


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


# -------------------------------------------------------------------------------------- files


def of_files(paths: Collection[str], folder: str, question: Question) -> str:
    """Return the recursive file count of a folder as text, if the question asks; else "".

    Args:
        paths: all file paths.
        folder: the one that the question names, or ``.``.
    """
    found = FILES.search(question.text)
    if found is None:
        return ""
    below = [path for path in paths if folder == "." or path.startswith(f"{folder}/")]
    kind = (found["kind"] or found["zh"] or found["after"] or "").casefold().lstrip(".")
    ends = tuple(f".{one}" for one in _ENDINGS.get(kind, (kind,)))
    of_kind = [path for path in below if path.casefold().endswith(ends)] if kind else below
    if not of_kind and (found["kind"] or found["zh"]):
        return ""  # the kind is unknown
    of, what = (of_kind, f" {', '.join(ends)}") if of_kind and kind else (below, "")
    above = sum("/" not in path.removeprefix(f"{folder}/") for path in of)
    where = "this folder" if folder == "." else folder
    return f"{len(of)}{what} files in {where} and the folders in it; {above} without these"


# -------------------------------------------------------------------------------------- lines


def of_lines(texts: Mapping[str, Text], question: Question, folder: str) -> Sequence[Arguments]:
    """Return the arguments of `count` calls for a question, in the file that best matches it.

    They count what the question asks the number of, or the parts of a named file. A figure that a
    line states is not counted: "how many workers does nginx start".

    Args:
        texts: by path, of candidate files.
        folder: count in all its files instead of one; empty: none.
    """
    phrases = {path: phrases_in(path, text, question) for path, text in texts.items()}

    def holds(path: str) -> int:
        return sum(texts[path].whole.casefold().count(one) for one in phrases[path][:1])

    path = max(texts, key=holds)
    of, whole = words(question.text), texts[path].whole[:LIMIT]
    if HIGHEST.search(question.text):
        found = [{"by": by} for by in ("ip", "level", "status", "hour", "day") if by in of]
        return [{"path": folder or path, **one} for one in found]
    what = _counted(question)
    if what is None:
        return []
    defined = [one for word, one in _DEFINED.items() if any(w.startswith(word) for w in what)]
    if defined:
        return [{"path": folder or path, "pattern": defined[-1], "regex": True}]
    named, folded = set(words(path)), fold(whole)
    lines = not LINES.isdisjoint(what)
    any_line = lines or named.issuperset(what)
    counted: list[dict[str, object]] = []
    for one in phrases[path]:
        fits = any_line or any(word.startswith(part) for part in one.split() for word in what)
        if one.isdigit():  # it counts as a number of its own
            counted.append({"pattern": rf"\b{one}\b", "regex": True})
        elif fits and (folder or folded.count(one) >= MANY):  # fewer stand among the best lines
            counted.append({"pattern": one})
    asks = words(" ".join(HOW_MANY.findall(question.text)))
    rest = set(question.own.telling).difference(what, LINES, asks)
    if not counted and not folder and what and rest <= named and not named.isdisjoint(of):
        parts = (one for one in _STRUCTURE if len(re.findall(one, whole, re.M)) > 1)
        parts = islice(parts, 0 if lines else 1)
        counted = [{"pattern": one, "regex": True} for one in parts] or [{}]
    return [{"path": folder or path, **one} for one in counted[:PHRASES]]


def _counted(question: Question) -> Sequence[str] | None:
    """Return the words of what a question counts: empty for any lines, None for no count."""
    if OFTEN.search(question.text):
        return ()
    if not (found := HOW_MANY.search(question.text)):
        return None
    own = {*question.own.telling, *LINES}
    following = list(terms(question.text[found.end() :]).weights)[:COUNTED]
    return [*takewhile(own.__contains__, following)] or None


def phrases_in(path: str, text: Text, question: Question) -> list[str]:
    """Return the longest runs of question words in a text; among equals, the rarest."""
    own, folded = list(question.own.weights), fold(text.whole)
    telling = set(question.own.telling) - set(words(path))

    def form(part: Sequence[str]) -> str:
        """Return the form in which the text has a run of words, exact or stemmed; else ""."""
        if not {part[0], part[-1]} <= telling:
            return ""
        whole = " ".join(part)
        forms = [whole, stem(whole)] if len(part) == 1 and len(stem(whole)) >= STEM else [whole]
        return next((one for one in forms if one in folded), "")

    runs: list[str] = []
    at = 0
    while at < len(own):
        sizes = range(min(5, len(own) - at), 0, -1)
        found = next(((n, run) for n in sizes if (run := form(own[at : at + n]))), (1, ""))
        runs += filter(None, [found[1]])
        at += found[0]
    runs = sorted(dict.fromkeys(runs), key=lambda run: (-run.count(" "), folded.count(run)))
    return runs
