"""Conversations that turn to something else: another file without its name, a folder after a
file, a file of a listing, a setting of a file that is named by a part of its name."""

from __future__ import annotations

import re

from ...tools.formats import elsewhere
from . import phrasings as ways
from . import scene as full
from . import short, solve
from .asked import asked
from .files import Call
from .scene import (
    Scene,
    asked_in,
    forget,
    named_last,
    part_of,
    round_of,
    rows_of,
    tell_key,
    tell_last,
    tell_line,
    tell_where,
)
from .searches import said_key
from .smalltalk import beyond
from .solve import Reply
from .writer import Round

OTHER_FILE, FIRST_FILE = asked("OTHER_FILE"), asked("FIRST_FILE")
OF_PART, LISTED_FILE = asked("OF_PART"), asked("LISTED_FILE")
A_FOLDER = [way for way in ways.AND_FOLDER if re.search(r"folder|director|files|^(list|ls) ", way)]
"""Said after a file was spoken of, the others could mean a part of a file's name."""


def _again(scene: Scene, path: str) -> Reply | None:
    """The last question, but for one about an error, of another file."""
    kind, thing = scene.again
    if kind == "key":
        return tell_key(scene, path, thing)
    if kind == "last":
        return tell_last(scene, path)
    if kind == "where":
        return tell_where(scene, path, thing)
    if kind == "line" and int(thing) <= len(rows_of(scene, path)):
        return tell_line(scene, path, int(thing))
    return None


def _only_files(scene: Scene) -> bool:
    """Whether nothing but files was spoken of: `the first file` is none of a list."""
    return not (scene.listed or scene.folder or scene.vague) and len(scene.found) < 2


def other_file(scene: Scene) -> Round | None:
    """The same of the other one of two files that were spoken of."""
    if len(scene.visited) != 2 or scene.path not in scene.visited or not _only_files(scene):
        return None
    path = next(path for path in scene.visited if path != scene.path)
    reply = _again(scene, path)
    return reply and round_of(scene, asked_in(scene, OTHER_FILE, OTHER_FILE), reply)


def first_file(scene: Scene) -> Round | None:
    """Back to the file that was spoken of first, for the same or for something else."""
    rng = scene.rng
    if len(scene.visited) < 2 or scene.path == scene.visited[0] or not _only_files(scene):
        return None
    path = scene.visited[0]
    if scene.path and rng.random() < 0.3 and (reply := _again(scene, path)) is not None:
        return round_of(scene, asked_in(scene, FIRST_FILE, FIRST_FILE), reply)
    slots: dict[str, str] = {}
    reply = None
    if path in scene.items:
        slots["k"] = said_key(scene.writer, scene.items[path])
        listed, reply = short.BACK_KEY, tell_key(scene, path, slots["k"])
    elif path in scene.logs and rng.random() < 0.6:
        listed, reply = short.BACK_ERROR, full.tell_error(scene, path)
    else:
        slots["n"] = str(rng.randint(1, len(rows_of(scene, path))))
        listed, reply = short.BACK_LINE, tell_line(scene, path, int(slots["n"]))
    if reply is None:
        return None
    way = rng.choice(FIRST_FILE) + rng.choice((", ", ", ", ": ", " - ", ". ")) + rng.choice(listed)
    return round_of(scene, asked_in(scene, [way], [way], **slots), reply)


def _pointed(scene: Scene, path: str) -> str:
    """A part of a file's name of which the tools say that it is this file."""
    part = part_of(scene, path)
    if not part or part == path:
        return ""
    told = scene.files.run(Call("read_file", {"path": part}))
    return part if told.endswith(elsewhere([path])) else ""


def of_part(scene: Scene) -> Round | None:
    """A setting of a file that is named by a part of its name; now and then one it has not."""
    rng = scene.rng
    paths = [p for p in scene.items if p != scene.path and _pointed(scene, p)]
    if not paths or not scene.known:
        return None
    path = rng.choice(paths)
    part = _pointed(scene, path)
    source = path if rng.random() < 0.8 else rng.choice(list(scene.items))
    key = said_key(scene.writer, scene.items[source])
    found = tell_key(scene, path, key)
    reply = None if found is None else solve.by_name(scene.files, part, path, found)
    if reply is None:
        return None
    # `port in cache` could be a heading's: other words than those for places go with `file`.
    named = part in full.PARTS
    listed = [way for way in OF_PART if named or re.search(r"\{p\} (one|file|config)", way)]
    return round_of(scene, asked_in(scene, listed, listed, p=part, k=key), reply)


def folder_after(scene: Scene) -> Round | None:
    """A folder, after a file was spoken of: it is called one."""
    folders = sorted({p.rpartition("/")[0] for p in scene.texts if "/" in p})
    if not folders or not (scene.path or scene.needle):
        return None
    folder = scene.rng.choice(folders)
    reply = solve.listing(scene.files, folder)
    names = scene.files.run(reply.calls[-1]).split("\n")
    forget(scene)
    scene.folder, scene.listed = folder, [f"{folder}/{name}" for name in names]
    scene.known |= {p for p in scene.texts if p.rpartition("/")[0] == folder}
    return round_of(scene, asked_in(scene, A_FOLDER, A_FOLDER, d=folder), reply)


def listed_file(scene: Scene) -> Round | None:
    """A file of what was just listed, by no more than its name or a part of it: its first line."""
    rng = scene.rng
    paths = [p for p in scene.listed if p in scene.texts and "." in p.rpartition("/")[2][1:]]
    if not paths or scene.path:
        return None
    path = rng.choice(paths)
    reply: Reply | None = tell_line(scene, path, 1)
    part = _pointed(scene, path)
    if part and rng.random() < 0.4:
        listed = [way for way in LISTED_FILE if "{p}" in way]
        reply = solve.by_name(scene.files, part, path, reply)
        return reply and round_of(scene, asked_in(scene, listed, listed, p=part), reply)
    name, reply = named_last(scene, path, reply)
    listed = [way for way in LISTED_FILE if "{p}" not in way]
    return round_of(scene, asked_in(scene, listed, listed, f=name), reply)


def aside_beyond(scene: Scene) -> Round | None:
    """A question beyond it that names no file: what was spoken of stays what it was."""
    item = beyond(scene.writer)
    if re.search(r"\w\.\w|/|\b(file|log|folder|line)", item.question):
        return None
    return round_of(scene, item.question, Reply((), item.answer))
