"""Files by their place in a list, and what a short question is asked of."""

from __future__ import annotations

import random

import pytest

from labs.nano import short, talks
from labs.nano.places import MOST, moved, place_of, said_place
from labs.nano.words import Lexicon
from labs.nano.writer import Round, Writer

FILES = ["a.log", "b.ini", "c.md", "d.py", "e.yaml"]


@pytest.mark.parametrize(
    ("way", "path"),
    [
        ("open the first one", "a.log"),
        ("and the 2nd?", "b.ini"),
        ("number three please", "c.md"),
        ("no. 4", "d.py"),
        ("show me #5", "e.yaml"),
        ("the last file", "e.yaml"),
        ("the sixth one", None),
        ("that one", None),
    ],
)
def test_a_place_is_a_file(way: str, path: str | None) -> None:
    """Ordinals in words and figures, numbers, and the last; none where the list is too short."""
    assert place_of(way, FILES) == path


def test_a_way_with_another_place_means_a_file_of_the_list() -> None:
    """Each place that is put into a way, or said in a question, is read as what it was."""
    rng = random.Random(3)
    seen = {place_of(moved(rng, "let me see the second one", FILES), FILES) for _ in range(400)}
    assert seen == set(FILES[1:])
    for place in range(len(FILES)):
        for _ in range(50):
            assert place_of(said_place(rng, place, len(FILES)), FILES) == FILES[place]
    assert len(FILES) < MOST


def followed(count: int) -> list[Round]:
    """Rounds that go on with a conversation."""
    writer = Writer(Lexicon(random.Random(8)), 6)
    return [item for _ in range(count) for item in talks.talk(writer)[1:]]


def test_one_word_that_may_be_a_part_of_a_name_is_looked_for_as_one_first() -> None:
    """`and duplex?` after a setting: a file of that name is tried, then the setting is read."""
    assert {"n {k}", "{k} too", "oops, {k}"} <= set(short.KEY_OR_PART)
    assert not set(short.KEY_OR_PART) & set(short.A_KEY)
    assert "n {p}" not in short.PART_NOT_KEY
    tried = [
        item
        for item in followed(1500)
        if len(item.steps) > 1
        and item.steps[0][1].startswith("error: no such file or folder: ")
        and " is " in item.answer
        and item.steps[1][0].arguments["pattern"] == item.steps[0][0].arguments.get("path")
    ]
    assert tried
    for item in tried:
        assert "(there " not in item.steps[0][1], "no file of that name is there"
        assert item.steps[1][0].arguments["path"] in item.files.texts
