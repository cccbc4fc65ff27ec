"""What a question is about, as far as its words say: no model reads it here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...arguments import without_surrogates
from .words import Terms, fold, joined, terms, words

FAULT = re.compile(
    r"\b(?:error|err|fatal|crit\w*|emerg\w*|alert|panic|exception|traceback|fail\w*|denied|refused|"
    r"killed|abort\w*|time[ds]?[ -]?out|severe|segfault|fehler\w*|schwerwiegend\w*|abbruch|"
    r"fallo\w*|fallido\w*|erreur\w*|échec\w*|ошибк\w*)\b|错误|失败|异常|致命|エラー|失敗|오류|실패",
    re.IGNORECASE,
)
"""What marks a failure in a line."""
FAULTS = tuple(
    """
    err fatal crit emerg alert panic exception traceback fail denied refused killed abort timeout
    time-out timed severe segfault fehler schwerwiegend abbruch fallo fallido echec ошибк
    错误 失败 异常 致命 エラー 失敗 오류 실패
    """.split()  # noqa: SIM905
)
"""Texts of which every line that `FAULT` finds has one; finding these takes far less time."""
MAX_ASKED = (
    6000  # characters of a question that are read: its end, where a text was pasted before it
)

_ASKS_FAULT = re.compile(
    r"error|fail|fault|wrong|crash|problem|broke|stop|went down|fatal|exception|\bwhy\b|"
    r"fehler|schief|abgest|kaputt|warum|fall[óoa]|problema|sali[óo] mal|por qué|"
    r"erreur|panne|pourquoi|为什么|错|失败|问题|故障|エラー|失敗|오류",
    re.IGNORECASE,
)
_A_LINE = r"(?:lines?|zeilen?|l[ií]neas?|lignes?|righ[ae]|linhas?|строк[аи])"
_PART_OF_FILE = rf"\b(?:{_A_LINE[3:-1]}|comments?|kommentare?|comentarios?|commentaires?)\b|行|注释"
_LINE = re.compile(
    rf"(?:\b{_A_LINE}\s+(?:no\.?\s*|nr\.?\s*|number\s+|nummer\s+|número\s+)?|第\s*|\.\w{{1,8}}:)"
    r"(\d{1,9})(?:\s*(?:-|–|to|bis|a|and|und|y|到)\s*(?:第\s*)?(\d{1,9}))?"
    r"(?!\s*(?:章|节|个|次|天|年|月|日|名))|\b(\d{1,9})(?:st|nd|rd|th)\s+line\b",
    re.IGNORECASE,
)
_FIRST = re.compile(rf"\b(?:first|erste[nr]?|primera?|premi[eè]re?)\s+{_A_LINE}\b|第一行", re.I)
_LAST = re.compile(rf"\b(?:last|letzte[nr]?|[úu]ltima|derni[eè]re)\s+{_A_LINE}\b|最后一行", re.I)
_COUNTS = re.compile(
    r"how (?:many|often|much)|number of|count|\bmost\b|\btotal|adds? up|\bsum\b|average|\bmean\b|"
    r"wie ?viele?|wie oft|wie hoch|anzahl|am häufigsten|meisten|summe|durchschnitt|insgesamt|"
    r"cu[áa]nt[ao]s?|m[áa]s frecuente|suma|promedio|combien|总|平均|多少|几[个次条]|最多",
    re.IGNORECASE,
)
_WHICH_FILE = re.compile(
    r"\b(?:which|what)\s+(?:\w+\s+){0,3}(?:file|script|page|document|config)\b|^\W*where\b|"
    r"\bwelche[rmns]?\s+datei\b|^\W*wo\b|\bqu[ée]\s+(?:archivo|fichero)\b|^\W*d[óo]nde\b|"
    r"哪个文件|在哪",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"[?？¿]|^\W*(?:who|whose|what|which|when|where|why|how|is|are|was|were|does|do|did|has|have|show|"
    r"list|tell|explain|wer|wem|welche\w*|wann|wo|warum|wie|ist|sind|gibt|zeig\w*|nenn\w*|qu[ée]|"
    r"cu[áa]l\w*|qui[ée]n\w*|d[óo]nde|c[óo]mo|cu[áa]nd?[ot]\w*|muestra|dime)\b|什么|哪|谁|吗|多少|怎么",
    re.IGNORECASE,
)
# What is to be changed, explicitly: a request for a summary is no such task.
_ACTS = re.compile(
    r"\b(?:set|change|add(?! up)|append|insert|put|remove|delete|drop|rename|move|create|replace|"
    r"fix|update|turn|switch|instead of|rather than|enable|disable|mark|increase|decrease|raise|"
    r"lower|bump|edit|should|must|"
    r"(?:write|save|make|schreibe?|escribe)\b.*\.\w{2,4}|setze?|[äa]ndere?|f[üu]ge?|l[öo]sch\w*|entfern\w*|statt|benenne?|verschieb\w*|erstell\w*|ersetz\w*|"
    r"korrigier\w*|aktualisier\w*|schalte?|markier\w*|soll\w*|cambi\w*|pon|a[ñn]ad\w*|agreg\w*|"
    r"borr\w*|elimin\w*|renombr\w*|mueve|crea|reemplaz\w*|corrig\w*|actualiz\w*|marca|activ\w*|"
    r"desactiv\w*)\b|[改设删移换]|添加|新建|创建|更新",
    re.IGNORECASE,
)
_REMOVES = re.compile(
    r"\b(?:delete|remove|drop|discard|get rid|(?:don['’]?t|not|longer) need\w*|"
    r"l[öo]sch\w*|entfern\w*|wirf|weg|borr\w*|elimin\w*|quit\w*|supprim\w*|enl[eè]v\w*)\b|[删移]|удал",
    re.IGNORECASE,
)
_MOVES = re.compile(
    r"\b(?:rename|move|benenne?|umbenenn\w*|verschieb\w*|renombr\w*|mueve|mover|renomm\w*|"
    r"d[ée]plac\w*)\b|[改移]|重命名|переимен|перемест",
    re.IGNORECASE,
)
_ENDS = re.compile(
    r"\b(?:last|latest|newest|most recent|final|letzte\w*|neueste\w*|[úu]ltim[oa]s?|"
    r"derni[eè]re?s?)\b|最后|最新|最近|最後|마지막",
    re.IGNORECASE,
)
# Words that refer to earlier messages. A short question without them is judged by its length.
_POINTS = frozenset(
    """
    also else he her his it its other same she that then there they them those too
    andere auch davon dazu deren dessen dort er es sie
    autre aussi cela ella ello ellos esa ese eso otra otro tambien
    """.split()  # noqa: SIM905
)
_GOES_ON = re.compile(
    r"^\W*(?:and|und|y|et|what about|how about|was ist mit|那|它|还有|而)", re.IGNORECASE
)
_SMALL = frozenset(
    """
    afternoon all are bye cheers cool day doing done evening everything fine for good goodbye great
    hello help hey hi how i much morning nice night no ok okay perfect please s so sorry thank
    thanks that there thx today very welcome well yes you your
    abend danke dank dir es geht gruss guten hallo ihnen moin morgen servus tag tschuss vielen wie
    adios buenas buenos como dias estas gracias hola muchas noches que tal tardes
    beaucoup bonjour bonsoir buongiorno ciao grazie merci obrigado ola salut привет спасибо
    你好 您好 谢谢 再见 早上好 こんにちは ありがとう 안녕하세요 감사합니다
    """.split()  # noqa: SIM905
)
# Words that say that this folder is meant, not the world. They only tip the balance.
_HERE = frozenset(
    """
    code config file files folder here log logs mine my our project repo settings these this us we
    datei diese dieser dieses diesem einstellungen hier unser unsere unserem unseren wir
    aqui archivo carpeta configuracion esta este fichier ici notre nuestra nuestro
    """.split()  # noqa: SIM905
)
MAX_SMALL = 12  # words


@dataclass(frozen=True)
class Question:
    """A parsed question, ready for the search."""

    text: str
    """The question, unchanged."""
    terms: Terms
    """Search terms, including those of earlier questions."""
    own: Terms
    """Search terms of this question alone."""
    numbers: tuple[int, int] | None
    """First and last number of the requested lines; negative from the end."""
    faults: bool
    """Whether it is about failures."""
    counts: bool
    """Whether it asks how many, or for the most frequent."""
    follows: bool
    """Whether it refers to earlier messages."""
    ends: bool
    """Whether it asks for the last of something."""
    small: bool
    """Whether it is a greeting or thanks."""
    here: bool
    """Whether its words refer to this folder."""
    asks: bool
    """Whether it is a question, by its words."""
    acts: bool
    """Whether it is a task that changes something, and not a question."""
    removes: bool
    """Whether it may request to delete a whole file."""
    moves: bool
    """Whether it may request to move a whole file."""


def read(text: str, earlier: Sequence[str] = (), *, faults: bool = False) -> Question:
    """Parse a question.

    Args:
        text: the question.
        earlier: previous questions and answers, the newest last.
        faults: whether it is about failures, whatever its words say.
    """
    text = without_surrogates(text[-MAX_ASKED:])
    own = terms(text)
    said = words(text)
    small = 0 < len(said) <= MAX_SMALL and all(word in _SMALL or len(word) == 1 for word in said)
    points = bool(_GOES_ON.search(text)) or not _POINTS.isdisjoint(said)
    # Few words of its own cannot identify a line: earlier questions add the rest.
    follows = bool(earlier) and not small and (points or len(own.telling) <= 3)
    sought = own
    if follows:
        before = [
            terms(one, weight) for one, weight in zip(reversed(earlier), (0.5, 0.35), strict=False)
        ]
        sought = joined(own, *before)
    counts = bool(_COUNTS.search(text)) and not _WHICH_FILE.search(text)
    asks = _ASKS.search(text) is not None
    return Question(
        text, sought, own, _numbers(text), faults or bool(_ASKS_FAULT.search(text)),
        counts, follows, bool(_ENDS.search(text)), small,
        not _HERE.isdisjoint(word for word in map(fold, said)), 
        asks, _ACTS.search(text) is not None and not asks,
        _REMOVES.search(text) is not None and not re.search(_PART_OF_FILE, text, re.I),
        _MOVES.search(text) is not None,
    )  # fmt: skip


def _numbers(text: str) -> tuple[int, int] | None:
    if found := _LINE.search(text):
        first = int(found[1] or found[3])
        last = int(found[2] or first)
        return (first, last) if 0 < first <= last else None
    if _LAST.search(text):
        return -1, -1
    return (1, 1) if _FIRST.search(text) else None
