"""Detects tool calls that a model writes as plain text, in another format than its own.

Small models call with plain JSON, with doubled braces as a template may show them, as Python
would, in a fence, in tags of letters, in a list or one a line. `DressWatch` follows an answer as
it comes; what may still become a call is held back.

A call begins where a tool's name *and* its arguments are being written, at the beginning of a
line: an object with nothing but what names a call (``{"name": "read_file", "arguments": {``), or
``read_file(path=`` and its like. It counts

- where the answer is nothing but calls, with whatever fences, tags, brackets and separators;
- behind a short lead-in (`MAX_LEAD`).

All else stays text: an example within an explanation, a call that something follows, a call behind
a lead-in that says it is an example. Quoted files stay text by their other keys
(``version``, ``in``, ``description``), and a tool's own definition by the schema that it has in the
place of arguments. Where the whole answer is a call of a tool that is not there, it is a call with
a `problem`: the model reads that, and no one else sees the call.
"""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from typing import Literal, TypeAlias

from .dressed_call import Head, find_head, read_call
from .formats.toolcalls import ToolCall, Tools

MAX_LEAD = 200
"""Maximum characters of a lead-in before a call; it may have two lines."""
_MAX_HEAD = 512  # characters of a line up to the arguments
_CLOSING = re.compile(r"\s*(```|</\|?\w+\|?>|[\]}),;])")
_CLOSING_PART = re.compile(r"`{1,2}|</?\|?\w*\|?")
_BRACKETS = {
    True: re.compile(r"[\"'(){}\[\]]"),
    False: re.compile(r"[\"{}\[\]]"),
}  # Python's, JSON's
_CLOSER = {"{": "}", "[": "]", "(": ")"}
_EXAMPLE = re.compile(r"\b(?:examples?|e\.g\.|for instance|format|syntax|schema)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.:!?…。：！？]\Z")
_TEXT_ENDS = {sign: re.compile(rf"\\.|{sign}", re.DOTALL) for sign in "\"'"}

Dressed: TypeAlias = "tuple[list[ToolCall], list[str]]"
"""An answer's calls, none where it is plain text; and notes on omitted arguments and text."""


class DressWatch:
    """Follows an answer and detects where text may begin a tool call.

    Args:
        tools: OpenAI-style schemas.

    Attributes:
        released: the text let through; it precedes the calls, where there are any.
        off: whether no later text can be a call.
    """

    def __init__(self, tools: Tools) -> None:
        functions = [tool["function"] for tool in tools]
        self._schemas = {one["name"]: one.get("parameters") or {} for one in functions}
        self.released = ""
        self._head: Head | None = None
        self.off = False
        self._state: Literal["prose", "head", "value", "after"] = "head"
        self._held = ""
        self._begin = 0  # of what is held: where the line begins that may begin a call
        self._at = 0  # of it: how far it was read
        self._stack = self._quote = ""  # what closes brackets and text that are open
        self._value = -1  # where the arguments end
        self._fenced = False
        self._calls: list[tuple[Head, int, int]] = []  # and where arguments and call end

    @property
    def fresh(self) -> bool:
        """Return whether nothing has been read yet."""
        return not (self.off or self.released or self._held)

    def begun(self) -> tuple[Head, str] | None:
        """Return the head and partial arguments of the call being written, or None."""
        if self.off or self._state != "value" or self._value >= 0 or self._head is None:
            return None
        return self._head, self._held[self._head.at :]

    @property
    def calling(self) -> bool:
        """Return whether a call has been written or is being written."""
        return not self.off and bool(self._calls or self.begun())

    def copy(self) -> DressWatch:
        """Return an independent copy in the same state."""
        made = copy.copy(self)
        made._calls = list(self._calls)
        return made

    def push(self, text: str) -> str:
        """Read a text; return what can be released as plain text."""
        if self.off:
            return text
        self._held += text
        before = len(self.released)
        while self._step():
            pass
        if self._state == "prose" and not self.off:
            self._let(len(self._held))
        return self.released[before:] + (self.let_go() if self.off else "")

    def let_go(self) -> str:
        """Release the buffered text as plain text and stop watching."""
        held, self._held, self.off = self._held, "", True
        return held

    def found(self) -> Dressed:
        """Return the parsed calls and notes, assuming that the answer ends here."""
        rest = self._held[self._at :].strip() if self._state == "after" and not self.off else "?"
        strange = any(head.name not in self._schemas for head, _, _ in self._calls)
        if not (_CLOSING_PART.fullmatch(rest) or not rest) or (strange and self.released.strip()):
            return [], []
        calls: list[ToolCall] = []
        notes: list[str] = []
        for head, value, end in self._calls:
            call = read_call(head, self._held[head.at : value], self._schemas, notes)
            if call is None:
                return [], []
            calls.append(replace(call, text=self._held[head.begin : end].strip()))
        return calls, notes if calls else []

    # --- reading

    def _step(self) -> bool:
        """Advance the state machine once; return False where it needs more text."""
        steps = {"prose": self._read_prose, "head": self._read_head, "value": self._read_value,
                 "after": self._read_after}  # fmt: skip
        return not self.off and steps[self._state]()

    def _let(self, end: int) -> None:
        self.released += self._held[:end]
        self._held = self._held[end:]
        self._at, self._begin = max(0, self._at - end), max(0, self._begin - end)

    def _read_prose(self) -> bool:
        line = self._held.find("\n")
        self._let(len(self._held if line < 0 else self._held[:line].rstrip()))
        if len(self.released) > MAX_LEAD or self.released.count("\n") > 2:
            self.off = True
            return False
        self._begin = self._held.find("\n") + 1
        self._state = "head" if self._begin else "prose"
        return self._begin > 0

    def _read_head(self) -> bool:
        """Match a call's head at the beginning of a line or after another call."""
        line = self._held[self._begin :].lstrip()
        found = find_head(line[:_MAX_HEAD], tuple(self._schemas))
        if not line or (found is True and len(line) <= _MAX_HEAD):
            return False
        start = len(self._held) - len(line)
        if isinstance(found, Head) and self._leads(found):
            self._head = replace(found, begin=start + found.begin, at=start + found.at)
            self._fenced = self._fenced or found.fenced
            self._state, self._at, self._value = "value", self._head.at, -1
            self._stack, self._quote = found.closers, ""
            return True
        if self._calls or isinstance(found, Head):
            self.off = True
            return False
        self._let(start)
        self._state = "prose"
        return True

    def _leads(self, head: Head) -> bool:
        """Return whether the text released so far may introduce a call with this head."""
        lead = self.released.strip()
        plain = head.python and not head.fenced and not head.tagged
        return not (_EXAMPLE.search(lead) or (plain and lead and not _SENTENCE_END.search(lead)))

    def _read_value(self) -> bool:
        """Scan the arguments and the closers after them; return False where they are incomplete."""
        head, held = self._head, self._held
        assert head is not None
        while self._stack:
            signs = _TEXT_ENDS[self._quote] if self._quote else _BRACKETS[head.python]
            mark = signs.search(held, self._at)
            if mark is None:
                open_escape = (len(held) - len(held.rstrip("\\"))) % 2 if self._quote else 0
                self._at = max(self._at, len(held) - open_escape)
                return False
            self._at, sign = mark.end(), mark[0]
            if self._quote:
                self._quote = "" if sign == self._quote else self._quote
            elif sign in "\"'":
                self._quote = sign
            elif sign in _CLOSER:
                self._stack += _CLOSER[sign]
            elif sign == self._stack[-1]:
                self._stack = self._stack[:-1]
            else:
                self.off = True
                return False
            if self._value < 0 and self._stack == head.closers and not head.python:
                self._value = self._at
        self._calls.append((head, self._at - 1 if head.python else self._value, self._at))
        self._state = "after"
        return True

    def _read_after(self) -> bool:
        """Skip the separators after a call, then look for another call's head."""
        held = self._held
        while closing := _CLOSING.match(held, self._at):
            if closing[1] == "```":
                if not self._fenced:
                    break  # another one opens
                self._fenced = False
            self._at = closing.end()
        rest = held[self._at :].lstrip()
        if not rest or _CLOSING_PART.fullmatch(rest):
            return False
        self._begin = self._at
        return self._read_head()
