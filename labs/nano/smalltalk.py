"""Rounds without a tool: greetings and thanks, and requests beyond the model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from . import phrasings as ways
from . import unseen
from .asked import subject
from .beyond import PICKS
from .files import MemoryFiles
from .manner import quoted
from .solve import CANNOT
from .writer import ALL_EXTENSIONS, LOG_EXTENSIONS, Round, Writer

HELLO = "Hello! Ask me about a file in this folder."
WELCOME = "You're welcome."
ABILITIES = (
    "I can list folders, read files and search them. "
    "Ask me for the error in a log, the value of a setting or a line of a file."
)
NAME = "I am triplepoint-nano, a small model that answers questions about files."
GOODBYE = "Goodbye!"
THANKED = (ways.THANKS, unseen.THANKS, WELCOME)


def chat(writer: Writer) -> Round:
    """Greet, thank or ask about nano itself: no tool."""
    rng, words = writer.rng, writer.words
    trained, held_out, answer = rng.choice(
        (
            (ways.GREETING, unseen.GREETING, HELLO),
            THANKED,
            (ways.ABILITY, unseen.ABILITY, ABILITIES),
            (ways.WHO, unseen.WHO, NAME),
            (ways.BYE, unseen.BYE, GOODBYE),
        )
    )
    text = rng.choice(held_out if writer.asks_anew else trained)
    for slot, make in (("{w}", words.word), ("{x}", words.word), ("{n}", words.number)):
        while slot in text:
            text = text.replace(slot, make(), 1)
    if rng.random() < 0.6:
        text = text[0].upper() + text[1:]
    asks = text.lower().startswith(("wh", "how", "can", "are", "do", "is", "tell"))
    text += rng.choice(("?", "?", "?", "") if asks else ("", "", ".", "!"))
    return Round("chat", text, (), answer, MemoryFiles({}))


def beyond(writer: Writer) -> Round:
    """Ask to count, compare, sum up, explain, change, look into a table or know the world."""
    rng, words = writer.rng, writer.words
    text = rng.choice(unseen.BEYOND if writer.asks_anew else rng.choice(ways.BEYOND_KINDS))
    slots: dict[str, Callable[[], str]] = {
        "{f}": lambda: _a_file(writer, ALL_EXTENSIONS),
        "{l}": lambda: _a_file(writer, LOG_EXTENSIONS),
        "{t}": lambda: _a_file(writer, ("csv", "tsv", "csv", "xlsx")),
        "{d}": words.folder,
        "{k}": lambda: _a_key(writer),
        "{s}": lambda: subject(rng, words.word),
        "{w}": words.word,
        "{x}": words.word,
        "{n}": words.number,
        **{slot: partial(pick, rng) for slot, pick in PICKS.items()},
    }
    for slot, make in slots.items():
        while slot in text:
            text = text.replace(slot, make(), 1)
    return Round("beyond", writer.ask([text], [text]), (), CANNOT, MemoryFiles({}))


def _a_file(writer: Writer, extensions: tuple[str, ...]) -> str:
    """Return a file as a question names it: by its path or its last name, bare or in quotes."""
    return quoted(writer.rng, writer.called(writer.path(extensions)), often=0.08)


def _a_key(writer: Writer) -> str:
    """Return a key as it is written, or as people say it."""
    roll = writer.rng.random()
    if roll < 0.5:
        return writer.words.identifier()
    return writer.words.word() if roll < 0.65 else writer.words.phrase(2, 2)
