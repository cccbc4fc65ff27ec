"""Rounds without a tool: greetings and thanks, and what is beyond the model."""

from __future__ import annotations

from . import phrasings as ways
from . import unseen
from .asked import subject
from .files import MemoryFiles
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
    """Greetings, thanks, questions about itself: no tool."""
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
    """To count, compare, sum up, explain, change, look into a table or know the world."""
    rng, words = writer.rng, writer.words
    text = rng.choice(unseen.BEYOND if writer.asks_anew else rng.choice(ways.BEYOND_KINDS))
    slots = {
        "{f}": lambda: writer.path(ALL_EXTENSIONS),
        "{l}": lambda: writer.path(LOG_EXTENSIONS),
        "{t}": lambda: writer.path(("csv", "tsv", "csv", "xlsx")),
        "{d}": words.folder,
        "{k}": words.identifier,
        "{s}": lambda: subject(rng, words.word),
        "{w}": words.word,
        "{x}": words.word,
        "{n}": words.number,
    }
    for slot, make in slots.items():
        while slot in text:
            text = text.replace(slot, make(), 1)
    if rng.random() < 0.7:
        text = text[0].upper() + text[1:]
    text += rng.choice(("?", "?", "?", "", "."))
    return Round("beyond", text, (), CANNOT, MemoryFiles({}))
