"""Follow-up questions that change the subject: an earlier file, a folder after a file, a listed
file, a setting of a file named by a part of its name."""

from __future__ import annotations

import re

from . import phrasings as ways
from . import scene as full
from . import short, solve
from .asked import asked
from .said import said_key
from .scene import (
    Scene,
    asked_in,
    forget,
    named,
    named_last,
    pointed,
    round_of,
    rows_of,
    tell_again,
    tell_key,
    tell_line,
)
from .solve import Reply
from .writer import Round

OTHER_FILE, FIRST_FILE = asked("OTHER_FILE"), asked("FIRST_FILE")
OF_PART, LISTED_FILE = asked("OF_PART"), asked("LISTED_FILE")
A_FOLDER = [way for way in ways.AND_FOLDER if re.search(r"folder|director|files|^(list|ls) ", way)]
"""Said after a file was spoken of, the others could mean a part of a file's name."""


def _again(scene: Scene, path: str) -> Reply | None:
    """Repeat the last question, unless about an error, for another file."""
    kind, thing = scene.again
    if kind in ("", "error") or (kind == "line" and int(thing) > len(rows_of(scene, path))):
        return None
    return tell_again(scene, path)


def _asked_back(scene: Scene, path: str) -> tuple[list[str], Reply | None, dict[str, str]]:
    """Return the questions about a file that is returned to: ways, the reply, their slots."""
    rng = scene.rng
    if path in scene.items:
        key = said_key(scene.writer, scene.items[path])
        return short.BACK_KEY, tell_key(scene, path, key), {"k": key}
    if path in scene.logs and rng.random() < 0.7:
        return short.BACK_ERROR, full.tell_error(scene, path), {}
    number = rng.randint(1, len(rows_of(scene, path)))
    return short.BACK_LINE, tell_line(scene, path, number), {"n": str(number)}


def _turned(scene: Scene, to: list[str], listed: list[str]) -> str:
    """Write `back to a.log, line 3`."""
    choice = scene.rng.choice
    return choice(to) + choice((", ", ", ", ": ", " - ", ". ")) + choice(listed)


def back(scene: Scene) -> Round | None:
    """Return to an earlier file by its name."""
    paths = [p for p in scene.texts if p in scene.known and p != scene.path]
    if not paths:
        return None
    path = scene.rng.choice(paths)
    listed, reply, slots = _asked_back(scene, path)
    if reply is None:
        return None
    slots["f"], reply = named(scene, path, reply)
    way = _turned(scene, short.BACK, listed)
    return round_of(scene, asked_in(scene, [way, way], [way, way], **slots), reply)


def _only_files(scene: Scene) -> bool:
    """Return whether only files were mentioned: `the first file` is not of a list."""
    return not (scene.listed or scene.folder or scene.vague) and len(scene.found) < 2


def other_file(scene: Scene) -> Round | None:
    """Ask the same of the other one of two files."""
    if len(scene.visited) != 2 or scene.path not in scene.visited or not _only_files(scene):
        return None
    path = next(path for path in scene.visited if path != scene.path)
    reply = _again(scene, path)
    return reply and round_of(scene, asked_in(scene, OTHER_FILE, OTHER_FILE), reply)


def first_file(scene: Scene) -> Round | None:
    """Return to the first file, for the same or for something else."""
    if len(scene.visited) < 2 or scene.path == scene.visited[0] or not _only_files(scene):
        return None
    path = scene.visited[0]
    if scene.path and scene.rng.random() < 0.3 and (reply := _again(scene, path)) is not None:
        return round_of(scene, asked_in(scene, FIRST_FILE, FIRST_FILE), reply)
    listed, reply, slots = _asked_back(scene, path)
    if reply is None:
        return None
    way = _turned(scene, FIRST_FILE, listed)
    return round_of(scene, asked_in(scene, [way], [way], **slots), reply)


def of_part(scene: Scene) -> Round | None:
    """Ask for a setting of a file named by a part of its name; sometimes a missing one."""
    rng = scene.rng
    paths = [p for p in scene.items if p != scene.path and pointed(scene, p)]
    if not paths or not scene.known:
        return None
    path = rng.choice(paths)
    part = pointed(scene, path)
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


def twin(scene: Scene) -> Round | None:
    """Ask the same of the file of that name in another folder."""
    folder, _, name = scene.path.rpartition("/")
    others = [p for p in scene.texts if p != scene.path and p.rpartition("/")[2] == name]
    if not folder or len(others) != 1 or "/" not in others[0]:
        return None
    reply = _again(scene, others[0])
    place = others[0].rpartition("/")[0]
    return reply and round_of(scene, asked_in(scene, short.TWIN, short.TWIN, d=place), reply)


def folder_after(scene: Scene) -> Round | None:
    """Ask for a folder after a file, and call it a folder."""
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
    """Ask for the first line of a listed file, by its name or a part of it."""
    rng = scene.rng
    paths = [path for path in scene.listed if path in scene.texts]
    if not paths or scene.path:
        return None
    path = rng.choice(paths)
    reply: Reply | None = tell_line(scene, path, 1)
    part = pointed(scene, path)
    if part and rng.random() < 0.4:
        listed = [way for way in LISTED_FILE if "{p}" in way]
        reply = solve.by_name(scene.files, part, path, reply)
        return reply and round_of(scene, asked_in(scene, listed, listed, p=part), reply)
    name, reply = named_last(scene, path, reply)
    listed = [way for way in LISTED_FILE if "{p}" not in way]
    return round_of(scene, asked_in(scene, listed, listed, f=name), reply)
