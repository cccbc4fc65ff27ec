"""Follow-up questions about a searched word, or about the files that have it."""

from __future__ import annotations

import re

from . import phrasings as ways
from . import short, solve, unseen
from .manner import quoted
from .places import moved, place_of
from .scene import (
    Scene,
    asked_in,
    pointed,
    round_of,
    rows_of,
    some_needle,
    tell_search,
    tell_where,
)
from .solve import Reply
from .writer import Round


def and_word(scene: Scene) -> Round | None:
    if not scene.needle:
        return None
    needle = some_needle(scene)
    within = scene.one_file and scene.path
    reply = tell_where(scene, scene.path, needle) if within else tell_search(scene, needle)
    if reply is None:
        return None
    name = quoted(scene.rng, needle, often=0.15)
    trained = [w for w in short.AND_WORD if not within or not _everywhere(w)]
    return round_of(scene, asked_in(scene, trained, unseen.AND_WORD, w=name), reply)


def word_in_it(scene: Scene) -> Round | None:
    """Ask whether the current file mentions a word."""
    if not scene.path or scene.needle:
        return None
    needle = some_needle(scene)
    reply = tell_where(scene, scene.path, needle)
    if reply is None:
        return None
    name = quoted(scene.rng, needle, often=0.15)
    return round_of(scene, asked_in(scene, short.WORD_IN_IT, short.WORD_IN_IT, w=name), reply)


def anywhere(scene: Scene) -> Round | None:
    """Ask for the word of one file, or its setting, in all files."""
    needle = scene.needle if scene.one_file else scene.key
    if not scene.path or not needle or (scene.needle and not scene.one_file):
        return None
    reply = tell_search(scene, needle)
    if reply is None:
        return None
    return round_of(scene, asked_in(scene, short.ANYWHERE, short.ANYWHERE), reply)


_MANY = re.compile(r"file|them|ones|one |any|search|grep|who|mention|which")
_SEARCHES = frozenset(ways.SEARCH)


def _everywhere(way: str) -> bool:
    """Return whether the question would be about all files."""
    bare = re.sub("^(and|ok|so|then|now),? ", "", way)
    return bool(_MANY.search(way)) or (bare != "{w}" and bare in _SEARCHES)


def and_where(scene: Scene) -> Round | None:
    """Ask what one of the files that mention a word says of it."""
    if not scene.needle or scene.one_file or not scene.found:
        return None
    rng, needle, found = scene.rng, scene.needle, scene.found
    if len(found) == 1 and scene.number:
        return None  # the result says it
    roll = rng.random()
    path = rng.choice(found)
    if roll < 0.4:
        listed = [way for way in ways.AND_THERE if place_of(way, found) is not None]
        way = moved(rng, rng.choice(listed), found)
        path, listed = place_of(way, found) or path, [way]
    else:
        listed = short.AND_WHERE
    part = pointed(scene, path) if roll > 0.7 else ""
    reply = tell_where(scene, path, needle)
    if reply is not None and part:
        listed, reply = short.SAYS_PART, solve.by_name(scene.files, part, path, reply)
    if reply is None:
        return None
    return round_of(scene, asked_in(scene, listed, listed, f=path, p=part), reply)


def sets_it(scene: Scene) -> Round | None:
    if not scene.needle or scene.setting is None:
        return None
    path, setting = scene.setting
    scene.path, scene.number, scene.row = path, setting.line, ""
    answer = f"{scene.needle} is set in {path}."
    return round_of(scene, asked_in(scene, ways.SETS, unseen.SETS), Reply((), answer))


def to_what(scene: Scene) -> Round | None:
    if not scene.needle or scene.setting is None:
        return None
    path, setting = scene.setting
    answer = f"{setting.key} is {setting.value}"
    scene.path, scene.key, scene.needle = path, setting.key, ""
    scene.number, scene.row = setting.line, rows_of(scene, path)[setting.line - 1]
    scene.again = "key", setting.key
    return round_of(scene, asked_in(scene, ways.TO_WHAT, unseen.TO_WHAT), Reply((), answer))
