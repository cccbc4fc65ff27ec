"""The embedded model for many sessions at once, and threads that alternate often."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers.threads import frequent_switches

from triplepoint.runtime.engine.engine import Engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano", threads=2, context=4096) as engine:
        yield engine


@pytest.fixture
def often() -> Iterator[None]:
    with frequent_switches():
        yield
