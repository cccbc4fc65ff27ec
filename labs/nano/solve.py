"""nano's strategy for a question: its calls, and its answers from their results.

This is the model's behavior in one place: the corpus asks in many ways, the answers come from
here. A function returns None where the files do not bear the question out (a chance match stands
before what was meant); the corpus then draws again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from triplepoint.runtime.conversation.answer_forms import AS_FAR, entries, is_cut
from triplepoint.tools.formats import elsewhere

from .files import Call, MemoryFiles
from .logs import Log
from .marks import ERRORS, SIGNS
from .settings import Setting

CANNOT = (
    "I cannot do that; I can list folders, search files and quote errors, settings and lines, "
    "and a larger model (-m, see triplepoint models) can do more."
)
"""The whole of what it says to a question that is beyond it."""
SWITCH = "enabled"
"""The key that says whether what its heading names is on."""
FAR = 999_999_999
"""A line that no file has: the tool's refusal says how many there are."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Calls, and the answer from their results."""

    calls: tuple[Call, ...]
    answer: str


def find(pattern: str, path: str = ".", *, regex: bool = False) -> Call:
    """Return a search call with only the arguments that differ from the tool's defaults."""
    arguments: dict[str, object] = {"pattern": pattern}
    if path != ".":
        arguments["path"] = path
    if regex:
        arguments["regex"] = True
    return Call("search", arguments)


def refused(result: str, path: str) -> str | None:
    """Return the answer about a path that cannot be read; None if it could."""
    if result.startswith(("error: no such file", "error: no such path")):
        return f"There is no file {path}."
    if result.startswith("error: binary file"):
        return f"{path} is a binary file; I can only read text."
    if result.startswith("error: not a file"):
        return f"{path} is a folder."
    return None


def by_name(files: MemoryFiles, asked: str, path: str, reply: Reply) -> Reply | None:
    """Return the reply to a question that names its file otherwise: the tool resolves it.

    Args:
        files: the workspace.
        asked: the last name of the file alone, or its path with a slip.
        path: the file, or the folder, that is meant.
        reply: how it would be answered, had the question named the path.
    """
    if not reply.calls or reply.calls[0].arguments.get("path") != path:
        return None
    first = Call(reply.calls[0].name, {**reply.calls[0].arguments, "path": asked})
    result = files.run(first)
    if not (result.startswith("error: no such ") and result.endswith(elsewhere([path]))):
        return None
    return Reply((first, *reply.calls), reply.answer)


def several(files: MemoryFiles, asked: str, path: str, reply: Reply) -> Reply | None:
    """Return the reply where a last name is in several folders: which they are."""
    if not reply.calls or reply.calls[0].arguments.get("path") != path:
        return None
    first = Call(reply.calls[0].name, {**reply.calls[0].arguments, "path": asked})
    _, there, places = files.run(first).rpartition(" (there are ")
    return Reply((first,), f"There are several: {places[:-1]}") if there else None


MORE = "\n[cut: more than "
"""In a search's result: there are others that it does not show."""


def hits_of(result: str) -> list[tuple[str, int, str]]:
    """Parse (path, line number, text) of each line of a search result."""
    rows = re.findall(r"^(.*?):(\d+):(.*)$", result, re.MULTILINE)
    return [(path, int(number), text) for path, number, text in rows]


def error(files: MemoryFiles, path: str, log: Log | None) -> Reply | None:
    """Answer what went wrong in one file: search for the words that mark an error."""
    first = find(ERRORS, path, regex=True)
    result = files.run(first)
    if (no := refused(result, path)) is not None:
        return Reply((first,), no)
    if log is not None and log.errors and not log.weak:
        if log.hidden:
            hits = hits_of(result)
            if len(hits) != 1:
                return None
            read = Call("read_file", {"path": path, "start": hits[0][1]})
            if hits[0][1] == 1:
                del read.arguments["start"]
            shown = files.run(read)
            if f"{log.places[0]}\t{log.rows[0]}" not in shown:
                return None
            return Reply((first, read), f"The error is: {log.errors[0]}")
        if not _shown(result, path, log):
            return None
        return Reply((first,), f"The error is: {log.errors[0]}")
    if result != "No matches found.":
        return None if log is not None and log.errors else _clean(path, result, first)
    second = find(SIGNS, path, regex=True)
    result = files.run(second)
    if log is None or not log.errors:
        return _clean(path, result, first, second) if result == "No matches found." else None
    hits = hits_of(result)
    if not hits or hits[0][1] != log.places[0]:
        return None
    return Reply((first, second), f"The error is: {log.errors[0]}")


def _clean(path: str, result: str, *calls: Call) -> Reply:
    """Answer that no hit is an error; `result` may be incomplete."""
    return Reply(calls, f"There is no error in {path}{_end(result)}")


def _end(result: str) -> str:
    return AS_FAR if is_cut(result) else "."


def _shown(result: str, path: str, log: Log) -> bool:
    """Return whether the line of the first error is in a search's result, whole."""
    return f"{path}:{log.places[0]}:{log.rows[0]}" in result.split("\n")


def any_error(files: MemoryFiles, path: str, log: Log | None, folder: str = ".") -> Reply | None:
    """Answer what went wrong without a file: the first error of a folder."""
    call = find(ERRORS, folder, regex=True)
    result = files.run(call)
    if log is None or not log.errors:
        return Reply((call,), f"I found no error{_end(result)}")
    if log.weak or log.hidden or not _shown(result, path, log):
        return None
    return Reply((call,), f"The error in {path} is: {log.errors[0]}")


def worded(key: str) -> tuple[str, bool]:
    """Return the pattern that finds a key, and whether it is a regular expression.

    A key said in several words is found however it is written: `max size` as `max_size`,
    `maxSize` or `MAX-SIZE`, and in a comment.
    """
    parts = content(key)
    return (".?".join(parts), True) if len(parts) > 1 else (parts[0], False)


_FILLERS = (
    "the of in for to a an at is are do does we our it its on by from and with that this per number"
)
FILLERS = frozenset(_FILLERS.split())


_SAID_ANYWHERE = (
    "how which what what's when when's where where's who who's whom whose why i you he she they "
    "me us them my your his her their mine ours yours him somebody someone anybody anyone nobody "
    "something anything nothing everything one ones has have had having been be am was were did "
    "done doing may might must can can't could should would will won't shall do don't doesn't "
    "isn't aren't i'm i'd i've it's we're there's that's after before until till since while as if "
    "or but so not no yes than then there here about into onto out off up down over under between "
    "behind without within against through each every any all some other others another both few "
    "most least more less much many long far often big large small high low fast old good bad "
    "still yet already ever never again once only just too also very quite right now soon early "
    "late next please tell told give gives given gave show shows shown see sees seen saw look "
    "looks looking say says said set sets use uses used using get gets got go goes going went gone "
    "come comes came take takes took put puts make makes made let lets need needs needed want "
    "wants know knows think find finds found keep keeps kept happen happens happened "
    "run runs running according allowed called named active enabled turned switched currently "
    "time times value setting configured chosen default like those these such own e g i.e"
)
STOP = FILLERS | frozenset(_SAID_ANYWHERE.split())
"""What is not searched for in a question that does not name its key: all else is."""


def sought(ask: str) -> tuple[list[str], bool]:
    """Return the searched words of a question, and whether they are adjacent.

    Args:
        ask: the question without the name of its file; words between stars are searched for
            though they may stand in `STOP`.
    """
    words: list[str] = []
    ends: list[tuple[int, int]] = []
    for match in re.finditer(r"\*([^*]+)\*|\{\w\}|\w[\w'’-]*", ask):
        word = match[1] or match[0]
        if match[0][0] == "{" or (not match[1] and word.lower() in STOP):
            continue
        if not match.start() and word.istitle():  # the capital of a sentence
            word = word.lower()
        if word not in words:
            words.append(word)
            ends.append(match.span())
    aside = any(ask[a[1] : b[0]] != " " for a, b in pairwise(ends))
    return words, not aside


def content(asked: str) -> list[str]:
    """Return the content words of a phrase."""
    parts = [part.removesuffix("'s") for part in asked.split(" ")]
    return [part for part in parts if part.lower() not in FILLERS] or [asked]


def loosely(asked: str) -> list[str]:
    """Return the pattern for a phrase without a match: its words, each in the singular; nothing
    where that is the same."""
    words = [singular(word) for word in content(asked)]
    return words if len(words) > 1 or words[0] != content(asked)[0] else []


def singular(word: str) -> str:
    """Return `retry` for `retries`, `port` for `ports`; other words unchanged."""
    if re.search(r"[^\W\d_]{2}[^\W\d_aeiou]ies$", word):
        return f"{word[:-3]}y"
    return word[:-1] if re.search(r"[^\W\d_]{2}[^\W\d_s]s$", word) else word


def meant(words: Sequence[str], items: Sequence[Setting]) -> list[Setting]:
    """Return the settings whose key, heading and comment match most words: all of two, all but one
    of more."""
    scores = [
        sum(w.lower() in f"{item.key} {item.section} {item.said}".lower() for w in words)
        for item in items
    ]
    best = max(scores, default=0)
    if best < (len(words) if len(words) < 3 else len(words) - 1):
        return []
    return [item for item, score in zip(items, scores, strict=True) if score == best]


def value(files: MemoryFiles, path: str, asked: str, items: Sequence[Setting]) -> Reply | None:
    """Answer the value of a key in one file; all values where it occurs several times."""
    pattern, regex = worded(asked)
    call = find(pattern, path, regex=regex)
    result = files.run(call)
    if (no := refused(result, path)) is not None:
        return Reply((call,), no)
    hits = hits_of(result)
    if not hits:
        none = f"There is no {asked} in {path}{_end(result)}"
        return _loose_value(files, path, asked, items, call, none)
    places = {item.line: item for item in items}
    found = [places[number] for _, number, _ in hits if number in places]
    found = [item for item in found if same_key(item.key, asked)] or found
    if found and any(item.key != found[0].key for item in found):
        return Reply((call,), "; ".join(f"{item.key} is {item.value}" for item in found[:4]))
    if len(found) == 1:
        return Reply((call,), f"{found[0].key} is {found[0].value}")
    if found:
        each = "; ".join(f"{item.value} (line {item.line})" for item in found)
        return Reply((call,), f"{found[0].key} is {each}")
    read = behind(path, hits[0][1])
    if len(hits) == 1 and (switch := _switch(hits[0][1], hits[0][2], items)) is not None:
        if f"\n{switch.line}\t" not in files.run(read):
            return None
        return Reply((call, read), f"{switch.key} is {switch.value}")
    after = [item for item in items if item.said and item.line == hits[0][1] + 1]
    if len(hits) != 1 or not after:
        return None
    return Reply((call, read), f"{after[0].key} is {after[0].value}")


def _switch(line: int, text: str, items: Sequence[Setting]) -> Setting | None:
    """Return the setting that has whether a heading's feature is on."""
    heading = " ".join(re.findall(r"\w+", text))
    under = [i for i in items if i.section == heading and line < i.line <= line + 10]
    found = [item for item in under if same_key(item.key, SWITCH)]
    return found[0] if len(found) == 1 else None


def _loose_value(
    files: MemoryFiles, path: str, asked: str, items: Sequence[Setting], first: Call, none: str
) -> Reply | None:
    """Search a second time, for the words of a phrase that as a whole has no match.

    none: what is said where they stand nowhere, either.
    """
    words = loosely(asked)
    if not words:
        return Reply((first,), none)
    call = find("|".join(words), path, regex=len(words) > 1)
    hits = {number for _, number, _ in hits_of(files.run(call))}
    found = meant(words, items)
    if not hits or not found:
        return Reply((first, call), none)
    if any(item.key != found[0].key for item in found):
        return None
    if all(item.line in hits for item in found):
        if len(found) == 1:
            return Reply((first, call), f"{found[0].key} is {found[0].value}")
        each = "; ".join(f"{item.value} (line {item.line})" for item in found[:6])
        return Reply((first, call), f"{found[0].key} is {each}")
    if len(found) > 1 or found[0].line - 1 not in hits:
        return None
    read = behind(path, found[0].line - 1)
    return Reply((first, call, read), f"{found[0].key} is {found[0].value}")


def by_words(
    files: MemoryFiles, words: Sequence[str], items: Mapping[str, Sequence[Setting]], path: str
) -> Reply | None:
    """Answer the value of the setting whose line or comment has the most of the words."""
    call = find("|".join(words), path, regex=len(words) > 1)
    result = files.run(call)
    hits = hits_of(result)
    if not hits or MORE in result:
        return None
    scores = [sum(word.lower() in text.lower() for word in words) for _, _, text in hits]
    if scores.count(max(scores)) > 1:
        return None
    where, number, _ = hits[scores.index(max(scores))]
    inside = "" if path == where else f" in {where}"
    for item in items.get(where, ()):
        if item.line == number:
            return Reply((call,), f"{item.key}{inside} is {item.value}")
        if item.said and item.line == number + 1:
            return Reply((call, behind(where, number)), f"{item.key}{inside} is {item.value}")
    return None


def behind(path: str, start: int) -> Call:
    """Continue to read after a comment."""
    read = Call("read_file", {"path": path, "start": start, "end": start + 10})
    if start == 1:
        del read.arguments["start"]
    return read


def same_key(key: str, asked: str) -> bool:
    """Return whether a key is the requested one, however it is written."""
    return re.sub(r"[ _.-]", "", key).lower() == re.sub(r"[ _.-]", "", asked).lower()


def any_value(
    files: MemoryFiles, asked: str, items: Mapping[str, Sequence[Setting]]
) -> Reply | None:
    """Answer the value of a key without a file: where it is set, and to what."""
    pattern, regex = worded(asked)
    call = find(pattern, regex=regex)
    result = files.run(call)
    hits, none = hits_of(result), f"No file mentions {asked}{_end(result)}"
    if not hits and (words := loosely(asked)):
        again = find("|".join(words), regex=len(words) > 1)
        hits = hits_of(files.run(again))
        every = [item for several in items.values() for item in several]
        found = meant(words, every)
        sets = [(path, item) for path, _, _ in hits for item in items.get(path, ())]
        sets = [(path, item) for path, item in dict.fromkeys(sets) if item in found]
        if not hits or not sets:
            return Reply((call, again), none)
        lines = {(path, number) for path, number, _ in hits}
        if len({item.key for _, item in sets}) > 1 or len(sets) > 4:
            return None
        if any((path, item.line) not in lines for path, item in sets):
            return None
        each = "; ".join(f"{item.key} in {path} is {item.value}" for path, item in sets)
        return Reply((call, again), each)
    if not hits:
        return Reply((call,), none)
    places = {(path, item.line): item for path, several in items.items() for item in several}
    found = [(path, places[path, number]) for path, number, _ in hits if (path, number) in places]
    found = [(path, item) for path, item in found if same_key(item.key, asked)] or found[:4]
    if not found and len(hits) == 1:
        path, number, _ = hits[0]
        said = [item for item in items.get(path, ()) if item.said and item.line == number + 1]
        if said:
            read = behind(path, number)
            return Reply((call, read), f"{said[0].key} in {path} is {said[0].value}")
        switch = _switch(number, hits[0][2], items.get(path, ()))
        read = behind(path, number)
        if switch is not None and f"\n{switch.line}\t" in files.run(read):
            return Reply((call, read), f"{switch.key} in {path} is {switch.value}")
    if not found:
        return None
    return Reply(
        (call,), "; ".join(f"{item.key} in {path} is {item.value}" for path, item in found)
    )


def line(files: MemoryFiles, path: str, number: int) -> Reply:
    """Answer one line, read alone."""
    arguments: dict[str, object] = {"path": path, "start": number, "end": number}
    if number == 1:  # the default is not written
        del arguments["start"]
    call = Call("read_file", arguments)
    result = files.run(call)
    if result.startswith("error: no such file"):
        return Reply((call,), f"There is no file {path}.")
    if (no := refused(result, path)) is not None:
        return Reply((call,), no)
    if result == "(empty file)":
        return Reply((call,), f"{path} is empty.")
    if result.startswith("error: "):
        return Reply((call,), f"There is no line {number} in {path}.")
    text = result.partition("\t")[2].strip()
    return Reply((call,), f"Line {number} says: {text}" if text else f"Line {number} is empty.")


def last_line(files: MemoryFiles, path: str) -> Reply:
    """Answer the last line: the refusal of one far behind it says which that is."""
    far = Call("read_file", {"path": path, "start": FAR})
    found = re.search(r"has (\d+) lines?; start=", files.run(far))
    if found is None:
        result = files.run(far)
        return Reply((far,), refused(result, path) or f"{path} is empty.")
    there = line(files, path, int(found[1]))
    return Reply((far, *there.calls), there.answer)


def joined(*replies: Reply) -> Reply:
    """Join two questions, one after the other."""
    calls = tuple(call for reply in replies for call in reply.calls)
    return Reply(calls, "; ".join(reply.answer for reply in replies))


def opened(files: MemoryFiles, path: str) -> Reply:
    """Answer what is in a file, its first line, or in a folder, its files."""
    there = line(files, path, 1)
    if there.answer != f"{path} is a folder.":
        return there
    held = listing(files, path)
    return Reply((*there.calls, *held.calls), held.answer)


def listing(files: MemoryFiles, folder: str = ".", *, opens: bool = False) -> Reply:
    """Answer what a folder holds; `opens`: the question also fits a file, by its first line."""
    call = Call("list_dir", {} if folder == "." else {"path": folder})
    result = files.run(call)
    if result.startswith("error: no such"):
        return Reply((call,), f"There is no folder {folder}.")
    if result.startswith("error: "):
        there = line(files, folder, 1) if opens else Reply((), f"{folder} is a file.")
        return Reply((call, *there.calls), there.answer)
    if result == "(empty folder)":
        return Reply((call,), "The folder is empty.")
    return Reply((call,), f"The folder holds: {entries(result)}")


def mentioned(result: str) -> tuple[list[str], bool]:
    """Return the files of a search result, each once, in order; and whether the result was cut."""
    return list(dict.fromkeys(path for path, _, _ in hits_of(result))), is_cut(result)


def mentions(files: MemoryFiles, needle: str, folder: str = ".") -> Reply:
    """Answer which files mention a text."""
    call = find(needle, folder)
    result = files.run(call)
    found, cut = mentioned(result)
    if not found:
        if result.startswith("error: "):
            return Reply((call,), f"There is no folder {folder}.")
        return Reply((call,), f"No file mentions {needle}{_end(result)}")
    more = ", and maybe in more files" if cut else ""
    return Reply((call,), f"{needle} is mentioned in {', '.join(found)}{more}")


def where(files: MemoryFiles, needle: str, path: str) -> Reply | None:
    """Answer on which lines of one file a text is; a single one is quoted."""
    call = find(needle, path)
    result = files.run(call)
    if (no := refused(result, path)) is not None:
        return Reply((call,), no)
    hits = hits_of(result)
    if not hits:
        return Reply((call,), f"{path} does not mention {needle}{_end(result)}")
    if len(hits) == 1:
        return Reply((call,), f"Line {hits[0][1]} says: {hits[0][2].strip()}")
    if MORE in result or len(hits) > 12:
        return None
    numbers = ", ".join(str(number) for _, number, _ in hits)
    return Reply((call,), f"{needle} is on lines {numbers} of {path}.")
