"""Trained weights are as near to float32 as llama.cpp's, on texts of twelve kinds.

`transformers` in float32 on the dequantized weights is the reference. llama.cpp's divergences were
recorded (`llama_cpp.json`, by `labs.bench.exactness --record`); where it is installed, they are
measured again. The texts here are the first of each kind, a quarter of what the command reads.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from helpers.peer_logits import peer_python
from helpers.texts import kinds, texts

from labs.bench.divergence import Score, perplexity_change, ratio, read_record
from labs.bench.exactness import LlamaCpp, Reference, measure
from triplepoint import Engine

pytestmark = pytest.mark.real

RECORD = Path(__file__).with_name("llama_cpp.json")
PEER = "llama.cpp f16"  # with its default cache

Scores = dict[str, dict[str, Score]]  # by engine and text


@pytest.fixture(scope="module")
def scores(model: Path) -> Scores:
    """Scores of the default cache, of a float32 cache, and of llama.cpp's."""
    pytest.importorskip("torch", reason="torch computes the reference")
    pytest.importorskip("transformers", reason="it computes the reference")
    found: Scores = {}
    with ExitStack() as stack:
        engines = {
            "default": stack.enter_context(Engine.load(model, context=4096)),
            "f32": stack.enter_context(Engine.load(model, context=4096, kv="f32")),
        }
        peers = {}
        if python := peer_python():
            peers[PEER] = stack.enter_context(closing(LlamaCpp(python, model, "f16")))
        for text, scored, _ in measure(Reference(model), engines, peers, texts(1)):
            for name, one in scored.items():
                found.setdefault(name, {})[text] = one
    recorded = read_record(RECORD, PEER, model.stem)
    found["recorded"] = {text: recorded[text] for text in found["default"]}
    return found


def ours_to(scores: Scores, other: str, ours: str = "default") -> tuple[list[Score], list[Score]]:
    """The scores of two engines, text by text."""
    return list(scores[ours].values()), list(scores[other].values())


def test_the_texts_are_of_twelve_kinds(scores: Scores) -> None:
    """Each engine has read some thousand tokens, the same ones."""
    assert len(scores["default"]) == len(kinds()) == 12
    assert sum(one.tokens for one in scores["default"].values()) > 5_000
    for other in scores.values():
        assert [a.ids for a in other.values()] == [b.ids for b in scores["default"].values()]


def test_as_near_as_llama_cpp(scores: Scores) -> None:
    """By text and in all, our divergence is llama.cpp's but for what a sum's order makes of it."""
    for other in (PEER, "recorded"):
        if other in scores:
            found = ratio(*ours_to(scores, other))
            assert found.median <= 1.1
            assert found.mean <= 1.25


def test_the_default_cache_costs_no_accuracy(scores: Scores) -> None:
    """Logits with the default cache are as close to the reference as with a float32 cache."""
    default, exact = ours_to(scores, "f32")
    assert ratio(default, exact).mean < 1.1
    assert max(a.kl / b.kl for a, b in zip(default, exact, strict=True)) < 2.0


def test_top_tokens_and_perplexity_are_the_references(scores: Scores) -> None:
    """As many top tokens agree as llama.cpp's do; the perplexity is within 0.5 %."""
    ours, theirs = ours_to(scores, "recorded")
    same, peers = (sum(one.same for one in each) for each in (ours, theirs))
    assert same >= 0.995 * peers
    assert abs(perplexity_change(ours)) < 0.005
