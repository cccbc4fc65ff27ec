"""A server with the embedded model, on a port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers.serving import SETTINGS, Server

from triplepoint import Engine

pytest.importorskip("starlette", reason="the server needs pip install 'triplepoint[serve]'")
pytest.importorskip("uvicorn", reason="the server needs pip install 'triplepoint[serve]'")


@pytest.fixture(scope="session")
def load() -> Callable[[str], Engine]:
    """Loads the embedded model."""
    return lambda source: Engine.load(source)


@pytest.fixture(scope="module")
def server(load: Callable[[str], Engine]) -> Iterator[Server]:
    """A server that anybody on this machine may ask."""
    running = Server(SETTINGS, load)
    try:
        running.wait()
        yield running
    finally:
        running.close()


@pytest.fixture
def start(load: Callable[[str], Engine]) -> Iterator[Callable[..., Server]]:
    """Starts servers with other settings; all end with the test."""
    started: list[Server] = []

    def make(own: Callable[[str], Engine] | None = None, **settings: Any) -> Server:
        started.append(Server(replace(SETTINGS, **settings), own or load))
        return started[-1]

    yield make
    for server in started:
        server.close()
