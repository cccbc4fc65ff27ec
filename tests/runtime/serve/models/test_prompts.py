"""Answers that were begun already, and that the model goes on with."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from helpers.serving import Server, events

from triplepoint.runtime.conversation.formats.toolcalls import ToolCall
from triplepoint.runtime.conversation.messages import Message
from triplepoint.runtime.conversation.template import TemplateRefusalError
from triplepoint.runtime.serve.http.api_error import APIError, as_api_error
from triplepoint.runtime.serve.models.prompts import Conversation, Prompts

URL = "/v1/chat/completions"


def test_it_goes_on_with_a_begun_answer(server: Server) -> None:
    """A last message of the assistant is gone on with, as by llama-server and Open WebUI."""
    asked = [{"role": "user", "content": "Say something about disks."}]
    whole = server.post(URL, {"messages": asked, "max_tokens": 16, "temperature": 0}).json()
    text = whole["choices"][0]["message"]["content"]
    prompt = server.post("/apply-template", {"messages": asked}).json()["prompt"]
    begun = [*asked, {"role": "assistant", "content": text[:9]}]
    body = {"messages": begun, "max_tokens": 6, "temperature": 0}
    more = {"continue_final_message": True, "add_generation_prompt": False}
    first, second = server.post(URL, body).json(), server.post(URL, {**body, **more}).json()
    *pieces, _ = events(server.post(URL, {**body, "stream": True}).text)
    plain = server.post(
        "/v1/completions", {"prompt": prompt + text[:9], "max_tokens": 6, "temperature": 0}
    ).json()
    told = first["choices"][0]["message"]["content"]

    assert server.post("/apply-template", {"messages": begun}).json()["prompt"] == prompt + text[:9]
    assert told == plain["choices"][0]["text"]
    assert second["choices"] == first["choices"]
    assert "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces) == told
    assert first["usage"]["prompt_tokens"] == plain["usage"]["prompt_tokens"]
    for name, value in (("continue_final_message", True), ("add_generation_prompt", False)):
        refused = server.post(URL, {**body, "messages": asked, name: value}).json()
        assert refused["error"]["param"] == name


def test_it_goes_on_within_a_schema(server: Server) -> None:
    """A begun answer and what follows fit the schema together; one that cannot is refused."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
              "additionalProperties": False}  # fmt: skip
    body: dict[str, Any] = {"json_schema": schema, "max_tokens": 40, "temperature": 0}
    asked = [{"role": "user", "content": "hello"}]
    begun = '{"n": 12'
    answer = server.post(
        URL, {**body, "messages": [*asked, {"role": "assistant", "content": begun}]}
    ).json()
    tools = [{"type": "function", "function": {"name": "f"}}]
    must_call = {"tools": tools, "tool_choice": "required", "max_tokens": 4}
    said = [*asked, {"role": "assistant", "content": "Well, "}]
    scheduler = server.service.models.loaded()[0].engine.core.scheduler
    passes = scheduler.passes

    found = json.loads(begun + answer["choices"][0]["message"]["content"])
    assert str(found["n"]).startswith("12")
    for more in (body, must_call):
        wrong = server.post(URL, {**more, "messages": said})
        assert wrong.status_code == 400
        assert wrong.json()["error"]["param"] == "messages"
        assert "assistant prefill does not match" in wrong.json()["error"]["message"]
    assert scheduler.passes == passes


FIRST = """{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first -%}{{ raise_exception('not at the beginning') }}
{%- endif -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endfor -%}{{- '<|im_start|>assistant\\n' -}}"""
ALTERNATING = """{%- for m in messages -%}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}{{ raise_exception('must alternate') }}
{%- endif -%}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}
{%- endfor -%}{{- '<|im_start|>assistant\\n' -}}"""


def _rendered(prompts: Prompts, *said: tuple[str, str]) -> str:
    messages = [Message(role, text, text=text) for role, text in said]  # pyright: ignore
    return prompts.render(Conversation(messages))


def test_strict_templates_get_turns(make_tokenizer: Any) -> None:
    """Several system messages, later ones, and users in a row; other requests stay as they are."""
    prompts = Prompts(make_tokenizer(template=FIRST))
    plain = _rendered(prompts, ("system", "Be brief."), ("user", "hi"))
    two = _rendered(prompts, ("system", "A"), ("system", "B"), ("user", "hi"))
    later = _rendered(
        prompts,
        ("system", "A"),
        ("user", "hi"),
        ("assistant", "Yes."),
        ("system", "B"),
        ("user", "?"),
    )
    again = _rendered(prompts, ("system", "Be brief."), ("user", "hi"))

    assert plain == again
    assert "<|im_start|>system\nBe brief.<|im_end|>" in plain
    assert "<|im_start|>system\nA\n\nB<|im_end|>" in two
    assert "<|im_start|>user\n<system-reminder>\nB\n</system-reminder>\n\n?<|im_end|>" in later

    prompts = Prompts(make_tokenizer(template=ALTERNATING))
    for _ in range(2):
        users = _rendered(prompts, ("system", "A"), ("user", "hi"), ("user", "there"))
        assert users.startswith("<|im_start|>user\nA\n\nhi\n\nthere<|im_end|>")
    with pytest.raises(TemplateRefusalError) as refused:
        _rendered(prompts, ("user", "a"), ("assistant", "b"), ("assistant", "c"), ("user", "d"))
    told = as_api_error(refused.value)
    assert told.message.endswith("must alternate"), "what an agent could do is not for requests"


def test_no_thinking_where_there_is_none(server: Server) -> None:
    """What the template does not read has no effect, as a note says; an effort is refused."""
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    for more in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"model": ""},
    ):
        assert server.post(URL, asked | more).status_code == 200, more
    for name in ("enable_thinking", "thinking_mode", "documents"):
        answer = server.post(URL, asked | {"chat_template_kwargs": {name: [1]}})
        assert answer.status_code == 200, name
        note = (
            f"chat_template_kwargs.{name} is ignored: it is not read by this model's chat template"
        )
        assert json.loads(answer.headers["warnings"]) == [note]
    refused = server.post(URL, asked | {"chat_template_kwargs": {"messages": "x"}}).json()["error"]
    assert refused["param"] == "chat_template_kwargs.messages"
    assert refused["message"].endswith("cannot be set by a request")
    assert server.post(URL, asked | {"reasoning_effort": "high"}).status_code == 400


PLAIN = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
ALWAYS = PLAIN + "<|im_start|>assistant\n<think>\n"
SWITCHED = PLAIN + "{% if enable_thinking %}<think>{% endif %}"
EFFORT = PLAIN + "Reasoning: {{ reasoning_effort | default('medium') }}<think>"
BOTH = EFFORT + "{{ enable_thinking }}"


def test_results_in_the_order_of_their_calls(make_tokenizer: Any) -> None:
    """A template without identifiers tells by order alone which result is of which call."""
    prompts = Prompts(make_tokenizer(template=FIRST))
    calls = tuple(ToolCall(name, {}, id=name) for name in ("a", "b", "c"))
    results = [Message("tool", f"of {name}", name, name) for name in ("a", "b", "c")]
    asked = [Message("user", "hi", text="hi"), Message("assistant", "Wait.", calls=calls)]

    def rendered(*order: int) -> str:
        return prompts.render(Conversation([*asked, *(results[n] for n in order), asked[0]]))

    assert rendered(2, 0, 1) == rendered(0, 1, 2)
    assert rendered(2, 1).index("of b") < rendered(2, 1).index("of c")


@pytest.mark.parametrize(
    ("template", "asked", "written"),
    [
        (PLAIN, {"effort": "none"}, ""),
        (PLAIN, {"options": {"enable_thinking": False}}, ""),
        (SWITCHED, {"effort": "minimal"}, ""),
        (SWITCHED, {"effort": "xhigh"}, "<think>"),
        (EFFORT, {"effort": "none"}, "Reasoning: low<think>"),
        (EFFORT, {"effort": "minimal"}, "Reasoning: low<think>"),
        (EFFORT, {"effort": "medium"}, "Reasoning: medium<think>"),
        (EFFORT, {"effort": "xhigh"}, "Reasoning: high<think>"),
        (EFFORT, {"effort": "max"}, "Reasoning: high<think>"),
        (BOTH, {"effort": "none"}, "Reasoning: medium<think>False"),
    ],
)
def test_how_much_to_think(
    make_tokenizer: Any, template: str, asked: dict[str, Any], written: str
) -> None:
    """It is told in the words that the template knows."""
    prompts = Prompts(make_tokenizer(template=template))
    rendered = prompts.render(Conversation([Message("user", "hi", text="hi")], **asked))

    assert rendered == "<|im_start|>hi" + written


@pytest.mark.parametrize(
    ("template", "asked", "param"),
    [
        (
            ALWAYS,
            {"options": {"enable_thinking": False}},
            "chat_template_kwargs.enable_thinking",
        ),
        (
            EFFORT,
            {"options": {"enable_thinking": False}},
            "chat_template_kwargs.enable_thinking",
        ),
    ],
)
def test_thinking_that_cannot_be_turned_off(
    make_tokenizer: Any, template: str, asked: dict[str, Any], param: str
) -> None:
    """A model whose template always thinks does not do so silently."""
    prompts = Prompts(make_tokenizer(template=template))
    with pytest.raises(APIError) as raised:
        prompts.render(Conversation([Message("user", "hi", text="hi")], **asked))

    assert (raised.value.status, raised.value.param) == (400, param)


@pytest.mark.parametrize(
    ("template", "asked", "most"),
    [
        (ALWAYS, {"effort": "none"}, 0),
        (ALWAYS, {"effort": "low"}, 1024),
        (ALWAYS, {"effort": "low", "thinking_tokens": 7}, 7),
        (ALWAYS, {"effort": "high", "thinking_tokens": -1}, None),
        (ALWAYS, {}, None),
        (EFFORT, {"effort": "low"}, None),
        ("{{ messages[0].content }}", {"thinking_tokens": 7}, None),
    ],
)
def test_a_budget_of_thinking(
    make_tokenizer: Any, template: str, asked: dict[str, Any], most: int | None
) -> None:
    """What was given counts before the effort; a template that reads the effort sees to it."""
    prompts = Prompts(make_tokenizer(template=template))
    prompt = prompts.prompt(Conversation([Message("user", "hi", text="hi")], **asked))

    assert prompt.thinking_tokens == most


def test_a_text_that_cannot_fit_is_not_read(server: Server) -> None:
    """It is refused by its length, before it becomes tokens."""
    began = time.process_time()
    answer = server.post(
        "/v1/chat/completions",
        {"model": "nano", "messages": [{"role": "user", "content": "hello world " * 300_000}]},
    )
    assert answer.status_code == 400
    assert "resulted in at least " in answer.json()["error"]["message"]
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert time.process_time() - began < 3


@pytest.mark.parametrize("at", [1, 2])
def test_more_system_messages_than_the_template_takes(server: Server, at: int) -> None:
    """The embedded model's leaves them out: they are put where it takes them."""
    said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
    said.insert(at, {"role": "developer", "content": "Be kind."})
    answer = server.post("/v1/chat/completions", {"model": "nano", "messages": said})
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens"] > 20


def asked_again(server: Server, path: str, streamed: bool, **schema: Any) -> tuple[str, str]:
    """The warnings and the answer of a request with a schema."""
    held = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], **schema}
    question = [{"role": "user", "content": "x"}]
    named = {"type": "json_schema", "schema": held}
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {
            "messages": question,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", **named}},
        },
        "/v1/messages": {"messages": question, "output_config": {"format": named}},
        "/v1/responses": {"input": question, "text": {"format": {**named, "name": "x"}}},
    }
    most = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = {**bodies[path], "model": "nano", most: 40, "stream": streamed}
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.headers.get("warnings", ""), answer.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_answer_that_no_grammar_holds_is_asked_again(
    server: Server, path: str, streamed: bool
) -> None:
    """What a grammar has not is checked once the answer is there, before any of it is sent."""
    pytest.importorskip("jsonschema")
    warnings, text = asked_again(server, path, streamed, **{"not": {"required": ["a"]}})
    late = text.partition(": warnings: ")[2].partition("\n")[0]
    left, again, misfit = json.loads(late or warnings)

    assert '"not"' in left
    assert "did not fit its schema and was requested again: {'a': " in again
    assert "the answer does not fit its schema: {'a': " in misfit


def test_an_answer_that_fits_is_not_asked_again(server: Server) -> None:
    """A note says what was left to the check; without anything left there is none."""
    path = "/v1/chat/completions"
    warnings, _ = asked_again(server, path, False, **{"not": {"required": ["b"]}})

    assert "not" in json.loads(warnings)[0]
    assert "fit its schema" not in warnings
    assert asked_again(server, path, False)[0] == ""
