"""Texts that go on, and llama-server's routes about text."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.serving import Server, events

from triplepoint.runtime.conversation.logprobs import TokenLogprob
from triplepoint.runtime.serve.models.events import Done, Text
from triplepoint.runtime.serve.wire.openai.completions import CompletionWriter
from triplepoint.runtime.tokens.tokenizer import Tokenizer


def complete(server: Server, prompt: Any = "The disk is", **more: Any) -> Any:
    """The body of an answer."""
    body = {"prompt": prompt, "max_tokens": 6, "ignore_eos": True, **more}
    return server.post("/v1/completions", body).json()


def test_a_text_goes_on(server: Server) -> None:
    """As a text, as token ids, streamed and whole: the same tokens."""
    whole = complete(server)
    (choice,) = whole["choices"]
    ids = server.post("/tokenize", {"content": "The disk is"}).json()["tokens"]
    streamed = server.post(
        "/v1/completions",
        {"prompt": "The disk is", "max_tokens": 6, "ignore_eos": True, "stream": True},
    )
    *chunks, done = events(streamed.text)

    assert whole["object"] == "text_completion"
    assert (choice["finish_reason"], whole["usage"]["completion_tokens"]) == ("length", 6)
    assert complete(server, ids)["choices"][0]["text"] == choice["text"]
    assert complete(server, ["The disk is"])["choices"][0]["text"] == choice["text"]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == choice["text"]
    assert (chunks[-1]["choices"][0]["finish_reason"], done) == ("length", "[DONE]")


def test_echo_and_logprobs(server: Server) -> None:
    """The prompt stands before the text; probabilities have the first format's shape."""
    plain = complete(server)["choices"][0]["text"]
    told = complete(server, logprobs=2)["choices"][0]["logprobs"]

    assert complete(server, echo=True)["choices"][0]["text"] == f"The disk is{plain}"
    assert "".join(told["tokens"]) == plain
    assert len(told["token_logprobs"]) == len(told["text_offset"]) == 6
    assert all(len(top) == 2 for top in told["top_logprobs"])


def test_several_prompts(server: Server) -> None:
    """Choices are those of each prompt after the other; `usage` is of all of them."""
    prompts = ["The disk is", "The log says"]
    ids = [server.post("/tokenize", {"content": one}).json()["tokens"] for one in prompts]
    alone = [complete(server, one, temperature=0) for one in prompts]
    both = complete(server, prompts, temperature=0, n=2, echo=True)
    streamed = server.post(
        "/v1/completions",
        {
            **{"prompt": ids, "max_tokens": 6, "temperature": 0, "stream": True},
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        },
    )
    *chunks, usage, done = events(streamed.text)
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]

    told = [one["choices"][0]["text"] for one in alone]
    assert [one["index"] for one in both["choices"]] == [0, 1, 2, 3]
    assert [one["text"] for one in both["choices"][::2]] == [
        prompt + text for prompt, text in zip(prompts, told, strict=True)
    ]
    assert both["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert both["usage"]["completion_tokens"] == 24
    assert (texts, done) == (told, "[DONE]")
    assert usage["usage"]["completion_tokens"] == 12


def test_tokens_and_texts_in_one_prompt(server: Server) -> None:
    """A prompt may be made of both, as llama-server has it."""
    ids = server.post("/tokenize", {"content": "The disk"}).json()["tokens"]
    mixed = complete(server, [*ids, " is"], temperature=0)["choices"][0]["text"]

    assert mixed == complete(server, temperature=0)["choices"][0]["text"]


def test_one_prompt_that_fails(server: Server) -> None:
    """The whole request does, and nothing of it goes on."""
    answer = complete(server, ["One", "two " * 5000])

    assert answer["error"]["code"] == "context_length_exceeded"
    assert answer["error"]["param"] == "prompt"
    server.idle()


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"prompt": ["a"] * 65}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": [[1], []]}, "prompt"),
        ({"prompt": [[1], 1]}, "prompt[0]"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [""]}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": ["a", [10**9]]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 1000}, "logprobs"),
        ({"grammar": "x"}, "grammar"),
    ],
)
def test_what_is_refused(server: Server, more: dict[str, Any], param: str) -> None:
    """400, and the error names the parameter."""
    body = {"prompt": "The disk is", "max_tokens": 6, **more}
    answer = server.post("/v1/completions", body)

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_best_of_several(server: Server) -> None:
    """It says what to do, also where there is no n in the request."""
    error = server.post("/v1/completions", {"prompt": "a", "best_of": 3}).json()["error"]

    assert "it must be 1 as n is" in error["message"]
    assert "ask for more with n" in error["message"]


def test_tokens_there_and_back(server: Server) -> None:
    """A text comes back from its tokens; pieces are texts, or bytes where they are none."""
    text = "Grüße, <|im_end|> 世界"
    ids = server.post("/tokenize", {"content": text}).json()["tokens"]
    plain = server.post("/tokenize", {"content": text, "parse_special": False}).json()["tokens"]
    pieces = server.post("/tokenize", {"content": text, "with_pieces": True}).json()["tokens"]
    raw = b"".join(
        p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces
    )

    assert server.post("/detokenize", {"tokens": ids}).json() == {"content": text}
    assert len(plain) > len(ids)
    assert (raw.decode(), [p["id"] for p in pieces]) == (text, ids)
    refused = server.post("/detokenize", {"tokens": [0, 10**9]}).json()
    assert refused["error"]["param"] == "tokens[1]"


def test_a_space_at_the_beginning_stays(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a vocabulary in which one begins every text: these tokens may be of any place."""
    tokenizer = server.service.models.loaded()[0].engine.tokenizer
    ids = tokenizer.encode(" one two")
    monkeypatch.setattr(tokenizer._merger, "adds_space_prefix", True)

    assert tokenizer.decode(ids) == "one two"
    assert server.post("/detokenize", {"tokens": ids}).json() == {"content": " one two"}


def test_a_template(server: Server) -> None:
    """The prompt of a conversation is what the model is given."""
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
    prompt = server.post("/apply-template", {"messages": messages}).json()["prompt"]
    ids = server.post("/tokenize", {"content": prompt}).json()["tokens"]
    used = server.chat(messages=messages).json()["usage"]["prompt_tokens"]

    assert prompt.startswith("<|im_start|>system\nBe kind.")
    assert len(ids) == used


def test_paths_and_methods_that_are_none(server: Server) -> None:
    """The error object, as everywhere."""
    missing = server.client.get("/v1/nothing")
    wrong = server.client.get("/v1/chat/completions")

    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
    assert (wrong.status_code, "error" in wrong.json()) == (405, True)


def test_probabilities_of_parts_of_characters(tokenizer: Tokenizer) -> None:
    """Each token says where its character begins in the text, and its bytes where it is a part."""
    text = "a漢é b"
    ids = tokenizer.encode(text)
    top = tuple((token, -2.0) for token in tokenizer.encode("漢"))
    noted = [TokenLogprob(token, -1.0, top) for token in ids]
    pieces = [tokenizer.token_bytes(token) for token in ids]
    wanted = [len(b"".join(pieces[:n]).decode(errors="ignore")) for n in range(len(ids))]
    events = [
        Text(0, "a漢", noted[:4]),
        Text(0, "é b", noted[4:]),
        Done(0, "stop", len(ids), 0, 0.0),
    ]
    model: Any = SimpleNamespace(engine=SimpleNamespace(tokenizer=tokenizer), fingerprint="")

    def writer() -> CompletionWriter:
        made = CompletionWriter("m", usage=False)
        made.of(model)
        return made

    whole, streamed = writer(), writer()
    for event in events:
        whole.add(event)
    told = whole.whole()["choices"][0]["logprobs"]
    chunks = [json.loads(streamed.stream(event)[6:])["choices"][0] for event in events[:2]]

    assert told["text_offset"] == wanted
    assert [at for chunk in chunks for at in chunk["logprobs"]["text_offset"]] == wanted
    assert told["tokens"][:4] == ["a", r"bytes:\xe6", r"bytes:\xbc", r"bytes:\xa2"]
    assert list(told["top_logprobs"][0]) == told["tokens"][1:4]
