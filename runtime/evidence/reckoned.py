"""What code reckons for a question: rows of a table, and how many lines hold what.

Small models do not count and do not add, and call no tool for it either. So where a question asks
how many, or is about a table, the calls of `table` and `count` that its words suggest are made for
it: a cell that the question names is a condition, a column that it names is reckoned with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...tools.table import Table, quoted
from .question import Question
from .reading import Text
from .words import STEM, fold, is_dense, stem, words

CELLS = 20_000  # different ones of a column that are compared with the question
FEW = 4  # rows that are shown as they are
GROUPS, KINDS = 4, 20  # groups that are shown; different cells that a column to group by may have
MEASURES = 2  # columns that are reckoned with at once
PHRASES = 2  # that are counted
LIMIT = 4 << 20  # characters of a table that is read for a question
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_FIRST_LINE = re.compile(r"#separator|#fields\t|\{\"|[^\t\n]+(?:\t[^\t\n]*){2}")
_MOST = re.compile(
    r"\b(?:most|highest|largest|biggest|longest|oldest|hottest|heaviest|max\w*|top|best|ever|"
    r"meisten|h[öo]chste\w*|gr[öo][ßs]te\w*|am h[äa]ufigsten|m[áa]s|mayor|m[áa]xim\w*|plus)\b|最",
    re.I,
)
_LEAST = re.compile(
    r"\b(?:least|lowest|smallest|shortest|youngest|coldest|lightest|min\w*|fewest|cheapest|"
    r"wenigsten|niedrigste\w*|kleinste\w*|menos|menor|m[íi]nim\w*|moins)\b|最[少小低]",
    re.I,
)
_DEFINED = {
    "class": r"^\s*(?:export |public |abstract |final |data )*class \w",
    "function": r"^\s*(?:export |pub |public |static |async )*(?:def|fn|func|function) \w",
    "method": r"^\s+(?:pub |public |static |async )*(?:def|fn|func|function) \w",
    "test": r"^\s*(?:async )?def test|^\s*(?:it|test)\(|^\s*#\[test\]|^func Test",
}
"""Lines that define what questions about sources ask for, by the word for it."""
_STRUCTURE = (r"^\[", r"^\s*[-*] ", r"^#+ ")
"""Sections, items and headings: counted where no word of the question is in the file."""

Arguments = Mapping[str, object]


def is_table(path: str, text: Text) -> bool:
    """Whether a file may be a table, as far as its name and its first line tell."""
    if text.cut or len(text.whole) > LIMIT:
        return False
    return path.lower().endswith(TABLES) or _FIRST_LINE.match(text.whole[:2000]) is not None


# ------------------------------------------------------------------------------------- tables


@dataclass
class Asked:
    """What the words of a question mean in a table.

    Attributes:
        where: conditions, the surest first.
        named: columns that it names, by the share of their words.
        of_name: words of the file's name that it has.
        queries: what it asks, in SQL.
        fits: how much of it is about this table.
    """

    where: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    named: dict[str, float] = field(default_factory=dict)
    of_name: int = 0
    queries: list[str] = field(default_factory=list)

    @property
    def fits(self) -> float:
        found = 2 * len(self.where) + sum(self.named.values()) + 1.5 * self.of_name
        return found if self.queries else 0.0


def of_table(table: Table, path: str, question: Question) -> Asked:
    """What a question asks of a table; nothing where nothing of it is named."""
    asked = Asked(of_name=len(question.own.found_in(path.rpartition("/")[2])))
    _read(table, question, asked)
    asked.queries = list(_queries(table, asked, question))
    return asked


def _read(table: Table, question: Question, asked: Asked) -> None:
    of = words(question.text)
    said, starts = f" {' '.join(of)} ", {word[0] for word in of}
    found: list[tuple[int, str, str]] = []
    for name, numbers in table.columns.items():
        parts = words(name)
        if has := sum(bool(question.terms.found_in(one)) for one in parts):
            asked.named[name] = has / len(parts)
        for cell in _cells(table, name):
            start = fold(str(cell)[:1])
            if not numbers and start not in starts and not is_dense(start):
                continue
            if length := _meant(cell, numbers, question, said):
                value = f"{cell:.15g}" if numbers else "'" + str(cell).replace("'", "''") + "'"
                found.append(
                    (length + 2 * (name in asked.named), name, f"{quoted(name)} = {value}")
                )
    taken: set[str] = set()
    for _, name, condition in sorted(found, key=lambda one: (-one[0], one[1])):
        cell = fold(condition.partition(" = ")[2])
        if name not in asked.used and cell not in taken:
            asked.used.add(name)
            taken.add(cell)
            asked.where.append(condition)


def _cells(table: Table, name: str) -> list[object]:
    column = quoted(name)
    query = f"SELECT DISTINCT {column} FROM t WHERE {column} IS NOT NULL LIMIT {CELLS}"
    return [row[0] for row in table.rows(query)]


def _meant(cell: object, number: bool, question: Question, said: str) -> int:
    """Whether a question names a cell, and how surely: the letters that say so; 0 if not."""
    text = f"{cell:.15g}" if number else str(cell).strip()
    if number:
        return len(text) if len(text) > 2 and f" {text} " in said else 0
    if not 2 <= len(text) <= 80:
        return 0
    if len(text) <= 4 and text.isupper():  # a code, which may be a word otherwise
        return 4 if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", question.text) else 0
    if is_dense(text):
        return 2 * len(text) if fold(text) in fold(question.text) else 0
    of = words(text)
    telling = question.own.telling
    if f" {' '.join(of)} " in said:
        return len(text) if any(one in telling for one in of) else 0
    if len(of) == 1 and len(text) > 2:  # another form of the word: rugs, snowy
        longer = (one for one in telling if one.startswith(of[0]))
        return len(text) if any(len(one) - len(of[0]) < 3 for one in longer) else 0
    return 0


def _queries(table: Table, asked: Asked, question: Question) -> Iterator[str]:
    rows = _rows(table, asked.where)
    while asked.where and not rows:  # the words that say least are not meant so
        asked.where.pop()
        rows = _rows(table, asked.where)
    where = _where(asked.where)
    if asked.where and rows <= FEW:
        yield f"SELECT * FROM t{where}"
        return
    most, least = _MOST.search(question.text), _LEAST.search(question.text)
    order = "ASC" if least and not most else "DESC"
    free = [name for name in table.columns if name not in asked.used]
    free.sort(key=lambda name: -asked.named.get(name, 0))
    numbers = [one for one in free if table.columns[one] and not _is_key(table, one)]
    surest = max((asked.named.get(one, 0) for one in numbers), default=0)
    named = [one for one in numbers if surest and asked.named.get(one) == surest]
    texts = [one for one in free if not table.columns[one] and not _is_key(table, one)]
    if named or (asked.where and (question.counts or most or least)):
        of = [quoted(one) for one in (named or numbers)[:MEASURES]]
        figures = (f"sum({one}), avg({one}), min({one}), max({one})" for one in of)
        yield f"SELECT {', '.join(['count(*)', *figures])} FROM t{where}"
    for one in map(quoted, named[:MEASURES] if most or least else ()):
        given = f"{where} {'AND' if where else 'WHERE'} {one} IS NOT NULL"
        yield f"SELECT * FROM t{given} ORDER BY {one} {order} LIMIT 1"
    if (most or least or question.counts) and not (named and asked.where):
        groups = [one for one in texts if one in asked.named][:1]
        if most and not groups and not named:
            groups = [one for one in texts if len(_cells(table, one)) <= KINDS][:3]
        value = f"sum({quoted(named[0])})" if named else "count(*)"
        by = f"FROM t{where} GROUP BY 1 ORDER BY 2 {order} LIMIT {GROUPS}"
        yield from (f"SELECT {one}, {value} {by}" for one in map(quoted, groups))


def _rows(table: Table, conditions: Sequence[str]) -> int:
    return table.rows(f"SELECT count(*) FROM t{_where(conditions)}")[0][0]


def _is_key(table: Table, name: str) -> bool:
    """Whether a column tells rows apart, so that it is not reckoned with: whole, all different."""
    one = quoted(name)
    broken = f"sum({one} <> round({one}))" if table.columns[name] else "0"
    rows, different, broken = table.rows(
        f"SELECT count(*), count(DISTINCT {one}), {broken} FROM t"
    )[0]
    return rows > FEW and rows == different and not broken


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


# -------------------------------------------------------------------------------------- lines


def of_lines(path: str, text: Text, question: Question) -> Sequence[Arguments]:
    """The counts of lines that a question suggests in a file: of what it says, and what it is."""
    said = words(question.text)
    found: list[Arguments] = []
    for word, pattern in _DEFINED.items():
        if any(one.startswith(word) for one in said):
            found = [{"pattern": pattern, "regex": True}]
    phrases = phrases_in(path, text, question)
    if _MOST.search(question.text):
        found += [{"by": by} for by in ("ip", "level", "status", "hour", "day") if by in said]
    for one in phrases if not found else ():  # a number counts where it stands alone
        number = {"pattern": rf"\b{one}\b", "regex": True}
        found.append(number if one.isdigit() else {"pattern": one})
    whole = text.whole[:LIMIT]
    of = next((one for one in _STRUCTURE if len(re.findall(one, whole, re.M)) > 1), None)
    if not found and of is not None:
        found = [{"pattern": of, "regex": True}]
    return [{"path": path, **one} for one in found] or [{"path": path}]


def phrases_in(path: str, text: Text, question: Question) -> list[str]:
    """The longest runs of the question's words that a text has; of those as long, the rare ones."""
    said, folded = list(question.own.weights), fold(text.whole)
    telling = set(question.own.telling) - set(words(path))

    def form(part: Sequence[str]) -> str:
        """How the text has some words in a row: as they are, or one of them in another form."""
        if not {part[0], part[-1]} <= telling:
            return ""
        whole = " ".join(part)
        forms = [whole, stem(whole)] if len(part) == 1 and len(stem(whole)) >= STEM else [whole]
        return next((one for one in forms if one in folded), "")

    runs: list[str] = []
    at = 0
    while at < len(said):
        sizes = range(min(5, len(said) - at), 0, -1)
        found = next(((n, run) for n in sizes if (run := form(said[at : at + n]))), (1, ""))
        runs += filter(None, [found[1]])
        at += found[0]
    runs = sorted(dict.fromkeys(runs), key=lambda run: (-run.count(" "), folded.count(run)))
    return runs[:PHRASES]
