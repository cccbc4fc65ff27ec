"""The chat template and its twin in Python."""

from pathlib import Path
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

import triplepoint.runtime.nano
from labs.nano.chatml import round_segments, system_segments
from labs.nano.corpus import rounds
from labs.nano.files import Call, MemoryFiles
from labs.nano.held_out import EVALUATED
from labs.nano.writer import Round
from triplepoint.runtime.agent.prompt import SYSTEM_PROMPT
from triplepoint.tools import FileTools

TEMPLATE = Path(triplepoint.runtime.nano.__file__).with_name("template.jinja")


def schema(name: str, *arguments: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {a: {"type": "string"} for a in arguments}}
    function = {"name": name, "description": "…", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    schema("list_dir", "path"),
    schema("read_file", "path", "start", "end"),
    schema("search", "pattern", "path"),
]


def render(messages: list[dict[str, Any]], **more: Any) -> str:
    def tojson(value: Any) -> str:
        import json

        return json.dumps(value, ensure_ascii=False)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = tojson
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(messages=messages, **more)


def messages_of(item: Round) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": item.question}]
    for call, result in item.steps:
        function = {"name": call.name, "arguments": call.arguments}
        calls = [{"type": "function", "function": function}]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages.append({"role": "tool", "content": result})
    return [*messages, {"role": "assistant", "content": item.answer}]


def test_the_template_renders_the_agreed_bytes() -> None:
    """System, tools, question, call, result, answer, and the opening of the next turn."""
    item = Round(
        "error",
        "What's the error in app.log?",
        ((Call("read_file", {"path": "app.log"}), "1\tERROR disk full"),),
        "The error is: disk full",
        MemoryFiles({}),
    )
    system = {"role": "system", "content": SYSTEM_PROMPT}
    text = render([system, *messages_of(item)], tools=TOOLS, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\n"
        "You answer questions about the files in one folder. "
        "Look with the tools, then answer briefly from what they return.\n"
        "# Tools\nlist_dir(path)\nread_file(path, start, end)\nsearch(pattern, path)\n<|im_end|>\n"
        "<|im_start|>user\nWhat's the error in app.log?<|im_end|>\n"
        "<|im_start|>assistant\n<tool_call>\n"
        '{"name": "read_file", "arguments": {"path": "app.log"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n1\tERROR disk full\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nThe error is: disk full<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_real_tools_render_as_in_training(tmp_path: Path) -> None:
    """The schemas of the file tools give the signatures that training used."""
    file_tools = [tool.schema() for tool in FileTools(tmp_path)]
    system = {"role": "system", "content": SYSTEM_PROMPT}
    trained = "".join(segment.text for segment in system_segments())
    assert render([system], tools=file_tools) == trained


@pytest.mark.slow
@pytest.mark.parametrize("family", EVALUATED)
def test_training_text_is_what_the_template_renders(family: str) -> None:
    """The segments that training sees, joined, are the rendered template."""
    for item in rounds(31, 20, size=5, family=family):
        segments = [*system_segments(), *round_segments(item)]
        system = {"role": "system", "content": SYSTEM_PROMPT}
        rendered = render([system, *messages_of(item)], tools=TOOLS)
        assert "".join(segment.text for segment in segments) == rendered


def test_only_the_assistants_words_are_targets() -> None:
    """Targets are the calls, the answer and the <|im_end|> after each, nothing else."""
    item = rounds(4, 1, size=4, family="line")[0]
    wanted = "".join(segment.text for segment in round_segments(item) if segment.target)
    call = '<tool_call>\n{"name": "read_file", '
    assert wanted.startswith(call)
    assert wanted.endswith(f"</tool_call><|im_end|>{item.answer}<|im_end|>")
