"""Builds the prompts of one model from conversations: rendered, tokenized, with grammars.

A server gets the same tools and schemas again and again, so templates that were probed for them and
grammars that were compiled are cached.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ....errors import GrammarError
from ...conversation.caches import LRUCache
from ...conversation.chat import Chat, Message
from ...conversation.grammar import CallChoice
from ...conversation.reasoning_spans import NEAR
from ...conversation.reasoning_tags import mentions_thinking
from ...conversation.requirement import Requirement, grammar_of
from ...conversation.template import TemplateOmissionError, TemplateRefusalError
from ...conversation.turn import MISFIT, checks_later
from ...tokens.segments import Segment
from ...tokens.tokenizer import Tokenizer
from ..http.api_error import APIError, as_api_error, too_long
from ..http.notes import note
from .turns import in_call_order, in_turns, normalize

MAX_CACHED = 32  # templates, of as many sets of tools
_KEEPS = {"keep_past_thinking", "clear_thinking", "truncate_history_thinking"}
_NO_THINKING = ("none", "minimal")
# Templates know low to high.
_EFFORTS = {"none": "low", "minimal": "low", "xhigh": "high", "max": "high"}
_BUDGETS = {"low": 1024, "medium": 4096, "high": 16384}
"""Thinking budget in tokens by effort, for templates that do not read the effort."""
_SWITCHES_OFF = {"enable_thinking", "thinking", "reasoning_effort"}
_NAMES = {
    "enable_thinking": {"enable_thinking", "thinking"},
    "preserve_thinking": {"preserve_thinking", *_KEEPS},
}
"""Names that templates may use for an option; `Chat` maps the option to the template's name."""
SWITCHES = frozenset({"thinking", "reasoning_effort", *_NAMES, *_KEEPS})
"""Template variables that requests may set."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The conversation that a model continues, independent of the wire format."""

    messages: Sequence[Message]
    """Messages, in order."""
    tools: Sequence[Mapping[str, Any]] = ()
    """OpenAI-style schemas of tools."""
    calls: CallChoice = "auto"
    """Whether the answer may be, must be or must not be tool calls."""
    call_of: Collection[str] = ()
    """Names of the tools that may be called; empty: all."""
    one_call: bool = False
    """Whether at most one tool call is allowed."""
    output: Mapping[str, Any] | str | None = None
    """JSON schema, or GBNF grammar, of the answer."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Template variables, by the names in `SWITCHES`."""
    effort: str | None = None
    """Reasoning effort, in OpenAI's terms; None leaves it to the template."""
    thinking_tokens: int | None = None
    """Thinking budget in tokens; None: by the effort, -1: no limit."""
    continues: bool = False
    """Whether the model continues the last message, if that is the assistant's."""
    output_param: str = "response_format"
    """Name of the parameter for `output` in the request, for errors."""
    notes: Sequence[str] = ()
    """Notes on ignored parts of the request."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A tokenized prompt, and the requirements on its answers."""

    ids: list[int]
    borders: Sequence[int] = ()
    """Lengths of the prefixes that other prompts are likely to share."""
    required: Requirement | None = None
    """Requirement that answers must meet; None: any text."""
    opened: bool = False
    """Whether it ends within the model's thinking."""
    prefill: Sequence[int] = ()
    """Prefilled first tokens of the answer, which are the last ones of the prompt."""
    notes: tuple[str, ...] = ()
    """What was normalized; see `turns.normalize`."""
    conversation: Conversation | None = None
    """Conversation that it was rendered from, if any."""
    param: str = "messages"
    """Name of the parameter for the prompt in the request, for errors."""
    again: Callable[[str, str], Prompt] | None = None
    """Builds the retry prompt from an answer and the reason why it misfits; None: answers always
    fit."""
    thinking_tokens: int | None = None
    """Thinking budget in tokens; None: no limit."""

    @property
    def is_turn(self) -> bool:
        """Whether the answer is a turn of a conversation, not the completion of a text."""
        return self.required is not None and bool(self.required.format)


class Prompts:
    """A builder of prompts for one model; safe to use from several threads.

    Args:
        tokenizer: of the model.
        context: maximum tokens of a prompt; a longer text is refused before it is tokenized.
    """

    def __init__(self, tokenizer: Tokenizer, context: int | None = None) -> None:
        self.tokenizer, self._context = tokenizer, context
        self._chats: LRUCache[Chat] = LRUCache(MAX_CACHED)

    @functools.cached_property
    def _longest(self) -> int:
        """Length of the longest token in bytes."""
        one = self.tokenizer
        return max(len(one.token_bytes(token)) for token in range(one.n_vocab))

    def _check_length(self, characters: int) -> None:
        """Refuse a text that exceeds the context even if every token were the longest one."""
        if self._context is None or characters <= 8 * self._context:
            return
        if (tokens := characters // self._longest) > self._context:
            raise too_long(tokens, self._context, minimum=True)

    def render(self, conversation: Conversation) -> str:
        """Render the conversation with the model's chat template, an assistant prefill included."""
        chat = self._chat(conversation)
        segments, begun, *_ = _opened(conversation, chat)
        text = "".join(segment.text for segment in segments)
        return text + "".join([] if begun is None else _prefill_pieces(begun, chat, segments))

    def prompt(self, conversation: Conversation) -> Prompt:
        """Tokenize the conversation, and check the requirement on its answers.

        Raises:
            APIError: this model's template lacks an option, or no grammar can be built from a
                schema.
            TemplateError: the template refuses the conversation.
        """
        chat = self._chat(conversation)
        segments, begun, whole, notes = _opened(conversation, chat)
        self._check_length(sum(len(segment.text) for segment in segments))
        ids: list[int] = []
        question: int | None = None
        for segment, part in chat.encode(segments, first=True):
            if question is None and segment.origin == "user":
                question = len(ids)
            ids += part
        if not ids:
            raise APIError(
                "the conversation is empty: the chat template renders it to no tokens",
                param="messages",
            )
        required = self._required(conversation, chat)
        grammar = grammar_of(self.tokenizer, required)
        opened = chat.opens_thinking(segments)
        prefill: list[int] = []
        if begun is not None:
            closing = grammar.closes_thinking
            for piece in _prefill_pieces(begun, chat, segments):
                if piece == chat.thinking.closing and closing is not None:
                    prefill.append(closing)
                else:
                    prefill += self.tokenizer.encode(piece)
        if prefill:
            try:  # before anything is computed
                held = grammar.constraint(thinking=opened)
                for token in prefill:
                    held.advance(token)
            except GrammarError as error:
                raise APIError(
                    "the assistant prefill does not match the schema, grammar or tool_choice: "
                    f"{error}",
                    param="messages",
                ) from error
        end = len(ids)
        near = ids[: -NEAR - 1 : -1]  # from the last one on
        if opened and grammar.opens_thinking in near:
            end -= 1 + near.index(grammar.opens_thinking)
        borders = [end if question is None else question, end]
        for text in conversation.notes:
            note(text)
        checked = begun is None and checks_later(grammar)
        again = functools.partial(self._again, conversation) if checked else None
        made = replace(conversation, messages=whole)
        budget = self._thinking_tokens(conversation, chat)
        return Prompt(
            ids + prefill,
            borders,
            required,
            opened,
            prefill,
            notes,
            made,
            again=again,
            thinking_tokens=budget,
        )

    def _thinking_tokens(self, conversation: Conversation, chat: Chat) -> int | None:
        """Return the thinking budget; None: no limit, or the template handles the effort itself."""
        budget, effort = conversation.thinking_tokens, conversation.effort
        if budget is None and "reasoning_effort" not in chat.variables:
            off = effort in _NO_THINKING and not self.reads("enable_thinking")
            budget = 0 if off else _BUDGETS.get(effort or "")
        return None if budget == -1 or not mentions_thinking(chat.source) else budget

    def _again(self, conversation: Conversation, text: str, problem: str) -> Prompt:
        """Return the retry prompt for an answer that does not fit its schema."""
        ask = Message("user", MISFIT.format(problem=problem))
        messages = [*conversation.messages, Message("assistant", text, text=text), ask]
        return self.prompt(replace(conversation, messages=messages))

    def continuation(
        self, ids: list[int], output: Mapping[str, Any] | str | None, param: str
    ) -> Prompt:
        """Return a prompt to be completed by text, which may have to fit a JSON schema or GBNF.

        Raises:
            APIError: no grammar can be made of it.
        """
        required = None if output is None else Requirement(output=output)
        if required is not None:
            with _named("json_schema"):
                grammar_of(self.tokenizer, required).check()  # before anything is computed, or sent
        return Prompt(ids, required=required, param=param)

    def beginning(self, system: str) -> list[int]:
        """Return the token prefix that all conversations with this system prompt share."""
        prompt = self.prompt(Conversation([Message("system", system), Message("user", "?")]))
        return prompt.ids[: prompt.borders[0]]

    def reads(self, option: str) -> bool:
        """Return whether the model's template reads an option of `SWITCHES`."""
        return bool(self._made_chat((), {}).variables & _NAMES.get(option, {option}))

    def _chat(self, conversation: Conversation) -> Chat:
        options = dict(conversation.options)
        plain = self._made_chat((), {})
        thinks = mentions_thinking(plain.source)
        if conversation.effort is not None:
            options = {**_effort(conversation.effort, plain.variables, thinks), **options}
        for name, value in list(options.items()):
            param, off = f"chat_template_kwargs.{name}", value in (False, *_NO_THINKING)
            if (known := self.reads(name)) and name in SWITCHES:
                continue
            why = "is not read by this model's chat template"
            if known or (off and thinks and name in _SWITCHES_OFF):
                why = "cannot be set by a request" if known else why
                raise APIError(f"{param} {why}", param=param, code="unsupported_parameter")
            note(f"{param} is ignored: it {why}")
            del options[name]
        return self._made_chat(conversation.tools, options)

    def _made_chat(self, tools: Sequence[Mapping[str, Any]], options: Mapping[str, Any]) -> Chat:
        now = datetime.now()
        key = (now.date(), _text(list(tools)), _text(dict(options)))  # templates write the date
        return self._chats.get(
            key, lambda: Chat(self.tokenizer, tools=tools, options=options, now=now)
        )

    def _required(self, conversation: Conversation, chat: Chat) -> Requirement:
        """Return the requirement that an answer must meet, after checking its grammar.

        Raises:
            APIError: no grammar can be made of it; names the parameter.
        """
        tools = list(conversation.tools)
        if conversation.call_of:
            tools = [tool for tool in tools if tool["function"]["name"] in conversation.call_of]
        single = conversation.one_call and not chat.form.single
        required = Requirement(
            chat.form.name, tools, conversation.calls, single, conversation.output, chat.thinking
        )
        with _named(conversation.output_param):
            grammar_of(self.tokenizer, required).check()
        return required


@contextlib.contextmanager
def _named(param: str) -> Iterator[None]:
    """Convert a `GrammarError` to an `APIError` that names the schema's parameter."""
    try:
        yield
    except GrammarError as error:
        refused = as_api_error(error)
        if refused.param == "response_format":
            refused.param = param
        raise refused from error


def _opened(
    conversation: Conversation, chat: Chat
) -> tuple[list[Segment], Message | None, Sequence[Message], tuple[str, ...]]:
    """Render the conversation; return segments, assistant prefill, all messages, and notes.

    Raises:
        TemplateError: the template refuses it, or leaves something out, also with its messages put
            into turns.
    """
    whole, notes = normalize(in_call_order(conversation.messages))
    messages, begun = _begun(whole, conversation, chat)
    try:
        return chat.open(messages), begun, whole, notes
    except (TemplateRefusalError, TemplateOmissionError):
        turns = in_turns(whole)
        if turns == list(whole):
            raise
    messages, begun = _begun(turns, conversation, chat)
    return chat.open(messages), begun, turns, notes


def _begun(
    messages: Sequence[Message], conversation: Conversation, chat: Chat
) -> tuple[Sequence[Message], Message | None]:
    """Split off the assistant message that the model continues, if there is one.

    A format in which messages have headers has no point from which one could be continued.
    """
    last = messages[-1] if messages else None
    if last is None or not conversation.continues or last.role != "assistant" or last.calls:
        return messages, None
    if len(messages) < 2 or chat.form.headers is not None:
        return messages, None
    return messages[:-1], last


def _prefill_pieces(last: Message, chat: Chat, segments: Sequence[Segment]) -> list[str]:
    """Return the texts of an assistant prefill that follow the template's generation prompt."""
    text = last.text or last.content or ""
    if not chat.opens_thinking(segments):
        return [text]
    if not text:
        return [last.thinking]
    return [last.thinking, chat.thinking.closing, f"\n\n{text}"]


def _effort(effort: str, known: frozenset[str], thinks: bool) -> dict[str, Any]:
    """Return the template options for a reasoning effort.

    Args:
        effort: in OpenAI's terms.
        known: names that the template reads.
        thinks: whether it shows thoughts.

    Raises:
        APIError: the template has no such option.
    """
    off, switch = effort in _NO_THINKING, bool({"enable_thinking", "thinking"} & known)
    if "reasoning_effort" in known and not (off and switch):
        return {"reasoning_effort": _EFFORTS.get(effort, effort)}
    if switch:
        return {"enable_thinking": not off}
    if off or thinks:  # as it is, or by a budget
        return {}
    raise APIError(
        "this model's chat template has no switch for thinking",
        param="reasoning_effort",
        code="unsupported_parameter",
    )


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
