"""How tools refuse a call."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from triplepoint.errors import ToolError


def refusal(call: Callable[[], object]) -> str:
    """The message with which a call is refused."""
    with pytest.raises(ToolError) as refused:
        call()
    return str(refused.value)
