"""Drafts from the context: fewer passes, and the same text to the last token."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny

from triplepoint.errors import ContextOverflowError, EngineError
from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.drafting.drafter import Drafter
from triplepoint.runtime.engine.drafting.length import DraftLengthPolicy
from triplepoint.runtime.engine.drafting.ngram_index import NgramIndex
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.sampling.settings import GREEDY, Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.tools import FileTools
from triplepoint.traces.events import PhaseEvent

PROMPT = np.random.default_rng(2).integers(0, tiny.VOCAB, 30).tolist() * 2
TEXT = (
    "app.log:\n10:01 ERROR disk full on /data\n10:02 INFO request 12 served\n"
    "What is the error? The error is: 10:01 ERROR disk full"
)


@pytest.fixture(scope="module")
def random_engine(tiny_model: Any) -> Iterator[Engine]:
    """A model of random weights, which repeats itself soon."""
    with Engine.load(tiny_model("q4_0"), threads=2, draft_tokens=0) as engine:
        yield engine


@pytest.fixture(scope="module")
def nano() -> Iterator[Engine]:
    """The embedded model."""
    with Engine.load("nano", draft_tokens=0) as engine:
        yield engine


@pytest.fixture(autouse=True)
def ready_to_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are made whatever they cost here: `test_draft_length.py` tests when they pay."""
    monkeypatch.setattr(Drafter, "_cheap", False)
    monkeypatch.setattr(DraftLengthPolicy, "count", lambda self, same, known, most: most)


def _decode(
    engine: Engine, most: Any, ids: list[int], steps: int = 60, **settings: Any
) -> tuple[list[int], PhaseEvent, Session]:
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=most)
    session.prefill(ids)
    out = list(session.decode(max_tokens=steps, **settings))
    assert session.last_phase is not None
    return out, session.last_phase, session


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_the_text_is_the_same(random_engine: Engine, nano: Engine, temperature: float) -> None:
    """With one draft a pass or sixteen, greedy or by chance, the tokens are those without."""
    accepted = drafted = 0
    for engine, ids in ((random_engine, PROMPT), (nano, nano.tokenizer.encode(TEXT * 2))):
        for seed in range(3):
            sampling = Sampling(temperature, seed=seed) if temperature else GREEDY
            without, slow, _ = _decode(engine, 0, ids, sampling=sampling)
            for most in (1, 3, 8, 16):
                with_drafts, phase, session = _decode(engine, most, ids, sampling=sampling)
                assert with_drafts == without
                assert session.tokens == ids + without
                assert (phase.kv_before, phase.kv_after) == (slow.kv_before, slow.kv_after)
                assert session.n_cached == len(session.tokens) - 1
                assert phase.passes == slow.passes - phase.accepted_tokens
                accepted += phase.accepted_tokens
                drafted += phase.drafted_tokens
    assert 0 < accepted < drafted


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"dry_multiplier": 0.8, "dry_penalty_last_n": -1, "dry_allowed_length": 3},
        {"temperature": 0.7, "dry_multiplier": 0.1, "mirostat": 0, "xtc_probability": 0.3},
        {"temperature": 0.8, "mirostat": 1, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
        {"temperature": 0.8, "mirostat": 2, "mirostat_tau": 1.0, "mirostat_eta": 0.5},
        {"temperature": 0.5, "dynatemp_range": 0.4, "typical_p": 0.8, "top_n_sigma": 2.0},
    ],
    ids=str,
)
def test_history_follows_what_was_kept(
    random_engine: Engine, nano: Engine, settings: dict[str, Any]
) -> None:
    """Samplers that look back see the tokens that were chosen, and no draft that was wrong."""
    accepted = drafted = 0
    for engine, ids in ((random_engine, PROMPT), (nano, nano.tokenizer.encode(TEXT * 2))):
        sampling = Sampling(**settings, seed=1)
        without, _, _ = _decode(engine, 0, ids, sampling=sampling)
        for most in (3, 16):
            with_drafts, phase, _ = _decode(engine, most, ids, sampling=sampling)
            assert with_drafts == without
            accepted += phase.accepted_tokens
            drafted += phase.drafted_tokens
    assert 0 < accepted < drafted


def test_wrong_drafts_change_nothing(
    random_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts that are always wrong, or wrong from some place on, leave text and cache right."""
    without, _, _ = _decode(random_engine, 0, PROMPT)
    for good in (0, 1, 4):

        def draft(self: NgramIndex, place: Any, count: int, good: int = good) -> list[int]:
            done = len(self.tokens) - len(PROMPT)
            right = without[done : done + good]
            return [*right, *[(t + 1) % tiny.VOCAB for t in without[done + good :]]][:count]

        monkeypatch.setattr(NgramIndex, "draft", draft)
        with_drafts, phase, session = _decode(random_engine, 8, PROMPT)
        assert with_drafts == without
        assert phase.drafted_tokens > phase.accepted_tokens
        assert (phase.accepted_tokens > 0) == (good > 0)
        session.prefill([1, 2, 3])
        mine = session.logits.copy()
        other = random_engine.session()
        other.prefill([*PROMPT, *without, 1, 2, 3])
        assert np.array_equal(other.logits, mine)


def test_calls_are_the_same(nano: Engine, tmp_path: Path) -> None:
    """Under a grammar too, with forced tokens between the drafts."""
    grammar = CallGrammar(nano.tokenizer, [one.schema() for one in FileTools(tmp_path)], "hermes")
    call = '<tool_call>\n{"name": "read_file", "arguments": {"path": "app.log", "start": 1}}\n'
    ids = nano.tokenizer.encode(f"{call}</tool_call>\n{TEXT}\n", special=True)
    drafted = 0
    for seed in range(4):
        sampling = Sampling(0.8, seed=seed) if seed else GREEDY
        seen = []
        for most in (0, 4, 16):
            constraint = grammar.constraint()
            opening = nano.tokenizer.encode("<tool_call>", special=True)
            for token in opening:
                constraint.advance(token)
            stop = nano.tokenizer.stop_ids
            out, phase, _ = _decode(
                nano, most, ids + opening, 80, constraint=constraint, sampling=sampling, stop=stop
            )
            seen.append(out)
            drafted += phase.drafted_tokens
        assert seen[0] == seen[1] == seen[2]
    assert drafted


def test_any_end(random_engine: Engine) -> None:
    """Limits, stop tokens and listeners that leave end a decode at the same token."""
    without, _, _ = _decode(random_engine, 0, PROMPT)
    for most in (1, 2, 5, 17, 40):
        cut, phase, session = _decode(random_engine, 8, PROMPT, most)
        assert cut == without[:most]
        assert phase.tokens == most
        assert session.n_cached == len(session.tokens) - 1
    for at in (3, 20, 41):
        stop = {without[at]}
        plain, _, _ = _decode(random_engine, 0, PROMPT, stop=stop)
        with_drafts, _, session = _decode(random_engine, 8, PROMPT, stop=stop)
        assert with_drafts == plain
        assert session.n_cached == len(session.tokens) - 1
    for left in range(1, 30, 4):
        session = random_engine.session()
        session.phases.drafting.settings = SpeculativeConfig(draft_tokens=8)
        session.prefill(PROMPT)
        decoding = session.decode(max_tokens=60)
        got = list(itertools.islice(decoding, left))
        decoding.close()  # pyright: ignore[reportAttributeAccessIssue]
        assert session.tokens == PROMPT + got
        assert session.n_cached == len(session.tokens) - 1
        assert got + list(session.decode(max_tokens=60 - left)) == without


def test_a_full_context(random_engine: Engine) -> None:
    """Drafts never reach past the context; the error comes at the same token."""
    for size in range(len(PROMPT) + 1, len(PROMPT) + 40, 3):
        seen = []
        for most in (0, 16):
            session = random_engine.session(context=size)
            session.phases.drafting.settings = SpeculativeConfig(draft_tokens=most)
            session.prefill(PROMPT)
            with pytest.raises(ContextOverflowError, match="the context is full"):
                list(session.decode(max_tokens=100))
            assert session.last_phase is not None
            seen.append(session.last_phase.token_ids)
        assert seen[0] == seen[1]
        assert len(PROMPT) + len(seen[0]) == size


def test_truncated_and_told_otherwise(random_engine: Engine) -> None:
    """What was cut off is not drafted from, and decoding goes on as in a new session."""
    _, _, session = _decode(random_engine, 8, PROMPT)
    for n in (70, 40, 10):
        session.truncate(n)
        session.prefill([5, 6, 7])
        kept = list(session.tokens)
        assert list(session.decode(max_tokens=20)) == _decode(random_engine, 0, kept, 20)[0]


def test_a_fork_goes_on_alike(random_engine: Engine) -> None:
    """A fork in the middle of accepted drafts has what was yielded, and writes the same."""
    without, _, _ = _decode(random_engine, 0, PROMPT)
    session = random_engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=8)
    session.prefill(PROMPT)
    got, forks = [], []
    for token in session.decode(max_tokens=40):
        got.append(token)
        if len(got) % 7 == 3:
            forks.append((len(got), session.fork()))
    assert got == without[:40]
    for n, fork in forks:
        assert fork.tokens == PROMPT + without[:n]
        assert list(fork.decode(max_tokens=60 - n)) == without[n:]


def test_two_at_once(random_engine: Engine) -> None:
    """Two threads on one engine, both drafting, do not mix."""
    prompts = [PROMPT, PROMPT[7:37] * 2]
    alone = [_decode(random_engine, 0, ids)[0] for ids in prompts]
    found: dict[int, list[int]] = {}

    def work(n: int) -> None:
        found[n] = _decode(random_engine, 6, prompts[n])[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == alone


def test_the_accounts_count_what_was_computed(random_engine: Engine) -> None:
    """Rejected drafts are work too; tokens and positions are what was kept."""
    _, slow, _ = _decode(random_engine, 0, PROMPT, steps=150)  # until it repeats itself
    _, phase, _ = _decode(random_engine, 8, PROMPT, steps=150)
    rejected = phase.drafted_tokens - phase.accepted_tokens

    assert phase.tokens == slow.tokens
    assert phase.token_ids == slow.token_ids
    assert phase.passes < slow.passes
    assert rejected > 5
    assert phase.flops == pytest.approx(slow.flops * (1 + rejected / slow.passes), rel=0.03)
    assert phase.bytes < slow.bytes
    assert phase.saved_s != 0
    assert (slow.drafted_tokens, slow.accepted_tokens, slow.saved_s) == (0, 0, 0.0)


@pytest.mark.parametrize("wrong", [-1, 17, "some", 2.5])
def test_settings_that_make_no_sense(wrong: Any) -> None:
    """What is no number of drafts is refused before anything is loaded."""
    with pytest.raises(EngineError, match="draft_tokens"):
        Engine.load("nano", draft_tokens=wrong)
    assert replace(SpeculativeConfig(), draft_tokens=16).jump_forward
