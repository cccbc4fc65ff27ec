"""Judge whether an answer is right, wrong, or declines.

Meaning counts, not form: case, quotation marks, emphasis and separators of thousands do not
matter; a number is found only as a whole number, and not in line numbers, list numbers, dates
and times. What is declined states nothing as a fact, so it is kept apart from what is wrong.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from .questions import Question, Turn

Verdict = Literal["right", "wrong", "declined"]

LONGEST = 1_500
"""Characters of an answer beyond the required values: a copied file is not an answer."""

_DECLINED = re.compile(
    # English
    r"\bno (?:such|match|matches|matching|results?|mention|information|entry|entries|evidence|data"
    r"|details?|record|reference|trace|file|folder|line|lines|key|setting|value|section|definition"
    r"|indication|answer|relevant|specific|explicit)\b"
    r"|\bthere (?:is|are|was|were|isn't|aren't|wasn't|weren't|does not seem|doesn't seem)"
    r" (?:currently |also |to be )?(?:no|not|nothing|none|any)\b"
    r"|\b(?:is|are|was|were|has|have|be|been|it's|that's)(?: not|n't)"
    r" (?:\w+ )??(?:found|present|there|available|mentioned|specified|defined|listed|included|given"
    r"|provided|in|shown|set|stated|documented|recorded|exist|part of|contained|visible|known)\b"
    r"|\b(?:does|do|did)(?: not|n't) (?:\w+ )??(?:exist|contain|mention|have|specify|include|appear"
    r"|provide|say|define|list|show|hold|state|give|set|describe|cover|record|seem)\b"
    r"|\b(?:cannot|can not|can't|could not|couldn't|unable to|not able to|do not|don't|didn't)"
    r" (?:\w+ )??(?:find|answer|determine|see|locate|tell|access|know|say|identify|open|read|edit"
    r"|change|modify|write|create|delete|rename|do|perform)\b"
    r"|\b(?:nothing|nowhere|none) (?:\w+ )??(?:about|in|on|of|matching|found|mentions?|says?)\b"
    r"|\bnot (?:found|there|mentioned|specified|present|available|given|listed|defined|in (?:the"
    r"|this|these|any)|possible to)\b|\bunknown\b|\bi'm sorry\b|\bsorry, (?:but )?i\b"
    # German
    r"|\bnicht (?:\w+ )??(?:gefunden|enthalten|vorhanden|angegeben|erwähnt|genannt|da|drin|finden"
    r"|beantworten|bekannt|aufgeführt|definiert|ersichtlich|existiert|verfügbar|festgelegt)\b"
    r"|\b(?:gibt es|gibt|enthält|steht|existiert|findet sich|finde|fand|habe|kommt)"
    r"(?: \w+){0,3}? (?:nicht|nichts|keine?[nmrs]?)\b"
    r"|\bkeine?[nrms]? (?:\w+ )??(?:angaben?|information(?:en)?|datei|eintrag|treffer|hinweis"
    r"|erwähnung|zeile|daten|ordner|schlüssel|wert)\b|\bkann\b.{0,60}\bnicht\b"
    # Spanish
    r"|\bno (?:se )?(?:\w+ )??(?:encuentra|encontró|encontrado|encontré|existe|hay|aparece|contiene"
    r"|menciona|mencionada?|especifica|puedo|figura|está|consta|tiene|incluye|indica|dice"
    r"|encontrar|proporciona|define)\b|\bning(?:ún|una)\b"
    # Chinese
    r"|没有|未找到|不存在|找不到|无法|未提及|不包含|没找到|未提到|并未|沒有|没提|不在|未包含|未指定|抱歉"
)
_MARKS = re.compile(r"`?_+(?=[\s.,;:!?)]|$)|[\"“”„«»`*「」『』《》]|(?<![0-9a-z])'|'(?![0-9a-z])")
_BOUND = "0-9A-Za-z_\u00c0-\u024f"
_NUMBER = re.compile(
    rf"(?<![{_BOUND}.:/\\-])[-−]?\d+(?:[,.'\u202f\u00a0 ]\d{{3}})*(?:[.,]\d+)?"
    rf"(?![{_BOUND}]|[.:/-]\d)"
)
_PLACES = re.compile(
    r"\b(?:lines?|zeilen?|l[ií]neas?|rows?|steps?|l\.)\s*(?:number |no\. |n[º°o]\.? )?#?\d+"
    r"(?:(?:\s*(?:,|and|und|y|to|bis|a|-|–|&)\s*)+\d+)*"
    r"|第\s*\d+\s*行|(?m:^\s*(?:[-*] )?\d+[.):](?=\s))|(?<=[\w/])\.\w{1,6}:\d+",
    re.I,
)
_NUMERALS = (
    "zero null cero 零|one once eins eine einmal uno una 一|two twice zwei zweimal dos 二 两|"
    "three drei dreimal tres 三|four vier viermal cuatro 四|five fünf fünfmal cinco 五|"
    "six sechs seis 六|seven sieben siete 七|eight acht ocho 八|nine neun nueve 九|"
    "ten zehn diez 十|eleven elf 十一|twelve zwölf doce 十二"
)
_WORDS = _NUMERALS.split("|")
_EN = "January February March April May June July August September October November December"
_DE = "Januar Februar März April Mai Juni Juli August September Oktober November Dezember"
_ES = "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre"
_SHORT = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"
_MONTHS = tuple(names.split() for names in (_EN, _SHORT, _DE, _ES))


def fold(text: str) -> str:
    """Fold a text for comparison: drop case, emphasis, quotation marks and kinds of space."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"[‘’´]", "'", text)
    text = re.sub(r"[–—−]", "-", text)
    return " ".join(_MARKS.sub("", text).split())


def holds(folded: str, fact: str) -> bool:
    """Return whether a folded text has a fact that is not part of a longer word or number."""
    wanted = fold(fact)
    if not wanted:
        return False
    before = rf"(?<![{_BOUND}])" if re.match(rf"[{_BOUND}]", wanted) else ""
    if wanted[:1].isdigit():
        before += r"(?<!\d[.])"
    after = rf"(?![{_BOUND}])" if re.search(rf"[{_BOUND}]$", wanted) else ""
    if wanted[-1:].isdigit():
        after += r"(?![.]\d)"
    words = re.escape(wanted).replace(r"\ ", r"\s+")
    return re.search(before + words + after, folded) is not None


def date_forms(date: str) -> list[str]:
    """Return common forms of a date such as 2026-03-14; with the month's name also without year."""
    year, month, day = map(int, date.split("-"))
    forms = [date, f"{year}/{month:02}/{day:02}", f"{year}/{month}/{day}", f"{month}月{day}日"]
    for d, m in ((f"{day:02}", f"{month:02}"), (str(day), str(month))):
        forms += [f"{d}.{m}.{year}", f"{d}/{m}/{year}", f"{m}/{d}/{year}", f"{d}-{m}-{year}"]
    for names in _MONTHS:
        name = names[month - 1]
        for d in (str(day), f"{day:02}"):
            forms += [f"{d} {name}", f"{d}. {name}", f"{name} {d}", f"{d} de {name}"]
            forms += [f"{d} of {name}", f"{d}-{name}-{year}", f"{d}/{name}/{year}"]
    return forms


def numbers(text: str) -> list[set[str]]:
    """Return the numbers in a text in order, each with all its readings."""
    text = unicodedata.normalize("NFKC", re.sub(r"[*`_]{1,2}(?=\S)|(?<=\S)[*`]{1,2}", "", text))
    text = _PLACES.sub(" # ", text)
    return [_readings(match[0].strip()) for match in _NUMBER.finditer(text)]


def tells_number(text: str, number: str) -> bool:
    """Return whether a text states a number, and not just among many others."""
    told = numbers(text)
    fits = [any(_fits(one, number) for one in several) for several in told]
    if any(fits[:1]) or (any(fits) and len({min(one) for one in told}) <= 4):
        return True
    if not re.fullmatch(r"\d+", number) or int(number) >= len(_WORDS):
        return False
    return any(holds(fold(text), word) for word in _WORDS[int(number)].split())


def says_not(text: str, question: str = "") -> bool:
    """Return whether an answer says that something is absent or unknown.

    Quotations do not count, nor do words of the question: "3 of them had no answer" denies nothing.
    """
    return _declines(text, question) is not None


def judge(question: Question, answer: str, turn: int = -1) -> Verdict:
    """Judge an answer.

    An empty answer states nothing, so it is declined. A question that cannot be answered is
    answered right by saying so, before any near miss is given. Tasks that change files are
    judged by `judge_files`.

    Args:
        question: the question.
        answer: the whole answer.
        turn: which of its turns; default: the last.
    """
    asked = question.turns[turn]
    if not answer.strip():
        return "declined"
    if question.unanswerable and turn in (-1, len(question.turns) - 1):
        said = _declines(answer, asked.ask)
        if said is None:
            return "wrong"
        near = [fold(answer).find(fold(one)) for one in asked.none if holds(fold(answer), one)]
        return "wrong" if near and min(near) < said else "right"
    if _right(asked, answer):
        return "right"
    if says_not(answer, asked.ask) and not _tells_other(asked, answer):
        return "declined"
    return "wrong"


def judge_files(question: Question, folder: Path, before: dict[str, str], answer: str) -> Verdict:
    """Judge whether a folder has exactly the changes that the task asks for.

    An asker that changed nothing has declined, unless the answer claims otherwise.

    Args:
        question: a task with `after`.
        folder: the copy that was worked in.
        before: from `snapshot`, of the folder as it was.
        answer: the final answer.
    """
    now = snapshot(folder)
    if now == before:
        return "declined" if not answer.strip() or says_not(answer) else "wrong"
    wanted = {**before, **dict(question.after)}
    return "right" if now == {path: one for path, one in wanted.items() if one} else "wrong"


def snapshot(folder: Path) -> dict[str, str]:
    """Return digests of the files of a folder, by path, without the tools' trash."""
    return {
        path.relative_to(folder).as_posix(): content_digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".triplepoint-trash" not in path.parts
    }


def content_digest(data: bytes) -> str:
    """Hash the content of a file, ignoring line ends, trailing spaces and empty last lines."""
    lines = [line.rstrip() for line in data.replace(b"\r\n", b"\n").split(b"\n")]
    while lines and not lines[-1]:
        lines.pop()
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:16]


def _right(asked: Turn, answer: str) -> bool:
    room = LONGEST + 2 * sum(max(map(len, group)) for group in asked.need)
    if len(answer) > room or _tells_other(asked, answer):
        return False
    return all(any(_tells(answer, one) for one in group) for group in asked.need)


def _tells(answer: str, fact: str) -> bool:
    if re.match(r"#-?\d", fact):
        return tells_number(answer, fact[1:])
    if re.match(r"@\d", fact):
        plain = re.sub(r"(\d)(?:st|nd|rd|th)\b", r"\1", fold(answer))
        return any(holds(plain, form) for form in date_forms(fact[1:]))
    if holds(fold(answer), fact):
        return True
    return re.fullmatch(r"-?\d+(\.\d+)?", fact) is not None and tells_number(answer, fact)


def _tells_other(asked: Turn, answer: str) -> bool:
    """Return whether an answer states what is true of something else; line numbers do not count."""
    plain = fold(_PLACES.sub(" # ", answer))
    return any(holds(plain, one) for one in asked.none)


def _declines(answer: str, question: str = "") -> int | None:
    """Return the offset in the folded text where the answer declines; None if it does not."""
    bare = re.sub(r"```.*?```|`[^`\n]*`|\"[^\"\n]{12,}\"|“[^”\n]{12,}”", "", answer, flags=re.S)
    asked = fold(question)
    for match in _DECLINED.finditer(fold(bare)):
        if match[0] not in asked:
            return max(fold(answer).find(match[0]), 0)
    return None


def _readings(text: str) -> set[str]:
    """Return a number without separators, by each reading of it."""
    bare = text.replace("−", "-")
    found = {re.sub(r"(?<=\d)[,'\u202f\u00a0 ](?=\d{3})", "", bare)}
    if re.fullmatch(r"-?\d{1,3}(\.\d{3})+(,\d+)?", bare):
        found.add(bare.replace(".", "").replace(",", "."))
    if re.fullmatch(r"-?\d+,\d+", bare):
        found.add(bare.replace(",", "."))
    if re.fullmatch(r"-?\d{1,3}(\.\d{3})*,\d+", bare):
        found.add(bare.replace(".", "").replace(",", "."))
    return {one for one in found if re.fullmatch(r"-?\d+(\.\d+)?", one)} or {"x"}


def _fits(told: str, number: str) -> bool:
    """Return whether a stated number equals the right one, to its stated decimals."""
    if told == "x":
        return False
    if "." not in number:
        return float(told) == float(number)
    decimals = len(told.partition(".")[2])
    if not decimals:
        return False
    places = min(decimals, len(number.partition(".")[2]))
    return abs(float(told) - float(number)) <= 0.5001 * 10.0**-places
