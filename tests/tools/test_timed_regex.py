"""Regular expressions in bounded time."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.suites.checks import Outcome, run_check
from triplepoint.runtime.suites.definition import Check
from triplepoint.tools import timed_regex
from triplepoint.tools.timed_regex import captured, searched

ENDLESS = r"^(a+)+$"
TEXT = "a" * 40 + "!"


@pytest.mark.parametrize("pattern", ["b$", r"b+$", "^b?é{1}", "B", "(?i)B+"])
@pytest.mark.parametrize("flags", [re.RegexFlag(0), re.MULTILINE, re.IGNORECASE])
def test_it_is_search(pattern: str, flags: re.RegexFlag) -> None:
    """What `re` finds is found, with half a character in the text, too."""
    for text in ("ab\nc", "é", "", "\ud800b"):
        assert searched(pattern, text, flags) == (re.search(pattern, text, flags) is not None)


def test_a_check_that_would_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails, of an answer and of a file, and says why; the others still count."""
    monkeypatch.setattr(timed_regex, "LIMIT_S", 0.5)
    (tmp_path / "a.txt").write_text(TEXT)
    outcome = Outcome("q", TEXT, root=tmp_path)
    if find_spec("jsonschema") is not None:
        schema = Check.model_validate({"schema": {"pattern": ENDLESS}})
        assert "took too long" in run_check(schema, Outcome("q", json.dumps(TEXT)))["why"]
        wrong = run_check(schema, Outcome("q", '"b"'))["why"]
        assert wrong == f"'b' does not match {ENDLESS!r}"
    for given in ({"regex": ENDLESS}, {"files": {"a.txt": {"regex": ENDLESS}}}):
        found = run_check(Check.model_validate(given), outcome)
        assert not found["passed"]
        assert "the regex took too long" in found["why"]
    assert run_check(Check.model_validate({"regex": "a+!"}), outcome)["passed"]


def test_a_regex_that_cannot_be_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process says is told, and is no verdict."""
    monkeypatch.setattr(timed_regex, "_PROGRAM", "raise MemoryError('too much')")
    with pytest.raises(SettingError, match=r"'a\+' cannot be searched for: MemoryError: too much"):
        searched("a+", "a")


def test_captures() -> None:
    """The first group that took part, else the whole; letters in any case; None for no match."""
    lines = ["user Ann x", "USER bob", "none", "l\u2028 user c\u00e9d\r"]

    assert captured(r"user (\w+)", lines, 10) == ["Ann", "bob", None, "c\u00e9d"]
    assert captured(r"(?:x|user (b))", lines, 10) == ["x", "b", None, None]
    assert captured(r"user", lines, 10) == ["user", "USER", None, "user"]
    assert captured("a", [], 10) == []


def test_captures_end_in_time() -> None:
    """Lines before the one that takes too long are told."""
    lines = ["ab", "b", "a" * 5000, "ab"]

    assert captured(r"(?:a+)+(b)$", lines, 1.0) == ["b", None]
