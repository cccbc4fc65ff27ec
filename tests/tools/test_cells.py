"""Numbers and dates as tables have them."""

from __future__ import annotations

from decimal import Decimal

import pytest

from triplepoint.tools.cells import EXACT, Numbers, iso, quotient

POINT, COMMA = Numbers(["1,234.50"]), Numbers(["1.234,50"])


@pytest.mark.parametrize(
    ("cell", "point", "comma"),
    [
        ("1", "1", "1"),
        ("-2.50", "-2.50", None),
        ("12,5", None, "12.5"),
        ("1,234", "1234", "1.234"),
        ("1.234", "1.234", "1234"),
        ("1.234.567", "1234567", "1234567"),
        ("1,234.50", "1234.50", "1234.50"),
        ("1.234,50", "1234.50", "1234.50"),
        ("1 234 567", "1234567", "1234567"),
        ("1'234.5", "1234.5", None),
        ("1,23,456", "123456", "123456"),
        ("(12)", "-12", "-12"),
        ("−3", "-3", "-3"),
        ("1e3", "1000", "1000"),
        ("$ -3", "-3", "-3"),
        ("12 %", "12", "12"),
        ("5 EUR", "5", "5"),
        *((cell, None, None) for cell in ("", "-", "NA", "nan", "1.2.3", "12 kg", "AB12", "1e99")),
        *((cell, None, None) for cell in ("1,2,3", "9" * 31, "$5 EUR", "١", "--1", "10.0.0.1")),
    ],
)
def test_numbers(cell: str, point: str | None, comma: str | None) -> None:
    """Each notation is read as it is meant where it can be told, and is no number else."""
    for numbers, wanted in ((POINT, point), (COMMA, comma)):
        found = numbers.parse(cell)
        assert (found and found[0]) == (wanted and Decimal(wanted))


def test_which_mark_is_before_decimals() -> None:
    """Dates, addresses and numbers that can be read either way have no say."""
    assert not Numbers(["1.234", "10.0.0.1", "01.02.2026"]).comma
    assert Numbers(["1.234", "2,5", "01.02.2026"]).comma
    assert not Numbers(["2,5", "2.5", "3.25"]).comma


def test_units() -> None:
    """The unit is told beside the number."""
    assert [POINT.parse(cell)[1] for cell in ("€5", "5 %", "EUR 5", "5")] == ["€", "%", "EUR", ""]  # type: ignore[index]


def test_sums_are_exact() -> None:
    """No digit is lost between the largest and the smallest number that there can be."""
    large, small = POINT.parse("9" * 29 + "e30"), POINT.parse("1e-40")
    assert large is not None
    assert small is not None
    total = EXACT.add(large[0], small[0])

    assert EXACT.subtract(total, large[0]) == small[0]


@pytest.mark.parametrize(
    ("total", "count", "text", "exact"),
    [("10", 4, "2.50", True), ("10", 3, "3.33", False), ("0.30", 9, "0.0333", False)],
)
def test_means(total: str, count: int, text: str, exact: bool) -> None:
    """A mean that was rounded says so."""
    assert quotient(Decimal(total), count) == (text, exact)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-03-14", "2026-03-14"),
        ("2026/03/14", "2026-03-14"),
        ("14.3.2026", "2026-03-14"),
        ("Mar 1 2005", "2005-03-01"),
        ("1 March 2005", "2005-03-01"),
        ("2026-03-14T10:00:00Z", "2026-03-14 10:00:00Z"),
        ("2026-03", "2026-03"),
        ("03/04/2026", None),
        ("Foo 1 2005", None),
        ("1 Mar 2 2005", None),
    ],
)
def test_dates(text: str, wanted: str | None) -> None:
    """They are ISO text, and what can be read in two ways is none."""
    assert iso(text) == wanted
