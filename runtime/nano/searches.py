"""The families whose first call is a search through the folder."""

from __future__ import annotations

from contextlib import nullcontext

from . import phrasings as ways
from . import unseen
from .configs import any_line, make_config
from .files import Call, MemoryFiles
from .log_texts import HARMLESS, event, fill
from .logs import Log, make_log
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer, make_round, read_on, workspace

MARKS = ("TODO", "TODO", "TODO", "FIXME", "FIXME", "XXX", "HACK", "NOTE", "BUG")
"""What people leave in code and search for in the plural."""


def _calm(writer: Writer, needle: str, count: int) -> list[str]:
    """Lines without the needle."""
    lines = (event(writer.words) for _ in range(count))
    return [text for text in lines if needle.lower() not in text.lower()]


def _with(writer: Writer, needle: str, short: bool) -> str:
    """A line that holds the needle somewhere."""
    parts = writer.rng.choice((event, any_line))(writer.words).split(" ")
    if short:
        parts = parts[: writer.rng.randint(0, 3)]
    cut = writer.rng.randint(0, len(parts))
    word = needle if writer.rng.random() < 0.8 else needle.lower()
    return " ".join([*parts[:cut], word, *parts[cut:]])


def _haystack(writer: Writer, needle: str, n_files: int, scope: str = "") -> dict[str, str]:
    """`n_files` files under `scope` that hold the needle, and one that does not.

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
    """Which files mention a word."""
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
    shown = ways.quoted(rng, needle, often=0.25)
    arguments: dict[str, object] = {"pattern": needle}
    if plural:
        question = writer.ask(ways.PLURAL, unseen.PLURAL, w=needle)
    elif scope:
        arguments["path"] = scope
        question = writer.ask(ways.SEARCH_IN, unseen.SEARCH_IN, w=shown, d=scope)
    else:
        question = writer.ask(ways.SEARCH, unseen.SEARCH, w=shown)
    call = Call("search", arguments)
    found, cut = mentioned(files.run(call))
    if found:
        more = ", and maybe in more files" if cut else ""
        answer = f"{needle} is mentioned in {', '.join(found)}{more}"
    else:
        answer = f"No file mentions {needle}."
    return make_round("search", question, [call], answer, files)


def mentioned(result: str) -> tuple[list[str], bool]:
    """The files of a search result, each once, in order; and whether the result was cut."""
    rows = result.split("\n")
    cut = rows[-1].startswith("[cut: ")
    hits = [row for row in rows[: len(rows) - cut] if ":" in row]
    return list(dict.fromkeys(row.split(":", 1)[0] for row in hits)), cut


def search_error(writer: Writer) -> Round:
    """Which file mentions a word, and then that file's error: two calls or more."""
    rng = writer.rng
    needle = writer.needle()
    question = writer.ask(ways.BOTH, unseen.BOTH, w=ways.quoted(rng, needle, often=0.25))
    texts = _haystack(writer, needle, 0)
    find = Call("search", {"pattern": needle})
    if rng.random() < 0.12:
        files = MemoryFiles(texts)
        if not mentioned(files.run(find))[0]:
            answer = f"No file mentions {needle}."
            return make_round("search_error", question, [find], answer, files)
    log = make_log(writer.words, writer.lines(), 0 if rng.random() < 0.08 else 1)
    _without(log, needle)
    clear = f"{event(writer.words)} {needle}"
    log.lines.insert(rng.randint(0, 1), clear)
    path = writer.words.path(LOG_EXTENSIONS)
    texts[path] = "\n".join(log.lines)
    files = workspace(writer, texts, len(log.lines))
    if mentioned(files.run(find)) != ([path], False):  # a chance hit elsewhere
        return search_error(writer)
    answer = f"{needle} is mentioned in {path}. "
    answer += f"The error is: {log.errors[0]}" if log.errors else f"There is no error in {path}."
    place = next((n for n, row in enumerate(log.lines, 1) if row in log.rows), len(log.lines))
    return make_round("search_error", question, [find, *read_on(files, path, place)], answer, files)


def _without(log: Log, needle: str) -> None:
    """Take the lines that hold the needle out of the log, but for those of its errors."""
    log.lines = [row for row in log.lines if needle.lower() not in row.lower() or row in log.rows]


def any_error(writer: Writer) -> Round:
    """What went wrong, no file being named: the folder is searched for errors."""
    rng = writer.rng
    find = Call("search", {"pattern": "error"})
    question = writer.ask(ways.ANY_ERROR, unseen.ANY_ERROR)
    texts: dict[str, str] = {}
    for _ in range(rng.choice((0, 1, 1, 2))):
        lines = _calm(writer, "error", rng.randint(1, 4))
        if rng.random() < 0.2:
            lines.append(fill(writer.words, rng.choice(HARMLESS)))
        texts[writer.words.path(ALL_EXTENSIONS)] = "\n".join(lines)
    if rng.random() < 0.12:
        return make_round("any_error", question, [find], "I found no error.", MemoryFiles(texts))
    path = writer.words.path(LOG_EXTENSIONS)
    log = make_log(writer.words, writer.lines(), rng.choice((1, 1, 2, 3)))
    texts[path] = "\n".join(log.lines)
    files = workspace(writer, texts)
    result = files.run(find)
    if f"{path}:{log.places[0]}:{log.rows[0]}" not in result.split("\n"):
        return any_error(writer)  # a level or an exception without the word
    answer = f"The error in {path} is: {log.errors[0]}"
    return make_round("any_error", question, [find], answer, files)


def any_key(writer: Writer) -> Round:
    """The value of a key, no file being named: the folder is searched for the key."""
    rng = writer.rng
    config = make_config(writer.words, min(writer.lines(), 12))
    wanted, value = rng.choice(config.pairs)
    texts = {}
    if rng.random() < 0.3:  # other files speak of it
        texts[writer.words.path(LOG_EXTENSIONS)] = f"{event(writer.words)} {wanted}"
    texts |= {writer.words.path(ALL_EXTENSIONS): "\n".join(_calm(writer, wanted, 2))}
    texts[config.path] = config.text
    answer = f"{wanted} in {config.path} is {value}"
    other = writer.words.identifier()
    if rng.random() < 0.08 and not any(other.lower() in text.lower() for text in texts.values()):
        wanted, answer = other, f"No file mentions {other}."
    question = writer.ask(ways.ANY_KEY, unseen.ANY_KEY, k=ways.quoted(rng, wanted))
    call = Call("search", {"pattern": wanted})
    return make_round("any_key", question, [call], answer, MemoryFiles(texts))
