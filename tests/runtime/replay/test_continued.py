"""Replay of runs that go on with a conversation: kept sessions, forks, branches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Agent, Engine, Trace, open_conversation, replay
from triplepoint.errors import ReplayError
from triplepoint.runtime.agent.events import Notice
from triplepoint.tools import FindTools
from triplepoint.traces.events import HistoryEvent

QUESTIONS = (
    "Which files are here?",
    "What is on line 2 of notes.txt?",
    "Hello!",
    "What's the error in app.log?",
)
STEPS = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (4, 1), (4, 2)]
Scripted = Callable[..., Any]


def record(engine: Engine, folder: Path, out: Path, redact: tuple[bool, ...]) -> list[Trace]:
    """A session of one run and those that continue it, each with a trace of its own."""
    traces = []
    for number, (question, hidden) in enumerate(zip(QUESTIONS, redact, strict=True), 1):
        path = out / f"{number}.jsonl"
        agent = Agent(engine, workspace=folder, trace=path, redact=hidden)
        with open_conversation("s", out / "kept") as kept, agent:
            kept.resume(agent)
            agent.run(question)
            kept.save(agent)
        traces.append(Trace.load(path))
    return traces


@pytest.fixture(scope="module")
def session(engine: Engine, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Trace]:
    """Four runs of one session, some with calls; tests do not change them."""
    return record(engine, folder, tmp_path_factory.mktemp("session"), (False,) * 4)


def go_on(trace: Trace, agent: Agent[Any], *place: int, prompt: str | None = None) -> list[str]:
    """Run to the end; gives the notices."""
    events = list(replay.branch(trace, agent, *place, prompt=prompt))
    return [event.message for event in events if isinstance(event, Notice)]


def sampled(trace: Trace, turn: int, step: int = 1) -> list[list[int]]:
    """What the model wrote in a turn from a step on."""
    return [
        phase.token_ids
        for phase in trace.phases
        if phase.phase == "decode" and phase.turn == turn and phase.step >= step
    ]


def test_every_run_of_a_session_verifies(engine: Engine, session: list[Trace]) -> None:
    """Each run gives its tokens again, on the tokens that it took over."""
    for trace in session:
        assert replay.verify(trace, engine).ok


@pytest.mark.slow
@pytest.mark.parametrize("place", STEPS)
def test_the_last_run_goes_on_from_any_step(
    engine: Engine, folder: Path, session: list[Trace], tmp_path: Path, place: tuple[int, int]
) -> None:
    """Its own and those before it: the same tokens again; the new trace verifies and tells."""
    turn, step = place
    path = tmp_path / "branch.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        assert go_on(session[-1], agent, *place) == []
        assert agent.turn == turn
    branch = Trace.load(path)

    assert sampled(branch, turn, step) == sampled(session[turn - 1], turn, step)
    assert branch.answer == session[turn - 1].answer
    assert [one.question for one in branch.turns if one.began] == [QUESTIONS[turn - 1]]
    assert (branch.history is None) == (place == (1, 1))
    assert replay.verify(branch, engine).ok


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_in_the_middle_knows_what_came_before(
    engine: Engine, folder: Path, session: list[Trace], number: int
) -> None:
    """It goes on from its own turn and those before; of the later ones it knows nothing."""
    for turn in range(1, number + 1):
        with Agent(engine, workspace=folder, trace=False) as agent:
            assert go_on(session[number - 1], agent, turn) == []
            assert agent.trace.answer == session[turn - 1].answer
    with (
        pytest.raises(ReplayError, match=rf"from {number + 1}\.1: the run has .*{number}"),
        Agent(engine, workspace=folder, trace=False) as agent,
    ):
        go_on(session[number - 1], agent, number + 1)


@pytest.mark.slow
def test_a_branch_from_a_branch(
    engine: Engine, folder: Path, session: list[Trace], tmp_path: Path
) -> None:
    """A branch has what came before it too, also in the middle of a turn; and so has its branch."""
    trace = session[-1]
    for number, (turn, step) in enumerate([(4, 2), (4, 2), (4, 1), (2, 2), (2, 2), (1, 2)]):
        path = tmp_path / f"{number}.jsonl"
        with Agent(engine, workspace=folder, trace=path) as agent:
            assert go_on(trace, agent, turn, step) == []
        trace = Trace.load(path)
        assert sampled(trace, turn, step) == sampled(session[turn - 1], turn, step)
        assert replay.verify(trace, engine).ok


def test_the_conversation_can_go_on_after_it(
    engine: Engine, folder: Path, session: list[Trace]
) -> None:
    """Ledger, session and messages are in step: questions, undo and forks work."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        go_on(session[-1], agent, 3)
        assert agent.run(QUESTIONS[3]).answer == session[3].answer
        assert agent.ledger.ids == agent.session.tokens
        for question in reversed(QUESTIONS):
            assert agent.undo() == question


def test_a_fork_goes_on_from_what_it_took_over(engine: Engine, folder: Path) -> None:
    """The trace of a fork is as good as one of a kept session."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        first = agent.run(QUESTIONS[1])
        with agent.fork(trace=False) as fork:
            second = fork.run(QUESTIONS[3])
            trace = fork.trace
    for turn, answer in ((1, first.answer), (2, second.answer)):
        with Agent(engine, workspace=folder, trace=False) as agent:
            assert go_on(trace, agent, turn) == []
            assert agent.trace.answer == answer


def test_other_tools_and_models_are_told_all_of_it(
    engine: Engine, scripted: Scripted, folder: Path, session: list[Trace]
) -> None:
    """Rendered anew, the conversation before the run is there with its calls and results."""
    with Agent(engine, workspace=folder, tools=FindTools(folder), trace=False) as agent:
        notices = go_on(session[-1], agent, 4)
        assert "the tools are different" in notices[-1]
        said = engine.tokenizer.decode(agent.session.tokens)
        results = [m.content for m in agent.messages if m.role == "tool"]
    assert all(question in said for question in QUESTIONS)
    assert {call.result for trace in session for call in trace.tools} <= set(results)
    with Agent(scripted("It is milk.<|im_end|>"), workspace=folder, trace=False) as agent:
        assert "the model is scripted" in go_on(session[-1], agent, 2, 2)[0]
        assert [m.role for m in agent.messages][-4:] == ["user", "assistant", "tool", "assistant"]


def test_a_session_with_other_tools_goes_on(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """A kept conversation that was read anew, with other tools, goes on from before and after."""
    path = tmp_path / "2.jsonl"
    with open_conversation("s", tmp_path / "kept") as kept:
        with Agent(engine, workspace=folder, trace=False) as agent:
            agent.run(QUESTIONS[1])
            kept.save(agent)
        with Agent(engine, workspace=folder, tools=FindTools(folder), trace=path) as agent:
            assert "read again" in kept.resume(agent)[0]
            answer = agent.run("Which files are here?").answer
    trace = Trace.load(path)

    assert replay.verify(trace, engine).ok
    for place in ((2, 1), (1, 2)):
        with Agent(engine, workspace=folder, tools=FindTools(folder), trace=False) as agent:
            assert go_on(trace, agent, *place) == []
            assert (agent.trace.answer == answer) == (place[0] == 2)
            assert agent.session.tokens == agent.ledger.ids


@pytest.mark.slow
def test_redacted_runs_of_a_session(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """What has no text is refused by that name; a run beside it that has texts goes on."""
    traces = record(engine, folder, tmp_path, (True, False, True, False))
    for number, trace in enumerate(traces):
        hidden = number % 2 == 0
        assert trace.redacted == hidden
        assert (trace.history is not None) == (number > 0)
        for turn in range(1, number + 2):
            with Agent(engine, workspace=folder, trace=False) as agent:
                if hidden:
                    with pytest.raises(ReplayError, match="redacted: it has no text"):
                        go_on(trace, agent, turn)
                else:
                    assert go_on(trace, agent, turn) == []
        if hidden:
            with pytest.raises(ReplayError, match="redacted"):
                replay.verify(trace, engine)
        else:
            assert replay.verify(trace, engine).ok
    text = (tmp_path / "3.jsonl").read_text()
    assert not any(word in text for word in ("plumber", "refused", *QUESTIONS))


def test_a_trace_of_before_histories_were_kept(
    engine: Engine, folder: Path, session: list[Trace]
) -> None:
    """A run that goes on with another and does not say with what: refused, with both ways out."""
    old = Trace([e for e in session[1].events if not isinstance(e, HistoryEvent)])
    with (
        Agent(engine, workspace=folder, trace=False) as agent,
        pytest.raises(ReplayError, match="use --from on that run, or record it again"),
    ):
        go_on(old, agent, 2)
    assert replay.verify(old, engine).ok
