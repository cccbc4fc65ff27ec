"""The set: what it is made of, and that the frozen file is what the trees say."""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from labs.harness import asked, questions, trees
from labs.harness.asked import Ask, Asked
from labs.harness.gold import Tree, Unclear
from labs.harness.judge import judge
from labs.harness.questions import Question, compute, frozen, packed, sample

SET = frozen()
SINGLE = [one for one in SET if one.kind not in ("absent", "follow", "plain", "edit")]


def test_the_set_is_as_large_as_it_has_to_be() -> None:
    """By kind, language and kind of tree."""
    kinds = Counter(one.kind for one in SET)
    languages = Counter(one.language for one in SET)

    assert len(SINGLE) >= 200
    assert 2 * sum(trees.is_package(one.tree) for one in SINGLE) >= len(SINGLE)
    assert kinds["absent"] >= 60
    assert kinds["follow"] >= 40
    assert kinds["plain"] >= 12
    assert kinds["edit"] >= 40
    assert {*kinds} == {*asked.Kind.__args__}
    assert min(languages[code] for code in ("de", "es", "zh")) >= 10
    assert {one.tree for one in SET} == {*trees.NAMES}


def test_the_frozen_file_is_moderate() -> None:
    """It holds short strings of other projects, and no more of them."""
    assert questions.FROZEN.stat().st_size < 400_000
    for one in SET:
        for turn in one.turns:
            assert all(len(line.text) <= 120 for line in turn.lines)
            assert all(len(form) <= 120 for group in turn.need for form in group)


def test_own_trees_still_say_what_is_frozen() -> None:
    """Generators, finders and phrases together make the questions that were frozen."""
    assert compute(trees.FOLDERS) == [one for one in SET if one.tree in trees.FOLDERS]


@pytest.mark.skipif(
    not Path(os.environ.get(trees.VARIABLE, "?")).is_dir(),
    reason=f"{trees.VARIABLE} names no folder of downloads",
)
def test_package_trees_still_say_what_is_frozen() -> None:
    """The same over what nobody here wrote; together they are the file, byte by byte."""
    made = compute(trees.NAMES, Path(os.environ[trees.VARIABLE]))

    assert made == SET
    assert packed(made) == questions.FROZEN.read_bytes()


def test_another_file_is_not_the_set(tmp_path: Path) -> None:
    """A set is known by its SHA-256."""
    other = tmp_path / "frozen.json"
    other.write_bytes(questions.FROZEN.read_bytes() + b" ")

    with pytest.raises(ValueError, match="not the frozen set"):
        frozen(other)


def _gold(one: Question) -> str:
    forms = [re.sub(r"^[#@](?=-?\d)", "", group[0]) for group in one.turns[-1].need]
    return "It is not there." if one.unanswerable else ", ".join(forms) + "."


@pytest.mark.parametrize("one", [q for q in SET if q.kind != "edit"], ids=lambda one: one.id)
def test_the_gold_answer_is_right_and_a_refusal_is_not(one: Question) -> None:
    """The judge accepts what was computed; who says nothing has declined."""
    assert judge(one, _gold(one)) == "right"
    if not one.unanswerable and one.kind != "plain":
        assert judge(one, "I could not find that in these files.") == "declined"
        assert judge(one, "The answer is qwertz.") == "wrong"


def test_phrases_differ() -> None:
    """No two ask the same, and openings vary as people's do."""
    texts = [turn.ask for one in SINGLE for turn in one.turns]
    openings = Counter(" ".join(text.lower().split()[:2]) for text in texts)

    assert len(set(texts)) == len(texts)
    assert max(openings.values()) <= len(texts) / 8
    assert sum(text[:1].islower() for text in texts) >= len(texts) / 5


def test_a_sample_has_each_kind_by_its_share() -> None:
    """It is the same every time, and of the size that was asked for."""
    first, second = sample(SET, 40), sample(list(reversed(SET)), 40)
    counts = Counter(one.kind for one in first)

    assert len(first) == 40
    assert {one.id for one in first} == {one.id for one in second}
    for kind, whole in Counter(one.kind for one in SET).items():
        assert abs(counts[kind] - 40 * whole / len(SET)) <= 1
    assert sample(SET, 9_999) == SET


def _asked(*lines: str) -> Asked:
    one = Asked("edit", "made", "en", [Ask("do it")])
    for line in lines:
        asked._add(one, line[0], line[2:])
    return one


TREE = Tree({"a.ini": b"port = 1\nhost = x\n", "b.ini": b"port = 1\n"})


@pytest.mark.parametrize(
    ("lines", "after"),
    [
        (["! replace a.ini :: ^port = 1$ :: port = 2"], {"a.ini": "port = 2\nhost = x\n"}),
        (
            ["! everywhere *.ini :: port :: gate"],
            {"a.ini": "gate = 1\nhost = x\n", "b.ini": "gate = 1\n"},
        ),
        (["! add b.ini :: end :: host = y"], {"b.ini": "port = 1\nhost = y\n"}),
        (["! add a.ini :: port :: size = 3"], {"a.ini": "port = 1\nsize = 3\nhost = x\n"}),
        (["! drop a.ini :: host"], {"a.ini": "port = 1\n"}),
        (["= count *.ini :: port", "! create n.txt :: {0}"], {"n.txt": "2\n"}),
        (["! remove b.ini"], {"b.ini": None}),
        (["! move b.ini :: c.ini"], {"b.ini": None, "c.ini": "port = 1\n"}),
        (
            ["! replace a.ini :: port :: gate", "! drop a.ini :: host"],
            {"a.ini": "gate = 1\n"},
        ),
    ],
)
def test_what_a_task_makes_of_files(lines: list[str], after: dict[str, str | None]) -> None:
    """Each change is computed from the tree, one after the other."""
    assert _asked(*lines).after(TREE) == after


def test_a_change_that_fits_nowhere_is_refused() -> None:
    """Nor one that fits twice."""
    for change in ("! replace a.ini :: user :: x", "! replace a.ini :: = :: x"):
        with pytest.raises(Unclear, match="places of a"):
            _asked(change).after(TREE)


def test_a_question_that_tells_its_answer_is_refused() -> None:
    """Whoever repeats it would be right."""
    one = Asked("value", "made", "en", [Ask("is the host x?", [r"the a.ini :: host = (\w)"])])

    with pytest.raises(Unclear, match="tells the answer"):
        questions._computed(one, TREE)
