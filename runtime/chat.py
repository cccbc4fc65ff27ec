"""Messages to token ids, through the model's own chat template.

    messages → template with a mark for every content → segments → token ids

The template never sees what a message says: it is rendered with a random mark in each content's
place, and the marks are then replaced. So nothing in a message can steer the template, and every
piece of text keeps its origin: control tokens are recognised in the template's text and nowhere
else. Words are still cut as in the joined text (`Tokenizer.encode_parts`), so a conversation gives
the ids that it would give as one text.

History is never rendered again. What the model has generated stays as it is; a later turn renders
the whole conversation with marks, and only what follows the last assistant's mark is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate
from typing import Any, Literal

from ..errors import TemplateError
from .segments import Marks, Origin, Segment
from .template import ChatTemplate, TemplateRefusalError
from .tokenizer import Tokenizer
from .toolcalls import FORMATS, ToolFormat, format_of

Role = Literal["system", "user", "assistant", "tool"]

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' }}"""
"""For a model file without a chat template."""

_TOOLS = """\
# Tools

You may call one of these functions to answer. Each line is the JSON schema of one:
{schemas}

To call a function, write its name and arguments as JSON between tags:
{opening}
{{"name": <name>, "arguments": <arguments>}}
{closing}"""
"""For a template that says nothing of tools."""

_ORIGINS: dict[str, Origin] = {"system": "system", "user": "user", "tool": "tool_result"}


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str = ""
    """For an assistant: everything it generated, calls and thinking included."""
    name: str = ""
    """Of a tool result: the tool."""
    call_id: str = ""


class Chat:
    """How one model is talked to.

    Args:
        tokenizer: of the model.
        tools: OpenAI-style schemas of what the model may call.
        template: Jinja text; the model's own if not given.
        options: further variables of the template, e.g. ``{"enable_thinking": False}``.
        now: the time that a template may write into the system message.

    Raises:
        TemplateError: the template cannot be compiled.

    Attributes:
        form: how this model writes tool calls.
        notes: what had to be done because the model file or its template lack something.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template: str | None = None,
        options: Mapping[str, Any] | None = None,
        now: datetime | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.tools = list(tools)
        source = template or tokenizer.chat_template
        if source is None:
            source = CHATML
            self.notes.append("the model file has no chat template; ChatML is used")
        self._tokenizer = tokenizer
        self._options = dict(options or {})
        special = [t for t in (tokenizer.bos, tokenizer.eos) if t is not None]
        names = {t: tokenizer.decode([t], special=True) for t in special}
        self._template = ChatTemplate(
            source,
            bos=names.get(tokenizer.bos, ""),  # type: ignore[arg-type]
            eos=names.get(tokenizer.eos, ""),  # type: ignore[arg-type]
            now=now,
        )
        form = format_of(source)
        self.form: ToolFormat = form or FORMATS["hermes"]
        self._unsafe = {text for text in _texts(self.tools) if self._holds_control(text)}
        self._tells_tools = True
        self._takes_system = True
        if self.tools:
            self._probe(named=form is not None)

    def open(self, messages: Sequence[Message]) -> list[Segment]:
        """The whole conversation, up to where the assistant is to speak.

        Raises:
            TemplateError: the template fails, or leaves a message out.
        """
        try:
            segments = self._render(messages)
        except TemplateRefusalError:
            if not self._takes_system or not messages or messages[0].role != "system":
                raise
            self._takes_system = False
            segments = self._render(messages)
            self.notes.append(
                "the chat template takes no system message; it stands before the first question"
            )
        self._check_all_there(messages, segments, since=0)
        return segments

    def extend(self, messages: Sequence[Message]) -> list[Segment]:
        """What follows the last assistant's own words: its end of turn, and the newer messages.

        Raises:
            TemplateError: the template fails, or leaves a message out.
        """
        last = max(i for i, message in enumerate(messages) if message.role == "assistant")
        segments = self._render(messages)
        places = [i for i, s in enumerate(segments) if s.origin == "model" and s.message == last]
        if not places:
            raise TemplateError(
                "the chat template leaves out what the assistant said last; "
                "another template can be given to the agent (chat_template=…)"
            )
        segments = segments[places[-1] + 1 :]
        self._check_all_there(messages, segments, since=last + 1)
        return segments

    def encode(
        self, segments: Sequence[Segment], *, first: bool = False
    ) -> list[tuple[Segment, list[int]]]:
        """The token ids of each segment; a token over an edge belongs where it begins.

        Args:
            segments: in order.
            first: whether they begin the sequence, so that a BOS token may belong before them.
        """
        located = self._tokenizer.locate((segment.text, segment.trusted) for segment in segments)
        shares: list[tuple[Segment, list[int]]] = [(segment, []) for segment in segments]
        ends = accumulate(len(s.text.encode("utf-8", "surrogatepass")) for s in segments)
        index, end = 0, next(ends, 0)
        for token, begin in located:
            while begin >= end and index + 1 < len(segments):
                index, end = index + 1, next(ends)
            shares[index][1].append(token)
        bos = self._tokenizer.bos
        begins = bool(located) and located[0][0] == bos
        if first and bos is not None and self._tokenizer.add_bos and not begins:
            shares[0][1].insert(0, bos)
        return shares

    def opens_thinking(self, segments: Sequence[Segment]) -> bool:
        """Whether the template has already opened the model's thinking."""
        return bool(segments) and segments[-1].text.rstrip().endswith("<think>")

    def _probe(self, named: bool) -> None:
        """See whether the template tells the model of its tools, in a format that is known."""
        text = "".join(s.text for s in self._render([Message("user", "hello")]))
        if named and all(tool["function"]["name"] in text for tool in self.tools):
            return
        self._tells_tools = False
        self.notes.append(
            "the chat template tells of tools in no known format; they are told in the system "
            f"message, in the format {self.form.name}"
        )

    def _render(self, messages: Sequence[Message]) -> list[Segment]:
        marks = Marks()
        shown = [self._shown(i, message, marks) for i, message in enumerate(messages)]
        tools = [self._safe(tool, marks) for tool in self.tools]
        if tools and not self._tells_tools:
            told = self._told(tools)
            if shown and shown[0]["role"] == "system":
                shown[0]["content"] += "\n\n" + told
            else:
                shown.insert(0, {"role": "system", "content": told})
            shown = _results_as_user(shown)
            tools = []
        if not self._takes_system and shown and shown[0]["role"] == "system":
            system = shown.pop(0)["content"]
            shown[0]["content"] = f"{system}\n\n{shown[0]['content']}"
        text = self._template.render(shown, tools=tools, options=self._options)
        return self._name_tools(marks.split(text))

    def _told(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """The tools in our own words."""
        schemas = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        form = self.form
        return _TOOLS.format(schemas=schemas, opening=form.opening, closing=form.closing)

    def _shown(self, index: int, message: Message, marks: Marks) -> dict[str, Any]:
        """The message as the template sees it: a mark for its content."""
        content = message.content
        if message.role == "assistant":
            # Already in the session: only its place matters, so it is never empty.
            return {"role": "assistant", "content": marks.put(content, "model", index)}
        mark = marks.put(content, _ORIGINS[message.role], index) if content else ""
        shown = {"role": message.role, "content": mark}
        if message.role == "tool":
            shown |= {"name": message.name, "tool_call_id": message.call_id}
        return shown

    def _safe(self, value: Any, marks: Marks) -> Any:
        """A schema in which text that holds a control token is marked as a message would be."""
        if not self._unsafe:
            return value
        if isinstance(value, str):
            return marks.put(value, "tools") if value in self._unsafe else value
        if isinstance(value, Mapping):
            return {self._safe(k, marks): self._safe(v, marks) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._safe(item, marks) for item in value]
        return value

    def _holds_control(self, text: str) -> bool:
        ids = self._tokenizer.encode(text, special=True)
        return not self._tokenizer.control_ids.isdisjoint(ids)

    def _name_tools(self, segments: list[Segment]) -> list[Segment]:
        """Template text that tells of the tools gets the origin ``tools``."""
        for tool in self.tools[:1]:
            for i, segment in enumerate(segments):
                if segment.trusted and tool["function"]["name"] in segment.text:
                    segments[i] = replace(segment, origin="tools")
        return segments

    def _check_all_there(
        self, messages: Sequence[Message], segments: Sequence[Segment], since: int
    ) -> None:
        there = {segment.message for segment in segments}
        for i, message in enumerate(messages[since:], since):
            if message.content and i not in there:
                raise TemplateError(
                    f"the chat template leaves out message {i} ({message.role}); "
                    "another template can be given to the agent (chat_template=…)"
                )


def _results_as_user(shown: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tool results as what the user says, for a template that knows no tools.

    Results of one turn make one message: such templates want user and assistant in turns.
    """
    out: list[dict[str, Any]] = []
    before = ""
    for message in shown:
        if message["role"] == "tool":
            text = f"<tool_response>\n{message['content']}\n</tool_response>"
            if before == "tool":
                out[-1]["content"] += "\n" + text
            else:
                out.append({"role": "user", "content": text})
        else:
            out.append(message)
        before = message["role"]
    return out


def _texts(value: Any) -> Iterator[str]:
    """Every text in a schema, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
