"""Replaying a trace: the same tokens again, or the first that differs."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import triplepoint as package
from triplepoint.errors import PassCancelledError, ReplayError
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import AgentEvent, TextDelta
from triplepoint.runtime.agent.local_conversation import LocalConversation
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.replay.divergence import likely_cause, what_differs
from triplepoint.runtime.replay.live_tools import LiveTools
from triplepoint.runtime.replay.replay import PhaseCheck, verify
from triplepoint.traces import Trace
from triplepoint.traces.events import (
    ContentEvent,
    Event,
    ModelRecord,
    PhaseEvent,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
)

QUESTION = "Which files are here?"
NANO = Path(package.__file__).parent / "runtime" / "nano" / "nano.gguf"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files to ask about."""
    (tmp_path / "app.log").write_text("INFO start\nERROR db: connection refused\n")
    (tmp_path / "notes.txt").write_text("call the plumber\nbuy milk\n")
    return tmp_path


def record(engine: Engine, folder: Path, *questions: str, **settings: Any) -> Trace:
    """The trace of a conversation, read back from its file."""
    path = folder / "trace.jsonl"
    with Agent(engine, workspace=folder, trace=path, **settings) as agent:
        for question in questions:
            for _ in agent.stream(question):
                pass
    return Trace.load(path)


def phases(trace: Trace) -> list[PhaseEvent]:
    """The phases; changing one changes the trace."""
    return trace.phases


def test_a_turn_that_the_template_ends_otherwise(engine: Engine, folder: Path) -> None:
    """Where a history ends a turn with another token than the model did, the same is fed again."""
    template = (NANO.parent / "template.jinja").read_text(encoding="utf-8")
    assert "<|im_end|>" in template
    template = template.replace("<|im_end|>", "<|endoftext|>")
    trace = record(engine, folder, "Hello.", "Hello.", chat_template=template)
    report = verify(trace, engine)

    decoded = [phase.token_ids[-1] for phase in phases(trace) if phase.phase == "decode"]
    fed = [phase.token_ids[0] for phase in phases(trace) if phase.phase == "prefill"][1:]
    tokens = engine.tokenizer.vocabulary.tokens
    assert {tokens[token] for token in decoded} == {"<|im_end|>"}
    assert {tokens[token] for token in fed} == {"<|endoftext|>"}
    assert report.ok


def test_a_conversation_gives_the_same_tokens(engine: Engine, folder: Path) -> None:
    """Two turns with tool calls verify, phase by phase, in one session."""
    trace = record(engine, folder, QUESTION, "What is on line 2 of notes.txt?")
    seen: list[PhaseCheck] = []

    report = verify(trace, engine, on_phase=seen.append)

    assert report.ok, report.first_difference
    assert report.notes == []
    assert report.first_difference is None
    assert report.phases == seen
    assert [c.recorded for c in seen] == trace.phases
    assert len(seen) >= 6
    for check in seen:
        assert check.replayed.token_ids == check.recorded.token_ids
        assert check.replayed.kv_after == check.recorded.kv_after


def test_each_decode_is_held_to_its_own_recipe(engine: Engine, folder: Path) -> None:
    """What is required may differ from turn to turn; the folder it was about need not be there."""
    path = folder / "trace.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        for _ in agent.stream(QUESTION):
            pass
        conversation = agent.setup.conversation
        assert isinstance(conversation, LocalConversation)
        required = conversation.required
        narrow = replace(required, tools=required.tools[:1], calls="required")
        conversation.required = narrow
        for _ in agent.stream("What is on line 2 of notes.txt?"):
            pass
    trace = Trace.load(path)
    for name in ("app.log", "notes.txt"):
        (folder / name).unlink()

    contents = [event for event in trace.events if isinstance(event, ContentEvent)]
    recipes = [phase.recipe for phase in trace.phases if phase.phase == "decode"]
    assert [one.value for one in contents] == [narrow.tools]  # once, and not that of the header
    assert {json.dumps(one) for one in recipes} == {
        json.dumps(one.recipe) for one in (required, narrow)
    }
    assert verify(trace, engine).ok

    trace.events.remove(contents[0])
    with pytest.raises(ReplayError, match="lacks the tools"):
        verify(trace, engine)


def test_a_budget_of_thinking_is_rebuilt(engine: Engine, folder: Path) -> None:
    """Also where the tags are letters: other tokens of it are other text."""
    template = "{% for m in messages %}{{ m.content }}\n{% endfor %}<|im_start|>assistant\n<think>"
    trace = record(
        engine,
        folder,
        "Hello",
        chat_template=template,
        answer_forms=False,
        thinking_tokens=4,
        max_tokens=200,
    )
    (decode,) = [phase for phase in trace.phases if phase.phase == "decode"]
    assert "directly now.\n</think>" in engine.tokenizer.decode(decode.token_ids, special=True)
    assert verify(trace, engine).ok

    assert decode.recipe is not None
    decode.recipe["thinking_tokens"] = 2
    assert not verify(trace, engine).ok


def test_a_seeded_sampling_gives_the_same_tokens(engine: Engine, folder: Path) -> None:
    """Random picks repeat by their seed; with another seed the replay differs."""
    sampling = Sampling(temperature=20.0, seed=7)  # hot: a sure model picks at random too
    trace = record(engine, folder, QUESTION, max_tokens=60, sampling=sampling)

    assert verify(trace, engine).ok

    for phase in phases(trace):
        if phase.sampling:
            phase.sampling["seed"] = 8
    assert not verify(trace, engine).ok


def test_what_came_after_an_interruption_verifies(engine: Engine, folder: Path) -> None:
    """A turn that was cut in the middle of its decode, and the turn after it."""
    path = folder / "trace.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        stream = cast("Generator[AgentEvent]", agent.stream("Hello!"))
        while not isinstance(next(stream), TextDelta):
            pass
        stream.close()
        agent.run(QUESTION)
    trace = Trace.load(path)
    assert len(trace.turns) == 2

    assert verify(trace, engine).ok


def test_a_trace_in_memory_verifies(engine: Engine, folder: Path) -> None:
    """No file is needed: the result's own trace will do."""
    with Agent(engine, workspace=folder, trace=False) as agent:
        result = agent.run(QUESTION)

    assert verify(result.trace, engine).ok


def test_what_cannot_be_verified(engine: Engine, folder: Path) -> None:
    """No engine, or a trace of nothing."""
    trace = record(engine, folder, "Hello!")
    with pytest.raises(ReplayError, match="engine must be an Engine, not None"):
        verify(trace, cast(Any, None))
    with pytest.raises(ReplayError, match="the trace: it has no run"):
        verify(Trace(), engine)


def test_each_run_of_a_file_verifies(engine: Engine, folder: Path) -> None:
    """A file of several runs: each is chosen by its index, the last by default."""
    record(engine, folder, "Hello!")
    trace = record(engine, folder, QUESTION)

    assert [len(verify(trace, engine, run=n).phases) for n in (0, 1)] == [2, 4]
    assert len(verify(trace, engine).phases) == 4


@pytest.mark.parametrize("position", [0, 5])
def test_the_first_difference_is_named(engine: Engine, folder: Path, position: int) -> None:
    """Token, position, phase and the texts of both; nothing after it is run."""
    trace = record(engine, folder, QUESTION)
    phase = phases(trace)[1]
    true = phase.token_ids[position]
    phase.token_ids[position] = false = 300 if true != 300 else 301

    report = verify(trace, engine)

    assert not report.ok
    assert [check.same for check in report.phases] == [True, False]
    found = report.first_difference
    assert found is not None
    assert found.number == 2
    assert found.difference is not None
    assert (found.difference.position, found.difference.recorded) == (position, false)
    assert found.difference.replayed == true
    assert found.difference.recorded_text == engine.tokenizer.token_bytes(false).decode()


def test_a_decode_that_ends_early_differs(engine: Engine, folder: Path) -> None:
    """More recorded tokens than the model gives: the difference is that nothing came."""
    trace = record(engine, folder, "Hello!")
    phases(trace)[1].token_ids.append(300)

    difference = verify(trace, engine).phases[-1].difference

    assert difference is not None
    assert (difference.recorded, difference.replayed, difference.replayed_text) == (300, None, "")


def test_other_settings_are_noted(engine: Engine, folder: Path) -> None:
    """Target, KV format and threads may differ; that is told."""
    trace = record(engine, folder, "Hello!")
    header = trace.header
    assert header is not None
    header.target, header.kv, header.threads = "avx9", "f32", 99

    notes = verify(trace, engine).notes

    assert notes == [
        f"target differs: recorded avx9, now {engine.target}",
        "KV cache format differs: recorded f32, now bf16",
        f"threads differs: recorded 99, now {engine.threads}",
    ]


def test_what_does_not_fit_is_named(engine: Engine, folder: Path) -> None:
    """Each thing that makes a replay impossible is an error that names the field."""

    def changed(change: Any) -> Trace:
        trace = Trace.load(folder / "trace.jsonl")
        header = trace.header
        assert header is not None
        change(trace, header, trace.phases)
        return trace

    def other_model(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        header.model.sha256 = "ab" * 32

    def no_header(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        trace.events.remove(header)

    def lost_phase(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        trace.events.remove(phases[1])

    def no_ids(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        phases[2].token_ids = []

    def lost_ids(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        phases[-1].token_ids = []

    def fewer_ids(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        del phases[-1].token_ids[-2:]

    def unknown_grammar(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        phases[1].recipe = {**(phases[1].recipe or {}), "format": "runes"}

    def unknown_grammar_of_old(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        phases[1].constraint, phases[1].recipe = "runes", None

    def unknown_rule(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        phases[1].recipe = {**(phases[1].recipe or {}), "rhyme": True}

    def lost_tools(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        header.tools = header.tools[:1]

    def unknown_sampling(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        phases[1].sampling = {"dice": 6}

    def small_context(trace: Trace, header: RunStart, phases: list[PhaseEvent]) -> None:
        header.config["context"] = 50

    record(engine, folder, QUESTION)
    for change, message in (
        (other_model, "model.sha256 differs"),
        (no_header, "no run_start"),
        (lost_phase, r"phase 2 \(tool_result\): kv_before"),
        (no_ids, r"phase 3 \(tool_result\): kv_before"),
        (lost_ids, r"phase 4 \(answer\): tokens is \d+, but there are 0 token_ids"),
        (fewer_ids, r"phase 4 \(answer\): tokens is \d+, but there are \d+ token_ids"),
        (unknown_grammar, "constraint differs: .* 'runes'"),
        (unknown_sampling, "sampling differs: .*dice"),
        (small_context, "context differs: phase 1 does not fit"),
    ):
        with pytest.raises(ReplayError, match=message):
            verify(changed(change), engine)


def test_a_scripted_model_that_says_something_else(scripted: Any) -> None:
    """The comparison itself, where the test decides what is said."""
    first = scripted("Hello there.<|im_end|>")
    agent = Agent(first, trace=False)
    trace = agent.run("Hi").trace

    assert verify(trace, scripted("Hello there.<|im_end|>")).ok
    report = verify(trace, scripted("Hello you.<|im_end|>"))

    assert report.first_difference is not None
    assert report.first_difference.number == 2


def test_a_stopped_replay_is_cancelled(scripted: Any) -> None:
    """Stopping the engine in a replay is no verdict: the error comes through."""
    trace = Agent(scripted("Hello there.<|im_end|>"), trace=False).run("Hi").trace

    with pytest.raises(PassCancelledError):
        verify(trace, scripted([PassCancelledError("stopped")]))


# --- what is said of a difference


def test_a_difference_has_its_context_and_margin(engine: Engine, folder: Path) -> None:
    """The text before it, and the distance of the two logits by the range of all."""
    trace = record(engine, folder, QUESTION)
    prompt, phase = phases(trace)[:2]
    before = [*prompt.token_ids, *phase.token_ids[:5]]
    phase.token_ids[5] = false = 300 if phase.token_ids[5] != 300 else 301

    report = verify(trace, engine)

    assert report.first_difference is not None
    found = report.first_difference.difference
    assert found is not None
    assert found.replayed is not None
    assert found.before == engine.tokenizer.decode(before[-16:], special=True)
    logits = engine.session().logits_for(before)[-1]
    margin = abs(logits[found.replayed] - logits[false]) / (logits.max() - logits.min())
    assert found.margin == pytest.approx(float(margin), rel=1e-3)
    assert found.cause.startswith("nothing that a trace records differs")
    assert not report.within_rounding


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (lambda h, p: setattr(h, "target", "avx9"), "target: recorded with avx9, now "),
        (lambda h, p: setattr(h, "kv", "q8"), "KV cache format: recorded with q8, now bf16"),
        (lambda h, p: h.versions.update(kernels="old"), "kernels: recorded with old, now "),
        (lambda h, p: h.versions.update(llvmlite="0.1"), "llvmlite: recorded with 0.1, now "),
        (lambda h, p: h.versions.update(numpy="0.1"), "numpy: recorded with 0.1, now "),
        (lambda h, p: h.versions.update(triplepoint="0.0"), "triplepoint: recorded with 0.0, now "),
        (lambda h, p: setattr(h.model, "sha256", ""), "model file: recorded with "),
        (lambda h, p: setattr(h, "threads", 99), "threads: recorded with 99, now "),
        (lambda h, p: h.config.update(draft_tokens=3), "draft tokens: recorded with 3, now auto"),
        (
            lambda h, p: h.config.update(jump_forward=False),
            "jump-forward: recorded with False, now True",
        ),
        (lambda h, p: p.sampling.update(temperature=0.01), "sampling: tokens are drawn"),
    ],
)
def test_the_likely_cause_is_what_differs(
    engine: Engine, folder: Path, change: Any, cause: str
) -> None:
    """Target, cache, versions, file, threads, drafts, sampling: each is named if it is another."""
    trace = record(engine, folder, "Hello!")
    phase = phases(trace)[1]
    assert trace.header is not None
    change(trace.header, phase)
    phase.token_ids[0] = 300 if phase.token_ids[0] != 300 else 301

    found = verify(trace, engine).phases[-1].difference

    assert found is not None
    assert cause in found.cause
    assert ("different order" in found.cause) == cause.startswith("target")


@pytest.mark.parametrize("where", [TurnEnd, RunEnd])
def test_an_answer_that_was_changed(engine: Engine, folder: Path, where: type[Event]) -> None:
    """The tokens are the same, but they do not say it."""
    trace = record(engine, folder, "Hello!")
    assert verify(trace, engine).ok
    end = next(event for event in trace.events if isinstance(event, where))
    assert isinstance(end, TurnEnd | RunEnd)
    said, end.answer = end.answer, "The error is: no space left"

    report = verify(trace, engine)

    assert not report.ok
    assert report.first_difference is None
    assert report.answer_difference is not None
    assert said in report.answer_difference.sampled
    assert report.answer_difference.recorded == end.answer
    assert report.answer_difference.turn == 1


def test_a_lost_decode(engine: Engine, folder: Path) -> None:
    """All that is left is the same, but the answer came of what is gone."""
    trace = record(engine, folder, "Hello!")
    trace.events.remove(phases(trace)[-1])

    assert not verify(trace, engine).ok


def test_nothing_differs_of_a_request_that_was_refused(engine: Engine) -> None:
    """It reached no model, so there is none that it was recorded with."""
    assert what_differs(RunStart(model=ModelRecord(name="")), engine) == []


def test_all_that_differs_is_named_and_no_cause_made_up(engine: Engine, folder: Path) -> None:
    """A cache of another format is no matter of rounding, alone or beside another target."""
    trace = record(engine, folder, "Hello!")
    assert trace.header is not None
    phase = phases(trace)[1]
    phase.token_ids[0] = 300 if phase.token_ids[0] != 300 else 301
    trace.header.kv, trace.header.threads = "q8", 99

    for target, words in ((str(engine.target), ("threads: ",)), ("avx9", ("target: ", "threads"))):
        trace.header.target = target
        report = verify(trace, engine)
        found = report.phases[-1].difference
        assert found is not None
        near = replace(found, margin=1e-6)
        report.phases[-1] = replace(report.phases[-1], difference=near)
        assert not report.within_rounding
        cause = likely_cause(trace.header, engine, phase, near.margin)
        assert "KV cache format: recorded with q8, now bf16" in cause
        assert all(word in cause for word in words)
        assert "order" not in cause


def test_a_q8_cache_is_the_stated_cause(engine: Engine, folder: Path) -> None:
    """What was recorded with bf16 and is verified with q8 says so, and nothing of sums."""
    trace = record(engine, folder, QUESTION, "What's the error in app.log?")
    with Engine.load("nano", kv="q8") as other:
        report = verify(trace, other)
        cause = likely_cause(trace.header, other, phases(trace)[1], 1e-6)  # pyright: ignore[reportArgumentType]

    assert "KV cache format differs: recorded bf16, now q8" in report.notes
    assert cause == "KV cache format: recorded with bf16, now q8"
    found = report.first_difference
    assert found is None or (found.difference is not None and found.difference.cause == cause)


def test_rounding_explains_a_difference_on_another_target_only(
    engine: Engine, folder: Path
) -> None:
    """The same margin counts as rounding if the target is another, and as nothing else if not."""
    trace = record(engine, folder, "Hello!")
    assert trace.header is not None
    phase = phases(trace)[1]
    true = phase.token_ids[0]
    # The token whose logit is next: nano is sure of itself, so its margin is put beneath.
    logits = engine.session().logits_for(phases(trace)[0].token_ids)[-1]
    phase.token_ids[0] = int(np.argsort(logits)[-2])
    assert phase.token_ids[0] != true

    for target, other in ((str(engine.target), False), ("avx9", True)):
        trace.header.target = target
        report = verify(trace, engine)
        assert report.other_target is other
        found = report.phases[-1].difference
        assert found is not None
        assert found.margin is not None
        assert report.within_rounding is (other and found.margin <= 1e-2)
        report.phases[-1] = replace(report.phases[-1], difference=replace(found, margin=0.5e-2))
        assert report.within_rounding is other
        assert not report.ok


@pytest.mark.slow
def test_another_target_gives_the_same_or_nearly(engine: Engine, folder: Path) -> None:
    """Recorded on this machine's best target, verified on portable code: equal, or by rounding."""
    trace = record(engine, folder, QUESTION, "What is on line 2 of notes.txt?")

    with Engine.load("nano", target="generic") as portable:
        report = verify(trace, portable)

    assert report.other_target
    assert report.ok or report.within_rounding


# --- live tools


def test_a_live_tool_that_differs_ends_the_replay(
    engine: Engine, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Unchanged files give the same; of a changed one the call and both texts are named."""
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    with Agent(engine, workspace=folder, trace=path) as agent:
        agent.run("What is on line 2 of notes.txt?")
    trace = Trace.load(path)
    assert trace.header is not None
    live = LiveTools(engine, trace.header, folder)
    before = verify(trace, engine, tools=live)
    assert before.ok
    assert before.tools == 1

    (folder / "notes.txt").write_text("call the plumber\nbuy bread\n")
    report = verify(trace, engine, tools=live)

    assert not report.ok
    assert report.tool_difference is not None
    assert report.tool_difference.call is trace.tools[0]
    assert "buy bread" in report.tool_difference.now
    assert len(report.phases) == 2


def test_what_changes_things_is_not_run_again(engine: Engine, folder: Path) -> None:
    """Writes, programs, the network, refused calls and unknown tools keep their results."""
    trace = record(engine, folder, "Hello!")
    assert trace.header is not None
    live = LiveTools(engine, trace.header, folder)
    read = {"name": "read_file", "arguments": {"path": "notes.txt"}, "effect": "read"}
    allowed = {"decision": "allowed", **read}

    assert "buy milk" in (live(ToolEvent.model_validate(allowed)) or "")
    for change in ({"effect": "write"}, {"effect": "exec"}, {"decision": "denied"}, {"name": "x"}):
        assert live(ToolEvent.model_validate(allowed | change)) is None
    assert live(ToolEvent.model_validate(read)) is None
