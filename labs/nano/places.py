"""Follow-up questions about a file by its index in a list: the second one, number three."""

from __future__ import annotations

import random
import re

from . import phrasings as ways
from .composed import combine
from .composed import ways as ways_of
from .numbers import CARDINALS, ORDINALS, ordinal
from .said import said_key
from .scene import (
    Scene,
    asked_in,
    round_of,
    rows_of,
    tell_error,
    tell_key,
    tell_last,
    tell_line,
)
from .solve import Reply
from .writer import Round

MOST = 6
"""Places that are said: of a longer list these, and the last."""
_ORDINALS, _CARDINALS = ORDINALS[:MOST], CARDINALS[:MOST]
_NUMBERED = re.compile(rf"(?:\bnumber |\bno\.? ?|#)([1-{MOST}]|{'|'.join(_CARDINALS)})\b")
_IN_TURN = re.compile(rf"\b((?:{'|'.join(_ORDINALS)})\b|[1-{MOST}](?=st|nd|rd|th))")
_PHRASE = re.compile(r"\b(?:the )?(second|third)( one| file)?\b")

KEY = [
    *ways_of(
        "{k} in {p}|what's {k} in {p}|{p}, {k}|{p}, its {k}|and {k} of {p}|what's the {k} in {p}|"
        "what does {p} have for {k}|{p}: {k}|{k} from {p}|tell me {k} from {p}|open {p}, {k}|"
        "in {p}, what is {k}|which {k} does {p} set|what is {k} set to in {p}|{k} of {p} please|"
        "what {k} does {p} have|I need {k} from {p}|{p} has which {k}|{p}, what's {k} there|"
        "does {p} set {k}|in {p} what's the {k}|look in {p} for {k}|{p} and its {k}"
    ),
    *combine("_ {k} _ {p}", "what is|and|what about|give me|show me|check|the", "in|of|from"),
]
ERROR = [
    *ways_of(
        "any errors in {p}|{p}, any errors|is {p} clean|did anything fail in {p}|{p} clean|"
        "what went wrong in {p}|what's the error in {p}|{p}: what failed|check {p} for errors|"
        "errors in {p}|and the error in {p}|what's wrong in {p}|anything wrong in {p}|"
        "{p}, what broke|has {p} got an error|what does {p} complain about|does {p} show an error|"
        "did {p} fail|why did {p} fail|what failed in {p}|{p}, is it ok|any trouble in {p}"
    ),
    *combine("_ the _ in {p}", "show me|what is|tell me|find|and", "error|failure|problem"),
]
LINE = ways_of(
    "line {n} of {p}|{p}, line {n}|what's on line {n} of {p}|read line {n} of {p}|{p}: line {n}|"
    "and line {n} of {p}|show me line {n} of {p}|line {n} in {p}|in {p}, line {n}|"
    "what does line {n} of {p} say|open {p} at line {n}|in {p} what is on line {n}"
)
LAST = ways_of(
    "the last line of {p}|how does {p} end|{p}, its last line|what does {p} end with|"
    "last line of {p}|what's at the end of {p}|{p}, the last line|how did {p} end|tail {p}"
)


def place_of(way: str, found: list[str]) -> str | None:
    """Return which of several files a question means by its index in the list."""
    if match := _IN_TURN.search(way) or _NUMBERED.search(way):
        said = match[1]
        words = _ORDINALS if said in _ORDINALS else _CARDINALS
        place = int(said) - 1 if said.isdigit() else words.index(said)
    elif re.search(r"\blast\b", way):
        place = len(found) - 1
    else:
        place = 0 if len(found) == 1 else len(found)
    return found[place] if place < len(found) else None


def moved(rng: random.Random, way: str, found: list[str]) -> str:
    """Return the way with another index, or with the same one spelled otherwise."""
    match = _PHRASE.search(way)
    if match is None or "number" in way or rng.random() < 0.5:
        return way
    most = min(len(found), MOST)
    place = rng.randrange(1, most) if most > 1 else ORDINALS.index(match[1])
    if rng.random() < 0.25:
        return way[: match.start()] + _numbered(rng, place) + way[match.end() :]
    return way[: match.start(1)] + ordinal(rng, place + 1) + way[match.end(1) :]


def _numbered(rng: random.Random, place: int) -> str:
    if rng.random() < 0.2:
        return f"#{place + 1}"
    said = rng.choice((CARDINALS[place], str(place + 1)))
    return rng.choice(("number {}", "number {}", "no. {}", "file number {}")).format(said)


def said_place(rng: random.Random, place: int, count: int) -> str:
    """Return how a question calls a file by its index: `the second one`."""
    if place == count - 1 and rng.random() < 0.3:
        return rng.choice(("the last one", "the last", "the last file"))
    if rng.random() < 0.12:
        return _numbered(rng, place)
    word = ordinal(rng, place + 1)
    return rng.choice((f"the {word} one", f"the {word}", f"the {word} file", f"{word} one"))


def nth(scene: Scene) -> Round | None:
    """Ask for a file of the listing by its index."""
    if not scene.listed:
        return None
    way = moved(scene.rng, scene.rng.choice(ways.NTH), scene.listed)
    path = place_of(way, scene.listed)
    if path is None or path not in scene.texts:
        return None
    return round_of(scene, asked_in(scene, [way], [way]), tell_line(scene, path, 1))


def nth_asked(scene: Scene) -> Round | None:
    """Ask about a file of the listing, or of those that mention a word, by its index."""
    rng = scene.rng
    listed = scene.listed or (scene.found if scene.needle and not scene.one_file else [])
    places = [n for n, path in enumerate(listed[:MOST]) if path in scene.texts]
    if len(listed) < 2 or not places:
        return None
    place = rng.choice(places)
    path, slots = listed[place], {"p": said_place(rng, place, len(listed))}
    reply: Reply | None
    if path in scene.items and rng.random() < 0.8:
        slots["k"] = said_key(scene.writer, scene.items[path])
        asks, reply = KEY, tell_key(scene, path, slots["k"])
    elif path in scene.logs and rng.random() < 0.8:
        asks, reply = ERROR, tell_error(scene, path)
    elif rng.random() < 0.5:
        asks, reply = LAST, tell_last(scene, path)
    else:
        number = rng.randint(1, len(rows_of(scene, path)))
        slots["n"] = str(number)
        asks, reply = LINE, tell_line(scene, path, number)
    if reply is None:
        return None
    return round_of(scene, asked_in(scene, asks, asks, **slots), reply)
