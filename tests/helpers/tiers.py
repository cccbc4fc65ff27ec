"""Which cases of a test run with plain `pytest`, and which are CI's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def quick(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """All values as cases of a test, of which all but the chosen ones are slow."""
    return [v if v in chosen else pytest.param(v, marks=pytest.mark.slow) for v in values]
