"""Reads what the model says, token by token: thinking, answer, tool calls.

A tag counts where the model wrote it as its own token. Only in a vocabulary that lacks the token
is the tag looked for in the text, so a model that quotes ``<tool_call>`` from a file calls nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from .grammar import tag_ids
from .tokenizer import Tokenizer
from .toolcalls import ToolCall, ToolFormat

Mode = Literal["answer", "thinking", "call"]

_OPEN_THINKING = "<think>"
_CLOSE_THINKING = "</think>"


@dataclass
class Reply:
    """What the model said in one turn."""

    answer: str = ""
    """Text outside of thinking and calls, without the blank space around it."""
    thinking: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    cut_call: str | None = None
    """Text of a call that never ended: it must not run."""
    broken: list[str] = field(default_factory=list)
    """Why calls could not be read; empty whenever the grammar held."""


class ReplyReader:
    """Reads one turn of the model.

    Args:
        tokenizer: of the model.
        form: how it writes tool calls.
        thinking: whether the template has opened its thinking already.
    """

    def __init__(self, tokenizer: Tokenizer, form: ToolFormat, *, thinking: bool = False) -> None:
        self._form = form
        modes: dict[str, Mode] = {
            form.opening: "call",
            form.closing: "answer",
            _OPEN_THINKING: "thinking",
            _CLOSE_THINKING: "answer",
        }
        ids = tag_ids(tokenizer, tuple(modes))
        self._token_tags = {token: tag for tag, token in ids.items()}
        self._text_tags = [tag for tag in modes if tag not in ids]
        self._modes = modes
        self._mode: Mode = "thinking" if thinking else "answer"
        self._stream = tokenizer.stream()
        self._held = ""  # the end of the text, while it may be the beginning of a tag
        self._texts: dict[Mode, list[str]] = {"answer": [], "thinking": [], "call": []}
        self._reply = Reply()
        self._blank = ""  # blank space at the end of what was said, while nothing follows it
        self._begun: set[Mode] = set()

    def push(self, token: int) -> list[tuple[Mode, str]]:
        """The pieces of text that a sampled token completes, and what each of them is."""
        tag = self._token_tags.get(token)
        if tag is not None and self._counts(tag):
            pieces = self._read(self._stream.flush(), ends=True)
            self._turn(tag)
            return pieces
        text = self._stream.push(token)
        return self._read(text) if self._text_tags else self._take(text)

    def finish(self) -> Reply:
        """What was said, after the last token."""
        self._read(self._stream.flush(), ends=True)
        if self._mode == "call":
            self._reply.cut_call = "".join(self._texts["call"])
        self._reply.answer = "".join(self._texts["answer"])
        self._reply.thinking = "".join(self._texts["thinking"])
        return self._reply

    def _read(self, text: str, *, ends: bool = False) -> list[tuple[Mode, str]]:
        """Take a text in which tags may stand as letters."""
        pieces: list[tuple[Mode, str]] = []
        text = self._held + text
        self._held = ""
        while found := self._next_tag(text):
            place, tag = found
            pieces += self._take(text[:place])
            self._turn(tag)
            text = text[place + len(tag) :]
        if not ends:
            keep = max((_overlap(text, tag) for tag in self._text_tags), default=0)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return pieces + self._take(text)

    def _next_tag(self, text: str) -> tuple[int, str] | None:
        places = [(text.find(tag), tag) for tag in self._text_tags if self._counts(tag)]
        return min(((place, tag) for place, tag in places if place >= 0), default=None)

    def _counts(self, tag: str) -> bool:
        """Inside a call only its end counts: an argument may hold any other tag."""
        if self._mode == "call":
            return tag == self._form.closing
        return tag != self._form.closing

    def _take(self, text: str) -> list[tuple[Mode, str]]:
        """Take a text without tags."""
        mode = self._mode
        if mode == "call":
            self._texts["call"].append(text)
            return []
        text = self._blank + text
        if mode not in self._begun:
            text = text.lstrip()  # templates put blank lines before an answer and a thought
        said = text.rstrip()
        self._blank = text[len(said) :]
        if not said:
            return []
        self._begun.add(mode)
        self._texts[mode].append(said)
        return [(mode, said)]

    def _turn(self, tag: str) -> None:
        """A tag was met."""
        if tag == self._form.closing:
            body = "".join(self._texts["call"])
            try:
                self._reply.calls.append(self._form.parse(body))
            except ValueError as error:
                self._reply.broken.append(str(error))
        self._texts["call"].clear()
        self._blank = ""
        self._mode = self._modes[tag]


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` that begins ``tag``."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if tag.startswith(text[-n:])), 0)
