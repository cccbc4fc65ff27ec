"""Qwen3 with experts, end to end: against transformers, in any chunks, on any feature set."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import peer_logits
from helpers import tiny_qwen3moe as tiny

from triplepoint.errors import GGUFError
from triplepoint.jit import targets
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.physics.calibration import Calibration
from triplepoint.runtime.physics.costs import decode_cost, pass_cost
from triplepoint.runtime.physics.latency_model import Efficiency, Passes

TARGETS = [target.name for target in targets.runnable()]
IDS = [int(i) for i in np.random.default_rng(3).integers(0, 256, 80)]
CONTINUED = 64

MakeModel = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes the tiny model once for each type and number of experts that a token takes."""
    folder = tmp_path_factory.mktemp("models")

    def make(kind: str, used: int = tiny.USED) -> Path:
        path = folder / f"{kind}-{used}.gguf"
        if not path.exists():
            most, _, gates = kind.partition("+")
            tiny.write_tiny(path, most, used, gates=gates or None)
        return path

    return make


def _range_error(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Of each position, the largest difference as a share of the range of all logits."""
    return np.abs(got - want).max(axis=-1) / (want.max() - want.min())


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_logits_equal_transformers(model: MakeModel, target: str) -> None:
    """F32 weights and cache: logits within 1e-3 of the range, the same greedy ids over 64 steps."""
    pytest.importorskip("torch", reason="the reference is torch's; install the test extra")
    pytest.importorskip("transformers", reason="the reference is transformers'")
    path = model("f32")
    reference = tiny.torch_model(path)
    want = tiny.torch_logits(reference, IDS)
    with Engine.load(path, kv="f32", target=target) as engine:
        assert _range_error(engine.session().logits_for(IDS), want).max() <= 1e-3
        session = engine.session()
        session.prefill(IDS)
        ours = list(session.decode(max_tokens=CONTINUED))
    assert len(ours) == CONTINUED
    # Each id is the reference's choice after all those before it.
    logits = tiny.torch_logits(reference, [*IDS, *ours[:-1]])
    assert ours == logits[len(IDS) - 1 :].argmax(axis=-1).tolist()


@pytest.mark.slow
def test_logits_equal_llama_cpp(model: MakeModel, peer: str) -> None:
    """F32 weights and cache: llama.cpp's logits, and the same likeliest token everywhere."""
    path = model("f32")
    want = peer_logits.theirs(peer, path, IDS)
    with Engine.load(path, kv="f32") as engine:
        got = engine.session().logits_for(IDS)

    assert _range_error(got, want).max() <= 1e-4
    assert np.array_equal(got.argmax(-1), want.argmax(-1))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["q8_0", "q4_0", "bf16", "bf16+f32"])
def test_quantized_logits(model: MakeModel, kind: str) -> None:
    """Against transformers on the dequantized weights, with every expert in use.

    Where experts are chosen, an activation rounded to int8 can tip the choice between two that are
    nearly as likely, and no bound on the difference would mean much. In bf16+f32 the gates have a
    type of their own.
    """
    pytest.importorskip("torch", reason="the reference is torch's; install the test extra")
    pytest.importorskip("transformers", reason="the reference is transformers'")
    path = model(kind, tiny.EXPERTS)
    want = tiny.torch_logits(tiny.torch_model(path, tiny.EXPERTS), IDS)
    with Engine.load(path, kv="f32") as engine:
        far = _range_error(engine.session().logits_for(IDS), want)
    assert far.max() <= (1e-3 if "bf16" in kind else 0.03)


@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_quantized_choices(model: MakeModel, kind: str) -> None:
    """With a choice of experts, most positions keep theirs and are as near to transformers.

    Random weights have near ties between experts; int8 rounding tips some of them, and such a
    position differs as a whole. 0.84 to 0.98 of the first places were seen to agree.
    """
    pytest.importorskip("torch", reason="the reference is torch's; install the test extra")
    pytest.importorskip("transformers", reason="the reference is transformers'")
    path = model(kind)
    want = tiny.torch_logits(tiny.torch_model(path), IDS)
    with Engine.load(path, kv="f32") as engine:
        got = engine.session().logits_for(IDS)
    assert np.median(_range_error(got, want)) <= 0.03
    assert (got.argmax(axis=-1) == want.argmax(axis=-1)).mean() >= 0.75


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["f32", "q4_0"])
def test_same_bits(model: MakeModel, kind: str, target: str) -> None:
    """Logits have the same bits for chunks of 1, 7, 64 and whole, with 1 and 2 threads."""
    seen = []
    for threads in (1, 2):
        with Engine.load(model(kind), threads=threads, target=target) as engine:
            for chunk in (1, 7, 64, len(IDS)):
                session = engine.session()
                for at in range(0, len(IDS), chunk):
                    session.prefill(IDS[at : at + chunk])
                seen.append(session.logits.copy())
    assert all(np.array_equal(logits, seen[0]) for logits in seen[1:])


def test_decode_counts_only_the_chosen_experts(model: MakeModel) -> None:
    """A decoded token costs the bytes and operations of its own experts; a long prefill, of all."""
    with Engine.load(model("q8_0")) as engine:
        cost = engine.loaded.cost
        blocks = engine.loaded.network.blocks
        halves = [b.ffn for b in blocks if b.ffn is not None]
        experts = [m for half in halves for m in half.matrices if m.experts]
        router = [half.matrices[0] for half in halves]
    share = tiny.USED / tiny.EXPERTS
    each = 3 * tiny.FFN * tiny.WIDTH
    assert [m.parameters for m in router] == [tiny.EXPERTS * tiny.WIDTH] * tiny.LAYERS
    assert cost.expert_weights == tiny.LAYERS * tiny.EXPERTS * each
    assert cost.expert_bytes == sum(m.nbytes for m in experts)

    one = decode_cost(cost, 0, 1, 0)
    fixed = cost.body_bytes + cost.head_bytes
    assert one.weight_bytes == pytest.approx(fixed + share * cost.expert_bytes)
    weights = cost.body_weights + cost.head_weights + tiny.LAYERS * tiny.USED * each
    assert one.linear_flops == pytest.approx(2 * weights)
    assert pass_cost(cost, 1, 0, 1, 0, 1) == one
    many = pass_cost(cost, 200, 0, 1, 0, 1)
    assert many.weight_bytes == pytest.approx(fixed + cost.expert_bytes)


def test_the_trace_counts_experts(model: MakeModel) -> None:
    """A phase says how many experts a layer touched, and its bytes are those of just these."""
    with Engine.load(model("q8_0")) as engine:
        session = engine.session()
        two = session.prefill(IDS[:2])
        many = session.prefill(IDS[2:])
        list(session.decode(max_tokens=3))
        one, cost = session.last_phase, engine.loaded.cost
    assert one is not None
    assert one.experts == tiny.USED
    assert one.experts_by_layer == [tiny.USED] * tiny.LAYERS
    assert two.experts is not None
    assert tiny.USED <= two.experts <= 2 * tiny.USED
    assert many.experts is not None
    assert two.experts < many.experts <= tiny.EXPERTS
    for phase in (two, many):
        assert len(phase.experts_by_layer) == tiny.LAYERS
        assert np.mean(phase.experts_by_layer) == pytest.approx(phase.experts, abs=0.01)
    # Without a calibration each token is expected to choose by itself.
    assert two.predicted_experts == pytest.approx(cost.expected_experts(2) / tiny.LAYERS, abs=0.01)
    assert one.predicted_experts == tiny.USED
    # The same pass with as many experts as it says.
    read = two.experts * tiny.LAYERS
    assert two.bytes == pytest.approx(pass_cost(cost, 2, 0, 1, 0, 1, read).bytes, rel=0.01)


def test_the_experts_of_phases_are_expected_of_the_next(model: MakeModel) -> None:
    """With a calibration of random tokens the same text again is expected to read what it did."""
    with Engine.load(model("q8_0")) as engine:
        loaded = engine.loaded
        passes = Passes(128, loaded.attention_tile, 10, 10)
        found = Calibration("", Efficiency(), passes, engine.machine, "")
        loaded.apply_calibration(found)
        first, again = (engine.session().prefill(IDS[:1] * 4) for _ in range(2))
        alone = loaded.cost.expected_experts(4) / tiny.LAYERS
    assert first.experts == again.experts
    assert first.experts is not None
    assert first.predicted_experts == pytest.approx(alone, abs=0.01)
    assert again.predicted_experts == pytest.approx(first.experts, abs=0.02)
    assert first.experts < alone, "four times the same token takes fewer experts than four others"


def test_a_wrong_number_of_experts_is_refused(model: MakeModel, tmp_path: Path) -> None:
    """A file whose metadata say more experts than its tensors hold is refused with both shapes."""
    path = tmp_path / "wrong.gguf"
    tiny.write_tiny(path, "q8_0", experts_said=tiny.EXPERTS + 1)
    with pytest.raises(GGUFError, match=r"ffn_gate_inp.*\[10, 96\].*\[11, 96\]"):
        Engine.load(path)
