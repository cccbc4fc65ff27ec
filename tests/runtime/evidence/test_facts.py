"""What the facts of a text are, and which lines have them."""

from __future__ import annotations

import pytest

from triplepoint.runtime.evidence.facts import Fact, Line, facts, has


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The port is 8080 (config/server.ini, line 3).",
         [("8080", "number"), ("config/server.ini", "name"), ("3", "line")]),
        ("It's `port = 8080`; see \"a.ini:3\".", [("port = 8080", "quote"), ("a.ini:3", "line")]),
        ("v1.2 at 10.0.0.5 on 2026-03-14 10:05:33",
         [("v1.2", "name"), ("10.0.0.5", "number"), ("2026-03-14", "name"), ("10:05:33", "name")]),
        ("1. foo_bar\n2. FooBar's\n# 3 --dry-run",
         [("foo_bar", "name"), ("FooBar", "name"), ("3", "number"), ("--dry-run", "name")]),
        ("1,234 rows, 30s, 512 MB, 42 %",
         [("1,234", "number"), ("30", "number"), ("512", "number"), ("42", "number")]),
        ("Read and/or write, e.g. the well-known max-age, i.e. nothing.", []),
        ("crontab:2:MAILTO=x db.local:5432 at 10:05:33",
         [("crontab:2", "line"), ("db.local:5432", "line"), ("10:05:33", "name")]),
        ("template receipt-de.html", [("receipt-de.html", "name")]),
        ("端口是8080，第3行", [("8080", "number"), ("3", "line")]),
        ("Zeile 7: „kein Platz mehr“", [("kein Platz mehr", "quote"), ("7", "line")]),
    ],
)  # fmt: skip
def test_facts(text: str, found: list[tuple[str, str]]) -> None:
    """Numbers, names, quotations and numbers of lines, in any script; words are none."""
    assert sorted(facts(text)) == sorted(Fact(*one) for one in found)


@pytest.mark.parametrize(
    ("text", "kind", "line", "expected"),
    [
        ("1,234", "number", "total: 1234", True),
        ("1.234,50", "number", "total,1234.5,x", True),
        ("30", "number", "timeout = 30s", True),
        ("3", "number", "2026-03-14", True),
        ("3", "number", "30 of 13", False),
        ("7.0", "name", "version 7.0.1", False),
        ("v1.2", "name", "V1.2", True),
        ("foo_bar", "name", "foo_bars", False),
        ("logs/app.log", "name", "nothing", True),
        ("./app.log:2", "line", "nothing", True),
        ("app.log:3", "line", "nothing", False),
        ("db.local:5432", "line", "url = db.local:5432/x", True),
        ("p.log", "name", "nothing", False),
        ("ERROR: disk full", "quote", "10:05 'ERROR': disk  full!", True),
        ("the disk is full", "quote", "the full disk is there", True),
        ("disk fool", "quote", "disk full", False),
        ("2", "line", "nothing", True),
    ],
)
def test_has(text: str, kind: str, line: str, expected: bool) -> None:
    """As a whole number or name, in the line or as the name of its file."""
    assert has(Line("logs/app.log", 2, line), Fact(text, kind)) is expected


@pytest.mark.parametrize("sign", ["-", "`", "a", "1", "1,", "\n", "(", "a.", "line ", "/", "A"])
def test_long_texts_take_no_time(sign: str) -> None:
    """No expression tries what it tried before: a text of one sign is read at once."""
    assert len(facts(sign * 100_000)) <= 3
