"""An agent on a model with recurrent layers: turns go on where a state is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import tiny_models as tiny
from helpers.checkpoints import QWEN2, byte_tokenizer, split_regex, write_checkpoint

from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.agent.events import Notice, PhaseFinished
from triplepoint.runtime.conversation.ledger import DROPPED_THOUGHTS
from triplepoint.runtime.conversation.turn import THINKING_END
from triplepoint.runtime.convert.convert import convert
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.replay.replay import verify
from triplepoint.traces import Trace

# Qwen3.5's way: thinking is opened by the template, and left out of what came before.
TEMPLATE = """\
{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}
{%- if m.role == 'assistant' %}{{ m.content.split('</think>')[-1].lstrip('\n') }}
{%- else %}{{ m.content }}{% endif %}{{ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"""
LONG = "The error is on line 12: disk full. " * 12


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("hybrid")
    write_checkpoint(folder, "qwen35")
    config = tiny.config_of("qwen35") | {"max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = byte_tokenizer(split_regex(QWEN2), size=280)
    tokenizer.add_tokens(["<think>", "</think>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    convert(folder, folder / "out.gguf", threads=1)
    with Engine.load(folder / "out.gguf", threads=2) as engine:
        yield engine


def _ask(agent: Agent, question: str) -> PhaseFinished:
    events = list(agent.stream(question))
    return next(e for e in events if isinstance(e, PhaseFinished) and e.reuse)


def test_turns_recompute_next_to_nothing(engine: Engine) -> None:
    """Thinking is taken out of a long conversation: what follows it is all that is computed."""
    agent = Agent(engine, system="Be brief.", trace=False, max_tokens=12)
    _ask(agent, LONG)
    long = len(agent.session.tokens)
    for question in ("Why?", "And then?", "Where?"):
        finished = _ask(agent, question)
        assert finished.reuse is not None
        phase = finished.phase
        assert phase.tokens < 60 < long - 60
        assert phase.recomputed_tokens == 0
        assert phase.miss is None or phase.miss.why == DROPPED_THOUGHTS
        assert agent.session.tokens == agent.ledger.ids


@pytest.mark.parametrize("budget", [{"thinking_tokens": 5}, {"thinking_seconds": 1e-6}])
def test_thinking_within_a_budget_is_replayed(
    engine: Engine, tmp_path: Path, budget: dict[str, float]
) -> None:
    """The runtime writes its end and says so; a trace rebuilds it, however long it took."""
    path = tmp_path / "trace.jsonl"
    with Agent(engine, trace=path, max_tokens=400, **budget) as agent:  # pyright: ignore[reportArgumentType]
        events = list(agent.stream("Why?"))
    trace = Trace.load(path)
    decode = next(phase for phase in trace.phases if phase.phase == "decode")
    said = engine.tokenizer.decode(decode.token_ids, special=True)

    assert f"{THINKING_END}</think>" in said
    assert decode.forced_tokens > 5
    assert decode.recipe is not None
    assert 1 <= decode.recipe["thinking_tokens"] <= 5
    assert any("thinking was ended" in e.message for e in events if isinstance(e, Notice))
    assert all(phase.same for phase in verify(trace, engine).phases)  # its answers are no UTF-8


def test_another_conversation_takes_the_system_over(engine: Engine) -> None:
    """The state behind the system message is kept for conversations to come."""
    engine.core.prefix_cache.clear()
    system = "You answer questions about the files in one folder. " + LONG
    first = Agent(engine, system=system, trace=False, max_tokens=4)
    _ask(first, "What is the error?")
    second = Agent(engine, system=system, trace=False, max_tokens=4)
    finished = _ask(second, "Which line?")

    assert finished.phase.shared_tokens > 200
    assert finished.phase.tokens - finished.phase.shared_tokens < 60


def test_what_a_lost_state_costs_is_said(engine: Engine) -> None:
    """Without copies all is computed again, and counted as read again."""
    agent = Agent(engine, system="Be brief.", trace=False, max_tokens=12)
    _ask(agent, LONG)
    assert agent.session.sequence.cache.state is not None
    agent.session.sequence.cache.state.checkpoints.clear()
    engine.core.prefix_cache.clear()
    finished = _ask(agent, "Why?")

    assert finished.phase.recomputed_tokens > 200
    assert finished.phase.reread_tokens >= finished.phase.recomputed_tokens
    assert agent.session.tokens == agent.ledger.ids


def test_branch(engine: Engine) -> None:
    """A conversation that was forked says what the other says, and neither disturbs the other."""
    agent = Agent(engine, system="Be brief.", trace=False, max_tokens=8)
    _ask(agent, LONG)
    other = agent.fork(trace=False)
    _ask(agent, "Why?")
    said = list(agent.session.tokens)
    _ask(agent, "And then?")
    _ask(other, "Why?")
    assert other.session.tokens == said
    alone = Agent(engine, system="Be brief.", trace=False, max_tokens=8)
    alone.session.sequence.shares = False
    _ask(alone, LONG)
    _ask(alone, "Why?")

    assert alone.session.tokens == said
