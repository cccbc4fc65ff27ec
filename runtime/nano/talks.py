"""Conversations that go on: two to six questions about the same files, most of them short."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from . import follow, solve, unseen
from . import phrasings as ways
from .configs import any_line
from .files import MemoryFiles
from .log_texts import event
from .logs import Log, make_log
from .marks import ERRORS
from .searches import said_key, some_log, some_settings
from .settings import Setting
from .smalltalk import THANKED
from .smalltalk import beyond as alone
from .solve import CANNOT, Reply
from .writer import AGENT_CHARS, ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer, made

FOLLOW_UPS = "follow"


@dataclass
class Scene:
    """The files of a conversation, and what was last spoken of."""

    writer: Writer
    logs: dict[str, Log] = field(default_factory=dict)
    plain: dict[str, Log] = field(default_factory=dict)
    """Logs of which every line with a mark is an error that counts."""
    items: dict[str, tuple[Setting, ...]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    path: str = ""
    number: int = 0
    row: str = ""
    told: int = 0
    """How many errors of the log have been told."""
    key: str = ""
    needle: str = ""
    found: list[str] = field(default_factory=list)
    setting: tuple[str, Setting] | None = None
    files: MemoryFiles = field(default_factory=lambda: MemoryFiles({}))

    @property
    def rng(self) -> random.Random:
        return self.writer.rng


def _scene(writer: Writer) -> Scene:
    rng, words = writer.rng, writer.words
    scene = Scene(writer)
    size = max(2, min(12, writer.size))
    for _ in range(2):
        path = writer.path(LOG_EXTENSIONS)
        if rng.random() < 0.5:
            log = make_log(
                words, rng.randint(1, rng.choice((size, 60, 3000))), rng.choice((1, 1, 2, 2, 3))
            )
            scene.plain[path] = log
        else:
            log = some_log(writer, rng.randint(1, rng.choice((size, 200, 4000))))
        scene.logs[path] = log
        scene.texts[path] = "\n".join(log.lines) + "\n"
    settings = some_settings(writer, rng.randint(2, size))
    scene.items[settings.path] = settings.items
    scene.texts[settings.path] = settings.text
    join = rng.choice((" = ", "=", ": "))
    keys = list(dict.fromkeys(item.key for item in settings.items))
    keys = rng.sample(keys, rng.randint(1, len(keys)))
    again = [Setting(key, words.value().replace("'", ""), n) for n, key in enumerate(keys, 1)]
    other = words.path(("ini", "conf", "yaml", "env", "toml", "cfg"))
    if other not in scene.texts:
        scene.items[other] = tuple(again)
        scene.texts[other] = "\n".join(f"{i.key}{join}{i.value}" for i in again) + "\n"
    text = writer.path(ALL_EXTENSIONS)
    if text not in scene.texts:
        lines = [rng.choice((any_line, event))(words) for _ in range(rng.randint(2, 30))]
        scene.texts[text] = "\n".join(lines) + "\n"
    scene.files = MemoryFiles(scene.texts, max_chars=AGENT_CHARS)
    return scene


Step = Callable[[Scene], Round | None]


def _ask(scene: Scene, trained: list[str], held_out: list[str], **slots: str) -> str:
    return scene.writer.ask(trained, held_out, **slots)


def _round(scene: Scene, question: str, reply: Reply) -> Round:
    return made(FOLLOW_UPS, question, reply, scene.files)


def _shown(scene: Scene, path: str) -> str:
    return ways.quoted(scene.rng, path, often=0.08)


def _lines(scene: Scene, path: str) -> list[str]:
    return scene.texts[path].removesuffix("\n").split("\n")


# ------------------------------------------------------------------------- questions in full


def _set_error(scene: Scene, path: str) -> Reply | None:
    """The answer about a log's error; the scene then speaks of that log."""
    log = scene.logs.get(path)
    reply = solve.error(scene.files, path, log) if log is not None else None
    if reply is None or log is None:
        return None
    scene.path, scene.told, scene.key, scene.needle = path, min(1, len(log.errors)), "", ""
    scene.number = log.places[0] if log.errors else 0
    scene.row = log.rows[0] if log.errors else ""
    return reply


def full_error(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.logs))
    reply = _set_error(scene, path)
    if reply is None:
        return None
    return _round(scene, _ask(scene, ways.ERROR, unseen.ERROR, f=_shown(scene, path)), reply)


def _set_key(scene: Scene, path: str, key: str) -> Reply | None:
    rows = _lines(scene, path)
    reply = solve.value(scene.files, path, key, scene.items.get(path, ()))
    if reply is None:
        return None
    places = [i for i in scene.items.get(path, ()) if f"{i.key} is {i.value}" == reply.answer]
    scene.path, scene.key, scene.needle, scene.told = path, key, "", 0
    scene.number = places[0].line if len(places) == 1 and len(reply.calls) == 1 else 0
    scene.row = rows[places[0].line - 1] if len(places) == 1 else ""
    return reply


def full_key(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.items))
    key = said_key(scene.writer, scene.items[path])
    reply = _set_key(scene, path, key)
    if reply is None:
        return None
    question = _ask(scene, ways.KEY, unseen.KEY, f=_shown(scene, path), k=key)
    return _round(scene, question, reply)


def _set_line(scene: Scene, path: str, number: int) -> Reply:
    reply = solve.line(scene.files, path, number)
    scene.path, scene.number, scene.key, scene.needle, scene.told = path, number, "", "", 0
    scene.row = ""
    return reply


def full_line(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.texts))
    number = scene.rng.randint(1, len(_lines(scene, path)))
    question = _ask(scene, ways.LINE, unseen.LINE, f=_shown(scene, path), n=str(number))
    return _round(scene, question, _set_line(scene, path, number))


def full_open(scene: Scene) -> Round | None:
    path = scene.rng.choice(list(scene.texts))
    question = _ask(scene, ways.OPEN, unseen.OPEN, f=_shown(scene, path))
    return _round(scene, question, _set_line(scene, path, 1))


def _set_search(scene: Scene, needle: str) -> Reply | None:
    reply = solve.mentions(scene.files, needle)
    result = scene.files.run(reply.calls[0])
    hits = solve.hits_of(result)
    if "\n[cut: " in result or len(hits) > 14:
        return None
    scene.found = solve.mentioned(result)[0]
    scene.needle, scene.key, scene.told = needle, "", 0
    scene.path = scene.found[0] if len(scene.found) == 1 else ""
    scene.number, scene.row = (hits[0][1], hits[0][2]) if len(hits) == 1 else (0, "")
    places = {(path, i.line): i for path, several in scene.items.items() for i in several}
    sets = [(p, places[p, n]) for p, n, _ in hits if (p, n) in places]
    scene.setting = sets[0] if len(sets) == 1 and sets[0][1].key.lower() == needle.lower() else None
    return reply


def _needle(scene: Scene) -> str:
    """A word of the files, or now and then of none."""
    rng = scene.rng
    if rng.random() < 0.12:
        return scene.writer.needle()
    if rng.random() < 0.6:
        return rng.choice(scene.items[rng.choice(list(scene.items))]).key
    rows = _lines(scene, rng.choice(list(scene.texts)))
    parts = [part.strip("\"'.,:;()[]{}<>=") for part in rng.choice(rows).split()]
    parts = [part for part in parts if len(part) > 3 and "\\" not in part]
    return rng.choice(parts) if parts else scene.writer.needle()


def full_search(scene: Scene) -> Round | None:
    needle = _needle(scene)
    reply = _set_search(scene, needle)
    if reply is None:
        return None
    shown = ways.quoted(scene.rng, needle, often=0.15)
    return _round(scene, _ask(scene, ways.SEARCH, unseen.SEARCH, w=shown), reply)


def full_list(scene: Scene) -> Round | None:
    question = _ask(scene, ways.LIST_HERE, unseen.LIST_HERE)
    scene.path = scene.key = scene.needle = scene.row = ""
    scene.number = scene.told = 0
    return _round(scene, question, solve.listing(scene.files))


def full_any_error(scene: Scene) -> Round | None:
    """The first error of all files, where it is the first hit there is."""
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
    scene.number, scene.row = log.places[0], log.rows[0]
    return _round(scene, _ask(scene, ways.ANY_ERROR, unseen.ANY_ERROR), reply)


def full_beyond(scene: Scene) -> Round | None:
    item = alone(scene.writer)
    scene.path = scene.key = scene.needle = scene.row = ""
    scene.number = scene.told = 0
    return _round(scene, item.question, Reply((), item.answer))


# ----------------------------------------------------------------------- questions that go on


def and_key(scene: Scene) -> Round | None:
    if scene.path not in scene.items:
        return None
    key = said_key(scene.writer, scene.items[scene.path])
    path, reply = scene.path, _set_key(scene, scene.path, key)
    if reply is None or not path:
        return None
    return _round(scene, _ask(scene, follow.KEY, unseen.AND_KEY, k=key), reply)


def and_file(scene: Scene) -> Round | None:
    """The same question of another file."""
    rng = scene.rng
    if scene.key and scene.path:
        path = rng.choice([p for p in scene.items if p != scene.path] or [scene.path])
        reply = _set_key(scene, path, scene.key)
    elif scene.told:
        path = rng.choice([p for p in scene.logs if p != scene.path] or [scene.path])
        reply = _set_error(scene, path)
    elif scene.path and scene.number and not scene.needle:
        path = rng.choice([p for p in scene.texts if p != scene.path])
        reply = _set_line(scene, path, scene.number)
    else:
        return None
    if reply is None:
        return None
    return _round(scene, _ask(scene, follow.FILE, unseen.AND_FILE, f=_shown(scene, path)), reply)


def and_line(scene: Scene) -> Round | None:
    if not scene.path:
        return None
    number = scene.rng.randint(1, len(_lines(scene, scene.path)) + 2)
    question = _ask(scene, follow.LINE, unseen.AND_LINE, n=str(number))
    return _round(scene, question, _set_line(scene, scene.path, number))


def next_line(scene: Scene) -> Round | None:
    if not (scene.path and scene.number) or scene.key or scene.needle or scene.told:
        return None
    question = _ask(scene, follow.AFTER, unseen.AND_AFTER)
    return _round(scene, question, _set_line(scene, scene.path, scene.number + 1))


def line_before(scene: Scene) -> Round | None:
    if not (scene.path and scene.number > 1) or scene.key:
        return None
    question = _ask(scene, follow.BEFORE, unseen.AND_BEFORE)
    return _round(scene, question, _set_line(scene, scene.path, scene.number - 1))


def its_error(scene: Scene) -> Round | None:
    if scene.path not in scene.logs or scene.told:
        return None
    reply = _set_error(scene, scene.path)
    if reply is None:
        return None
    return _round(scene, _ask(scene, follow.ERROR, unseen.ITS_ERROR), reply)


def which_line(scene: Scene) -> Round | None:
    """The number is in the result that is already there."""
    if not (scene.path and scene.number and scene.row):
        return None
    answer = f"It is on line {scene.number} of {scene.path}."
    return _round(scene, _ask(scene, follow.WHICH_LINE, unseen.WHICH_LINE), Reply((), answer))


def whole_line(scene: Scene) -> Round | None:
    """When, who, where: the line says it."""
    if not (scene.path and scene.number and 0 < len(scene.row) < 250) or scene.key:
        return None
    answer = f"Line {scene.number} says: {scene.row.strip()}"
    return _round(scene, _ask(scene, follow.WHOLE, unseen.WHOLE), Reply((), answer))


def more_errors(scene: Scene) -> Round | None:
    """The next error of the hits that are already there."""
    log = scene.plain.get(scene.path)
    if log is None or not scene.told:
        return None
    result = scene.files.run(solve.find(ERRORS, scene.path, regex=True))
    hits = solve.hits_of(result)
    if "\n[cut: " in result or {number for _, number, _ in hits} != set(log.places):
        return None
    question = _ask(scene, follow.MORE, unseen.MORE)
    if scene.told >= len(log.errors):
        return _round(scene, question, Reply((), f"There is no other error in {scene.path}."))
    told = scene.told
    scene.told, scene.number, scene.row = told + 1, log.places[told], log.rows[told]
    return _round(scene, question, Reply((), f"The next error is: {log.errors[told]}"))


def and_word(scene: Scene) -> Round | None:
    if not scene.needle:
        return None
    needle = _needle(scene)
    reply = _set_search(scene, needle)
    if reply is None:
        return None
    shown = ways.quoted(scene.rng, needle, often=0.15)
    return _round(scene, _ask(scene, follow.WORD, unseen.AND_WORD, w=shown), reply)


def sets_it(scene: Scene) -> Round | None:
    if not scene.needle or scene.setting is None:
        return None
    path, setting = scene.setting
    scene.path, scene.number, scene.row = path, setting.line, ""
    answer = f"{scene.needle} is set in {path}."
    return _round(scene, _ask(scene, follow.SETS, unseen.SETS), Reply((), answer))


def to_what(scene: Scene) -> Round | None:
    if not scene.needle or scene.setting is None:
        return None
    _, setting = scene.setting
    answer = f"{setting.key} is {setting.value}"
    return _round(scene, _ask(scene, follow.TO_WHAT, unseen.TO_WHAT), Reply((), answer))


def and_folder(scene: Scene) -> Round | None:
    if scene.path or scene.needle:
        return None
    folders = sorted({p.rpartition("/")[0] for p in scene.texts if "/" in p})
    if not folders:
        return None
    folder = scene.rng.choice(folders)
    question = _ask(scene, follow.FOLDER, unseen.AND_FOLDER, d=folder)
    return _round(scene, question, solve.listing(scene.files, folder))


def beyond(scene: Scene) -> Round | None:
    question = _ask(scene, follow.BEYOND, unseen.GO_BEYOND, n=scene.writer.words.number())
    return _round(scene, question, Reply((), CANNOT))


def thanked(scene: Scene) -> Round | None:
    trained, held_out, answer = THANKED
    text = scene.rng.choice(held_out if scene.writer.asks_anew else trained)
    text = text[0].upper() + text[1:] if scene.rng.random() < 0.6 else text
    return _round(scene, text + scene.rng.choice(("", "", ".", "!")), Reply((), answer))


FULL: tuple[tuple[Step, float], ...] = (
    (full_error, 0.22),
    (full_key, 0.26),
    (full_line, 0.12),
    (full_open, 0.04),
    (full_search, 0.18),
    (full_list, 0.07),
    (full_any_error, 0.05),
    (full_beyond, 0.05),
)
# Most of these ask for something that is seldom the case; the more weight they have where it is.
ON: tuple[tuple[Step, float], ...] = (
    (and_key, 0.12),
    (and_file, 0.08),
    (and_line, 0.08),
    (next_line, 0.25),
    (line_before, 0.14),
    (its_error, 0.4),
    (which_line, 0.1),
    (whole_line, 0.25),
    (more_errors, 0.6),
    (and_word, 0.15),
    (sets_it, 1.5),
    (to_what, 2.0),
    (and_folder, 0.3),
    (beyond, 0.06),
    (thanked, 0.03),
)


def talk(writer: Writer) -> list[Round]:
    """Two to six rounds; the first names what it is about, most others do not."""
    rng = writer.rng
    scene = _scene(writer)
    count = rng.choice((2, 2, 3, 3, 4, 5, 6))
    out: list[Round] = []
    while len(out) < count:
        steps = FULL if not out or rng.random() < 0.12 else ON
        for _ in range(40):
            step = rng.choices([s for s, _ in steps], [share for _, share in steps])[0]
            item = step(scene)
            if item is not None:
                out.append(item)
                break
        else:
            return talk(writer)
    return out
