"""Values and tables of numpy, pandas, polars and Arrow as rows."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from triplepoint import RowError
from triplepoint.runtime.fleet.api import _rows
from triplepoint.runtime.fleet.rows import make_rows

NAT = np.datetime64("NaT", "ns")


def fields(**given: Any) -> dict[str, Any]:
    (row,) = make_rows([("row 1", {"question": "q", **given})])
    return {name: value for name, value in row.fields.items() if name != "question"}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.int64(7), 7),
        (np.float32(0.5), 0.5),
        (np.bool_(False), False),
        (np.str_("a"), "a"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, math.nan]), [1.0, None]),
        (np.datetime64("2026-01-02"), "2026-01-02"),
        (np.array(["2026-01-02", NAT], "M8[ns]"), ["2026-01-02T00:00:00.000000000", None]),
        ([np.int8(1), {"n": np.uint8(2)}], [1, {"n": 2}]),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
    ids=repr,
)
def test_values_of_numpy(value: Any, wanted: Any) -> None:
    """They are what they say, and not their text, wherever they stand."""
    found = fields(x=value)["x"]
    assert found == wanted
    assert type(found) is type(wanted)


def test_an_id_of_numpy() -> None:
    """It is a whole number; the row has the key of one with a plain number, and its template the
    same words."""
    (one,) = make_rows([("", {"id": np.int64(1), "n": np.int64(7)})], "What is {n}?")
    (same,) = make_rows([("", {"id": 1, "n": 7})], "What is {n}?")
    assert (one.key, one.question) == (same.key, "What is 7?")


def test_what_is_missing_is_not_there() -> None:
    """NaN, NA and NaT are as None: no value."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    missing = [math.nan, np.float32("nan"), NAT, pandas.NA, pandas.NaT, None]
    assert [fields(x=value, dir=value) for value in missing] == [{}] * len(missing)


def test_a_value_without_json_names_its_field() -> None:
    """So that it is found among many columns."""
    with pytest.raises(RowError, match=r"^row 1: the field 'x' cannot be written as JSON"):
        fields(w=1, x=math.inf)


def of_pandas(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pandas", reason="pandas is not installed").DataFrame(columns)


def of_polars(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("polars", reason="polars is not installed").DataFrame(columns)


def of_arrow(columns: dict[str, list[Any]]) -> Any:
    return pytest.importorskip("pyarrow", reason="pyarrow is not installed").table(columns)


@pytest.mark.parametrize("table", [of_pandas, of_polars, of_arrow])
def test_tables_are_their_rows(table: Callable[[dict[str, list[Any]]], Any]) -> None:
    """Not the names of their columns as questions."""
    found = _rows(table({"question": ["a", "b"], "n": [1, 2], "dir": ["d", None]}))
    assert [row.fields for row in found] == [
        {"question": "a", "n": 1, "dir": "d"},
        {"question": "b", "n": 2},
    ]


@pytest.mark.parametrize("module", ["pandas", "polars"])
def test_a_column_of_questions(module: str) -> None:
    """A series is a list of them; a table without the column is refused with the place."""
    library = pytest.importorskip(module, reason=f"{module} is not installed")
    assert [row.question for row in _rows(library.Series(["a", "b"]))] == ["a", "b"]
    with pytest.raises(RowError, match="row 1: the row has no question"):
        _rows(library.DataFrame({"text": ["a"]}))
