"""Values of rows as JSON has them: those of numpy, pandas and polars by what they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MISSING = ("NAType", "NaTType")  # of pandas, which need not be there


def plain(value: Any) -> Any:
    """A value of JSON's own types, as far as there is one; what is missing is None.

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
    """The rows of a table of pandas, polars or Arrow as mappings; anything else as it is."""
    for name in ("to_dicts", "to_pylist"):  # polars, Arrow
        convert = getattr(given, name, None)
        if callable(convert) and hasattr(given, "schema"):
            return convert()
    if hasattr(given, "columns") and callable(convert := getattr(given, "to_dict", None)):
        return convert(orient="records")
    return given
