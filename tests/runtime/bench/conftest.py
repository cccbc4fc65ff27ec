"""What the kernels of the embedded model reach here, for tests of what is measured of it."""

from __future__ import annotations

import pytest

from triplepoint import Engine
from triplepoint.runtime.engine.engine_timer import EngineTimer
from triplepoint.runtime.physics.calibrate import calibrate
from triplepoint.runtime.physics.calibration import Calibration


@pytest.fixture(scope="module")
def found(engine: Engine) -> Calibration:
    return calibrate(EngineTimer(engine), repeat=2)
