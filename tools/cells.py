"""Numbers and dates as people write them in tables, exactly: no float in between."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Context, Decimal

EXACT = Context(prec=150, Emax=999_999, Emin=-999_999)
"""Holds the sum of any cells: their digits and exponents have bounds."""

_CODES = (
    "AUD|BRL|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HKD|HUF|ILS|INR|JPY|KRW|MXN|NOK|NZD|PLN|RMB|RUB|SEK|SGD"
    "|TRY|USD|ZAR"
)
_UNIT = rf"(?:{_CODES}|R\$|US\$|zł|Kč|kr|Fr\.|[$\u00a2-\u00a5\u20a0-\u20cf])"
_GAPS = "[ '’_\u00a0\u2009\u202f]"
_PLAIN = re.compile(r"-?[0-9]{1,30}(?:\.[0-9]{1,30})?", re.ASCII)
_NUMBER = re.compile(
    rf"(?P<sign>[-+−]?)\s?(?P<before>{_UNIT}?)\s?(?P<sign2>[-+−]?)"
    rf"(?P<digits>[0-9]{{1,30}}(?:{_GAPS}[0-9]{{3}})*(?:[.,][0-9]{{1,30}})*[.,]?|[.,][0-9]{{1,30}})"
    rf"(?P<power>(?:[eE][-+]?[0-9]{{1,2}})?)[\s\u00a0\u202f]?(?P<after>(?:{_UNIT}|%)?)"
)
_GROUPS = re.compile(r"[0-9]{1,3}(?:,[0-9]{2,3})*,[0-9]{3}")  # also India's: 1,23,456
_MAX_DIGITS, _MAX_POWER = 40, 40
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_ISO = re.compile(r"(\d{4})[-/](\d\d)(?:[-/](\d\d))?(?:[T ](\d\d:\d\d.{0,30}))?")
_DOTTED = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})(?: (\d\d:\d\d.{0,30}))?")
_WORDS = re.compile(r"(?:(\d\d?)\.? )?([A-Za-z]{3})[a-z]{0,6}\.?(?: (\d\d?),?)? (\d{4})")


class Numbers:
    """Reads numbers in the notation that a table's cells have."""

    def __init__(self, cells: Iterable[str] = ()) -> None:
        """Find out from some cells whether the comma or the point is before the decimals.

        Without a cell that can only be meant in one way it is the point.
        """
        votes = [_mark(cell) for cell in cells]
        self.comma = votes.count(",") > votes.count(".")
        self._sure = any(votes)

    def is_unsure(self, cell: str) -> bool:
        """Whether a cell can be meant in two ways, such as 1.234, and no other cell tells."""
        return not self._sure and re.fullmatch(r"\D*[1-9]\d?\d?[.,]\d{3}\D*", cell) is not None

    def parse(self, cell: str) -> tuple[Decimal, str] | None:
        """The number in a cell and its unit (a currency, ``%`` or nothing); None for no number."""
        cell = cell.strip()
        if not self.comma and _PLAIN.fullmatch(cell):
            return Decimal(cell), ""
        if len(cell) > 100:
            return None
        bracketed = len(cell) > 2 and cell[0] == "(" and cell[-1] == ")"  # an accountant's minus
        found = _NUMBER.fullmatch(cell[1:-1] if bracketed else cell)
        if found is None or (digits := self._digits(found["digits"])) is None:
            return None
        if len(digits) > _MAX_DIGITS or abs(int(found["power"][1:] or 0)) > _MAX_POWER:
            return None
        minus = bracketed + (found["sign"] in ("-", "−")) + (found["sign2"] in ("-", "−"))
        if minus > 1 or (found["before"] and found["after"]):
            return None
        value = Decimal(digits + found["power"])
        return (value.copy_negate() if minus else value), found["before"] or found["after"]

    def _digits(self, text: str) -> str | None:
        """Digits with a point before the decimals, or None where marks are where none can be."""
        text = re.sub(_GAPS, "", text)
        point, comma = text.rfind("."), text.rfind(",")
        both = point >= 0 and comma >= 0
        is_comma = comma > point if both else self.comma
        if is_comma:
            text = text.translate(_SWAPPED)
        whole, mark, part = text.rpartition(".")
        if not mark or ("." in whole and "," not in part):
            # No decimals; or more points than one, which are between thousands.
            whole, part = text if not mark else text.replace(".", ","), ""
        if "," in part or ("," in whole and not _GROUPS.fullmatch(whole)):
            return None
        return f"{whole.replace(',', '') or '0'}.{part or '0'}" if part else whole.replace(",", "")


_SWAPPED = str.maketrans(".,", ",.")


def _mark(cell: str) -> str:
    """Which sign is before the decimals of a cell, if that is beyond doubt."""
    found = _NUMBER.fullmatch(cell.strip())
    if found is None:
        return ""
    digits = re.sub(_GAPS, "", found["digits"])
    marks = re.findall(r"[.,]", digits)
    if not marks:
        return ""
    if len(set(marks)) == 2:
        return marks[-1]
    if len(marks) > 1:  # between thousands, unless it is a date or an address
        is_number = _GROUPS.fullmatch(digits.replace(".", ","))
        return "" if not is_number else "," if marks[0] == "." else "."
    whole, _, part = digits.partition(marks[0])
    return marks[0] if len(part) != 3 or len(whole) > 3 or whole in ("", "0") else ""


def iso(text: str) -> str | None:
    """A date, and the time behind it, as ISO 8601 has them; None for what is none.

    Days before or behind months by number alone (03/04/2026) are not guessed.
    """
    text = text.strip()
    if found := _ISO.fullmatch(text):
        year, month, day, time = found.groups()
    elif found := _DOTTED.fullmatch(text):
        day, month, year, time = found.groups()
    elif (found := _WORDS.fullmatch(text)) and not (found[1] and found[3]):
        months = [str(at) for at, one in enumerate(_MONTHS, 1) if one == found[2].lower()]
        if not months:
            return None
        year, month, day, time = found[4], months[0], found[1] or found[3], None
    else:
        return None
    return f"{year}-{month:0>2}" + (f"-{day:0>2}" if day else "") + (f" {time}" if time else "")


def plain(value: Decimal) -> str:
    """A number in digits, without an exponent, in a length that can be read."""
    return f"{value:f}"


def quotient(total: Decimal, count: int) -> tuple[str, bool]:
    """A mean in digits, and whether it is exact: else it has two more of them than the sum."""
    mean = EXACT.divide(total, Decimal(count))
    exponent = total.as_tuple().exponent
    places = max(0, -exponent if isinstance(exponent, int) else 0) + 2
    short = EXACT.quantize(mean, Decimal(1).scaleb(-places))
    return plain(short), short == mean
