"""The embedded model, and what its kernels reach here, for tests of what is measured of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triplepoint import Engine
from triplepoint.runtime.engine.engine_timer import EngineTimer
from triplepoint.runtime.physics.calibrate import calibrate
from triplepoint.runtime.physics.calibration import Calibration


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano") as engine:
        yield engine


@pytest.fixture(scope="module")
def found(engine: Engine) -> Calibration:
    return calibrate(EngineTimer(engine), repeat=2)
