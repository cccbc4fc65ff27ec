"""The format of calls is the one that a template writes, whatever it says beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.runtime.conversation.chat import Chat, Message
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall, ToolFormat
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.proof import Written, taken, written_by
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.runtime.conversation.template import ChatTemplate
from triplepoint.runtime.tokens.tokenizer import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
            "required": ["path"],
        },
    },
}


def template(call: str, before: str = "", after: str = "", hint: str = "") -> str:
    """A template that tells of tools and writes calls.

    Args:
        call: how it writes the call ``c``, as Jinja.
        before, after: all calls of a message.
        hint: what it says of them.
    """
    return (
        f"{{% if tools %}}Tools: {{{{ tools | tojson }}}}\n{hint}\n{{% endif %}}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        f"{{% if m.tool_calls %}}{before}{{% for t in m.tool_calls %}}{{% set c = t.function %}}"
        f"{call}{{% endfor %}}{after}{{% endif %}}<|im_end|>\n{{% endfor %}}<|im_start|>assistant\n"
    )


def by_key(argument: str) -> str:
    """Each argument ``k`` with its value ``v``, as Jinja."""
    return f"{{% for k, v in c.arguments.items() %}}{argument}{{% endfor %}}"


JSON = '{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}'
TEXT = "{{ v if v is string else v | tojson }}"
PYTHON = "{{ v | tojson if v is mapping else v }}"
GLM_ARGUMENT = f"<arg_key>{{{{ k }}}}</arg_key>\n<arg_value>{TEXT}</arg_value>\n"
COMMA = "{{ ', ' if not loop.last }}"
INVOKE = (
    '<invoke name="{{ c.name }}">\n'
    + by_key(f'<parameter name="{{{{ k }}}}">{TEXT}</parameter>\n')
    + "</invoke>\n"
)

WRITES = {
    "hermes": ("hermes", template(f"<tool_call>\n{JSON}\n</tool_call>")),
    "hermes, in ASCII": (
        "hermes",
        template(
            f"<tool_call>\n{JSON.replace('tojson', 'tojson(ensure_ascii=true)')}\n</tool_call>"
        ),
    ),
    "glm": (
        "glm",
        template(f"\n<tool_call>{{{{ c.name }}}}\n{by_key(GLM_ARGUMENT)}</tool_call>"),
    ),
    "glm, in one line": (
        "glm",
        template(
            f"<tool_call>{{{{ c.name }}}}{by_key(GLM_ARGUMENT.replace(chr(10), ''))}</tool_call>",
            hint="Write <tool_call>.",
        ),
    ),
    "glm, some line breaks": (
        "glm",
        template(
            f"<tool_call>{{{{ c.name }}}}\n{by_key(GLM_ARGUMENT.rstrip())}\n</tool_call>"
        ),
    ),
    "a list": ("tool_calls", template(JSON + COMMA, "<tool_calls>[", "]</tool_calls>\n")),
    "a list that names its calls": (
        "tool_calls",
        template(
            JSON[:-1] + ', "id": "{{ t.id }}"}' + COMMA,
            *("<tool_calls>[", "]</tool_calls>"),
            hint="Results come in <tool_response>, calls in <tool_call>",
        ),
    ),
    "lines": ("minimax-m1", template(JSON + "\n", "<tool_calls>\n", "</tool_calls>")),
    "nemotron": ("nemotron", template(JSON + COMMA, "<TOOLCALL>[", "]</TOOLCALL>")),
    "minimax": ("minimax", template(INVOKE, "<minimax:tool_call>\n", "</minimax:tool_call>")),
    "functionary": (
        "functionary",
        template(
            "<function={{ c.name }}>{{ c.arguments | tojson }}</function>",
            hint='<|python_tag|> <|start_header_id|> "parameters":',
        ),
    ),
    "qwen3-coder": (
        "qwen3-coder",
        template(
            "<tool_call>\n<function={{ c.name }}>\n"
            + by_key(f"<parameter={{{{ k }}}}>\n{PYTHON}\n</parameter>\n")
            + "</function>\n</tool_call>"
        ),
    ),
    "llama": ("llama", template(JSON.replace("arguments", "parameters", 1))),
    "mistral": ("mistral", template(JSON + COMMA, "[TOOL_CALLS][", "]")),
    "mistral-args": (
        "mistral-args",
        template("[TOOL_CALLS]{{ c.name }}[ARGS]{{ c.arguments | tojson }}"),
    ),
    "unknown tags": (None, template(f"<call>{JSON}</call>")),
    "a known tag and an unknown way": (None, template("<tool_call>{{ c.name }}: ?</tool_call>"
                                                      "{{ c.arguments | tojson }}")),
    "a name that is spelled otherwise": (
        None,
        template(f"<tool_call>\n{JSON.replace('name', 'function', 1)}\n</tool_call>"),
    ),
    "arguments as text": (
        None,
        template(
            f"<tool_call>\n{JSON.replace('c.arguments | tojson', 'c.arguments | tojson | tojson')}"
            "\n</tool_call>"
        ),
    ),
    "JSON after a header": (None, template(JSON.replace("arguments", "parameters", 1), "to=f\n")),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITES)
def test_what_a_template_writes_is_its_format(make_tokenizer: MakeTokenizer, kind: str) -> None:
    """A call that the template writes tells the format, whatever tags its text holds; what no
    format reads is told and enforced as JSON, and said."""
    name, source = WRITES[kind]
    chat = Chat(make_tokenizer(()), tools=[TOOL], template=source)

    text = "".join(s.text for s in chat.open([Message("user", "What's in it?")]))

    assert chat.form.name == (name or "json")
    if name is None:
        assert len(chat.notes) == 1
        assert "writes tool calls in" in chat.notes[0]
        assert chat.notes[0].endswith("the system message describes them, in the format json")
        assert f"in this form:\n{chat.form.example}" in text
        assert "Tools: " not in text
    else:
        assert chat.notes == []
        assert "Tools: " in text


@pytest.mark.parametrize("kind", [kind for kind, (name, _) in WRITES.items() if name])
def test_a_call_goes_round(make_tokenizer: MakeTokenizer, kind: str) -> None:
    """What the template writes for a call passes the grammar token by token and reads the same."""
    name, source = WRITES[kind]
    assert name is not None
    form = FORMATS[name]
    tokenizer = make_tokenizer(tuple(dict.fromkeys(form.tags)), template=None)
    arguments = {"path": 'a "b"\n/c.log', "lines": 12}
    call = {"type": "function", "function": {"name": "read_file", "arguments": arguments}}
    said = {"role": "assistant", "content": "", "tool_calls": [call | {"id": "c00010100"}]}
    rendered = ChatTemplate(source).render([{"role": "user", "content": "?"}, said], tools=[TOOL])
    text = rendered.split("<|im_start|>assistant\n")[1].partition("<|im_end|>")[0]
    text = text.strip() + "<|im_end|>"

    constraint = CallGrammar(tokenizer, [TOOL], form).constraint()
    reader = ReplyReader(tokenizer, form, tools=[TOOL])
    for token in tokenizer.encode(text, special=True):
        constraint.advance(token)  # raises where the grammar does not allow it
        reader.push(token)

    reply = reader.finish()
    assert constraint.done
    assert [(c.name, c.arguments) for c in reply.calls] == [("read_file", arguments)]
    assert (reply.answer, reply.broken) == ("", [])


def test_a_template_that_writes_no_calls() -> None:
    """Nothing is proved by a template that writes none, or refuses them."""
    silent = "{% for m in messages %}{{ m.content }}{% endfor %}<tool_call>"
    refuses = "{% if messages | length > 1 %}{{ raise_exception('No.') }}{% endif %}" + silent

    assert written_by(ChatTemplate(silent), {}) == Written()
    assert written_by(ChatTemplate(refuses), {}) == Written()


def test_options_may_change_what_is_written() -> None:
    """The proof is of the template with the options of this conversation."""
    call = "{% if plain %}<call>{% else %}<tool_call>\n{% endif %}" + JSON + "\n</tool_call>"
    compiled = ChatTemplate(template(call))

    assert written_by(compiled, {}) == Written(True, FORMATS["hermes"])
    assert written_by(compiled, {"plain": True}) == Written(True, None)
    assert written_by(compiled, {}) == Written(True, FORMATS["hermes"])


def test_a_template_that_fails_with_tools(make_tokenizer: MakeTokenizer) -> None:
    """Tools are then told in the system message, and the note says what failed."""
    source = "{% if tools %}{{ tools.nothing.more }}{% endif %}" + template(JSON)
    chat = Chat(make_tokenizer(()), tools=[TOOL], template=source)

    text = "".join(s.text for s in chat.open([Message("user", "What's in it?")]))

    assert chat.form.name == "json"
    assert '"name": "read_file"' in text
    assert len(chat.notes) == 1


def test_only_formats_before_the_one_that_fits_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proved ends the search, and a question alone is rendered only where it counts."""
    name, source = WRITES["hermes"]
    later = FORMATS["gemma"]
    renders = list[object]()
    render = ChatTemplate.render

    def counted(self: ChatTemplate, *args: Any, **given: Any) -> str:
        renders.append(args)
        return render(self, *args, **given)

    def tried(_: object, source: str) -> bool:
        raise AssertionError("a later format was tried")

    monkeypatch.setattr(ChatTemplate, "render", counted)
    monkeypatch.setattr(type(later), "speaks", tried)

    written = written_by(ChatTemplate(source + " "), {})  # of a text that is not remembered

    assert written.form is not None
    assert written.form.name == name
    assert len(renders) == 1


# JSON writes other control characters as numbers, which its grammars leave out.
LETTERS = st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from('\n\t"\\<>/')
TEXTS = st.text(LETTERS, max_size=40)
NAMES = ("glm", "minimax", "qwen3-coder", "functionary", "tool_calls", "minimax-m1", "nemotron")


@pytest.mark.slow
@pytest.mark.parametrize("form", [FORMATS[name] for name in NAMES], ids=NAMES)
@given(path=TEXTS, lines=st.integers(-(2**53) + 1, 2**53 - 1) | st.none())
@settings(max_examples=40, deadline=None)
def test_any_text_comes_back(form: ToolFormat, path: str, lines: int | None) -> None:
    """Whatever text an argument is, but for the tag that ends it, the grammar takes and the reader
    gives back."""
    path = path.replace("</", "<")
    arguments = {"path": path} | ({} if lines is None else {"lines": lines})
    call = ToolCall("read_file", arguments)
    text = form.render([call]).removeprefix(form.opening)

    assert taken(form, "calls", text, [TOOL]) == text
    body = text.removesuffix(form.closing)
    assert [found.key for found in form.parse(body, [TOOL])] == [call.key]
