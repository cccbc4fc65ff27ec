"""Renders messages to token ids through the model's own chat template.

    messages → template with a mark for every content → segments → token ids

The template never sees what a message says: it is rendered with a random mark in each content's
place, and the marks are then replaced. So nothing in a message can steer the template, and every
piece of text keeps its origin: control tokens are recognized in the template's text and nowhere
else. Words are still cut as in the joined text (`Tokenizer.encode_parts`), so a conversation gives
the ids that it would give as one text.

History is never recomputed. What the model has generated stays as it is; a later turn renders the
end of the conversation with marks (`incremental_render.py`), and only what follows the last
assistant's mark is new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate
from secrets import token_hex
from typing import Any
from weakref import WeakKeyDictionary

from ...errors import TemplateError
from ..tokens.segments import Marks, Segment
from ..tokens.tokenizer import Tokenizer
from .formats import FALLBACK, FORMATS, format_for, format_of
from .formats.toolcalls import ToolCall, ToolFormat
from .incremental_render import Window
from .messages import (
    Message,
    call_shown,
    results_as_user,
    results_in_calls,
    shown_to_template,
    whole_answer,
)
from .proof import written_by
from .reasoning_tags import Thinking, thinking_of
from .template import ChatTemplate, TemplateOmissionError, TemplateRefusalError
from .thought_probe import ThoughtProbe

CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\\n' }}"""
"""The ChatML template, for a model file without a chat template."""

_TOOLS = """\
# Tools

You may call one of these functions to answer. Each line is the JSON schema of one:
{schemas}

To call a function, write nothing but its name and its arguments, in this form:
{example}"""
"""Tools prompt for a template that does not render tools."""

_KEEPS = {
    "preserve_thinking": True,
    "keep_past_thinking": True,
    "clear_thinking": False,
    "truncate_history_thinking": False,
}
"""Template variables that keep the thinking of earlier turns, with the value that keeps it."""

_TOOLS_IN_SYSTEM = re.compile(r"""message(?:\.tools\b|\[['"]tools['"]\])""")
"""Matches a template that reads tools from the system message as text, as Phi-4's does."""

_PROBED = (
    *("form", "_mends", "_lists_tools", "_takes_calls", "_takes_system", "_nests_results"),
    "_unsafe",
)
"""Attributes that test renders determine; cached by template and tools."""
_MAX_PROBED = 16  # templates and tools that are remembered of a vocabulary
_probed: WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], dict[str, Any]]] = WeakKeyDictionary()


class Chat:
    """The chat format of one model: its template, tools and tool-call format.

    Args:
        tokenizer: of the model.
        tools: OpenAI-style schemas of what the model may call.
        template: Jinja text; the model's own if not given.
        options: further variables of the template, e.g. ``{"enable_thinking": False}``.
        now: the time that a template may write into the system message.

    Raises:
        TemplateError: the template cannot be compiled.

    Attributes:
        source: the template's text.
        form: how this model writes tool calls.
        thinking: the tags around its thinking.
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
        own = tokenizer.tool_template if self.tools else tokenizer.chat_template
        source = template or own
        if source is None:
            source = CHATML
            self.notes.append("the model file has no chat template; ChatML is used")
        self.source = source
        self._tokenizer = tokenizer
        special = [t for t in (tokenizer.bos, tokenizer.eos) if t is not None]
        names = {t: tokenizer.decode([t], special=True) for t in special}
        self._template = ChatTemplate(
            source,
            bos=names.get(tokenizer.bos, ""),  # type: ignore[arg-type]
            eos=names.get(tokenizer.eos, ""),  # type: ignore[arg-type]
            now=now,
        )
        self._options = self._known(options or {})
        self.thinking: Thinking = thinking_of(source, tokenizer)
        self._tools_in_system = _TOOLS_IN_SYSTEM.search(source) is not None
        self._window = Window()
        self._takes_calls: bool | None = None  # not known before there is a call
        self._unsafe = set[str]()
        self._mends: tuple[tuple[str, str], ...] = ()
        self._lists_tools = True
        self._takes_system: bool | None = None  # not known before there is a system message
        self.form: ToolFormat
        if self.tools:
            self._probe()  # now rather than while a tool's result waits to be read
        else:
            self.form = format_for(source, tokenizer)

    def open(self, messages: Sequence[Message]) -> list[Segment]:
        """Render the whole conversation, up to the assistant's next turn.

        Raises:
            TemplateError: the template fails, or leaves a message out.
        """
        segments = self._render(messages, new=0)
        self._check_all_there(messages, segments, since=0)
        return segments

    def extend(self, messages: Sequence[Message], new: int | None = None) -> list[Segment]:
        """Render the text after the last assistant message: its end of turn, and newer messages.

        Args:
            messages: of the whole conversation.
            new: index of the first one that was not read; those after the last assistant's by
                default.

        Raises:
            TemplateError: the template fails, or leaves a message out.
        """
        read = messages[:new]
        last = max(i for i, message in enumerate(read) if message.role == "assistant")
        was_off = self._window.off
        segments = self._window.render(
            messages, last, lambda indices: self._suffix(messages, last, indices)
        )
        if self._window.off != was_off:
            self.notes.append(self._window.off)
        self._check_all_there(messages, segments, since=last + 1)
        return segments

    def _suffix(
        self, messages: Sequence[Message], last: int, indices: Sequence[int]
    ) -> list[Segment] | None:
        """Render the messages at `indices`; return the segments after message `last`."""
        segments = None
        if any(messages[i].calls for i in indices) and self._shows_calls():
            rendered = self._render(messages, indices, calls=True, new=last + 1)
            segments = self._after(rendered, last)
            if messages[last].calls and segments is not None:
                segments = self._from_stop(segments)
        if segments is None:
            segments = self._after(self._render(messages, indices, new=last + 1), last)
        return segments

    @staticmethod
    def _after(segments: list[Segment], last: int) -> list[Segment] | None:
        """Return the segments after the last one of a message; None where it has none."""
        own = [i for i, s in enumerate(segments) if s.origin == "model" and s.message == last]
        return segments[own[-1] + 1 :] if own else None

    def _from_stop(self, segments: list[Segment]) -> list[Segment] | None:
        """Strip the segments after a message's calls up to the end of turn, which the model wrote.

        Without an end of turn in the template's text, strip up to the end of the last call; None
        where there is neither.
        """
        if not segments or not segments[0].trusted:
            return None
        text = segments[0].text
        tokens = self._tokenizer.vocabulary.tokens
        stops = (text.find(tokens[stop]) for stop in self._tokenizer.stop_ids)
        at = min((found for found in stops if found >= 0), default=None)
        if at is None and (closing := self.form.closing) and closing in text:
            at = text.rindex(closing) + len(closing)
        if at is None and (headers := self.form.headers) and headers.start in text:
            at = text.index(headers.start)
        return None if at is None else [replace(segments[0], text=text[at:]), *segments[1:]]

    def encode(
        self, segments: Sequence[Segment], *, first: bool = False
    ) -> list[tuple[Segment, list[int]]]:
        """Encode segments; a token across an edge belongs to the segment in which it begins.

        Args:
            segments: consecutive ones.
            first: whether they begin the sequence, so that BOS may be prepended.
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

    @property
    def variables(self) -> frozenset[str]:
        """Return the template variables that `options` may set."""
        return self._template.variables

    def keeps_thoughts(self, *, old: bool) -> bool:
        """Return whether the template keeps the assistant's thinking in the history.

        Args:
            old: of a turn before the last question; else of this turn, before a tool result.
        """
        return self._thoughts.keeps[old]

    @cached_property
    def left_of_thought(self) -> list[int]:
        """Return the tokens that the template leaves in place of a dropped thought.

        Most templates leave none, some a pair of tags or the closing tag.
        """
        if self.form.headers is not None:  # the answer's header is the model's own
            return []
        return self._tokenizer.encode(self._thoughts.left(), special=True)

    @cached_property
    def _thoughts(self) -> ThoughtProbe:
        tools = self.tools if self._lists_tools else []

        def render(shown: Sequence[Mapping[str, Any]]) -> str:
            return self._template.render(shown, tools=tools, options=self._options)

        calls = self._shows_calls() if tools else None
        return ThoughtProbe(render, self.thinking, self._probed_call, calls)

    @property
    def _probed_call(self) -> ToolCall:
        name = self.tools[0]["function"]["name"] if self.tools else "f"
        return ToolCall(name, id="c00010100")

    def _known(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Rename options to the template's own variables; note those that it does not read."""
        known = dict(options)
        names = self._template.variables
        if "enable_thinking" in known and "enable_thinking" not in names:
            wanted = known.pop("enable_thinking")
            if "thinking" in names:
                known["thinking"] = wanted
            else:
                self.notes.append("the chat template has no switch for thinking; it is left as is")
        # A thought that stays costs its tokens; one that goes costs all that follows it again.
        keep = known.pop("preserve_thinking", True if "preserve_thinking" in names else None)
        if keep is not None:
            switches = {name: value is keep for name, value in _KEEPS.items() if name in names}
            known = {**switches, **known}
            if not switches:
                self.notes.append("the chat template has no switch for thinking in its history")
        if unread := sorted(known.keys() - names):
            self.notes.append(f"the chat template does not read {', '.join(unread)}")
        return known

    def opens_thinking(self, segments: Sequence[Segment]) -> bool:
        """Return whether the template has already opened the model's thinking."""
        return bool(segments) and self.thinking.opened_by(segments[-1].text)

    def _probe(self) -> None:
        """Detect the format and the template's use of tools; cached for the same tools."""
        known = _probed.setdefault(self._tokenizer, {})
        key = (self.source, repr((self._options, self.tools)), *FORMATS)
        found = known.get(key)
        if found is None:
            noted = len(self.notes)
            self._unsafe = self._holding_control(set(_texts(self.tools)))
            self._find_format()
            self._shows_calls()
            if len(known) >= _MAX_PROBED:
                known.clear()
            found = {name: getattr(self, name) for name in _PROBED}
            known[key] = {**found, "notes": self.notes[noted:]}
        else:
            vars(self).update({**found, "notes": [*self.notes, *found["notes"]]})

    def _find_format(self) -> None:
        """Detect how the template lists tools and writes calls; list them where it does not.

        The prompt and the grammar always have the same format.
        """
        written, why = written_by(self._template, self._options), ""
        if written.form is not None:
            self.form = written.form
        elif written.calls:
            self.form, spoken = FALLBACK, format_of(self.source)
            how = f"another format than {spoken.name}" if spoken else "an unknown format"
            why = f"its chat template writes tool calls in {how}"
        else:
            self.form = format_for(self.source, self._tokenizer)
            if format_of(self.source) is None:
                why = "its chat template describes tools in an unknown format"
        why = why or self._silent()
        if why:
            self._lists_tools = False
            self.notes.append(
                f"this model may call tools less reliably: {why}, so the system message describes "
                f"them, in the format {self.form.name}"
            )
        elif written.mends:
            self._mends = written.mends

    @property
    def mended(self) -> str:
        """Describe the template fault that is corrected; empty where there is none."""
        if not self._mends:
            return ""
        return (
            "its chat template shows tool calls in doubled braces ({{…}}) and writes them in "
            "single ones; the model is shown single ones"
        )

    def _silent(self) -> str:
        """Return why the template does not list the tools; empty where it does."""
        try:
            text = "".join(s.text for s in self._render([Message("user", "hello")]))
        except TemplateError as error:
            return f"with tools, {str(error).partition(';')[0]}"
        if all(tool["function"]["name"] in text for tool in self.tools):
            return ""
        return "its chat template does not describe tools"

    def _shows_calls(self) -> bool:
        """Return whether the template renders the calls of an assistant's message."""
        if self._takes_calls is None:
            call = self._probed_call
            history = [Message("user", "hello"), Message("assistant", calls=(call,))]
            answered = [*history, Message("tool", "x", call.name, call.id)]
            shown = self._answered(answered, calls=True)
            written = shown is not None and shown != self._answered(answered)
            self._takes_calls = self._lists_tools and written
        return self._takes_calls

    @cached_property
    def _nests_results(self) -> bool:
        """Return whether the template accepts results only inside the calling message."""
        if "tool_responses" not in self.source:
            return False
        call, word = self._probed_call, token_hex(8)
        result = {"role": "tool", "name": call.name, "tool_call_id": call.id, "content": word}
        calling = {"role": "assistant", "content": "", "tool_calls": [call_shown(call, 1, Marks())]}
        apart = [{"role": "user", "content": "hello"}, calling, result]
        try:
            texts = [self._text(shown, []) for shown in (apart, results_in_calls(apart))]
        except TemplateError:
            return False
        return word in texts[1] and texts[0] != texts[1]

    def _answered(
        self, messages: Sequence[Message], *, calls: bool = False
    ) -> list[Segment] | None:
        """Return the segments after message 1; None where the template omits it or refuses."""
        try:
            return self._after(self._render(messages, calls=calls), 1)
        except TemplateError:
            return None

    def _render(
        self,
        messages: Sequence[Message],
        indices: Sequence[int] | None = None,
        *,
        calls: bool = False,
        new: int | None = None,
    ) -> list[Segment]:
        """Render the conversation as segments.

        Args:
            messages: of the conversation.
            indices: messages that the template is shown; default: all.
            calls: whether the template gets assistants' calls as `tool_calls`.
            new: index of the first message from which on assistants' texts are rendered in full, as
                they are not in the session yet; None: no message.
        """
        marks = Marks()
        shown = [
            self._whole(i, messages[i], marks)
            if new is not None and i >= new and messages[i].role == "assistant"
            else shown_to_template(messages[i], i, marks, calls=calls)
            for i in (range(len(messages)) if indices is None else indices)
        ]
        tools = [self._safe(tool, marks) for tool in self.tools]
        if tools and not self._lists_tools:
            prompt = self._tools_prompt(tools)
            if shown and shown[0]["role"] == "system":
                shown[0]["content"] += "\n\n" + prompt
            else:
                shown.insert(0, {"role": "system", "content": prompt})
            shown = results_as_user(shown)
            tools = []
        if self._nests_results:
            shown = results_in_calls(shown)
        if tools and self._tools_in_system:
            if not shown or shown[0]["role"] != "system":
                shown.insert(0, {"role": "system", "content": ""})
            functions = [tool["function"] for tool in tools]
            shown[0]["tools"] = json.dumps(functions, ensure_ascii=False)
        return self._name_tools(marks.split(self._text(shown, tools)))

    def _text(self, shown: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        """Render the template; a refused system message is merged into the question."""
        first = len(shown) > 1 and shown[0]["role"] == "system"
        if not first or self._takes_system is not False:
            try:
                text = self._rendered(shown, tools)
            except TemplateRefusalError:
                if not first or self._takes_system or shown[1]["role"] != "user":
                    raise
            else:
                self._takes_system = self._takes_system or first or None
                return text
        system, question = shown[0]["content"], shown[1]
        both = "\n\n".join(filter(None, (system, question["content"])))
        merged = [{**question, "content": both}, *shown[2:]]
        text = self._rendered(merged, tools)
        if self._takes_system is None and system:
            self.notes.append(
                "the chat template takes no system message; it stands before the first question"
            )
        self._takes_system = False
        return text

    def _rendered(self, shown: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        """Render the template with its faults corrected; contents are replaced by marks."""
        text = self._template.render(shown, tools=tools, options=self._options)
        for wrong, right in self._mends if tools else ():
            text = text.replace(wrong, right)
        return text

    def _tools_prompt(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Render the prompt that lists the tools, where the template does not."""
        schemas = "\n".join(json.dumps(tool["function"], ensure_ascii=False) for tool in tools)
        return _TOOLS.format(schemas=schemas, example=self.form.example)

    def _whole(self, index: int, message: Message, marks: Marks) -> dict[str, Any]:
        form = None if message.calls and self._shows_calls() else self.form
        if self.form.headers is not None and message.calls:
            # There the text before a call is a thought, and there is one of them.
            text = message.content if message.text is None else message.text
            thinking = "\n\n".join(filter(None, (message.thinking, text)))
            message = replace(message, text="", thinking=thinking)
        in_parts = bool(message.thinking) and self._thoughts.in_parts
        return whole_answer(message, index, marks, form, in_parts=in_parts)

    def _safe(self, value: Any, marks: Marks) -> Any:
        """Replace schema texts that contain a control token by marks, as message contents are."""
        if not self._unsafe:
            return value
        if isinstance(value, str):
            return marks.put(value, "tools") if value in self._unsafe else value
        if isinstance(value, Mapping):
            return {self._safe(k, marks): self._safe(v, marks) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self._safe(item, marks) for item in value]
        return value

    def _holding_control(self, texts: set[str]) -> set[str]:
        """Return the texts that contain a control token."""
        control = self._tokenizer.control_ids
        # Usually none: a search takes a fraction of the time of encoding.
        tags = filter(None, map(self._tokenizer.vocabulary.tokens.__getitem__, control))
        if not any(map("\n".join(texts).__contains__, tags)):
            return set()
        encode = self._tokenizer.encode
        return {text for text in texts if not control.isdisjoint(encode(text, special=True))}

    def _name_tools(self, segments: list[Segment]) -> list[Segment]:
        """Set the origin ``tools`` on template text that describes the tools."""
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
            # Of an assistant's calls the template may have written all itself, names and all; what
            # it only thought, such as before it was stopped, may go.
            spoken = message.text is not None or message.calls
            text = message.text if spoken else message.content
            if text and i not in there:
                raise TemplateOmissionError(
                    f"the chat template leaves out message {i} ({message.role}); "
                    "another template can be given to the agent (chat_template=…)"
                )


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a schema, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
