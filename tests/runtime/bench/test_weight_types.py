"""One model in several types of weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from triplepoint.errors import SettingError
from triplepoint.runtime.bench import weight_types
from triplepoint.runtime.bench.weight_types import TypeResult, compare_types
from triplepoint.runtime.engine.engine import Engine


def loaded(path: Path) -> Engine:
    return Engine.load(path, threads=1, context=weight_types.CHUNK)


@pytest.fixture(scope="module")
def base() -> Iterator[Engine]:
    with Engine.load("nano", threads=1, context=weight_types.CHUNK) as engine:
        yield engine


@pytest.mark.slow
def test_smaller_types_are_farther(base: Engine, tmp_path: Path) -> None:
    """The model as it is comes first, without an error; the fewer the bits, the larger error and
    divergence, and each has the rounds that were asked for."""
    text = tmp_path / "text.txt"
    text.write_text("the error in app.log was: connection refused after 3 retries\n" * 60)
    first, *others = compare_types(
        base, ["Q8_0", "Q4_K_M", "Q2_K"], tmp_path, loaded, tokens=3, repeat=2, text=str(text),
        max_chunks=1,
    )  # fmt: skip

    assert (first.name, first.error, first.nbytes) == ("", 0.0, base.model.nbytes)
    assert [one.name for one in others] == ["Q8_0", "Q4_K_M", "Q2_K"]
    assert all(len(one.rates) == 2 and min(one.rates) > 0 for one in (first, *others))
    assert others[0].error == 0, "nano is Q8_0 already"
    assert 0.03 < others[1].error < others[2].error < 0.4
    assert others[0].nbytes > others[1].nbytes > others[2].nbytes

    def divergence(one: TypeResult) -> float:
        assert one.perplexity is not None
        assert one.perplexity.divergence is not None
        return one.perplexity.divergence.kl.value

    assert first.perplexity is not None
    assert first.perplexity.chunks == 1
    assert divergence(others[0]) < divergence(others[1]) < divergence(others[2])


def test_too_little_memory(base: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that would not fit memory together are refused before one is loaded."""
    monkeypatch.setattr(weight_types, "available_bytes", lambda: 1000)
    with pytest.raises(SettingError, match=r"1 types need about .* GB .* name fewer"):
        list(compare_types(base, ["Q8_0"], tmp_path, loaded, tokens=1, repeat=1))
