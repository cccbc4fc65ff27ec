"""What a path means before the file system is asked."""

from __future__ import annotations

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools.paths import clean_path, join, shown


@pytest.mark.parametrize(
    ("path", "cleaned"),
    [
        ("", "."),
        (".", "."),
        ("./", "."),
        ("a.txt", "a.txt"),
        ("./a//b/", "a/b"),
        ("a/./b", "a/b"),
        ("~", "~"),
        ("~/x", "~/x"),
        ("...", "..."),
        ("..a/b..", "..a/b.."),
        ("a\\..\\b", "a\\..\\b"),
        (" a ", " a "),
        ("C:/x", "C:/x"),
    ],
)
def test_relative_paths(path: str, cleaned: str) -> None:
    """Only `/` and `.` have a meaning; every other character belongs to a name."""
    assert clean_path(path) == cleaned


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/", "outside the workspace: /"),
        ("/etc/passwd", "outside the workspace: /etc/passwd"),
        ("//host/x", "outside the workspace: //host/x"),
        ("..", "outside the workspace: .."),
        ("../secret", "outside the workspace: ../secret"),
        ("a/../../b", "outside the workspace: a/../../b"),
        ("a/../b", "'..' is not allowed in a path: a/../b"),
        ("a\0b", "no such file: a\\x00b holds a NUL character"),
        ("\ud800", "no such file: \\ud800 is not valid Unicode"),
    ],
)
def test_refused_paths(path: str, message: str) -> None:
    """The message says what is wrong, and is safe to print."""
    with pytest.raises(ToolError) as refused:
        clean_path(path)

    assert str(refused.value) == message


def test_joined_paths() -> None:
    """The workspace itself leaves no trace in the paths below it."""
    assert join(".", "a") == "a"
    assert join("a/b", "c") == "a/b/c"


def test_shown_paths() -> None:
    """Names cannot smuggle lines or escape sequences; letters of any script stay."""
    assert shown("a\nb\x1b[31m\u2028\udcff\x85") == "a\\nb\\x1b[31m\\u2028\\udcff\\x85"
    assert shown("日本/ملف é\u3000") == "日本/ملف é\u3000"
    assert shown("x" * 300) == "x" * 200 + "…"
