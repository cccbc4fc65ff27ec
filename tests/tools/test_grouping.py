"""What a line is counted under."""

from __future__ import annotations

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools.grouping import WORDS, fields, grouping


def key(by: str, line: str) -> str | None:
    keys = grouping(by)
    assert keys is not None
    return keys([line], 10.0)[0]


@pytest.mark.parametrize(
    ("by", "line", "wanted"),
    [
        ("ip", "from 10.0.0.1.", "10.0.0.1"),
        ("ip", "10.0.0.1:80", "10.0.0.1"),
        ("ip", "peer fe80::1:2 up", "fe80::1:2"),
        ("ip", "at 12:34:56 version 1.2.3", None),
        ("day", "2026-03-14T05:06:07Z x", "2026-03-14"),
        ("day", "Mar  4 05:06:07 host x", "Mar  4"),
        ("day", "14.03.2026 05:06", "14.03.2026"),
        ("day", "05:06:07 x", None),
        ("hour", "2026-03-14 05:06:07", "2026-03-14 05:00"),
        ("hour", "05:06:07 x", "05:00"),
        ("minute", "[14/Mar/2026:05:06:07 +0000]", "14/Mar/2026 05:06"),
        ("level", "2026 WARN x ERROR", "WARN"),
        ("level", "an error in prose", None),
        ("severity", '{"severity": "high"}', "high"),
        ("level", "level=debug x", "DEBUG"),
        ("status", '"GET / HTTP/1.1" 404 12', "404"),
        ("status", "status=503", "503"),
        ("method", '"POST /x HTTP/1.1"', "POST"),
        ("url", '"GET /a?b=1 HTTP/1.1"', "/a?b=1"),
        ("line", "all of it", "all of it"),
        ("$2", "a b c", "b"),
        ("column 4", "a b c", None),
        ("host", '{"host": "a"}', "a"),
        ("request.host", '{"request": {"host": ["a"]}}', '["a"]'),
        ("n", '{"n": 1.10}', "1.10"),
        ("n", '{"n": null}', None),
        ("user name", "user name: Ann", "Ann"),
        ("user", "superuser=x user=y", "y"),
    ],
)
def test_keys(by: str, line: str, wanted: str | None) -> None:
    """Each word, number and name finds what it says, as it is written."""
    assert key(by, line) == wanted


def test_words() -> None:
    """All are known, in any case and number; a file needs no look at the line."""
    for word in WORDS:
        for form in (word, word.upper(), f"by {word}", f"{word}s"):
            assert (grouping(form) is None) == (word == "file")


def test_fields() -> None:
    """The names that lines have, of JSON or before an equals sign."""
    assert fields(['{"a": 1, "b\\n": 2}', "c=1 d.e=2 c=3", "{"]) == ["a", "b\\n", "c"]


@pytest.mark.parametrize("by", ["(a)(b)", "(", "0", "[", "a{2"])
def test_refusals(by: str) -> None:
    """What is none of these is refused; a brace that repeats nothing is a character."""
    if by == "a{2":
        assert key(by, "xa{2") == "a{2"
        return
    with pytest.raises(ToolError):
        grouping(by)
