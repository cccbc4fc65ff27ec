"""`judge`: what counts as right, as wrong, and as declined, in four languages."""

from __future__ import annotations

from pathlib import Path

import pytest

from labs.harness.judge import (
    content_digest,
    date_forms,
    judge,
    judge_files,
    numbers,
    says_not,
    snapshot,
    tells_number,
)
from labs.harness.questions import Question, Turn


def asked(*need: tuple[str, ...], none: tuple[str, ...] = (), absent: bool = False) -> Question:
    """A question with these answers."""
    turn = Turn("?", need, none)
    return Question("id", "absent" if absent else "value", "en", "pi", (turn,), absent)


@pytest.mark.parametrize(
    "answer",
    [
        "Port 2217.",
        "It is **2217** (ssh/sshd_config:2)",
        "`Port 2217`",
        "sshd listens on 0.0.0.0:2217",
        "2,217",
        "端口是2217。",
    ],
)
def test_a_value_is_found_in_any_dress(answer: str) -> None:
    """Emphasis, quotation marks, a sentence in another script and a separator do not matter."""
    assert judge(asked(("2217",)), answer) == "right"


@pytest.mark.parametrize("answer", ["SQLite", "`SQLite`_", "SQLite_.", "**'SQLite'**", "„SQLite“"])
def test_marks_of_a_word_are_no_part_of_it(answer: str) -> None:
    """Of Markdown, of reStructuredText and of quotation."""
    assert judge(asked(("SQLite",)), f"It uses {answer} for that") == "right"
    assert judge(asked(("__init__.py",)), f"__init__.py and {answer}") == "right"


@pytest.mark.parametrize("answer", ["22170", "12217", "2217.5", "port 22", "The port is open."])
def test_part_of_a_number_is_another_number(answer: str) -> None:
    """A value counts only whole."""
    assert judge(asked(("2217",)), answer) == "wrong"


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("There are 20,000 lines.", "20000"),
        ("Es sind 20.000 Zeilen.", "20000"),
        ("20 000 líneas", "20000"),
        ("20'000", "20000"),
        ("The sum is €234,017.36.", "234017.36"),
        ("Die Summe ist 234.017,36 Euro", "234017.36"),
        ("about 234017.4", "234017.36"),
        ("62.4517", "62.45"),
        ("three of them", "3"),
        ("dreimal", "3"),
        ("有四个", "4"),
        ("It is in line 12: there are 4.", "4"),
    ],
)
def test_numbers_in_the_forms_of_people(answer: str, number: str) -> None:
    """Separators of both kinds, a rounded decimal, and words for small numbers."""
    assert judge(asked((f"#{number}",)), answer) == "right"


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        ("See line 4 and lines 3, 4 and 5.", "4"),
        ("1. first\n2. second\n3. third", "3"),
        ("2026-03-04 10:04:04 it failed", "4"),
        ("234017", "234017.36"),
        ("20000.5", "20000"),
        ("1, 2, 3, 4, 5, 6, 7", "4"),
        ("app.log:4", "4"),
    ],
)
def test_numbers_that_count_something_else(answer: str, number: str) -> None:
    """Places, list numbers, dates and times, and one number among many, are no answer."""
    assert not tells_number(answer, number)


def test_readings_of_a_number() -> None:
    """One text may mean two numbers."""
    assert numbers("1.234") == [{"1.234", "1234"}]
    assert numbers("1,234") == [{"1234", "1.234"}]
    assert numbers("1.234,50") == [{"1234.50"}]


@pytest.mark.parametrize(
    "answer",
    ["2026-03-09", "9 March 2026", "March 9th, 2026", "am 9. März", "el 9 de marzo de 2026"],
)
def test_dates_in_the_forms_of_people(answer: str) -> None:
    """A date is right in any of four languages."""
    assert judge(asked(("@2026-03-09",)), answer) == "right"
    assert judge(asked(("@2026-03-19",)), answer) == "wrong"
    assert "3月9日" in date_forms("2026-03-09")


def test_all_groups_and_none_of_the_others() -> None:
    """Each group needs one of its forms; what is true of something else may not stand beside."""
    question = asked(("yellow",), ("orange", "amber"), none=("silver",))

    assert judge(question, "yellow and amber") == "right"
    assert judge(question, "yellow") == "wrong"
    assert judge(question, "yellow, orange, silver") == "wrong"


def test_the_number_of_a_line_is_not_another_value() -> None:
    """A source beside the answer does not make it wrong."""
    question = asked(("10",), none=("3",))

    assert judge(question, "10 (wifi.conf:3)") == "right"
    assert judge(question, "10 or 3") == "wrong"


DECLINED = [
    "There is no such file.",
    "The file does not contain a password.",
    "I could not find it in this folder.",
    "It's not mentioned anywhere in these files.",
    "No information about passengers is given.",
    "Nothing in the folder says so.",
    "Das steht nicht in diesen Dateien, es ist nicht angegeben.",
    "Es gibt keine Datei mit diesem Namen.",
    "Dazu habe ich keine Angaben gefunden.",
    "No se encuentra en la carpeta.",
    "No hay ningún archivo con ese nombre.",
    "文件里没有提到。",
    "找不到这个文件。",
]


@pytest.mark.parametrize("answer", DECLINED)
def test_saying_that_it_is_not_there(answer: str) -> None:
    """It declines a question that has an answer, and answers one that has none."""
    assert judge(asked(("2217",)), answer) == "declined"
    assert judge(asked(absent=True), answer) == "right"


@pytest.mark.parametrize(
    "answer",
    [
        "The password is hunter2.",
        'The error is "connection not found in this pool".',
        "`No such file or directory`",
        "Das Passwort ist 1234.",
        "La contraseña es gato.",
        "密码是 1234。",
    ],
)
def test_something_else_stated_as_a_fact(answer: str) -> None:
    """It is wrong, also where what it quotes has the words of a denial."""
    assert not says_not(answer)
    assert judge(asked(("2217",)), answer) == "wrong"
    assert judge(asked(absent=True), answer) == "wrong"


def test_a_value_of_something_near_is_a_fact() -> None:
    """Who tells it first has answered another question; who denies first has helped."""
    question = asked(none=("8080",), absent=True)

    assert judge(question, "It is 8080. Another one is not there.") == "wrong"
    assert judge(question, "There is no port in [metrics]; [server] has 8080.") == "right"


def test_a_denial_with_a_false_value_is_wrong() -> None:
    """An answerable question is not declined by who states the value of another key."""
    assert judge(asked(("16",), none=("20.5",)), "It is not specified, so 20.5.") == "wrong"


def test_words_of_the_question_deny_nothing() -> None:
    """An answer that repeats them states a fact."""
    turn = Turn("How many had no answer?", (("#156",),))
    question = Question("id", "count", "en", "zeek", (turn,))

    assert judge(question, "There are 10 that had no answer.") == "wrong"
    assert judge(question, "156 had no answer.") == "right"
    assert judge(question, "There is no such log.") == "declined"


def test_empty_and_endless_answers() -> None:
    """Nothing states nothing; a whole file is no answer."""
    assert judge(asked(("2217",)), "  ") == "declined"
    assert judge(asked(("2217",)), "Port 2217 " + "x " * 2000) == "wrong"


def test_the_first_of_two_turns() -> None:
    """Each turn has its own answer."""
    turns = (Turn("?", (("xfs",),)), Turn("and /?", (("ext4",),), ("xfs",)))
    question = Question("id", "follow", "en", "host", turns)

    assert judge(question, "xfs", 0) == "right"
    assert judge(question, "xfs") == "wrong"
    assert judge(question, "ext4") == "right"


def test_tasks_are_judged_by_their_files(tmp_path: Path) -> None:
    """Right is what was asked for and nothing else; nothing done is declined or a false claim."""
    (tmp_path / "a.ini").write_text("port = 1\n")
    (tmp_path / "b.ini").write_text("port = 2\n")
    before = snapshot(tmp_path)
    after = (("a.ini", content_digest(b"port = 9")), ("b.ini", ""))
    question = Question("id", "edit", "en", "pi", (Turn("?"),), after=after)

    assert judge_files(question, tmp_path, before, "I cannot edit files.") == "declined"
    assert judge_files(question, tmp_path, before, "") == "declined"
    assert judge_files(question, tmp_path, before, "Done.") == "wrong"
    (tmp_path / "a.ini").write_text("port = 9  \r\n\n")
    assert judge_files(question, tmp_path, before, "Done.") == "wrong"
    (tmp_path / "b.ini").unlink()
    (tmp_path / ".triplepoint-trash").mkdir()
    (tmp_path / ".triplepoint-trash" / "b.ini").write_text("port = 2\n")
    assert judge_files(question, tmp_path, before, "Done.") == "right"
    (tmp_path / "c.ini").write_text("")
    assert judge_files(question, tmp_path, before, "Done.") == "wrong"
