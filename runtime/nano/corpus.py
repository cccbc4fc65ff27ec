"""Generated conversations about generated files: what nano is trained and judged on.

A round is one question, the tool calls that answer it, and the answer. Everything in it follows
from a seed, so a corpus is a seed and a count, never a file.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from ...tools.formats import MAX_LINES
from . import phrasings as ways
from .configs import CONFIG_EXTENSIONS, any_line, make_config
from .files import Call, MemoryFiles
from .log_texts import event
from .logs import make_log
from .words import Lexicon

LOG_EXTENSIONS = ("log", "log", "log", "log", "txt", "out", "err", "log.1", "trace")
TEXT_EXTENSIONS = ("txt", "md", "py", "csv", "c", "js", "rst", "html", "sh", "rs", "sql", "tsv")
ALL_EXTENSIONS = LOG_EXTENSIONS + CONFIG_EXTENSIONS + TEXT_EXTENSIONS
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


@dataclass(frozen=True, slots=True)
class Round:
    """A question, what was called and came back, and the answer."""

    family: str
    question: str
    steps: tuple[tuple[Call, str], ...]
    answer: str
    files: MemoryFiles


@dataclass(slots=True)
class Writer:
    """Writes rounds; `size` is about how many lines the tool results may have."""

    words: Lexicon
    size: int
    known_ways: bool = False
    """Ask in the trained phrasings, also with held-out words."""

    @property
    def rng(self) -> random.Random:
        return self.words.rng

    def lines(self) -> int:
        """Small numbers often, up to `size`: a longer file holds the short case's skills too."""
        return max(1, round(self.size ** self.rng.uniform(0.3, 1.0)))

    def ask(self, trained: list[str], held_out: list[str], **slots: str) -> str:
        new = self.words.held_out and not self.known_ways
        patterns = held_out if new else trained
        return ways.ask(self.rng, patterns, slots)

    def path(self, extensions: tuple[str, ...]) -> str:
        path = self.words.path(extensions)
        if self.rng.random() < 0.02:
            folder, slash, name = path.rpartition("/")
            return f"{folder}{slash}{self.words.word()} {name}"
        return path

    def needle(self) -> str:
        """Something to search for."""
        roll = self.rng.random()
        if roll < 0.45:
            return self.words.word()
        if roll < 0.6:
            return self.words.word().capitalize()
        if roll < 0.75:
            return self.words.identifier()
        if roll < 0.85:
            return f"{self.words.word().upper()[:4]}-{self.rng.randrange(10_000)}"
        if roll < 0.9:
            return self.words.number()
        return self.words.phrase(2, 3)


def _round(family: str, question: str, calls: list[Call], answer: str, files: MemoryFiles) -> Round:
    steps = tuple((call, files.run(call)) for call in calls)
    return Round(family, question, steps, answer, files)


def _read_on(files: MemoryFiles, path: str, found: int) -> list[Call]:
    """The reads that show line `found` of a file, the next one starting where one was cut."""
    total = files.texts[path].count("\n") + 1
    starts = range(1, min(found, total) + 1, files.max_lines)
    return [Call("read_file", {"path": path} | ({"start": s} if s > 1 else {})) for s in starts]


def _cap(writer: Writer, total: int) -> int:
    """How many lines one read shows; sometimes fewer than there are, as with long files."""
    if total < 3 or writer.rng.random() > 0.12:
        return max(total, MAX_LINES)
    return writer.rng.randint(max(2, total // 3), total - 1)


def error(writer: Writer) -> Round:
    """What went wrong, according to a log. With several errors the first one is the answer."""
    rng = writer.rng
    roll = rng.random()
    count = 0 if roll < 0.1 else 1 if roll < 0.85 else rng.randint(2, 3)
    log = make_log(writer.words, writer.lines(), count)
    path = writer.path(LOG_EXTENSIONS)
    files = MemoryFiles({path: "\n".join(log.lines)}, _cap(writer, len(log.lines)))
    question = writer.ask(ways.ERROR, ways.ERROR_HELD_OUT, f=ways.quoted(rng, path))
    answer = f"The error is: {log.errors[0]}" if log.errors else f"There is no error in {path}."
    calls = _read_on(files, path, log.places[0] if log.errors else len(log.lines))
    return _round("error", question, calls, answer, files)


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
        ways.KEY_HELD_OUT,
        f=ways.quoted(rng, config.path, often=0.08),
        k=ways.quoted(rng, wanted),
    )
    call = Call("search", {"pattern": wanted, "path": config.path})
    return _round("key", question, [call], answer, files)


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
        question = writer.ask(ways.LINE, ways.LINE_HELD_OUT, f=shown, n=str(wanted))
    arguments: dict[str, object] = {"path": path, "start": wanted, "end": wanted}
    if wanted == 1:  # the default is not written
        del arguments["start"]
    text = texts[number - 1].strip()
    if past:
        answer = f"There is no line {wanted} in {path}."
    else:
        answer = f"Line {wanted} says: {text}" if text else f"Line {wanted} is empty."
    return _round("line", question, [Call("read_file", arguments)], answer, files)


def listing(writer: Writer) -> Round:
    """Which files a folder holds."""
    rng = writer.rng
    here = rng.random() < 0.45
    folder = "." if here else writer.words.folder()
    prefix = "" if here else folder + "/"
    count = max(1, min(writer.lines(), 40))
    texts = {prefix + writer.words.path(ALL_EXTENSIONS, deep=0.15): "x" for _ in range(count)}
    missing = not here and rng.random() < 0.1
    files = MemoryFiles({writer.words.path(ALL_EXTENSIONS, deep=0): "x"} if missing else texts)
    if here:
        question = writer.ask(ways.LIST_HERE, ways.LIST_HERE_HELD_OUT)
        call = Call("list_dir", {})
    else:
        shown = ways.quoted(rng, folder)
        question = writer.ask(ways.LIST, ways.LIST_HELD_OUT, d=shown)
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
    return _round("list", question, [call], answer, files)


def _haystack(writer: Writer, needle: str, n_files: int, scope: str) -> dict[str, str]:
    """`n_files` files under `scope` that hold the needle once or twice, and one that does not."""
    rng = writer.rng
    texts: dict[str, str] = {}
    prefix = scope + "/" if scope else ""
    hits = 0
    while len(texts) < n_files + 1:
        path = prefix + writer.words.path(ALL_EXTENSIONS, deep=0.35)
        lines = [event(writer.words) for _ in range(rng.randint(1, 3))]
        lines = [text for text in lines if needle.lower() not in text.lower()]
        if len(texts) < n_files:
            often = rng.randint(3, 9) if rng.random() < 0.2 else rng.choice((1, 1, 1, 2, 3))
            for _ in range(often if hits < writer.size else 1):
                row = rng.choice((event, any_line))(writer.words)
                cut = rng.randint(0, row.count(" ") + 1)
                parts = row.split(" ")
                word = needle if rng.random() < 0.8 else needle.lower()
                lines.insert(rng.randint(0, len(lines)), " ".join([*parts[:cut], word,
                                                                   *parts[cut:]]))  # fmt: skip
                hits += 1
        texts[path] = "\n".join(lines)
    return texts


def search(writer: Writer) -> Round:
    """Which files mention a word."""
    rng = writer.rng
    needle = writer.needle()
    roll = rng.random()
    count = 0 if roll < 0.18 else 1 if roll < 0.7 else rng.randint(2, max(2, min(writer.size, 8)))
    scope = writer.words.folder() if rng.random() < 0.2 else ""
    files = MemoryFiles(_haystack(writer, needle, count, scope))
    shown = ways.quoted(rng, needle, often=0.25)
    arguments: dict[str, object] = {"pattern": needle}
    if scope:
        arguments["path"] = scope
        question = writer.ask(ways.SEARCH_IN, ways.SEARCH_IN_HELD_OUT, w=shown, d=scope)
    else:
        question = writer.ask(ways.SEARCH, ways.SEARCH_HELD_OUT, w=shown)
    call = Call("search", arguments)
    found = _mentioned(files.run(call))
    if found:
        answer = f"{needle} is mentioned in {', '.join(found)}"
    else:
        answer = f"No file mentions {needle}."
    return _round("search", question, [call], answer, files)


def _mentioned(result: str) -> list[str]:
    """The files of a search result, each once, in order."""
    if ":" not in result:
        return []
    return list(dict.fromkeys(row.split(":", 1)[0] for row in result.split("\n")))


def search_error(writer: Writer) -> Round:
    """Which file mentions a word, and then that file's error: two calls."""
    rng = writer.rng
    needle = writer.needle()
    question = writer.ask(ways.BOTH, ways.BOTH_HELD_OUT, w=ways.quoted(rng, needle, often=0.25))
    texts = _haystack(writer, needle, 0, "")
    find = Call("search", {"pattern": needle})
    if rng.random() < 0.12:
        files = MemoryFiles(texts)
        if not _mentioned(files.run(find)):
            answer = f"No file mentions {needle}."
            return _round("search_error", question, [find], answer, files)
    log = make_log(writer.words, writer.lines(), 0 if rng.random() < 0.08 else 1)
    log.lines = [row for row in log.lines if needle.lower() not in row.lower() or row in log.errors]
    clear = f"{event(writer.words)} {needle}"
    log.lines.insert(rng.randint(0, 1), clear)
    path = writer.words.path(LOG_EXTENSIONS)
    texts[path] = "\n".join(log.lines)
    files = MemoryFiles(texts)
    found = _mentioned(files.run(find))
    if found != [path]:  # a chance hit elsewhere
        return search_error(writer)
    answer = f"{needle} is mentioned in {path}. "
    answer += f"The error is: {log.errors[0]}" if log.errors else f"There is no error in {path}."
    read = Call("read_file", {"path": path})
    return _round("search_error", question, [find, read], answer, files)


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
            (ways.GREETING, ways.GREETING_HELD_OUT, HELLO),
            (ways.THANKS, ways.THANKS_HELD_OUT, WELCOME),
            (ways.ABILITY, ways.ABILITY_HELD_OUT, ABILITIES),
            (ways.WHO, ways.WHO_HELD_OUT, NAME),
            (ways.BYE, ways.BYE_HELD_OUT, GOODBYE),
            (ways.OTHER, ways.OTHER_HELD_OUT, OUT_OF_SCOPE),
            (ways.OTHER, ways.OTHER_HELD_OUT, OUT_OF_SCOPE),
        )
    )
    text = rng.choice(held_out if words.held_out and not writer.known_ways else trained)
    while "{w}" in text:
        text = text.replace("{w}", words.word(), 1)
    text = text.replace("{n}", words.number())
    if rng.random() < 0.6:
        text = text[0].upper() + text[1:]
    asks = text.lower().startswith(("wh", "how", "can", "are", "do", "is", "tell"))
    text += rng.choice(("?", "?", "?", "") if asks else ("", "", ".", "!"))
    return Round("chat", text, (), answer, MemoryFiles({}))


FAMILIES: dict[str, tuple[Callable[[Writer], Round], float]] = {
    "error": (error, 0.24),
    "key": (key, 0.22),
    "line": (line, 0.05),
    "list": (listing, 0.13),
    "search": (search, 0.15),
    "search_error": (search_error, 0.14),
    "missing": (missing, 0.04),
    "chat": (chat, 0.03),
}


def draw(writer: Writer) -> Round:
    """A round of a family drawn by its share."""
    makers = [maker for maker, _ in FAMILIES.values()]
    shares = [share for _, share in FAMILIES.values()]
    return writer.rng.choices(makers, shares)[0](writer)


def rounds(seed: int, count: int, *, size: int, held_out: bool = False,
           family: str | None = None) -> list[Round]:  # fmt: skip
    """`count` rounds that follow from `seed`; tool results of up to about `size` lines."""
    writer = Writer(Lexicon(random.Random(seed), held_out=held_out), size)
    make = draw if family is None else FAMILIES[family][0]
    return [make(writer) for _ in range(count)]
