"""Parts of long files."""

from __future__ import annotations

import pytest

from triplepoint.errors import ToolError
from triplepoint.runtime.evidence.excerpts import chosen, excerpt, numbers_in, spans

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


def test_chosen() -> None:
    """What must be, then the best lines with those beside them, then more around the best."""
    assert chosen(LINES, [1, 100], [50], 10, 0.1) == {1, 100}
    some = chosen(LINES, [1], [50, 70], 40, 0.1)
    assert {1, 49, 50, 51, 69, 70, 71} <= some
    assert len(some) <= 12
    many = chosen(LINES, [1], [50, 70], 150, 0.1)
    assert set(range(47, 57)) <= many
    assert chosen(LINES, [200], [300], 1000, 0.1) <= set(range(1, 13))
    assert chosen(LINES, [1], [50], 0, 0.1) == set()
