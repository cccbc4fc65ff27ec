"""Many sequences at once, measured."""

from __future__ import annotations

import gc
import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.bench import batch
from triplepoint.runtime.bench.batch import measure
from triplepoint.runtime.bench.compare import Baseline
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.request import Batch, StepResult

FAKE = Path(__file__).parents[2] / "helpers" / "fake_llama"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.load("nano", threads=1, context=512) as engine:
        yield engine


def test_each_size_has_its_rounds(engine: Engine) -> None:
    """A row for each batch size, with as many rounds as were asked for, and rates that follow."""
    one, four = measure(engine, [1, 4], 30, 5, repeat=2)

    assert (one.batch, four.batch, four.positions) == (1, 4, 140)
    for found in (one, four):
        assert len(found.prompt_s) == len(found.decode_s) == 2
        assert min(found.decode_s) > 0
        assert min(found.decode_rates) <= found.decode_rate <= max(found.decode_rates)
    assert not one.forecasts.ratios
    assert len(four.forecasts.ratios) == 2 * (1 + 5), "a prompt and five tokens, twice"
    assert len(four.forecasts.held) == 2 * (1 + 5)
    assert four.forecasts.alike(1e9) == 1.0
    assert 0.0 <= four.forecasts.within(0.15) <= 1.0
    assert len(engine.core.runner.shared_observers) == 1, "the engine's own"


def test_what_is_decoded_is_what_sessions_decode(engine: Engine) -> None:
    """The sequences of a batch write what sessions of their own write."""
    prompts = [[n + 3, *range(50, 90)] for n in range(3)]
    want = []
    for ids in prompts:
        session = engine.session()
        session.prefill(ids)
        want.append(list(session.decode(max_tokens=9)))
    sessions = [engine.session() for _ in prompts]
    tokens = batch._prefill(engine, sessions, prompts)
    last = batch._decode(engine, sessions, tokens, 8)

    assert [[*s.tokens[41:], token] for s, token in zip(sessions, last, strict=True)] == want


@pytest.mark.slow
def test_prompts_that_begin_alike(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is shared is computed once; decodes are timed reading it together, then apart."""
    joined: list[bool] = []
    run = engine.core.runner.run

    def watched(batch: Batch, plan: Any = None) -> list[StepResult]:
        if len(batch.parts) > 1:
            joined.append(engine.core.runner.joins)
        return run(batch, plan)

    monkeypatch.setattr(engine.core.runner, "run", watched)
    before = engine.loaded.layout.memory.used
    one, four = measure(engine, [1, 4], 300, 5, repeat=2, shared=280)
    del joined[: len(joined) // 3]  # the round that does not count

    assert (one.shared, four.shared, four.positions) == (280, 280, 4 * 305)
    assert len(four.apart_s) == len(four.decode_s) == 2
    assert four.prompt_rate == pytest.approx(80 / statistics.median(four.prompt_s))
    assert joined == 2 * [*[True] * (1 + 5), *[False] * 5]
    assert len(four.forecasts.ratios) == 2 * (1 + 5), "without those that read apart"
    assert engine.core.runner.joins
    gc.collect()
    assert engine.loaded.layout.memory.used <= before


def test_what_makes_no_sense(engine: Engine) -> None:
    """Sizes out of range, and texts that do not fit, are refused with figures."""
    with pytest.raises(SettingError, match="1 to 64 sequences, not 65"):
        list(measure(engine, [65], 10, 10))
    with pytest.raises(SettingError, match="500 \\+ 20 tokens do not fit a context of 512"):
        list(measure(engine, [1], 500, 20))
    with pytest.raises(SettingError, match="at least one token"):
        list(measure(engine, [1], 0, 20))
    with pytest.raises(SettingError, match="prompts of 100 tokens cannot have 100 in common"):
        list(measure(engine, [2], 100, 20, shared=100))
    with (
        Engine.load("nano", threads=1, kv_memory=4 << 20) as small,
        pytest.raises(SettingError, match=r"4 sequences of 300 tokens need [\d,]+ bytes"),
    ):
        list(measure(small, [1, 4], 280, 20))


def test_beside_another_engine(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It computes the same rows: prompts of each sequence, then a row of each in every pass."""
    log = tmp_path / "log"
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    monkeypatch.setenv("FAKE_LLAMA_LOG", str(log))
    with Baseline(sys.executable) as peer:
        peer.load(engine.model.path, engine.context, engine.threads)
        found = list(measure(engine, [1, 4], 30, 5, 1, peer))

    for one in found:
        assert set(one.theirs) == {"flash attention", "no flash attention"}
        assert all(len(rounds) == 1 for rounds in one.theirs.values())
        assert min(one.their_rates) > 0
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    rows = [tuple(note[1:]) for note in noted if note[0] == "rows" and note[1] == 1]
    assert rows == 2 * [(1, 30, 1), *[(1, 1, 1)] * 5, (1, 120, 4), *[(1, 4, 4)] * 5]
    opened = [note for note in noted if note[0] == "open"]
    assert len(opened) == 2, "a context for each setting, for the most sequences"
    assert {note[2] for note in opened} == {4 * 256}
