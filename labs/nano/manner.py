"""The style of a written question: polite words, fillers, typos, capitals and marks."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from . import chatter
from .asked import asked, subject
from .composed import ways as _ways
from .phrasings import ACTING

BEFORE = _ways(
    "please |can you tell me |could you tell me |hey, |hi, |hello, |so |ok, |now |and |tell me, |"
    "I want to know: |quick question: |I wonder, |do you know |one more thing: |next: |also, |"
    "sorry, |then |hey nano, |and now: |I'm new here, |for the {x} team: |about the {x}: |"
    "I have a problem. |we deployed yesterday. |it worked last week. |I'm on call and need help. |"
    "I need this for a report: |good morning! |thanks. |great, |perfect. |sorry to ask again: |"
    "a colleague asks: |I can't find it: |the {x} is slow. |we changed the {x}. |help me: |"
    "quick one: |hm, |well, |right, |actually, |one question: |for my notes: |just curious, |"
    "sorry to bother you, |I'm on the phone with a customer, |my boss asks: |for the ticket: |"
    "before the meeting: |I was wondering, |if you don't mind, |help me out here: |"
    "{s} acts up again. |{s} looks odd. |we just moved {s}. |I restarted {s}. |{s} is new to me. |"
    "someone changed {s} yesterday. |I have to document {s}: |I'm setting up {s}. |"
    "I took over {s} last week, |I'm debugging {s}: |there's a new colleague for {s}. |"
    "I want to move {s}. |they asked me about {s}: |customers complain about {s}. |"
    "it's late and {s} is slow. |I know it's somewhere here: |let's see, |next question: |"
    "good, |fine. |thanks! |ok cool, |btw, |hey there, |could you help me? |I'm lost. |"
    "my {x} is broken, |while the {x} runs, |before I {x} it, |the {x} wants to know: "
)
AFTER = _ways(
    "| please|, please| thanks|, thanks| for me| now|, thank you| again| exactly| for the {x}|"
    " by any chance| right now| quickly| then|, if you can| today|, I wonder|, do you know|"
    "? I forgot|? asking for a friend|, thx|, cheers| pls| plz|, quickly please|? just curious|"
    ", if you don't mind|, it's urgent|? I need it for {s}|? I can't remember|, can you check|"
    "? I have no idea|, can you tell me|? {s} needs it|, just to be sure|, any idea"
)
LEAD_INS, TAILS = asked("BEFORE_WRAP"), asked("AFTER_WRAP")
"""The same in whole sentences, as people write who take their time."""
PLACED = _ways(
    "{n} in {d}|{n} in the {d} folder|{n} from {d}|{n} under {d}|{n} in {d}/|the {n} in {d}|"
    "{n} of the {d} folder|{n} (in {d})|{n} inside {d}|the {n} from the {d} directory"
)
"""A file, named by its folder behind its name."""
_ALONE = re.compile(r"(^| )\{f\}([ ,.?!]|$)")
"""Where the name of a file may be of several words."""
OPENERS = tuple(
    _ways(
        "what|which|where|who|is|are|in|did|any|how|does|do|can|could|why|when|has|and |same|"
        "should|was|were|on wh|at wh|to wh|then "
    )
)


INSIDE = _ways(
    "just|just|exactly|actually|maybe|perhaps|please|now|right now|really|possibly|currently|"
    "by chance|again|like|kind of|at the moment|for me|today|here|there|by now|currently|finally|"
    "if any|of course|as it happens|though|anyway|for sure|probably|roughly|so far|in fact|you see|"
    "I guess|let's say|quickly|ever|at all|even|simply|precisely|basically|honestly|apparently"
)
"""Words that change nothing, wherever they stand."""


def loosened(rng: random.Random, text: str) -> str:
    """Insert a word that changes nothing.

    It stands between two written words, never beside a slot: there it would be part of a name.
    """
    parts = text.split(" ")
    inner = [n for n in range(1, len(parts)) if "{" not in parts[n - 1] + parts[n]]
    if not inner:
        return text
    parts.insert(rng.choice(inner), rng.choice(INSIDE))
    return " ".join(parts)


def slip(rng: random.Random, text: str) -> str:
    """Add a typo: one letter missing, doubled or swapped with the next."""
    parts = text.split(" ")
    long = [n for n, part in enumerate(parts) if len(part) > 3 and part.isalpha()]
    if not long:
        return text
    n = rng.choice(long)
    at = rng.randrange(1, len(parts[n]) - 1)
    head, one, two, tail = parts[n][:at], parts[n][at], parts[n][at + 1], parts[n][at + 2 :]
    parts[n] = head + rng.choice((two, two + one, one + one + two)) + tail
    return " ".join(parts)


def ask(
    rng: random.Random, patterns: list[str], slots: dict[str, str], any_word: Callable[[], str]
) -> str:
    """Write one question: a phrasing, sometimes polite, with or without capital and mark."""
    text = rng.choice(patterns)
    if rng.random() < 0.05 and len(patterns) > 1:  # a whole question has words to search for
        text = slip(rng, text)
    if rng.random() < 0.08 and len(patterns) > 1:
        text = loosened(rng, text)
    if text.startswith("{x}"):
        text = no_act(any_word) + text[3:]
    if rng.random() < 0.08:
        text = chatter.fronted(rng, text, any_word)
    asks = text.lower().startswith(OPENERS)
    if rng.random() < 0.15:
        text = chatter.around(rng, text, any_word)
    elif rng.random() < 0.2:
        text = rng.choice(BEFORE) + text if rng.random() < 0.5 else f"{rng.choice(LEAD_INS)} {text}"
    if rng.random() < 0.1 and not text.endswith("}"):
        text += rng.choice(AFTER if rng.random() < 0.5 else TAILS)
    if rng.random() < 0.7 and not text.startswith("{"):
        text = text[0].upper() + text[1:]
    elif rng.random() < 0.05:
        text = text.replace("what", "WHAT").replace("error", "ERROR").replace("file", "FILE")
    if rng.random() < 0.05:
        text = text.replace("'", "").replace(",", "")
    if asks or text.lower().startswith(OPENERS):
        text += "?" if rng.random() < 0.85 else ""
    else:
        text += rng.choice(("", "", "", ".", "?", "!"))
    while "{s}" in text:
        text = text.replace("{s}", subject(rng, any_word), 1)
    while "{x}" in text:
        text = text.replace("{x}", any_word(), 1)
    for slot, value in slots.items():
        if slot == "f" and _ALONE.search(text) and rng.random() < 0.07:
            value = placed(rng, value)
        text = text.replace("{" + slot + "}", value)
    return text


def placed(rng: random.Random, path: str) -> str:
    """Rewrite a path as `name in folder`; leave other text, and quoted paths."""
    folder, _, name = path.rpartition("/")
    if not (folder and name) or re.search(r"[\s`'\"]", path):
        return path
    return rng.choice(PLACED).format(n=name, d=folder)


def no_act(any_word: Callable[[], str]) -> str:
    """Return a word for the action, or none if it requests more than to look."""
    while (word := any_word()) in ACTING:
        pass
    return word


def quoted(rng: random.Random, name: str, *, often: float = 0.12) -> str:
    """Quote a name as people do in a sentence: mostly not, else in some quotes."""
    if rng.random() < (0.35 if " " in name else often):
        return rng.choice(('"{}"', "`{}`", '"{}"', "'{}'")).format(name)
    return name
