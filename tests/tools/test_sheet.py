"""Rows of a table as they stand in a file of any dialect."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.tools import Workspace
from triplepoint.tools.sheet import Sheet
from triplepoint.tools.text import TextFile


def read(root: Path, text: str, name: str = "t.csv") -> tuple[list[str], list[list[str]]]:
    """The columns, and the cells of all rows."""
    (root / name).write_text(text)
    with Workspace(root) as workspace, workspace.open(name) as file:
        sheet = Sheet(TextFile(file, name), name)
        return sheet.columns, [row.cells for row in sheet.rows]


@pytest.mark.parametrize(
    ("first", "columns"),
    [
        ("name,age", ["name", "age"]),
        ("name,name", ["1", "2"]),
        (",age", ["column 1", "age"]),
        ("country,2025", ["country", "2025"]),
        ("2024,2025", ["1", "2"]),
        ("x,12.5", ["1", "2"]),
        ("2026-03-14,x", ["1", "2"]),
    ],
)
def test_headers(root: Path, first: str, columns: list[str]) -> None:
    """A first row with numbers or dates, or a name twice, is data; years may name columns."""
    found, rows = read(root, f"{first}\na,1\nb,2\n")

    assert found == columns
    assert len(rows) == 2 + (columns == ["1", "2"])


def test_a_comment_may_name_the_columns(root: Path) -> None:
    """Only if it has as many names as there are cells."""
    assert read(root, "# made by hand\n#id\twho\n1\tAnn\n", "t.tab")[0] == ["id", "who"]
    assert read(root, "# made by hand\n1,Ann\n")[0] == ["1", "2"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@given(
    st.lists(
        st.lists(st.text("ab1,;|\t\"' \n.-", max_size=6), min_size=3, max_size=3),
        min_size=1,
        max_size=12,
    )
)
@settings(max_examples=40, deadline=None)
def test_what_csv_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, delimiter: str, rows: list[list[str]]
) -> None:
    """Every cell that the module of Python writes, in quotes, comes back from each delimiter."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([["one", "two", "three"], *rows])

    columns, found = read(tmp_path_factory.mktemp("sheet"), out.getvalue())

    assert columns == ["one", "two", "three"]
    assert found == [row for row in rows if any(row)]
