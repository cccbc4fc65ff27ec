"""Drafts from source texts as a model copies them: JSON-escaped, without line numbers.

A tool's result is seldom repeated verbatim. In a JSON string, such as an argument
of a call or an answer of a declared type, its line ends are written as a backslash and a letter,
and its quotes with a backslash; the numbers in front of its lines are left out wherever it goes.
So it is cut into tokens once more in each of these forms, and looked up there as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .ngram_index import LONG, PLACES, WIDTH, Match, common

if TYPE_CHECKING:
    from ...tokens.tokenizer import Tokenizer

_NUMBER = re.compile(r" *(\d+)(?:\t|: | \| |  )")
_END = -1  # no token: where one copy ends and the next begins


class Index:
    """An n-gram index of several texts, with n = `WIDTH`."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._last = Match(0, 0)
        self._end = 0  # length of what `_last` was found for

    def forget(self) -> None:
        """Forget the last match, as the tokens before it may have changed."""
        self._end = 0

    def add(self, text: Sequence[int]) -> None:
        """Add a text to the index."""
        for at in range(WIDTH, len(text)):
            key = tuple(text[at - WIDTH : at])
            self._places.setdefault(key, []).append(len(self.tokens) + at)
        self.tokens += [*text, _END]

    def find(self, tokens: Sequence[int]) -> Match | None:
        """Find the longest match for the end of these tokens, the latest of equal ones."""
        best = self._continued(tokens)
        for at in reversed(self._places.get(tuple(tokens[-WIDTH:]), ())[-PLACES:]):
            same = common(self.tokens, at, tokens, len(tokens))
            if best is None or same > best.same:
                best = Match(at, same)
        if best is not None:
            self._last, self._end = best, len(tokens)
        return best

    def draft(self, match: Match, count: int) -> list[int]:
        """Return at most `count` of the tokens that follow the match."""
        found = self.tokens[match.at : match.at + count]
        return found[: found.index(_END)] if _END in found else found

    def _continued(self, tokens: Sequence[int]) -> Match | None:
        """Return the last match, advanced past the new tokens, if they continue it."""
        at, more = self._last.at, len(tokens) - self._end
        if not self._end or not 0 <= more <= LONG or at + more >= len(self.tokens):
            return None
        if self.tokens[at : at + more] != tokens[self._end :] or self.tokens[at + more] == _END:
            return None
        return Match(at + more, min(LONG, self._last.same + more))


class NormalizedSources:
    """Source texts as a model copies them: without line numbers, and as JSON strings; in tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._seen: list[tuple[int, ...]] = []
        self._made: dict[tuple[tuple[int, ...], bool], list[int]] = {}
        self._indices: dict[bool, tuple[Index, int]] = {}

    def of(self, texts: Sequence[Sequence[int]]) -> None:
        """Set the source texts; earlier conversions are reused."""
        seen = [tuple(text) for text in texts]
        if seen[: len(self._seen)] != self._seen:
            self._indices.clear()
            self._made = {key: ids for key, ids in self._made.items() if key[0] in seen}
        self._seen = seen
        for index, _ in self._indices.values():
            index.forget()

    def missing(self, texts: Sequence[Sequence[int]]) -> int:
        """Count the tokens of these texts that are not converted yet."""
        made = {text for text, _ in self._made}
        return sum(len(text) for text in texts if tuple(text) not in made)

    def index(self, escaped: bool) -> Index:
        """Return the index of the texts as written in JSON strings (`escaped`) or in free text."""
        index, done = self._indices.get(escaped, (Index(), 0))
        for text in self._seen[done:]:
            if ids := self._copy(text, escaped):
                index.add(ids)
        self._indices[escaped] = index, len(self._seen)
        return index

    def _copy(self, text: tuple[int, ...], escaped: bool) -> list[int]:
        """Convert a text to the form in which it is copied; empty if that is no different."""
        key = text, escaped
        if key not in self._made:
            was = self._tokenizer.decode(text)
            copy = without_numbers(was)
            if escaped:
                copy = json.dumps(copy, ensure_ascii=False)[1:-1]
            self._made[key] = [] if copy == was else self._tokenizer.encode(copy)
        return self._made[key]


def without_numbers(text: str) -> str:
    """Remove consecutive line numbers from the beginnings of lines."""
    lines, last = text.split("\n"), None
    for n, line in enumerate(lines):
        found = _NUMBER.match(line)
        if found is None or (last is not None and int(found[1]) != last + 1):
            continue
        last = int(found[1])
        lines[n] = line[found.end() :]
    return "\n".join(lines)
