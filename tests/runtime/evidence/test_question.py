"""What a question is about."""

from __future__ import annotations

import pytest

from triplepoint.runtime.evidence.question import read


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("What is line 12 of app.log?", (12, 12)),
        ("Was steht in Zeile 7?", (7, 7)),
        ("qué dice la línea 3", (3, 3)),
        ("第12行是什么", (12, 12)),
        ("show lines 10-20", (10, 20)),
        ("lines 3 to 5 please", (3, 5)),
        ("what is at app.py:31", (31, 31)),
        ("3rd line in hosts", (3, 3)),
        ("the very last line of it", (-1, -1)),
        ("What is the first line?", (1, 1)),
        ("How many lines?", None),
        ("which port, 22 or 80?", None),
    ],
)
def test_numbers(text: str, numbers: tuple[int, int] | None) -> None:
    """Lines that are asked for by number, in several languages."""
    assert read(text).numbers == numbers


def test_small_talk() -> None:
    """Greetings and thanks are told from questions."""
    for text in ("hello", "Hi there! How are you today?", "thanks, that's all", "你好", "Hallo!"):
        assert read(text).small, text
    for text in ("What port?", "hello.py", "help", "¿Qué puerto?", ""):
        assert not read(text).small or text == "help", text


def test_faults_counts_and_ends() -> None:
    """Words about failures, numbers and the last of something are seen."""
    assert read("Why did the backup stop?").faults
    assert read("Was ist schiefgegangen?").faults
    assert read("How many orders are open?").counts
    assert read("What was the last error?").ends
    plain = read("Which port does it use?")
    assert (plain.faults, plain.counts, plain.ends) == (False, False, False)


def test_going_on() -> None:
    """A short question takes what was asked before with it; a full one does not."""
    going_on = read("and which host?", ["Which port does the mail server use?"])
    assert going_on.follows
    assert going_on.own.telling == ["host"]
    assert 0 < going_on.terms.weights["mail"] < going_on.terms.weights["host"]

    full = "Which timeout does the nginx upstream server have in production?"
    assert not read(full, ["Which port does the mail server use?"]).follows
    assert not read("and which host?").follows


@pytest.mark.parametrize(
    ("task", "removes", "moves"),
    [
        ("Set the port to 80", False, False),
        ("Delete the error line in app.log", False, False),
        ("Delete the TODO comment in app.py", False, False),
        ("Delete app.log", True, False),
        ("we don't need app.log anymore", True, False),
        ("Rename app.log to old.log", False, True),
        ("Lösche app.log", True, False),
        ("把 app.log 删除", True, False),
        ("renombra app.log a viejo.log", False, True),
    ],
)
def test_whole_files_go_only_where_that_is_asked(task: str, removes: bool, moves: bool) -> None:
    """A task that changes a line deletes and moves no file."""
    asked = read(task)
    assert (asked.removes, asked.moves) == (removes, moves)


def test_tasks() -> None:
    """A change that is asked for is a task; a question about one is none."""
    assert read("Make the watering start at 06:15 instead of 05:30").acts
    assert read("06:15 statt 05:30, bitte").acts
    assert not read("Why does it start at 06:15 instead of 05:30?").acts
    assert not read("Summarize app.log").acts
