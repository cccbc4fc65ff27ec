"""What clients of llama-server ask for beside OpenAI's formats."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from helpers.serving import Server, events

from triplepoint import Engine
from triplepoint.runtime.serve.models.generate import GenerationRequest
from triplepoint.runtime.serve.requests import service

URL = "/completion"
TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}


def test_its_own_completion(server: Server) -> None:
    """The text is that of /v1/completions; why it ended, tokens and times are told."""
    body = {"prompt": "The log says", "n_predict": 6, "temperature": 0}
    own = server.post(URL, body).json()
    other = server.post("/v1/completions", {**body, "n_predict": -1, "max_tokens": 6}).json()

    assert own["content"] == other["choices"][0]["text"]
    assert (own["stop"], own["stop_type"], own["tokens_predicted"]) == (True, "limit", 6)
    assert own["tokens_evaluated"] == other["usage"]["prompt_tokens"]
    assert own["timings"]["predicted_n"] == 6
    ids = server.post("/tokenize", {"content": "The log says", "add_special": True}).json()
    assert (
        server.post("/completions", {**body, "prompt": ids["tokens"]}).json()["content"]
        == (own["content"])
    )
    stopped = server.post(URL, {**body, "stop": [own["content"][4:6]]}).json()
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", own["content"][4:6])
    assert own["content"].startswith(stopped["content"])


def test_other_names(server: Server) -> None:
    """`max_completion_tokens`, and `logprobs` for `n_probs`, as it takes them itself."""
    body = {"prompt": "The log says", "max_completion_tokens": 3, "temperature": 0}
    own = server.post(URL, {**body, "logprobs": 2}).json()
    assert [len(one["top_logprobs"]) for one in own["completion_probabilities"]] == [2, 2, 2]
    other = server.post("/v1/completions", {**body, "n_probs": 2}).json()["choices"][0]
    assert [len(one) for one in other["logprobs"]["top_logprobs"]] == [2, 2, 2]
    none = server.post("/v1/completions", {**body, "n_probs": 0}).json()["choices"][0]
    assert none["logprobs"] is None


def test_its_own_completion_streamed(server: Server) -> None:
    """Pieces make up the text; the last event stops, and there is no [DONE]."""
    body = {"prompt": "The log says", "n_predict": 6, "n_probs": 2, "return_progress": True}
    *pieces, last = events(server.post(URL, {**body, "stream": True}).text)
    whole = server.post(URL, {**body, "stream": False}).json()

    assert "".join(piece["content"] for piece in pieces) == whole["content"]
    assert not any(piece["stop"] for piece in pieces)
    assert (last["stop"], last["content"], last["stop_type"]) == (True, "", "limit")
    assert pieces[0]["prompt_progress"]["total"] == last["tokens_evaluated"]
    noted = [one for piece in pieces for one in piece.get("completion_probabilities", ())]
    assert len(noted) == 6
    assert [one["id"] for one in noted] == [one["id"] for one in whole["completion_probabilities"]]
    assert all(len(one["top_logprobs"]) == 2 for one in noted)


def test_probabilities_after_sampling(server: Server) -> None:
    """`post_sampling_probs`: what the settings leave, as shares of 1; the draws are the same."""
    body: dict[str, Any] = {"prompt": "The log says", "n_predict": 6, "n_probs": 5}
    drawn = {**body, "temperature": 1, "seed": 5, "top_k": 3}
    before, after = (
        server.post(URL, {**drawn, "post_sampling_probs": on}).json() for on in (False, True)
    )

    assert before["content"] == after["content"]
    pairs = zip(before["completion_probabilities"], after["completion_probabilities"], strict=True)
    for plain, one in pairs:
        kept = {each["id"]: math.exp(each["logprob"]) for each in plain["top_logprobs"][:3]}
        share = {each["id"]: each["prob"] for each in one["top_probs"]}
        total = sum(kept.values())
        assert share == pytest.approx({i: value / total for i, value in kept.items()}, rel=1e-3)
        assert one["prob"] == share[one["id"]]
        assert "logprob" not in one
    greedy = server.post(URL, {**body, "temperature": 0, "post_sampling_probs": True}).json()
    for one in greedy["completion_probabilities"]:
        assert [each["prob"] for each in (one, *one["top_probs"])] == [1.0, 1.0]
    held = {**drawn, "json_schema": {"const": "a"}, "post_sampling_probs": True}
    first = server.post(URL, held).json()["completion_probabilities"][0]
    assert first["token"].startswith('"')
    assert sum(each["prob"] for each in first["top_probs"]) == pytest.approx(1.0, rel=1e-3)
    refused = server.chat(post_sampling_probs=True)
    assert refused.json()["error"]["param"] == "post_sampling_probs"


NEUTRAL: dict[str, Any] = {
    "typical_p": 1.0, "dynatemp_range": 0, "xtc_probability": 0, "dry_multiplier": 0,
    "mirostat": 0, "top_n_sigma": -1, "n_keep": 0, "ignore_eos": False, "id_slot": 0,
    "mirostat_tau": 5.0, "dry_base": 1.75, "timings_per_token": False, "cache_prompt": False,
    "lora": [], "grammar": "", "n_cache_reuse": 0, "backend_sampling": False, "seed": -1,
    "adaptive_target": -1.0, "adaptive_decay": 0.9, "sse_ping_interval": 5, "top_k": -1,
}  # fmt: skip


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions",
        *(pytest.param(p, marks=pytest.mark.slow) for p in (URL, "/v1/completions")),
    ],
)
def test_what_is_off(server: Server, path: str) -> None:
    """Its further settings are taken where they are off, and refused by name where they are not."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
    body = body if "chat" in path else {"prompt": "hello"}
    assert server.post(path, {**body, **NEUTRAL, "n_predict": 2}).status_code == 200
    for name, value in {
        "ignore_eos": True, "n_keep": 5, "adaptive_target": 0.5, "sse_ping_interval": 0,
        "samplers": ["mirostat"], "lora": [{"id": 0}], "n_probs": 21, "n_indent": -2,
    }.items():  # fmt: skip
        if name == "ignore_eos" and "chat" not in path:
            continue
        answer = server.post(path, {**body, name: value})
        assert answer.status_code == 400, name
        assert answer.json()["error"]["param"] == name


def test_its_parameters_of_a_chat(server: Server) -> None:
    """`n_predict` limits, `n_probs` tells probabilities, and `json_schema` holds the answer."""
    limited = server.chat(max_tokens=None, n_predict=3).json()
    assert limited["usage"]["completion_tokens"] == 3
    told = server.chat(n_probs=2).json()["choices"][0]["logprobs"]["content"]
    assert len(told[0]["top_logprobs"]) == 2
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    held = server.chat(json_schema=schema, max_tokens=40).json()["choices"][0]["message"]
    assert json.loads(held["content"]).keys() == {"n"}
    form = {"type": "json_object"}
    both = server.chat(json_schema=schema, response_format=form)
    assert both.json()["error"]["param"] == "json_schema"


GRAMMAR = 'root ::= ("red" | "green") " " [0-9]{3}'


def test_a_grammar_holds_an_answer(server: Server) -> None:
    """GBNF, of conversations and completions, streamed and not, drawn and greedy."""
    fits = re.compile("(red|green) [0-9]{3}")
    drawn = {"temperature": 1.5, "seed": 5}
    for more in ({}, drawn):
        said = server.chat(grammar=GRAMMAR, max_tokens=32, **more).json()["choices"][0]
        assert fits.fullmatch(said["message"]["content"])
        assert said["finish_reason"] == "stop"
        body = {"prompt": "The color is ", "grammar": GRAMMAR, "temperature": 0, **more}
        own = server.post(URL, body).json()
        assert fits.fullmatch(own["content"])
        assert own["stop_type"] == "eos"
        pieces = events(server.post(URL, {**body, "stream": True}).text)
        assert "".join(piece["content"] for piece in pieces) == own["content"]
        text = server.post("/v1/completions", body).json()["choices"][0]["text"]
        assert text == own["content"]


def test_a_schema_holds_a_completion(server: Server) -> None:
    """`json_schema`, from the first character on."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    answer = server.post(URL, {"prompt": "Say: ", "json_schema": schema, "n_predict": 60}).json()
    assert json.loads(answer["content"]).keys() == {"n"}


@pytest.mark.parametrize(
    ("path", "more", "named"),
    [
        ("chat", {"grammar": "root ::= x"}, "grammar"),
        ("chat", {"grammar": GRAMMAR, "json_schema": {}}, "json_schema"),
        ("chat", {"grammar": GRAMMAR, "response_format": {"type": "json_object"}}, "grammar"),
        ("chat", {"grammar": GRAMMAR, "tools": [TOOL]}, "grammar"),
        ("chat", {"grammar": "x" * 300_000}, "grammar"),
        (URL, {"grammar": GRAMMAR, "ignore_eos": True}, "ignore_eos"),
        (URL, {"grammar": "root ::= ["}, "grammar"),
        (URL, {"json_schema": {"type": "frob"}}, "json_schema"),
        ("chat", {"json_schema": {"type": "frob"}}, "json_schema"),
        ("/v1/responses", {"grammar": GRAMMAR}, "grammar"),
        (URL, {"response_fields": ["content"] * 300}, "response_fields"),
        (URL, {"response_fields": ["a/" * 200]}, "response_fields[0]"),
    ],
)
def test_what_is_refused(server: Server, path: str, more: dict[str, Any], named: str) -> None:
    """With the parameter's name."""
    if path == "chat":
        answer = server.chat(**more)
    else:
        answer = server.post(path, {"input" if "resp" in path else "prompt": "hello", **more})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == named


def test_a_prompt_that_is_to_be_read_anew(server: Server) -> None:
    """With `cache_prompt: false` nothing is taken from the cache, and the answer is the same."""
    question = "Is this read again? " * 8
    server.chat(question)
    cached, anew = server.chat(question).json(), server.chat(question, cache_prompt=False).json()

    assert cached["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert anew["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert anew["choices"] == cached["choices"]


def test_what_it_says_of_itself(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties of the model, and slots that show who runs but not what is asked."""
    props = server.client.get("/props").json()
    slots = server.client.get("/slots").json()

    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert (props["total_slots"], props["modalities"]["vision"]) == (len(slots), False)
    assert "{%" in props["chat_template"]
    assert props["eos_token"]
    assert not any(slot["is_processing"] for slot in slots)
    run, go = service.Generation.run, threading.Event()

    def later(self: service.Generation, engine: Engine, request: GenerationRequest) -> None:
        go.wait(20)
        run(self, engine, request)

    monkeypatch.setattr(service.Generation, "run", later)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.chat, "a secret")
        while server.service.load != (1, 0) or not server.service.metrics.records()[-1].started:
            time.sleep(0.01)
        (busy,) = [s for s in server.client.get("/slots").json() if s["is_processing"]]
        go.set()
        assert asked.result(60).status_code == 200
    assert "secret" not in json.dumps(busy)
    assert (busy["model"], busy["id"]) == ("nano", 0)
    assert server.client.get("/props?model=agent:x").status_code == 404
    assert server.post("/props", {}).status_code == 405


def test_several_prompts(server: Server) -> None:
    """Each is answered as alone, `n` times; answers are counted through, streamed and whole."""
    prompts = ["The log says", "The disk is", "One"]
    body = {"n_predict": 5, "temperature": 0}
    alone = [server.post(URL, {**body, "prompt": one}).json() for one in prompts]
    whole = server.post(URL, {**body, "prompt": prompts, "n_cmpl": 2}).json()
    texts = dict.fromkeys(range(3), "")
    ended: list[int] = []
    for one in events(server.post(URL, {**body, "prompt": prompts, "stream": True}).text):
        texts[one["index"]] += one["content"]
        ended += [one["index"]] * one["stop"]

    assert [one["index"] for one in whole] == [*range(6)]
    assert [one["content"] for one in whole[::2]] == [one["content"] for one in alone]
    assert [one["prompt"] for one in whole[::2]] == prompts
    assert [one["tokens_evaluated"] for one in whole[1::2]] == [
        one["tokens_evaluated"] for one in alone
    ]
    assert [*texts.values()] == [one["content"] for one in alone]
    assert sorted(ended) == [0, 1, 2]


def test_tokens_and_times(server: Server) -> None:
    """Tokens come where they are asked for, times with each piece, and fields may be chosen."""
    body = {"prompt": "The log says", "n_predict": 6, "temperature": 0}
    whole = server.post(URL, {**body, "return_tokens": True}).json()
    *pieces, last = events(
        server.post(URL, {**body, "stream": True, "timings_per_token": True}).text
    )
    chosen = {"response_fields": ["content", "timings/predicted_n", "generation_settings/n_ctx"]}
    few = server.post(URL, {**body, **chosen, "x": None}).json()

    assert server.post("/detokenize", {"tokens": whole["tokens"]}).json() == {
        "content": whole["content"]
    }
    assert [token for one in pieces for token in one["tokens"]] == whole["tokens"]
    assert [one["timings"]["predicted_n"] for one in pieces][-1] <= 6
    assert all(one["timings"]["prompt_n"] + one["timings"]["cache_n"] for one in pieces)
    assert (last["tokens"], last["generation_settings"]["n_predict"]) == ([], 6)
    assert few == {
        "content": whole["content"],
        "timings/predicted_n": 6,
        "generation_settings/n_ctx": 4096,
    }


def test_times_of_a_chat(server: Server) -> None:
    """With `timings_per_token` every piece of a stream has them; the last ones are of all."""
    told = [one for one in server.stream(timings_per_token=True) if one != "[DONE]"]
    counts = [one["timings"]["predicted_n"] for one in told if "timings" in one]

    assert len(counts) == len(told) - 1  # the first chunk is the role alone
    assert counts == sorted(counts)
    assert counts[-1] == 8
    assert sum("timings" in one for one in server.stream() if one != "[DONE]") == 1


def test_a_prompt_that_is_only_read(server: Server) -> None:
    """With no tokens to be written a prompt is there for those that come later."""
    prompt = "Nobody has asked for this before. " * 8
    none = server.post(URL, {"prompt": prompt, "n_predict": 0}).json()
    later = server.post(URL, {"prompt": prompt, "n_predict": 1}).json()

    assert (none["content"], none["tokens_predicted"], none["stop_type"]) == ("", 0, "limit")
    assert later["timings"]["cache_n"] > none["timings"]["cache_n"]
    assert server.chat(max_tokens=0).json()["choices"][0]["message"]["content"] == ""


def test_answers_without_an_end(server: Server) -> None:
    """With `ignore_eos` a text goes on where the model would end it."""
    eos = server.client.get("/props").json()["eos_token"]
    body = {"prompt": "hello", "max_tokens": 9, "temperature": 0}
    (end,) = server.post("/tokenize", {"content": eos}).json()["tokens"]
    body["logit_bias"] = {str(end): 100}
    ends = server.post("/v1/completions", body).json()
    never = server.post("/v1/completions", {**body, "ignore_eos": True}).json()

    assert (ends["choices"][0]["finish_reason"], ends["usage"]["completion_tokens"]) == ("stop", 1)
    assert never["usage"]["completion_tokens"] == 9


def test_biases(server: Server) -> None:
    """As pairs, of texts, and false for never: as llama-server takes them."""
    body = {"prompt": "The log says", "n_predict": 1, "temperature": 0, "return_tokens": True}
    (first,) = server.post(URL, body).json()["tokens"]
    for bias in ([[first, False]], {str(first): False}, [[first, -100]]):
        answer = server.post(URL, {**body, "logit_bias": bias}).json()
        assert answer["tokens"] != [first]
    (word,) = server.post("/tokenize", {"content": "z"}).json()["tokens"]
    assert server.post(URL, {**body, "logit_bias": [["z", 100]]}).json()["tokens"] == [word]
    refused = server.post(URL, {**body, "logit_bias": [[10**9, 1]]}).json()
    assert refused["error"]["param"] == "logit_bias"


def test_tokens_of_conversations(server: Server) -> None:
    """Both formats count as many as the answer tells."""
    messages = [{"role": "user", "content": "hello"}]
    used = server.chat().json()["usage"]["prompt_tokens"]
    for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        assert server.post(path, {"messages": messages}).json() == {
            "object": "response.input_tokens",
            "input_tokens": used,
        }
    counted = server.post("/v1/responses/input_tokens", {"input": "hello"}).json()
    assert counted["input_tokens"] == used
    assert server.post("/responses", {"input": "hello", "max_output_tokens": 2}).status_code == 200
    assert server.client.get("/lora-adapters").json() == []


@pytest.mark.parametrize(
    ("path", "what"),
    [("/v1/rerank", "reranking"),
     ("/v1/responses/compact", "compaction"),
     ("/v1/audio/speech", "sounds"), ("/slots/0?action=save", "slots"),
     ("/v1/chat/completions/control", "control"), ("/models/load", "loading")],
)  # fmt: skip
def test_what_other_servers_have(server: Server, path: str, what: str) -> None:
    """It is refused by name with its status, in a way that no client tries again."""
    answer = server.post(path, {"input": "x"})

    assert (answer.status_code, answer.headers["x-should-retry"]) == (501, "false")
    assert answer.json()["error"]["type"] == "not_supported_error"
    assert what in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "what"),
    [
        ("/api/chat", "ollama"),
        ("/v1/images/generations", "images"),
        ("/lora-adapters", "POST"),
        ("/v1/conversations", "conversations"),
        ("/v1/responses/resp_1/cancel", "background"),
    ],
)
def test_what_is_not_there(server: Server, path: str, what: str) -> None:
    """It is refused by name."""
    answer = server.post(path, {"input": "x"})

    assert answer.status_code in (404, 405)
    assert what in answer.json()["error"]["message"]
