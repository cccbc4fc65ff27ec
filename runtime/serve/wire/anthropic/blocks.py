"""Messages and tools of Anthropic's format, and their conversion to the server's own."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from ....conversation.chat import Message
from ....conversation.grammar import CallChoice
from ...http.api_error import APIError
from ...models.turns import Turns
from ..messages import Content, Lenient, OtherPart, TextPart, kind_of, text_of
from ..tools import Offered, joined

_HEADER = "x-anthropic-billing-header:"
_CARRIES = "thought1."  # begins a signature that holds the thought itself
_CALLS: dict[str, CallChoice] = {
    "auto": "auto", "any": "required", "tool": "required", "none": "none",
}  # fmt: skip
MAX_THOUGHT = 4 << 20  # bytes of it


class ThinkingBlock(Lenient):
    """What the model has thought; where it was not shown, its signature holds it."""

    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class ToolUseBlock(Lenient):
    """A call that the model has made."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Lenient):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Content = ""
    is_error: bool = False


Block = Annotated[
    Annotated[TextPart, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")]
    | Annotated[OtherPart, Tag("other")],
    kind_of("text", "thinking", "tool_use", "tool_result"),
]


class BlocksMessage(Lenient):
    """A message; a system message may come late in a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class ToolItem(Lenient):
    """A tool that the model may use; types other than custom are Anthropic's own."""

    name: str = ""
    description: str | None = None
    type: str = "custom"
    input_schema: dict[str, Any] = Field(default_factory=dict)


class ToolChoice(Lenient):
    """Whether the answer may be, must be or must not be a call."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


def messages_of(system: Content, messages: Sequence[BlocksMessage]) -> list[Message]:
    """Convert a system prompt and messages to messages that templates take.

    Raises:
        APIError: the question has content that no model here takes, or there is no question.
    """
    if len(messages) == 1 and messages[0].role == "assistant":
        raise APIError("the first message must not be the assistant's", param="messages[0].role")
    turns = Turns()
    if not isinstance(system, str):
        # A header of HTTP that Claude Code writes here. It may hold a nonce, and all that follows
        # one would be computed anew each time.
        system = [
            b for b in system if not isinstance(b, TextPart) or not b.text.startswith(_HEADER)
        ]
    turns.system(text_of(system, "system", newest=True))
    for number, message in enumerate(messages):
        where = f"messages[{number}].content"
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [TextPart(type="text", text=blocks)]
        if message.role == "assistant":
            _assistant(turns, blocks, where)
        else:
            # What a client puts next to the results of its tools belongs to these.
            results = any(isinstance(block, ToolResultBlock) for block in blocks)
            newest = number == len(messages) - 1 and not results
            _user(turns, message.role, blocks, where, newest=newest)
    turns.close()
    last = turns.messages[-1] if turns.messages else None
    if last is not None and last.role == "assistant" and last.calls:
        raise APIError(
            "the last message has tool calls without results, so the model cannot continue",
            param=f"messages[{len(messages) - 1}]",
            code="unsupported_content",
        )
    return turns.messages


def _assistant(turns: Turns, blocks: Sequence[Block], where: str) -> None:
    turns.say("")
    for index, block in enumerate(blocks):
        if isinstance(block, TextPart):
            turns.say(block.text)
        elif isinstance(block, ThinkingBlock):
            turns.thought(block.thinking or carried(block.signature))
        elif isinstance(block, ToolUseBlock):
            turns.called(block.id, block.name, block.input)
        else:
            turns.say(_other(block).text_at(f"{where}[{index}]", newest=False))


def _user(
    turns: Turns,
    role: Literal["user", "system"],
    blocks: Sequence[Block],
    where: str,
    *,
    newest: bool,
) -> None:
    """Add the blocks of a user or system message: texts, and results of calls."""
    texts: list[str] = []

    def flush() -> None:
        if texts:
            (turns.system if role == "system" else turns.user)(joined(texts))
            texts.clear()

    for index, block in enumerate(blocks):
        if isinstance(block, TextPart):
            texts.append(block.text)
        elif isinstance(block, ToolResultBlock) and role == "user":
            flush()
            text = text_of(block.content, f"{where}[{index}].content")
            if block.is_error and "error" not in text[:100].lower():
                text = f"Error: {text}"
            turns.result(block.tool_use_id, text)
        else:
            texts.append(_other(block).text_at(f"{where}[{index}]", newest=newest))
    flush()


def _other(block: Block) -> OtherPart:
    """Convert a block that has no meaning in this role to an `OtherPart`."""
    return block if isinstance(block, OtherPart) else OtherPart(**block.model_dump())


def signature_of(thought: str, *, carrying: bool = False) -> str:
    """Return the signature of a thought, since clients drop thoughts without one.

    Args:
        thought: its text.
        carrying: whether to embed the text, for thoughts that the client is not shown. So later
            requests contain it, also after a restart of this server.
    """
    if not carrying:
        return hashlib.sha256(thought.encode()).hexdigest()[:32]
    return _CARRIES + base64.b64encode(zlib.compress(thought.encode())).decode()


def carried(signature: str) -> str:
    """Return the thought that a signature contains; empty if there is none."""
    if not signature.startswith(_CARRIES):
        return ""
    try:
        packed = base64.b64decode(signature.removeprefix(_CARRIES), validate=True)
        # Bounded: a few bytes may unpack to gigabytes.
        return zlib.decompressobj().decompress(packed, MAX_THOUGHT).decode()
    except (ValueError, zlib.error):
        return ""


def offered(tools: Sequence[ToolItem]) -> list[Offered]:
    """Convert the tools of a request to `Offered`."""
    return [Offered(tool.type, tool.name, tool.description, tool.input_schema) for tool in tools]


def choice_of(choice: ToolChoice) -> tuple[CallChoice, tuple[str, ...]]:
    """Return whether calls are allowed or required, and the tool that must be called, if any."""
    return _CALLS[choice.type], (choice.name or "",) if choice.type == "tool" else ()
