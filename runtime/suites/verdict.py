"""Decides whether an answer is right, and which parts of it the model invented.

Rules are about meaning: facts that the answer must contain, facts that must not, and whether it
says that something is not there or that the model cannot do it. Case, line ends, runs of spaces
and quotation marks do not matter; a fact that begins or ends in a letter or digit is not found
inside a longer word or number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from ..config import BUILT_IN
from .suite_files import Turn

LONGEST = 700
"""Maximum characters of a right answer; a copy of a whole file is none."""

_CANNOT = re.compile(
    rf"\b(?:i|we|(?:triplepoint-)?{BUILT_IN}|(?:this|the embedded|so small a) model)\b(?: \w+)?? "
    r"(?:can ?not|can't|can only|could not|couldn't|am not able|am unable|am only able|is not able"
    r"|do not know|don't know|am not able|only (?:know|answer|look|find|read|copy|quote))\b"
    rf"|\b(?:not something|nothing|not what) (?:that )?(?:i|this model|{BUILT_IN}) can\b"
    r"|\bbeyond (?:me|what i can|this model)\b"
)
_NONE = re.compile(
    r"\b(?:no|not|none|nothing|nowhere|never|neither|nor|empty|cannot|without)\b|n't\b"
)
_ABSENT = re.compile(
    r"\bno (?:such )?(?:file|folder)\b(?! (?:mention|ha[sv]|contain|with|in |that|where|says|uses))"
    r"|\b(?:does not|doesn't) exist\b"
)
_DENIED = re.compile(r"\bthere (?:is|are) no (?:such )?(?:files?|folders?)\b(?! in)")
_NO_ERROR = re.compile(r"\bno (?:errors?|problems?|failures?)\b")


def fold(text: str) -> str:
    """Normalize `text` for comparison: case, quotation marks and kinds of space."""
    text = unicodedata.normalize("NFC", text).casefold()
    text = re.sub(r"[‘’´]", "'", text)
    return " ".join(re.sub(r"[\"`“”„«»]", "", text).split())


def holds(text: str, fact: str) -> bool:
    """Return whether a folded text contains a fact as whole words and whole numbers."""
    fact = fold(fact)
    before = r"(?<!\w)(?<!\d[.])" if fact[:1].isdigit() else r"(?<!\w)"
    after = r"(?!\w)(?![.]\d)" if fact[-1:].isdigit() else r"(?!\w)"
    start = before if re.match(r"\w", fact) else ""
    end = after if re.search(r"\w$", fact) else ""
    return re.search(start + re.escape(fact) + end, text) is not None


def says_cannot(answer: str) -> bool:
    """Return whether an answer states that the model cannot do what was asked."""
    return _CANNOT.search(fold(answer)) is not None


def says_none(answer: str) -> bool:
    """Return whether an answer states that something is absent."""
    return _NONE.search(fold(answer)) is not None


def accept(turn: Turn, answer: str) -> bool:
    """Return whether an answer fulfills the rules of its question."""
    text = fold(answer)
    if not text or len(text) > LONGEST or any(holds(text, fact) for fact in turn.lacks):
        return False
    if says_cannot(answer) and (turn.cannot or turn.or_cannot):
        return True
    if turn.cannot or ((turn.none or turn.absent) and not says_none(answer)):
        return False
    if (turn.none and _ABSENT.search(text)) or (turn.absent and _NO_ERROR.search(text)):
        return False
    if _DENIED.search(text) and not turn.absent:
        return False
    return all(any(holds(text, fact) for fact in group) for group in (*turn.has, *turn.says))


# ------------------------------------------------------------------------------ invented text

_WORDS = (
    "a about after all also an and another any are as at before both but by can cannot configured "
    "could defined does else empty entries entry error errors exists far file files first folder "
    "folders found from further has have here holds i in is it its key last left line lines list "
    "log maybe mentioned mentions model more name named names next no none not nothing of off on "
    "one only or other path places read reads same says search searched second section see set "
    "setting shown stands start text than that the their them then there these they third this "
    "those to too two under up value values was were what when where which with word you your"
)
_FRAME = frozenset(_WORDS.split())
"""Common words of the model's own sentences, which need no evidence."""
_OWN = re.compile(r"triplepoint|qwen|llama|gemma|gguf|^--?[a-z]|^(?:e\.g|i\.e|read-only)$")
"""Matches words with which a model describes itself or recommends others; no evidence needed."""
_HARD = re.compile(r"\d|\w[/\\_@=]\w|[^\W\d_][.][^\W\d_]|[^\x00-\x7f]|[/\\]$")
_SPANS = re.compile(r":[ \n](.+?)$|[\"`“](.{12,}?)[\"`”]|\bis ([^:]{12,})$", re.M)
_OF_ITSELF = re.compile(r"^(?:i can|i am|i'm|ask me|hello|hi)\b")
_EDGES = " \t.,;:!?()[]{}<>'\"`"
_SEPARATORS = re.compile(
    r"[,;]\s|[.]\s|\s(?:and|or|in|is|of|on|at|also|then)\s|\n|:\s|\s\((?=line )"
)


def as_evidence(
    result: str, error: str | None, arguments: Mapping[str, object], questions: Iterable[str]
) -> str:
    """Convert a tool result to evidence; remove from an error the arguments that it repeats."""
    known = "\n".join(questions)
    for value in map(str, arguments.values()) if error is not None else ():
        if value and value not in known:
            result = result.replace(value, " ")
    return result


def evidence(questions: Iterable[str], results: Iterable[str]) -> str:
    """Return the folded evidence for an answer: the questions so far and the tool results."""
    return fold("\n".join((*questions, *results)))


def invented(answer: str, known: str) -> list[str]:
    """Return the pieces of an answer that neither `known` nor common words contain.

    Two things are looked for. Anywhere: a token with a digit, a path, an identifier or a sign
    beyond ASCII that `known` does not have (a path may be put together from parts that it has).
    In what reads as a quotation (in quotation marks, behind a colon or behind "is", from 12
    characters on): a word that `known` does not have, and a text that is put together from more
    pieces of `known` than its commas and joining words account for.

    Args:
        answer: the answer as it was given.
        known: from `evidence`.
    """
    found: list[str] = []
    for word in fold(answer).split():
        token = word.strip(_EDGES)
        if _HARD.search(token) and not _OWN.search(token) and not _known(token, known):
            found.append(token)
    if says_cannot(answer) or _OF_ITSELF.search(fold(answer)):
        return found  # a colon there quotes nothing
    for match in _SPANS.finditer(answer):
        span = match[1] or match[2] or match[3]
        if len(span) > 12 and not _OWN.search(fold(span)):
            found += _foreign(span, known)
    return list(dict.fromkeys(found))


def _known(token: str, known: str) -> bool:
    if holds(known, token):
        return True
    parts = [part.strip(_EDGES) for part in re.split(r"[/=:,]", token) if part]
    return len(parts) > 1 and all(not part or holds(known, part) for part in parts)


def _foreign(span: str, known: str) -> list[str]:
    """Return the parts of a quotation that were not copied from the evidence."""
    words = fold(span).split()
    if (whole := " ".join(words).strip(_EDGES)) in known:
        return []
    strange = [
        token
        for token in (word.strip(_EDGES) for word in words)
        if re.search(r"\w", token) and token not in _FRAME and not _known(token, known)
    ]
    if strange:
        return strange
    pieces, at = 0, 0
    while at < len(words):
        end = at + 1
        while end < len(words) and " ".join(words[at : end + 1]).strip(_EDGES) in known:
            end += 1
        if end - at > 1 or words[at].strip(_EDGES) not in _FRAME:
            pieces += 1
        at = end
    return [whole] if pieces > 1 + len(_SEPARATORS.findall(span)) else []
