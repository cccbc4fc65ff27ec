"""How nano says that it cannot."""

from __future__ import annotations

import pytest

from labs.nano import smalltalk, solve
from triplepoint.runtime.nano.refusals import is_refusal


def test_its_sentence_is_known() -> None:
    """What it was taught to say of questions beyond it is taken for that."""
    assert is_refusal(solve.CANNOT)
    assert is_refusal("I can only answer questions about the files in this folder.")
    assert is_refusal("I cannot count lines.")


@pytest.mark.parametrize(
    "answer",
    [smalltalk.HELLO, smalltalk.WELCOME, smalltalk.ABILITIES, smalltalk.NAME, smalltalk.GOODBYE,
     "Line 3 says: I cannot open the door", "There is no file app.log."],
)  # fmt: skip
def test_other_answers_are_none(answer: str) -> None:
    """Greetings, answers and what a file says are not."""
    assert not is_refusal(answer)
