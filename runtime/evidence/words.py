"""Tokenizes questions and lines into comparable words, in any script.

Text is compared folded: lower case, without accents. Names in sources count as their words
(`keepAlive`, `keep_alive`). Scripts without spaces count by pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property

from .languages import COMMON, COMMON_DENSE

# Thai to Khmer, kana, Han, Hangul: no spaces, or particles that hang on to a word.
DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
)
_DENSE_SIGN = re.compile(f"([{DENSE}])")
WORD = re.compile(f"[{DENSE}]+|[^\\W_{DENSE}]+")
_CAMEL = re.compile(r"[A-Z]*[a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]\w*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Written as one thing, so sought as one: versions, dates, keys, addresses, numbers of invoices.
_COMPOUND = re.compile(r"[^\W_]+(?:[-_.:/@+][^\W_]+)+")
_MANY = re.compile(r"(?<=\d)s$")  # 404s
_QUOTED = re.compile('["“„«`「]([^"”“»`」\n]{2,80})["”“»`」]')

STEM, SHORT = 4, 3
"""Minimum letters of a stem, and of an abbreviation."""

MAX_TERMS = 60  # of a question
AT_START = 3  # words of a line that are its start

Weights = dict[str, float]


def fold(text: str) -> str:
    """Fold a text to lower case without accents; line breaks do not change."""
    if text.isascii():
        return text.lower()
    bare = unicodedata.normalize("NFKD", text)
    for mark in filter(unicodedata.combining, set(bare)):
        bare = bare.replace(mark, "")
    return unicodedata.normalize("NFC", bare).casefold()


def with_parts(text: str) -> str:
    """Append its separate words to each camel-case name in a text."""
    if text.islower():
        return text
    return _CAMEL.sub(lambda found: f"{found[0]} {_HUMP.sub(' ', found[0])}", text)


def indexed(text: str) -> str:
    """Prepare a text for the index: folded, with spaces in scripts that have none."""
    text = fold(with_parts(text))
    return text if text.isascii() else _DENSE_SIGN.sub(r" \1 ", text)


def words(text: str) -> list[str]:
    """Split a text into folded words; scripts without spaces yield whole runs."""
    return WORD.findall(fold(with_parts(text)))


def is_dense(word: str) -> bool:
    """Return whether a word is of a script without spaces."""
    return not word.isascii() and _DENSE_SIGN.match(word) is not None


def is_whole(compound: str, folded: str) -> bool:
    """Return whether a folded text has a compound as a whole: 7.0 is not 7.0.1 or 17.0."""
    at = folded.find(compound)
    while at >= 0:
        end = at + len(compound)
        before, after = folded[max(at - 2, 0) : at], folded[end : end + 2]
        goes_on = after[:1] in (".", "-") and after[1:].isdigit()
        joins = goes_on or (before[1:] == "." and before[:1].isdigit())
        if not (before[-1:].isalnum() or after[:1].isalnum() or joins):
            return True
        at = folded.find(compound, at + 1)
    return False


def stem(word: str) -> str:
    """Return the stem of a word: the start that its inflected forms share in most languages."""
    if len(word) < STEM or not word.isalpha():
        return word
    return word[: max(STEM, -(-len(word) * 7 // 10))]


@dataclass(frozen=True)
class Terms:
    """The search terms of a question."""

    weights: Weights
    """Weight of each word (or pair of characters), before rarity."""
    compounds: Weights
    """Weight of each folded text that must match as a whole, such as a version or a path."""

    @cached_property
    def telling(self) -> list[str]:
        """Return the words that identify the topic, without those common to all questions."""
        return [word for word, weight in self.weights.items() if weight >= 0.3]

    @cached_property
    def _by_start(self) -> dict[str, list[tuple[str, str]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for word in self.telling:
            if len(start := stem(word)) >= STEM and not is_dense(word):
                found.setdefault(start[:STEM], []).append((start, word))
        return found

    @cached_property
    def short(self) -> dict[str, str]:
        """Map possible abbreviations to their words, as names in files are short."""
        return {
            word[:size]: word
            for word in self.telling
            if word.isalpha() and not is_dense(word)
            for size in range(SHORT, len(stem(word)))
            if word[:size] not in self.weights
        }

    @cached_property
    def _fits(self) -> Callable[[str], list[tuple[str, float]]]:
        """Return a cached function from a word of a text to matching terms with their scores."""

        @cache
        def fits(word: str) -> list[tuple[str, float]]:
            if word in self.weights:
                return [(word, 1.0)]
            starts = self._by_start.get(word[:STEM], ())
            has = [(whole, 0.7) for start, whole in starts if word.startswith(start)]
            if word[:-1] in self.weights:
                has.append((word[:-1], 0.7))  # hosts, sshd
            if word in self.short:
                has.append((self.short[word], 0.4))
            return has

        return fits

    @cached_property
    def pairs(self) -> list[str]:
        """Return the terms of scripts without spaces."""
        return [word for word in self.weights if is_dense(word)]

    @cached_property
    def found_in(self) -> Callable[[str], Weights]:
        """Return a cached function that scores each term in a text: 1 exact, less if inflected."""
        return cache(lambda text: self.found_and_first(text)[0])

    def found_and_first(self, text: str) -> tuple[Weights, set[str]]:
        """Return the scores of `found_in`, and the terms at the start of the text."""
        found: Weights = {}
        first: set[str] = set()
        fits, folded = self._fits, fold(with_parts(text))
        for number, word in enumerate(WORD.findall(folded)):
            for whole, share in fits(word):
                found[whole] = max(share, found.get(whole, 0))
                if number < AT_START:
                    first.add(whole)
        for text_of_one in (*self.pairs, *self.compounds):
            at = folded.find(text_of_one)
            if at >= 0 and (is_dense(text_of_one) or is_whole(text_of_one, folded)):
                found[text_of_one] = 1.0
                if at < 2 * AT_START:
                    first.add(text_of_one)
        return found, first

    def __bool__(self) -> bool:
        return bool(self.telling or self.compounds)


def terms(text: str, weight: float = 1.0) -> Terms:
    """Extract the search terms of a question.

    Args:
        text: the question.
        weight: of its words.
    """
    weights: Weights = {}
    for word in words(text):
        word = _MANY.sub("", word)
        if is_dense(word):
            # A run has no visible word boundaries, so each pair in it may be a word.
            parts = [word[i : i + 2] for i in range(max(len(word) - 1, 1))]
            for part in parts:
                common = sum(sign in COMMON_DENSE for sign in part) / len(part)
                weights[part] = weight * (1.0 if not common else 0.3 if common < 1 else 0.05)
        else:
            common = word in COMMON or (len(word) == 1 and not word.isdigit())
            weights[word] = weight * (0.1 if common else 1.0)
    if len(weights) > MAX_TERMS:  # a pasted text: its long words are the rare ones
        longest = sorted(weights, key=lambda word: (-len(word), word))[:MAX_TERMS]
        weights = {word: weights[word] for word in weights if word in set(longest)}
    compounds = {fold(found[0]): weight for found in _COMPOUND.finditer(text)}
    compounds |= {fold(found[1].strip()): weight for found in _QUOTED.finditer(text)}
    return Terms(weights, dict(list(compounds.items())[-MAX_TERMS // 4 :]))


def joined(first: Terms, *others: Terms) -> Terms:
    """Merge terms; a term that several have gets the largest weight."""
    weights, compounds = dict(first.weights), dict(first.compounds)
    for other in others:
        for into, more in ((weights, other.weights), (compounds, other.compounds)):
            for word, weight in more.items():
                into[word] = max(into.get(word, 0.0), weight)
    return Terms(weights, compounds)
