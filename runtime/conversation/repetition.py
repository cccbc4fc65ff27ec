"""Detects that a reply has become a repetition, so that it can be stopped.

A model that loops writes the same few tokens until a limit ends it. That is a loop of at most
`LOOK_BACK` tokens, repeated for `MAX_LOOP` tokens; or a stretch of `LOOSE` tokens without a loop in
which every token, together with the `WIDTH` - 1 before it, was written within the last `LOOK_BACK`:
nothing in it is new. Real text hardly has such stretches (a test reads a standard library's). Those
that it has, such as a table of zeros or a rule of 200 characters, are in the context, and a
copy of the context may be as long as its source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence

from ..engine.drafting.copies import without_numbers

WIDTH = 6  # tokens that must have been written in that order
LOOK_BACK = 64  # tokens
MAX_LOOP = 148  # tokens of a loop, its first round included
LOOSE = 256  # tokens with nothing new that are no loop; real text: 213
_AGAIN = 32  # tokens until a copy is compared with the context again
_MIN_REST = 8  # characters that must be left to compare
_WORDS = re.compile(r"\w{1,32}|\s|[^\w\s]")  # a longer one in parts: what is held stays short


class Repetition:
    """Measures the repetition that a token sequence ends in.

    Attributes:
        length: tokens of the repetition, its first occurrence included; 0 where there is none.
    """

    def __init__(self) -> None:
        self.length = 0
        self._ids: list[int] = []
        self._last: dict[tuple[int, ...], int] = {}
        self._start: int | None = None

    def push(self, token: int) -> int:
        """Add a token; return the repetition's `length`."""
        self._ids.append(token)
        here = len(self._ids)
        key = tuple(self._ids[-WIDTH:])
        at = self._last.get(key)
        self._last[key] = here
        if at is None or here - at > LOOK_BACK:
            self._start, self.length = None, 0
            return 0
        self._start = at if self._start is None else min(self._start, at)
        self.length = here - self._start + WIDTH
        return self.length

    @property
    def hopeless(self) -> bool:
        """Return whether the repetition is longer than any in real text."""
        return self.length >= LOOSE or (self.length >= MAX_LOOP and self._loops())

    def _loops(self) -> bool:
        last = self._ids[-MAX_LOOP:]
        return any(last[p:] == last[:-p] for p in range(1, LOOK_BACK + 1))

    @property
    def ids(self) -> list[int]:
        """Return the repeated tokens."""
        return self._ids[len(self._ids) - self.length :]


class RepetitionStop:
    """Decides when a repeating reply must stop.

    Args:
        decode: converts tokens to text.
        context: returns the texts that the model may copy; called only when needed.

    Attributes:
        length: tokens of the repetition that ended the reply; 0 where none did.
    """

    def __init__(
        self, decode: Callable[[Sequence[int]], str], context: Callable[[], Sequence[str]]
    ) -> None:
        self.length = 0
        self._repetition = Repetition()
        self._decode, self._context = decode, context
        self._forms: list[str] | None = None
        self._until = MAX_LOOP

    def push(self, token: int) -> bool:
        """Add a token; return whether the reply must stop after it."""
        length = self._repetition.push(token)
        if length < MAX_LOOP:
            self._until = MAX_LOOP
            return False
        if length < self._until or not self._repetition.hopeless:
            return False
        if self._copied(self._decode(self._repetition.ids)):
            self._until = length + _AGAIN
            return False
        self.length = length
        return True

    def _copied(self, text: str) -> bool:
        """Return whether the context contains the text, plain or escaped as JSON."""
        if self._forms is None:
            texts = self._context()
            plain = ["\0".join(texts), "\0".join(without_numbers(one) for one in texts)]
            self._forms = plain + [json.dumps(one, ensure_ascii=False) for one in plain]
        needle = text.strip("\ufffd")  # of a character that it has in part
        return len(needle) >= _MIN_REST and any(needle in form for form in self._forms)


class Words:
    """Splits streamed text into numbered words, in place of tokens, which servers do not send.

    Attributes:
        texts: the words, by number.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._held = ""

    def push(self, text: str) -> list[int]:
        """Add a piece of text; return the numbers of the words that it completes."""
        words = _WORDS.findall(self._held + text)
        self._held = words.pop() if words else ""  # it may continue
        for word in words:
            if self._numbers.setdefault(word, len(self.texts)) == len(self.texts):
                self.texts.append(word)
        return [self._numbers[word] for word in words]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of the numbered words."""
        return "".join(self.texts[number] for number in ids)
