"""Generated conversations about generated files: what nano is trained and judged on.

A round is one question, the tool calls that answer it, and the answer. Everything in it follows
from a seed, so a corpus is a seed and a count, never a file.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

from . import phrasings as ways
from . import unseen
from .configs import any_line, make_config
from .files import Call, MemoryFiles
from .logs import make_log
from .searches import any_error, any_key, search, search_error
from .words import Lexicon
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer, make_round, read_on, workspace

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")

HELLO = "Hello! Ask me about a file in this folder."
WELCOME = "You're welcome."
ABILITIES = (
    "I can list folders, read files and search them. "
    "Ask me for the error in a log, the value of a setting or a line of a file."
)
NAME = "I am triplepoint-nano, a small model that answers questions about files."
GOODBYE = "Goodbye!"
OUT_OF_SCOPE = "I can only answer questions about the files in this folder."


def error(writer: Writer) -> Round:
    """What went wrong, according to a log. With several errors the first one is the answer."""
    rng = writer.rng
    roll = rng.random()
    count = 0 if roll < 0.1 else 1 if roll < 0.85 else rng.randint(2, 3)
    log = make_log(writer.words, writer.lines(), count)
    path = writer.path(LOG_EXTENSIONS)
    files = workspace(writer, {path: "\n".join(log.lines)}, len(log.lines))
    question = writer.ask(ways.ERROR, unseen.ERROR, f=ways.quoted(rng, path))
    answer = f"The error is: {log.errors[0]}" if log.errors else f"There is no error in {path}."
    calls = read_on(files, path, log.places[0] if log.errors else len(log.lines))
    return make_round("error", question, calls, answer, files)


def key(writer: Writer) -> Round:
    """The value of a key in a configuration file, or that there is no such key.

    The file is searched for the key, so that a long one costs no more than a short one.
    """
    rng = writer.rng
    config = make_config(writer.words, writer.lines())
    wanted, value = rng.choice(config.pairs)
    answer = f"{wanted} is {value}"
    other = writer.words.identifier()
    if rng.random() < 0.08 and other.lower() not in config.text.lower():
        wanted, answer = other, f"There is no {other} in {config.path}."
    files = MemoryFiles({config.path: config.text})
    question = writer.ask(
        ways.KEY,
        unseen.KEY,
        f=ways.quoted(rng, config.path, often=0.08),
        k=ways.quoted(rng, wanted),
    )
    call = Call("search", {"pattern": wanted, "path": config.path})
    return make_round("key", question, [call], answer, files)


def line(writer: Writer) -> Round:
    """What is on line N: that line alone is read."""
    rng = writer.rng
    total = rng.randint(1, rng.choice((9, 60, 400)))
    number = rng.randint(1, total)
    past = rng.random() < 0.06
    texts = [any_line(writer.words) for _ in range(total)] if total < 30 else [""] * total
    if not (rng.random() < 0.03):
        texts[number - 1] = any_line(writer.words)
    path = writer.path(ALL_EXTENSIONS)
    files = MemoryFiles({path: "\n".join(texts) + "\n"})
    wanted = total + rng.randint(1, 50) if past else number
    shown = ways.quoted(rng, path)
    if wanted <= len(ORDINALS) and rng.random() < 0.1:
        spoken = [text for text in ways.LINE if "line {n}" in text]
        patterns = [text.replace("line {n}", "the {n} line") for text in spoken]
        question = writer.ask(patterns, patterns, f=shown, n=ORDINALS[wanted - 1])
    else:
        question = writer.ask(ways.LINE, unseen.LINE, f=shown, n=str(wanted))
    arguments: dict[str, object] = {"path": path, "start": wanted, "end": wanted}
    if wanted == 1:  # the default is not written
        del arguments["start"]
    text = texts[number - 1].strip()
    if past:
        answer = f"There is no line {wanted} in {path}."
    else:
        answer = f"Line {wanted} says: {text}" if text else f"Line {wanted} is empty."
    return make_round("line", question, [Call("read_file", arguments)], answer, files)


def listing(writer: Writer) -> Round:
    """Which files a folder holds."""
    rng = writer.rng
    here = rng.random() < 0.45
    folder = "." if here else writer.words.folder()
    prefix = "" if here else folder + "/"
    count = max(1, min(writer.lines(), 40))
    with writer.words.few(max(4, count // 2)) if rng.random() < 0.5 else nullcontext():
        texts = {prefix + writer.words.path(ALL_EXTENSIONS, deep=0.15): "x" for _ in range(count)}
    missing = not here and rng.random() < 0.1
    files = MemoryFiles({writer.words.path(ALL_EXTENSIONS, deep=0): "x"} if missing else texts)
    if here:
        question = writer.ask(ways.LIST_HERE, unseen.LIST_HERE)
        call = Call("list_dir", {})
    else:
        shown = ways.quoted(rng, folder)
        question = writer.ask(ways.LIST, unseen.LIST, d=shown)
        call = Call("list_dir", {"path": folder})
    if missing:
        answer = f"There is no folder {folder}."
    elif not here and rng.random() < 0.02:
        files = MemoryFiles({folder: "x"})
        answer = f"{folder} is a file."
    else:
        answer = "The folder holds: " + files.run(call).replace("\n", ", ")
    if here and rng.random() < 0.03:
        files, answer = MemoryFiles({}), "The folder is empty."
    return make_round("list", question, [call], answer, files)


def missing(writer: Writer) -> Round:
    """A file that does not exist, or that is a folder."""
    rng = writer.rng
    source = rng.choice((error, key, line))(writer)
    call = source.steps[0][0]
    path = str(call.arguments["path"])
    other = f"{path}/{writer.words.path(ALL_EXTENSIONS, deep=0)}"
    folder = call.name == "read_file" and rng.random() < 0.1
    files = MemoryFiles({other: "x"} if folder else {"other.txt": "x"})
    answer = f"{path} is a folder." if folder else f"There is no file {path}."
    return replace(
        source, family="missing", files=files, steps=((call, files.run(call)),), answer=answer
    )


def chat(writer: Writer) -> Round:
    """Greetings, thanks, questions about itself and about the world: no tool."""
    rng, words = writer.rng, writer.words
    trained, held_out, answer = rng.choice(
        (
            (ways.GREETING, unseen.GREETING, HELLO),
            (ways.THANKS, unseen.THANKS, WELCOME),
            (ways.ABILITY, unseen.ABILITY, ABILITIES),
            (ways.WHO, unseen.WHO, NAME),
            (ways.BYE, unseen.BYE, GOODBYE),
            (ways.OTHER, unseen.OTHER, OUT_OF_SCOPE),
            (ways.OTHER, unseen.OTHER, OUT_OF_SCOPE),
        )
    )
    text = rng.choice(held_out if writer.asks_anew else trained)
    for slot, make in (("{w}", words.word), ("{x}", words.word), ("{n}", words.number)):
        while slot in text:
            text = text.replace(slot, make(), 1)
    if rng.random() < 0.6:
        text = text[0].upper() + text[1:]
    asks = text.lower().startswith(("wh", "how", "can", "are", "do", "is", "tell"))
    text += rng.choice(("?", "?", "?", "") if asks else ("", "", ".", "!"))
    return Round("chat", text, (), answer, MemoryFiles({}))


FAMILIES: dict[str, tuple[Callable[[Writer], Round], float]] = {
    "error": (error, 0.20),
    "key": (key, 0.16),
    "line": (line, 0.05),
    "list": (listing, 0.12),
    "search": (search, 0.18),
    "search_error": (search_error, 0.13),
    "any_error": (any_error, 0.05),
    "any_key": (any_key, 0.04),
    "missing": (missing, 0.03),
    "chat": (chat, 0.04),
}
LONG_FAMILIES = {"error": 0.2, "list": 0.23, "search": 0.35, "search_error": 0.22}
"""Those whose tool results can be long, and their shares where they have to be."""


def draw(writer: Writer) -> Round:
    """A round of a family drawn by its share."""
    if writer.long:
        names, shares = list(LONG_FAMILIES), list(LONG_FAMILIES.values())
    else:
        names, shares = list(FAMILIES), [share for _, share in FAMILIES.values()]
    return FAMILIES[writer.rng.choices(names, shares)[0]][0](writer)


def rounds(seed: int, count: int, *, size: int, held_out: bool = False,
           family: str | None = None) -> list[Round]:  # fmt: skip
    """`count` rounds that follow from `seed`; tool results of up to about `size` lines."""
    writer = Writer(Lexicon(random.Random(seed), held_out=held_out), size)
    make = draw if family is None else FAMILIES[family][0]
    return [make(writer) for _ in range(count)]
