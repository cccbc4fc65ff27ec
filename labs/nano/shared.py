"""Two questions in one that share a word: two lines of a file, a setting of two files.

Unlike those of `doubles`, what the parts have in common is said once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from . import phrasings as ways
from . import solve, unseen
from .composed import combine
from .composed import ways as _ways
from .configs import any_line
from .doubles import any_two, asks_of, text_path, text_rows, unseen_asks
from .files import MemoryFiles
from .manner import quoted
from .numbers import CARDINALS, ordinal
from .reports import some_log
from .said import said_key
from .settings import Settings, make_settings
from .solve import Reply
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer, called, made, workspace

SAY = "show me |what are |give me |print |read me |tell me |I need |please show |can I see |get |||"
TWO_LINES = [
    *combine("__", SAY, "lines {n} and {m} of {f}|line {n} and line {m} of {f}|"
             "line {n} and {m} of {f}|lines {n} and {m} in {f}|line {n} and line {m} in {f}|"
             "lines {n}, {m} of {f}|both line {n} and line {m} of {f}|line {n} of {f} and line {m}|"
             "line {n} as well as line {m} of {f}|{f} lines {n} and {m}|"
             "the {o} and the {p} line of {f}|the {o} and {p} line of {f}|"
             "the {o} and the {p} line in {f}"),
    *_ways("what do lines {n} and {m} of {f} say|what's on line {n} and line {m} of {f}|"
           "what's on lines {n} and {m} of {f}|what is on line {n} of {f} and what is on line {m}|"
           "{f}, lines {n} and {m}|{f}:{n} and {f}:{m}|{f}: line {n} and line {m}|"
           "in {f}, what's on line {n} and on {m}|what does line {n} of {f} say, and line {m}|"
           "what does {f} have on line {n} and on line {m}|{f} {n} and {m}, the lines"),
]  # fmt: skip
ENDS = [
    *combine("__", SAY, "the first and the last line of {f}|"
             "the first and last line in {f}|first line and last line of {f}|"
             "the first line of {f} and the last one|both the first and last line of {f}|"
             "the top and the bottom line of {f}|top and bottom line of {f}|"
             "the first line of {f} and its last line|the beginning and the end of {f}"),
    *_ways("how does {f} begin and how does it end|how does {f} start and end|"
           "what are the first and last lines of {f}|where does {f} begin and where does it end|"
           "what does {f} start with and what does it end with|{f}, first and last line|"
           "{f}: first line, last line|head -1 and tail -1 of {f}|"
           "what's the first line in {f} and what's the last|first + last line of {f}|"
           "which line is first in {f} and which is last|what does {f} say first and last"),
]  # fmt: skip
LINE_OF_TWO = [
    *combine("__", SAY, "line {n} of {f} and of {g}|line {n} of {f} and {g}|"
             "line {n} of both {f} and {g}|line {n} in {f} and in {g}|line {n} in {f} and {g}|"
             "line {n} from {f} and {g}|the {o} line of {f} and of {g}|line {n} of {f}, also of {g}"
             "|the {o} line of {f} and {g}|line {n} of {f} and the same of {g}"),
    *_ways("what's on line {n} of {f} and of {g}|what does line {n} say in {f} and in {g}|"
           "what is on line {n} in {f} and {g}|in {f} and {g}, what's on line {n}|"
           "what do {f} and {g} have on line {n}|{f} and {g}, line {n}|"
           "what's line {n} of {f}, and of {g}|{f}:{n} {g}:{n}|line {n}, {f} and {g}"),
]  # fmt: skip
LAST_OF_TWO = [
    *combine("__", SAY, "the last line of {f} and of {g}|the last lines of {f} and {g}|"
             "the last line in {f} and in {g}|the last line of both {f} and {g}|"
             "the last line of {f} and {g}|the end of {f} and of {g}|the ends of {f} and {g}"),
    *_ways("how do {f} and {g} end|how does {f} end and how does {g} end|"
           "what do {f} and {g} end with|tail -1 {f} {g}|what's last in {f} and in {g}|"
           "{f} and {g}: last line|what comes last in {f} and what in {g}|last of {f} and of {g}"),
]  # fmt: skip
OPEN_TWO = [
    *combine("_ {f} _ {g}", "open|show me|show|cat|read|what's in|what is in|what does|look at|"
             "print|I want to see|let me see|can you show me|display|view|please open|"
             "have a look at|the contents of|get me",
             "and|and|and also|and then|plus|as well as")[:90],
    *_ways("cat {f} {g}|what do {f} and {g} say|what do {f} and {g} contain|how do {f} and {g} "
           "begin|the first line of {f} and of {g}|the first lines of {f} and {g}|"
           "what's in {f} and what's in {g}|what's in {f} and in {g}|{f} and {g}, what's in them|"
           "what's in {f}? and in {g}|head -1 {f} {g}|open both {f} and {g}|"
           "what is written in {f} and in {g}|show {f} and after that {g}"),
]  # fmt: skip
OPEN_TWO = [way for way in OPEN_TWO if not way.startswith("what does")]
LIST_TWO = [
    *combine("_ {d} _ {e}", "list|ls|list the folders|which files are in|what files are in|"
             "what's in the folders|show me the files in|list the files in|what do we have in|"
             "the files in|what lies in|show the folders|contents of the folders",
             "and|and in|as well as|and also|and then"),
    *_ways("ls {d} {e}|list both {d} and {e}|which files are in {d} and which are in {e}|"
           "what is in the {d} folder and in the {e} folder|what's in {d}/ and {e}/|"
           "which files does {d} hold and which does {e}|what do {d} and {e} hold|"
           "which files do {d} and {e} contain|the {d} and {e} folders, what's in them|"
           "what's in {d} and what's in {e}|{d} and {e}: which files|files in {d}, files in {e}|"
           "list {d}, then {e}|what files are in {d}? and in {e}"),
]  # fmt: skip
LIST_TWO = [way for way in LIST_TWO if "the folders {d} and in" not in way]
SEARCH_TWO = [
    *combine("_ {w} _ {v}", "which files mention|which file mentions|who mentions|find|search for|"
             "where are|grep for|look for|in which files are|which files have|where do I find",
             "and|and which|and also|as well as"),
    *_ways("which file mentions {w} and which mentions {v}|who mentions {w}, and who {v}|"
           "where is {w} mentioned, and where {v}|where is {w} and where is {v}|"
           "which file has {w} and which one has {v}|find {w}, then find {v}|"
           "search for {w} and for {v}|is {w} mentioned anywhere, and is {v}|"
           "which files have {w} in them and which {v}|which files contain {w}? and {v}"),
]  # fmt: skip
_NO_WHICH = ("find", "search", "where", "grep", "look", "in which")
SEARCH_TWO = [
    way for way in SEARCH_TWO if not (way.startswith(_NO_WHICH) and "and which {v}" in way)
]
KEY_OF_TWO = [
    *combine("_ {k} _ {f} _ {g}", "what's|what is the|the|show me|tell me the|give me|I need|"
             "which is the|find the||what's the value of|look up|get the", "in|of|from",
             "and|and in|and also in|as well as in")[::2],
    *_ways("which {k} do {f} and {g} set|which {k} do {f} and {g} have|what {k} do {f} and {g} use|"
           "{k}, both in {f} and in {g}|in {f} and in {g}, what's {k}|{f} and {g}: {k}|"
           "what's {k} in {f}, and what is it in {g}|what's the {k} in {f}? and in {g}|"
           "what is {k} set to in {f} and in {g}|what do {f} and {g} have for {k}|"
           "how is {k} set in {f} and how in {g}|{k} of {f}, {k} of {g}|"
           "{k} in {f} and the same in {g}|which {k} is in {f} and which in {g}"),
]  # fmt: skip
TWO_ANY_KEYS = [
    *combine("_ {k} _ {j}", "what are|what are the|what's the|what is the|tell me|give me|I need|"
             "show me the|look up|which|find||what's|do you know|get me the|our",
             "and|and the|and also|plus|as well as|, and"),
    *_ways("{k}, {j}|both {k} and {j}|{k} & {j}|what's {k} and what's {j}|the {k}? and the {j}|"
           "{k} + {j}|which {k} and which {j} do we use|what {k} and what {j} does {s} use|"
           "what's the {k}, and what's the {j}|{k} and {j} of {s}|first the {k}, then the {j}|"
           "what are {k} and {j} set to|to what are {k} and {j} set|I need the {k}. and the {j}|"
           "{s}: {k} and {j}|what did we set as {k} and as {j}"),
]  # fmt: skip
TWO_ANY_KEYS = [way.replace(" , and", ", and") for way in TWO_ANY_KEYS]
THREE_KEYS = [
    *combine("_ {k}, {j} and {i} _ {f}", "what are|show me|give me|tell me|I need||get|look up|"
             "what's|read|the values of|find", "in|from|of"),
    *_ways("{f}: {k}, {j}, {i}|{k} {j} {i} in {f}|{k}, {j}, {i} from {f}|"
           "in {f}, what are {k}, {j} and {i}|what does {f} set {k}, {j} and {i} to|"
           "which {k}, {j} and {i} does {f} have|{k}, {j} and also {i} of {f}"),
]  # fmt: skip
AND_ITS_LINE = _ways(
    "{q} and on which line|{q} and on which line is it|{q}, and on which line|{q} and which line|"
    "{q}, and which line is that|{q} and what line is it on|{q}? on which line|{q}, with the line "
    "number|{q} and the line number|{q} and where exactly|{q}? and which line|{q} and at what line|"
    "{q}? which line is it on|{q} (and on what line)|{q}, plus its line number|{q} + line number|"
    "{q} and tell me the line|{q}, and in which line does it stand|{q} and its line"
)
AND_ITS_LAST = _ways(
    "{q} and what's its last line|{q} and how does it end|{q}, and what does its last line say|"
    "{q} and the last line|{q} and the last line of it|{q}? and the last line|{q}, also the last "
    "line|{q} and what is the last line there|{q} plus its last line|{q}? and how does it end|"
    "{q} and show me its last line|{q}, then the last line of that file|{q} and its end"
)
AND_ITS_FIRST = [
    way.replace("last", "first").replace("end", "begin")
    for way in AND_ITS_LAST
    if "its end" not in way
]
NEW: dict[str, list[str]] = {
    "TWO_KEYS": unseen.TWO_KEYS,
    "TWO_ERRORS": unseen.TWO_ERRORS,
    "TWO_LINES": _ways("pull up lines {n} and {m} out of {f}|lines {n} & {m}, file {f}"),
    "ENDS": _ways("which lines open and close {f}|the head and the tail of {f}"),
    "LINE_OF_TWO": _ways("pull line {n} out of {f} and {g}|line {n}, once in {f}, once in {g}"),
    "LAST_OF_TWO": _ways("which lines close {f} and {g}|the tails of {f} and {g}"),
    "OPEN_TWO": _ways("pull up {f} and {g}|a peek at {f} and one at {g}"),
    "LIST_TWO": _ways("browse {d} and {e}|what's sitting in {d} and {e}"),
    "SEARCH_TWO": _ways("hunt down {w} and {v}|any trace of {w}, any of {v}"),
    "KEY_OF_TWO": _ways("the {k}, as per {f} and as per {g}|grab {k} from {f} and {g}"),
    "TWO_ANY_KEYS": _ways("remind me of {k} and {j}|which {k} and {j} apply"),
    "THREE_KEYS": _ways("grab {k}, {j}, {i} out of {f}|could I get {k}, {j}, {i} out of {f}"),
    "AND_ITS_LINE": _ways("{q}, and the number of its line|{q} and whereabouts"),
    "AND_ITS_LAST": _ways("{q}, besides its closing line|{q} and how it closes"),
    "AND_ITS_FIRST": _ways("{q}, besides its opening line|{q} and how it opens"),
}
"""Held out, by list."""


Names = dict[str, str]
Shape = Callable[[Writer], Round | None]


def _finish(
    writer: Writer,
    files: MemoryFiles,
    replies: Sequence[Reply | None],
    name: str,
    listed: list[str],
    slots: Names,
) -> Round | None:
    """Return the round of a list's question, with last names for some files."""
    told = [reply for reply in replies if reply is not None]
    if len(told) < len(replies) or not files.possible:
        return None
    if "j" in slots and len({reply.answer for reply in told}) < len(told):
        return None  # two names of one setting
    done: Names = {}
    for at, slot in enumerate(slot for slot in ("f", "g", "d", "e") if slot in slots):
        asked, told[at] = called(writer, files, slots[slot], told[at], alone=True)
        done[slot] = quoted(writer.rng, asked, often=0.06)
    question = writer.ask(listed, NEW[name], **{**slots, **done})
    return made("double", question, solve.joined(*told), files)


def _text(writer: Writer, least: int = 1) -> str:
    return "\n".join(text_rows(writer, least))


def _two_texts(writer: Writer, least: int = 1) -> tuple[str, str, MemoryFiles] | None:
    """Generate two files, and the workspace with them."""
    f, g = text_path(writer), text_path(writer)
    files = workspace(writer, {f: _text(writer, least), g: _text(writer, least)})
    return (f, g, files) if f != g and files.possible else None


def two_lines(writer: Writer) -> Round | None:
    path, text = writer.path(ALL_EXTENSIONS), _text(writer, 2)
    n, m = writer.rng.sample(range(1, text.count("\n") + 2), 2)
    if n > m and writer.rng.random() < 0.8:
        n, m = m, n
    files = workspace(writer, {path: text})
    slots = {"f": path, "n": str(n), "m": str(m)}
    slots |= {"o": ordinal(writer.rng, n), "p": ordinal(writer.rng, m)}
    replies = [solve.line(files, path, number) for number in (n, m)]
    return _finish(writer, files, replies, "TWO_LINES", TWO_LINES, slots)


def ends(writer: Writer) -> Round | None:
    path = text_path(writer)
    files = workspace(writer, {path: _text(writer)})
    replies = [solve.line(files, path, 1), solve.last_line(files, path)]
    return _finish(writer, files, replies, "ENDS", ENDS, {"f": path})


def line_of_two(writer: Writer) -> Round | None:
    drawn = _two_texts(writer, least=3)
    if drawn is None:
        return None
    f, g, files = drawn
    number = writer.rng.randint(1, 4)
    slots = {"f": f, "g": g, "n": str(number), "o": ordinal(writer.rng, number)}
    if writer.rng.random() < 0.08:
        slots["n"] = CARDINALS[number - 1]
    replies = [solve.line(files, path, number) for path in (f, g)]
    return _finish(writer, files, replies, "LINE_OF_TWO", LINE_OF_TWO, slots)


def last_of_two(writer: Writer) -> Round | None:
    drawn = _two_texts(writer)
    if drawn is None:
        return None
    f, g, files = drawn
    replies = [solve.last_line(files, path) for path in (f, g)]
    return _finish(writer, files, replies, "LAST_OF_TWO", LAST_OF_TWO, {"f": f, "g": g})


def open_two(writer: Writer) -> Round | None:
    drawn = _two_texts(writer)
    if drawn is None:
        return None
    f, g, files = drawn
    replies = [solve.line(files, path, 1) for path in (f, g)]
    return _finish(writer, files, replies, "OPEN_TWO", OPEN_TWO, {"f": f, "g": g})


def list_two(writer: Writer) -> Round | None:
    d, e = writer.words.folder(), writer.words.folder()
    if d == e or f"{d}/".startswith(f"{e}/") or f"{e}/".startswith(f"{d}/"):
        return None
    texts = {
        f"{folder}/{writer.words.path(ALL_EXTENSIONS, deep=0.1)}": "x"
        for folder in (d, e)
        for _ in range(writer.rng.randint(1, 5))
    }
    files = workspace(writer, texts)
    replies = [solve.listing(files, folder) for folder in (d, e)]
    return _finish(writer, files, replies, "LIST_TWO", LIST_TWO, {"d": d, "e": e})


def search_two(writer: Writer) -> Round | None:
    w, v = writer.needle(), writer.needle()
    texts: Names = {}
    for needle in (w, v):
        for _place in range(writer.rng.choice((0, 1, 1, 1, 2))):
            texts[writer.path(ALL_EXTENSIONS)] = f"{any_line(writer.words)} {needle}"
    texts[writer.path(ALL_EXTENSIONS)] = any_line(writer.words)
    files = workspace(writer, texts)
    replies = [solve.mentions(files, needle) for needle in (w, v)]
    if w.lower() == v.lower() or any(len(reply.answer) > 250 for reply in replies):
        return None
    slots = {"w": quoted(writer.rng, w), "v": quoted(writer.rng, v)}
    return _finish(writer, files, replies, "SEARCH_TWO", SEARCH_TWO, slots)


def _settings(writer: Writer, wanted: Sequence[str] = ()) -> Settings:
    return make_settings(writer.words, max(2, min(writer.lines(), 14)), wanted=wanted)


def key_of_two(writer: Writer) -> Round | None:
    """Ask for the same setting of two files, which both have it."""
    one = _settings(writer)
    item = writer.rng.choice(one.items)
    parts = item.key.lower().replace("-", "_").replace(".", "_").split("_")
    two = _settings(writer, parts)
    said = said_key(writer, [item]) if writer.rng.random() < 0.5 else item.key
    files = workspace(writer, {one.path: one.text, two.path: two.text})
    replies = [solve.value(files, file.path, said, file.items) for file in (one, two)]
    if one.path == two.path:
        return None
    slots = {"f": one.path, "g": two.path, "k": said}
    return _finish(writer, files, replies, "KEY_OF_TWO", KEY_OF_TWO, slots)


def two_any_keys(writer: Writer) -> Round | None:
    """Ask for two settings without a file."""
    one = _settings(writer)
    two = one if writer.rng.random() < 0.6 else _settings(writer)
    items = {one.path: one.items, two.path: two.items}
    k, j = said_key(writer, one.items), said_key(writer, two.items)
    texts = {one.path: one.text, two.path: two.text}
    texts[writer.words.path(LOG_EXTENSIONS)] = any_line(writer.words)
    files = workspace(writer, texts)
    if solve.same_key(k, j) or (one is not two and one.path == two.path):
        return None
    replies = [solve.any_value(files, asked, items) for asked in (k, j)]
    return _finish(writer, files, replies, "TWO_ANY_KEYS", TWO_ANY_KEYS, {"k": k, "j": j})


def two_keys(writer: Writer) -> Round | None:
    file = make_settings(writer.words, max(2, writer.lines()))
    k, j = said_key(writer, file.items), said_key(writer, file.items)
    if solve.same_key(k, j):
        return None
    files = workspace(writer, {file.path: file.text})
    replies = [solve.value(files, file.path, asked, file.items) for asked in (k, j)]
    slots = {"f": file.path, "k": k, "j": j}
    return _finish(writer, files, replies, "TWO_KEYS", ways.TWO_KEYS, slots)


def two_errors(writer: Writer) -> Round | None:
    logs = {writer.path(LOG_EXTENSIONS): some_log(writer) for _ in "12"}
    if len(logs) < 2:
        return None
    files = workspace(writer, {path: "\n".join(log.lines) for path, log in logs.items()})
    replies = [solve.error(files, path, log) for path, log in logs.items()]
    slots = dict(zip("fg", logs, strict=True))
    return _finish(writer, files, replies, "TWO_ERRORS", ways.TWO_ERRORS, slots)


def three_keys(writer: Writer) -> Round | None:
    file = _settings(writer)
    asked = [said_key(writer, file.items) for _ in "123"]
    if any(solve.same_key(asked[a], asked[b]) for a, b in ((0, 1), (0, 2), (1, 2))):
        return None
    files = workspace(writer, {file.path: file.text})
    replies = [solve.value(files, file.path, one, file.items) for one in asked]
    slots = {"f": file.path, **dict(zip("kji", asked, strict=True))}
    return _finish(writer, files, replies, "THREE_KEYS", THREE_KEYS, slots)


def and_its(writer: Writer) -> Round | None:
    """Ask for a setting or an error, and its line number, or the first or last line of its file."""
    rng = writer.rng
    if rng.random() < 0.5:
        file = _settings(writer)
        said = said_key(writer, file.items)
        files = workspace(writer, {file.path: file.text})
        reply = solve.value(files, file.path, said, file.items)
        kind, path, slots = "KEY", file.path, {"k": said}
        of = [item.line for item in file.items
              if reply and reply.answer == f"{item.key} is {item.value}"]  # fmt: skip
    else:
        log, path = some_log(writer), writer.path(LOG_EXTENSIONS)
        files = workspace(writer, {path: "\n".join(log.lines)})
        reply = solve.error(files, path, log)
        kind, slots = "ERROR", {}
        of = log.places[:1] if log.errors else []
    if reply is None:
        return None
    name = rng.choice(("AND_ITS_LINE", "AND_ITS_LINE", "AND_ITS_LAST", "AND_ITS_FIRST"))
    if name == "AND_ITS_LINE":
        if len(of) != 1:
            return None
        then = Reply((), f"It is on line {of[0]} of {path}.")
        listed = AND_ITS_LINE
    elif name == "AND_ITS_LAST":
        then, listed = solve.last_line(files, path), AND_ITS_LAST
    else:
        then, listed = solve.line(files, path, 1), AND_ITS_FIRST
    new = writer.asks_anew
    asks = unseen_asks(kind) if new else list(asks_of(kind))
    way = rng.choice(NEW[name] if new else listed).replace("{q}", rng.choice(asks))
    asked, reply = called(writer, files, path, reply, alone=True)
    slots = {**slots, "f": quoted(rng, asked, often=0.06)}
    question = writer.ask([way, way], [way, way], **slots)
    return made("double", question, solve.joined(reply, then), files)


SHAPES: dict[Shape, float] = {
    two_keys: 0.92, two_errors: 0.49, two_lines: 0.12, ends: 0.07, line_of_two: 0.1,
    last_of_two: 0.05, open_two: 0.07,
    list_two: 0.09, search_two: 0.08, key_of_two: 0.14, two_any_keys: 0.14, three_keys: 0.06,
    and_its: 0.14,
}  # fmt: skip
"""Each with its share."""


def double(writer: Writer) -> Round:
    """Ask two questions in one, of any two kinds or of two that share a word."""
    if writer.rng.random() < 0.3:
        return any_two(writer)
    while True:
        shape = writer.rng.choices(list(SHAPES), list(SHAPES.values()))[0]
        if (item := shape(writer)) is not None:
            return item
