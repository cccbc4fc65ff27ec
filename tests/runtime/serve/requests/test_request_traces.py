"""Traces of requests: they can be read, and verified bit for bit."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import SETTINGS, Server

from triplepoint import Engine
from triplepoint.runtime.conversation.turn import TurnRequest
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.replay import verify
from triplepoint.runtime.replay.fork import history_of
from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.models.events import Failed
from triplepoint.runtime.serve.models.generate import GenerationRequest
from triplepoint.runtime.serve.models.prompts import Prompt
from triplepoint.runtime.serve.requests.request_record import RequestRecord
from triplepoint.runtime.serve.requests.request_traces import RequestTraces
from triplepoint.runtime.serve.settings import ServerSettings
from triplepoint.traces import Trace
from triplepoint.traces.events import AnyEvent, PassEvent, PhaseEvent, RunEnd

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "adds",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
ASKED = [{"role": "user", "content": "what is 2 and 3"}]
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "s",
        "schema": {
            "type": "object",
            "properties": {"n": {"type": "integer"}},
            "required": ["n"],
            "additionalProperties": False,
        },
    },
}
KINDS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "drawn": {"temperature": 1.1, "seed": 7, "top_p": 0.9, "frequency_penalty": 0.5},
    "mirostat": {"temperature": 2.0, "mirostat": 2, "mirostat_tau": 2.0, "tools": [ADD]},
    "likely ones dropped": {
        **{"temperature": 3.0, "dynatemp_range": 1.0, "typical_p": 0.9, "top_n_sigma": 4.0},
        **{"xtc_probability": 0.5, "xtc_threshold": 0.02, "dry_multiplier": 0.8, "min_keep": 2},
    },
    "several": {"n": 3, "temperature": 1.0, "seed": 3},
    "a call": {"tools": [ADD], "tool_choice": "required", "parallel_tool_calls": False},
    "no call": {"tools": [ADD], "tool_choice": "none"},
    "tools": {"tools": [ADD]},
    "a schema": {"response_format": SCHEMA},
    "a grammar": {"grammar": 'root ::= "sum: " [0-9]+ "."', "temperature": 1.0, "seed": 2},
    "probabilities": {"logprobs": True, "top_logprobs": 2},
    "stopped": {"stop": ["e"]},
    "ends later": {
        "messages": [{"role": "user", "content": "hello"}],
        "min_tokens": 90,
        "max_tokens": 90,
    },
    "begun": {"messages": [*ASKED, {"role": "assistant", "content": "The sum"}]},
    "begun in a schema": {
        "messages": [*ASKED, {"role": "assistant", "content": '{"n": 1'}],
        "response_format": SCHEMA,
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps its traces."""
    return tmp_path_factory.mktemp("traces") / "served"


@pytest.fixture(scope="module")
def tracing(load: Callable[[str], Engine], folder: Path) -> Iterator[Server]:
    """A server that keeps all traces."""
    running = Server(replace(SETTINGS, trace="all", trace_folder=folder), load)
    try:
        running.wait()
        yield running
    finally:
        running.close()


def new_traces(folder: Path, before: set[Path]) -> list[Trace]:
    """Those that were not there before."""
    return [Trace.load(path) for path in sorted(set(folder.glob("*.jsonl")) - before)]


def as_first_version(trace: Trace) -> Trace:
    """The same as version 0.1.0 wrote it: the header alone says what decodes were held to."""
    header = copy.deepcopy(trace.runs[0].header)
    assert header is not None
    events: list[AnyEvent] = [header]
    for event in trace.events[1:]:
        phase = copy.deepcopy(event)
        if isinstance(phase, PhaseEvent) and phase.phase == "decode":
            recipe = dict(phase.recipe or {})
            config = header.config
            config["tool_choice"] = recipe.pop("calls", "auto")
            config["single_call"] = recipe.pop("one_call", False)
            config["said"] = recipe.pop("said", 0)
            config["min_tokens"] = recipe.pop("min_tokens", 0), []
            if phase.constraint == "text" and header.tools:
                phase.constraint = recipe["format"]  # it told the format, also of no calls
            phase.recipe = None
        events.append(phase)
    return Trace(events)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_request_verifies(
    tracing: Server, folder: Path, load: Callable[[str], Engine], kind: str
) -> None:
    """Its tokens come out again, all of them, of an engine that has seen nothing else."""
    before = set(folder.glob("*.jsonl"))
    answer = tracing.chat("what is 2 and 3", **{"max_tokens": 24, **KINDS[kind]})
    assert answer.status_code == 200, answer.text
    tracing.idle()

    (trace,) = new_traces(folder, before)
    with load("nano") as engine:
        report = verify(trace, engine)
        assert report.ok, report.first_difference
        old = verify(as_first_version(trace), engine)
    assert old.ok, old.first_difference
    choices = answer.json()["choices"]
    decodes = [e for e in trace.events if isinstance(e, PhaseEvent) and e.phase == "decode"]
    assert len(decodes) == len(choices)
    usage = answer.json()["usage"]["completion_tokens"]
    assert sum(len(one.token_ids) for one in decodes) == usage
    assert trace.runs[0].header is not None


def test_earlier_messages_are_its_history(
    tracing: Server, folder: Path, load: Callable[[str], Engine]
) -> None:
    """Its question is the last one; a run goes on from there with what was said before."""
    before = set(folder.glob("*.jsonl"))
    called = {"id": "a", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    said = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Hello."},
    ]
    asked = [
        {"role": "user", "content": "what is 2 and 3"},
        {"role": "assistant", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "a", "content": "5"},
    ]
    for messages in ([*said, *asked], [said[0], *asked]):
        answer = tracing.chat(messages=messages, tools=[ADD])
        assert answer.status_code == 200, answer.text
    tracing.idle()

    long, short = sorted(new_traces(folder, before), key=lambda trace: trace.history is None)
    for trace in (long, short):
        (turn,) = trace.turns
        assert turn.question == "what is 2 and 3"
        assert {one.step for one in turn.messages} == {1}
        assert [one.role for one in turn.messages][-4:] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
    assert short.history is None
    past, _ = history_of(long, 1, 1)
    assert [(one.role, one.content) for one in past.start(1, 1).messages] == [
        (one["role"], one["content"]) for one in said
    ]
    with load("nano") as engine:
        assert verify(long, engine).ok


@pytest.mark.slow
def test_shared_passes_are_in_the_traces_of_all(
    tracing: Server, folder: Path, load: Callable[[str], Engine]
) -> None:
    """Requests at once: each trace names the others' runs in its passes, and verifies alone."""

    def write(number: int) -> int:
        body = {"prompt": f"number {number}", "max_tokens": 200, "ignore_eos": True}
        return tracing.post("/v1/completions", body).status_code

    traces: list[Trace] = []
    names: set[str] = set()
    passes: list[PassEvent] = []
    for _ in range(10):  # on a busy machine one may have ended before the next begins
        before = set(folder.glob("*.jsonl"))
        with ThreadPoolExecutor(3) as pool:
            assert set(pool.map(write, range(3))) == {200}
        tracing.idle()
        traces = new_traces(folder, before)
        names = {event.run for trace in traces for event in trace.events}
        passes = [e for trace in traces for e in trace.events if isinstance(e, PassEvent)]
        if passes:
            break
    assert passes
    assert {name for one in passes for name in one.sequences} <= names
    with load("nano") as engine:
        assert all(verify(trace, engine).ok for trace in traces)


@pytest.mark.slow
def test_it_verifies_in_a_process_of_its_own(tracing: Server, folder: Path) -> None:
    """What the command line makes of a text that went on: shown, and the same bits."""
    before = set(folder.glob("*.jsonl"))
    body = {"prompt": "once upon a time", "max_tokens": 12, "grammar": "root ::= [a-z ]+"}
    assert tracing.post("/v1/completions", body).status_code == 200
    tracing.idle()
    (path,) = set(folder.glob("*.jsonl")) - before

    def triplepoint(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "triplepoint", *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    shown = triplepoint("trace", "show", str(path))
    assert shown.returncode == 0, shown.stderr
    assert "once upon a time" in shown.stdout
    verified = triplepoint("replay", str(path), "--verify", "-m", "nano")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_by_default_only_failures_leave_one(start: Callable[..., Server], tmp_path: Path) -> None:
    """An answer leaves none; a request that was refused, and one that broke in its passes, do."""
    server = start(trace=ServerSettings({"a": "nano"}).trace, trace_folder=tmp_path / "served")
    server.wait()
    assert server.chat().status_code == 200
    assert server.chat("word " * 10_000).status_code == 400
    engine = server.service.models.loaded()[0].engine

    def broken(*_: Any) -> int:
        raise RuntimeError("broken")

    kept, engine.core.runner.run = engine.core.runner.run, broken
    assert server.chat().status_code == 500
    engine.core.runner.run = kept
    server.idle()

    refused, path = sorted((tmp_path / "served").glob("*.jsonl"))
    header = Trace.load(refused).header
    assert header is not None
    assert header.config["refused"]["code"] == "context_length_exceeded"
    end = Trace.load(path).events[-1]
    assert isinstance(end, RunEnd)
    assert (end.status, "RuntimeError" in end.message) == ("error", True)
    assert path.stat().st_mode & 0o077 == 0


def test_a_folder_stays_within_its_limit(tracing: Server, tmp_path: Path) -> None:
    """The oldest traces go once the new ones are too much."""
    (model,) = tracing.service.models.loaded()
    traces = RequestTraces("errors", tmp_path, 60_000)
    last = ""
    for n in range(30):
        record = RequestRecord("nano")
        last = record.id
        record.heard(Failed(APIError("x" * 5000, status=500)))
        record.request = GenerationRequest(Prompt([n]), TurnRequest(Sampling()))
        traces.keep(record, model)

    files = sorted(tmp_path.iterdir())
    assert 0 < sum(path.stat().st_size for path in files) <= 60_000 * 1.1
    assert f"{last}.jsonl" in {path.name for path in files}


def test_a_refused_request_leaves_a_trace(start: Callable[..., Server], tmp_path: Path) -> None:
    """With its body and the reason, whichever check it failed; `off` leaves none."""
    folder = tmp_path / "served"
    server = start(trace="errors", trace_folder=folder)
    server.wait()
    chat, asked = "/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}]}
    refusals = {
        "frequency": server.post(chat, {**asked, "frequency": 3}),
        "reasoning_effort": server.post(chat, {**asked, "reasoning_effort": "low"}),
        "model": server.post(chat, {**asked, "model": "agent:gpt"}),
    }
    assert server.post(chat, {**asked, "max_tokens": 1}).status_code == 200
    traces = [Trace.load(path) for path in sorted(folder.glob("*.jsonl"))]
    found = {trace.header.config["refused"]["param"]: trace for trace in traces if trace.header}

    assert found.keys() == refusals.keys()
    for name, trace in found.items():
        assert isinstance(trace.end, RunEnd)
        assert trace.end.message == refusals[name].json()["error"]["message"]
        assert "hello" in trace.turns[0].question
    silent = start(trace="off", trace_folder=tmp_path / "off")
    silent.wait()
    assert silent.post(chat, {"messages": []}).status_code == 400
    assert not (tmp_path / "off").exists()
