"""A conversation's files, its current subject, and its questions in full."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from triplepoint.tools.formats import elsewhere

from . import phrasings as ways
from . import short, solve, unseen
from .composed import ways as ways_of
from .configs import any_line
from .files import Call, MemoryFiles
from .log_texts import event
from .logs import Log, make_log
from .manner import quoted
from .marks import ERRORS
from .reports import some_log
from .said import said_key
from .searches import replied, some_settings
from .settings import Setting, holds_settings, make_settings, natural
from .smalltalk import beyond as alone
from .solve import MORE, Reply
from .writer import (
    AGENT_CHARS,
    ALL_EXTENSIONS,
    LOG_EXTENSIONS,
    Round,
    Writer,
    called,
    left_out,
    made,
)

FOLLOW_UPS = "follow"


@dataclass
class Scene:
    """The files of a conversation, and its current subject."""

    writer: Writer
    logs: dict[str, Log] = field(default_factory=dict)
    items: dict[str, tuple[Setting, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    path: str = ""
    number: int = 0
    row: str = ""
    again: tuple[str, str] = ("", "")
    """What to repeat for another file: "error", "key", "line", "last" or "where", and its object.
    """
    told: int = 0
    """How many errors of the log were reported."""
    key: str = ""
    needle: str = ""
    folder: str = ""
    """The folder that was listed last."""
    listed: list[str] = field(default_factory=list)
    """What the last listing showed."""
    one_file: bool = False
    """Whether the needle was searched for in one file alone."""
    found: list[str] = field(default_factory=list)
    setting: tuple[str, Setting] | None = None
    asks: tuple[str, tuple[str, ...]] = ("", ())
    """A file, and questions about one of its settings (`settings.natural`)."""
    known: set[str] = field(default_factory=set)
    """The files whose paths were in a question or a result."""
    visited: list[str] = field(default_factory=list)
    """The mentioned files, in order."""
    vague: bool = False
    """Whether a missing one was requested: `the other file` could mean it."""
    files: MemoryFiles = field(default_factory=lambda: MemoryFiles({}))

    @property
    def rng(self) -> random.Random:
        return self.writer.rng


def make_scene(writer: Writer) -> Scene:
    rng, words = writer.rng, writer.words
    scene = Scene(writer)
    size = max(2, min(12, writer.size))
    beside = f"{words.folder()}/" if rng.random() < 0.6 else ""
    together = rng.random() < 0.5
    for place in range(rng.choice((2, 2, 3))):
        path = writer.path(LOG_EXTENSIONS)
        if together:
            path = f"{beside}{rng.choice((*PARTS_OF_LOGS, words.word(), words.word()))}.log"
        if path in scene.texts:
            continue
        if place == 2 or rng.random() < 0.6:
            errors = rng.choice((1, 2, 2, 3, 3, 4) if place < 2 else (0, 0, 1))
            log = make_log(words, rng.randint(1, rng.choice((size, 60, 3000))), errors)
        else:
            log = some_log(writer, rng.randint(1, rng.choice((size, 200, 4000))))
        scene.logs[path] = log
        scene.texts[path] = "\n".join(log.lines) + "\n"
    settings = some_settings(writer, rng.randint(2, size))
    if rng.random() < 0.5:
        parts, asks = natural(words)
        settings = make_settings(words, rng.randint(2, size), wanted=parts)
        scene.asks = settings.path, asks
    scene.items[settings.path] = settings.items
    scene.texts[settings.path] = settings.text
    join = rng.choice((" = ", "=", ": "))

    def add(path: str, items: list[Setting]) -> None:
        scene.items[path] = tuple(items)
        scene.texts[path] = "\n".join(f"{i.key}{join}{i.value}" for i in items) + "\n"

    keys = list(dict.fromkeys(item.key for item in settings.items))
    keys = rng.sample(keys, rng.randint(1, len(keys)))
    again = [Setting(key, words.value().replace("'", ""), n) for n, key in enumerate(keys, 1)]
    other = words.path(LIKE)
    if settings.path.endswith(tuple(f".{end}" for end in LIKE)) and rng.random() < 0.6:
        other = sibling(writer, settings.path)
    if other not in scene.texts:
        add(other, again)
    if rng.random() < 0.2 and "/" in settings.path:  # one of the same name
        twin = f"{words.folder()}/{settings.path.rpartition('/')[2]}"
        if twin not in scene.texts and twin + "/" not in settings.path:
            add(twin, [Setting(i.key, words.value().replace("'", ""), i.line) for i in again])
    text = writer.path(ALL_EXTENSIONS)
    if text not in scene.texts:
        lines = [rng.choice((any_line, event))(words) for _ in range(rng.randint(2, 30))]
        scene.texts[text] = "\n".join(lines) + "\n"
    notes = left_out(writer)
    scene.files = MemoryFiles(
        scene.texts, max_chars=AGENT_CHARS, notes=notes[0], regex_notes=notes[1]
    )
    return scene


LIKE = ("ini", "conf", "yaml", "env", "toml", "cfg")
PARTS = tuple(
    ways_of(
        "staging|staging|prod|production|dev|test|local|example|default|old|backup|base|demo|qa|ci"
    )
)
PARTS_OF_LOGS = tuple(
    ways_of(
        "api|worker|web|db|auth|cron|mail|sync|nginx|backup|app|scheduler|queue|proxy|billing|import"
    )
)


def sibling(writer: Writer, path: str) -> str:
    """Return a file of the same kind next to another one, one for each environment."""
    rng = writer.rng
    folder, slash, name = path.rpartition("/")
    stem, _, end = name.rpartition(".")
    part = rng.choice(PARTS) if rng.random() < 0.75 else writer.words.word()
    shapes = ("_", "X._", "X-_", "X_" + "_", "_") if stem.isalnum() else ("_", "_")
    shape = rng.choice(shapes)
    made = part if shape == "_" else shape[:-1].replace("X", stem) + part
    return f"{folder}{slash}{made}.{end}"


def part_of(scene: Scene, path: str) -> str:
    """Return a word of a file's name that is in no other path."""
    stem, _, extension = path.rpartition("/")[2].rpartition(".")
    parts = [*reversed(re.split(r"[._-]", stem))]
    if scene.rng.random() < 0.4:  # `the toml`
        parts.insert(0, extension)
    for part in parts:
        if len(part) > 1 and part.isalpha():
            others = (p for p in scene.texts if p != path)
            folder = path.rpartition("/")[0]
            if part not in folder and not any(part.lower() in p.lower() for p in others):
                return part
    return ""


def pointed(scene: Scene, path: str) -> str:
    """Return a part of a file's name that the tools resolve to this file; else nothing."""
    part = part_of(scene, path)
    if not part or part == path:
        return ""
    told = scene.files.run(Call("read_file", {"path": part}))
    return part if told.endswith(elsewhere([path])) else ""


Step = Callable[[Scene], Round | None]


def asked_in(scene: Scene, trained: list[str], held_out: list[str], **slots: str) -> str:
    return scene.writer.ask(trained, held_out, **slots)


def round_of(scene: Scene, question: str, reply: Reply) -> Round:
    item = made(FOLLOW_UPS, question, reply, scene.files)
    said = "\n".join((question, item.answer, *(result for _, result in item.steps)))
    scene.known |= {path for path in scene.texts if path in said}
    scene.vague |= item.answer.startswith(("There is no f", "There are several"))
    if scene.path and scene.path not in scene.visited:
        scene.visited.append(scene.path)
    return item


def named(scene: Scene, path: str, reply: Reply) -> tuple[str, Reply]:
    """Return how a question names a file, and the reply; the tool resolves a name even where the
    path is known."""
    asked, found, rng = path, reply, scene.rng
    if path in scene.known and rng.random() < 0.15 and (part := part_of(scene, path)):
        said = solve.by_name(scene.files, part, path, reply)
        called_so = short.A_PART_LOG if path in scene.logs else short.A_PART
        if said is not None:
            return rng.choice(called_so).replace("{p}", part), said
    if path not in scene.known:
        asked, found = called(scene.writer, scene.files, path, reply, alone=True)
    elif rng.random() < 0.6:
        asked, found = named_last(scene, path, reply)
    return quoted(rng, asked, often=0.08), found


def named_last(scene: Scene, path: str, reply: Reply) -> tuple[str, Reply]:
    """Name a file by its last name alone, where that is unique."""
    name = path.rpartition("/")[2]
    found = solve.by_name(scene.files, name, path, reply)
    return (path, reply) if found is None else (name, found)


def rows_of(scene: Scene, path: str) -> list[str]:
    return scene.texts[path].removesuffix("\n").split("\n")


# ------------------------------------------------------------------------- questions in full


def tell_error(scene: Scene, path: str) -> Reply | None:
    """Answer about a log's error; the log becomes the subject."""
    log = scene.logs.get(path)
    reply = solve.error(scene.files, path, log) if log is not None else None
    if reply is None or log is None:
        return None
    scene.path, scene.told, scene.key, scene.needle = path, min(1, len(log.errors)), "", ""
    scene.again = "error", ""
    scene.number = log.places[0] if log.errors else 0
    scene.row = log.rows[0] if log.errors else ""
    return reply


def full_error(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.logs))
    reply = tell_error(scene, path)
    if reply is None:
        return None
    name, reply = named(scene, path, reply)
    return round_of(scene, asked_in(scene, ways.ERROR, unseen.ERROR, f=name), reply)


def tell_key(scene: Scene, path: str, key: str) -> Reply | None:
    rows = rows_of(scene, path)
    reply = solve.value(scene.files, path, key, scene.items.get(path, ()))
    if reply is None:
        return None
    places = [i for i in scene.items.get(path, ()) if f"{i.key} is {i.value}" == reply.answer]
    scene.path, scene.key, scene.needle, scene.told = path, key, "", 0
    scene.again = "key", key
    scene.number = places[0].line if len(places) == 1 else 0
    scene.row = rows[places[0].line - 1] if len(places) == 1 else ""
    return reply


def full_asked(scene: Scene) -> Round | None:
    """Ask for a setting without its key's name."""
    path, asks = scene.asks
    if not asks:
        return None
    ask = scene.rng.choice(asks)
    return tell_asked(scene, path, ask if "{f}" in ask else f"{ask} {{f}}", named)


def tell_asked(
    scene: Scene, path: str, ask: str, name: Callable[[Scene, str, Reply], tuple[str, Reply]]
) -> Round | None:
    """Return the round of such a question, in which `name` says how the file is called."""
    reply = replied(scene.files, ask, dict(scene.items), path)
    if reply is None:
        return None
    places = [i for i in scene.items[path] if f"{i.key} is {i.value}" == reply.answer]
    scene.path, scene.needle, scene.told = path, "", 0
    scene.key = places[0].key if places else ""
    scene.again = ("key", scene.key) if places else ("", "")
    scene.number = places[0].line if len(places) == 1 else 0
    scene.row = rows_of(scene, path)[places[0].line - 1] if len(places) == 1 else ""
    shown, reply = name(scene, path, reply)
    plain = ask.replace("*", "")
    return round_of(scene, asked_in(scene, [plain], [plain], f=shown), reply)


def full_key(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.items))
    key = said_key(scene.writer, scene.items[path])
    reply = tell_key(scene, path, key)
    if reply is None:
        return None
    name, reply = named(scene, path, reply)
    return round_of(scene, asked_in(scene, ways.KEY, unseen.KEY, f=name, k=key), reply)


def tell_line(scene: Scene, path: str, number: int) -> Reply:
    reply = solve.line(scene.files, path, number)
    scene.path, scene.number, scene.key, scene.needle, scene.told = path, number, "", "", 0
    scene.row, scene.again = "", ("line", str(number))
    return reply


def full_line(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.texts))
    number = scene.rng.randint(1, len(rows_of(scene, path)))
    name, reply = named(scene, path, tell_line(scene, path, number))
    question = asked_in(scene, ways.LINE, unseen.LINE, f=name, n=str(number))
    return round_of(scene, question, reply)


def full_open(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.texts))
    name, reply = named(scene, path, tell_line(scene, path, 1))
    return round_of(scene, asked_in(scene, ways.OPEN, unseen.OPEN, f=name), reply)


def tell_search(scene: Scene, needle: str) -> Reply | None:
    reply = solve.mentions(scene.files, needle)
    result = scene.files.run(reply.calls[0])
    hits = solve.hits_of(result)
    if MORE in result or len(hits) > 14:
        return None
    scene.found, scene.one_file = solve.mentioned(result)[0], False
    scene.needle, scene.key, scene.told, scene.again = needle, "", 0, ("where", needle)
    scene.path = scene.found[0] if len(scene.found) == 1 else ""
    scene.number, scene.row = (hits[0][1], hits[0][2]) if len(hits) == 1 else (0, "")
    places = {(path, i.line): i for path, several in scene.items.items() for i in several}
    sets = [(p, places[p, n]) for p, n, _ in hits if (p, n) in places]
    scene.setting = sets[0] if len(sets) == 1 and sets[0][1].key.lower() == needle.lower() else None
    return reply


def some_needle(scene: Scene) -> str:
    """Return a word of the files, or sometimes of none."""
    rng = scene.rng
    if rng.random() < 0.12:
        return scene.writer.needle()
    if rng.random() < 0.6:
        return rng.choice(scene.items[rng.choice(list(scene.items))]).key
    rows = rows_of(scene, rng.choice(list(scene.texts)))
    parts = [part.strip("\"'.,:;()[]{}<>=") for part in rng.choice(rows).split()]
    parts = [part for part in parts if len(part) > 3 and "\\" not in part]
    return rng.choice(parts) if parts else scene.writer.needle()


def full_search(scene: Scene) -> Round | None:
    needle = some_needle(scene)
    keys = Counter(item.key for items in scene.items.values() for item in items)
    once = [key for key in keys if keys[key] == 1]
    if once and scene.rng.random() < 0.4:  # one file sets it, and may be asked for it next
        needle = scene.rng.choice(once)
    reply = tell_search(scene, needle)
    if reply is None:
        return None
    shown = quoted(scene.rng, needle, often=0.15)
    return round_of(scene, asked_in(scene, ways.SEARCH, unseen.SEARCH, w=shown), reply)


def full_where(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.texts))
    needle = some_needle(scene)
    reply = tell_where(scene, path, needle)
    if reply is None:
        return None
    word = quoted(scene.rng, needle, often=0.15)
    name, reply = named(scene, path, reply)
    listed = ways.WHERE_ALONE if word == needle and holds_settings(path) else ways.WHERE
    return round_of(scene, asked_in(scene, listed, unseen.WHERE, w=word, f=name), reply)


def tell_where(scene: Scene, path: str, needle: str) -> Reply | None:
    """Ask on which lines of a file a text is."""
    reply = solve.where(scene.files, needle, path)
    if reply is None:
        return None
    hits = solve.hits_of(scene.files.run(reply.calls[0]))
    scene.path, scene.needle, scene.key, scene.told = path, needle, "", 0
    scene.again = "where", needle
    scene.found, scene.setting, scene.one_file = [path], None, True
    scene.number, scene.row = (hits[0][1], hits[0][2]) if len(hits) == 1 else (0, "")
    return reply


def tell_again(scene: Scene, path: str) -> Reply | None:
    """Ask the last question of another file, which exists."""
    kind, thing = scene.again
    if kind == "error":
        return tell_error(scene, path)
    if kind == "key":
        return tell_key(scene, path, thing)
    if kind == "last":
        return tell_last(scene, path)
    if kind == "where":
        return tell_where(scene, path, thing)
    return tell_line(scene, path, int(thing))


def full_any_key(scene: Scene) -> Round | None:
    """Ask for the value of a key without a file, where one file alone sets it."""
    if scene.path in scene.items:  # that one would be meant
        return None
    path = scene.rng.choice(list(scene.items))
    key = said_key(scene.writer, scene.items[path])
    reply = solve.any_value(scene.files, key, scene.items)
    if reply is None:
        return None
    sets = [
        (where, item)
        for where, items in scene.items.items()
        for item in items
        if f"{item.key} in {where} is {item.value}" == reply.answer
    ]
    if len(sets) != 1:
        return None
    scene.path, item = sets[0]
    scene.key, scene.needle, scene.told, scene.again = key, "", 0, ("key", key)
    scene.number, scene.row = item.line, rows_of(scene, scene.path)[item.line - 1]
    return round_of(scene, asked_in(scene, ways.ANY_KEY, unseen.ANY_KEY, k=key), reply)


def full_last(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.texts))
    name, reply = named(scene, path, tell_last(scene, path))
    return round_of(scene, asked_in(scene, ways.LAST, unseen.LAST, f=name), reply)


def tell_last(scene: Scene, path: str) -> Reply:
    """Ask for the last line of a file."""
    tell_line(scene, path, len(rows_of(scene, path)))
    scene.again = "last", ""
    return solve.last_line(scene.files, path)


def forget(scene: Scene) -> None:
    """Clear the subject."""
    scene.path = scene.key = scene.needle = scene.row = ""
    scene.number, scene.told, scene.again = 0, 0, ("", "")


def full_list(scene: Scene) -> Round | None:
    question = asked_in(scene, ways.LIST_HERE, unseen.LIST_HERE)
    scene.folder = ""
    scene.listed = scene.files.run(solve.listing(scene.files).calls[0]).split("\n")
    forget(scene)
    return round_of(scene, question, solve.listing(scene.files))


def full_any_error(scene: Scene) -> Round | None:
    """Ask for the first error of all files, where it is the first hit."""
    if scene.path:  # its own would be meant
        return None
    result = scene.files.run(solve.find(ERRORS, regex=True))
    hits = solve.hits_of(result)
    if not hits or hits[0][0] not in scene.logs:
        return None
    path = hits[0][0]
    log = scene.logs[path]
    reply = solve.any_error(scene.files, path, log)
    if reply is None or not log.errors:
        return None
    scene.path, scene.told, scene.key, scene.needle = path, 1, "", ""
    scene.again = "error", ""
    scene.number, scene.row = log.places[0], log.rows[0]
    return round_of(scene, asked_in(scene, ways.ANY_ERROR, unseen.ANY_ERROR), reply)


def full_beyond(scene: Scene) -> Round | None:
    item = alone(scene.writer)
    forget(scene)
    return round_of(scene, item.question, Reply((), item.answer))
