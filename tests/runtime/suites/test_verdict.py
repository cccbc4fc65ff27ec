"""What counts as a right answer, and what as invented."""

from __future__ import annotations

import pytest

from triplepoint.runtime.suites.suite_files import Turn
from triplepoint.runtime.suites.verdict import (
    accept,
    as_evidence,
    evidence,
    fold,
    holds,
    invented,
    says_cannot,
)


@pytest.mark.parametrize(
    ("text", "fact", "found"),
    [
        ("port is 80.", "80", True),
        ("port is 8080", "80", False),
        ("it took 1.80 s", "80", False),
        ("version 80.1", "80", False),
        ('The value is "Eu-Central  2"', "eu-central 2", True),
        ("errors", "error", False),
        ("‘foo’ undeclared", "'foo' undeclared", True),
        ("in config/app.ini", "app.ini", True),
    ],
)
def test_facts_are_whole_words_and_numbers(text: str, fact: str, found: bool) -> None:
    """Case, quotation marks and spaces do not matter; a piece of a longer word does not count."""
    assert holds(fold(text), fact) is found


@pytest.mark.parametrize(
    ("rules", "answer", "right"),
    [
        ({"has": (("a", "b"), ("7",))}, "b and 7", True),
        ({"has": (("a", "b"), ("7",))}, "b", False),
        ({"has": (("7",),), "lacks": ("9",)}, "7 or 9", False),
        ({"has": (("7",),)}, "7" + " and so on" * 100, False),
        ({"has": (("7",),)}, "", False),
        ({"none": True}, "There is no port in a.ini.", True),
        ({"none": True}, "No file mentions port.", True),
        ({"none": True}, "port is 80", False),
        ({"none": True}, "There is no file a.ini.", False),
        ({"has": (("a.ini",),)}, "There is no file a.ini.", False),
        ({"has": (("a.ini",),)}, "fatal: a.ini: No such file or directory", True),
        ({"absent": True}, "There is no file a.ini.", True),
        ({"absent": True}, "There is no error in a.ini.", False),
        ({"cannot": True}, "I can't count. I can find and quote lines.", True),
        ({"cannot": True}, "I can only answer questions about files.", True),
        ({"cannot": True}, "The error is: cannot open /dev/sda", False),
        ({"cannot": True}, "There are 12.", False),
        ({"or_cannot": True, "has": (("7",),)}, "I cannot explain that.", True),
        ({"or_cannot": True, "has": (("7",),)}, "7", True),
        ({"or_cannot": True, "has": (("7",),)}, "8", False),
    ],
)
def test_rules_are_about_meaning(rules: dict[str, object], answer: str, right: bool) -> None:
    """A right answer in other words passes, a wrong one does not."""
    assert accept(Turn("?", **rules), answer) is right  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "answer",
    [
        "Counting is not something I can do.",
        "I am not able to compare files.",
        "This model cannot explain; it can find lines.",
        "I don't know anything beyond this folder.",
        "That is beyond me.",
    ],
)
def test_many_sentences_say_that_it_cannot(answer: str) -> None:
    """The rule does not ask for a fixed wording."""
    assert says_cannot(answer)


KNOWN = evidence(
    ["what's the error in app.log, please"],
    ["1\tINFO up\n2\tERROR payment: connection to db-2 refused after 3 retries\n3\tport = 8080",
     "a.log\nold/\nb c.log", "conf/x.ini:4:path = /srv/data",
     "db.ini:3:port = 5432\ndb.ini:8:port = 5433"],
)  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [
        "The error is: payment: connection to db-2 refused after 3 retries",
        "Line 3 says: port = 8080",
        "The folder holds: a.log, old/, b c.log",
        "port is 8080 and path is /srv/data",
        "The error in app.log is: connection to db-2 refused after 3 retries; port = 8080",
        "I can't count lines. `triplepoint models` lists models that can, such as qwen3:4b.",
        'It says "connection to db-2 refused" on line 2.',
        "path in conf/x.ini is /srv/data",
        "port is 5432 (line 3); 5433 (line 8)",
        "port in conf/x.ini is 5432; port in conf/x.ini is 5433",
        "I cannot compare. What I can: list folders, read files, search.",
    ],
)
def test_what_was_copied_is_not_invented(answer: str) -> None:
    """Copied text in the model's own sentences, in any number of pieces that commas account for."""
    assert invented(answer, KNOWN) == []


@pytest.mark.parametrize(
    ("answer", "piece"),
    [
        ("The error is: payment: connection to db-3 refused after 3 retries", "db-3"),
        ("port is 8081", "8081"),
        ("There is no file app.logg.", "app.logg"),
        ("The error is: the database could not be reached in time", "database"),
        ("The error is: refused payment connection INFO after up", "refused"),
        ("path is /srv/date", "/srv/date"),
        ("port is 5432 (line 3); 5434 (line 8)", "5434"),
    ],
)
def test_what_stands_nowhere_is_invented(answer: str, piece: str) -> None:
    """Numbers, paths and words that nobody wrote, and quotations put together from scraps."""
    assert piece in " ".join(invented(answer, KNOWN))


def test_an_error_does_not_tell_what_the_model_made_up() -> None:
    """A path that it called a tool with is known only where a question has it."""
    error = "no such file: old/x.log"
    path = {"path": "old/x.log"}
    assert "x.log" not in as_evidence(error, "NotFound", path, ["What is in it?", "And now?"])
    assert as_evidence(error, "NotFound", path, ["Hi", "What is in old/x.log?"]) == error
    assert as_evidence("old/x.log: 3 lines", None, path, ["Hi"]) == "old/x.log: 3 lines"
