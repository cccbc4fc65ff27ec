"""Files to ask the embedded model about."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files to ask about."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "app.log").write_text("INFO start\nERROR db: connection refused\n")
    (folder / "notes.txt").write_text("call the plumber\nbuy milk\n")
    return folder
