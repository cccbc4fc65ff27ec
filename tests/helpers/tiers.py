"""Which cases of a test run with plain `pytest`, and which are CI's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], *chosen: Any, ci: Iterable[Any] | None = None) -> list[Any]:
    """All values as cases of a test, of which all but the chosen ones are slow.

    With `ci` these alone are slow, and all others are exhaustive.
    """
    ours = None if ci is None else list(ci)

    def case(value: Any) -> Any:
        if value in chosen:
            return value
        seldom = ours is not None and value not in ours
        return pytest.param(value, marks=pytest.mark.exhaustive if seldom else pytest.mark.slow)

    return [case(value) for value in values]
