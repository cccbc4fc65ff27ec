"""Tokens that the grammar forces: taken without a pass, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from helpers.grammar_samples import no_arguments, read_file
from helpers.tiers import quick

from triplepoint.runtime.conversation.formats import FORMATS
from triplepoint.runtime.conversation.grammar import CallGrammar, TurnConstraint
from triplepoint.runtime.engine import decoding
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.sampling.settings import GREEDY, Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.tools import ToolSet, tool
from triplepoint.traces.events import PhaseEvent

WILD = Sampling(temperature=5.0)  # nano says anything then, as a model of random weights would


@tool
def set_mode(mode: Literal["automatic", "auto", "manual"], count: int, sure: bool) -> str:
    """Sets the mode."""
    return f"{mode} {count} {sure}"


ONE, THREE = ToolSet([set_mode]).schemas(), ToolSet([read_file, set_mode, no_arguments]).schemas()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model, loaded once."""
    with Engine.load("nano", draft_tokens=0) as engine:
        yield engine


def _constraint(engine: Engine, tools: list, form: str) -> tuple[list[int], TurnConstraint]:
    """What opens a call, and the constraint right after it."""
    grammar = CallGrammar(engine.tokenizer, tools, form)
    constraint = grammar.constraint()
    ids = engine.tokenizer.encode(grammar.form.opening, special=True)
    for token in ids:
        constraint.advance(token)
    return ids, constraint


def _call(
    engine: Engine, jump: bool, tools: list, form: str, sampling: Sampling, most: int = 60
) -> tuple[list[int], PhaseEvent, Session]:
    """The tokens of a call, from after its opening on."""
    session = engine.session()
    session.phases.drafting.settings = replace(session.phases.drafting.settings, jump_forward=jump)
    ids, constraint = _constraint(engine, tools, form)
    session.prefill(engine.tokenizer.encode("Look into app.log. ") + ids)
    stop = engine.tokenizer.stop_ids
    out = list(session.decode(max_tokens=most, stop=stop, constraint=constraint, sampling=sampling))
    assert session.last_phase is not None
    return out, session.last_phase, session


# JSON in tags, in a list and in a channel; XML, Python's calls and notations of their own.
OFTEN = ("hermes", "mistral", "harmony", "qwen3-coder", "glm", "lfm2", "gemma4", "llama")


@pytest.mark.parametrize("form", quick(FORMATS, ci=OFTEN))
def test_calls_are_the_same_with_and_without(engine: Engine, form: str) -> None:
    """The same tokens in every format, greedy and by chance, with fewer passes."""
    for tools in (ONE, THREE):
        for seed in range(-1, 4):
            sampling = GREEDY if seed < 0 else replace(WILD, seed=seed)
            without, slow, _ = _call(engine, False, tools, form, sampling)
            jumped, fast, session = _call(engine, True, tools, form, sampling)

            assert jumped == without, engine.tokenizer.decode(without)
            assert slow.forced_tokens == 0
            assert fast.forced_tokens > 0
            assert fast.passes < slow.passes == len(without) - 1
            assert session.n_cached < len(session.tokens)


def test_most_of_a_call_is_forced(engine: Engine) -> None:
    """Of a call of one tool with short arguments, more than half is not decoded."""

    @tool
    def choose(mode: Literal["automatic", "auto", "manual"], sure: bool) -> str:
        """Chooses a mode."""
        return f"{mode} {sure}"

    ids, phase, _ = _call(engine, True, ToolSet([choose]).schemas(), "hermes", GREEDY)

    assert ids[-1] in engine.tokenizer.stop_ids
    assert phase.forced_tokens > len(ids) / 2
    assert phase.passes <= len(ids) - phase.forced_tokens
    assert phase.tokens == len(ids)
    assert phase.kv_after == phase.kv_before + len(ids) - 1


def test_what_was_forced_last_is_read_by_the_next_prefill(engine: Engine) -> None:
    """A decode that ends on forced tokens leaves them to the next prefill, with the same result."""
    full, _, _ = _call(engine, True, THREE, "hermes", GREEDY)
    for most in range(1, 14):
        cut, phase, session = _call(engine, True, THREE, "hermes", GREEDY, most)
        assert cut == full[:most]
        assert phase.kv_after == session.n_cached
        before = session.n_cached
        added = session.prefill([5, 6])
        assert added.kv_before == before
        assert added.token_ids == session.tokens[before:]
        mine = session.logits.copy()
        other = engine.session()
        other.prefill(session.tokens)
        assert np.array_equal(other.logits, mine)


def test_streaming_is_token_by_token(engine: Engine) -> None:
    """Whoever stops in the middle of what is forced has exactly what was yielded."""
    ids, constraint = _constraint(engine, THREE, "hermes")
    session = engine.session()
    start = session.prefill(engine.tokenizer.encode("Look. ") + ids).tokens
    seen = []
    for token in (tokens := session.decode(max_tokens=50, constraint=constraint)):
        seen.append(token)
        assert session.tokens[start:] == seen
        assert session.n_cached < len(session.tokens)
        if len(seen) == 4:
            break
    tokens.close()  # pyright: ignore[reportAttributeAccessIssue]

    assert session.tokens[start:] == seen
    assert session.last_phase is not None
    assert session.last_phase.token_ids == seen


def test_long_runs_of_forced_tokens(engine: Engine) -> None:
    """More forced tokens than a short pass takes are read in longer ones."""

    @tool
    def agree(
        terms: Literal["0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27"],
        sure: bool,
    ) -> str:
        """Agrees to the terms."""
        return f"{terms} {sure}"

    tools = ToolSet([agree]).schemas()
    long = 0
    for seed in range(6):
        sampling = replace(WILD, seed=seed)
        without, slow, _ = _call(engine, False, tools, "hermes", sampling, 250)
        jumped, fast, _ = _call(engine, True, tools, "hermes", sampling, 250)
        assert jumped == without
        assert fast.passes < slow.passes
        if "27" in engine.tokenizer.decode(jumped):
            long += 1
    assert long


def test_few_allowed_rows_of_the_head(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few tokens may come only their panels are read, and what is chosen is the same."""
    listed = []
    panels = decoding.Decoding._panels

    def watched(self: decoding.Decoding, mask):
        listed.append(panels(self, mask))
        return listed[-1]

    monkeypatch.setattr(decoding.Decoding, "_panels", watched)
    some, phase, _ = _call(engine, True, THREE, "hermes", replace(WILD, seed=3))
    assert any(one is not None for one in listed)
    monkeypatch.setattr(decoding, "FEW", 0.0)
    all_, whole, _ = _call(engine, True, THREE, "hermes", replace(WILD, seed=3))

    assert some == all_
    assert phase.bytes < whole.bytes
    assert phase.flops < whole.flops


@pytest.mark.slow
def test_logits_of_few_rows_are_nobodys(engine: Engine) -> None:
    """After a pass that computed a part of the logits the next decode computes them anew."""
    for most in range(1, 40):
        _, _, session = _call(engine, True, ONE, "hermes", GREEDY, most)
        tokens = list(session.tokens)
        after = list(session.decode(max_tokens=3))
        other = engine.session()
        other.prefill(tokens)
        assert after == list(other.decode(max_tokens=3))
