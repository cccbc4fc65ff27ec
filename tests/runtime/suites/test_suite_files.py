"""The form of the judge set's files."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from triplepoint.runtime.suites.suite_files import Turn, long_text, read_folder

FOLDER = """
folders = ["empty"]
[files]
"a/b c.txt" = '''
one
two
'''
[binary]
"x.bin" = "00ff"
[links]
"l" = "a"
[singles]
"line" = [{ask = "2 of b c.txt?", has = ["two"]}]
[[talk]]
family = "setting"
turns = [{ask = "p?", has = [["1", "one"]]}, {ask = "and q?", none = true, lacks = ["1"]}]
"""
RECIPE: dict[str, Any] = {
    "lines": 50,
    "begin": datetime(2025, 1, 2),
    "step": 60,
    "stamp": "%H:%M",
    "templates": ["{stamp} n={3-5} {hex4}"],
    "marked": {"20": "{stamp} first\nsecond\n"},
}


def test_a_folder_is_read_and_written(tmp_path: Path) -> None:
    """Texts, bytes, links, empty folders and conversations come out as they were written."""
    (tmp_path / "small.toml").write_text(FOLDER)
    folder = read_folder(tmp_path / "small.toml")
    folder.write(tmp_path / "out")

    assert (tmp_path / "out/a/b c.txt").read_text() == "one\ntwo\n"
    assert (tmp_path / "out/x.bin").read_bytes() == b"\x00\xff"
    assert (tmp_path / "out/l/b c.txt").exists()
    assert list((tmp_path / "out/empty").iterdir()) == []
    line, setting = folder.talks
    assert line.turns == (Turn("2 of b c.txt?", has=(("two",),)),)
    assert setting.turns[0].has == (("1", "one"),)
    assert [setting.family_of(n) for n in range(2)] == ["setting", "follow-up"]


@pytest.mark.parametrize(
    "given", [{"ask": "x"}, {"ask": "x", "lacks": ["y"]}, {"ask": "x", "hass": ["y"]}]
)
def test_a_question_without_a_rule_is_refused(given: dict[str, Any]) -> None:
    """A misspelled rule, or none, would let every answer pass."""
    with pytest.raises(ValueError, match="x"):
        Turn.read(given)


def test_a_long_text_is_the_same_each_time() -> None:
    """The recipe gives the lines that it says, the marked ones at their places."""
    text = long_text("a.log", **RECIPE)
    lines = text.split("\n")

    assert text == long_text("a.log", **RECIPE)
    assert text != long_text("b.log", **RECIPE)
    assert len(lines) == 51
    assert lines[19].endswith(" first")
    assert lines[20] == "second"
    assert all(line.split()[1] in ("n=3", "n=4", "n=5") for line in lines[:19])


def test_marked_lines_must_fit() -> None:
    """Lines that would be left out, or make the file longer, are an error."""
    for place in ("50", "51"):
        with pytest.raises(ValueError, match=r"a\.log"):
            long_text("a.log", **{**RECIPE, "marked": {place: "x\ny\n"}})
