"""`python -m labs.harness.rival MODEL.gguf --trees FOLDER [--sample N] [--out FILE]`.

One shot over ranked lines: evidence is gathered by code, and the model is asked once, without
tools. It sees the names of files, what it was asked about by name, the lines that share rare words
with the question, and the best of these again just before the question; a file that is named but
is not there is told. An agent has to beat this.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from triplepoint.runtime.suites.attempt import let_go

from .gold import Line, Tree
from .oracle import NO_TOOLS
from .runner import Asker, Reply, command, hear, plain_agent

if TYPE_CHECKING:
    from triplepoint import Engine

    from .questions import Question

SYSTEM = (
    "You answer questions about the files of a folder. You see the names of its files and parts of "
    "them, with line numbers. Answer briefly from these. If they do not hold the answer, say that "
    "it is not there."
)
ROOM = 4_000  # characters of evidence, besides names
NAMES = 60
TOP = 5  # lines that stand again before the question
WIDTH = 240
BEST = 14  # lines that are taken from files that were not named

_COMMON_WORDS = (
    "a an and any are as at be been by can could did do does el la los las de del en que qué der "
    "die das den dem ein eine ist im in und wie was welche welcher es for from had has have how i "
    "if is it its list many me much my not of on or our please por show tell that the their them "
    "there these they this to was we were what when where which who why will with you your file "
    "files folder line lines"
)
_COMMON = frozenset(_COMMON_WORDS.split())
_FAULT = re.compile(
    r"\b(?:error|err|fatal|crit\w*|emerg\w*|alert|panic|exception|traceback|fail\w*|denied|refused|"
    r"killed|abort\w*|time(?:d|out)\b.{0,4}out|severe)\b",
    re.I,
)
_ASKS_FAULT = re.compile(
    r"error|fail|wrong|crash|problem|broke|stop|down|fehler|schief|fall[óo]|problema|错|失败|问题",
    re.I,
)
_NAMED_LINE = re.compile(
    r"(?:line|zeile|l[ií]nea)\s+(?:no\.? |number )?(\d+)|第\s*(\d+)\s*行", re.I
)


def terms(text: str) -> Iterator[str]:
    """Yield the words of a text in lower case; pairs of characters in scripts without spaces."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower()
    for word in re.findall(r"[^\W\d_]+|\d+", split):
        if "\u3040" <= word[0] <= "\u9fff":
            yield from (word[i : i + 2] for i in range(max(len(word) - 1, 1)))
            continue
        for ending in ("ing", "ies", "es", "ed", "en", "s"):
            if word.endswith(ending) and len(word) - len(ending) >= 3:
                word = word[: -len(ending)]
                break
        yield word


@dataclass(frozen=True)
class Index:
    """The lines of a tree, found by their words."""

    tree: Tree

    @cached_property
    def lines(self) -> list[Line]:
        """Return all lines, in the order of their files."""
        return [
            Line(path, number, text)
            for path, several in self.tree.texts.items()
            for number, text in enumerate(several, 1)
        ]

    @cached_property
    def postings(self) -> dict[str, dict[int, int]]:
        """Return the postings by term: line index to count; path words count for each line."""
        found: dict[str, dict[int, int]] = defaultdict(dict)
        of_path = {path: Counter(terms(path)) for path in self.tree.texts}
        for place, line in enumerate(self.lines):
            for term, times in (Counter(terms(line.text)) + of_path[line.path]).items():
                found[term][place] = times
        return found

    def ranked(self, question: str) -> list[Line]:
        """Return the lines that share words with a question; rare words weigh more."""
        scores: dict[int, float] = defaultdict(float)
        for term in set(terms(question)):
            hits = self.postings.get(term, {})
            if term in _COMMON or not hits:
                continue
            weight = math.log(1 + len(self.lines) / len(hits))
            for place, times in hits.items():
                scores[place] += weight * times / (times + 1)
        if _ASKS_FAULT.search(question):
            for place, line in enumerate(self.lines):
                if _FAULT.search(line.text):
                    scores[place] += 1.5
        order = sorted(scores, key=lambda place: (-scores[place], place))
        return [self.lines[place] for place in order]

    def named(self, question: str) -> list[str]:
        """Return up to two files that a question names, with or without extension."""
        asked = question.lower()
        found = {}
        for path in self.tree.texts:
            name = path.rsplit("/", 1)[-1].lower()
            stem = name.rsplit(".", 1)[0]
            if path.lower() in asked:
                found[path] = 0
            elif len(name) > 3 and name in asked:
                found[path] = 1
            elif len(stem) > 3 and re.search(rf"\b{re.escape(stem)}\b", asked):
                found[path] = 2
        return sorted(found, key=lambda path: (found[path], len(path)))[:2]

    def missing(self, question: str) -> list[str]:
        """Return the words of a question that look like file names but match no file."""
        return [
            name
            for name in re.findall(r"[\w./-]*\w\.[A-Za-z]\w{0,4}\b", question)
            if not any(f"/{path}".endswith(f"/{name}") for path in self.tree.files)
        ]


def evidence(index: Index, question: str) -> str:
    """Render the evidence that the model sees before a question."""
    texts = index.tree.texts
    names = [
        f"{path} ({len(texts.get(path, ()))} lines)" for path in list(index.tree.files)[:NAMES]
    ]
    parts = ["Files in the folder:\n" + "\n".join(names)]
    ranked, named = index.ranked(question), index.named(question)
    whole = sum(len(line.text) + len(str(line.number)) + 3 for line in index.lines)
    if whole <= ROOM:
        parts += [_block(path, _numbered(texts[path]), "whole") for path in texts]
    else:
        left = ROOM
        for place, path in enumerate(named):
            block = _excerpt(index, path, question, ranked, left // (len(named) - place))
            left -= len(block)
            parts.append(block)
        others = [line for line in ranked[:400] if line.path not in named][:BEST]
        for path in dict.fromkeys(line.path for line in others):
            mine = sorted((x for x in others if x.path == path), key=lambda x: x.number)
            block = _block(path, [f"{x.number}: {x.text[:WIDTH]}" for x in mine], "best lines")
            if left >= len(block):
                parts.append(block)
                left -= len(block)
    best = [line for line in ranked if line.path in named] + [
        line for line in ranked if line.path not in named
    ]
    if named and (asked := _asked_number(question)) and asked <= len(texts[named[0]]):
        best = [Line(named[0], asked, texts[named[0]][asked - 1])]
    shown = "\n".join(f"{x.path}:{x.number}: {x.text[:WIDTH]}" for x in best[:TOP])
    parts.append(f"Best lines:\n{shown}" if shown else "No line shares a word with the question.")
    parts += [f"There is no file {name} in this folder." for name in index.missing(question)]
    return "\n\n".join(parts)


def _excerpt(index: Index, path: str, question: str, ranked: Iterable[Line], room: int) -> str:
    """Render a named file: whole if it fits, else its ends, a requested line, the best lines."""
    lines = index.tree.texts[path]
    if sum(len(text) + 8 for text in lines) <= room:
        return _block(path, _numbered(lines), "whole")
    first = [1, 2, len(lines), len(lines) - 1]
    if (asked := _asked_number(question)) is not None:
        first[:0] = [asked]
    wanted = dict.fromkeys([*first, *(line.number for line in ranked if line.path == path)])
    taken: dict[int, str] = {}
    for number in list(wanted)[:30]:
        if 1 <= number <= len(lines):
            text = f"{number}: {lines[number - 1][:WIDTH]}"
            room -= len(text) + 1
            if room < 0:
                break
            taken[number] = text
    return _block(path, [taken[n] for n in sorted(taken)], f"{len(lines)} lines, excerpt")


def _asked_number(question: str) -> int | None:
    match = _NAMED_LINE.search(question)
    return int(match[1] or match[2]) if match else None


def _numbered(lines: Iterable[str]) -> list[str]:
    return [f"{number}: {text[:WIDTH]}" for number, text in enumerate(lines, 1)]


def _block(path: str, lines: Iterable[str], what: str) -> str:
    return f"--- {path} ({what})\n" + "\n".join(lines)


def asker(engine: Engine) -> Asker:
    """Return an asker over ranked lines; a second question ranks with the first one's words."""
    held: list[Index] = []

    def ask(question: Question, folder: Path, tree: Tree) -> Reply:
        index = held[-1] if held and held[-1].tree is tree else Index(tree)
        held[:] = [index]
        agent = plain_agent(engine, SYSTEM)
        reply, heard = Reply(), ""
        try:
            for turn in question.turns:
                heard = f"{heard} {turn.ask}".strip()
                task = (
                    f"{evidence(index, heard)}\n\nQuestion: {turn.ask}\nAnswer in one or two "
                    "sentences, with the words of the line that say it."
                )
                hear(agent, task, reply)
        finally:
            let_go(agent)
        return reply

    return ask


if __name__ == "__main__":
    raise SystemExit(command("rival", __doc__, asker, {"edit": NO_TOOLS}))
