"""The families whose first call is a search: for what marks an error, a key or a word."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

from . import phrasings as ways
from . import solve, unseen
from .configs import any_line
from .files import MemoryFiles
from .log_texts import HARMLESS, event, fill
from .manner import quoted
from .reports import some_log
from .said import said_key
from .settings import Setting, Settings, holds_settings, make_settings, natural
from .solve import Reply
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer, called, made, workspace

MARKS = ("TODO", "TODO", "TODO", "FIXME", "FIXME", "XXX", "HACK", "NOTE", "BUG")
"""What people leave in code and search for in the plural."""

SWITCHES = 0.07
"""Share of the questions about a key that ask whether what a heading names is on."""


BARE = 0.25
"""Share of the questions about a key, no file being named, that are hardly more than the key."""
NATURAL = 0.4
"""Share of the questions about a key that are asked as somebody asks who does not name it."""


def _calm(writer: Writer, needle: str, count: int) -> list[str]:
    """Return lines without the needle."""
    lines = (event(writer.words) for _ in range(count))
    return [text for text in lines if needle.lower() not in text.lower()]


def _with(writer: Writer, needle: str, short: bool) -> str:
    """Return a line that holds the needle somewhere."""
    parts = writer.rng.choice((event, any_line))(writer.words).split(" ")
    if short:
        parts = parts[: writer.rng.randint(0, 3)]
    cut = writer.rng.randint(0, len(parts))
    word = needle if writer.rng.random() < 0.8 else needle.lower()
    return " ".join([*parts[:cut], word, *parts[cut:]])


def _haystack(writer: Writer, needle: str, n_files: int, scope: str = "") -> dict[str, str]:
    """Generate `n_files` files under `scope` that hold the needle, and one that does not.

    Together they hold it in about as many lines as the writer's results may have, or, mostly
    with few files, in one or two each.
    """
    rng = writer.rng
    texts: dict[str, str] = {}
    prefix = scope + "/" if scope else ""
    hits = max(n_files, writer.lines()) if writer.long or rng.random() < 0.4 else 0
    # In training many results have short lines: more files to tell apart for their length.
    short = not writer.words.held_out and rng.random() < 0.5
    weights = [rng.random() for _ in range(n_files)]
    while len(texts) < n_files + 1:
        lines = _calm(writer, needle, rng.randint(1, 3))
        if len(texts) < n_files:
            share = round(hits * weights[len(texts)] / sum(weights))
            often = max(1, share) if hits else rng.choice((1, 1, 1, 2, 3))
            for _ in range(often):
                lines.insert(rng.randint(0, len(lines)), _with(writer, needle, short))
        texts[prefix + writer.words.path(ALL_EXTENSIONS, deep=0.35)] = "\n".join(lines)
    return texts


def search(writer: Writer) -> Round:
    """Ask which files mention a word."""
    rng = writer.rng
    plural = rng.random() < 0.05
    needle = rng.choice(MARKS) if plural else writer.needle()
    roll = rng.random() + (0.4 if writer.long else 0.0)
    many = rng.randint(2, max(2, min(writer.size, rng.choice((3, 5, 8, 12)))))
    if not writer.words.held_out and rng.random() < 0.3:
        roll += 0.4  # what is hardest to learn
    count = 0 if roll < 0.15 else 1 if roll < 0.6 else many
    scope = writer.words.folder() if rng.random() < 0.2 and not plural else ""
    with writer.words.few(rng.randint(5, 30)) if rng.random() < 0.5 else nullcontext():
        texts = _haystack(writer, needle, count, scope)
    files = workspace(writer, texts)
    files = workspace(writer, texts)
    shown = quoted(rng, needle, often=0.25)
    if plural:
        question = writer.ask(ways.PLURAL, unseen.PLURAL, w=needle)
    elif scope:
        question = writer.ask(ways.SEARCH_IN, unseen.SEARCH_IN, w=shown, d=scope)
    else:
        question = writer.ask(ways.SEARCH, unseen.SEARCH, w=shown)
    return made("search", question, solve.mentions(files, needle, scope or "."), files)


def where(writer: Writer) -> Round:
    """Ask on which lines of a file a word is."""
    rng = writer.rng
    needle = writer.needle()
    path = writer.path(ALL_EXTENSIONS)
    while True:
        lines = _calm(writer, needle, rng.randint(1, max(2, writer.lines())))
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 3, 5))):
            lines.insert(rng.randint(0, len(lines)), _with(writer, needle, False))
        files = workspace(writer, {path: "\n".join(lines)})
        if (reply := solve.where(files, needle, path)) is not None:
            asked, reply = called(writer, files, path, reply)
            word, shown = quoted(rng, needle, often=0.3), quoted(rng, asked)
            valued = word == needle and holds_settings(path)
            listed = ways.WHERE_ALONE if valued else ways.WHERE
            question = writer.ask(listed, unseen.WHERE, w=word, f=shown)
            return made("where", question, reply, files)


def error(writer: Writer) -> Round:
    """Ask what went wrong, according to a log. With several errors the first one is the answer."""
    rng = writer.rng
    folder = rng.random() < 0.04
    while True:
        log = some_log(writer)
        path = writer.path(LOG_EXTENSIONS)
        files = workspace(writer, {path: "\n".join(log.lines)})
        asked = path
        if folder and "/" in path:
            asked = path.rpartition("/")[0]
            reply = solve.any_error(files, path, log, asked) if log.errors else None
        else:
            reply = solve.error(files, path, log)
        if reply is not None:
            if asked == path:
                asked, reply = called(writer, files, path, reply)
            question = writer.ask(ways.ERROR, unseen.ERROR, f=quoted(rng, asked))
            return made("error", question, reply, files)


def some_settings(writer: Writer, size: int) -> Settings:
    """Generate a configuration file; some with a repeated key or comments that name keys."""
    roll = writer.rng.random()
    said = 0.45 <= roll < 0.63
    return make_settings(writer.words, size, twice=roll < 0.45, said=said, switch=roll > 0.97)


def described(writer: Writer) -> Round:
    """Ask for a setting whose comment describes it in other words."""
    rng = writer.rng
    while True:
        settings = make_settings(writer.words, max(2, min(writer.lines(), 12)), said=True)
        wanted = [item for item in settings.items if item.asks]
        if not wanted:
            continue
        item = rng.choice(wanted)
        ask = rng.choice(item.asks)
        named = rng.random() < 0.75
        texts = {settings.path: settings.text}
        if not named:
            word = solve.sought(ask)[0][0]
            texts[writer.words.path(LOG_EXTENSIONS)] = "\n".join(_calm(writer, word, 2))
        files = workspace(writer, texts)
        path = settings.path if named else "."
        reply = replied(files, ask, {settings.path: settings.items}, path, item.key)
        if reply is None:
            continue
        shown = settings.path
        if named:
            shown, reply = called(writer, files, shown, reply, alone=True)
            shown = quoted(rng, shown, often=0.08)
            ask = rng.choice(ways.AROUND).replace("{a}", ask)
        ask = ask.replace("*", "")
        question = writer.ask([ask], [ask], f=shown)
        return made("described", question, reply, files)


def switch(writer: Writer) -> Round:
    """Ask whether what a heading names is on: the setting below it says so."""
    rng = writer.rng
    while True:
        if rng.random() < 0.35:  # or a key of its own does
            return named_switch(writer)
        settings = make_settings(writer.words, max(2, min(writer.lines(), 20)), switch=True)
        found = [item for item in settings.items if solve.same_key(item.key, solve.SWITCH)]
        if not found:
            continue
        asked = rng.choice(found).section
        files = workspace(writer, {settings.path: settings.text})
        reply = solve.value(files, settings.path, asked, settings.items)
        if reply is None or len(reply.calls) != 2:
            continue
        shown, reply = called(writer, files, settings.path, reply, alone=True)
        shown = quoted(rng, shown, often=0.08)
        question = writer.ask(ways.SWITCH, ways.SWITCH, f=shown, k=asked)
        return made("key", question, reply, files)


def named_switch(writer: Writer) -> Round:
    """Ask whether something is on, according to a key like `enable_it` or `it_enabled`."""
    rng, words = writer.rng, writer.words
    while True:
        thing = [words.word() for _ in range(rng.choice((1, 1, 2)))]
        before, after = rng.choice((("enable", ""), ("use", ""), ("", "enabled"), ("", "on"),
                                    ("", ""), ("allow", ""), ("with", "")))  # fmt: skip
        parts = [part for part in (before, *thing, after) if part]
        settings = make_settings(words, max(1, min(writer.lines(), 20)), wanted=parts)
        files = workspace(writer, {settings.path: settings.text})
        reply = solve.value(files, settings.path, " ".join(thing), settings.items)
        if reply is None or "There is no" in reply.answer:
            continue
        shown, reply = called(writer, files, settings.path, reply, alone=True)
        question = writer.ask(ways.SWITCH, ways.SWITCH, f=shown, k=" ".join(thing))
        return made("key", question, reply, files)


def replied(
    files: MemoryFiles,
    ask: str,
    items: dict[str, Sequence[Setting]],
    path: str,
    wanted: str = "",
) -> Reply | None:
    """Return the reply to a question about a setting, in one file or in all (`path` is `.`).

    None where it would not tell of the `wanted` key, or of none.
    """
    words, together = solve.sought(ask)
    if not together:
        reply = solve.by_words(files, words, items, path)
    elif path == ".":
        reply = solve.any_value(files, " ".join(words), items)
    else:
        reply = solve.value(files, path, " ".join(words), items[path])
    if reply is None or reply.answer.startswith(("There is no ", "No file mentions ")):
        return None
    told = reply.answer.split(" is ")[0].split(" in ")[0]
    return reply if not wanted or solve.same_key(told, wanted) else None


def asked_naturally(writer: Writer, *, named: bool) -> Round:
    """Ask for a real key by words of its own; `named`: of a named file."""
    rng = writer.rng
    while True:
        parts, asks = natural(writer.words)
        ask = rng.choice(asks)
        if not named and "{f}" in ask:
            continue
        size = max(1, min(writer.lines(), 40 if named else 12))
        settings = make_settings(writer.words, size, twice=rng.random() < 0.1, wanted=parts)
        texts = {settings.path: settings.text}
        if not named:
            word = solve.sought(ask)[0][0]
            texts[writer.words.path(LOG_EXTENSIONS)] = "\n".join(_calm(writer, word, 2))
        files = workspace(writer, texts)
        items: dict[str, Sequence[Setting]] = {settings.path: settings.items}
        reply = replied(files, ask, items, settings.path if named else ".", "_".join(parts))
        if reply is None:
            continue
        shown = settings.path
        if named:
            shown, reply = called(writer, files, shown, reply, alone=True)
            shown = quoted(rng, shown, often=0.08)
            if "{f}" not in ask:
                ask = rng.choice(ways.AROUND).replace("{a}", ask)
        ask = ask.replace("*", "")
        question = writer.ask([ask], [ask], f=shown)
        return made("key" if named else "any_key", question, reply, files)


def key(writer: Writer) -> Round:
    """Ask for the value of a key in a configuration file, sometimes of a missing key.

    The file is searched for the key, so that a long one costs no more than a short one.
    """
    rng = writer.rng
    roll = rng.random()
    if roll < SWITCHES:
        return switch(writer)
    if roll < SWITCHES + NATURAL:
        return asked_naturally(writer, named=True)
    while True:
        settings = some_settings(writer, writer.lines())
        asked = said_key(writer, settings.items)
        if rng.random() < 0.08:
            asked = writer.words.identifier() if rng.random() < 0.6 else writer.words.phrase(2, 3)
        files = workspace(writer, {settings.path: settings.text})
        reply = solve.value(files, settings.path, asked, settings.items)
        if reply is not None:
            break
    shown, reply = called(writer, files, settings.path, reply)
    shown = quoted(rng, shown, often=0.08)
    bare = asked
    asked = asked if " " in asked else quoted(rng, asked)
    listed = ways.KEY if asked == bare else ways.KEY_ALONE
    return made("key", writer.ask(listed, unseen.KEY, f=shown, k=asked), reply, files)


def search_error(writer: Writer) -> Round:
    """Ask which file mentions a word, and then that file's error: two searches or more."""
    rng = writer.rng
    needle = writer.needle()
    question = writer.ask(ways.BOTH, unseen.BOTH, w=quoted(rng, needle, often=0.25))
    while True:
        texts = _haystack(writer, needle, 0)
        if rng.random() < 0.12:
            files = workspace(writer, texts)
            reply = solve.mentions(files, needle)
            if reply.answer.startswith("No file"):
                return made("search_error", question, reply, files)
            continue
        log = some_log(writer)
        if log.weak or log.hidden or any(needle.lower() in row.lower() for row in log.lines):
            continue
        log.lines.insert(0, f"{_calm(writer, needle, 9)[0]} {needle}")
        log.places = [place + 1 for place in log.places]
        path = writer.path(LOG_EXTENSIONS)
        texts[path] = "\n".join(log.lines)
        files = workspace(writer, texts)
        first, then = solve.mentions(files, needle), solve.error(files, path, log)
        if then is None or first.answer != f"{needle} is mentioned in {path}":
            continue
        both = solve.Reply((*first.calls, *then.calls), f"{first.answer}. {then.answer}")
        return made("search_error", question, both, files)


def any_error(writer: Writer) -> Round:
    """Ask what went wrong without a file: the reply searches the folder for errors."""
    rng = writer.rng
    while True:
        question = writer.ask(ways.ANY_ERROR, unseen.ANY_ERROR)
        texts: dict[str, str] = {}
        for _ in range(rng.choice((0, 1, 1, 2))):
            lines = _calm(writer, "error", rng.randint(1, 4))
            if rng.random() < 0.3:
                lines.append(fill(writer.words, rng.choice(HARMLESS)))
            if rng.random() < 0.2:
                lines.append(f"{writer.words.identifier()}{rng.choice((': ', ' = '))}ERROR")
            texts[writer.words.path(ALL_EXTENSIONS)] = "\n".join(lines)
        log = None
        path = writer.path(LOG_EXTENSIONS)
        if rng.random() < 0.9:
            log = some_log(writer)
            texts[path] = "\n".join(log.lines)
        files = workspace(writer, texts)
        if log and log.errors and rng.random() < 0.35:  # of several, the one that is found first
            again, other = writer.path(LOG_EXTENSIONS), some_log(writer, rng.randint(1, 60))
            if again in texts or not other.errors:
                continue
            files.texts[again] = "\n".join(other.lines)
            found = solve.hits_of(files.run(solve.find(solve.ERRORS, regex=True)))
            if next((where for where, _, _ in found if where in (path, again)), path) == again:
                path, log = again, other
        reply = solve.any_error(files, path, log)
        if reply is not None:
            return made("any_error", question, reply, files)


def any_key(writer: Writer) -> Round:
    """Ask for the value of a key without a file: the reply searches the folder for the key."""
    rng = writer.rng
    if rng.random() < NATURAL:
        return asked_naturally(writer, named=False)
    while True:
        settings = some_settings(writer, min(writer.lines(), 12))
        asked = said_key(writer, settings.items)
        on = rng.random() < SWITCHES and [item.section for item in settings.items if item.section]
        asked = rng.choice(on) if on else asked
        items: dict[str, Sequence[Setting]] = {settings.path: settings.items}
        texts: dict[str, str] = {}
        if rng.random() < 0.3:  # other files speak of it
            texts[writer.words.path(LOG_EXTENSIONS)] = f"{event(writer.words)} {asked}"
        plain = any(solve.same_key(item.key, asked) for item in settings.items)
        for _ in range(rng.choice((1, 1, 1, 2)) if plain and rng.random() < 0.35 else 0):
            parts = asked.split(" ")  # or set it too
            other = make_settings(writer.words, rng.randint(1, 5), wanted=parts)
            if other.path not in items:
                items[other.path] = other.items
                texts[other.path] = other.text
        texts[writer.words.path(ALL_EXTENSIONS)] = "\n".join(_calm(writer, asked, 2))
        if settings.path in texts:
            continue
        texts[settings.path] = settings.text
        if not on and rng.random() < 0.08:
            asked = writer.words.identifier()
        files = workspace(writer, texts)
        reply = solve.any_value(files, asked, items)
        if reply is not None and not (on and len(reply.calls) < 2):
            break
    if on:
        listed = [way.replace(" in {f}", "") for way in ways.SWITCH]
        listed = [way for way in listed if "{f}" not in way]
        return made("any_key", writer.ask(listed, listed, k=asked), reply, files)
    if rng.random() < BARE:
        listed = ways.asked("BARE")
        return made("any_key", writer.ask(listed, listed, k=asked), reply, files)
    shown = asked if " " in asked else quoted(rng, asked)
    return made("any_key", writer.ask(ways.ANY_KEY, unseen.ANY_KEY, k=shown), reply, files)
