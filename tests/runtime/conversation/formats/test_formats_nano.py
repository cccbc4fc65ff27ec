"""Every format on the real engine: the embedded model's own logits under the grammar make calls."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import pytest
from helpers.agents import conversation_of
from pydantic import Field

from triplepoint import Agent, Engine
from triplepoint.errors import LimitReachedError
from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reply import ReplyReader
from triplepoint.tools import ToolSet, tool

MOST = 160  # tokens of a call
Short = Annotated[str, Field(max_length=12)]
"""Behind tags that it was never taught this model goes on and on."""


@tool
def search(pattern: Short, path: Short = ".", regex: bool = False) -> str:
    """Finds a text in files."""
    return f"{pattern} {path} {regex}"


@tool
def list_dir(path: Short = ".") -> str:
    """Lists a folder."""
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_model_calls_in_a_format_it_never_saw(engine: Engine, name: str) -> None:
    """After an opening, each token is the likeliest of the allowed ones; what comes out fits."""
    form, tokenizer = FORMATS[name].one_call(), engine.tokenizer
    tools = ToolSet([search, list_dir])
    grammar = CallGrammar(tokenizer, tools.schemas(), form)
    ended = 0
    for opening in form.openings:
        constraint = grammar.constraint()
        reader = ReplyReader(tokenizer, form, tools=tools.schemas())
        prompt = "<|im_start|>user\nWhich file mentions retry?<|im_end|>\n<|im_start|>assistant\n"
        begun = tokenizer.encode(opening.text, special=True)
        for token in begun:
            constraint.advance(token)
            reader.push(token)
        session = engine.session(context=512)
        session.prefill([*tokenizer.encode(prompt, special=True), *begun])
        tokens = []
        for token in session.decode(
            max_tokens=MOST, stop=tokenizer.stop_ids, constraint=constraint
        ):
            tokens.append(token)
            reader.push(token)
        reply = reader.finish()
        assert reply.broken == []
        if tokens[-1] in tokenizer.stop_ids:
            ended += 1
            assert reply.calls
            assert reply.cut_call is None
        for call in reply.calls:
            assert tools.get(call.name).validate(call.arguments).keys() == call.arguments.keys()
    assert ended == len(form.openings), f"a call did not end within {MOST} tokens"


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_an_agent_in_another_format(engine: Engine, tmp_path: Path, name: str) -> None:
    """An agent with a template of another format runs, and its trace names the format."""
    (tmp_path / "app.log").write_text("10:00 ERROR disk full\n")
    sign = {"llama": "<|python_tag|>", "mistral": "[TOOL_CALLS]"}[name]
    template = (
        "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}{% for m in messages %}"
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
        f"{{# {sign} #}}"
    )
    with Agent(
        engine, workspace=tmp_path, trace=False, chat_template=template, max_tokens=64
    ) as agent:
        with contextlib.suppress(LimitReachedError):
            agent.run("What's the error in app.log?")
        assert conversation_of(agent).chat.form.name == name
        assert agent.session.tokens == agent.ledger.ids
        decodes = [phase for phase in agent.trace.phases if phase.phase == "decode"]
        assert decodes
        assert all(phase.constraint == name for phase in decodes)
        for event in agent.trace.tools:
            agent.tools.get(event.name).validate(event.arguments)
