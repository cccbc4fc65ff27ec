"""Conversations that go on with a folder: another one, or a file of the one that was listed."""

from __future__ import annotations

from . import phrasings as ways
from . import short, solve, unseen
from .scene import Scene, asked_in, round_of, rows_of, tell_error, tell_key, tell_line
from .searches import said_key
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
    """A file of the folder that was listed last, by its name alone or as the only one there is;
    or one that was spoken of before."""
    rng = scene.rng
    listed = [p for p in scene.texts if scene.folder and p.startswith(scene.folder + "/")]
    inside = listed
    if not inside and rng.random() < 0.2:
        inside = [p for p in scene.texts if p in scene.known and "/" in p and p != scene.path]
    if not inside:
        return None
    path = rng.choice(inside)
    name = path[len(scene.folder) + 1 :] if listed else path.rpartition("/")[2]
    if "/" in name or [p.rpartition("/")[2] for p in scene.texts].count(name) > 1:
        return None
    number = rng.randint(1, len(rows_of(scene, path)))
    if len(listed) == 1 and rng.random() < 0.6:
        scene.path, scene.number, scene.key, scene.needle, scene.told = path, number, "", "", 0
        if path in scene.logs and rng.random() < 0.4:
            reply = tell_error(scene, path)
            question = asked_in(scene, ways.ITS_ERROR, ways.ITS_ERROR)
            return None if reply is None else round_of(scene, question, reply)
        question = asked_in(scene, ways.AND_LINE, ways.AND_LINE, n=str(number))
        return round_of(scene, question, tell_line(scene, path, number))
    if path in scene.logs and rng.random() < 0.4:
        reply = tell_error(scene, path)
        question = asked_in(scene, ways.ERROR, ways.ERROR, f=name)
        return None if reply is None else round_of(scene, question, reply)
    if path in scene.items and rng.random() < 0.7:
        key = said_key(scene.writer, scene.items[path])
        reply = tell_key(scene, path, key)
        question = asked_in(scene, ways.KEY, ways.KEY, f=name, k=key)
        return None if reply is None else round_of(scene, question, reply)
    if rng.random() < 0.5:
        question = asked_in(scene, ways.OPEN, ways.OPEN, f=name)
        return round_of(scene, question, tell_line(scene, path, 1))
    question = asked_in(scene, ways.LINE, ways.LINE, f=name, n=str(number))
    return round_of(scene, question, tell_line(scene, path, number))
