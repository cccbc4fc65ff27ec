"""A model on a machine by its name alone: as an engine would tell, on any machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.planned import MACHINE

from triplepoint.errors import ModelError, SettingError
from triplepoint.jit.kernels.kvcache import KVFormat
from triplepoint.jit.targets import MASK, TARGETS
from triplepoint.runtime.bench.reach import reach
from triplepoint.runtime.hub.aliases import known_models
from triplepoint.runtime.physics.costs import Part
from triplepoint.runtime.physics.latency_model import Efficiency
from triplepoint.runtime.planning.cost import Usage
from triplepoint.runtime.planning.forecaster import of_name


def test_speeds_of_a_known_model() -> None:
    """Decode is bound by memory: weights over bandwidth; prefill by arithmetic."""
    found = of_name("qwen3:4b", MACHINE, reached=Efficiency())
    assert found is not None
    speeds = found.speeds(Usage(1, 1000, 0, 100))
    cost = found.cost
    nbytes = cost.body_bytes + cost.expert_bytes + cost.head_bytes
    assert 0.5 < speeds.decode / (60e9 / nbytes) < 1.0
    assert 0.4 < speeds.prefill / (4000e9 / (2 * found.active)) < 1.0
    more = found.speeds(Usage(1, 1000, 0, 100, concurrency=8))
    assert 2 < more.decode / speeds.decode < 8


def test_a_step_longer_than_any_context_is_refused() -> None:
    """A month's tokens as one question's: said at once, where passes were added up for hours."""
    found = of_name("qwen3:4b", MACHINE, reached=Efficiency())
    assert found is not None
    with pytest.raises(SettingError, match="100,000,000,000 tokens of input"):
        found.speeds(Usage(1, 1e11, 0, 100))
    assert found.speeds(Usage(1, 1e8, 0, 100, steps=1e4)).prefill > 0


def test_synthetic_models_and_unknown_ones() -> None:
    """A synthetic model needs no file; a path is nobody's name."""
    found = of_name("synthetic:qwen3-0.6b:q4_0", MACHINE, reached=Efficiency())
    assert found is not None
    assert 0.5e9 < found.weights < 0.8e9
    assert of_name("model.gguf", MACHINE) is None
    with pytest.raises(ModelError):
        of_name("synthetic:nothing:q4_0", MACHINE)
    with pytest.raises(SettingError, match="'avx4096', which is not known"):
        of_name("qwen3:4b", replace(MACHINE, target="avx4096"))


def test_a_cache_of_half_the_bytes() -> None:
    """In q8 a position takes about half, and long contexts decode faster."""
    found = of_name("qwen3:4b", MACHINE, reached=Efficiency())
    assert found is not None
    small = found.with_kv("q8")
    assert 0.5 < small.cost.kv_bytes / found.cost.kv_bytes < 0.6
    assert small.with_kv("bf16").cost.kv_bytes == pytest.approx(found.cost.kv_bytes)
    deep = [Part(1, 8000, 1)] * 8
    assert small.mixed_s(deep) < found.mixed_s(deep)
    faster = replace(MACHINE, read_gbps={**MACHINE.read_gbps, "DRAM": 120.0})
    assert found.with_machine(faster).phase_s(1, 0) < 0.6 * found.phase_s(1, 0)


@pytest.mark.parametrize("name", ["qwen3.5:4b", "gemma4:e4b", "glm4.7-flash:30b", "qwen3:4b"])
@pytest.mark.parametrize("kv", ["k16v8", "q8", "f32"])
def test_a_cache_in_another_format_is_read_in_it(name: str, kv: KVFormat) -> None:
    """Also in models whose layers are not all alike: as if it had been asked for at once."""
    found, asked = (of_name(name, MACHINE, one, Efficiency()) for one in ("bf16", kv))
    assert found is not None
    assert asked is not None
    for start, tokens in ((0, 1), (4096, 1), (3000, 200)):
        read = found.with_kv(kv).cost.cache_read(start, tokens)
        assert read == pytest.approx(asked.cost.cache_read(start, tokens), rel=0.03)
    there, here = found.with_kv(kv).cost, asked.cost
    assert (there.int8_keys, there.int8_values) == (here.int8_keys, here.int8_values)


def test_facts_of_a_machine_need_none_of_its_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU without any extension forecasts machines of every feature set and architecture."""
    monkeypatch.setenv(MASK, "generic")
    (model,) = (one for one in known_models() if one.alias == "qwen3.5:4b")
    for name in TARGETS:
        machine = replace(MACHINE, target=name)
        found = of_name(model.alias, machine, "q8", Efficiency())
        assert found is not None, name
        assert found.phase_s(1, 4096) > 0, name
        (there,) = reach(machine, 1 << 40, [model])
        assert there.fits, name
        assert there.decode == pytest.approx(1 / found.with_kv("bf16").phase_s(1, 0), rel=0.5), name
