"""The embedded model as F32: what the other types are made from and measured against."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.quantize.quantize import quantize, row_maker
from triplepoint.runtime.quantize.rows import RowMaker


@pytest.fixture(scope="session")
def nano_f32(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded model with every weight as float32."""
    path = tmp_path_factory.mktemp("nano") / "nano-f32.gguf"
    quantize(NANO, path, "F32", threads=2)
    return path


@pytest.fixture(scope="session")
def maker() -> Iterator[RowMaker]:
    """Converts rows on two threads."""
    with row_maker(2) as made:
        yield made
