"""Which format a model writes: by its template, by its vocabulary, or what it is told to write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.runtime.conversation.formats import FALLBACK, FORMATS, format_for, format_of
from triplepoint.runtime.tokens.tokenizer import Tokenizer

MakeTokenizer = Callable[..., Tokenizer]
TEMPLATES = Path(__file__).parents[5] / "shared" / "reference" / "templates"
BY_TEMPLATE = {
    "HuggingFaceTB-SmolLM3-3B": None,
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use": "hermes",
    "Qwen-Qwen2.5-7B-Instruct": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "google-gemma-2-2b-it": "gemma",
    "ibm-granite-granite-3.3-2B-Instruct": "granite",
    "meta-llama-Llama-3.1-8B-Instruct": "llama",
    "meta-llama-Llama-3.2-3B-Instruct": "llama",
    "microsoft-Phi-3.5-mini-instruct": None,
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral",
}


@pytest.mark.parametrize("name", BY_TEMPLATE)
def test_a_template_names_its_format(name: str) -> None:
    """The format of each published template is found, or none where it tells of none."""
    path = TEMPLATES / f"{name}.jinja"
    if not path.exists():
        pytest.skip("the reference templates are not beside this checkout")

    found = format_of(path.read_text(encoding="utf-8"))

    assert (found.name if found else None) == BY_TEMPLATE[name]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<tool_call>\n<function=x>", "qwen3-coder"),
        ("<tool_call>x\n<arg_key>", "glm"),
        ("<tool_calls>[", "tool_calls"),
        ("<TOOLCALL>[", "nemotron"),
        ("<minimax:tool_call>", "minimax"),
        ('<|python_tag|> <function=x>{"a": 1}</function>', "functionary"),
        ("[TOOL_CALLS]x[ARGS]{}", "mistral-args"),
        ("<start_function_call>", "functiongemma"),
        ("<|tool_call>call:", "gemma4"),
        ("<|channel|>commentary to=functions.", "harmony"),
        ("<|tool_call_start|>[", "lfm2"),
        ("List of tools: [", "lfm2"),
        ("<|tool|>{{ tool }}<|/tool|>", "phi"),
        ("<|tool_call|>", "granite"),
        ("<|python_tag|>", "llama"),
    ],
)
def test_words_of_templates(text: str, name: str) -> None:
    """Formats that share a tag are told apart by their others."""
    found = format_of(text)
    assert found is not None
    assert found.name == name


def test_a_tag_that_two_families_have() -> None:
    """Kimi's templates end a call as LFM2's do, and begin it otherwise."""
    assert format_of("<|tool_call_begin|>x<|tool_call_end|>") is None


def test_a_vocabulary_names_the_format(make_tokenizer: MakeTokenizer) -> None:
    """Where the template says nothing, a token that opens calls does; else it is JSON. Of formats
    that share a token it is the one that needs no template to ask for it."""
    for name in ("hermes", "mistral", "llama", "functiongemma", "minimax", "tool_calls", "lfm2"):
        tokenizer = make_tokenizer((FORMATS[name].opening,), template=None)
        assert format_for("{{ messages }}", tokenizer).name == name
    harmony = make_tokenizer((), template=None, control=FORMATS["harmony"].tags)
    assert format_for("{{ messages }}", harmony).name == "harmony"
    assert format_for("{{ messages }}", make_tokenizer((), template=None)) is FALLBACK


def test_examples_are_in_the_format() -> None:
    """What a model is told to write is what is read."""
    for form in FORMATS.values():
        example = form.example.replace("<name>", "f" if "ARGS" in form.example else '"f"')
        example = example.replace("<arguments>", json.dumps({"a": 1}))
        example = example.replace("NAME", "f").replace("ARGUMENT", "a")
        opening = form.openings[0]
        body = example if opening.in_call else example.partition(opening.text)[2]
        body = body.partition(form.closing)[0] if form.closing else body
        if form.name == "llama":
            body = example
        assert [call.name for call in form.parse(body)] == ["f"], form.name
