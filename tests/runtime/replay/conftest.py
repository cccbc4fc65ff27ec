"""The embedded model, and files to ask it about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from triplepoint import Engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model."""
    with Engine.load("nano") as engine:
        yield engine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to ask about."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "app.log").write_text("INFO start\nERROR db: connection refused\n")
    (folder / "notes.txt").write_text("call the plumber\nbuy milk\n")
    return folder
