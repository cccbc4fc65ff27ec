"""Checked values of a checkpoint's configuration."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import ModelError, UnsupportedModelError


def whole(c: dict[str, Any], key: str) -> int:
    """Return the positive whole number at a key; raise ModelError for anything else."""
    value = c.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json: {key} must be a whole number above 0, is {value!r}")
    return value


def refuse_set(c: dict[str, Any], *keys: str) -> None:
    """Raise UnsupportedModelError if one of the keys has a value that enables something."""
    for key in keys:
        if c.get(key):
            refuse(c, key, c[key])


def refuse(c: dict[str, Any], what: str, value: object) -> NoReturn:
    """Raise UnsupportedModelError for a setting whose value is not supported."""
    raise UnsupportedModelError(f"config.json of a {c['model_type']}: {what} = {value!r} is not "
                                f"supported")  # fmt: skip
