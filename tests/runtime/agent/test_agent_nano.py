"""The agent on the real engine with the embedded model: what holds whatever the model says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from labs.nano.chatml import system_segments
from triplepoint import Agent, Engine, PassCancelledError, Sampling, Trace
from triplepoint.errors import ContextOverflowError
from triplepoint.runtime.agent.config import OWN_FORMS
from triplepoint.runtime.agent.events import PhaseFinished, RunFinished, TextDelta
from triplepoint.runtime.conversation import matcher_tables
from triplepoint.traces.events import RunEnd

QUESTIONS = (
    "What's the error in app.log?",
    "Which files are in this folder?",
    "hello",
    "Which file mentions retry?",
    "What is on line 2 of notes.txt?",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small workspace."""
    root = tmp_path / "work"
    root.mkdir()
    lines = [f"10:{i:02} INFO request {i} served" for i in range(12)]
    lines[8] = "10:08 ERROR disk: no space left on /data"
    (root / "app.log").write_text("\n".join(lines) + "\n")
    (root / "notes.txt").write_text("the disk is small\nretry on Monday\n")
    return root


def test_the_prompt_is_what_the_model_was_trained_on(engine: Engine, folder: Path) -> None:
    """Tokens of the system message and the tools are those of the training corpus."""
    agent = Agent(engine, workspace=folder, trace=False, max_tokens=64)
    for event in agent.stream("hello"):
        if isinstance(event, PhaseFinished):
            break

    trained = [
        token
        for segment in system_segments()
        for token in engine.tokenizer.encode(segment.text, special=segment.control)
    ]
    assert agent.session.tokens[: len(trained)] == trained


def test_an_answer_by_a_schema_is_not_what_it_was_trained_for(engine: Engine) -> None:
    """A person is told, in place of wondering at the answers."""
    assert Agent(engine, trace=False).setup.notes == []
    assert Agent(engine, trace=False, output_type=list[str]).setup.notes == [OWN_FORMS]


def test_a_conversation_on_the_real_engine(engine: Engine, folder: Path, tmp_path: Path) -> None:
    """Over several questions no token is fed twice, and the trace has every phase in its regime."""
    path = tmp_path / "run.jsonl"
    agent = Agent(engine, workspace=folder, trace=path, max_tokens=200)
    for question in QUESTIONS:
        *_, last = agent.stream(question)
        assert isinstance(last, RunFinished)
        assert last.status in ("answered", "limit")
    agent.close()

    phases = agent.trace.phases
    made = 0
    for phase in phases:
        if phase.phase == "prefill":
            # The model's last token, if there is one, and what is new; the rest was there.
            assert phase.kv_before == max(made - 1, 0)
            assert phase.kv_after == phase.kv_before + phase.tokens
            made = phase.kv_after
        else:
            assert phase.constraint == "hermes"
            assert phase.kv_after == made + phase.tokens - 1
            made += phase.tokens
        assert phase.predicted in ("compute", "memory", "dispatch")
        assert phase.observed in ("compute", "memory", "dispatch")
        assert phase.wall_s > 0
    assert made == len(agent.session.tokens) == len(agent.ledger)
    assert agent.session.tokens == agent.ledger.ids
    assert [p.token_ids for p in Trace.load(path).phases] == [p.token_ids for p in phases]


def test_the_same_question_gives_the_same_tokens(engine: Engine, folder: Path) -> None:
    """Two fresh agents say the same, token by token."""
    one, two = (Agent(engine, workspace=folder, trace=False, max_tokens=200) for _ in range(2))
    for agent in (one, two):
        list(agent.stream(QUESTIONS[0]))

    assert one.session.tokens == two.session.tokens
    assert one.trace.tools, "the embedded model looks into the file"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_model_out_of_its_mind(engine: Engine, folder: Path, seed: int) -> None:
    """Sampled at a temperature that makes nonsense, every call that runs still validates."""
    agent = Agent(
        engine,
        workspace=folder,
        trace=False,
        max_tokens=300,
        sampling=Sampling(temperature=3.0, seed=seed),
    )

    for question in QUESTIONS:
        try:
            list(agent.stream(question))
        except ContextOverflowError:
            break

    for event in agent.trace.tools:
        agent.tools.get(event.name).validate(event.arguments)
    assert agent.session.tokens == agent.ledger.ids


def test_overflow_on_the_real_engine(engine: Engine, folder: Path) -> None:
    """A file that does not fit ends the run with the lengths; a smaller question still works."""
    names = (first + second for first in "abcdefgh" for second in "abcdefgh")
    (folder / "app.log").write_text("".join(f"10:00 ERROR disk {n} is full again\n" for n in names))
    agent = Agent(engine, workspace=folder, context=512, trace=False, max_tokens=160)

    with pytest.raises(ContextOverflowError, match=r"search \(message 3\)"):
        agent.run(QUESTIONS[0])

    *_, last = agent.stream("hello")
    assert isinstance(last, RunFinished)
    assert agent.session.tokens == agent.ledger.ids


def test_stop_from_another_thread(engine: Engine, folder: Path) -> None:
    """A stop while the model speaks ends the run as cancelled; the next question goes on."""
    agent = Agent(engine, workspace=folder, trace=False, max_tokens=400)

    def ask_and_stop() -> None:
        for event in agent.stream("hello"):
            if isinstance(event, TextDelta):
                stopper = threading.Thread(target=agent.stop)
                stopper.start()
                stopper.join()

    with pytest.raises(PassCancelledError):
        ask_and_stop()

    end = agent.trace.events[-1]
    assert isinstance(end, RunEnd)
    assert end.status == "cancelled"
    assert agent.session.tokens == agent.ledger.ids
    *_, last = agent.stream("hello")
    assert isinstance(last, RunFinished)


def test_a_long_file_does_not_fill_the_context(engine: Engine, folder: Path) -> None:
    """A file tool's result is kept to a share of the context, and says what it leaves out."""
    lines = [f"11:{i % 60:02} INFO request {i} served in {i % 17} ms" for i in range(3000)]
    (folder / "long.log").write_text("\n".join(lines) + "\n")
    agent = Agent(engine, workspace=folder, trace=False)
    result = agent.tools.get("read_file").call({"path": "long.log"})

    assert "[cut: lines " in result
    assert len(result) <= engine.context // 2 + 200
    assert len(engine.tokenizer.encode(result)) < engine.context / 2


def test_a_stop_before_the_first_pass_is_heard(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop while the question is still being rendered ends the run before any pass."""
    agent = Agent(engine, workspace=folder, trace=False)
    render = agent.setup.conversation.chat.open  # pyright: ignore[reportAttributeAccessIssue]

    def stopped_meanwhile(messages: object) -> object:
        agent.stop()
        return render(messages)

    monkeypatch.setattr(agent.setup.conversation.chat, "open", stopped_meanwhile)  # pyright: ignore[reportAttributeAccessIssue]
    passes = engine.core.scheduler.passes
    with pytest.raises(PassCancelledError):
        agent.run(QUESTIONS[0])

    assert engine.core.scheduler.passes == passes
    monkeypatch.undo()
    assert agent.run(QUESTIONS[0]).status == "answered"


@pytest.mark.parametrize("given", [(), (143,)], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupt_within_the_grammar_library(
    engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[int, ...]
) -> None:
    """As the library asks for tokens: the run is cancelled, and the next one answers."""
    agent = Agent(engine, workspace=folder)
    ask, pending = matcher_tables._Vocabulary.__call__, [KeyboardInterrupt(*given)]

    def interrupted(vocabulary: matcher_tables._Vocabulary, text: bytes | str) -> list[int]:
        if pending:
            raise pending.pop()
        return ask(vocabulary, text)

    monkeypatch.setattr(matcher_tables._Vocabulary, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt) as raised:
        agent.run("What's the error in app.log?")
    assert not pending
    assert raised.value.args == given
    assert agent.last_result is not None
    assert agent.last_result.status == "cancelled"
    assert agent.run("What's the error in app.log?").status == "answered"
