"""Follow-up questions about a folder: another one, or a file of the listed one."""

from __future__ import annotations

from . import phrasings as ways
from . import short, solve, unseen
from .said import said_key
from .scene import Scene, asked_in, named_last, round_of, rows_of, tell_error, tell_key, tell_line
from .solve import Reply
from .writer import Round


def and_folder(scene: Scene) -> Round | None:
    if scene.path or scene.needle:
        return None
    folders = sorted({p.rpartition("/")[0] for p in scene.texts if "/" in p})
    if not folders:
        return None
    folder = scene.rng.choice(folders)
    question = asked_in(scene, short.AND_FOLDER, unseen.AND_FOLDER, d=folder)
    scene.folder = folder
    scene.known |= {p for p in scene.texts if p.rpartition("/")[0] == folder}
    return round_of(scene, question, solve.listing(scene.files, folder))


def in_folder(scene: Scene) -> Round | None:
    """Ask for a file of the last listing, by its name or as its only one; or an earlier one."""
    rng = scene.rng
    beside = scene.folder + "/"
    listed = [  # what lies deeper was not shown
        path
        for path in scene.texts
        if scene.folder and path.startswith(beside) and "/" not in path[len(beside) :]
    ]
    inside = listed
    if not inside and rng.random() < 0.2:
        inside = [p for p in scene.texts if p in scene.known and "/" in p and p != scene.path]
    if not inside:
        return None
    path = rng.choice(inside)
    number = rng.randint(1, len(rows_of(scene, path)))
    if len(listed) == 1 and rng.random() < 0.6:
        scene.path, scene.number, scene.key, scene.needle, scene.told = path, number, "", "", 0
        if path in scene.logs and rng.random() < 0.4:
            reply = tell_error(scene, path)
            question = asked_in(scene, ways.ITS_ERROR, ways.ITS_ERROR)
            return None if reply is None else round_of(scene, question, reply)
        question = asked_in(scene, ways.AND_LINE, ways.AND_LINE, n=str(number))
        return round_of(scene, question, tell_line(scene, path, number))
    slots: dict[str, str] = {}
    reply: Reply | None
    if path in scene.logs and rng.random() < 0.4:
        listed_ways, reply = ways.ERROR, tell_error(scene, path)
    elif path in scene.items and rng.random() < 0.7:
        slots["k"] = said_key(scene.writer, scene.items[path])
        listed_ways, reply = ways.KEY, tell_key(scene, path, slots["k"])
    elif rng.random() < 0.5:
        listed_ways, reply = ways.OPEN, tell_line(scene, path, 1)
    else:
        slots["n"] = str(number)
        listed_ways, reply = ways.LINE, tell_line(scene, path, number)
    if reply is None:
        return None
    slots["f"], reply = named_last(scene, path, reply)
    return round_of(scene, asked_in(scene, listed_ways, listed_ways, **slots), reply)
