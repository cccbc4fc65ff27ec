"""Items and tools of OpenAI's Responses format, and their conversion to the server's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Discriminator, Field, Tag

from ....conversation.chat import Message
from ....conversation.grammar import CallChoice
from ...http.api_error import APIError
from ...models.turns import Turns
from ...settings import Limits
from ..messages import Content, Lenient, OtherPart, text_of
from ..tools import Offered, arguments_of, schema_of


class MessageItem(Lenient):
    """A message of any role."""

    role: Literal["user", "system", "developer", "assistant"]
    content: Content


class CallItem(Lenient):
    """A call that the model has made."""

    type: Literal["function_call", "custom_tool_call"]
    call_id: str
    name: str
    arguments: str = Field(validation_alias=AliasChoices("arguments", "input"))


class ResultItem(Lenient):
    """The result of a call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content


class ThoughtText(Lenient):
    """A piece of a thought."""

    text: str


class ReasoningItem(Lenient):
    """What the model has thought: as it was, else its summary."""

    type: Literal["reasoning"]
    summary: list[ThoughtText] = Field(default_factory=list)
    content: list[ThoughtText] | None = None


_KINDS = ("function_call", "function_call_output", "reasoning")


def _kind_of_item(item: Any) -> str:
    get = item.get if isinstance(item, Mapping) else lambda name: getattr(item, name, None)
    kind = get("type")
    if kind == "message" or (kind is None and get("role") is not None):
        return "message"
    kind = kind.replace("custom_tool", "function") if isinstance(kind, str) else kind
    return kind if kind in _KINDS else "other"


Item = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[CallItem, Tag("function_call")]
    | Annotated[ResultItem, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")]
    | Annotated[OtherPart, Tag("other")],
    Discriminator(_kind_of_item),
]


class Tool(Lenient):
    """A tool that the model may use."""

    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedTool(Lenient):
    """The tool that the model must use."""

    type: Literal["function"]
    name: str


class AllowedTool(Lenient):
    """A tool that the model may use."""

    type: str
    name: str = ""


class AllowedChoice(Lenient):
    """Some of the tools may be used."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[AllowedTool] = Field(min_length=1)


ToolChoice = (
    Literal["none", "auto", "required"]
    | Annotated[NamedTool | AllowedChoice, Field(discriminator="type")]
)


class PlainFormat(Lenient):
    """Answers are free, or JSON objects."""

    type: Literal["text", "json_object"]


class SchemaFormat(Lenient):
    """Answers fit a schema."""

    type: Literal["json_schema"]
    name: str = ""
    schema_: dict[str, Any] = Field(alias="schema")


TextFormat = Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")]


def messages_of(instructions: str | None, items: str | Sequence[Item]) -> list[Message]:
    """Convert instructions and items to messages that templates take.

    Raises:
        APIError: the question has content that no model here takes.
    """
    turns = Turns()
    turns.system(instructions or "")
    if isinstance(items, str):
        turns.user(items)
        return turns.messages
    for number, item in enumerate(items):
        where = f"input[{number}]"
        if isinstance(item, MessageItem):
            newest = number == len(items) - 1 if item.role == "user" else item.role != "assistant"
            text = text_of(item.content, f"{where}.content", newest=newest)
            if item.role == "assistant":
                turns.say(text)
            else:
                (turns.user if item.role == "user" else turns.system)(text)
        elif isinstance(item, CallItem):
            turns.called(item.call_id, item.name, arguments_of(item.arguments))
        elif isinstance(item, ResultItem):
            turns.result(item.call_id, text_of(item.output, f"{where}.output"))
        elif isinstance(item, ReasoningItem):
            turns.thought("\n\n".join(part.text for part in item.content or item.summary))
        else:
            # No template begins with the assistant's turn.
            begun = any(message.role == "user" for message in turns.messages)
            (turns.say if begun else turns.user)(item.text_at(where))
    turns.close()
    return turns.messages


def offered(tools: Sequence[Tool]) -> list[Offered]:
    """Convert the tools of a request to `Offered`."""
    return [Offered(tool.type, tool.name, tool.description, tool.parameters) for tool in tools]


def choice_of(choice: ToolChoice) -> tuple[CallChoice, tuple[str, ...]]:
    """Return whether calls are allowed or required, and the allowed tools unless all are.

    Raises:
        APIError: it allows only tools that are ignored.
    """
    if isinstance(choice, NamedTool):
        return "required", (choice.name,)
    if not isinstance(choice, AllowedChoice):
        return choice, ()
    names = [tool.name for tool in choice.tools if tool.type == "function"]
    if not names:
        raise APIError("tool_choice allows no function", param="tool_choice.tools")
    return choice.mode, tuple(names)


def output_of(form: TextFormat | None, limits: Limits) -> dict[str, Any] | None:
    """Return the JSON schema of the answer, if any; raise `APIError` where it is too large."""
    if isinstance(form, SchemaFormat):
        return schema_of(form.schema_, "text.format.schema", limits)
    return {"type": "object"} if form is not None and form.type == "json_object" else None
