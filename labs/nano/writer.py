"""The writer of the corpus: a round, and the parts of every family's rounds."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from triplepoint.tools.formats import MAX_CHARS

from .configs import CONFIG_EXTENSIONS
from .files import Call, MemoryFiles
from .manner import ask, slip
from .solve import Reply, by_name, several
from .words import Lexicon

LOG_EXTENSIONS = ("log", "log", "log", "log", "txt", "out", "err", "log.1", "trace")
TEXT_EXTENSIONS = ("txt", "md", "py", "csv", "c", "js", "rst", "html", "sh", "rs", "sql", "tsv")
ALL_EXTENSIONS = LOG_EXTENSIONS + CONFIG_EXTENSIONS + TEXT_EXTENSIONS


@dataclass(frozen=True, slots=True)
class Round:
    """A question, the calls and their results, and the answer."""

    family: str
    question: str
    steps: tuple[tuple[Call, str], ...]
    answer: str
    files: MemoryFiles


@dataclass(slots=True)
class Writer:
    """Writes rounds; `size` is about how many lines the tool results may have."""

    words: Lexicon
    size: int
    known_ways: bool = False
    """Whether to ask in the trained phrasings, also with held-out words."""
    long: bool = False
    """Whether results have many lines only."""

    @property
    def rng(self) -> random.Random:
        return self.words.rng

    def lines(self) -> int:
        """Draw small numbers often, up to `size`: long files need the short ones' skills too."""
        if self.long:
            return max(1, round(self.size * self.rng.uniform(0.4, 1.0)))
        return max(1, round(self.size ** self.rng.uniform(0.3, 1.0)))

    @property
    def asks_anew(self) -> bool:
        """Whether the phrasings are those that training never sees."""
        return self.words.held_out and not self.known_ways

    def ask(self, trained: list[str], held_out: list[str], **slots: str) -> str:
        patterns = held_out if self.asks_anew else trained
        return ask(self.rng, patterns, slots, self.words.word)

    def path(self, extensions: tuple[str, ...]) -> str:
        return self.words.path(extensions)

    def called(self, path: str) -> str:
        """Return how a question names a file in a folder: often not by its path."""
        rng = self.rng
        folder, slash, name = path.rpartition("/")
        roll = rng.random()
        if not slash or roll > BY_NAME:
            return path
        if roll < 0.06:
            return f"{slip(rng, folder)}/{name}"
        return name

    def needle(self) -> str:
        """Return something to search for."""
        roll = self.rng.random()
        if roll < 0.06:
            return self.words.foreign()
        if roll < 0.45:
            return self.words.word()
        if roll < 0.6:
            return self.words.word().capitalize()
        if roll < 0.75:
            return self.words.identifier()
        if roll < 0.85:
            return f"{self.words.word().upper()[:4]}-{self.rng.randrange(10_000)}"
        if roll < 0.88:
            return self.words.number()
        if roll < 0.95:  # an address, a path, a version
            found = self.words.value()
            return found if re.fullmatch(r"[\w./:@+-]+", found) else self.words.host()
        return self.words.phrase(2, 3)


def make_round(
    family: str, question: str, calls: list[Call], answer: str, files: MemoryFiles
) -> Round:
    """Return the round with the result of each call."""
    steps = tuple((call, files.run(call)) for call in calls)
    return Round(family, question, steps, answer, files)


AGENT_CHARS = 2048
"""What the agent lets one result have at nano's context of 4,096 tokens."""


NOTED = 0.4
"""Share of the workspaces with files beside those of the question that a search leaves out, at
least in part, and says so: long lines of what programs wrote for programs, and what is not ours."""


def left_out(writer: Writer) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what searches report of files outside the question; mostly nothing. Held-out cases run
    on a real disk, which has none."""
    rng = writer.rng
    if rng.random() >= NOTED or writer.words.held_out:
        return (), ()
    roll, more = rng.random(), rng.choice(("", "", "", f" and {rng.randint(1, 12)} more"))
    if roll < 0.7:
        count = rng.choice((1, 1, 2, 3, rng.randint(2, 400)))
        lines = "line" if count == 1 else "lines"
        return (), (f"[cut: {count} very long {lines} searched only at the start]",)
    path = writer.path(ALL_EXTENSIONS)
    why = "could not be read" if roll < 0.9 else "searched only at the start: too large"
    return (f"[cut: {path}{more} {why}]",), ()


def workspace(writer: Writer, texts: dict[str, str]) -> MemoryFiles:
    """Return the files, mostly under the agent's cap on a result."""
    shown = AGENT_CHARS if writer.rng.random() < 0.9 else MAX_CHARS
    notes, regex_notes = left_out(writer)
    return MemoryFiles(texts, max_chars=shown, notes=notes, regex_notes=regex_notes)


BY_NAME = 0.5
"""Share of the questions about a file in a folder that name it otherwise than by its path."""


def called(
    writer: Writer, files: MemoryFiles, path: str, reply: Reply, *, alone: bool = False
) -> tuple[str, Reply]:
    """Return how the question names the file of a reply, and the reply to that.

    Args:
        writer: draws.
        files: the workspace; it may get further files of that name.
        path: the file, of which the first call of `reply` is.
        reply: to a question that names the path.
        alone: whether no other file may come to be.
    """
    asked = writer.called(path)
    name = path.rpartition("/")[2]
    if asked == path or asked in files.texts:
        return path, reply
    if asked == name and not alone and writer.rng.random() < 0.2:
        for _ in range(writer.rng.choice((1, 1, 2, 3))):
            other = f"{writer.words.folder()}/{name}"
            if other != path and not other.startswith(f"{path}/"):
                files.texts[other] = writer.words.phrase(1, 9)
        found = several(files, asked, path, reply)
        if found is not None:
            return asked, found
    found = by_name(files, asked, path, reply)
    return (path, reply) if found is None else (asked, found)


def made(family: str, question: str, reply: Reply, files: MemoryFiles) -> Round:
    """Return the round of a question and the way to answer it."""
    return make_round(family, question, list(reply.calls), reply.answer, files)
