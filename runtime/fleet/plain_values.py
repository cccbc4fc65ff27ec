"""Converts row values, also of numpy, pandas and polars, to JSON types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MISSING = ("NAType", "NaTType")  # of pandas, which need not be there


def plain(value: Any) -> Any:
    """Convert a value to JSON types where possible; a missing value is None.

    Missing are NaN, NA and NaT. What is none of these, such as a date, is left for its text.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if type(value).__name__ in _MISSING:
        return None
    kind = getattr(getattr(value, "dtype", None), "kind", None)
    to_list = getattr(value, "tolist", None)
    if kind is not None and callable(to_list):  # a scalar or an array of numpy, or alike
        if kind in "mM":  # as a list they would be numbers of nanoseconds
            return _without_nat(value.astype(str).tolist())
        return plain(to_list())
    return None if isinstance(value, float) and value != value else value


def _without_nat(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nat(one) for one in value]
    return None if value == "NaT" else value


def frame_rows(given: object) -> object:
    """Return the rows of a pandas, polars or Arrow table as mappings; others are unchanged."""
    for name in ("to_dicts", "to_pylist"):  # polars, Arrow
        convert = getattr(given, name, None)
        if callable(convert) and hasattr(given, "schema"):
            return convert()
    if hasattr(given, "columns") and callable(convert := getattr(given, "to_dict", None)):
        return convert(orient="records")
    return given
