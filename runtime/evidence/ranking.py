"""Rank lines by their match with a question: from index chunks or a bounded scan.

A line scores the question's words that it has, each by its rarity, and at a lower weight those
above it, around it and in its file's name: `port = 22` means little without its heading.
"""

from __future__ import annotations

import math
import re
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from heapq import nsmallest

from ...errors import ToolError
from .catalog import Catalog
from .index import ROWS, Chunk, Index
from .languages import FAULT, FAULTS
from .question import Question
from .reading import Text, Texts
from .words import SHORT, STEM, Terms, Weights, fold, is_dense, stem, words

CHUNKS = 60  # that are looked into
LINES = 200  # of one file, and of all, that are looked at closely
HITS = 50_000  # of one word in one file
NEAR = 12  # lines before and after one that lend it their words
SMALL = 512 << 10  # bytes of a file that is looked into for its name, or for its headings
FEW_BYTES = 4 << 20  # of all files, at which abbreviations are scanned for, too
PER_CHUNK = 40 * ROWS  # bytes, about

ABOVE, AROUND, OF_NAME, OF_FOLDER, AT_ONCE, OF_FAULT = 0.6, 0.3, 0.8, 0.4, 1.5, 0.5
"""Weights relative to a word in the line itself: the word in a heading above, in a nearby line, in
the file's name, in its folders' names; a compound text; a mark of a failure, relative to the rarest
word."""
RARE = 2.0  # what a mark of a failure counts at least as a word: few lines have one
FLOOR = 0.15  # that a word counts which all chunks have
WIDE = 100  # characters of a line that is of usual width; shorter ones say what they say plainly
AT_START = 1.25  # factor for a word at the start of a line: the line is about it
OF_DEPTH, OF_ASIDE = 0.02, 0.15
"""Discounts of a line's score: per folder above its file, since files about the whole project are
at the top; and in secondary files, such as tests and examples."""
OF_KEY = 1.0
"""Bonus of a line whose key, or the name that it defines, consists of the question's words: it is
the requested line rather than one that mentions it."""
ALIKE = 3  # lines that differ in nothing but numbers, after which more of them count little

_ASIDE = re.compile(r"(^|/)(tests?|testing|testdata|examples?|samples?|vendor|third_party)/", re.I)
_NUMBER = re.compile(r"\d+")
_KEY = re.compile(
    r"\s*(?:(?:export|default|public|private|protected|static|final|abstract|async|pub)\s+)*"
    r"(?:(?:def|class|func|function|fn|interface|struct|enum|trait|type|module|const|let|var)\s+"
    r"([\w$]+)|[\"']?([\w.-]{2,60})[\"']?(?:\s*:\s*[\w\[\]., |]{1,60})?\s*[:=]"
    r"|([A-Z]\w+)\s+\S+$)"
)


@dataclass(frozen=True)
class Line:
    """A line of a file."""

    path: str
    number: int
    text: str
    score: float = 0.0
    """Match with the question; larger is better."""


@dataclass
class Ranked:
    """Ranked lines, the best first."""

    lines: list[Line] = field(default_factory=list)
    strength: float = 0.0
    """The share of the question's terms, by rarity, that the best line has, with its headings, its
    neighbors and the name of its file: 0 to 1."""
    searched: int = 0
    """Number of files that were searched."""
    unsearched: int = 0
    """Number of files that were not searched in time."""
    unknown: list[str] = field(default_factory=list)
    """Words of the question that no file and no path contains, if all files were searched."""


@dataclass
class _Hit:
    path: str
    number: int
    text: str
    has: Weights
    start: set[str]
    fault: bool
    own: float = 0.0
    key: float = 0.0  # share of its key's words that are the question's


class Ranking:
    """Ranks lines of a catalog's files."""

    def __init__(self, catalog: Catalog, texts: Texts, index: Index | None) -> None:
        self._catalog = catalog
        self._texts = texts
        self._index = index

    def rank(self, question: Question, always: Iterable[str], end: float) -> Ranked:
        """Rank the lines of the catalog's files by their match with a question.

        Args:
            question: the question.
            always: files to scan whatever their names.
            end: time.monotonic() after which no further file is scanned.
        """
        terms, files, text_of = question.terms, self._catalog.files, cache(self._text_of)
        names = _Names(self._catalog, terms)
        fresh, new = set[str](), list(files)
        if self._index is not None:
            fresh, new = self._index.fresh(self._catalog)
        whole = {path for path in always if path in files}
        whole.update(path for path in names.best(3) if files[path][0] <= SMALL)
        scan = _Scan(question, sum(files[path][0] for path in new) <= FEW_BYTES)
        for path in sorted(whole):
            self._look(path, scan)
        counts = Counter[str]()
        if fresh and self._index is not None:
            chunks, found, total = self._index.find(terms, fresh, whole, CHUNKS)
            for chunk in chunks:
                self._look_into(chunk, scan, text_of)
            counts.update(found)
            total = max(total, 20)
            scan.counts.clear()
        else:
            total = sum(key[0] for key in files.values()) // PER_CHUNK + 20
        # Names that share words come first, then small files: more of them fit into the time.
        rest = sorted(
            (path for path in new if path not in whole),
            key=lambda path: (-names.scores[path], files[path][0], path),
        )
        missed = 0
        for number, path in enumerate(rest):
            if time.monotonic() > end:
                missed = len(rest) - number
                break
            self._look(path, scan)
        counts.update(scan.counts)
        rarity = _rarity(terms, counts, total)
        ranked = _Scoring(question, rarity, names, text_of).ranked(scan.hits)
        ranked.searched, ranked.unsearched = len(files) - missed, missed
        if not missed:
            own, in_lines = question.own, {word for hit in scan.hits for word in hit.has}
            ranked.unknown = [
                word
                for word in (*own.telling, *own.compounds)
                if not (counts[word] or word in in_lines or names.knows(word))
            ]
        return ranked

    def _look(self, path: str, scan: _Scan) -> None:
        try:
            scan.look(path, self._texts.get(path).whole)
        except ToolError:
            return

    def _look_into(self, chunk: Chunk, scan: _Scan, text_of: Callable[[str], Text | None]) -> None:
        """Score the lines of an index chunk; scan the whole file if it has changed since."""
        path = chunk.paths[0]
        if path not in scan.current:
            scan.current[path] = self._catalog.current(path)
            if not scan.current[path]:
                self._look(path, scan)
        if not scan.current[path]:
            return
        try:
            if (text := text_of(path)) is None and chunk.length:
                lines = self._texts.part(path, chunk.start, chunk.length)
            else:
                text = text or self._texts.get(path)
                lines = text.lines[chunk.line - 1 : chunk.line - 1 + ROWS]
        except ToolError:
            return
        scan.look_at(path, lines, chunk.line)

    def _text_of(self, path: str) -> Text | None:
        """Return a file's text if it is small enough to find its headings; else None."""
        try:
            return self._texts.get(path) if self._catalog.files[path][0] <= SMALL else None
        except (ToolError, KeyError):
            return None


class _Scan:
    """Finds the lines of texts that may contain words of a question, and scores these."""

    def __init__(self, question: Question, short: bool) -> None:
        self.hits: list[_Hit] = []
        self.counts: Counter[str] = Counter()  # chunks by word
        self.current: dict[str, bool] = {}
        self._question = question
        terms = question.terms
        # Each text to find, with the word that it may be and what finding it counts.
        self._needles: list[tuple[str, str, float]] = [(one, one, 2.0) for one in terms.compounds]
        for word in terms.telling:
            self._needles.append((stem(word), word, 1.0))
            if short and word.isalpha() and not is_dense(word) and len(stem(word)) > SHORT:
                self._needles.append((word[:SHORT], "", 0.1))
        self._texts = [*(one for one, *_ in self._needles), *(FAULTS if question.faults else ())]

    def look_at(self, path: str, lines: Sequence[str], first: int) -> None:
        """Add hits among the lines of a chunk; `first` is the number of its first line."""
        folded = fold("\n".join(lines))
        for at in sorted({at for one in self._texts for at in _lines_with(one, folded)}):
            if hit := self._hit(path, first + at, lines[at]):
                self.hits.append(hit)

    def look(self, path: str, whole: str) -> None:
        """Add the hits of a whole file's text."""
        # Accents of a large text are left as they are: taking it apart takes too long.
        folded = fold(whole) if len(whole) <= FEW_BYTES else whole.lower()
        found: Counter[int] = Counter()
        for needle, word, counts in self._needles:
            numbers = list(_lines_with(needle, folded))
            for number in numbers:
                found[number] += counts  # pyright: ignore[reportArgumentType]
            if word and numbers:
                self.counts[word] += len({number // ROWS for number in numbers})
        if self._question.faults:
            for fault in FAULTS:
                for number in _lines_with(fault, folded):
                    found[number] += 3
        if not found:
            return
        lines = whole.split("\n")
        best = sorted(found, key=lambda number: (-found[number], number))
        if len(best) > LINES:
            best = _unlike(best[: 20 * LINES], lines)[:LINES]
        for number in sorted(best):
            if number < len(lines) and (hit := self._hit(path, number + 1, lines[number])):
                self.hits.append(hit)

    def _hit(self, path: str, number: int, text: str) -> _Hit | None:
        looked_at = text[:4000]
        terms = self._question.terms
        has, start = terms.found_and_first(looked_at)
        fault = self._question.faults and FAULT.search(looked_at) is not None
        if not has and not fault:
            return None
        hit = _Hit(path, number, text.removesuffix("\r"), has, start, fault)
        if key := _KEY.match(looked_at[:200]):
            of = words(next(filter(None, key.groups())))
            hit.key = sum(terms.found_in(one) != {} for one in of) / max(len(of), 1)
        return hit


def _unlike(numbers: list[int], lines: list[str]) -> list[int]:
    """Drop line numbers beyond a limit among lines that differ only in digits."""
    kinds: Counter[str] = Counter()
    found: list[int] = []
    for number in numbers:
        kind = _NUMBER.sub("0", lines[number][:200])
        kinds[kind] += 1
        if kinds[kind] <= 3 * ALIKE:
            found.append(number)
    return found


def _lines_with(needle: str, text: str) -> Iterator[int]:
    """Yield the indexes from 0 of the lines that contain a text."""
    at, number, last = text.find(needle), 0, 0
    for _ in range(HITS if at >= 0 else 0):
        number += text.count("\n", last, at)
        yield number
        last = text.find("\n", at)
        if last < 0 or (at := text.find(needle, last)) < 0:
            return


class _Names:
    """Scores of file paths by the question's terms that they contain, by rarity."""

    def __init__(self, catalog: Catalog, terms: Terms) -> None:
        self.scores: Counter[str] = Counter()
        self._terms = terms
        self._rare: Weights = {}
        number = len(catalog.files) + 1
        fits: dict[str, dict[str, float]] = {}
        for name, paths in _alike(catalog, terms):
            for word, share in terms.found_in(name).items():
                if terms.weights.get(word, 0) >= 0.3:
                    one = fits.setdefault(word, {})
                    one.update((path, max(share, one.get(path, 0))) for path in paths)
        for word, paths in fits.items():
            self._rare[word] = math.log(number / len(paths)) / math.log(max(number, 2))
            for path, share in paths.items():
                self.scores[path] += terms.weights[word] * share * self._rare[word]  # pyright: ignore[reportArgumentType]

    def knows(self, word: str) -> bool:
        """Return whether any path contains a word."""
        return word in self._rare

    def best(self, limit: int) -> list[str]:
        found = (path for path, score in self.scores.items() if score > 0.3)
        return nsmallest(limit, found, key=lambda path: (-self.scores[path], path))

    def of(self, path: str) -> Weights:
        """Return the weight of each question term in a path."""
        found: Weights = {}
        _raise(found, self._terms.found_in(path), OF_FOLDER)
        _raise(found, self._terms.found_in(path.rpartition("/")[2]), OF_NAME)
        return {word: share * self._rare.get(word, 1.0) for word, share in found.items()}


def _alike(catalog: Catalog, terms: Terms) -> Iterator[tuple[str, set[str]]]:
    """Yield the words of paths that match words of the question, with their paths."""
    by_word, ordered = catalog.by_word()
    names = {short for short in terms.short if short in by_word}
    for word in terms.telling:
        if is_dense(word):
            names.update(name for name in ordered if word in name)
            continue
        start = stem(word)
        for name in ordered[bisect_left(ordered, start) :]:
            if not name.startswith(start):
                break
            if len(start) >= STEM or len(name) <= len(word) + 1:
                names.add(name)
    return ((name, by_word[name]) for name in sorted(names))


@dataclass
class _Scoring:
    """Scores and ranks hits."""

    _question: Question
    _rarity: Weights
    _names: _Names
    _text_of: Callable[[str], Text | None]

    def __post_init__(self) -> None:
        self._fault = OF_FAULT * max([RARE, *self._rarity.values()])

    def ranked(self, hits: list[_Hit]) -> Ranked:
        """Score hits with their context; return them as ranked lines."""
        for hit in hits:
            hit.own = self._own(hit)
        by_file: dict[str, list[_Hit]] = {}
        close = sorted(hits, key=lambda hit: -hit.own)
        for hit in {(hit.path, hit.number): hit for hit in close[:LINES]}.values():
            by_file.setdefault(hit.path, []).append(hit)
        result, best, top = Ranked(), Weights(), 0.0
        for path, several in by_file.items():
            several.sort(key=lambda hit: hit.number)
            role = 1 - OF_DEPTH * path.count("/") - OF_ASIDE * bool(_ASIDE.search(path))
            in_name, above = self._names.of(path), self._above(path)
            for index, hit in enumerate(several):
                around = dict(in_name)
                _raise(around, above(hit.number), ABOVE)
                _raise(around, _near(several, index), AROUND)
                more = (self._rarity[w] * max(s - hit.has.get(w, 0), 0) for w, s in around.items())
                score = (hit.own + sum(more)) * role
                if score > top:
                    top, best = score, around | hit.has
                result.lines.append(Line(path, hit.number, hit.text, score))
        telling = [word for word in self._question.own.telling if word in self._rarity]
        telling = telling or self._question.terms.telling
        whole = sum(self._rarity[word] for word in telling)
        found = sum(self._rarity[word] for word in telling if best.get(word))
        result.strength = found / whole if whole else 0.0
        result.lines.sort(key=lambda line: (-line.score, line.path, line.number))
        result.lines = _spread(result.lines)
        return result

    def _own(self, hit: _Hit) -> float:
        """Score a line without its context: higher if it is short, as settings are."""
        width = min(max(len(hit.text), 20) / WIDE, 3.0)
        score = sum(self._rarity[word] * share for word, share in hit.has.items())
        start = max((self._rarity[word] * hit.has[word] for word in hit.start), default=0.0)
        score = (score + start * (AT_START - 1)) * 1.3 / (1 + 0.3 * width)
        return score * (1 + OF_KEY * hit.key**2) + self._fault * hit.fault

    def _above(self, path: str) -> Callable[[int], Weights]:
        """Return a function from a line number to the terms in the headings above that line."""
        text = self._text_of(path)
        found: dict[int, Weights] = {}

        def above(number: int) -> Weights:
            if text is None or number > len(text.lines):
                return {}
            upper = text.parents[number - 1] + 1
            if upper not in found:
                found[upper] = {}  # no circle, should lines change meanwhile
                if upper:
                    found[upper] = dict(above(upper))
                    _raise(found[upper], self._question.terms.found_in(text.lines[upper - 1]), 1.0)
            return found[upper]

        return above


def _rarity(terms: Terms, counts: Counter[str], total: int) -> Weights:
    """Weigh each word by its rarity: the fewer chunks contain it, the more."""
    found: Weights = {}
    for group in (terms.weights, terms.compounds):
        for word, weight in group.items():
            number = min(counts[word], total)
            rare = math.log(1 + (total - number + 0.5) / (number + 0.5))
            found[word] = weight * max(rare, FLOOR)
    for word, weight in terms.compounds.items():
        found[word] = max(found[word], 0.5 * weight) * AT_ONCE
    return found


def _raise(into: Weights, found: Weights, share: float) -> None:
    for word, has in found.items():
        if (counts := share * has) > into.get(word, 0.0):
            into[word] = counts


def _near(several: list[_Hit], index: int) -> Weights:
    """Return the words of the lines around a hit, weighted by nearness."""
    found: Weights = {}
    number = several[index].number
    for step in (-1, 1):
        at = index + step
        while 0 <= at < len(several) and abs(several[at].number - number) <= NEAR:
            nearness = 1 - abs(several[at].number - number) / (2 * NEAR)
            _raise(found, several[at].has, nearness)
            at += step
    return found


def _spread(lines: list[Line]) -> list[Line]:
    """Move lines that differ from `ALIKE` better ones only in digits to the end."""
    kinds: Counter[tuple[str, str]] = Counter()
    first: list[Line] = []
    later: list[Line] = []
    for line in lines:
        kind = line.path, _NUMBER.sub("0", line.text[:300])
        kinds[kind] += 1
        (first if kinds[kind] <= ALIKE else later).append(line)
    return [*first, *later]
