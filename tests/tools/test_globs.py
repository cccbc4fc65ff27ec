"""Globs: what they match, and that no pattern hangs."""

from __future__ import annotations

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools.globs import glob_matcher


@pytest.mark.parametrize(
    ("glob", "text", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "a/b.py", False),
        ("**/*.py", "b.py", True),
        ("**/*.py", "x/y/b.py", True),
        ("docs/**", "docs/a/b.md", True),
        ("docs/**", "docs", False),
        ("docs/**", "docsy/a", False),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("[a-c]x", "bx", True),
        ("[]]x", "]x", True),
        ("x[-a]", "x-", True),
        ("a.b", "axb", False),
        ("a(b)+$", "a(b)+$", True),
        ("ä*", "äö", True),
        ("*.PY", "a.py", False),
        ("a\n*", "a\nb", True),
        ("*.log", "caf\udce9.log", True),
        ("caf?.log", "caf\udce9.log", True),
        ("*.py", "caf\udce9.log", False),
    ],
)
def test_a_glob_matches_the_whole_text(glob: str, text: str, expected: bool) -> None:
    """``*`` stays within a name, ``**`` does not, and nothing else is special; a byte that is not
    UTF-8 is a character."""
    assert glob_matcher(glob)(text) is expected


def test_many_stars_take_no_time() -> None:
    """A pattern that would take a backtracking matcher forever is answered."""
    assert not glob_matcher("*a" * 60 + "b")("a" * 5000)


@pytest.mark.parametrize("glob", ["", "[ab", "x" * 501])
def test_a_bad_pattern_is_refused(glob: str) -> None:
    """An empty, endless or huge pattern is the model's mistake, and told."""
    with pytest.raises(ToolError, match="pattern"):
        glob_matcher(glob)
