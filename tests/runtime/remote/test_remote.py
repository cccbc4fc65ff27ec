"""An agent on another server: the same loop, tools and traces, over a real socket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.agents import agent_on
from helpers.openai_server import calls, delta, openai_server, text, usage

from triplepoint import (
    Agent,
    AgentError,
    LimitReachedError,
    PhaseFinished,
    RemoteEngine,
    ReplayError,
    Sampling,
    TextDelta,
    ThinkingDelta,
    Trace,
    open_conversation,
    replay,
)
from triplepoint.runtime.agent.events import Notice
from triplepoint.runtime.replay.replay import check_replayable
from triplepoint.traces import timeline

QUESTION = "What is in a.txt?"


def test_times_that_the_server_tells(folder: Path, tmp_path: Path) -> None:
    """llama-server and ours send what they took: it stands in the trace, beside what we saw."""
    timings = {"prompt_n": 20, "prompt_ms": 4.5, "predicted_n": 1, "predicted_ms": 2.0}
    *chunks, last, counted, done = text("Two lines.")
    path = tmp_path / "run.jsonl"
    with openai_server([*chunks, {**last, "timings": timings}, counted, done]) as server:
        agent = agent_on(server.url, folder, trace=path)
        agent.run(QUESTION)
        agent.close()

    assert [phase.server_timings for phase in Trace.load(path).phases] == [timings] * 2


def test_the_same_loop_tools_and_trace(folder: Path, tmp_path: Path) -> None:
    """Calls run in order, results go back by their ids, the trace tells all of it."""
    both = calls(("list_dir", {}), ("read_file", {"path": "a.txt"}))
    with openai_server(both, text("It has ", "two lines.")) as server:
        engine = RemoteEngine(server.url, api_key="key")
        path = tmp_path / "run.jsonl"
        with Agent(engine, workspace=folder, harness=False, trace=path) as agent:
            events = list(agent.stream(QUESTION))
        result = agent.last_result

    assert result is not None
    assert (result.answer, result.status) == ("It has two lines.", "answered")
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["It has ", "two lines."]
    assert [t.result for t in agent.trace.tools] == ["a.txt", "1\tone\n2\ttwo"]
    assert server.keys == ["Bearer key"] * 2
    first, second = server.requests
    assert first["model"] == "test-model"
    assert [tool["function"]["name"] for tool in first["tools"]] == agent.tools.names
    assert [m["role"] for m in first["messages"]] == ["system", "user"]
    assert second["messages"][:2] == first["messages"]
    asked, *results = second["messages"][2:]
    ids = [call["id"] for call in asked["tool_calls"]]
    assert [m["tool_call_id"] for m in results] == ids
    assert len(set(ids)) == 2
    trace = Trace.load(path)
    assert "key" not in path.read_text().replace("/key", "")
    phases = [(p.phase, p.purpose, p.tokens, p.cached_tokens) for p in trace.phases]
    assert phases == [
        ("prefill", "prompt", 10, 20),
        ("decode", "tool_call", 9, 30),
        ("prefill", "tool_result", 20, 0),
        ("decode", "answer", 2, 20),
    ]
    assert {p.source for p in trace.phases} == {"remote"}
    assert {p.regime for p in trace.phases} == {"remote prefill", "remote decode"}
    assert "remote prefill" in timeline.plain(trace)
    reuse = [e.reuse for e in events if isinstance(e, PhaseFinished) and e.reuse]
    assert str(reuse[0]) == "reused 20 of 30 tokens"
    header = trace.header
    assert header is not None
    assert (header.model.name, header.model.path) == ("test-model", server.url)
    assert header.target == "remote"


def test_phases_are_timed_from_outside(folder: Path) -> None:
    """Until the first piece it is the prefill, comments of the server not counted."""
    slow = [0.15, delta(content="a"), 0.1, delta(content="b"), delta("stop"), usage(5, 2), "[DONE]"]
    with openai_server(slow) as server:
        agent = agent_on(server.url, folder)
        result = agent.run("Hi")

    prefill, decode = agent.trace.phases
    assert prefill.wall_s >= 0.15
    # The first piece may be seen late, the last one not early.
    assert 0.02 <= decode.wall_s < prefill.wall_s + 5
    assert result.usage.ttft_s == decode.ttft_s
    assert prefill.ts < decode.ts
    assert prefill.plan == "counted by the server"


def test_thinking_is_told_apart(folder: Path) -> None:
    """Both names that servers use for it."""
    answer = [delta(reasoning_content="hm"), delta(reasoning=" so"), *text("Yes.")]
    with openai_server(answer) as server:
        agent = agent_on(server.url, folder)
        events = list(agent.stream("Hi"))

    assert [e.text for e in events if isinstance(e, ThinkingDelta)] == ["hm", " so"]
    assert agent.last_result is not None
    assert (agent.last_result.answer, agent.last_result.thinking) == ("Yes.", "hm so")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_goes_back_with_its_call(folder: Path, name: str) -> None:
    """By the name that it came by: what a model planned before a call, it needs behind it. With an
    answer it is over."""
    planned = [delta(**{name: "look "}), delta(**{name: "there"}), *calls(("list_dir", {}))]
    answered = [delta(**{name: "seen"}), *text("a.txt")]
    with openai_server(planned, answered, text("Bye.")) as server:
        agent = agent_on(server.url, folder)
        agent.run(QUESTION)
        agent.run("Thanks")

    sent = [one for one in server.requests[2]["messages"] if one["role"] == "assistant"]
    assert [one.get(name) for one in sent] == ["look there", None]
    other = {"reasoning_content", "reasoning"} - {name}
    assert not any(other & set(one) for one in sent)


def test_settings_are_sent(folder: Path) -> None:
    """Greedy is temperature 0; sampling and template options go along, and the limit."""
    with openai_server(text("a"), text("b")) as server:
        agent_on(server.url, folder).run("Hi")
        warm = Sampling(temperature=0.7, top_k=5, seed=3)
        agent_on(server.url, folder, sampling=warm, thinking=False, max_tokens=77).run("Hi")

    first, second = server.requests
    assert (first["temperature"], "top_k" in first) == (0.0, False)
    assert (second["temperature"], second["top_k"], second["seed"]) == (0.7, 5, 3)
    assert second["max_tokens"] == 77
    assert second["chat_template_kwargs"] == {"enable_thinking": False}


def test_every_setting_has_its_name(folder: Path) -> None:
    """OpenAI's names where it has one, else llama-server's; a bias is within a server's bounds."""
    given = Sampling(
        temperature=0.5,
        top_k=9,
        top_p=0.8,
        min_p=0.1,
        repeat_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        penalty_last=64,
        seed=4,
        logit_bias={5: float("-inf"), 6: 2.0},
        stop=("END",),
        dry_multiplier=0.8,
        dry_sequence_breakers=("X",),
        xtc_probability=0.5,
        order=("temperature", "xtc"),
    )
    with openai_server(text("a")) as server:
        agent = agent_on(server.url, folder, sampling=given)
        agent.run("Hi")

    (sent,) = server.requests
    names = {
        *("model", "messages", "stream", "stream_options", "max_tokens", "tools"),
        *("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "presence_penalty"),
        *("frequency_penalty", "repeat_last_n", "seed", "logit_bias", "stop", "samplers"),
        *("dry_multiplier", "dry_sequence_breakers", "xtc_probability"),
    }
    assert sent.keys() == names
    assert (sent["repeat_penalty"], sent["repeat_last_n"], sent["min_p"]) == (1.1, 64, 0.1)
    assert (sent["presence_penalty"], sent["frequency_penalty"]) == (0.2, 0.3)
    assert (sent["logit_bias"], sent["stop"]) == ({"5": -100.0, "6": 2.0}, ["END"])
    assert sent["samplers"] == ["penalties", "dry", "temperature", "xtc"]
    assert (sent["dry_sequence_breakers"], sent["xtc_probability"]) == (["X"], 0.5)
    assert [phase.source for phase in agent.trace.phases] == ["remote", "remote"]


def test_a_call_that_is_no_json_does_not_run(folder: Path) -> None:
    """The model is told, and the history stays one that servers can read."""
    with openai_server(calls(("read_file", '{"path": "a.tx')), text("Sorry.")) as server:
        agent = agent_on(server.url, folder)
        assert agent.run(QUESTION).answer == "Sorry."

    (event,) = agent.trace.tools
    assert event.error is not None
    assert event.error.startswith("the arguments of read_file are not JSON")
    *_, asked, told = server.requests[1]["messages"]
    assert asked["tool_calls"][0]["function"]["arguments"] == "{}"
    assert told["content"].startswith("error: the arguments of read_file")


def test_unknown_tools_and_wrong_arguments_are_told(folder: Path) -> None:
    """There is no grammar there; what gets through is refused before it runs."""
    wrong = calls(("delete_all", {}), ("read_file", {"file": "a.txt"}))
    with openai_server(wrong, text("Sorry.")) as server:
        agent = agent_on(server.url, folder)
        agent.run(QUESTION)

    assert [t.error for t in agent.trace.tools] == [
        "no such tool: delete_all; the tools are list_dir, read_file, search",
        "read_file: missing argument 'path'; unknown argument 'file'; it takes path, start, end",
    ]


def test_calls_of_one_number(folder: Path) -> None:
    """Ollama and others give every call the index 0; their ids tell them apart."""

    def piece(call_id: str, path: str) -> dict[str, Any]:
        function = {"name": "list_dir", "arguments": json.dumps({"path": path})}
        return delta(tool_calls=[{"index": 0, "id": call_id, "function": function}])

    more = delta(tool_calls=[{"index": 0, "function": {"arguments": "  "}}])
    asks = [piece("a", "."), piece("b", "sub"), more, delta("tool_calls"), usage(9, 9), "[DONE]"]
    with openai_server(asks, text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        agent.run("What is here?")

    assert [(one.name, one.arguments) for one in agent.trace.tools] == [
        ("list_dir", {"path": "."}),
        ("list_dir", {"path": "sub"}),
    ]


def test_an_empty_answer_is_one(folder: Path) -> None:
    """What was said before a call is not taken for it, and its tokens count."""
    asks = [delta(content="Let me look."), *calls(("list_dir", {}))]
    with openai_server(asks, [delta(content=""), delta("stop"), usage(50, 1), "[DONE]"]) as server:
        agent = agent_on(server.url, folder)
        result = agent.run("What is here?")

    assert (result.answer, result.status) == ("", "answered")
    assert result.usage.input_tokens == 30 + 50
    assert agent.messages[-1].role == "assistant"


def test_calls_without_numbers_and_whole_arguments(folder: Path) -> None:
    """Servers that send each call whole, and arguments as an object, are understood."""
    first = {"function": {"name": "list_dir", "arguments": {}}}
    second = {"function": {"name": "read_file", "arguments": {"path": "a.txt"}}}
    answer = [delta(tool_calls=[first, second]), delta("tool_calls"), "[DONE]"]
    with openai_server(answer, text("Ok.")) as server:
        agent = agent_on(server.url, folder)
        agent.run(QUESTION)

    assert [t.name for t in agent.trace.tools] == ["list_dir", "read_file"]
    assert agent.trace.phases[0].plan == "tokens estimated"


@pytest.mark.parametrize("size", [3, 1000])
def test_calls_that_come_as_text(folder: Path, size: int) -> None:
    """Some servers do not read what their model writes: an answer of calls alone is one."""
    said = '<tool_call>\n{"name": "list_dir", "arguments": {}}\n</tool_call>\n' * 2
    pieces = [said[i : i + size] for i in range(0, len(said), size)]
    with openai_server(text(*pieces), text("<tool", " is a tag.")) as server:
        agent = agent_on(server.url, folder)
        events = list(agent.stream(QUESTION))
        asked = server.requests[1]["messages"][2]

    assert [t.result for t in agent.trace.tools] == ["a.txt", "a.txt"]
    assert (asked["content"], len(asked["tool_calls"])) == ("", 2)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "<tool is a tag."
    assert sum("sends tool calls as text" in e.message for e in events if isinstance(e, Notice))


@pytest.mark.parametrize(
    "said",
    [
        'The log says <tool_call>{"name": "list_dir", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "list_dir", "arguments": {}}</tool_call> is what it says.',
        "<tool_call>nothing of the kind</tool_call>",
        '<tool_call>{"name": "list_dir"',
    ],
)
def test_a_quoted_call_calls_nothing(folder: Path, said: str) -> None:
    """Text around a call, or a call that cannot be read, is an answer."""
    with openai_server(text(said)) as server:
        agent = agent_on(server.url, folder)
        result = agent.run(QUESTION)

    assert result.answer == said
    assert agent.trace.tools == []


# Servers that fail.


def test_what_only_our_engine_has(folder: Path) -> None:
    """The ledger and a replay need tokens; both say why there are none."""
    with openai_server(text("Fine.")) as server:
        agent = agent_on(server.url, folder)
        agent.run("Hi")

    with pytest.raises(AgentError, match="runs on a server"):
        _ = agent.ledger
    assert agent.trace.header is not None
    with pytest.raises(ReplayError, match="whose tokens are not in the trace"):
        check_replayable(agent.trace.header)


def test_a_reply_that_repeats_itself_is_ended(folder: Path) -> None:
    """An answer with a notice; a call unrun, and the model told once; both are traced."""
    loop = text("It is: ", *["= -\n"] * 400)
    bad = calls(("read_file", {"path": "ms " * 500}))
    with (
        openai_server(loop, bad, text("Done.")) as server,
        agent_on(server.url, folder) as agent,
    ):
        said = [e.message for e in agent.stream(QUESTION) if isinstance(e, Notice)]
        assert any("the model repeated itself for 148 words" in one for one in said)
        assert agent.last_result is not None
        assert agent.last_result.status == "answered"
        assert len(agent.last_result.answer) < 300
        assert agent.run("And now?").answer == "Done."
        decodes = [p for p in agent.trace.phases if p.phase == "decode"]
        assert [p.finish_reason for p in decodes] == ["repetition", "repetition", ""]
        assert agent.trace.tools == []
        assert "repeated itself" in server.requests[-1]["messages"][-1]["content"]


def test_a_recorded_run_goes_on_here_with_its_calls(folder: Path, tmp_path: Path) -> None:
    """The server is sent each call with an id and its result, also those of the step before."""
    path = tmp_path / "run.jsonl"
    answers = calls(("list_dir", {})), text("One."), calls(("read_file", {"path": "a.txt"}))
    with openai_server(*answers, text("Two."), text("So, two.")) as server:
        with agent_on(server.url, folder, trace=path) as agent:
            agent.run(QUESTION)
            agent.run("And how many lines?")
        sent = [one["messages"] for one in server.requests]
        other = agent_on(server.url, folder)
        list(replay.branch(Trace.load(path), other, 2, 2))
        again = server.requests[-1]["messages"]

    assert [m["role"] for m in again] == [m["role"] for m in sent[3]]
    assert [m["content"] for m in again] == [m["content"] for m in sent[3]]
    asked = [call for m in again for call in m.get("tool_calls", [])]
    assert [json.loads(call["function"]["arguments"]) for call in asked] == [{}, {"path": "a.txt"}]
    results = [m["tool_call_id"] for m in again if m["role"] == "tool"]
    assert results == [call["id"] for call in asked]


def test_a_kept_session_goes_on_with_its_calls(folder: Path, tmp_path: Path) -> None:
    """What is sent is what was sent before, and the next question."""
    with openai_server(calls(("list_dir", {})), text("One file."), text("Yes.")) as server:
        agent = agent_on(server.url, folder)
        agent.run(QUESTION)
        with open_conversation("s", tmp_path) as kept:
            kept.save(agent)
        other = agent_on(server.url, folder)
        with open_conversation("s", tmp_path) as kept:
            assert len(kept.resume(other)) == 1
        other.run("Sure?")
        before, after = (one["messages"] for one in server.requests[-2:])

    assert [m["role"] for m in after[:-2]] == [m["role"] for m in before]
    assert after[3]["tool_call_id"] == after[2]["tool_calls"][0]["id"]
    assert [m["content"] for m in after[-2:]] == ["One file.", "Sure?"]


def test_a_tool_given_late_leaves_the_past(folder: Path) -> None:
    """Messages of another conversation are still sent when a tool is added behind them."""
    with openai_server(text("Yes.")) as server:
        agent = agent_on(server.url, folder)
        agent.load_history([("Is it Monday?", "No.")])

        @agent.tool
        def today() -> str:
            """Tell the day."""
            return "Tuesday"

        agent.run("Tuesday, then?")
        contents = [m["content"] for m in server.requests[-1]["messages"][1:]]

    assert contents == ["Is it Monday?", "No.", "Tuesday, then?"]


def test_a_query_of_the_address_goes_along(folder: Path) -> None:
    """Some servers want their version there; a slash before it is none of the path."""
    with openai_server(text("Yes."), text("Yes.")) as server:
        for slash in ("", "/"):
            agent = agent_on(f"{server.url}{slash}?api-version=2", folder, trace=False)
            assert agent.run("There?").answer == "Yes."
            agent.close()

    assert {path.partition("/v1")[2] for path in server.paths} == {
        "/chat/completions?api-version=2"
    }


def words(count: int) -> list[Any]:
    """Pieces of an answer, each about a token, that does not repeat itself."""
    return [delta(content=f"w{n} ") for n in range(count)]


def test_a_server_that_does_not_read_the_limit(folder: Path) -> None:
    """Its reply is cut, if it is by far too long, and the connection closed."""
    with openai_server([*words(300), 5, "[DONE]"]) as server:
        agent = agent_on(server.url, folder, max_tokens=50)
        with pytest.raises(LimitReachedError, match="cut after 50 generated tokens"):
            agent.run("Count.")
        assert server.gone.wait(5)
    assert agent.last_result is not None
    assert 100 <= len(agent.last_result.answer.split()) < 300


THOUGHT = [delta(reasoning_content=f"w{n} ") for n in range(300)]


@pytest.mark.parametrize(
    "pieces", [words(80), [delta(content=c) for c in "It is on line two. " * 8], THOUGHT]
)
def test_a_server_that_counts_otherwise(folder: Path, pieces: list[Any]) -> None:
    """Somewhat more than was allowed, a piece for each letter, or a long thought is not cut."""
    with openai_server([*pieces, delta("stop"), "[DONE]"]) as server:
        agent = agent_on(server.url, folder, max_tokens=50, repetition_stop=False)
        assert agent.run("Count.").status == "answered"
