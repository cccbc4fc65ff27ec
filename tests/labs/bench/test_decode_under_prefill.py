"""A decode beside a long prompt, measured."""

from __future__ import annotations

import pytest

from labs.bench.decode_under_prefill import measure
from triplepoint.errors import SettingError
from triplepoint.runtime.engine.engine import Engine


def test_a_round_has_a_prompt_alone_and_beside() -> None:
    """As many rounds as were asked for, each with gaps of the decode while the prompt was read."""
    with Engine.load("nano", threads=2, context=2048) as engine:
        engine.core.scheduler.deadline_s = 0.004
        found = measure(engine, 1500, 2)
        with pytest.raises(SettingError, match="2000 tokens does not fit a context of 2048"):
            measure(engine, 2000)

    assert len(found.alone_s) == len(found.beside_s) == len(found.gaps_s) == 2
    assert min(found.alone_s) > 0
    assert all(gaps for gaps in found.gaps_s)
    assert len(found.kept) == len(found.longest_s) == 2
    assert found.forecasts.ratios, "they never shared a pass"
