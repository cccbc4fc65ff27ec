"""Words of questions and lines."""

from __future__ import annotations

import pytest

from triplepoint.runtime.evidence.words import fold, indexed, is_whole, stem, terms, words


def test_fold() -> None:
    """Case and accents do not count, and lines stay lines."""
    assert fold("Contraseña\nÜBER é") == "contrasena\nuber e"
    assert fold("한국어") == "한국어"


def test_words_of_names() -> None:
    """Names in sources count as a whole and by their words."""
    assert words("KeepAliveTimeout") == ["keepalivetimeout", "keep", "alive", "timeout"]
    assert words("max_upload-size HTTPServer") == [
        "max", "upload", "size", "httpserver", "http", "server",
    ]  # fmt: skip
    assert indexed("负责人x") == " 负  责  人 x"


@pytest.mark.parametrize(
    ("question", "line", "share"),
    [
        ("Which port?", "port = 22", 1.0),
        ("timeouts", "request_timeout: 3", 0.7),
        ("the maximum", "max_mb: 48", 0.4),
        ("ssh logins", "sshd[12]: Accepted", 0.7),
        ("Verbindung", "Verbindungen: 3", 0.7),
        ("谁是负责人", "负责人:陈美玲", 1.0),
        ("port", "transport = 22", 0.0),
    ],
)
def test_found_in(question: str, line: str, share: float) -> None:
    """A word counts whole as it is, less in another form, less abbreviated, not inside another."""
    assert max(terms(question).found_in(line).values(), default=0.0) == share


def test_words_of_any_question() -> None:
    """Words of any question are kept, but are not what is looked for."""
    found = terms("What is the port of the server?")
    assert found.telling == ["port", "server"]
    assert 0 < found.weights["the"] < 0.3
    assert not terms("What is it?")


def test_compounds() -> None:
    """What is written as one thing is looked for as one thing."""
    found = terms('When was 7.0 out, and what is "good morning" or R-0012?')
    assert set(found.compounds) == {"7.0", "r-0012", "good morning"}
    assert found.found_in("Version 7.0")["7.0"] == 1.0
    assert "7.0" not in found.found_in("Version 7.0.1")
    assert not is_whole("7.0", "17.0 and 3.7.0")


def test_stem() -> None:
    """Ends of words change, in any language; numbers and short words have none."""
    assert stem("connections").startswith("connect")
    assert stem("port") == "port"
    assert stem("20260314") == "20260314"
