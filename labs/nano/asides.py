"""Interjections between a conversation's questions: another folder, a missing file, small talk.

Each is asked in full, so that it has one answer whatever was spoken of before.
"""

from __future__ import annotations

import re

from . import phrasings as ways
from . import scene as full
from . import solve, unseen
from .manner import quoted
from .scene import Scene, Step, asked_in, forget, round_of, some_needle
from .smalltalk import beyond, chat
from .solve import Reply
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, called


def _folders(scene: Scene) -> list[str]:
    """Return the folders that files are in, at any depth."""
    found = set()
    for path in scene.texts:
        parts = path.split("/")[:-1]
        found |= {"/".join(parts[:depth]) for depth in range(1, len(parts) + 1)}
    return sorted(found)


def list_folder(scene: Scene) -> Round | None:
    """Ask what a folder holds: that one, not the workspace."""
    rng, folders = scene.rng, _folders(scene)
    if not folders and rng.random() < 0.7:
        return None
    there = bool(folders) and rng.random() < 0.9
    folder = rng.choice(folders) if there else scene.writer.words.folder()
    reply = solve.listing(scene.files, folder)
    asked = folder
    if there:
        asked, reply = called(scene.writer, scene.files, folder, reply, alone=True)
    shown = quoted(rng, asked)
    forget(scene)
    scene.folder = folder if there else ""
    names = scene.files.run(reply.calls[-1]).split("\n") if there else []
    scene.listed = [f"{folder}/{name}" for name in names]
    scene.known |= {p for p in scene.texts if there and p.rpartition("/")[0] == folder}
    return round_of(scene, asked_in(scene, ways.LIST, unseen.LIST, d=shown), reply)


def search_folder(scene: Scene) -> Round | None:
    """Ask which files of a folder mention a word."""
    folders = _folders(scene)
    if not folders:
        return None
    folder, needle = scene.rng.choice(folders), some_needle(scene)
    reply = solve.mentions(scene.files, needle, folder)
    if "[cut: " in scene.files.run(reply.calls[0]) or len(reply.answer) > 300:
        return None
    shown = quoted(scene.rng, needle, often=0.25)
    forget(scene)
    question = asked_in(scene, ways.SEARCH_IN, unseen.SEARCH_IN, w=shown, d=folder)
    return round_of(scene, question, reply)


def not_there(scene: Scene) -> Round | None:
    """Ask for a file that does not exist, of the same kinds as those that do."""
    rng, writer, files = scene.rng, scene.writer, scene.files
    roll = rng.random()
    path = writer.path(LOG_EXTENSIONS if roll < 0.3 else ALL_EXTENSIONS)
    name = path.rpartition("/")[2]
    if any(name in known or known in path for known in scene.texts):
        return None
    shown = quoted(rng, path, often=0.08)
    reply: Reply | None
    if roll < 0.3:
        reply = solve.error(files, path, None)
        question = asked_in(scene, ways.ERROR, unseen.ERROR, f=shown)
    elif roll < 0.55:
        number = rng.randint(1, 60)
        reply = solve.line(files, path, number)
        question = asked_in(scene, ways.LINE, unseen.LINE, f=shown, n=str(number))
    elif roll < 0.65:
        reply = solve.last_line(files, path)
        question = asked_in(scene, ways.LAST, unseen.LAST, f=shown)
    elif roll < 0.85 and "." in name[1:]:
        reply = solve.line(files, path, 1)
        question = asked_in(scene, ways.OPEN, unseen.OPEN, f=shown)
    else:
        needle = some_needle(scene)
        reply = solve.where(files, needle, path)
        question = asked_in(scene, ways.WHERE_ALONE, unseen.WHERE, w=needle, f=shown)
    if reply is None:
        return None
    forget(scene)
    scene.folder = ""
    return round_of(scene, question, reply)


def chatted(scene: Scene) -> Round:
    """Make small talk, which does not change the subject."""
    item = chat(scene.writer)
    return round_of(scene, item.question, Reply((), item.answer))


def aside_beyond(scene: Scene) -> Round | None:
    """Ask a question beyond nano that names no file, which does not change the subject."""
    item = beyond(scene.writer)
    if re.search(r"\w\.\w|/|\b(file|log|folder|line)", item.question):
        return None
    return round_of(scene, item.question, Reply((), item.answer))


ASIDES: tuple[tuple[Step, float], ...] = (
    (list_folder, 0.4),
    (search_folder, 0.15),
    (not_there, 0.2),
    (chatted, 0.25),
    (full.full_beyond, 0.3),
    (aside_beyond, 0.55),
)
