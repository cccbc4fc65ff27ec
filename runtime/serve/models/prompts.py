"""Conversations of requests as prompts of one model: rendered, tokenized, with their grammars.

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
"""Tokens of thinking, where the template does not read the effort itself."""
_SWITCHES_OFF = {"enable_thinking", "thinking", "reasoning_effort"}
_NAMES = {
    "enable_thinking": {"enable_thinking", "thinking"},
    "preserve_thinking": {"preserve_thinking", *_KEEPS},
}
"""What some options may be called in a template; `Chat` gives them that name."""
SWITCHES = frozenset({"thinking", "reasoning_effort", *_NAMES, *_KEEPS})
"""Variables of templates that requests may set."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a model is asked, in whatever wire format it came."""

    messages: Sequence[Message]
    """In order."""
    tools: Sequence[Mapping[str, Any]] = ()
    """OpenAI-style schemas."""
    calls: CallChoice = "auto"
    """Whether the answer may be, must be or must not be calls."""
    call_of: Collection[str] = ()
    """Names of the tools that may be called, where not all may."""
    one_call: bool = False
    """Whether there may be one call at most."""
    output: Mapping[str, Any] | str | None = None
    """JSON schema, or GBNF grammar, of the answer."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the template, of `SWITCHES`."""
    effort: str | None = None
    """How much to think, as OpenAI says it; None leaves it to the template."""
    thinking_tokens: int | None = None
    """Budget of thinking; None leaves it to the effort, -1: none."""
    continues: bool = False
    """Whether the model continues the last message, where that is the assistant's."""
    output_param: str = "response_format"
    """What `output` is called in the request."""
    notes: Sequence[str] = ()
    """What of the request is ignored."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens to be read, and what comes then."""

    ids: list[int]
    borders: Sequence[int] = ()
    """Numbers of tokens with which other prompts are likely to begin."""
    required: Requirement | None = None
    """What answers have to be; None: every text may come."""
    opened: bool = False
    """Whether it ends in the model's thinking."""
    prefill: Sequence[int] = ()
    """First tokens of the answer, if it was begun: the last ones of the prompt."""
    notes: tuple[str, ...] = ()
    """What was normalized; see `programs.py`."""
    conversation: Conversation | None = None
    """What it was made of, where that was a conversation."""
    param: str = "messages"
    """What it is called in the request."""
    again: Callable[[str, str], Prompt] | None = None
    """The prompt that asks once more, of an answer and what is wrong with it; None where answers
    fit in any case."""
    thinking_tokens: int | None = None
    """Budget of thinking; None: none."""

    @property
    def is_turn(self) -> bool:
        """Whether the model's turn comes, and not a text that is completed."""
        return self.required is not None and bool(self.required.format)


class Prompts:
    """Makes the prompts of one model. Safe to use from several threads.

    Args:
        tokenizer: of the model.
        context: tokens that a prompt may have; what cannot fit is refused before it is read.
    """

    def __init__(self, tokenizer: Tokenizer, context: int | None = None) -> None:
        self.tokenizer, self._context = tokenizer, context
        self._chats: LRUCache[Chat] = LRUCache(MAX_CACHED)

    @functools.cached_property
    def _longest(self) -> int:
        """Bytes of the longest token."""
        one = self.tokenizer
        return max(len(one.token_bytes(token)) for token in range(one.n_vocab))

    def _check_length(self, characters: int) -> None:
        """Refuse a text that has too many tokens even if all of them are the longest one."""
        if self._context is None or characters <= 8 * self._context:
            return
        if (tokens := characters // self._longest) > self._context:
            raise too_long(tokens, self._context, minimum=True)

    def render(self, conversation: Conversation) -> str:
        """Return the text that the template makes of a conversation."""
        chat = self._chat(conversation)
        segments, begun, *_ = _opened(conversation, chat)
        text = "".join(segment.text for segment in segments)
        return text + "".join([] if begun is None else _prefill_pieces(begun, chat, segments))

    def prompt(self, conversation: Conversation) -> Prompt:
        """Return the conversation as tokens.

        Raises:
            APIError: an option is not there in this model's template, or no grammar can be made
                of a schema.
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
        """Return the budget of thinking; None: there is none, or the template sees to it."""
        budget, effort = conversation.thinking_tokens, conversation.effort
        if budget is None and "reasoning_effort" not in chat.variables:
            off = effort in _NO_THINKING and not self.reads("enable_thinking")
            budget = 0 if off else _BUDGETS.get(effort or "")
        return None if budget == -1 or not mentions_thinking(chat.source) else budget

    def _again(self, conversation: Conversation, text: str, problem: str) -> Prompt:
        """Return the prompt that asks once more, where an answer does not fit its schema."""
        ask = Message("user", MISFIT.format(problem=problem))
        messages = [*conversation.messages, Message("assistant", text, text=text), ask]
        return self.prompt(replace(conversation, messages=messages))

    def continuation(
        self, ids: list[int], output: Mapping[str, Any] | str | None, param: str
    ) -> Prompt:
        """Return a prompt that a text continues, which may have to fit a JSON schema, or GBNF.

        Raises:
            APIError: no grammar can be made of it.
        """
        required = None if output is None else Requirement(output=output)
        if required is not None:
            with _named("json_schema"):
                grammar_of(self.tokenizer, required).check()  # before anything is computed, or sent
        return Prompt(ids, required=required, param=param)

    def beginning(self, system: str) -> list[int]:
        """Return the tokens with which every conversation with this system prompt begins."""
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
        """Return the requirement that an answer must meet.

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
    """Refuse a schema of the answer by the name that it has in the request."""
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
    """Return the rendered conversation, the prefill of the assistant, all messages, and notes.

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
    """Return the texts of the assistant's prefill, after what the template opens its turn with."""
    text = last.text or last.content or ""
    if not chat.opens_thinking(segments):
        return [text]
    if not text:
        return [last.thinking]
    return [last.thinking, chat.thinking.closing, f"\n\n{text}"]


def _effort(effort: str, known: frozenset[str], thinks: bool) -> dict[str, Any]:
    """Return the options that say to the template how much to think.

    Args:
        effort: as OpenAI says it.
        known: names that the template reads.
        thinks: whether it shows thoughts.

    Raises:
        APIError: the template has none.
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
