"""Reading the documents: their sections, tables and the names in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]


def read(name: str) -> str:
    """A file of the checkout."""
    return (ROOT / name).read_text(encoding="utf-8")


def section(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one of any level."""
    found = re.search(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", page, re.DOTALL | re.MULTILINE
    )
    assert found, f"no heading {heading!r}"
    return found[1]


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text: rows of cells, the heading first, the rule left out."""
    found = re.findall(
        r"(?:^\|.*\|\n)+", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M), re.M
    )
    return [
        [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in rows
            if "|---" not in line
        ]
        for table in found
        for rows in [table.splitlines()]
    ]


def names(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


def table_of(text: str, first: str) -> list[list[str]]:
    """The rows below the heading of the table whose first cell is `first`."""
    for heading, *rows in tables(text):
        if heading[0] == first:
            return rows
    raise AssertionError(f"no table that begins with {first!r}")
