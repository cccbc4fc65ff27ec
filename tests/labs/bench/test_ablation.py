"""The ablation: its variants, the comparison by hand, and each kind of case once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers.labs_bench import bench

from labs.bench.ablation import _check
from labs.bench.fixed_settings import POLICY, Ablation, AgentRun, Compared, variants
from triplepoint.errors import SettingError
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.physics.timed_passes import Case
from triplepoint.traces import Trace

RUN = Path(__file__).parents[3] / "examples" / "runs" / "chat.jsonl"


def test_variants() -> None:
    """The policy, then each setting at each of its values, one at a time."""
    assert variants(["pages"], 2) == {POLICY: {}, "pages=on": {"pages": "on"},
                                      "pages=off": {"pages": "off"}}  # fmt: skip
    assert variants(["max_single_tile"], 2)["max_single_tile=9"] == {"max_single_tile": "9"}
    assert list(variants(["threads"], 12))[1:] == [f"threads={n}" for n in (1, 2, 6, 12)]
    assert list(variants(["threads"], 1))[1:] == ["threads=1"]


def test_the_comparison_by_hand() -> None:
    """Speeds are compared within a round; the median and half the quartiles' distance count."""
    found = Compared("tg16", 16, {POLICY: [1.0, 2.0, 4.0], "spin=0us": [2.0, 2.0, 5.0]})
    assert found.rate == 8.0
    assert found.ratios("spin=0us") == [0.5, 1.0, 0.8]
    assert found.ratio("spin=0us") == 0.8
    assert found.spread("spin=0us") == pytest.approx((0.9 - 0.65) / 2)
    assert Compared("x", 1, {POLICY: [1.0]}).spread(POLICY) == 0.0


@pytest.mark.skipif(not RUN.exists(), reason="the library of runs is only in a checkout")
def test_a_recorded_run_is_a_schedule() -> None:
    """Its phases in order, pauses where tools ran, and no more than fits."""
    trace = Trace.load(RUN)
    run = AgentRun.of(trace, "chat")
    assert run.tokens == sum(phase.tokens for phase in trace.phases)
    assert sum(pause > 0 for *_, pause in run.steps) >= 1
    assert not run.steps[0][1]
    assert any(decode for _, decode, _ in run.steps)
    assert run.within(run.end) == run
    assert run.within(run.tokens).steps == run.steps[:-1]
    assert run.within(run.steps[0][0] + 1).steps == run.steps[:1]


def test_each_kind_of_case() -> None:
    """Every variant has a time for every case that fits; the engine's threads end."""
    engines: list[Engine] = []

    def load(given: Mapping[str, Any]) -> Engine:
        engines.append(Engine.load("nano", threads=None, context=300, tune=given))
        return engines[-1]

    run = AgentRun("run", ((20, False, 0.0), (5, True, 0.0), (9, False, 1e-3), (4, True, 0.0)))
    cases = [Case(prompt=9), Case(generate=4, depth=40), Case(prompt=400), run]
    ablation = Ablation(load, cases, ["chunk", "pages"])
    try:
        found = list(ablation.run(1))
    finally:
        ablation.close()
    assert [compared.name for compared in found] == ["pp9", "tg4 @ d40", "run"]
    for compared in found:
        assert set(compared.seconds) == set(ablation.names)
        assert all(len(times) == 1 and times[0] > 0 for times in compared.seconds.values())
    assert len(engines) == 2, "one for the pages that were not chosen"
    assert all(engine.loaded.pool.closed for engine in engines)


def test_the_command() -> None:
    """A table with a column for each fixed value, and what was chosen; wrong names are refused."""
    done = bench("ablation", "spin", "--tests", "pp4", "-r", "1")
    assert done.returncode == 0
    assert "spin=0us" in done.stdout
    assert "chosen: decode threads" in done.stdout
    done = bench("ablation", "color", "--tests", "pp4")
    assert done.returncode == 2
    assert "choose from threads, chunk" in done.stderr


def test_what_the_context_does_not_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """A named test is refused, a run is cut with a note: nothing disappears silently."""
    done = bench("ablation", "spin", "--tests", "pp4,tg16@8192", "-r", "1")
    assert done.returncode == 2
    assert "tg16 @ d8192 does not fit a context of 4,096" in done.stderr

    long, huge = AgentRun("long", ((20, False, 0.0),) * 3), AgentRun("huge", ((50, False, 0.0),))
    ablation = Ablation(lambda given: Engine.load("nano", context=50), [long, huge], ["spin"])
    try:
        assert [case.tokens for case in ablation.cases] == [40]
        _check([long], ablation, Output())
        assert "long: its first 40 of 60 tokens fit a context of 50" in capsys.readouterr().err
        with pytest.raises(SettingError, match="huge does not fit"):
            _check([huge], ablation, Output())
    finally:
        ablation.close()
