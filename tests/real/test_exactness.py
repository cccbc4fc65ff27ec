"""Trained weights are as near to float32 as llama.cpp's, on texts of twelve kinds.

`transformers` in float32 on the dequantized weights is the reference. llama.cpp's divergences are
measured where it is installed, and were recorded for elsewhere (`llama_cpp.json`, by
`labs.bench.exactness --tokens 256 --record`). The texts here are the first of each kind.
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
TOKENS = 256  # of each text
PEER = "llama.cpp f16"  # with its default cache
OTHERS = ("f32", "k16v8", "q8")

Scores = dict[str, list[Score]]  # of an engine, by text


@pytest.fixture(scope="module")
def scores(model: Path) -> Scores:
    """Scores of the default cache, of the others, and of llama.cpp's."""
    pytest.importorskip("torch", reason="torch computes the reference")
    pytest.importorskip("transformers", reason="it computes the reference")
    found: Scores = {}
    with ExitStack() as stack:
        engines = {
            "default": stack.enter_context(Engine.load(model, context=TOKENS)),
            **{kv: stack.enter_context(Engine.load(model, context=TOKENS, kv=kv)) for kv in OTHERS},
        }
        peers = {}
        if python := peer_python():
            peers[PEER] = stack.enter_context(closing(LlamaCpp(python, model, "f16")))
        for _, scored, _ in measure(Reference(model), engines, peers, texts(1), TOKENS):
            for name, one in scored.items():
                found.setdefault(name, []).append(one)
    if PEER not in found:
        recorded = read_record(RECORD, PEER, model.stem)
        found[PEER] = [recorded[text] for text in texts(1)]
    return found


def test_the_texts_are_of_twelve_kinds(scores: Scores) -> None:
    """Each engine has read some thousand tokens, the same ones."""
    assert len(scores["default"]) == len(kinds()) == 12
    assert sum(one.tokens for one in scores["default"]) > 2_500
    assert len({tuple(one.ids for one in of_engine) for of_engine in scores.values()}) == 1


def test_as_near_as_llama_cpp(scores: Scores) -> None:
    """By text and in all, our divergence is llama.cpp's but for what a sum's order makes of it."""
    found = ratio(scores["default"], scores[PEER])
    assert found.median <= 1.08
    assert found.mean <= 1.12


def test_the_default_cache_costs_no_accuracy(scores: Scores) -> None:
    """Logits with the default cache are as close to the reference as with a float32 cache."""
    assert ratio(scores["default"], scores["f32"]).mean < 1.1
    pairs = zip(scores["default"], scores["f32"], strict=True)
    assert max(default.kl / exact.kl for default, exact in pairs) < 1.5


def test_bytes_in_the_cache_cost_little(scores: Scores) -> None:
    """Values in bytes cost next to nothing; keys in bytes no more than rounded activations do."""
    assert ratio(scores["k16v8"], scores["f32"]).mean < 1.2
    assert ratio(scores["q8"], scores["f32"]).mean < 3.0


def test_top_tokens_and_perplexity_are_the_references(scores: Scores) -> None:
    """As few top tokens differ as llama.cpp's do, but for chance; perplexity is within 0.5 %."""
    ours, theirs = (
        sum(one.tokens - one.same for one in scores[name]) for name in ("default", PEER)
    )
    assert ours <= theirs + 4 * theirs**0.5
    assert abs(perplexity_change(scores["default"])) < 0.005
