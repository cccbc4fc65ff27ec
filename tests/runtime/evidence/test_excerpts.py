"""Parts of long files."""

from __future__ import annotations

import pytest

from triplepoint.errors import ToolError
from triplepoint.runtime.evidence.excerpts import chosen, excerpt, numbers_in, passage, spans
from triplepoint.runtime.evidence.reading import Text

LINES = [f"line {n}" for n in range(1, 101)]


def test_spans() -> None:
    """Numbers are written short, and read back."""
    assert spans([3, 1, 2, 17, 2]) == "1-3,17"
    assert list(numbers_in("1-3,17", 100)) == [1, 2, 3, 17]
    assert list(numbers_in("98-999999999", 100)) == [98, 99, 100]
    for wrong in ("", "a", "98-1000000000", "1-", "-3", "1,,2"):
        with pytest.raises(ToolError, match="lines must be"):
            list(numbers_in(wrong, 100))


def test_excerpt() -> None:
    """Numbered lines, how many are shown, and of how many; a long one is cut."""
    assert excerpt(LINES, "1-2,100", False) == (
        "1\tline 1\n2\tline 2\n100\tline 100\n[cut: 3 of 100 lines shown]"
    )
    assert excerpt(["x" * 600], "1,7", True) == (
        f"1\t{'x' * 500} [cut: 100 more characters]\n[cut: 1 of more than 1 lines shown]"
    )


def test_passage() -> None:
    """What stands beside a line, the one above it that heads it, and what a heading heads."""
    text = Text("\n".join(LINES))
    assert passage(text, 50) == {48, 49, 50, 51, 52, 53}
    assert passage(text, 1) == {1, 2, 3, 4}
    ini = Text("[http]\nport = 1\n" + "".join(f"key{n} = {n}\n" for n in range(9)) + "[smtp]")
    assert passage(ini, 1) == set(range(1, 9))
    assert passage(ini, 10) == {1, 8, 9, 10, 11, 12}


def test_chosen() -> None:
    """What must be, then the best lines with what stands beside them, or alone."""
    text = Text("\n".join(LINES))
    assert chosen(text, [1, 100], [50], 8, 0.1) == {1, 100}
    assert chosen(text, [1, 100], [50], 12, 0.1) == {1, 50, 100}
    assert chosen(text, [1], [50, 70], 32, 0.1) == {1, *range(48, 54), 70}
    assert chosen(text, [1], [50], 0, 0.1) == set()
