"""The window of messages that a template is shown: exact, small, and given up where it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triplepoint.errors import TemplateError
from triplepoint.runtime.conversation.chat import CHATML, Chat, Message
from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.incremental_render import window
from triplepoint.runtime.tokens.tokenizer import Tokenizer

TEMPLATES = Path(__file__).parents[4] / "shared" / "reference" / "templates"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja")) or ["none"]
MakeTokenizer = Callable[..., Tokenizer]
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    },
}
NUMBERED = (
    "{% for m in messages %}{{ loop.index }} {{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{{ messages | length + 1 }} assistant: "
)
LATE = CHATML + "{% if messages | length > 40 %}Be brief: {% endif %}"


def _turns(count: int, calls: bool = True) -> Iterator[list[Message]]:
    """A conversation as it stands each time that the model is to go on."""
    said = [Message("system", "Be brief.")]
    for turn in range(count):
        said.append(Message("user", f"Question {turn}?"))
        for step in range((turn * 7) % 5 if calls else 0):
            call = ToolCall("read_file", {"path": f"{step}.txt"}, id=f"c{turn:04}{step:02}00")
            said.append(Message("assistant", f"call {turn}.{step}", calls=(call,)))
            said.append(Message("tool", f"result {turn}.{step}", "read_file", call.id))
            yield list(said)
        said.append(Message("assistant", f"answer {turn}"))
        yield [*said, Message("user", f"Question {turn + 1}?")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tools"),
    [
        (name, tools)
        for name in (*NAMES, "nano")
        for tools in (True, False)
        if tools or not name.endswith("tool_use")
    ],  # which fails without tools
)
def test_the_window_is_exact(make_tokenizer: MakeTokenizer, name: str, tools: bool) -> None:
    """What follows an answer is the same as with the whole conversation rendered."""
    template = None
    if name != "nano":
        path = TEMPLATES / f"{name}.jinja"
        if not path.exists():
            pytest.skip("the reference templates are not beside this checkout")
        template = path.read_text(encoding="utf-8")
    chat = Chat(make_tokenizer(), tools=[TOOL] if tools else [], template=template)
    whole = Chat(make_tokenizer(), tools=[TOOL] if tools else [], template=template)
    whole._window.off = "for this test"
    chat.open([Message("system", "Be brief."), Message("user", "Question 0?")])
    whole.open([Message("system", "Be brief."), Message("user", "Question 0?")])

    shorter = 0
    for messages in _turns(16 if tools else 40, tools):
        before, before_whole = chat._template.rendered, whole._template.rendered
        assert chat.extend(messages) == whole.extend(messages)
        shorter += chat._template.rendered - before < whole._template.rendered - before_whole
    assert not chat._window.off
    assert shorter > 12


def test_what_is_rendered_does_not_grow(tokenizer: Tokenizer) -> None:
    """A 200th turn renders as much as the first; checks come when the history has doubled."""
    chat = Chat(tokenizer, tools=[TOOL])
    said = [Message("system", "Be brief."), Message("user", "Question?")]
    chat.open(said)
    rendered: list[int] = []
    for _ in range(200):
        said += [Message("assistant", "Answer."), Message("user", "Question?")]
        before = chat._template.rendered
        chat.extend(said)
        rendered.append(chat._template.rendered - before)

    usual = rendered[0]  # the system message, a question, its answer and the next question
    assert max(rendered) > 50 * usual  # a check: there is something to save
    assert sum(n > usual for n in rendered) <= 3 + 7  # before it is worth it, and the checks
    assert sorted(rendered[-100:])[:-1] == [usual] * 99


@pytest.mark.slow
@pytest.mark.parametrize("template", [NUMBERED, LATE])
def test_a_template_that_counts_gets_everything(tokenizer: Tokenizer, template: str) -> None:
    """It is noticed at a check, said in the notes, and right from there on."""
    chat = Chat(tokenizer, template=template)
    whole = Chat(tokenizer, template=template)
    whole._window.off = "for this test"
    wrong = 0
    for messages in _turns(40):
        same = chat.extend(messages) == whole.extend(messages)
        wrong += not same
        assert same or not chat._window.off
    assert any("needs all messages each turn" in note for note in chat.notes)
    assert wrong == 0 if template == NUMBERED else wrong <= 40


def test_a_template_that_refuses_the_window(tokenizer: Tokenizer) -> None:
    """One that wants an even number of messages before it is shown all of them."""
    strict = "{% if messages | length < 5 and messages[-1].content != 'two' %}"
    strict += "{{ raise_exception('too short') }}{% endif %}" + CHATML
    chat = Chat(tokenizer, template=strict)
    said = [Message("user", "one")]
    for _ in range(10):
        said += [Message("assistant", "yes"), Message("user", "more")]
    text = "".join(segment.text for segment in chat.extend(said))

    assert text.endswith("<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n")
    assert chat.notes
    with pytest.raises(TemplateError, match="too short"):
        chat.extend(said[:3])


def test_a_long_turn_is_cut_too() -> None:
    """Of a turn of many steps the question and the last two are shown."""
    said = [Message("system", "s"), Message("user", "old"), Message("assistant", "a")]
    said.append(Message("user", "question"))
    for _ in range(20):
        said += [Message("assistant", "call"), Message("tool", "one"), Message("tool", "two")]

    kept = window(said, len(said) - 3)
    assert kept == [0, 3, *range(len(said) - 6, len(said))]
