"""Marks for contents: what a template does to them, and what it may not."""

from __future__ import annotations

import json

import pytest

from triplepoint.errors import TemplateError
from triplepoint.runtime.tokens.segments import Marks


def test_contents_come_back() -> None:
    """As they are, within JSON, escaped, and stripped; what is around them is the template's."""
    marks = Marks()
    mark = marks.put(' a "b" & c\n', "user", 0)
    rendered = f"<{mark}|{json.dumps(mark)[1:-1]}|{mark.strip()}>"
    segments = marks.split(rendered)
    assert [one.text for one in segments] == [
        "<", ' a "b" & c\n', "|", ' a \\"b\\" & c\\n', "|", 'a "b" & c', ">"
    ]  # fmt: skip
    assert [one.trusted for one in segments] == [True, False] * 3 + [True]
    assert {one.message for one in segments if not one.trusted} == {0}


def test_a_content_is_not_multiplied_without_end() -> None:
    """A mark is short, whatever it stands for."""
    marks = Marks()
    mark = marks.put("x" * 500_000, "user", 0)
    assert len(marks.split(mark * 3)) == 3
    with pytest.raises(TemplateError, match="repeats the messages too often"):
        marks.split(mark * 30)


@pytest.mark.parametrize(("slashes", "right"), [(1, True), (7, True), (15, False), (65535, False)])
def test_a_content_is_quoted_a_few_times_at_most(slashes: int, right: bool) -> None:
    """Each time may double it."""
    marks = Marks()
    mark = marks.put('"', "user", 0).replace('"', "\\" * slashes + '"')
    if right:
        (segment,) = marks.split(mark)
        assert segment.text == "\\" * slashes + '"'
        return
    with pytest.raises(TemplateError, match="quotes a message again and again"):
        marks.split(mark)
