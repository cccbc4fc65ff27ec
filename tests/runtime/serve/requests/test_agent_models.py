"""Agents as models of a server."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.other_weights import change_weights
from helpers.serving import SETTINGS, Server, named_events

from triplepoint import Agent, Engine
from triplepoint.errors import SettingError
from triplepoint.runtime.agent.harness import defaults, tuned
from triplepoint.runtime.agent.harness.examples import EXAMPLES
from triplepoint.runtime.agent.harness.tuned import Tuned
from triplepoint.runtime.conversation.messages import Message
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.engine.kv.prefix_cache import PrefixCache
from triplepoint.runtime.replay import verify
from triplepoint.runtime.serve.app.application import build_app
from triplepoint.runtime.serve.requests.admission import Line
from triplepoint.runtime.serve.requests.agent_models import without_notes
from triplepoint.traces import Trace

QUESTION = "Which file holds the timeout? Search for it."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the agent may read, and beside it where traces go."""
    made = tmp_path_factory.mktemp("agents") / "project"
    made.mkdir()
    (made / "settings.toml").write_text("timeout = 30\n")
    (made / "main.py").write_text("print('hello')\n")
    return made


@pytest.fixture(scope="module")
def agents(load: Callable[[str], Engine], folder: Path) -> Iterator[Server]:
    """A server with an agent."""
    more: dict[str, Any] = {"trace": "all", "trace_folder": folder.parent / "served"}
    running = Server(replace(SETTINGS, agents={"agent:project": folder}, **more), load)
    try:
        running.wait()
        yield running
    finally:
        running.close()


def test_it_is_a_model_that_reads_files(
    agents: Server, folder: Path, load: Callable[[str], Engine]
) -> None:
    """It is listed; its answer is that of an agent in-process, with its steps as reasoning; its
    trace verifies."""
    listed = [one["id"] for one in agents.client.get("/v1/models").json()["data"]]
    assert listed == ["nano", "agent:project"]
    body = {"model": "agent:project", "messages": [{"role": "user", "content": QUESTION}]}
    before = {*(folder.parent / "served").glob("*.jsonl")}
    answer = agents.post("/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    agents.idle()
    message = answer.json()["choices"][0]["message"]
    (path,) = {*(folder.parent / "served").glob("*.jsonl")} - before
    trace = Trace.load(path)

    with load("nano") as engine:
        alone = Agent(engine, workspace=folder, compact=True, trace=False).run(QUESTION)
        assert verify(trace, engine).ok
    assert message["content"].endswith(alone.answer)
    calls = [event for event in trace.events if event.event == "tool"]
    assert calls
    prefills = [one for one in trace.phases if one.phase == "prefill"]
    decodes = [one for one in trace.phases if one.phase == "decode"]
    usage, timings = answer.json()["usage"], answer.json()["timings"]
    assert len(prefills) > 1
    assert usage["prompt_tokens"] == sum(one.tokens for one in prefills)
    assert usage["completion_tokens"] == sum(one.tokens for one in decodes)
    for part, phases in (("prompt", prefills), ("predicted", decodes)):
        assert timings[f"{part}_ms"] == pytest.approx(1e3 * sum(p.wall_s for p in phases), abs=0.01)
    assert "(" in message["reasoning_content"]
    assert trace.header is not None
    assert trace.header.config["request_id"] == answer.headers["x-request-id"]
    assert "→" in message["reasoning_content"]
    engine = agents.service.models.loaded()[0].engine
    assert not [one for one in list(engine.core.scheduler.sequences) if one.cache.held]


def test_a_file_that_was_replaced_since_it_was_loaded(
    load: Callable[[str], Engine], folder: Path, tmp_path: Path
) -> None:
    """Agents are made at the first request; their trace names the model that answers."""
    file = Path(shutil.copy(NANO, tmp_path / "own.gguf"))
    more: dict[str, Any] = {"trace": "all", "trace_folder": tmp_path / "served"}
    agents = {"agent:project": folder}
    running = Server(replace(SETTINGS, models={"own": str(file)}, agents=agents, **more), load)
    try:
        running.wait()
        change_weights(Path(shutil.copy(NANO, tmp_path / "new.gguf"))).replace(file)
        messages = [{"role": "user", "content": "hello"}]
        body = {"model": "agent:project", "messages": messages, "max_tokens": 4}
        answer = running.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        running.idle()
    finally:
        running.close()
    (path,) = (tmp_path / "served").glob("*.jsonl")

    header = Trace.load(path).header
    assert header is not None
    assert header.model.path == str(file)
    assert header.model.sha256 == hashlib.sha256(NANO.read_bytes()).hexdigest()


def test_where_it_answers(agents: Server) -> None:
    """Another route says so; the chat's lists agents among the models that there are."""
    body = {"model": "agent:project", "prompt": "hi", "max_tokens": 1}
    refused = agents.post("/v1/completions", body)
    assert refused.status_code == 404
    assert "agents answer at /v1/chat/completions" in refused.json()["error"]["message"]
    missing = agents.chat(model="agent:none")
    assert "available: nano, agent:project" in missing.json()["error"]["message"]


def test_it_answers_in_all_formats_of_conversations(agents: Server) -> None:
    """With the same answer and steps, also streamed and in a longer conversation."""
    chat = agents.chat(QUESTION, model="agent:project", max_tokens=300).json()
    message = chat["choices"][0]["message"]
    body = {"model": "agent:project", "input": QUESTION, "max_output_tokens": 300}
    first = agents.post("/v1/responses", body).json()
    assert first["model"] == "agent:project"
    thought, said = first["output"]
    assert said["content"][0]["text"] == message["content"]
    assert "→" in thought["content"][0]["text"]
    body |= {"previous_response_id": first["id"], "input": "hello", "stream": True}
    events = named_events(agents.post("/v1/responses", body).text)
    assert events[-1][0] in ("response.completed", "response.incomplete")

    asked = {"model": "agent:project", "messages": [{"role": "user", "content": QUESTION}]}
    asked |= {"max_tokens": 300, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = agents.post("/v1/messages", asked).json()
    assert whole["model"] == "agent:project"
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]
    assert whole["content"][1]["text"] == message["content"]
    events = named_events(agents.post("/v1/messages", {**asked, "stream": True}).text)
    assert (events[0][0], events[-1][0]) == ("message_start", "message_stop")


@pytest.mark.parametrize(
    ("path", "more", "param"),
    [
        ("messages", {"stop_sequences": ["x"]}, "stop_sequences"),
        ("messages", {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "tools"),
        ("messages", {"output_config": {"format": {"type": "json_schema", "schema": {}}}},
         "output_config.format"),
        ("responses", {"text": {"format": {"type": "json_object"}}}, "text.format"),
        ("responses", {"text": {"format": {"type": "text"}}}, None),
        ("responses", {"reasoning": {"effort": "high"}}, "reasoning.effort"),
    ],
)  # fmt: skip
def test_what_it_does_not_have_in_other_formats(
    agents: Server, path: str, more: dict[str, Any], param: str | None
) -> None:
    """It is refused by the name that it has there."""
    talk = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    body = talk if path == "messages" else {"input": "hi", "max_output_tokens": 1}
    answer = agents.post(f"/v1/{path}", {"model": "agent:project", **body, **more})

    assert answer.status_code == (200 if param is None else 400)
    assert (answer.json().get("error") or {}).get("param") == param


def test_its_turn_and_its_pauses_are_known(agents: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is expected to take what its first prompt takes; its tools' times are remembered, and
    what it has computed is kept meanwhile."""
    places: list[Any] = []
    kept: list[tuple[int, float]] = []
    join, keep = Line.join, PrefixCache.keep

    def joined(self: Line, place: Any, deadline_s: float | None = None) -> None:
        places.append(place)
        join(self, place, deadline_s)

    def keeping(self: PrefixCache, ids: list[int], until: float, namespace: str = "") -> None:
        kept.append((len(ids), until - time.monotonic()))
        keep(self, ids, until, namespace)

    monkeypatch.setattr(Line, "join", joined)
    monkeypatch.setattr(PrefixCache, "keep", keeping)
    question = f"{QUESTION} Look closely."
    body = {"model": "agent:project", "messages": [{"role": "user", "content": question}]}
    assert agents.post("/v1/chat/completions", body).status_code == 200
    agents.idle()

    (place,) = places
    assert place.prefill_s > 0
    assert place.token_s > 0
    assert kept
    assert all(tokens > 100 and 0 < seconds <= 60 for tokens, seconds in kept)
    programs = agents.service.programs
    assert len(programs) == 0, "no tool runs any more"
    headers = {"x-ttft-deadline-ms": "1"}
    late = agents.post("/v1/chat/completions", body | {"messages": [
        {"role": "user", "content": "Something else. " * 60}
    ]}, **headers)  # fmt: skip
    assert late.status_code == 429


def test_it_goes_on_with_a_conversation(agents: Server) -> None:
    """Earlier messages are its conversation, and steps of a stream come before its end."""
    messages = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Hello. Ask me about these files."},
        {"role": "user", "content": QUESTION},
    ]
    events = agents.stream(model="agent:project", messages=messages, max_tokens=300)

    deltas = [one["choices"][0]["delta"] for one in events[:-1]]
    assert any("reasoning_content" in delta for delta in deltas)
    assert events[-2]["choices"][0]["finish_reason"] in ("stop", "length")
    assert events[-1] == "[DONE]"


def test_where_facts_stand_is_told_below_the_answer(
    load: Callable[[str], Engine], folder: Path
) -> None:
    """With a harness, which its settings turn on here; of earlier answers the model sees none."""
    options = {"harness": {"evidence": False, "no_repeats": False}, "grounded": False}
    running = Server(
        replace(SETTINGS, agents={"agent:project": folder}, agent_options=options), load
    )
    try:
        running.wait()
        asked = "What is the timeout in settings.toml?"
        answer = running.chat(asked, model="agent:project", max_tokens=300).json()
    finally:
        running.close()
    said = answer["choices"][0]["message"]["content"]
    text, _, notes = said.partition("\n\n")
    assert "30" in text
    assert notes == "[settings.toml:1] 30"
    assert without_notes(Message("assistant", said)).content == text
    assert without_notes(Message("user", said)).content == said


def test_a_setting_that_the_harness_does_not_have(folder: Path) -> None:
    """It is refused before the server starts."""
    with pytest.raises(SettingError, match="no setting 'evidense'"):
        build_app(replace(SETTINGS, agent_options={"harness": {"evidense": False}}), Engine.load)


def test_its_system_message_is_told_with_a_conversation(agents: Server) -> None:
    """Also where there are earlier messages: the request's own, or what an agent is told."""
    hello = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Hello. Ask me about these files."},
    ]

    def read(*messages: dict[str, str]) -> int:
        body = {"model": "agent:project", "messages": [*messages], "max_tokens": 1}
        return agents.post("/v1/chat/completions", body).json()["usage"]["prompt_tokens"]

    question = {"role": "user", "content": "hello"}
    own = {"role": "system", "content": "word " * 50}
    alone, later = read(question), read(*hello, question)
    assert read(own, *hello, question) - read(own, question) == later - alone
    assert read(own, *hello, question) > later + 20


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, "messages"),
        ({"timings_per_token": True}, "timings_per_token"),
        ({"t_max_predict_ms": 100}, "t_max_predict_ms"),
        ({"max_tokens": 0}, None),
    ],
)
def test_what_it_does_not_have_is_refused(
    agents: Server, more: dict[str, Any], param: str | None
) -> None:
    """By name, and not left out in silence."""
    body = {"model": "agent:project", "messages": [{"role": "user", "content": "hi"}], **more}
    answer = agents.post("/v1/chat/completions", body)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_what_says_nothing_is_taken(agents: Server) -> None:
    """Clients write out what is done in any case."""
    usual = {"n": 1, "logprobs": False, "tools": [], "parallel_tool_calls": True}
    answer = agents.chat(model="agent:project", **usual)

    assert answer.status_code == 200, answer.text


def test_its_traces_stay_within_the_limit(agents: Server, folder: Path) -> None:
    """The oldest ones go, also where nothing but agents is asked."""
    served, traces = folder.parent / "served", agents.service.traces
    body = {"model": "agent:project", "messages": [{"role": "user", "content": QUESTION}]}
    for _ in range(2):
        assert agents.post("/v1/chat/completions", body).status_code == 200
        agents.idle()
    before = sorted(served.glob("*.jsonl"))
    most, traces._max_bytes = traces._max_bytes, before[-1].stat().st_size * 3 // 2
    try:
        assert agents.post("/v1/chat/completions", body).status_code == 200
        agents.idle()
    finally:
        traces._max_bytes = most

    after = sorted(served.glob("*.jsonl"))
    assert len(after) == 1
    assert after[0] not in before


def test_settings_that_were_tuned_are_used(
    load: Callable[[str], Engine], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the model's file, in follow-ups too; the trace has them."""
    digest = hashlib.sha256(NANO.read_bytes()).hexdigest()
    found = Tuned({"examples": True}, "2026-11-30", "0.1.0", 20, 0.6, 0.39, 0.78, 0.5)
    monkeypatch.setattr(tuned, "SHIPPED", {digest: found})
    monkeypatch.setattr(defaults, "is_bare", lambda _: False)
    more: dict[str, Any] = {"trace": "all", "trace_folder": tmp_path / "served"}
    running = Server(replace(SETTINGS, agents={"agent:project": folder}, **more), load)
    asked = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello!"}]
    try:
        running.wait()
        for before in ([], asked):
            messages = [*before, {"role": "user", "content": "Thanks!"}]
            body = {"model": "agent:project", "messages": messages, "max_tokens": 4}
            assert running.post("/v1/chat/completions", body).status_code == 200
        running.idle()
    finally:
        running.close()
    traces = [Trace.load(path) for path in sorted((tmp_path / "served").glob("*.jsonl"))]
    assert len(traces) == 2
    for trace in traces:
        assert trace.header is not None
        assert trace.header.config["harness"]["examples"] is True
        assert trace.header.config["system"].endswith(EXAMPLES)
        prompt = trace.phases[0]
        with load("nano") as engine:
            assert EXAMPLES in engine.tokenizer.decode(prompt.token_ids, special=True)
