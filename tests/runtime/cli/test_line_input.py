"""What Tab offers in a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.runtime.cli.line_input import Reader
from triplepoint.runtime.cli.output import Output


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    work = tmp_path / "work"
    (work / "config").mkdir(parents=True)
    for name in ("app.log", "apple.txt", ".hidden", "two words.txt", "config/a.ini"):
        (work / name).write_text("")
    (tmp_path / "here.md").write_text("")
    monkeypatch.chdir(tmp_path)
    return Reader(Output(), ["/save", "/trace", "/tools"], str(work))


@pytest.mark.parametrize(
    ("before", "word", "expected"),
    [
        ("", "/t", ["/tools", "/trace"]),
        ("why ", "/t", []),
        ("what is in ", "@ap", ["@app.log", "@apple.txt"]),
        ("", "@", ["@app.log", "@apple.txt", "@config/"]),
        ("", "@.h", ["@.hidden"]),
        ("", "@config/", ["@config/a.ini"]),
        ("", "@nowhere/", []),
        ("", "@a\0", []),
        ("", "app", []),
        ("/save ", "h", ["here.md"]),
        ("/model ", "he", ["here.md"]),
    ],
)
def test_completions(reader: Reader, before: str, word: str, expected: list[str]) -> None:
    """Commands at the start, files of the workspace after @, files from here behind a command."""
    assert reader._completions(word, before) == expected


def test_a_link_to_itself_hides_nothing(reader: Reader, tmp_path: Path) -> None:
    """The other files of its folder are offered."""
    (tmp_path / "work" / "apl").symlink_to("apl")
    assert reader._completions("@ap", "") == ["@apl", "@app.log", "@apple.txt"]
