"""The lines that share most with a question: of an index's chunks, or of a bounded scan.

A line counts what it has of the question's words, each by its rarity, and less what the lines
around it have, and the name of its file: `port = 22` says little without its heading.
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ...errors import ToolError
from .catalog import Catalog
from .index import ROWS, Chunk, Index
from .question import FAULT, Question
from .reading import Texts
from .words import SHORT, Terms, Weights, fold, is_dense, stem

CHUNKS = 80  # that are looked into
LINES = 6000  # of one file whose words are looked at
NEAR = 12  # lines before and after one that lend it their words
FEW_BYTES = 4 << 20  # of all files, at which abbreviations are scanned for, too
ABOVE, AROUND, OF_NAME, OF_FOLDER, AT_ONCE, OF_FAULT = 0.6, 0.3, 0.8, 0.4, 1.5, 0.5
"""What counts, of 1 for a word in the line itself: the same word in a heading above it, in a line
near it, in the file's name, in those of its folders; a text that is written as one thing; a mark of a failure, of the rarest
word."""
FLOOR = 0.15  # that a word counts which all chunks have
WIDE = 100  # characters of a line that is of usual width
AT_START = 1.25  # what a word counts more that stands at the start: the line is about it
FILES = 16  # the best ones, whose headings are looked at
OF_DEPTH, OF_ASIDE = 0.02, 0.15
"""What a line counts less for each folder that its file lies in, since what is about the whole lies
at the top; and in files that are beside the matter, such as tests and examples."""
ALIKE = 3  # lines that differ in nothing but numbers, after which more of them count little


_ASIDE = re.compile(r"(^|/)(tests?|testing|testdata|examples?|samples?|vendor|third_party)/", re.I)
_NUMBER = re.compile(r"\d+")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True)
class Line:
    """A line of a file.

    Attributes:
        score: what it shares with the question; larger is better.
    """

    path: str
    number: int
    text: str
    score: float = 0.0


@dataclass
class Ranked:
    """Lines, the best first.

    Attributes:
        strength: share of the question's telling words, by rarity, that the best line has with
            the lines around it and its file's name: 0 to 1.
        searched, unsearched: files that were looked into, and that were not in time.
    """

    lines: list[Line] = field(default_factory=list)
    score: float = 0.0
    strength: float = 0.0
    searched: int = 0
    unsearched: int = 0


@dataclass
class _Hit:
    path: str
    number: int
    text: str
    has: dict[str, float]
    first: tuple[str, ...]
    fault: bool


class Ranking:
    """Ranks lines of a catalog's files."""

    def __init__(self, catalog: Catalog, texts: Texts, index: Index | None) -> None:
        self._catalog = catalog
        self._texts = texts
        self._index = index

    def rank(
        self, question: Question, within: Callable[[str], bool], always: Iterable[str], end: float
    ) -> Ranked:
        """The lines of some files, ranked.

        Args:
            question: what is asked.
            within: whether a file counts.
            always: files that are looked into however little they share.
            end: time.monotonic() after which no further file is looked into.
        """
        terms = question.terms
        named = self._by_names(terms)
        always = [path for path in always if path in self._catalog.files]
        hits: list[_Hit] = []
        counts: dict[str, int] = {}
        total = 0
        fresh: set[str] = set()
        new = list(self._catalog.files)
        if self._index is not None:
            fresh, new = self._index.fresh(self._catalog)
        done = set(always)
        best = [p for p, _ in named.most_common(3) if _small(self._catalog, p) and within(p)]
        done.update(best)
        for path in done:
            hits += self._in_file(path, question)
        if fresh and self._index is not None:
            usable = fresh - done
            chunks, counts = self._index.find(terms, usable, CHUNKS)
            total = self._index.chunks()
            hits += self._in_chunks(chunks, question, within)
        rest = [path for path in new if path not in done and within(path)]
        missed = self._scan(rest, named, question, end, hits)
        if not fresh:
            counts, total = _counted(hits), 0
        if not total:
            total = sum(key[0] for key in self._catalog.files.values()) // (ROWS * 40) + 20
        rarity = _rarity(terms, counts, total)
        result = _scored(hits, question, rarity, self._above, self._in_name(terms))
        result.searched = len(self._catalog.files) - missed
        result.unsearched = missed
        return result

    def _by_names(self, terms: Terms) -> Counter[str]:
        """Files by what their paths share with the question; rare words count more."""
        by_word = self._catalog.by_word()
        found: Counter[str] = Counter()
        number = len(self._catalog.files) + 1
        starts = {word: stem(word) for word in terms.telling if not is_dense(word)}
        for term in terms.telling:
            weight = terms.weights[term]
            fits: dict[str, float] = {}
            if term in by_word:
                fits.update(dict.fromkeys(by_word[term], 1.0))
            elif is_dense(term):
                for name, paths in by_word.items():
                    if term in name:
                        fits.update(dict.fromkeys(paths, 1.0))
            if len(start := starts.get(term, "")) > SHORT:
                for name, paths in by_word.items():
                    if name.startswith(start):
                        for path in paths:
                            fits.setdefault(path, 0.7)
            for path, share in fits.items():
                found[path] += weight * share * math.log(1 + number / len(fits))
        return found

    def _in_file(self, path: str, question: Question) -> Iterator[_Hit]:
        try:
            whole = self._texts.get(path).whole
        except ToolError:
            return
        yield from _hits(path, whole, question, self._needles(question.terms, small=True))

    def _in_chunks(
        self, chunks: list[Chunk], question: Question, within: Callable[[str], bool]
    ) -> Iterator[_Hit]:
        current: dict[str, bool] = {}
        wholes: dict[str, list[str]] = {}
        for chunk in chunks:
            path = next((path for path in chunk.paths if within(path)), None)
            if path is None:
                continue
            if path not in current:
                current[path] = self._catalog.current(path)
            if not current[path]:  # it changed since: what it is now is looked into whole
                if path not in wholes:
                    wholes[path] = []
                    yield from self._in_file(path, question)
                continue
            try:
                if chunk.length:
                    lines = self._texts.part(path, chunk.start, chunk.length)
                else:
                    if path not in wholes:
                        wholes[path] = self._texts.get(path).lines
                    lines = wholes[path][chunk.line - 1 : chunk.line - 1 + ROWS]
            except ToolError:
                continue
            for number, text in enumerate(lines, chunk.line):
                if hit := _hit(path, number, text, question):
                    yield hit

    def _above(self, path: str, terms: Terms) -> Callable[[int], Weights]:
        """What the lines that one of a file stands under have of the terms."""
        try:
            text = self._texts.get(path) if _small(self._catalog, path) else None
        except ToolError:
            text = None
        found: dict[int, Weights] = {}

        def above(number: int) -> Weights:
            if text is None or number > len(text.lines):
                return {}
            upper = next(text.above(number), 0)
            if upper not in found:
                all_above: Weights = dict(above(upper)) if upper else {}
                _raise(all_above, terms.found_in(text.lines[upper - 1]) if upper else {}, 1.0)
                found[upper] = all_above
            return found[upper]

        return above

    def _in_name(self, terms: Terms) -> Callable[[str], Weights]:
        """What the path of a file has of the terms: the less, the more paths have the same."""
        number = len(self._catalog.files) + 1
        paths: dict[str, int] = {}
        for word in terms.telling:
            fits = [
                p for name, p in self._catalog.by_word().items() if terms.found_in(name).get(word)
            ]
            paths[word] = len(set().union(*fits)) if fits else 1

        def in_name(path: str) -> Weights:
            found: Weights = {}
            _raise(found, terms.found_in(path), OF_FOLDER)
            _raise(found, terms.found_in(path.rpartition("/")[2]), OF_NAME)
            rare = {w: math.log(number / paths.get(w, 1)) / math.log(number) for w in found}
            return {word: share * rare[word] for word, share in found.items()}

        return in_name

    def _needles(self, terms: Terms, small: bool) -> list[str]:
        """What is found in a text where a line may have a word; rather too much than too little."""
        found: set[str] = set(terms.compounds)
        for word in terms.telling:
            shorter = small and word.isalpha() and not is_dense(word)
            found.add(word[:SHORT] if shorter else stem(word))
        return sorted(found, key=lambda one: -len(one))

    def _scan(
        self,
        paths: list[str],
        named: Counter[str],
        question: Question,
        end: float,
        hits: list[_Hit],
    ) -> int:
        """Look through files until the time is up; how many were not looked into.

        Those whose names share words with the question come first, then the small ones: in the same
        time more of them can be looked into.
        """
        files = self._catalog.files
        size = sum(files[path][0] for path in paths)
        needles = self._needles(question.terms, size <= FEW_BYTES)
        paths.sort(key=lambda path: (-named[path], files[path][0], path))
        for number, path in enumerate(paths):
            if time.monotonic() > end:
                return len(paths) - number
            try:
                whole = self._texts.get(path).whole
            except ToolError:
                continue
            hits += _hits(path, whole, question, needles)
        return 0


def _small(catalog: Catalog, path: str) -> bool:
    return catalog.files[path][0] <= FEW_BYTES // 8


def _hits(path: str, whole: str, question: Question, needles: list[str]) -> Iterator[_Hit]:
    """The lines of a text that have a word of the question."""
    # Accents of a large text are left as they are: taking it apart takes too long.
    folded = fold(whole) if len(whole) <= FEW_BYTES else whole.lower()
    found: Counter[int] = Counter()
    for needle in needles:
        at, number, last = folded.find(needle), 0, 0
        while at >= 0 and len(found) < 10 * LINES:
            number += folded.count("\n", last, at)
            last = at
            found[number] += 1
            at = folded.find("\n", at)
            at = -1 if at < 0 else folded.find(needle, at)
    if question.faults:
        for number, match in _fault_lines(whole):
            found[number] += match
    lines = whole.split("\n")
    chosen = sorted(found) if len(found) <= LINES else sorted(dict(found.most_common(LINES)))
    for number in chosen:
        if number < len(lines) and (
            hit := _hit(path, number + 1, lines[number].removesuffix("\r"), question)
        ):
            yield hit


def _fault_lines(whole: str) -> Iterator[tuple[int, int]]:
    number = last = 0
    for count, match in enumerate(FAULT.finditer(whole)):
        if count > LINES:
            return
        number += whole.count("\n", last, match.start())
        last = match.start()
        yield number, 1


def _hit(path: str, number: int, text: str, question: Question) -> _Hit | None:
    looked_at = text if len(text) <= 4000 else text[:4000]
    has = question.terms.found_in(looked_at)
    fault = question.faults and FAULT.search(looked_at) is not None
    if not has and not fault:
        return None
    # Its first words, behind a mark or a keyword such as `def`.
    start = (
        tuple(question.terms.found_in(" ".join(_WORDS.findall(looked_at[:120])[:2]))) if has else ()
    )
    return _Hit(path, number, text, has, tuple(w for w in start if w in has), fault)


def _counted(hits: Iterable[_Hit]) -> dict[str, int]:
    """How many chunks have each word, where only hits are known."""
    chunks = {(hit.path, (hit.number - 1) // ROWS, word) for hit in hits for word in hit.has}
    return Counter(word for _, _, word in chunks)


def _rarity(terms: Terms, counts: dict[str, int], total: int) -> dict[str, float]:
    """What each word counts: its weight by how few chunks have it."""
    found = {}
    for group in (terms.weights, terms.compounds):
        for word, weight in group.items():
            number = min(counts.get(word, 0), total)
            found[word] = weight * max(math.log(1 + (total - number + 0.5) / (number + 0.5)), FLOOR)
    for word, weight in terms.compounds.items():
        found[word] = max(found[word], 0.5 * weight) * AT_ONCE
    return found


def _scored(
    hits: list[_Hit],
    question: Question,
    rarity: dict[str, float],
    above_of: Callable[[str, Terms], Callable[[int], Weights]],
    in_name_of: Callable[[str], Weights],
) -> Ranked:
    by_file: dict[str, list[_Hit]] = {}
    for hit in {(hit.path, hit.number): hit for hit in hits}.values():
        by_file.setdefault(hit.path, []).append(hit)
    fault = OF_FAULT * max(rarity.values(), default=1.0)
    rough: list[tuple[float, str]] = []
    for path, several in by_file.items():
        several.sort(key=lambda hit: hit.number)
        rough.append((max(_own(hit, rarity, fault) for hit in several), path))
    above = {path for _, path in sorted(rough, reverse=True)[:FILES]}
    best: dict[str, float] = {}
    result = Ranked()
    for path, several in by_file.items():
        upper = above_of(path, question.terms) if path in above else None
        in_name = in_name_of(path)
        role = 1 - OF_DEPTH * path.count("/") - OF_ASIDE * bool(_ASIDE.search(path))
        for place, hit in enumerate(several):
            around = dict(in_name)
            _raise(around, upper(hit.number) if upper else {}, ABOVE)
            _raise(around, _near(several, place), AROUND)
            score = _own(hit, rarity, fault)
            for word, share in around.items():
                score += rarity[word] * max(share - hit.has.get(word, 0), 0)
            score *= role
            if score > result.score:
                result.score, best = score, around | hit.has
            result.lines.append(Line(path, hit.number, hit.text, score))
    telling = [word for word in question.own.telling if word in rarity] or question.terms.telling
    whole = sum(rarity[word] for word in telling)
    found = sum(rarity[word] for word in telling if best.get(word))
    result.strength = found / whole if whole else 0.0
    result.lines = _spread(sorted(result.lines, key=lambda l: (-l.score, l.path, l.number)))
    return result


def _own(hit: _Hit, rarity: dict[str, float], fault: float) -> float:
    """What a line counts by itself: more if it is short, as a setting or a definition is."""
    width = max(len(hit.text), 20) / WIDE
    score = sum(rarity[word] * share for word, share in hit.has.items())
    start = max((rarity[word] * hit.has[word] for word in hit.first), default=0.0)
    return (score + start * (AT_START - 1)) * 1.3 / (1 + 0.3 * min(width, 3.0)) + fault * hit.fault


def _raise(into: dict[str, float], found: dict[str, float], share: float) -> None:
    for word, has in found.items():
        into[word] = max(into.get(word, 0.0), share * has)


def _spread(lines: list[Line]) -> list[Line]:
    """The lines with those behind that are like `ALIKE` better ones: a log repeats itself."""
    kinds: Counter[tuple[str, str]] = Counter()
    first: list[Line] = []
    later: list[Line] = []
    for line in lines[:1000]:
        kind = line.path, _NUMBER.sub("0", line.text[:300])
        kinds[kind] += 1
        (first if kinds[kind] <= ALIKE else later).append(line)
    return [*first, *later, *lines[1000:]]


def _near(several: list[_Hit], place: int) -> dict[str, float]:
    """The words of the lines around one; those further away count less."""
    found: dict[str, float] = {}
    number = several[place].number
    for step in (-1, 1):
        at = place + step
        while 0 <= at < len(several) and abs(several[at].number - number) <= NEAR:
            nearness = 1 - abs(several[at].number - number) / (2 * NEAR)
            for word, share in several[at].has.items():
                if share * nearness > found.get(word, 0):
                    found[word] = share * nearness
            at += step
    return found
