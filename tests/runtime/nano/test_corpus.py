"""The generated corpus."""

import json
from collections import Counter

import pytest

from triplepoint.runtime.nano import phrasings
from triplepoint.runtime.nano.corpus import FAMILIES, rounds
from triplepoint.runtime.nano.words import harvest


def test_a_seed_is_a_corpus() -> None:
    """The same seed gives the same rounds; another seed gives others."""
    first = rounds(11, 60, size=9)
    assert first == rounds(11, 60, size=9)
    assert first != rounds(12, 60, size=9)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("held_out", [False, True])
def test_answers_come_from_the_results(family: str, held_out: bool) -> None:
    """What an answer copies stands in the last result or in the question."""
    for item in rounds(3, 150, size=12, held_out=held_out, family=family):
        seen = "\n".join((item.question, *(result for _, result in item.steps)))
        copied = item.answer
        for frame in ("The error is: ", "The folder holds: ", "is mentioned in"):
            copied = copied.partition(frame)[2] or copied
        if family == "error" and copied != item.answer:
            assert copied in item.steps[-1][1]
        elif family == "list" and copied != item.answer:
            assert copied.split(", ") == item.steps[-1][1].split("\n")
        elif family == "line" and " says: " in item.answer:
            assert item.steps[0][1].endswith(item.answer.partition(" says: ")[2].rstrip())
        elif family == "key" and " is " in item.answer and not item.answer.startswith("There"):
            name, _, value = item.answer.partition(" is ")
            assert name in seen
            assert value in item.steps[-1][1]
        elif family == "chat":
            assert item.steps == ()


def test_calls_give_only_what_differs_from_the_defaults() -> None:
    """Arguments stand in schema order, without the default start or path."""
    order = ["path", "start", "end"], ["pattern", "path"]
    for item in rounds(5, 400, size=6):
        for call, _ in item.steps:
            names = list(call.arguments)
            assert any(names == [n for n in known if n in names] for known in order)
            assert call.arguments.get("start") != 1
            assert json.dumps(call.arguments)


def test_every_family_is_drawn() -> None:
    """A few hundred rounds hold every family."""
    counts = Counter(item.family for item in rounds(2, 600, size=6))
    assert set(counts) == set(FAMILIES)


def test_evaluation_shares_no_words_and_no_phrasings_with_training() -> None:
    """Held-out words and phrasings are other ones."""
    assert not set(harvest(False)) & set(harvest(True))
    assert len(harvest(True)) > 300
    for name, patterns in vars(phrasings).items():
        if name.endswith("_HELD_OUT"):
            trained = getattr(phrasings, name.removesuffix("_HELD_OUT"))
            assert not set(patterns) & set(trained)


@pytest.mark.parametrize("name", ["ERROR", "KEY", "LINE", "LIST", "SEARCH", "BOTH"])
def test_people_ask_in_many_ways(name: str) -> None:
    """At least 25 different phrasings of each main question."""
    assert len(set(getattr(phrasings, name))) >= 25


def test_the_question_of_the_readme_is_trained() -> None:
    """The command that the README shows is one of the phrasings."""
    assert "what's the error in {f}" in phrasings.ERROR
