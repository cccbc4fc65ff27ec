"""Messages and tools of OpenAI's chat format, and their conversion to the server's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AliasChoices, ConfigDict, Discriminator, Field, Tag

from ...conversation.chat import Message
from ...conversation.grammar import CallChoice
from ..http.api_error import APIError
from ..models.turns import CallIds
from ..settings import Limits
from .body import Body, WireModel
from .tools import Offered, arguments_of, joined, schema_of

_OR_INPUT = AliasChoices("arguments", "input")  # of a custom tool
MAX_FACTS, MAX_FACT = 4, 80  # of a part that its placeholder shows, and characters of each
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")
_FACTS = ("name", "tool_name", "title", "filename", "media_type", "url", "image_url", "query")
_TEXTS = ("text", "content", "output", "refusal")


class Lenient(WireModel):
    """The base of message parts: unknown fields, which clients copy from answers, are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class TextPart(Lenient):
    """A piece of a content."""

    type: Literal["text", "input_text", "output_text"]
    text: str


def kind_of(*known: str) -> Discriminator:
    """Return a discriminator of parts by their type; an unknown type is ``other``."""

    def kind(part: Any) -> str:
        found = part.get("type") if isinstance(part, Mapping) else getattr(part, "type", None)
        found = "text" if found in ("input_text", "output_text") else found
        return found if found in known else "other"

    return Discriminator(kind)


class OtherPart(WireModel):
    """An image, a document, a call of a tool that another server ran, …, with all that it has.

    Once it is past, a text takes its place: a client sends its whole history with each request, and
    to refuse a past part is to refuse all of them.
    """

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    type: str

    def text_at(self, where: str, *, newest: bool = False) -> str:
        """Return a placeholder text: type and texts of the part; empty for a model's thoughts.

        Raises:
            APIError: the part has no text and belongs to the `newest` question; `where` names it.
        """
        found = list(_strings(self.model_dump()))
        facts = [re.sub("(?s)^data:|;.*", "", fact) for key, fact in found if key in _FACTS]
        head = " ".join(dict.fromkeys(fact[:MAX_FACT] for fact in [self.type, *facts][:MAX_FACTS]))
        texts = joined(text for key, text in found if key in _TEXTS)
        if self.type in _THOUGHTS:
            return ""
        if texts:
            return texts if self.type == "refusal" else f"[{head}]\n{texts}"
        if newest:
            raise APIError(
                f"content of type {self.type!r:.50} is not supported: these models take only text",
                param=f"{where}.type",
                code="unsupported_content",
            )
        return f"[{head}, which is not text]"


Part = Annotated[
    Annotated[TextPart, Tag("text")] | Annotated[OtherPart, Tag("other")], kind_of("text")
]
Content = str | list[Part]


class CalledFunction(Lenient):
    """The function of a call."""

    name: str
    arguments: str | dict[str, Any] = Field("{}", validation_alias=_OR_INPUT)


class CallItem(Lenient):
    """A call that the model has made."""

    id: str = ""
    type: Literal["function", "custom"] = "function"
    function: CalledFunction = Field(validation_alias=AliasChoices("function", "custom"))


class SpokenMessage(Lenient):
    """A message of the system, the developer or the user."""

    role: Literal["system", "developer", "user"]
    content: Content


class AssistantMessage(Lenient):
    """What the model has generated."""

    role: Literal["assistant"]
    content: Content | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallItem] | None = None
    function_call: CalledFunction | None = None  # as it was called before there were tools


class ToolMessage(Lenient):
    """The result of a call."""

    role: Literal["tool", "function"]
    content: Content
    tool_call_id: str = ""
    name: str | None = None


AnyMessage = Annotated[SpokenMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Function(Lenient):
    """A function that the model may call."""

    name: str = Field(min_length=1, max_length=256)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ToolItem(Lenient):
    """A tool that the model may use; types other than function are another server's own."""

    type: str
    function: Function | None = None


class NamedFunction(Lenient):
    """The function that the model must call."""

    name: str


class NamedTool(Lenient):
    """The tool that the model must use."""

    type: Literal["function"]
    function: NamedFunction


class AllowedTools(Lenient):
    """The tools that the model may use, of all that it knows."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


class AllowedChoice(Lenient):
    """Some of the tools may be used."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[NamedTool | AllowedChoice, Field(discriminator="type")]
)


class SchemaFormat(Lenient):
    """A schema of answers."""

    name: str = ""
    description: str | None = None
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema")
    strict: bool | None = None


class TextFormat(Lenient):
    """Answers are free."""

    type: Literal["text"]


class ObjectFormat(Lenient):
    """Answers are JSON objects; of a schema, as llama-server has it."""

    type: Literal["json_object"]
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class JsonFormat(Lenient):
    """Answers fit a schema."""

    type: Literal["json_schema"]
    json_schema: SchemaFormat


ResponseFormat = Annotated[TextFormat | ObjectFormat | JsonFormat, Field(discriminator="type")]


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Talk(Body):
    """The conversation parameters that several bodies share."""

    turns: ClassVar[str] = "messages"

    messages: list[AnyMessage] = Field(min_length=1)
    tools: list[ToolItem] = Field(default_factory=list)
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict, max_length=32)


def messages_of(messages: Sequence[AnyMessage]) -> list[Message]:
    """Convert messages to those that templates take, with IDs of calls by `CallIds`.

    Raises:
        APIError: a message has content that no model here takes.
    """
    made: list[Message] = []
    ids = CallIds()
    for number, message in enumerate(messages):
        where = f"messages[{number}].content"
        if isinstance(message, SpokenMessage):
            role = "user" if message.role == "user" else "system"
            newest = role == "system" or number == len(messages) - 1
            made.append(Message(role, text_of(message.content, where, newest=newest)))
        elif isinstance(message, ToolMessage):
            name, own = ids.of_result(message.tool_call_id, message.name or "")
            made.append(Message("tool", text_of(message.content, where), name, own))
        else:
            old = message.function_call
            items = message.tool_calls or ([] if old is None else [CallItem(function=old)])
            calls = tuple(
                ids.call(one.id, one.function.name, arguments_of(one.function.arguments))
                for one in items
            )
            ids.end_turn()
            text = text_of(message.content or "", where)
            thinking = message.reasoning_content or message.reasoning or ""
            made.append(Message("assistant", text, calls=calls, text=text, thinking=thinking))
    return made


def text_of(content: Content, where: str, *, newest: bool = False) -> str:
    """Return the text of a message's content, with placeholders for what is not text.

    Raises:
        APIError: a part of `newest` content, which counts for the answer, has no text.
    """
    if isinstance(content, str):
        return content
    return joined(
        part.text
        if isinstance(part, TextPart)
        else part.text_at(f"{where}[{number}]", newest=newest)
        for number, part in enumerate(content)
    )


def offered(tools: Sequence[ToolItem]) -> list[Offered]:
    """Convert the tools of a request to `Offered`."""
    return [
        Offered(tool.type, one.name, one.description, one.parameters)
        if (one := tool.function)
        else Offered(tool.type)
        for tool in tools
    ]


def choice_of(choice: ToolChoice) -> tuple[CallChoice, tuple[str, ...]]:
    """Return whether calls are allowed or required, and the allowed tools unless all are."""
    if isinstance(choice, NamedTool):
        return "required", (choice.function.name,)
    if isinstance(choice, AllowedChoice):
        allowed = choice.allowed_tools
        return allowed.mode, tuple(tool.function.name for tool in allowed.tools)
    return choice, ()


def output_of(form: ResponseFormat | None, limits: Limits) -> dict[str, Any] | None:
    """Return the JSON schema of the answer, if any; raise `APIError` where it is too large."""
    if form is None or isinstance(form, TextFormat):
        return None
    if isinstance(form, ObjectFormat):
        return schema_of(form.schema_, "response_format.schema", limits)
    return schema_of(form.json_schema.schema_, "response_format.json_schema.schema", limits)


def _strings(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the strings in a part and its nested parts, with their keys."""
    for key, value in part.items():
        if isinstance(value, str):
            plain = key == "data" and part.get("type") == "text"  # a document of plain text
            yield "text" if plain else key, value
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Mapping):
                yield from _strings(inner)
