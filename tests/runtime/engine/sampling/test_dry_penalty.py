"""Penalties for going on with a repetition."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from helpers.pools import pool_of

from triplepoint.runtime.engine.sampling.dry_penalty import Breakers, DryPenalty, breakers_of
from triplepoint.runtime.engine.sampling.logit_ranking import LogitRanker
from triplepoint.runtime.engine.sampling.sampler import Sampler
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.tokens.tokenizer import Tokenizer

A, B, C, D = range(4)


def _lengths(tokens: list[int], tails: dict[int, set[tuple[int, ...]]], **more: Any) -> Any:
    settings = Sampling(dry_multiplier=1.0, **{"dry_penalty_last_n": -1, **more})
    return DryPenalty(settings.filled(), tokens, Breakers(tails, 4)).lengths()


@pytest.mark.parametrize(
    ("tokens", "tails", "more", "want"),
    [
        ([A, B, C, D, A, B], {}, {}, {C: 2}),
        ([A, B, C, D, B], {}, {}, {}),  # one token may be repeated
        ([A, B, C, D, B], {}, {"dry_allowed_length": 1}, {C: 1}),
        ([A, B, C, B, D, A, B], {}, {"dry_allowed_length": 1}, {C: 2, D: 1}),
        ([A, A, A, A], {}, {}, {A: 3}),  # it may overlap itself
        ([A, B, C, D, A, B], {}, {"dry_penalty_last_n": 5}, {}),
        ([A, B, C, D, A, B], {}, {"dry_penalty_last_n": 6}, {C: 2}),
        ([A, B, C, D, A, B], {A: {()}}, {}, {}),  # one token after the breaker
        ([A, B, C, D, A, B], {D: {()}}, {}, {C: 2}),
        ([A, B, C, D, A, B], {C: {()}}, {}, {}),  # what would come is a breaker
        ([A, B, C, D, A, B], {D: {(A,)}}, {}, {}),
        ([A, B, C, D, A, B], {D: {(B,)}}, {}, {C: 2}),  # a breaker that is not whole
        ([A, B], {}, {"dry_allowed_length": 0}, {B: 0}),
        ([], {}, {}, {}),
    ],
)
def test_how_much_is_repeated(
    tokens: list[int], tails: dict[int, Any], more: dict[str, Any], want: dict[int, int]
) -> None:
    """By hand: by the token that would go on with it."""
    assert _lengths(tokens, tails, **more) == want


def test_the_penalty_grows() -> None:
    """By the base with each token; a long repetition costs as good as everything, and is finite."""
    settings = Sampling(dry_multiplier=0.5, dry_base=2.0, dry_penalty_last_n=-1).filled()
    logits = np.zeros(4, np.float32)
    DryPenalty(settings, [A, B, C, D, A, B, C], Breakers({}, 4)).change(logits)
    assert logits.tolist() == [0, 0, 0, -1.0]
    long = DryPenalty(settings, [A, B] * 40, Breakers({}, 4))
    for token in [A, B] * 2000:
        long.accept(token)
    long.change(logits)
    assert -logits[A] == np.float32(1e30)
    huge = Sampling(dry_multiplier=1e300, dry_base=1e300).filled()
    DryPenalty(huge, [A, B] * 9, Breakers({}, 4)).change(logits)
    assert np.isfinite(logits).all()


def test_texts_that_break_sequences(nano_tokenizer: Tokenizer) -> None:
    """All tokens that hold one; and those that one begins in, with what is to follow."""
    tokenizer = nano_tokenizer
    texts = {token: tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)}
    found = breakers_of(tokenizer, ["\n", ":"])
    assert found.whole == {t for t, text in texts.items() if b"\n" in text or b":" in text}
    assert set(found.tails) == found.whole
    long = breakers_of(tokenizer, ["xyzé"])
    ends = {t for t, text in texts.items() if text.endswith((b"x", b"xy", b"xyz", b"xyz\xc3"))}
    assert {t for t, text in texts.items() if text.endswith(b"x")} <= set(long.tails) <= ends
    (x,) = tokenizer.encode("x")
    assert tuple(tokenizer.encode("yzé")) in long.tails[x]
    assert breakers_of(tokenizer, ["xyzé"]) is long
    ids = tokenizer.encode("ab ab")
    assert long.since(np.array([*ids, *tokenizer.encode("xyzé"), *ids])) == len(ids)


class _Calls:
    calling = False


def test_it_looks_at_the_prompt_and_rests_in_calls() -> None:
    """It sees what was there before, and what was written; in a call nothing is penalized."""
    logits, calls = np.array([0, 0, 1, 0.5], np.float32), _Calls()
    with pool_of(1) as (library, pool):
        ranking = LogitRanker(4, library, pool)
        settings = Sampling(temperature=0, dry_multiplier=5.0)
        sampler = Sampler(settings, ranking, 5, calls, before=[A, B, C, D, A])
        assert sampler.pick(logits, None) == C
        sampler.accept(B)
        assert sampler.pick(logits, None) == D
        calls.calling = True
        assert sampler.pick(logits, None) == C
        sampler.accept(C)
        calls.calling = False
        logits[D] = 9.0
        assert sampler.pick(logits, None) == C  # a b c was there before d


def test_settings_of_a_trace() -> None:
    """They are there where they are in use, as JSON."""
    used = Sampling(0.5, dry_multiplier=0.8, dry_sequence_breakers=["\n", "X:"])
    told = json.loads(json.dumps(used.as_dict()))
    assert told["dry_sequence_breakers"] == ["\n", "X:"]
    assert "dry_base" not in told
    assert Sampling(**told).filled() == used.filled()
    assert not Sampling(0.0, dry_multiplier=0.8).filled().plain
    assert Sampling(0.0, dry_multiplier=0.8, dry_penalty_last_n=0).filled().plain
