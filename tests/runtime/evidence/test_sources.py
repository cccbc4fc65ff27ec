"""Which line carries a fact together with what the question asks about."""

from __future__ import annotations

import pytest

from triplepoint.runtime.evidence.sources import Read, check

INI = Read(
    "read_file",
    "config/app.ini",
    "1\t[server]\n2\thost = web.local\n3\tport = 8080\n4\ttimeout = 30\n5\t[database]\n"
    "6\thost = db.local\n7\tport = 5432\n8\ttimeout = 5\n[cut: lines 9 to 12 of 12 not shown]",
)
OTHER = Read("search", ".", "config/mail.ini:2:port = 2525\nnotes/plan.md:14:We chose 4 workers.")


@pytest.mark.parametrize(
    ("question", "answer", "places", "unsupported"),
    [
        ("What port does the database use?", "5432", ["config/app.ini:7"], ()),
        ("What port does the database use?", "8080", [], ("8080",)),
        ("What port does the database use?", "2525", [], ("2525",)),
        ("What port does the database use?", "9999", [], ("9999",)),
        ("Which port has the mail?", "It is `port = 2525`.", ["config/mail.ini:2"], ()),
        ("Which port has the mail?", "It is 5432.", [], ("5432",)),
        ("timeout of [server]?", "30s (config/app.ini:4)",
         ["config/app.ini:4", "config/app.ini:4"], ()),
        ("timeout of [server]?", "5 seconds", [], ("5",)),
        ("How many workers did we choose?", "4 (line 14)",
         ["notes/plan.md:14", "notes/plan.md:14"], ()),
        ("Is 8080 the port of the server?", "Yes, 8080.", [], ()),
        ("How many lines has app.ini?", "12", ["config/app.ini"], ()),
        ("数据库的端口是多少?", "5432", ["config/app.ini:7"], ()),
    ],
)  # fmt: skip
def test_check(question: str, answer: str, places: list[str], unsupported: tuple[str, ...]) -> None:
    """A true value of another key or file is no support; what the question says is no fact."""
    found = check(answer, question, [INI, OTHER])
    assert ([one.place for one in found.sources], found.unsupported) == (places, unsupported)


def test_names_and_counts() -> None:
    """A listing supports names of the folder that is asked for; what was counted needs no words."""
    reads = [
        Read("list_dir", "logs", "app.log\nold.log"),
        Read("list_dir", ".", "logs/\nrun.sh"),
        Read("count", "logs", "14 lines match", counted=True),
        Read("weather", "", "22 degrees"),
    ]
    found = check("app.log and old.log", "Which files are in logs?", reads)
    assert [one.place for one in found.sources] == ["logs/app.log", "logs/old.log"]
    assert check("run.sh", "Which files are in logs?", reads).unsupported == ("run.sh",)
    assert [s.place for s in check("14", "How many failed?", reads).sources] == ["logs"]
    assert [s.place for s in check("22", "How warm?", reads).sources] == ["weather:1"]


def test_columns_and_what_goes_on() -> None:
    """The names of columns count for each row; an earlier question says what a later one means."""
    rows = Read("read_file", "a.csv", "1\tid,amount,state\n2\tC7,120.50,paid\n3\tC8,99,open")
    found = check("120.5", "What is the amount of C7?", [rows])
    assert [one.place for one in found.sources] == ["a.csv:2"]
    assert check("99", "What is the amount of C7?", [rows]).unsupported == ("99",)
    earlier = ["What port does the database use?"]
    assert [s.line for s in check("5", "And the timeout?", [INI], earlier).sources] == [8]
    assert check("30", "And the timeout?", [INI], earlier).unsupported == ("30",)


def test_a_quotation_with_the_number_of_its_line() -> None:
    """As `read_file` shows it."""
    found = check('It says "3 port = 8080".', "What does line 3 of app.ini say?", [INI])
    assert [one.line for one in found.sources] == [3]


def test_wrapped_prose() -> None:
    """A sentence goes on in the next line; a log's next line is another entry."""
    text = "1\tthe council raises the rent of the plots from 540 to\n2\t615 pounds a year."
    letter = Read("read_file", "letter.txt", f"{text}\n3\t99 in all")
    found = check("615 pounds", "What is the rent of the plots?", [letter])
    assert [one.place for one in found.sources] == ["letter.txt:2"]
    assert check("99", "What is the rent of the plots?", [letter]).unsupported == ("99",)
