"""Extracts the facts of a text (numbers, names, quotations) and finds them in lines."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from .words import DENSE, Weights, fold, words

MAX_TEXT, MAX_FACT = 20_000, 300  # characters of a text that are looked at, and of one fact

_QUOTE = re.compile(
    '(?<!`)`++([^`\n]{2,300})`+|"([^"\n]{2,300})"|[“„]([^”“\n]{2,300})[”“]|«([^»\n]{2,300})»|'
    "「([^」\n]{2,300})」|(?<!\\w)['‘]([^'’\n]{2,300})['’](?!\\w)"
)
_CITED = re.compile(
    r"(?:\blines?|\bzeilen?|\bl[ií]neas?|\blignes?|\bстрок[аи]|第)\s*(?:no\.?\s*|number\s+)?(\d+)"
    r"(?:\s*(?:-|–|to|and|bis|und|a|y|到|和)\s*(\d+))?",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^[ \t]*(?:\d+[.)]|#+)\s", re.MULTILINE)
_TOKEN = re.compile(
    rf"[-~/.$]{{0,4}}[^\W{DENSE}](?:(?![{DENSE}])[\w./~@:+\-\\$'’,])*|\w+\.[a-z]\w*"
)
_NUMBER = re.compile(r"\d+(?:[.,'’\u202f\u00a0]\d+)*")
_MEASURE = re.compile(r"[-+~$]*(\d+(?:[.,'’]\d+)*)(?:-?[^\W\d_]{1,3}|-?[a-z]{4,})?%?")
_CAMEL = re.compile(r"[A-Za-z0-9]*[a-z0-9][A-Z]\w*|[A-Z]{2,}(?:[a-rt-z]|s\w)\w*")
_DOTTED = re.compile(r"[\w-]{2,}[./:]+[\w-]*[^\W\d]\w+.*")
_LOCATION = re.compile(
    r"(?<![\w./~+-])(?=[\d./~+-]*[^\W\d])([\w./~+-]+):(\d+)(?=:?(?:[^\w:]|$)|:[^\W\d])(?::[ \t]?)?"
)


class Fact(NamedTuple):
    """A checkable fact; kind: ``quote``, ``line`` (a cited line number), ``number`` or ``name``."""

    text: str
    kind: str


@dataclass
class Line:
    """A line of a tool result, scored by its match with a question."""

    path: str
    """Path of the file; else the tool, or the path of an entry in a listing."""
    number: int
    """Line number from 1; 0: an entry of a listing, or text without line numbers."""
    text: str
    above: str = ""
    """The headings above the line."""
    listed: bool = False
    """Whether the line is an entry of a listing."""
    counted: bool = False
    """Whether the line needs no words of the question to support a fact, as a tool's count."""
    carried: Weights = field(default_factory=dict)
    """Match with each term of a question, 0 to 1."""
    score: float = 0.0
    """Total match with the question; larger is better."""

    @cached_property
    def folded(self) -> str:
        return _plain(self.text)

    @cached_property
    def numbers(self) -> set[str]:
        return _numbers(self.text)

    @cached_property
    def words(self) -> set[str]:
        return set(words(self.text))


def facts(text: str) -> list[Fact]:
    """Extract the facts of a text, in order and without duplicates."""
    found: list[tuple[int, Fact]] = []
    text = _LISTED.sub(_blank, text[:MAX_TEXT].replace("**", "  "))
    for match in _QUOTE.finditer(text):
        inside = next(filter(None, match.groups())).strip()
        alone = facts(inside) if " " not in inside else []
        found += [(match.start(), one) for one in alone or [Fact(inside, "quote")]]
    text = _QUOTE.sub(_blank, text)
    for match in _CITED.finditer(text):
        found += [(match.start(), Fact(one, "line")) for one in match.groups() if one]
    text = _CITED.sub(_blank, text)
    for match in _LOCATION.finditer(text):
        found.append((match.start(), Fact(f"{match[1]}:{match[2]}", "line")))
    text = _LOCATION.sub(_blank, text)
    for match in _TOKEN.finditer(text):
        token = match[0].rstrip(".,:;'’-+$/\\~").removesuffix("'s")
        if measure := _MEASURE.fullmatch(token):
            found.append((match.start(), Fact(measure[1], "number")))
        elif len(token) <= MAX_FACT and _is_name(token):
            found.append((match.start(), Fact(token, "name")))
    return list(dict.fromkeys(fact for _, fact in sorted(found)))


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _is_name(token: str) -> bool:
    """Return whether a token is no ordinary word, but a path, identifier, version or address."""
    bare = token.strip("-~/.$")
    if any(sign.isdigit() for sign in bare) or "_" in bare.strip("_") or "@" in bare:
        return True
    if token[:1] in "/~" or token.startswith("--") or bare.count("/") > 1 or "\\" in bare:
        return len(bare) > 1
    if _CAMEL.fullmatch(bare):
        return True
    return _DOTTED.fullmatch(bare) is not None and ("/" not in bare or "." in bare)


def _plain(text: str) -> str:
    """Normalize a text to compare quotations: fold case, drop quotes, collapse spaces."""
    return " ".join(re.sub(r"[\"'`“”„‘’«»]", "", fold(text)).split())


def _numbers(text: str) -> set[str]:
    """Return the numbers in a text, in each reading of their separators."""
    found: set[str] = set()
    for match in _NUMBER.finditer(text):
        found.update(_forms(match[0]))
        if "," in match[0]:  # or a table's columns
            found.update(form for part in match[0].split(",") for form in _forms(part))
    return found


def _forms(number: str) -> set[str]:
    """Return a number in each reading of its points and commas, normalized."""
    bare = re.sub(r"['’\u202f\u00a0]", "", number)
    found = {bare}
    if re.fullmatch(r"\d{1,3}(?:([.,])\d{3})(?:\1\d{3})*", bare):
        found.add(re.sub(r"[.,]", "", bare))
    if re.fullmatch(r"\d+,\d+|\d{1,3}(?:\.\d{3})+,\d+", bare):
        found.add(bare.replace(".", "").replace(",", "."))
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+\.\d+", bare):
        found.add(bare.replace(",", ""))
    return {
        one.lstrip("0") or "0"
        if one.isdecimal()
        else re.sub(r"\.?0+$", "", one)
        if re.fullmatch(r"\d+\.\d+", one)
        else one
        for one in found
    }


def has(line: Line, fact: Fact) -> bool:
    """Return whether a line contains a fact, by the rules of the fact's kind."""
    if fact.kind == "line":
        path, _, number = fact.text.rpartition(":")
        cited = line.number == int(number) and (not path or _names(line.path, path))
        return cited or bool(path and _is_in(_plain(fact.text), line.folded))  # a host and its port
    if fact.kind == "number":
        return not _forms(fact.text).isdisjoint(line.numbers)
    plain = _plain(fact.text)
    if fact.kind == "quote":
        wanted = set(words(fact.text))
        plain = plain.removeprefix(f"{line.number} ")  # as read_file shows it
        return plain.rstrip(".…") in line.folded or (len(wanted) > 2 and wanted <= line.words)
    return _is_in(plain, line.folded) or _names(line.path, fact.text)


def _names(path: str, name: str) -> bool:
    """Return whether a name refers to a file: either path ends with the other."""
    path, name = f"/{path}", "/" + name.removeprefix("./").strip("/")
    return len(path) > 1 and (path.endswith(name) or name.endswith(path))


def _is_in(name: str, text: str) -> bool:
    """Return whether a text contains a name as a whole."""
    first, last = name[:1], name[-1:]
    before = r"(?<!\d)(?<!\d\.)" if first.isdigit() else r"(?<![^\W\d_])" if first.isalpha() else ""
    after = r"(?!\d|\.\d)" if last.isdigit() else r"(?![^\W\d_])" if last.isalpha() else ""
    if name in text and re.search(before + re.escape(name) + after, text):
        return True
    return bool(re.match(r"v\d", name)) and _is_in(name[1:], text)
