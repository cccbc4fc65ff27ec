"""Find the source lines of an answer's facts in tool results, without a model.

A fact is supported by a line that has it and that also carries what the question asks about: its
words, where those of its file's name and of what it stands under (a section, a key, the names of
columns) count as carried. How much that must be depends on the best line there is. Where the
question names a key and a line has it, a true value of another key or file is no answer. Where no
line has much of the question, as in another language, little can be asked. What a tool has counted
needs no such words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from ...arguments import without_surrogates
from .facts import Fact, Line, facts, has
from .question import read
from .reading import Text
from .words import Terms, words

LOOKING = ("list_dir", "read_file", "search", "count", "table")
MAX_LINES, MAX_LINE = 4000, 2000  # lines that are looked at, the newest; characters of one
BEST = 5
NAMED, SHARE = 0.8, 0.3
"""Minimum score of a supporting line, as a share of the best line's: where that one has the key
that the question names, and else. Tuned on planted inventions (`labs/harness/inventions.py`)."""
SURE, FAINT = 0.6, 0.3
"""Share of the question's words in the best line: from `SURE` on it may have the key; below `FAINT`
any line may support a fact."""

PROSE = 6  # words of a line of prose
_HIT = re.compile(r"(.+?):(\d+):(.*)", re.DOTALL)
_NUMBERED = re.compile(r"(\d+)\t(.*)", re.DOTALL)
_KEY = re.compile(
    r"\s*(?:[-*]\s+|export\s+)?[\"']?(\w[\w .-]{0,40}?)[\"']?\s*[=:]+\s*\S"
    r"|\s*([^\W\d][\w.-]*)\s+\S+\s*;?\s*$"
)


class Read(NamedTuple):
    """The result of one call, to check answers against."""

    tool: str
    path: str
    text: str
    counted: bool = False
    """Whether its lines need no words of the question to support a fact, as a tool's count."""


class Source(NamedTuple):
    """A fact and the line that carries it."""

    fact: str
    path: str
    line: int
    """Line number from 1; 0: the file's name, or a result without line numbers."""

    @property
    def place(self) -> str:
        """Return the location, as ``path:line``."""
        return f"{self.path}:{self.line}" if self.line else self.path


@dataclass(frozen=True)
class Checked:
    """The result of checking an answer's facts."""

    sources: tuple[Source, ...] = ()
    """The source of each supported fact, in the order of the answer."""
    unsupported: tuple[str, ...] = ()
    """The facts that no line has together with the topic of the question."""
    stated: tuple[str, ...] = ()
    """The unsupported facts other than line numbers."""
    lines: tuple[Line, ...] = ()
    """The lines that support the facts."""
    best: tuple[Line, ...] = ()
    """The lines that match the question best."""


def check(
    answer: str, question: str, reads: Iterable[Read], earlier: Sequence[str] = ()
) -> Checked:
    """Check the facts of an answer against tool results.

    Args:
        answer: the answer.
        question: the question, whose own facts are not checked.
        reads: results, the oldest first.
        earlier: previous questions and answers, the newest last.
    """
    given = Line("", 0, "\n".join([question, *earlier]))
    parsed = read(question, earlier)
    lines = list(_lines(reads, counts=parsed.counts))[-MAX_LINES:]
    need = _score(lines, parsed.terms)
    ranked = sorted((line for line in lines if line.text.strip()), key=lambda line: -line.score)
    carriers: list[tuple[Fact, Line]] = []
    unsupported: list[Fact] = []
    for fact in facts(without_surrogates(answer)):
        if has(given, fact):
            continue
        if (line := _carrier(ranked, fact, need)) is not None:
            carriers.append((fact, line))
        else:
            unsupported.append(fact)
    best = tuple(line for line in ranked if line.number)[:BEST]
    sources = (Source(fact.text, line.path, line.number) for fact, line in carriers)
    lines_of = tuple(line for _, line in carriers)
    stated = (fact.text for fact in unsupported if fact.kind != "line")
    texts = (fact.text for fact in unsupported)
    return Checked(tuple(sources), tuple(texts), tuple(stated), lines_of, best)


def _carrier(ranked: Sequence[Line], fact: Fact, need: Mapping[bool, float]) -> Line | None:
    """Return the first of the ranked lines that supports a fact; None if none does."""
    for line in ranked:
        if (line.counted or line.score >= need[line.listed]) and has(line, fact):
            return line
    if fact.kind != "quote":
        return None
    # It may be words of the model around what the line has, or several values in a row.
    inside = [one for one in facts(fact.text) if one.kind != "quote"]
    listed = [Fact(one.strip(), "quote") for one in fact.text.split(",")]
    parts = [_carrier(ranked, one, need) for one in inside or listed[: len(listed) > 1 and None]]
    return parts[0] if parts and all(parts) else None


def _lines(reads: Iterable[Read], *, counts: bool) -> Iterator[Line]:
    """Yield the lines of results; a line of a file only once.

    counts: whether a note on a file's length answers the question.
    """
    files: dict[str, dict[int, str]] = {}
    for one in reads:
        folder = "" if one.path in ("", ".") else f"{one.path.rstrip('/')}/"
        for number, text in enumerate(one.text.split("\n"), 1):
            note = one.tool in LOOKING and text.startswith("[")
            if one.tool == "read_file" and (found := _NUMBERED.fullmatch(text)):
                files.setdefault(one.path, {})[int(found[1])] = found[2]
            elif one.tool == "search" and (found := _HIT.fullmatch(text)):
                files.setdefault(found[1], {}).setdefault(int(found[2]), found[3])
            elif one.tool == "list_dir" and not note:
                yield Line(f"{folder}{text}".rstrip("/"), 0, text, listed=True)
            elif one.tool in LOOKING:
                yield Line(one.path, 0, text, counted=counts if note else one.counted)
            else:
                number = 0 if one.counted else number
                yield Line(one.path or one.tool, number, text[:MAX_LINE], counted=one.counted)
    for path, numbered in files.items():
        yield from _of_file(path, sorted(numbered.items()))


def _of_file(path: str, numbered: Sequence[tuple[int, str]]) -> Iterator[Line]:
    """Yield numbered lines of a file with the headings above each."""
    parents = Text("\n".join(text for _, text in numbered)).parents
    header = numbered[0][1] if path.endswith((".csv", ".tsv")) and numbered[0][0] == 1 else ""
    chain: list[str] = []
    before = ""
    for (number, text), parent in zip(numbered, parents, strict=True):
        chain.append(f"{chain[parent]} {numbered[parent][1]}" if parent >= 0 else header)
        begun = before if _continues(before, text) else ""
        yield Line(path, number, text, f"{chain[-1]} {begun}" if begun else chain[-1])
        before = text


def _continues(before: str, text: str) -> bool:
    """Return whether a line continues the sentence of the line before: wrapped prose."""
    first, last = text[:1], before.rstrip()[-1:]
    wrapped = before[:1].isalpha() and (first.islower() or first.isdigit())
    return wrapped and last not in ".!?:;" and len(before.split()) >= PROSE


def _score(lines: Sequence[Line], terms: Terms) -> dict[bool, float]:
    """Set the score of each line: the question's words that it has, weighted by rarity.

    Returns:
        The minimum score to support a fact, for a line (False) and an entry of a listing (True).
    """
    for line in lines:
        for text in (line.path, line.above, line.text):
            for term, share in terms.found_in(text).items():
                line.carried[term] = max(share, line.carried.get(term, 0.0))
    count = Counter(term for line in lines for term in line.carried)
    known = {**terms.weights, **terms.compounds}
    rare = {term: log(0.25 + len(lines) / count.get(term, 0.5)) for term in known}
    for line in lines:
        line.score = sum(known[one] * rare[one] * share for one, share in line.carried.items())
    best, listed = (
        max((line.score for line in lines if only <= line.listed), default=0.0)
        for only in (False, True)
    )
    whole = sum(known[one] * rare[one] for one in (*terms.telling, *terms.compounds)) or 1.0
    if best < FAINT * whole:
        return {False: 0.0, True: 0.0}
    keyed = best >= SURE * whole and any(
        _is_keyed(line.text, terms) for line in lines if line.score >= 0.9 * best
    )
    share = NAMED if keyed else SHARE
    return {False: share * best, True: max(share * listed, 1e-9)}


def _is_keyed(text: str, terms: Terms) -> bool:
    """Return whether a line is a key with a value, and the question has all words of the key."""
    if (found := _KEY.match(text)) is None:
        return False
    key = found[1] or found[2]
    carried = terms.found_in(key)
    named = [one for one in carried if one in terms.telling or one in terms.compounds]
    return len(named) >= len(set(words(key))) > 0
