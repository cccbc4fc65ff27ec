"""Going on live from a recorded step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Agent, Engine, Trace, replay
from triplepoint.errors import ReplayError
from triplepoint.runtime.agent.events import Notice
from triplepoint.runtime.replay.live_tools import LiveTools
from triplepoint.tools import FindTools

QUESTIONS = (
    "Which files are here?",
    "What is on line 2 of notes.txt?",
    "What's the error in app.log?",
)
Scripted = Callable[..., Any]


@pytest.fixture(scope="module")
def trace(engine: Engine, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Three questions; tests do not change it."""
    path = tmp_path_factory.mktemp("trace") / "run.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        for question in QUESTIONS:
            agent.run(question)
    return Trace.load(path)


def go_on(trace: Trace, agent: Agent[Any], *place: int, prompt: str | None = None) -> list[Notice]:
    """Run to the end; gives the notices."""
    events = list(replay.branch(trace, agent, *place, prompt=prompt))
    return [event for event in events if isinstance(event, Notice)]


def said(trace: Trace, turn: int) -> list[tuple[str, str]]:
    """Roles and texts of a turn."""
    return [(m.role, m.content) for m in trace.turns[turn - 1].messages]


@pytest.mark.slow
@pytest.mark.parametrize("place", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)])
def test_unchanged_it_goes_on_as_it_did(
    engine: Engine, folder: Path, trace: Trace, tmp_path: Path, place: tuple[int, int]
) -> None:
    """The same tokens come again from every step; the new trace verifies and names its parent."""
    path = tmp_path / "branch.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        assert go_on(trace, agent, *place) == []
        assert agent.last_result is not None
        assert agent.last_result.turn == place[0]
    branch = Trace.load(path)

    assert branch.header is not None
    assert trace.header is not None
    assert branch.header.parent == trace.header.run
    assert branch.header.parent_step == f"{place[0]}.{place[1]}"
    was = [p for p in trace.phases if p.turn == place[0] and p.step >= place[1]]
    now = [p for p in branch.phases if p.purpose != "fork"]
    assert [(p.turn, p.step, p.phase) for p in now] == [(p.turn, p.step, p.phase) for p in was]
    assert [p.token_ids for p in now if p.phase == "decode"] == [
        p.token_ids for p in was if p.phase == "decode"
    ]
    assert branch.answer == trace.turns[place[0] - 1].answer
    assert replay.verify(branch, engine).ok
    before = sum(p.purpose == "fork" for p in branch.phases)
    assert before == (place != (1, 1))


def test_a_conversation_can_go_on_after_it(engine: Engine, folder: Path, trace: Trace) -> None:
    """Ledger, session and messages are in step: further questions, undo and another fork work."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        go_on(trace, agent, 3, 1)
        assert agent.run("What is on line 1 of notes.txt?").answer.endswith("call the plumber")
        agent.undo()
        assert agent.undo() == QUESTIONS[2]
        assert agent.run(QUESTIONS[1]).answer == trace.turns[1].answer
        assert agent.ledger.ids == agent.session.tokens


@pytest.mark.parametrize("place", [(1, 1), (2, 1)])
def test_what_the_harness_looked_at_is_gone_on_with(
    engine: Engine, folder: Path, tmp_path: Path, place: tuple[int, int]
) -> None:
    """Its calls, results and words are the recorded tokens again; the run verifies by itself."""
    asked, path = QUESTIONS[1:], tmp_path / "run.jsonl"
    with Agent(engine, workspace=folder, harness=True, trace=path, max_tokens=200) as agent:
        for question in asked:
            for _ in agent.stream(question):
                pass
    trace = Trace.load(path)
    assert {tool.by for tool in trace.tools} >= {"harness"}

    with Agent(engine, workspace=folder, harness=True, trace=False, max_tokens=200) as agent:
        assert go_on(trace, agent, *place) == []
        branch = agent.trace
    was = [p.token_ids for p in trace.phases if p.turn == place[0] and p.phase == "decode"]
    assert [p.token_ids for p in branch.phases if p.phase == "decode"] == was

    header = trace.header
    assert header is not None
    live = replay.verify(trace, engine, tools=LiveTools(engine, header, folder))
    assert live.ok, live.tool_difference
    assert live.tools == len([tool for tool in trace.tools if tool.effect == "read"])
    header.workspace = str(tmp_path / "gone")
    assert replay.verify(trace, engine).ok


def test_another_prompt(engine: Engine, folder: Path, trace: Trace) -> None:
    """It is asked in place of the question, behind the same past."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        go_on(trace, agent, 2, 1, prompt="What is on line 1 of notes.txt?")
        branch = agent.trace

    assert branch.header is not None
    assert branch.header.task == "What is on line 1 of notes.txt?"
    assert (branch.answer or "").endswith("call the plumber")
    fork = branch.phases[0]
    ids: list[int] = []
    for phase in (p for p in trace.phases if p.turn == 1):
        kept = ids[: phase.kv_before] if phase.phase == "prefill" else ids
        ids = kept + phase.token_ids
    assert fork.token_ids == ids


def test_other_tools_render_the_past_anew(engine: Engine, folder: Path, trace: Trace) -> None:
    """Another set of tools is in the prompt: it is told, and calls and results are there."""
    with Agent(engine, workspace=folder, tools=FindTools(folder), trace=False) as agent:
        notices = go_on(trace, agent, 2, 2)

        assert "the tools are different, so the 7 earlier messages are rendered again" in str(
            notices
        )
        assert [m.role for m in agent.messages[:6]] == (
            ["system", "user", "assistant", "tool", "assistant", "user"]
        )
        first_call = agent.messages[2]
        assert first_call.calls[0].name == trace.tools[0].name
        assert agent.messages[3].content == trace.tools[0].result
        assert agent.messages[3].call_id == first_call.calls[0].id
        text = engine.tokenizer.decode(agent.session.tokens)
        assert trace.tools[0].result in text
        assert QUESTIONS[1] in text


def test_another_model_reads_the_messages(scripted: Scripted, folder: Path, trace: Trace) -> None:
    """A model with another hash: the same history in its own template; its answer counts."""
    with Agent(scripted("It is milk.<|im_end|>"), workspace=folder, trace=False) as agent:
        notices = go_on(trace, agent, 2, 2)

        assert "the model is scripted and was triplepoint-nano" in str(notices)
        assert agent.last_result is not None
        assert agent.last_result.answer == "It is milk."
        assert [m.role for m in agent.messages][-3:] == ["assistant", "tool", "assistant"]


def test_a_prompt_after_results(engine: Engine, folder: Path, trace: Trace) -> None:
    """From a later step on, the prompt is said behind the results."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        go_on(trace, agent, 2, 2, prompt="And which files are here?")

        roles = [m.role for m in agent.messages]
        at = roles.index("user", 5)
        assert roles[at : at + 4] == ["user", "assistant", "tool", "user"]


def test_an_interrupted_turn_is_part_of_the_past(
    engine: Engine, folder: Path, tmp_path: Path
) -> None:
    """A turn that was cancelled within its decode: the one after it goes on token by token."""
    path = tmp_path / "t.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        stream: Any = agent.stream(QUESTIONS[0])
        for event in stream:
            if type(event).__name__ == "TextDelta" or type(event).__name__ == "ToolCallStarted":
                break
        stream.close()
        agent.run(QUESTIONS[1])
    trace = Trace.load(path)

    with Agent(engine, workspace=folder, trace=False) as agent:
        notices = go_on(trace, agent, 2, 1)
        assert agent.last_result is not None
        assert agent.last_result.answer == trace.answer
    assert notices == []


def test_what_cannot_be_gone_on_from_is_told(
    engine: Engine, folder: Path, trace: Trace, tmp_path: Path
) -> None:
    """No such turn or step, a redacted trace, an agent that has begun."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        with pytest.raises(ReplayError, match=r"from 9\.1: the run has the turns 1, 2, 3"):
            go_on(trace, agent, 9)
        with pytest.raises(ReplayError, match=r"from 2\.7: turn 2 has the steps 1, 2"):
            go_on(trace, agent, 2, 7)
        agent.run("Hello!")
        with pytest.raises(ReplayError, match="already has a conversation"):
            go_on(trace, agent, 2)
    with Agent(engine, workspace=folder, trace=tmp_path / "r.jsonl", redact=True) as agent:
        agent.run(QUESTIONS[0])
    with pytest.raises(ReplayError, match="redacted"):
        go_on(Trace.load(tmp_path / "r.jsonl"), Agent(engine, trace=False), 1, 2)
