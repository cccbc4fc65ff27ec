"""How a chat template fares: its format, the proof of it, and its text beside the reference's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from triplepoint.errors import TemplateError
from triplepoint.runtime.conversation.chat import Chat, Message
from triplepoint.runtime.conversation.formats import format_of
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.proof import written_by
from triplepoint.runtime.conversation.template import ChatTemplate
from triplepoint.runtime.tokens.tokenizer import Tokenizer

USER = {"role": "user", "content": "What <says> \"it\" & 'that', é?"}


def tool(name: str) -> dict[str, Any]:
    """A tool's schema with characters that careless JSON filters change."""
    properties = {
        "path": {"type": "string", "description": 'A <path> & more, "é".'},
        "lines": {"type": "array", "items": {"type": "integer"}, "description": "Which."},
    }
    parameters = {"type": "object", "properties": properties, "required": ["path"]}
    function = {"name": name, "description": "Reads.", "parameters": parameters}
    return {"type": "function", "function": function}


def called(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    """A call in an assistant's message."""
    function = {"name": name, "arguments": arguments}
    return {"type": "function", "id": call_id, "function": function}


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "question": [USER],
    "system": [{"role": "system", "content": " Be brief. "}, USER],
    "two turns": [USER, {"role": "assistant", "content": "It."}, {**USER, "content": "And?"}],
    "tool result": [
        USER,
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nLet me look."},
        {"role": "tool", "name": "read_file", "tool_call_id": "c00010100", "content": "1\tx"},
    ],
    "calls": [
        {"role": "system", "content": "Be brief."},
        USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [called("tool_0", "c00010100", path='a "b"\n<é>', lines=[1, 2])],
        },
        {"role": "tool", "name": "tool_0", "tool_call_id": "c00010100", "content": "1\tx"},
        {"role": "assistant", "content": "It is x."},
        USER,
    ],
    "calls at once": [
        USER,
        {
            "role": "assistant",
            "content": "Both.",
            "tool_calls": [called("tool_0", "c00010100"), called("tool_1", "c00010101", n=1.5)],
        },
        {"role": "tool", "name": "tool_0", "tool_call_id": "c00010100", "content": "one"},
        {"role": "tool", "name": "tool_1", "tool_call_id": "c00010101", "content": '{"a": 1}'},
    ],
    "thoughts": [
        USER,
        {"role": "assistant", "reasoning_content": "Hm.", "content": "It."},
        USER,
        {"role": "assistant", "content": "<think>\nHm again.\n</think>\n\nIt, too."},
        {"role": "tool", "name": "tool_0", "tool_call_id": "c00010101", "content": "two"},
    ],
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"enable_thinking": False},
    {"enable_thinking": True, "thinking": True},
]


def reference(
    source: str,
    messages: Sequence[Mapping[str, Any]],
    tools: list[Any] | None,
    options: Mapping[str, Any],
) -> str | None:
    """What transformers renders with jinja2; None where that fails."""
    from transformers.utils import chat_template_utils

    try:
        return chat_template_utils.render_jinja_template(
            [[dict(message) for message in messages]],
            tools=tools,
            chat_template=source,
            add_generation_prompt=True,
            bos_token="<s>",
            eos_token="</s>",
            **options,
        )[0][0]
    except Exception:  # whatever a template does there
        return None


def rendered(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    options: Mapping[str, Any],
) -> str | None:
    """What this package renders; None where it refuses."""
    try:
        return template.render(messages, tools=tools, options=options)
    except TemplateError:
        return None


@dataclass(frozen=True)
class Row:
    """What was found of one template."""

    name: str
    spoken: str = "-"
    """The format that its text names."""
    proved: str = "-"
    """The format of the call that it writes; ``none`` where it writes none, ``?`` an unknown."""
    enforced: str = "-"
    """The format that the grammar holds a model to."""
    told: str = "-"
    """By whom the model is told of its tools: the ``template`` or a ``message``."""
    equal: int = 0
    """Renderings that are the reference's, or that both refuse."""
    of: int = 0
    refused: str = ""
    """Why a conversation with tools is refused."""
    wrong: str = ""
    """Where the model is told one way and held to another, or is not told."""

    def __str__(self) -> str:
        renderings = f"{self.equal}/{self.of}"
        parts = (self.spoken, self.proved, self.enforced, self.told, renderings)
        return f"{self.name:52}{''.join(f'{p:13}' for p in parts)}{self.wrong or self.refused}"


def markers(source: str) -> list[str]:
    """What looks like a control token in a template."""
    found = re.findall(r"<\|[\w.]+\|?>|<[\w.]+\|>|<｜[^<>｜ ]+｜>|\[/?[A-Z_]{3,}\]", source)
    return sorted({*found} - {"<|im_start|>", "<|im_end|>", "<|endoftext|>"})


HEAD = str(Row("template", "spoken", "proved", "enforced", "told by")).replace("0/0", "equal")
TOOL = tool("read_file")
CALL = ToolCall("read_file", {"path": 'a "b".log', "lines": [1, 2]}, id="c00010100")


def survey(name: str, source: str, tokenizer: Tokenizer) -> Row:
    """What becomes of one template."""
    try:
        template = ChatTemplate(source, bos="<s>", eos="</s>")
    except TemplateError as error:
        return Row(name, refused=str(error))
    equal = list(_equal(source, template))
    written, spoken = written_by(template, {}), format_of(source)
    unproved = "?" if written.calls else "none"
    row = {
        "spoken": spoken.name if spoken else "-",
        "proved": written.form.name if written.form else unproved,
        "equal": sum(equal),
        "of": len(equal),
    }
    try:
        chat = Chat(tokenizer, tools=[TOOL], template=source)
        text = _talk(chat)
    except TemplateError as error:
        return Row(name, **row, refused=str(error))
    own = f"in this form:\n{chat.form.example}" in text
    wrong = ""
    if "read_file" not in text:
        wrong = "the tool is not told"
    elif own != any("told in the system message" in note for note in chat.notes):
        wrong = "told by us without a note, or noted and not told"
    elif not own and chat.form is not (written.form or spoken):
        wrong = "the template tells another format than the grammar holds to"
    told = "message" if own else "template"
    return Row(name, **row, enforced=chat.form.name, told=told, wrong=wrong)


def _equal(source: str, template: ChatTemplate) -> Iterator[bool]:
    for messages, count, options in product(CONVERSATIONS.values(), (0, 2), OPTIONS):
        tools = [tool(f"tool_{i}") for i in range(count)] or None
        expected = reference(source, messages, tools, options)
        yield rendered(template, messages, tools, options) == expected


def _talk(chat: Chat) -> str:
    """A conversation that is opened, goes on with a call and its result, and with a question."""
    messages = [Message("system", "Be brief."), Message("user", "What's in it?")]
    opened = chat.open(messages)
    said = chat.form.render([CALL])
    messages += [Message("assistant", said, calls=(CALL,), text="")]
    messages += [Message("tool", "1\tdisk full", "read_file", CALL.id)]
    chat.extend(messages)
    messages += [Message("assistant", "It is full."), Message("user", "And now?")]
    chat.extend(messages)
    return "".join(segment.text for segment in opened)
