"""Generated conversations about generated files: nano's training and evaluation data.

A round is one question, the tool calls that answer it, and the answer. Everything in it follows
from a seed, so a corpus is a seed and a count, never a file.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from contextlib import nullcontext

from . import phrasings as ways
from . import solve, unseen
from .configs import any_line
from .doubles import text_path
from .files import MemoryFiles
from .manner import quoted
from .numbers import CARDINALS, ordinal
from .reports import some_log
from .scene import FOLLOW_UPS
from .searches import (
    any_error,
    any_key,
    described,
    error,
    key,
    search,
    search_error,
    where,
)
from .settings import make_settings
from .shared import double
from .smalltalk import beyond, chat
from .talks import talk
from .words import Lexicon
from .writer import AGENT_CHARS, ALL_EXTENSIONS, Round, Writer, called, made

LAST = 0.15
"""Share of the questions about a line that ask for the last one."""


def some_row(writer: Writer) -> str:
    """Return a line of prose or code, of a log, or of settings."""
    rng = writer.rng
    roll = rng.random()
    if roll < 0.5:
        return any_line(writer.words)
    if roll < 0.8:
        return rng.choice(some_log(writer, rng.randint(1, 8)).lines)
    return rng.choice(make_settings(writer.words, rng.randint(1, 5)).text.rstrip().split("\n"))


def line(writer: Writer) -> Round:
    """Ask what is on line N: the reply reads that line alone."""
    rng = writer.rng
    total = rng.randint(1, rng.choice((9, 60, 400, 9000)))
    number = rng.randint(1, total)
    texts = [any_line(writer.words) for _ in range(total)] if total < 30 else [""] * total
    if not (rng.random() < 0.03):
        texts[number - 1] = some_row(writer)
    if rng.random() < 0.06:  # past the end
        number = total + rng.randint(1, 50)
    path = writer.path(ALL_EXTENSIONS)
    last = rng.random() < LAST
    if last:
        texts[-1] = some_row(writer) if rng.random() < 0.96 else ""
    text = "" if rng.random() < 0.02 else "\n".join(texts) + "\n" * (rng.random() < 0.8)
    files = MemoryFiles({path: text}, max_chars=AGENT_CHARS)
    reply = solve.last_line(files, path) if last else solve.line(files, path, number)
    if rng.random() < 0.03:  # a folder has no lines
        path = asked = writer.words.folder()
        files = MemoryFiles({f"{path}/{writer.path(ALL_EXTENSIONS)}": text or "x"})
        reply = solve.last_line(files, path) if last else solve.line(files, path, number)
    else:
        asked, reply = called(writer, files, path, reply)
    shown = quoted(rng, asked)
    if last:
        return made("line", writer.ask(ways.LAST, unseen.LAST, f=shown), reply, files)
    roll = rng.random()
    if number <= 40 and roll < 0.16:  # the third line, the 3rd line
        spoken = [text for text in ways.LINE if "line {n}" in text]
        patterns = [re.sub(r"(\bthe )?line \{n\}", "the {n} line", text) for text in spoken]
        question = writer.ask(patterns, patterns, f=shown, n=ordinal(rng, number))
    elif number <= len(CARDINALS) and roll < 0.22:  # line three
        spoken = [text for text in ways.LINE if re.search(r"\bline (number )?\{n\}", text)]
        question = writer.ask(spoken, unseen.LINE, f=shown, n=CARDINALS[number - 1])
    else:
        question = writer.ask(ways.LINE, unseen.LINE, f=shown, n=str(number))
    return made("line", question, reply, files)


def opening(writer: Writer) -> Round:
    """Ask what is in a file: its first line, or that it is empty or not text."""
    rng = writer.rng
    if rng.random() < 0.4:
        return opened_folder(writer)
    path = text_path(writer)
    if rng.random() < 0.15:
        path = f"{path.partition('.')[0] or 'x'}.{rng.choice(UNKNOWN)}"
    lines = [some_row(writer), *(any_line(writer.words) for _ in range(rng.randint(0, 8)))]
    roll = rng.random()
    text = "" if roll < 0.15 else "\0PNG" if roll < 0.25 else "\n".join(lines)
    files = MemoryFiles({path if roll < 0.95 else "other": text}, max_chars=AGENT_CHARS)
    # No second file of the name of one that is not there: the tool would tell of it.
    asked, reply = called(writer, files, path, solve.line(files, path, 1), alone=roll >= 0.95)
    question = writer.ask(ways.OPEN, unseen.OPEN, f=quoted(rng, asked))
    return made("open", question, reply, files)


UNKNOWN = ("defs", "tab", "list", "rules", "map", "pub", "dat", "lst", "service", "desktop", "nix")
"""Extensions that no other file of the corpus has."""


def opened_folder(writer: Writer) -> Round:
    """Ask what is in a folder, as of a file: the reply lists it."""
    name = writer.words.folder()
    if writer.rng.random() < 0.3:
        name = writer.rng.choice((f".{name}", f"{name}.d", f"{name}-{writer.words.number()}.0"))
    count = writer.rng.choice((1, 2, 3, 6))
    texts = {f"{name}/{writer.words.path(ALL_EXTENSIONS, deep=0.1)}": "x" for _ in range(count)}
    files = MemoryFiles(texts, max_chars=AGENT_CHARS)
    trained = _OF_BOTH if "." in name[1:] else OF_A_FILE
    question = writer.ask(trained, unseen.OPEN, f=quoted(writer.rng, name))
    return made("open", question, solve.opened(files, name), files)


def plain_file(writer: Writer) -> Round:
    """Ask what is in a file whose name looks like a folder's: the reply reads it."""
    rng, words = writer.rng, writer.words
    stem = rng.choice((words.word(), words.word().capitalize(), words.word().upper()))
    name = f"{words.folder()}/{stem}" if rng.random() < 0.3 else stem
    lines = [some_row(writer), *(any_line(words) for _ in range(rng.randint(0, 8)))]
    text = "" if rng.random() < 0.05 else "\n".join(lines)
    files = MemoryFiles({name: text}, max_chars=AGENT_CHARS)
    question = writer.ask(OF_EITHER, unseen.LIST, d=quoted(rng, name))
    return made("list", question, solve.listing(files, name, opens=True), files)


def listing(writer: Writer) -> Round:
    """Ask which files a folder holds."""
    rng = writer.rng
    if rng.random() < 0.25:
        return plain_file(writer)
    here = rng.random() < 0.45
    folder = "." if here else writer.words.folder()
    if not here and rng.random() < 0.1:
        folder = f"{writer.words.folder()}/{folder}"
    prefix = "" if here else folder + "/"
    count = max(1, min(writer.lines(), 40 if rng.random() < 0.8 else 160))
    with writer.words.few(max(4, count // 2)) if rng.random() < 0.5 else nullcontext():
        texts = {prefix + writer.words.path(ALL_EXTENSIONS, deep=0.15): "x" for _ in range(count)}
    roll = rng.random()
    if roll < 0.04:
        texts = {} if here else {folder + "/": ""}
    elif roll < 0.12 and not here:
        texts = {writer.words.path(ALL_EXTENSIONS, deep=0): "x"}
    elif roll < 0.14 and not here:
        texts = {folder: "x"}
    elif roll < 0.17 and not here:  # written in another case
        texts = {_recased(writer, folder) + name.removeprefix(folder): "x" for name in texts}
    elif roll < 0.21:  # a file's name, asked for what files it holds
        folder, here = writer.path(ALL_EXTENSIONS), False
        texts = {folder: "x"}
    files = MemoryFiles(texts, max_chars=AGENT_CHARS)
    if here:
        question = writer.ask(ways.LIST_HERE, unseen.LIST_HERE)
        return made("list", question, solve.listing(files), files)
    asked, reply = called(writer, files, folder, solve.listing(files, folder), alone=True)
    if reply.answer.startswith("There is no ") and " (there " in files.run(reply.calls[-1]):
        return listing(writer)  # the folder above has the same name
    listed = ways.LIST if folder not in texts else OF_A_FOLDER
    question = writer.ask(listed, unseen.LIST, d=quoted(rng, asked))
    return made("list", question, reply, files)


def _recased(writer: Writer, path: str) -> str:
    """Return the same path with its last name in another case, which is a different one."""
    folder, slash, name = path.rpartition("/")
    other = [t for t in (name.lower(), name.upper(), name.capitalize()) if t != name]
    return folder + slash + writer.rng.choice(other or [f"{name}.old"])


OF_A_FOLDER = [way for way in ways.LIST if re.search("file|folder|director|^list ", way)]
"""Asked of a file, all others are about what it says."""
OF_EITHER = [
    way
    for way in ways.LIST
    if re.match(
        r"(and )?(what('s| is|s| does)|show|open|look|have a look|see what|tell me what)", way
    )
    and not re.search("file|folder|director|document|logs|everything|stored|leave|else", way)
]
_OF_BOTH = [w for w in ways.OPEN if not re.search("line|start|begin|empty|top|end", w)]
_LISTS = set(ways.LIST)
OF_A_FILE = [way for way in _OF_BOTH if way.replace("{f}", "{d}") not in _LISTS]


def missing(writer: Writer) -> Round:
    """Ask for a file that does not exist, a folder, an empty file or a binary one."""
    rng = writer.rng
    source = rng.choice((error, key, line, where))(writer)
    call = source.steps[0][0]
    if source.family == "key" and "|" in call.arguments["pattern"]:  # words, not one name
        return missing(writer)
    path = str(call.arguments["path"])
    roll = rng.random()
    texts = {"other.txt": "x"}
    if roll < 0.25:
        texts[path] = f"\0{writer.words.phrase(1, 20)}"
    elif roll < 0.35:
        texts[path] = ""
    elif roll < 0.4 and "." in path.rpartition("/")[2]:  # of others the tool says where they are
        texts = {_recased(writer, path): "x"}
    elif roll < 0.47 and call.name == "read_file":
        texts = {f"{path}/{writer.words.path(ALL_EXTENSIONS, deep=0)}": "x"}
    files = MemoryFiles(texts, max_chars=AGENT_CHARS)
    if call.name == "read_file":
        start = call.arguments.get("start", 1)
        reply = (
            solve.last_line(files, path) if start == solve.FAR else solve.line(files, path, start)
        )
    elif source.family == "error":
        reply = solve.error(files, path, None)
    elif source.family == "where":
        reply = solve.where(files, call.arguments["pattern"], path)
    else:
        asked = call.arguments["pattern"].replace(".?", " ")
        reply = solve.value(files, path, asked, ())
    assert reply is not None
    return made("missing", source.question, reply, files)


FAMILIES: dict[str, tuple[Callable[[Writer], Round], float]] = {
    "error": (error, 0.22),
    "key": (key, 0.24),
    "described": (described, 0.17),
    "line": (line, 0.05),
    "list": (listing, 0.1),
    "search": (search, 0.08),
    "where": (where, 0.1),
    "search_error": (search_error, 0.05),
    "double": (double, 0.2),
    "open": (opening, 0.1),
    "any_error": (any_error, 0.05),
    "any_key": (any_key, 0.16),
    "missing": (missing, 0.05),
    "beyond": (beyond, 0.12),
    "chat": (chat, 0.04),
}
LONG_FAMILIES = {"error": 0.3, "list": 0.2, "search": 0.3, "search_error": 0.1, "any_error": 0.1}
"""Those whose tool results can be long, and their shares where they have to be."""
TALKS = 0.52
"""Share of conversations that go on about the same files."""


def draw(writer: Writer) -> list[Round]:
    """Draw one round of a family by its share, or several that belong together."""
    if not writer.long and writer.rng.random() < TALKS:
        return talk(writer)
    if writer.long:
        names, shares = list(LONG_FAMILIES), list(LONG_FAMILIES.values())
    else:
        names, shares = list(FAMILIES), [share for _, share in FAMILIES.values()]
    return [FAMILIES[writer.rng.choices(names, shares)[0]][0](writer)]


def rounds(seed: int, count: int, *, size: int, held_out: bool = False,
           family: str | None = None) -> list[Round]:  # fmt: skip
    """Generate `count` rounds from `seed`; tool results of up to about `size` lines."""
    writer = Writer(Lexicon(random.Random(seed), held_out=held_out), size)
    if family is not None and family != FOLLOW_UPS:
        return [FAMILIES[family][0](writer) for _ in range(count)]
    made: list[Round] = []
    while len(made) < count:
        made += draw(writer) if family is None else talk(writer)
    return made[:count]
