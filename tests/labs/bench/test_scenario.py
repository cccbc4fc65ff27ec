"""The scenario: what is computed with everything on and with everything off."""

from __future__ import annotations

import pytest

from labs.bench import scenario
from triplepoint import Engine, SettingError


@pytest.mark.slow
def test_what_is_computed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """On reads what is new; off reads all of it each time, and has a pass for every token."""
    monkeypatch.setattr(scenario, "RESULT", 900)

    found = scenario.measure(engine, 1)

    before = 0
    for one in found:
        off, on, tokens = one.off[0], one.on[0], len(one.step.ids)
        assert on.token_ids[-tokens:] == one.step.ids
        if one.step.said:
            # The last token of a decode is computed by what follows it.
            assert off.passes == tokens - 1 >= on.passes
        else:
            assert off.tokens == before + tokens
            assert on.tokens <= tokens + 1
        before += tokens
    call = found[1]
    assert call.step.call
    assert call.on[0].passes < call.off[0].passes / 2, "most of a call is forced"


@pytest.mark.slow
def test_the_table(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each step and one for the run, whose time is the sum of theirs."""
    monkeypatch.setattr(scenario, "RESULT", 300)

    found = scenario.measure(engine, 1)
    table = scenario.lines(found)

    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [row[0] for row in rows[2:]] == [one.step.name for one in found] + ["whole run"]
    assert len({len(row) for row in rows}) == 1
    total = sum(one.on[0].wall_s for one in found)
    assert rows[-1][6] == f"{total:.3f}"


def test_too_long_for_the_model(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that does not fit is refused with its length."""
    monkeypatch.setattr(scenario, "_source", lambda: "word " * 20_000)

    monkeypatch.setattr(scenario, "RESULT", 50_000)

    with pytest.raises(SettingError, match=r"the run is [\d,]+ tokens long, .* such as synthetic"):
        scenario.steps(engine)
