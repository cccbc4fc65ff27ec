"""Words of questions and lines, in any script.

Text is compared folded: lower case, without accents. Names in sources count as their words
(`keepAlive`, `keep_alive`). Scripts without spaces count by pairs of characters.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property

# Thai to Khmer, kana, Han, Hangul: no spaces, or particles that hang on to a word.
DENSE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff"
)
_DENSE_SIGN = re.compile(f"([{DENSE}])")
_WORD = re.compile(f"[{DENSE}]+|[^\\W_{DENSE}]+")
_CAMEL = re.compile(r"[A-Z]*[a-z0-9]+[A-Z]\w*|[A-Z]{2,}[a-z]\w*")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Written as one thing, so sought as one: versions, dates, keys, addresses, numbers of invoices.
_COMPOUND = re.compile(r"[^\W_]+(?:[-_.:/@+][^\W_]+)+")
_QUOTED = re.compile('["“„«`「]([^"”“»`」\n]{2,80})["”“»`」]')

STEM, SHORT = 4, 3
"""Letters that the start of a word must have to stand for it; that an abbreviation has."""

# What any question is made of. These words count little, so a list that lacks a language costs
# some precision there, and nothing else.
_COMMON = frozenset(
    (
        "a about all an and any are as at be been by can could did do does each every for from get "
        "give had has have how i if in into is it its list many me much my name no not of on one "
        "or our out per please say says set show so some tell than that the their them then there "
        "these they this to two up us use used uses was we were what when where which who whose "
        "why will with would you your file files folder line lines exactly here itself least most more "
        "less need needs needed also again just only really currently now after before s t "
        "aber als am an auf aus bei bin bis da das dass dem den der des die dies doch du ein eine "
        "mehr meisten nur auch jetzt derzeit brauch brauche einem einen einer er es fur gibt hat hier ich ihr im ist kann mit nach nicht noch oder "
        "sich sie sind so steht uber um und uns unser von vor war was welche welchem welchen "
        "welcher welches wann wer wie wieviel wieviele wird wo zu zum zur zeile datei "
        "al como con cual cuales cuando cuanto cuantos cuanta cuantas de del donde el ella en es "
        "esta este la las le lo los me mi no nos o para por porque que quien se ser si son su sus "
        "mas menos aqui solo tambien ahora tiene un una y linea archivo "
        "au aux avec ce ces cette combien dans du elle est et il je les mais ne ou par pas pour "
        "quand quel quelle qui quoi sa son sont sur une vous"
    ).split()
)
_COMMON_DENSE = frozenset("的是了在有和吗呢么什哪谁几多少个这那请我你们其の는이를")

Weights = dict[str, float]


def fold(text: str) -> str:
    """The text in lower case, without accents; its lines stay its lines."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text)
    bare = "".join(sign for sign in apart if not unicodedata.combining(sign))
    return unicodedata.normalize("NFC", bare).casefold()


def with_parts(text: str) -> str:
    """The text with the words of each name in camel case behind it."""
    if text.islower():
        return text
    return _CAMEL.sub(lambda found: f"{found[0]} {_HUMP.sub(' ', found[0])}", text)


def indexed(text: str) -> str:
    """What an index gets of a text: words with spaces, one by one where a script has none."""
    text = fold(with_parts(text))
    return text if text.isascii() else _DENSE_SIGN.sub(r" \1 ", text)


def words(text: str) -> list[str]:
    """The words of a text, folded; those of scripts without spaces in runs."""
    return _WORD.findall(fold(with_parts(text)))


def is_dense(word: str) -> bool:
    """Whether a word is of a script without spaces."""
    return not word.isascii() and _DENSE_SIGN.match(word) is not None


def is_whole(compound: str, folded: str) -> bool:
    """Whether a folded text has a compound as a whole: 7.0 is neither 7.0.1 nor 17.0."""
    at = folded.find(compound)
    while at >= 0:
        end = at + len(compound)
        before, after = folded[max(at - 2, 0) : at], folded[end : end + 2]
        joins = (
            after[:1] in (".", "-")
            and after[1:].isdigit()
            or before[1:] == "."
            and before[:1].isdigit()
        )
        if not (before[-1:].isalnum() or after[:1].isalnum() or joins):
            return True
        at = folded.find(compound, at + 1)
    return False


def stem(word: str) -> str:
    """The start of a word that its other forms have in any language that changes the ends."""
    if len(word) < STEM or not word.isalpha():
        return word
    return word[: max(STEM, -(-len(word) * 7 // 10))]


@dataclass(frozen=True)
class Terms:
    """What of a question is looked for.

    Attributes:
        weights: by word (or pair of characters), what it counts before its rarity.
        compounds: folded texts that are written as one thing, by what they count.
    """

    weights: Weights
    compounds: Weights

    @cached_property
    def telling(self) -> list[str]:
        """The words that say what is asked about: not those of any question."""
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
        """By what may stand for a word as its abbreviation, the word: names in files are short."""
        return {
            word[:size]: word
            for word in self.telling
            if word.isalpha() and not is_dense(word)
            for size in range(SHORT, len(stem(word)))
            if word[:size] not in self.weights
        }

    @cached_property
    def pairs(self) -> list[str]:
        """Those of scripts without spaces."""
        return [word for word in self.weights if is_dense(word)]

    def found_in(self, text: str) -> Weights:
        """How well a line has each word: 1 as it is, less in another form or abbreviated."""
        found: Weights = {}
        weights, starts, short = self.weights, self._by_start, self.short
        folded = fold(with_parts(text))
        for word in _WORD.findall(folded):
            if word in weights:
                found[word] = 1.0
                continue
            if word[:-1] in weights and word[:-1] not in found:
                found[word[:-1]] = 0.7  # hosts, sshd
            for start, whole in starts.get(word[:STEM], ()):
                if word.startswith(start) and found.get(whole, 0) < 0.7:
                    found[whole] = 0.7
            if (whole := short.get(word)) is not None and found.get(whole, 0) < 0.4:
                found[whole] = 0.4
        for pair in self.pairs:
            if pair in folded:
                found[pair] = 1.0
        for compound in self.compounds:
            if is_whole(compound, folded):
                found[compound] = 1.0
        return found

    def __bool__(self) -> bool:
        return bool(self.telling or self.compounds)


def terms(text: str, weight: float = 1.0) -> Terms:
    """The terms of a question.

    Args:
        text: the question.
        weight: what its words count.
    """
    weights: Weights = {}
    for word in words(text):
        if is_dense(word):
            # A run has no words that could be told, so each pair in it may be one.
            parts = [word[i : i + 2] for i in range(max(len(word) - 1, 1))]
            for part in parts:
                common = sum(sign in _COMMON_DENSE for sign in part) / len(part)
                weights[part] = weight * (1.0 if not common else 0.3 if common < 1 else 0.05)
        else:
            common = word in _COMMON or (len(word) == 1 and not word.isdigit())
            weights[word] = weight * (0.1 if common else 1.0)
    compounds = {fold(found[0]): weight for found in _COMPOUND.finditer(text)}
    compounds |= {fold(found[1].strip()): weight for found in _QUOTED.finditer(text)}
    return Terms(weights, compounds)


def joined(first: Terms, *others: Terms) -> Terms:
    """All terms; of those that several have, the largest weight."""
    weights, compounds = dict(first.weights), dict(first.compounds)
    for other in others:
        for into, more in ((weights, other.weights), (compounds, other.compounds)):
            for word, weight in more.items():
                into[word] = max(into.get(word, 0.0), weight)
    return Terms(weights, compounds)
