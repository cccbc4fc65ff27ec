"""Parses the model's reply, token by token: thinking, answer, tool calls.

A tag counts where the model wrote it as its own token. Only in a vocabulary that lacks the token
is the tag looked for in the text, so a model that quotes ``<tool_call>`` from a file calls nothing.
Formats without tags begin a call with letters, at the places that they name. Where a turn is made
of messages with headers, the header says what a message is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..tokens.tokenizer import Tokenizer
from .call_dress import DressWatch
from .formats.call_pieces import CallPiece, CallPieces
from .formats.toolcalls import CallPrefix, Headers, ToolCall, ToolFormat, quoted
from .grammar import tag_ids
from .reasoning_tags import Thinking, thinking_of
from .stop_strings import StopTexts, overlap

Mode = Literal["answer", "thinking", "call", "header"]

_FENCE = re.compile(r"\s*```\w*\s*$")


@dataclass
class Reply:
    """The parsed reply of one turn."""

    answer: str = ""
    """Text outside thinking and calls, without surrounding whitespace."""
    thinking: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    cut_call: str | None = None
    """Text of an incomplete call, which must not run; None if there is none."""
    repeated: int = 0
    """Tokens of the repetition that ended the reply; 0 where none did."""
    repaired: bool = False
    """Whether the calls were written as plain text (see `call_dress`); then the answer
    is the text before them."""
    notes: list[str] = field(default_factory=list)
    """Notes on what was dropped from calls that were parsed from plain text."""
    broken: list[str] = field(default_factory=list)
    """Why calls could not be read; empty whenever the grammar held."""


class ReplyReader:
    """Streaming parser of one turn of the model.

    Args:
        tokenizer: of the model.
        form: the tool-call format.
        thinking: whether the template has opened the thinking already.
        tools: OpenAI-style schemas. With them, calls that an answer holds as plain text are parsed,
            and text that may still become one is buffered.
        tags: tags around thinking; default: those in the vocabulary.
        stops: stop texts, which are not part of the answer.

    Attributes:
        rest: pieces that `finish` released, calls in plain text as written.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        form: ToolFormat,
        *,
        thinking: bool = False,
        tools: Sequence[Mapping[str, Any]] = (),
        tags: Thinking | None = None,
        stops: Sequence[str] = (),
    ) -> None:
        self._form, self._tools, self._headers = form, tools, form.headers
        self._stop_texts = StopTexts(stops)
        self.rest: list[tuple[Mode, str]] = []
        self._stops = tokenizer.stop_ids
        tags = tags or thinking_of("", tokenizer)
        modes: dict[str, Mode] = {o.text: "call" for o in form.openings if not o.in_call}
        modes |= {tags.opening: "thinking", tags.closing: "answer"}
        modes |= dict.fromkeys(tags.around or (), "answer")
        if form.closing:
            modes[form.closing] = "answer"
        if form.headers is not None:
            modes = dict.fromkeys(form.headers.tags, "header")
        ids = tag_ids(tokenizer, (*modes, *form.inner))
        self._token_tags = {token: tag for tag, token in ids.items()}
        self._text_tags = [tag for tag in modes if tag not in ids]
        self._text_openings = [o for o in form.openings if o.in_call and form.headers is None]
        self._modes = modes
        self._title = tags.title
        self._awaited = ""  # the title, while a thought has begun and nothing of it was read
        self._header = ""
        self._part = 0  # the first token of the message that is being read
        self._mode: Mode = "thinking" if thinking else "answer"
        if form.headers is not None:
            self._mode = "header"
        self._stream = tokenizer.stream()
        self._held = ""  # the end of the text, while it may be the beginning of a tag
        self._known = 0  # how much of what is held back the turn was begun with
        self._line = ""  # of the answer, since its last line break
        self._texts: dict[Mode, list[str]] = {"answer": [], "thinking": [], "call": []}
        self._reply = Reply()
        self._blank = ""  # blank space at the end of the text, while nothing follows it
        self._begun: set[Mode] = set()
        self._ended = False
        self._bare: CallPrefix | None = None  # the call's beginning, where no tag will end it
        self._names = [quoted(tool["function"]["name"])[1:] for tool in tools]
        self._watch = DressWatch(tools) if tools else None  # as long as the answer may be calls
        self._tokenizer = tokenizer
        self._pieces: CallPieces | None = None  # once they are requested
        self._new_pieces: list[CallPiece] = []
        self._count = 0
        self._thought: list[int] = []
        self._apart = True  # whether thinking and answer share no token
        self._thinks = False  # whether the message that is being read is a thought

    def begin_after(self, tokens: Sequence[int], stops: Sequence[str]) -> None:
        """Consume the tokens of a prefilled turn without reporting their text.

        Args:
            tokens: in order.
            stops: texts that end the answer, from here on.
        """
        for token in tokens:
            self.push(token)
        call = self._texts["call"] if self._mode == "call" else []
        self._texts = {"answer": [], "thinking": [], "call": call}
        self._thought, self._count, self._watch = [], 0, None
        self._blank = ""  # the line continues, and what is buffered may still begin a tag
        self._known = len("".join(call) + self._held)
        self._stop_texts = StopTexts(stops)

    def push(self, token: int) -> list[tuple[Mode, str]]:
        """Add a sampled token; return the texts that it completes, each with its mode."""
        was = self._mode
        pieces = self._push(token)
        self._mark(token, was, pieces)
        self._count += 1
        return self._shown_now(pieces)

    @property
    def stopped(self) -> bool:
        """Return whether a stop text ended the answer."""
        return self._stop_texts.found is not None

    @property
    def stop_text(self) -> str | None:
        """Return the stop text that ended the answer, or None."""
        return self._stop_texts.found

    @property
    def calls(self) -> list[ToolCall]:
        """Return the calls parsed so far; `finish` may add more."""
        return self._reply.calls

    def _shown_now(self, pieces: list[tuple[Mode, str]]) -> list[tuple[Mode, str]]:
        """Filter texts to those to report now; answer text that may become a call is buffered."""
        watch = self._watch
        if watch is None or watch.off:
            return pieces
        shown: list[tuple[Mode, str]] = []
        for mode, text in pieces:
            if mode != "answer":
                shown += self._left()
            shown.append((mode, watch.push(text) if mode == "answer" else text))
        if self._mode != "answer":
            shown += self._left()
        return [(mode, text) for mode, text in shown if text]

    def _left(self) -> list[tuple[Mode, str]]:
        """Release buffered answer text that turned out to be no call."""
        watch = self._watch
        return [] if watch is None or watch.fresh else [("answer", watch.let_go())]

    def call_pieces(self) -> list[CallPiece]:
        """Return the call deltas since the last call of this method, unfinished calls included.

        Empty where the format does not write arguments as JSON.
        """
        if self._form.call_head is None:
            return []
        self._pieces = self._pieces or CallPieces(self._form.call_head)
        if self._mode == "call":
            self._new_pieces += self._pieces.read(self._texts["call"])
        new, self._new_pieces = self._new_pieces, []
        return new

    def call_arguments(self, index: int) -> str | None:
        """Return a call's arguments as streamed; None where it was not streamed."""
        streamed = [] if self._pieces is None else self._pieces.arguments
        return streamed[index] if index < len(streamed) else None

    @property
    def thought(self) -> list[int]:
        """Return the indices of the thinking tokens, tags and blanks after it included.

        Empty where nothing was thought, and where a token holds the end of the thinking and the
        beginning of the answer.
        """
        if not self._apart or not self._texts["thinking"]:
            return []
        cut = self._headers is not None and self._mode == "thinking"
        return [*self._thought, *range(self._part, self._count)] if cut else self._thought

    def _mark(self, token: int, was: Mode, pieces: list[tuple[Mode, str]]) -> None:
        if token in self._stops:
            return  # it ends the turn, whatever the turn was at
        if self._headers is not None:
            self._mark_message(self._headers)
            return
        if self._mode == "call":
            self._begun.add("call")
        elif self._mode == "thinking" and "answer" not in self._begun:
            if self._thought and self._thought[-1] != len(self._thought) - 1:
                self._thought = []
            # All of them so far: a tag in letters takes several tokens.
            self._thought += range(len(self._thought), self._count + 1)
        elif "thinking" in (was, self._mode):
            self._thought.append(self._count)
            self._apart = self._apart and not any(mode == "answer" for mode, _ in pieces)
        elif self._thought and self._mode == "answer" and not {"answer", "call"} & self._begun:
            self._thought += [self._count] * (not self._tokenizer.decode([token]).strip())

    def _mark_message(self, headers: Headers) -> None:
        """Record the tokens of a thinking message once the header of the next one begins."""
        if self._mode == "header" and self._header.endswith(headers.start + headers.role):
            if self._thinks:
                self._thought += range(self._part, self._count + 1)
            self._part, self._thinks, self._header = self._count + 1, False, ""

    def finish(self) -> Reply:
        """Flush all buffers and return the whole reply, after the last token."""
        self.rest = self._shown_now(self._read(self._stream.flush(), ends=True))
        cut = not self._ended and not self.stopped
        reply, watch = self._reply, self._watch
        if self._mode == "call":
            body = "".join(self._texts["call"])
            if not self._ended or (self._form.closing and not self._bare):
                reply.cut_call = body
            elif not self._parse(body):
                self.rest += self._shown_now(self._answered())
        calls, notes = ([], []) if watch is None or not self._ended else watch.found()
        cut_dress = cut and watch is not None and watch.calling
        self.rest += self._left()
        if cut and self._mode == "answer" in self._begun and self._blank:
            # Its blank space belongs before what would follow.
            self._texts["answer"].append(self._blank)
            self.rest.append(("answer", self._blank))
        self.rest = [(mode, text) for mode, text in self.rest if text]
        reply.answer = "".join(self._texts["answer"])
        reply.thinking = "".join(self._texts["thinking"])
        called = reply.calls or reply.cut_call is not None
        if called and self._text_openings:
            reply.answer = _FENCE.sub("", reply.answer)  # of the fence around the call
        if watch is not None and calls and not called and not reply.broken:
            reply.calls, reply.notes, reply.repaired = calls, notes, True
            reply.answer = watch.released
        elif watch is not None and cut_dress and not called:
            reply.cut_call = reply.answer[len(watch.released) :]
            reply.answer = watch.released
        return reply

    def _push(self, token: int) -> list[tuple[Mode, str]]:
        self._ended = self._ended or token in self._stops
        tag = self._token_tags.get(token)
        if tag is not None and self._mode == "call" and tag in self._form.inner:
            text = self._stream.flush() + tag  # control tokens show no text of their own
        elif tag is not None and tag in self._modes and self._counts(tag):
            pieces = self._read(self._stream.flush(), ends=True)
            if not self.stopped:
                self._turn(tag)
            return pieces
        else:
            # What ends a turn is no part of it, also where a vocabulary shows it as text.
            text = self._stream.flush() if token in self._stops else self._stream.push(token)
        return self._read(text) if self._text_tags or self._text_openings else self._take(text)

    def _read(self, text: str, *, ends: bool = False) -> list[tuple[Mode, str]]:
        """Parse a text in which tags may be spelled as letters."""
        pieces: list[tuple[Mode, str]] = []
        text = self._held + text
        self._held = ""
        while found := self._next(text):
            at, tag = found
            pieces += self._take(text[:at], ends=True)
            if self.stopped:
                return pieces
            self._turn(tag)
            text = text[at:] if isinstance(tag, CallPrefix) else text[at + len(tag) :]
        if not ends:
            keep = max((overlap(text, tag) for tag in self._sought()), default=0)
            text, self._held = text[: len(text) - keep], text[len(text) - keep :]
        return pieces + self._take(text, ends=ends)

    def _sought(self) -> list[str]:
        """Return the textual tags and call openings that may occur next."""
        tags = [tag for tag in self._text_tags if self._counts(tag)]
        return tags + ([o.text for o in self._text_openings] if self._mode == "answer" else [])

    def _next(self, text: str) -> tuple[int, str | CallPrefix] | None:
        """Return the index of the first tag or call opening in a text, and the tag itself."""
        hits: list[tuple[int, str | CallPrefix]] = []
        for tag in self._text_tags:
            at = text.find(tag) if self._counts(tag) else -1
            while at >= 0 and self._quoted(text[:at]):
                at = text.find(tag, at + 1)
            if at >= 0:
                hits.append((at, tag))
        if self._mode == "answer":
            hits += [(p, o) for o in self._text_openings if (p := self._find(o, text)) is not None]
        return min(hits, key=lambda found: found[0], default=None)

    def _quoted(self, text: str) -> bool:
        """Return whether the next text is inside a string of the call."""
        read = "".join(self._texts["call"]) if self._mode == "call" else ""
        return self._mode == "call" and self._form.within_text(read + text)

    def _find(self, opening: CallPrefix, text: str) -> int | None:
        """Return the first index in a text at which an opening counts, or None."""
        at = text.find(opening.text)
        while at >= 0:
            before = self._line + text[:at]
            if opening.where == "line":
                before = before.rpartition("\n")[2]
            if not before.strip() and (opening.where != "turn" or "answer" not in self._begun):
                return at
            at = text.find(opening.text, at + 1)
        return None

    def _counts(self, tag: str) -> bool:
        """Return whether a tag applies: inside a call only its end does."""
        if self._headers is not None:
            return self._mode != "call"
        if self._mode == "call":
            return tag == self._form.closing and not self._bare
        return tag != self._form.closing

    def _take(self, text: str, *, ends: bool = False) -> list[tuple[Mode, str]]:
        """Add a text without tags to the current part; `ends` closes the part."""
        mode = self._mode
        if mode == "header":
            self._header += text
            return []
        if mode == "call":
            self._texts["call"].append(text)
            return [] if self._may_call() else self._answered()
        if known := text[: self._known]:  # the caller that began the turn has reported it
            self._known -= len(known)
            self._line = (self._line + known).rpartition("\n")[2]
            self._begun.add(mode)
            text = text[len(known) :]
        if mode == "answer":
            if mode not in self._begun and not self._stop_texts.holds:
                text = text.lstrip()  # those of the template before an answer end none
            text = self._stop_texts.push(text)
            text += self._stop_texts.flush() if ends else ""
            self._line = (self._line + text).rpartition("\n")[2]
        text = self._blank + text
        if mode == "thinking" and self._awaited:
            if self._awaited.startswith(text):
                self._blank = text
                return []
            text = text.removeprefix(self._awaited).lstrip()
            self._awaited = ""
        if mode not in self._begun:
            text = text.lstrip()  # templates put blank lines before an answer and a thought
        stripped = text.rstrip()
        self._blank = text[len(stripped) :]
        if not stripped:
            return []
        self._begun.add(mode)
        self._texts[mode].append(stripped)
        return [(mode, stripped)]

    def _turn(self, tag: str | CallPrefix) -> None:
        """Switch the mode at a tag."""
        if self._headers is not None:
            self._turn_header(self._headers, str(tag))
            return
        if self._pieces is not None:
            self._new_pieces += self._pieces.read(self._texts["call"])
            self._pieces.begin()
        if tag == self._form.closing:
            self._parse("".join(self._texts["call"]))
        self._texts["call"].clear()
        self._blank = self._line = ""
        self._bare = tag if isinstance(tag, CallPrefix) else None
        self._known = self._known if self._bare else 0
        self._mode = "call" if isinstance(tag, CallPrefix) else self._modes[tag]
        self._awaited = self._title if self._mode == "thinking" else ""

    def _turn_header(self, headers: Headers, tag: str) -> None:
        """Switch the mode at a tag of a header."""
        if tag != headers.message:
            # The next message is one of its own: its text does not continue the last one's.
            self._header = (self._header if self._mode == "header" else "") + tag
            self._mode, self._blank = "header", ""
            return
        self._mode = "answer"
        if headers.recipient in self._header:
            self._mode = "call"
            self._texts["call"] = [self._header + tag]
        elif headers.thinking in self._header:
            self._mode, self._thinks = "thinking", True
        self._blank = "\n\n" if self._mode in self._begun else ""

    def _may_call(self) -> bool:
        """Return whether the name in the partial call is still a prefix of a tool's name."""
        if self._bare is None or not self._names or not self._bare.text.endswith('"'):
            return True
        name = "".join(self._texts["call"])[len(self._bare.text) :]
        return any(one.startswith(name) or name.startswith(one) for one in self._names)

    def _answered(self) -> list[tuple[Mode, str]]:
        """Reclassify text that was read as a call as answer text."""
        self._mode, body = "answer", "".join(self._texts["call"])
        self._texts["call"].clear()
        self._new_pieces.clear()
        return self._take(body, ends=self._ended)

    def _parse(self, body: str) -> bool:
        """Parse the calls of a body; return False where the body is answer text."""
        try:
            calls = self._form.parse(body, self._tools)
        except ValueError as error:
            if not self._bare:
                self._reply.broken.append(str(error))
                return True
            calls = []
        names = {tool["function"]["name"] for tool in self._tools}
        if self._bare and not (calls and all(not names or call.name in names for call in calls)):
            return False
        self._reply.calls += calls
        return True
