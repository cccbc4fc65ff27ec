"""What a walk passes over."""

from __future__ import annotations

import pytest

from triplepoint.runtime.evidence.ignored import Rules, is_ignored, is_made

LINES = [
    "# mine",
    "*.log",
    "!keep.log",
    "/only-here",
    "docs/*.tmp",
    "made/",
    "a/**/z",
    "\\#odd",
    "",
]


@pytest.mark.parametrize(
    ("path", "folder", "ignored"),
    [
        ("x.log", False, True),
        ("deep/down/x.log", False, True),
        ("keep.log", False, False),
        ("only-here", False, True),
        ("deep/only-here", False, False),
        ("docs/a.tmp", False, True),
        ("docs/deep/a.tmp", False, False),
        ("made", True, True),
        ("made", False, False),
        ("deep/made", True, True),
        ("a/b/c/z", False, True),
        ("#odd", False, True),
        ("x.txt", False, False),
    ],
)
def test_rules(path: str, folder: bool, ignored: bool) -> None:
    """Names, endings, paths, folders and exceptions, as git reads them."""
    assert is_ignored([Rules.of(LINES, "")], path, folder) is ignored


def test_inner_rules_come_first() -> None:
    """What a folder's own file says counts before what those above say."""
    inner, outer = Rules.of(["!x.log"], "deep/"), Rules.of(["*.log"], "")
    assert not is_ignored([inner, outer], "deep/x.log", False)
    assert is_ignored([inner, outer], "deep/y.log", False)


def test_bad_rules_are_left_out() -> None:
    """A rule that cannot be understood does not stop the others."""
    assert is_ignored([Rules.of(["[", "x" * 600 + "*", "*.o"], "")], "a.o", False)


def test_made_folders() -> None:
    """Folders that programs fill: by name, or beside what builds them."""
    assert is_made("node_modules", ())
    assert is_made("build", ("setup.py", "build"))
    assert not is_made("build", ("notes.txt", "build"))
    assert not is_made("src", ("setup.py",))
