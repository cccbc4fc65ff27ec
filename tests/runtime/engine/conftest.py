"""A small random model on two threads, and a session of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session


@pytest.fixture(scope="module")
def engine(tiny_model: Callable[[str], Path]) -> Iterator[Engine]:
    with Engine.load(tiny_model("q8_0"), threads=2) as engine:
        yield engine


@pytest.fixture
def session(engine: Engine) -> Session:
    return engine.session()
