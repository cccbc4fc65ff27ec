"""What a question is about, as far as its words say: no model reads it here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .words import Terms, fold, joined, terms, words

FAULT = re.compile(
    r"\b(?:error|err|fatal|crit\w*|emerg\w*|alert|panic|exception|traceback|fail\w*|denied|refused|"
    r"killed|abort\w*|time[ds]?[ -]?out|severe|segfault|fehler\w*|schwerwiegend\w*|abbruch|"
    r"fallo\w*|fallido\w*|erreur\w*|échec\w*|ошибк\w*)\b|错误|失败|异常|致命|エラー|失敗|오류|실패",
    re.IGNORECASE,
)
"""What marks a failure in a line."""

_ASKS_FAULT = re.compile(
    r"error|fail|fault|wrong|\bwhy\b|warum|por qué|pourquoi|为什么|crash|problem|broke|stop|went down|fatal|exception|fehler|schief|"
    r"abgest|kaputt|fall[óoa]|problema|sali[óo] mal|erreur|panne|错|失败|问题|故障|エラー|失敗|오류",
    re.IGNORECASE,
)
_LINE = re.compile(
    r"(?:\b(?:lines?|zeilen?|l[ií]neas?|lignes?|righ[ae]|linhas?|строк[аи])\s+(?:no\.?\s*|nr\.?\s*|"
    r"number\s+|nummer\s+|número\s+)?|第\s*|\.\w{1,8}:)(\d{1,9})(?:\s*(?:-|–|to|bis|a|and|und|y|到)\s*"
    r"(?:第\s*)?(\d{1,9}))?(?!\s*(?:章|节|个|次|天|年|月|日|名))|\b(\d{1,9})(?:st|nd|rd|th)\s+line\b",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"\b(?:first|erste[nr]?|primera?|premi[eè]re?)\s+(?:line|zeile|l[ií]nea|ligne)\b|第一行", re.I
)
_LAST = re.compile(
    r"\b(?:(?:very )?last|letzte[nr]?|[úu]ltima|derni[eè]re)\s+(?:line|zeile|l[ií]nea|ligne)\b|最后一行",
    re.I,
)
_COUNTS = re.compile(
    r"how (?:many|often|much in total)|number of|count|which .* most|most (?:often|frequent|common)|"
    r"wie ?viele?|wie oft|am häufigsten|cu[áa]nt[ao]s|m[áa]s frecuente|combien|多少|几[个次条]|最多",
    re.IGNORECASE,
)
_ENDS = re.compile(
    r"\b(?:last|latest|newest|most recent|final|letzte\w*|neueste\w*|[úu]ltim[oa]s?|derni[eè]re?s?)\b|"
    r"最后|最新|最近|最後|마지막",
    re.IGNORECASE,
)
# Words that point to what was said before. A short question without them is judged by its length.
_POINTS = frozenset(
    ["it", "its", "that", "those", "them", "they", "he", "she", "his", "her", "there", "then", "other", "else", "same", "also", "too", "davon", "dazu", "dessen", "deren", "es", "sie", "er", "dort", "andere", "auch", "eso", "esa", "ese", "ello", "ellos", "otra", "otro", "tambien", "cela", "autre", "aussi"]
)
_GOES_ON = re.compile(
    r"^\W*(?:and|und|y|¿y|et|what about|how about|was ist mit|那|它|还有|而)", re.I
)
_SMALL = frozenset(
    ["hello", "hi", "hey", "thanks", "thank", "you", "thx", "bye", "goodbye", "good", "morning", "evening", "afternoon", "night", "day", "there", "ok", "okay", "yes", "no", "great", "nice", "cool", "perfect", "cheers", "welcome", "sorry", "please", "how", "are", "doing", "today", "that", "s", "all", "everything", "so", "much", "very", "for", "your", "help", "well", "done", "fine", "hallo", "guten", "tag", "morgen", "abend", "danke", "dir", "ihnen", "vielen", "dank", "tschuss", "servus", "moin", "gruss", "wie", "geht", "es", "hola", "buenos", "dias", "buenas", "tardes", "noches", "gracias", "adios", "muchas", "que", "tal", "estas", "como", "bonjour", "salut", "merci", "bonsoir", "beaucoup", "ciao", "grazie", "buongiorno", "ola", "obrigado", "привет", "спасибо", "你好", "您好", "谢谢", "再见", "早上好", "こんにちは", "ありがとう", "안녕하세요", "감사합니다"]
)
# Words that say that this folder is meant, not the world. They only tip the balance.
_HERE = frozenset(
    ["this", "these", "our", "we", "us", "here", "my", "mine", "file", "files", "folder", "project", "log", "logs", "config", "repo", "code", "unser", "unsere", "unserem", "unseren", "hier", "wir", "datei", "dieser", "diese", "dieses", "nuestro", "nuestra", "aqui", "este", "esta", "archivo", "carpeta", "notre", "ici", "fichier"]
)
MAX_SMALL = 12  # words


@dataclass(frozen=True)
class Question:
    """A question, as it is looked for.

    Attributes:
        text: as it was asked.
        terms: what is looked for, with what earlier questions add.
        own: what is looked for of its own.
        numbers: first and last number of the lines that it asks for; negative from the end.
        faults: whether it is about failures.
        counts: whether it asks how many, or which most.
        follows: whether it refers to what was said before.
        ends: whether it asks for the last of something.
        small: whether it is a greeting or thanks.
        here: whether its words say that this folder is meant.
    """

    text: str
    terms: Terms
    own: Terms
    numbers: tuple[int, int] | None
    faults: bool
    counts: bool
    follows: bool
    ends: bool
    small: bool
    here: bool


def read(text: str, earlier: Sequence[str] = ()) -> Question:
    """Read a question.

    Args:
        text: the question.
        earlier: what was said before, questions and answers, the newest last.
    """
    own = terms(text)
    said = words(text)
    small = 0 < len(said) <= MAX_SMALL and all(word in _SMALL or len(word) == 1 for word in said)
    points = bool(_GOES_ON.search(text)) or not _POINTS.isdisjoint(said)
    # Few words of its own cannot tell a line: what was asked before says the rest.
    follows = bool(earlier) and not small and (points or len(own.telling) <= 3)
    sought = own
    if follows:
        before = [
            terms(one, weight) for one, weight in zip(reversed(earlier), (0.5, 0.35), strict=False)
        ]
        sought = joined(own, *before)
    return Question(
        text, sought, own, _numbers(text), bool(_ASKS_FAULT.search(text)),
        bool(_COUNTS.search(text)), follows, bool(_ENDS.search(text)), small,
        not _HERE.isdisjoint(word for word in map(fold, said)),
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, int] | None:
    if found := _LINE.search(text):
        first = int(found[1] or found[3])
        last = int(found[2] or first)
        return (first, last) if 0 < first <= last else None
    if _LAST.search(text):
        return -1, -1
    return (1, 1) if _FIRST.search(text) else None


def sought(question: Question) -> str:
    """The question without the words of any question: what a search for it is called with."""
    telling = {*question.own.telling, *question.own.compounds}
    kept = [
        part.strip(".,;:!?¿¡()[]{}<>\"'`“”„«»，。？！：；（）")
        for part in question.text.split()
        if any(word in telling or word in fold(part) for word in telling if word in fold(part))
    ]
    return " ".join(filter(None, kept)) or question.text
