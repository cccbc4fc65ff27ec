"""Sentences that change nothing: filled, varied, and a question stays whole among them."""

from __future__ import annotations

import random

from labs.nano.chatter import around, fronted, sentence

QUESTION = "what is {k} in {f}"


def test_sentences_are_filled_and_many() -> None:
    """No slot is left, and a thousand draws are nearly as many sentences."""
    rng = random.Random(1)
    drawn = {sentence(rng, lambda: "zorn") for _ in range(1000)}
    assert len(drawn) > 700
    assert not any("{" in text or "  " in text for text in drawn)
    assert any("zorn" in text for text in drawn)


def test_a_question_stands_whole_among_them() -> None:
    """Its slots are there once, its words in their order; something stands beside them."""
    rng = random.Random(2)
    for _ in range(500):
        text = around(rng, QUESTION, lambda: "zorn")
        assert text.lower().count(QUESTION) == 1
        assert len(text) > len(QUESTION)


def test_a_file_is_said_first() -> None:
    """The name moves to the front; without a place for it the question is as it was."""
    rng = random.Random(3)
    for _ in range(200):
        text = fronted(rng, QUESTION, lambda: "zorn")
        assert text.count("{f}") == text.count("{k}") == 1
        assert text.index("{f}") < text.lower().index("what is {k}")
    assert fronted(rng, "what about {f}", lambda: "zorn") == "what about {f}"
    assert fronted(rng, "{k} of {f}, {f}", lambda: "zorn") == "{k} of {f}, {f}"
