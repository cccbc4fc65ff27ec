"""A small suite over a small folder, and an engine that answers as a script says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Engine
from triplepoint.runtime.suites.definition import Suite, read_suite


@pytest.fixture(scope="session")
def nano_engine() -> Iterator[Engine]:
    """The embedded model."""
    with Engine.load("nano") as engine:
        yield engine


@pytest.fixture
def suite_of(tmp_path: Path) -> Callable[..., Suite]:
    """A suite from its fields, in a folder with one file."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "app.log").write_text("INFO up\nERROR payment: db-2 refused\n")

    def make(**fields: Any) -> Suite:
        import json

        path = tmp_path / "suite.json"
        path.write_text(json.dumps({"dir": "logs", **fields}))
        return read_suite(path)

    return make
