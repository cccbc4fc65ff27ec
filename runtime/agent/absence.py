"""Detects answers that state that the requested thing does not exist."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"```.*?```|`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|„[^“”\n]*[“”]", re.DOTALL)
_LINE = re.compile(r"^(?:\d+\t|[^:\n]+:\d+:)(.*)", re.MULTILINE)
BEFORE = 6  # characters before such words that may belong to a quoted line
_ABSENT = re.compile(
    r"\bno (?:such|match(?:es|ing)?|mention|information|entry|evidence|record|reference|file|folder"
    r"|line|key|setting|value|section|definition)\b"
    r"|\bthere(?: (?:is|are|was|were) (?:no|not|nothing|none)|(?: is|'s) nothing| (?:is|are)n't)\b"
    r"|\b(?:is|are|was|were)(?: not|n['’]t) (?:\w+ )?(?:found|present|there|available|mentioned"
    r"|specified|defined|listed|included|given|provided|set|stated|documented|in)\b"
    r"|\b(?:does|do|did)(?: not|n['’]t) (?:\w+ )?(?:exist|contain|mention|have|specify|include"
    r"|appear|provide|say|define|list|show|state|give)\b"
    r"|\b(?:could not|couldn['’]t|cannot|can['’]t|did not|didn['’]t) (?:\w+ )?(?:find|be found)\b"
    r"|\bnot found\b|\bnothing (?:about|matching|was found)\b"
    r"|\bnicht (?:\w+ )?(?:gefunden|enthalten|vorhanden|angegeben|erwähnt|genannt|finden|definiert"
    r"|festgelegt|da)\b|\bgibt es (?:\w+ )?(?:nicht|keine?[nmrs]?)\b|\bexistiert nicht\b"
    r"|\bkeine?[nrms]? (?:\w+ )?(?:angabe|information|datei|eintrag|treffer|hinweis|zeile|ordner)"
    r"|\bno (?:se )?(?:\w+ )?(?:encuentra|encontró|encontré|existe|hay|aparece|contiene|menciona"
    r"|figura|consta|especifica)\b|\bning(?:ún|una) (?:archivo|línea|mención|dato)"
    r"|没有|未找到|不存在|找不到|未提及|不包含|没找到|未提到|沒有",
    re.IGNORECASE,
)


def says_absent(answer: str, results: str = "") -> bool:
    """Return whether an answer itself states absence, outside quotations and file lines.

    results: the tool results so far; lines of theirs that state absence do not count.
    """
    bare = _QUOTED.sub(" ", answer)
    lines = "\n".join(_LINE.findall(results))
    clauses = (
        bare[max(match.start() - BEFORE, 0) : match.end()] for match in _ABSENT.finditer(bare)
    )
    return any(one.strip() not in lines for one in clauses)
