"""Two questions in one, of any two kinds; `shared.double` draws them.

The parts are asked for as things (`line 3 of a.txt`) or as whole questions (`which files are in
logs`), and joined in the ways in which people join them. Each part is answered as it is alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from . import phrasings as ways
from . import solve, unseen
from .composed import combine
from .composed import ways as _ways
from .configs import any_line
from .files import MemoryFiles
from .manner import quoted
from .numbers import ordinal
from .reports import some_log
from .said import said_key
from .settings import make_settings
from .solve import Reply
from .words import BARE
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer, called, made, workspace

THINGS: dict[str, list[str]] = {
    "KEY": _ways(
        "{k} in {f}|the {k} in {f}|the {k} of {f}|{k} from {f}|the value of {k} in {f}|"
        "the {k} from {f}|{k} ({f})|{f}'s {k}|the {k} that {f} sets|the {k} setting in {f}|"
        "{k} of {f}|the {k} out of {f}|the {k} {f} has|the {k} we have in {f}"
    ),
    "ERROR": _ways(
        "the error in {f}|the error of {f}|the error from {f}|the first error in {f}|"
        "the error message in {f}|the failure in {f}|the problem in {f}|what went wrong in {f}|"
        "what failed in {f}|the reason for the failure in {f}|{f}'s error|any error in {f}"
    ),
    "LINE": _ways(
        "line {n} of {f}|line {n} of {f}|line {n} in {f}|line {n} from {f}|{f} line {n}|"
        "{f}:{n}|the {o} line of {f}|the {o} line in {f}|what's on line {n} of {f}|"
        "{f}, line {n}|what line {n} of {f} says"
    ),
    "LAST": _ways(
        "the last line of {f}|the last line in {f}|the end of {f}|the bottom line of {f}|"
        "the last entry of {f}|how {f} ends|the final line of {f}|{f}'s last line"
    ),
    "OPEN": _ways(
        "the first line of {f}|the first line in {f}|the top of {f}|how {f} begins|"
        "what's in {f}|the beginning of {f}|the content of {f}|what {f} says|what is in {f}"
    ),
    "LIST": _ways(
        "the files in {d}|what's in {d}|the contents of {d}|which files are in {d}|"
        "a list of the files in {d}|what {d} holds|the {d} folder|all files in {d}|"
        "the names of the files in {d}|what is in the {d} folder"
    ),
    "SEARCH": _ways(
        "which file mentions {w}|the files that mention {w}|who mentions {w}|which files have {w}|"
        "where {w} is mentioned|the file with {w}|in which file {w} is|which file has {w} in it"
    ),
    "WHERE": _ways(
        "the line with {w} in {f}|on which line of {f} {w} is|where {w} is in {f}|"
        "whether {f} mentions {w}|which line of {f} has {w}|the lines of {f} that mention {w}"
    ),
}
"""What is asked for, as it stands behind `tell me`."""
NEW_THINGS = {
    "KEY": _ways("whatever {k} is in {f}|the {k} as per {f}"),
    "ERROR": _ways("the trouble in {f}|whatever broke in {f}"),
    "LINE": _ways("what line {n} of {f} has|line number {n} of {f}"),
    "LAST": _ways("the closing line of {f}|the tail of {f}"),
    "OPEN": _ways("how {f} opens|the opening line of {f}"),
    "LIST": _ways("everything that sits in {d}|what's under {d}"),
    "SEARCH": _ways("any file that brings up {w}|every mention of {w}"),
    "WHERE": _ways("the spot in {f} that mentions {w}|where {w} comes up in {f}"),
}
_TELL = (
    "|||show me|give me|tell me|I need|please show me|I'd like|can you show me|let me see|get|"
    "there are two things I need:|two things:|could I have|I want to know|pls give me|get me|"
    "read me|find|look up|what are|please tell me|can you tell me|I have to know|for my notes:|"
    "show|I want|"
    "can you get|could you tell me|both|I'm after|please find|let me know"
)
_AND = (
    "{1} and {2}|{1} and {2}|{1} and {2}|{1}, {2}|{1} plus {2}|{1} & {2}|{1} and also {2}|"
    "{1} as well as {2}|{1} + {2}|{1} and then {2}|{1}; {2}|{1}, and {2}|{1}, then {2}|"
    "{1} and after that {2}|{1}, also {2}|{1} along with {2}|{1} together with {2}|first {1}, "
    "then {2}|{1} and, while you are at it, {2}"
)
JOIN_THINGS = combine("_ _", _TELL, _AND)
JOIN_ASKS = _ways(
    "{1} and {2}|{1} and {2}|{1} and {2}|{1}, and {2}|{1}, and {2}|{1}? and {2}|{1}? {2}|{1}, {2}|"
    "{1}; {2}|{1} and also {2}|{1}, then {2}|{1}. then {2}|{1}? also, {2}|{1}. and {2}|"
    "{1}? and after that, {2}|two questions: {1}, and {2}|1) {1} 2) {2}|first: {1}. second: {2}|"
    "{1} + {2}|{1} - and {2}|{1}, plus {2}|{1}? oh and {2}|{1} & {2}|a) {1} b) {2}|"
    "two things. {1}? {2}|{1} and then {2}|{1}, also {2}|{1}. {2}|{1}? next, {2}|{1}... and {2}"
)
TELL_ASK = combine(
    "_ {1}_ {2}",
    "show me|give me|tell me|I need|get me|let me see|please show me|read me|can you show me",
    " and|, and|, then|. and|. also,| and also|, plus|.|;",
)
"""A thing, and then a whole question."""
ASK_THING = [
    *_ways("{1} and {2}|{1}, and {2}|{1}? and {2}|{1} plus {2}|{1} and also {2}"),
    *_ways("{1} and show me {2}|{1}, and tell me {2}|{1}? also {2}|{1}. I also need {2}"),
    *_ways("{1} and give me {2}|{1} and what about {2}|{1}? then {2}|{1} as well as {2}"),
]
NEW_JOINTS = (
    _ways("I'd love to have {1} and {2}|what would {1} and {2} be|{1}, besides {2}|{1} or {2} too"),
    _ways("{1}, while we're at it {2}|{1}? and one more, {2}|{1}, likewise {2}"),
    _ways("could I see {1}? and {2}|grab {1}, and {2}"),
    _ways("{1}, further {2}|{1} and, by the way, {2}"),
)
"""The four lists above, held out."""


@dataclass(frozen=True, slots=True)
class Part:
    """One of the two questions."""

    kind: str
    texts: dict[str, str]
    slots: dict[str, str]
    reply: Callable[[MemoryFiles], Reply | None]
    path: str = ""
    """What the first call is about: a file, or a folder."""


@cache
def asks_of(kind: str) -> tuple[str, ...]:
    """Return a kind's whole questions that something can follow."""
    lists: Mapping[str, list[str]] = {
        "KEY": ways.KEY, "ERROR": ways.ERROR, "LINE": ways.LINE, "LAST": ways.LAST,
        "OPEN": ways.OPEN, "LIST": ways.LIST, "SEARCH": ways.SEARCH, "WHERE": ways.WHERE_ALONE,
    }  # fmt: skip
    alone = re.compile(r"[?:;,(.]|\band\b|\bor\b|\{[sx]\}|\bboth\b|^\{")
    return tuple(w for w in dict.fromkeys(lists[kind]) if len(w) < 60 and not alone.search(w))


def unseen_asks(kind: str) -> list[str]:
    return {
        "KEY": unseen.KEY, "ERROR": unseen.ERROR, "LINE": unseen.LINE, "LAST": unseen.LAST,
        "OPEN": unseen.OPEN, "LIST": unseen.LIST, "SEARCH": unseen.SEARCH, "WHERE": unseen.WHERE,
    }[kind]  # fmt: skip


def text_rows(writer: Writer, least: int = 1) -> list[str]:
    """Return a few lines."""
    return [any_line(writer.words) for _ in range(writer.rng.randint(least, least + 10))]


def text_path(writer: Writer) -> str:
    """Return a name that only files have: `what's in notes` lists."""
    while True:
        path = writer.path(ALL_EXTENSIONS)
        name = path.rpartition("/")[2]
        if "." in name[1:] or name in BARE:
            return path


def key(writer: Writer) -> Part:
    settings = make_settings(writer.words, max(1, min(writer.lines(), 20)))
    asked = said_key(writer, settings.items)
    slots = {"f": settings.path, "k": asked}

    def reply(files: MemoryFiles) -> Reply | None:
        return solve.value(files, settings.path, asked, settings.items)

    return Part("KEY", {settings.path: settings.text}, slots, reply, settings.path)


def error(writer: Writer) -> Part:
    log, path = some_log(writer), writer.path(LOG_EXTENSIONS)
    texts = {path: "\n".join(log.lines)}
    return Part("ERROR", texts, {"f": path}, lambda files: solve.error(files, path, log), path)


def line(writer: Writer) -> Part:
    rows, path = text_rows(writer), writer.path(ALL_EXTENSIONS)
    number = writer.rng.randint(1, len(rows))
    slots = {"f": path, "n": str(number), "o": ordinal(writer.rng, number)}
    texts = {path: "\n".join(rows)}
    return Part("LINE", texts, slots, lambda files: solve.line(files, path, number), path)


def last(writer: Writer) -> Part:
    rows, path = text_rows(writer), writer.path(ALL_EXTENSIONS)
    texts = {path: "\n".join(rows)}
    return Part("LAST", texts, {"f": path}, lambda files: solve.last_line(files, path), path)


def opened(writer: Writer) -> Part:
    rows, path = text_rows(writer), text_path(writer)
    texts = {path: "" if writer.rng.random() < 0.06 else "\n".join(rows)}
    return Part("OPEN", texts, {"f": path}, lambda files: solve.line(files, path, 1), path)


def listed(writer: Writer) -> Part:
    folder = writer.words.folder()
    count = writer.rng.randint(1, 6)
    texts = {f"{folder}/{writer.words.path(ALL_EXTENSIONS, deep=0.1)}": "x" for _ in range(count)}
    return Part("LIST", texts, {"d": folder}, lambda files: solve.listing(files, folder), folder)


def searched(writer: Writer) -> Part:
    needle, texts = writer.needle(), {}
    for _ in range(writer.rng.choice((0, 1, 1, 2))):
        texts[writer.path(ALL_EXTENSIONS)] = f"{any_line(writer.words)} {needle}"
    texts[writer.path(ALL_EXTENSIONS)] = any_line(writer.words)
    word = quoted(writer.rng, needle, often=0.2)

    def reply(files: MemoryFiles) -> Reply | None:
        found = solve.mentions(files, needle)
        short = len(found.answer) < 300 and "[cut: " not in files.run(found.calls[0])
        return found if short else None

    return Part("SEARCH", texts, {"w": word}, reply)


def where(writer: Writer) -> Part:
    needle, rows, path = writer.needle(), text_rows(writer), writer.path(ALL_EXTENSIONS)
    for _ in range(writer.rng.choice((0, 1, 1, 1, 2))):
        rows.insert(writer.rng.randint(0, len(rows)), f"{any_line(writer.words)} {needle}")
    slots = {"f": path, "w": quoted(writer.rng, needle, often=0.3)}
    texts = {path: "\n".join(rows)}
    return Part("WHERE", texts, slots, lambda files: solve.where(files, needle, path), path)


def named(writer: Writer, files: MemoryFiles, part: Part, reply: Reply) -> tuple[str, Reply]:
    """Return how the question names the part's file or folder, and the reply."""
    asked, reply = called(writer, files, part.path, reply, alone=True)
    return quoted(writer.rng, asked, often=0.08), reply


def question(writer: Writer, parts: list[Part]) -> str:
    """Join both parts in one question; the second's slots are called `f2`, `k2` and so on."""
    rng = writer.rng
    new = writer.asks_anew
    shape = rng.choices(range(4), (0.42, 0.34, 0.12, 0.12))[0]
    joints = NEW_JOINTS[shape] if new else (JOIN_THINGS, JOIN_ASKS, TELL_ASK, ASK_THING)[shape]
    text = rng.choice(joints)
    things = ((True, True), (False, False), (True, False), (False, True))[shape]
    for place, (part, thing) in enumerate(zip(parts, things, strict=True), start=1):
        if thing:
            way = rng.choice((NEW_THINGS if new else THINGS)[part.kind])
        else:
            way = rng.choice(unseen_asks(part.kind) if new else asks_of(part.kind))
        text = text.replace(f"{{{place}}}", re.sub(r"\{(\w)\}", rf"{{\g<1>{place}}}", way))
    slots = {f"{name}{place}": value for place, part in enumerate(parts, start=1)
             for name, value in part.slots.items()}  # fmt: skip
    return writer.ask([text, text], [text, text], **slots)


PARTS: dict[Callable[[Writer], Part], float] = {
    key: 0.3, error: 0.17, line: 0.16, last: 0.06, opened: 0.1, listed: 0.1, searched: 0.06,
    where: 0.05,
}  # fmt: skip
"""What two questions in one are made of, each with its share."""


def any_two(writer: Writer) -> Round:
    """Ask two questions of any kinds, over different files."""
    rng = writer.rng
    while True:
        parts = [make(writer) for make in rng.choices(list(PARTS), list(PARTS.values()), k=2)]
        texts: dict[str, str] = {}
        for part in parts:
            texts |= part.texts
        if len(texts) < sum(len(part.texts) for part in parts):
            continue
        files = workspace(writer, texts)
        replies = [part.reply(files) for part in parts] if files.possible else [None]
        told = [reply for reply in replies if reply is not None]
        if len(told) < 2:
            continue
        for at, part in enumerate(parts):
            if part.path:
                slot = "d" if part.kind == "LIST" else "f"
                part.slots[slot], told[at] = named(writer, files, part, told[at])
        return made("double", question(writer, parts), solve.joined(*told), files)
