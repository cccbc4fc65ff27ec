"""Conversations of two to six questions about the same files, most of them short."""

from __future__ import annotations

import re
from copy import copy

from . import phrasings as ways
from . import scene as full
from . import short, solve, unseen
from .asides import ASIDES, chatted, list_folder
from .files import Call
from .folders import and_folder, in_folder
from .marks import ERRORS
from .mentions import and_where, and_word, anywhere, sets_it, to_what, word_in_it
from .places import nth, nth_asked
from .returns import back, first_file, folder_after, listed_file, of_part, other_file, twin
from .said import said_key
from .scene import (
    Scene,
    Step,
    asked_in,
    make_scene,
    named,
    pointed,
    round_of,
    rows_of,
    tell_again,
    tell_error,
    tell_key,
    tell_last,
    tell_line,
)
from .smalltalk import THANKED
from .solve import CANNOT, Reply
from .writer import ALL_EXTENSIONS, Round, Writer

# ----------------------------------------------------------------------- questions that go on


def and_key(scene: Scene) -> Round | None:
    if scene.path not in scene.items or scene.needle:  # or it would be a search for the word
        return None
    key = said_key(scene.writer, scene.items[scene.path])
    if key == scene.key:
        return None
    before, path = scene.again, scene.path
    reply = tell_key(scene, path, key)
    if reply is None or not path:
        return None
    listed = short.AND_KEY
    if key.isalpha() and key[1:].islower():  # `and duplex` could be a part of a file's name
        listed = short.A_KEY
        tried = _taken_for_part(scene, key, before)
        if tried and scene.rng.random() < 0.35:
            listed, reply = short.KEY_OR_PART, Reply((*tried, *reply.calls), reply.answer)
    return round_of(scene, asked_in(scene, listed, unseen.AND_KEY, k=key), reply)


def _taken_for_part(scene: Scene, key: str, before: tuple[str, str]) -> tuple[Call, ...]:
    """Return the call that finds no file of that name; none where there may be one."""
    kind, thing = before
    if kind != "key" or key.lower() in full.PARTS:
        return ()
    tried = solve.value(scene.files, key, thing, ())
    if tried is None or not tried.answer.startswith("There is no file "):
        return ()
    return tried.calls


def and_asked(scene: Scene) -> Round | None:
    """Ask for another setting of the current file without its key."""
    path, asks = scene.asks
    asks = tuple(ask for ask in asks if "{f}" not in ask)
    if scene.path != path or not asks:
        return None
    ask = scene.rng.choice(asks)
    ask = scene.rng.choice((ask, ask, f"and {ask[0].lower()}{ask[1:]}"))
    return full.tell_asked(scene, path, ask, lambda _scene, _path, reply: ("", reply))


def and_file(scene: Scene) -> Round | None:
    """Ask the same question of another file."""
    rng = scene.rng
    paths = _others(scene)
    if not paths:
        return None
    path = rng.choice(paths)
    if rng.random() < 0.05:  # one that is not there
        path = scene.writer.path(ALL_EXTENSIONS)
        name = path.rpartition("/")[2]
        if any(name in p or p in path for p in scene.texts):
            return None
    reply = _tell_again(scene, path)
    if reply is None:
        return None
    name, reply = named(scene, path, reply) if path in scene.texts else (path, reply)
    return round_of(scene, asked_in(scene, short.AND_FILE, unseen.AND_FILE, f=name), reply)


def _others(scene: Scene) -> list[str]:
    """Return other files for the last question; mostly of the same kind."""
    kind = scene.again[0]
    if not kind or (kind in ("line", "last") and scene.rng.random() < 0.7):  # seldom asked
        return []
    of_kind: dict[str, list[str]] = {"error": list(scene.logs), "key": list(scene.items)}
    paths = of_kind.get(kind, list(scene.texts))
    if kind == "error" and scene.rng.random() < 0.08:
        paths = list(scene.texts)
    if kind == "line" and scene.rng.random() < 0.8:  # mostly one that has it
        paths = [path for path in paths if len(rows_of(scene, path)) >= int(scene.again[1])]
    return [path for path in paths if path != scene.path]


def _tell_again(scene: Scene, path: str) -> Reply | None:
    """Return the reply to the last question about another file, which may be missing."""
    again = kind, thing = scene.again
    there = path in scene.texts
    if there and (kind != "error" or path in scene.logs):
        return tell_again(scene, path)
    reply: Reply | None
    if kind == "error":
        reply = solve.error(scene.files, path, None)
    elif kind == "key":
        reply = solve.value(scene.files, path, thing, ())
    elif kind == "last":
        reply = solve.last_line(scene.files, path)
    elif kind == "where":
        reply = solve.where(scene.files, thing, path)
    else:
        reply = solve.line(scene.files, path, int(thing))
    if reply is not None:
        full.forget(scene)
        scene.path, scene.again = path if there else "", again
    return reply


def and_part(scene: Scene) -> Round | None:
    """Ask the same of a file named by a part of its name, which the tool resolves."""
    rng = scene.rng
    kind = scene.again[0]
    if not scene.path or not kind:
        return None
    paths = [p for p in _others(scene) if pointed(scene, p)]
    lists = short.PART + short.PART_LOG * 2 if kind == "error" else short.PART
    lists = short.PART_NOT_WORD if kind == "where" else lists
    if rng.random() < 0.1 and kind in ("key", "error"):
        lists = short.PART_NOT_KEY if kind == "key" else lists
        part = rng.choice(full.PARTS if kind == "key" else full.PARTS_OF_LOGS)
        if any(part in p for p in scene.texts):
            return None
        reply = _tell_again(scene, part)
        question = asked_in(scene, lists, lists, p=part)
        return None if reply is None else round_of(scene, question, reply)
    if not paths:
        return None
    path = rng.choice(paths)
    part = pointed(scene, path)
    found = _tell_again(scene, path)
    reply = None if found is None else solve.by_name(scene.files, part, path, found)
    if reply is None:
        return None
    return round_of(scene, asked_in(scene, lists, lists, p=part), reply)


def and_line(scene: Scene) -> Round | None:
    if not scene.path:
        return None
    number = scene.rng.randint(1, len(rows_of(scene, scene.path)) + 2)
    question = asked_in(scene, short.AND_LINE, unseen.AND_LINE, n=str(number))
    return round_of(scene, question, tell_line(scene, scene.path, number))


def next_line(scene: Scene) -> Round | None:
    if not (scene.path and 0 < scene.number <= len(rows_of(scene, scene.path))):
        return None
    trained = [w for w in short.AND_AFTER if not _at_error(scene) or not re.search(_NEXT_ONE, w)]
    question = asked_in(scene, trained, unseen.AND_AFTER)
    return round_of(scene, question, _beside(scene, 1))


def line_before(scene: Scene) -> Round | None:
    if not (scene.path and 1 < scene.number <= len(rows_of(scene, scene.path))):
        return None
    question = asked_in(scene, ways.AND_BEFORE, unseen.AND_BEFORE)
    return round_of(scene, question, _beside(scene, -1))


def _beside(scene: Scene, step: int) -> Reply:
    """Ask for an adjacent line, without a change of subject."""
    key, told, again = scene.key, scene.told, scene.again
    reply = tell_line(scene, scene.path, scene.number + step)
    scene.key, scene.told = key, told
    scene.again = again if again[0] in ("error", "key") else scene.again
    return reply


_AT_AN_EDGE = "line|end|bottom|top|start|begin|open|clos|finish"


def edge_line(scene: Scene) -> Round | None:
    """Ask for the first or the last line of the current file."""
    if not scene.path:
        return None
    path, last, told = scene.path, scene.rng.random() < 0.6, _at_error(scene)
    reply = tell_last(scene, path) if last else tell_line(scene, path, 1)
    listed = ways.AND_LAST if last else ways.AND_FIRST
    if told or scene.listed:  # `the last one` would be an error, or a file
        listed = [way for way in listed if re.search(_AT_AN_EDGE, way)]
    return round_of(scene, asked_in(scene, listed, listed), reply)


def its_error(scene: Scene) -> Round | None:
    if scene.path not in scene.logs or scene.told or scene.again[0] == "error":
        return None
    reply = tell_error(scene, scene.path)
    if reply is None:
        return None
    return round_of(scene, asked_in(scene, short.ITS_ERROR, unseen.ITS_ERROR), reply)


def which_line(scene: Scene) -> Round | None:
    """Ask for the number in the result that is already there."""
    if not (scene.path and scene.number and scene.row):
        return None
    answer = f"It is on line {scene.number} of {scene.path}."
    question = asked_in(scene, short.AND_LINE_OF, unseen.WHICH_LINE)
    return round_of(scene, question, Reply((), answer))


_WHEN = "when|time|who|which|host|day|log"


def whole_line(scene: Scene) -> Round | None:
    """Ask when, who, where: the line has the answer."""
    if not (scene.path and scene.number and 0 < len(scene.row) < 250):
        return None
    answer = f"Line {scene.number} says: {scene.row.strip()}"
    listed = short.AND_WHOLE
    if scene.key:  # a setting has no time and no author
        listed = [w for w in listed if re.search(r"\bline\b", w) and not re.search(_WHEN, w)]
    return round_of(scene, asked_in(scene, listed, unseen.WHOLE), Reply((), answer))


_NEXT_LINE = ("what comes next", "and then")
_NEXT_ONE = r"next one|^(and )?(the )?next( please)?$"
"""What is meant by it, an error or a line, what was spoken of last decides."""
_AN_ERROR = "error|problem|fail|wrong|broke|complain"


def _at_error(scene: Scene) -> bool:
    """Return whether the last answer was an error, and not an adjacent line."""
    log = scene.logs.get(scene.path)
    told = scene.told and log is not None and log.places[: scene.told]
    return bool(told) and scene.number == told[-1]


def more_errors(scene: Scene) -> Round | None:
    """Ask for the next error of the hits that are already there."""
    log = scene.logs.get(scene.path)
    if log is None or not scene.told or scene.told > len(log.errors):
        return None
    result = scene.files.run(solve.find(ERRORS, scene.path, regex=True))
    hits = {number for _, number, _ in solve.hits_of(result)}
    if solve.MORE in result or not hits >= set(log.places):
        return None
    if hits > set(log.places) and scene.rng.random() < 0.5:  # it has to tell harmless ones apart
        return None
    mark = "next|second|another" if scene.rng.random() < 0.4 else ""
    mark = mark if _at_error(scene) else _AN_ERROR
    third = scene.told == 2 and scene.rng.random() < 0.25
    if scene.told == 1 and len(log.errors) != 2 and scene.rng.random() < 0.08:
        third, scene.told = True, min(2, len(log.errors))  # the second was not asked for
    trained = [w for w in short.AND_MORE if re.search(mark, w) and w not in _NEXT_LINE]
    if scene.told > 1:  # the second one was told
        trained = [w for w in trained if "second" not in w] or short.MORE
    trained = short.THIRD if third else trained
    question = asked_in(scene, trained, unseen.MORE)
    if scene.told == len(log.errors):
        scene.told += 1
        return round_of(scene, question, Reply((), f"There is no other error in {scene.path}."))
    told = scene.told
    scene.told, scene.number, scene.row = told + 1, log.places[told], log.rows[told]
    return round_of(scene, question, Reply((), f"The next error is: {log.errors[told]}"))


def no_more(scene: Scene) -> Round | None:
    """Ask what else is wrong with a log that has no error."""
    log = scene.logs.get(scene.path)
    if log is None or scene.told or scene.again[0] != "error" or log.errors:
        return None
    trained = [w for w in short.AND_MORE if w not in _NEXT_LINE and not re.search("second", w)]
    question = asked_in(scene, trained, unseen.MORE)
    return round_of(scene, question, Reply((), f"There is no other error in {scene.path}."))


def other_log(scene: Scene) -> Round | None:
    """Ask the same of the only other log of the folder, which is listed for it."""
    folder = scene.path.rpartition("/")[0]
    if scene.path not in scene.logs or scene.again[0] != "error":
        return None
    logs = [p for p in scene.logs if p.rpartition("/")[0] == folder and p.endswith(".log")]
    if len(logs) != 2 or not scene.path.endswith(".log"):
        return None
    listing = solve.listing(scene.files, folder or ".")
    names = scene.files.run(listing.calls[0]).split("\n")
    if sum(name.endswith(".log") for name in names) != 2:
        return None
    other = next(path for path in logs if path != scene.path)
    if folder and not scene.logs[other].errors:  # its whole path would stand nowhere
        return None
    found = tell_error(scene, other)
    if found is None:
        return None
    question = asked_in(scene, short.OTHER_LOG, short.OTHER_LOG)
    return round_of(scene, question, Reply((*listing.calls, *found.calls), found.answer))


def which_file(scene: Scene) -> Round | None:
    """Ask for the file in the result that is already there."""
    if scene.needle and scene.setting:  # `where is it set` is another question then
        return None
    if not (scene.path and scene.number and scene.row):
        return None
    answer = f"It is on line {scene.number} of {scene.path}."
    return round_of(scene, asked_in(scene, ways.WHICH_FILE, ways.WHICH_FILE), Reply((), answer))


def beyond(scene: Scene) -> Round | None:
    listed = [
        way for way in short.GO_BEYOND if scene.told or not re.search("fail|crash|broke", way)
    ]
    question = asked_in(scene, listed, unseen.GO_BEYOND, n=scene.writer.words.number())
    return round_of(scene, question, Reply((), CANNOT))


def thanked(scene: Scene) -> Round | None:
    trained, held_out, answer = THANKED
    text = scene.rng.choice(held_out if scene.writer.asks_anew else trained)
    text = text[0].upper() + text[1:] if scene.rng.random() < 0.6 else text
    return round_of(scene, text + scene.rng.choice(("", "", ".", "!")), Reply((), answer))


FULL: tuple[tuple[Step, float], ...] = (
    (full.full_error, 0.26),
    (full.full_key, 0.22),
    (full.full_asked, 0.2),
    (full.full_line, 0.12),
    (full.full_open, 0.04),
    (full.full_search, 0.15),
    (full.full_where, 0.08),
    (full.full_any_key, 0.08),
    (full.full_list, 0.07),
    (full.full_last, 0.02),
    (full.full_any_error, 0.05),
    (full.full_beyond, 0.05),
)
# Most of these ask for something that is seldom the case; the more weight they have where it is.
ON: tuple[tuple[Step, float], ...] = (
    (and_key, 0.75),
    (and_asked, 1.0),
    (and_file, 0.6),
    (and_part, 0.9),
    (back, 0.2),
    (and_line, 0.06),
    (next_line, 0.35),
    (line_before, 0.4),
    (edge_line, 0.12),
    (its_error, 0.5),
    (which_line, 0.3),
    (whole_line, 0.35),
    (more_errors, 3.0),
    (no_more, 0.6),
    (other_log, 3.0),
    (word_in_it, 0.15),
    (anywhere, 0.25),
    (and_word, 0.9),
    (and_where, 0.7),
    (nth, 0.3),
    (nth_asked, 0.6),
    (listed_file, 1.0),
    (other_file, 1.2),
    (first_file, 0.8),
    (of_part, 0.18),
    (twin, 3.0),
    (folder_after, 0.06),
    (which_file, 0.12),
    (sets_it, 4.0),
    (to_what, 4.0),
    (and_folder, 0.15),
    (in_folder, 1.6),
    (beyond, 0.2),
    (thanked, 0.05),
)

_KEEPS_LIST = (full.full_list, list_folder, folder_after, listed_file, nth, thanked, chatted)


def talk(writer: Writer) -> list[Round]:
    """Generate two to six rounds; the first names its subject, most others do not."""
    rng = writer.rng
    scene = make_scene(writer)
    count = rng.choice((2, 2, 3, 3, 4, 5, 6))
    out: list[Round] = []
    while len(out) < count:
        on = scene.path or scene.needle or scene.again[0] or scene.listed
        steps = ON if on and rng.random() > (0.35 if scene.listed else 0.08) else FULL
        if rng.random() < 0.08:
            steps = ASIDES
        for _ in range(40):
            step = rng.choices([s for s, _ in steps], [share for _, share in steps])[0]
            before = copy(scene)
            item = step(scene)
            if item is None:  # it may have begun to speak of something else
                scene = before
            else:
                if step not in _KEEPS_LIST:
                    scene.listed = []
                out.append(item)
                break
        else:
            return talk(writer)
    return out
