"""Qwen3 end to end: logits against transformers and numpy, and the same bits however run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny
from helpers.qwen3_numpy import divergence

from triplepoint.jit import targets
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session

MakeModel = Callable[[str], Path]
IDS = np.random.default_rng(1).integers(0, tiny.VOCAB, 150).tolist()
STEPS = 64

# Largest difference of any logit, as a share of the range of all logits.
#   float weights and cache: the same sums in float32, in another order
#   bf16 cache: keys and values have 8 bits; each logit is a sum over many of them
#   int8 activations: each of the 20 products of a pass rounds its input to 1/127 of the largest in
#     a group; with widths of 96 and 160 little averages out. Measured: 0.02.
FLOAT, BF16_CACHE, INT8 = 2e-5, 0.01, 0.04

# With rounded activations or caches most likeliest tokens stay (random weights make many near
# ties: 0.95 to 0.98 were measured), and the distributions are all but the same (7e-4).
TOP1, KL = 0.9, 2e-3


def _far(got: np.ndarray, want: np.ndarray) -> float:
    return float(np.abs(got - want).max() / np.ptp(want))


def _check(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert _far(got, want) <= tolerance
    if tolerance > FLOAT:
        assert (got.argmax(-1) == want.argmax(-1)).mean() >= TOP1
        assert 0 <= divergence(want, got).mean() <= KL


def _score(path: Path, ids: list[int], **settings: object) -> np.ndarray:
    with Engine.load(path, **settings) as engine:  # pyright: ignore[reportArgumentType]
        return engine.session().logits_for(ids)


CASES = [
    ("f32", "f32", FLOAT),
    ("f16", "f32", FLOAT),
    ("bf16", "f32", FLOAT),
    ("f32", "bf16", BF16_CACHE),
    ("q8_0", "f32", INT8),
    ("q4_0", "bf16", INT8),
]


@pytest.mark.parametrize(("kind", "kv", "tolerance"), CASES)
def test_logits_equal_numpy(tiny_model: MakeModel, kind: str, kv: str, tolerance: float) -> None:
    """Logits of 150 positions are those of the equations in float64, on dequantized weights."""
    path = tiny_model(kind)

    _check(_score(path, IDS, kv=kv), tiny.numpy_logits(path, IDS), tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0"])
def test_the_oracles_agree(tiny_model: MakeModel, kind: str) -> None:
    """Transformers and numpy say the same: neither has a mistake that the other has not."""
    pytest.importorskip("torch", reason="the oracle is torch: pip install '.[oracle]'")
    pytest.importorskip(
        "transformers", reason="the oracle is transformers: pip install '.[oracle]'"
    )
    path = tiny_model(kind)

    assert _far(tiny.torch_logits(path, IDS), tiny.numpy_logits(path, IDS)) <= FLOAT


def test_greedy_ids(tiny_model: MakeModel) -> None:
    """64 greedy steps with float weights choose what the equations choose, one after the other."""
    path = tiny_model("f32")
    with Engine.load(path, kv="f32") as engine:
        session = engine.session()
        session.prefill(IDS)
        ours = list(session.decode(max_tokens=STEPS))
    logits = tiny.numpy_logits(path, [*IDS, *ours[:-1]])

    assert len(ours) == STEPS
    assert ours == logits[len(IDS) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize("target", targets.runnable(), ids=str)
def test_every_target(tiny_model: MakeModel, target: targets.CpuTarget) -> None:
    """Each feature set is as near to the equations, and nearly always picks the same token."""
    path = tiny_model("q4_0")
    got = _score(path, IDS[:70], target=target.name)

    _check(got, tiny.numpy_logits(path, IDS[:70]), INT8)


# --- promises: the same bits, whatever the way


def _last_logits(session: Session, chunks: list[int]) -> np.ndarray:
    """Logits after IDS, prefilled in these chunks."""
    session.truncate(0)
    at = 0
    for chunk in chunks:
        session.prefill(IDS[at : at + chunk])
        at += chunk
    assert session.tokens == IDS
    return session.logits.copy()


@pytest.mark.slow
@pytest.mark.parametrize("target", [None, "generic"])
@pytest.mark.parametrize(("kind", "kv"), [("f32", "f32"), ("q8_0", "bf16"), ("q4_0", "q8")])
def test_same_bits_in_any_chunks(
    tiny_model: MakeModel, kind: str, kv: str, target: str | None
) -> None:
    """Prefill in chunks of 1, 7, 64 or whole, on 1, 2 or 3 threads: the same bits."""
    seen = []
    for threads in (1, 2, 3):
        with Engine.load(tiny_model(kind), kv=kv, threads=threads, target=target) as engine:
            session, total = engine.session(), len(IDS)
            for chunk in (1, 7, 64, total):
                chunks = [chunk] * (total // chunk) + [total % chunk] * (total % chunk > 0)
                seen.append(_last_logits(session, chunks))
    assert all(np.array_equal(logits, seen[0]) for logits in seen[1:])


@pytest.mark.parametrize("kind", ["f32", "q4_0"])
def test_same_bits_with_a_cached_prefix(tiny_model: MakeModel, kind: str) -> None:
    """A prompt on top of a cached prefix gives what it gives from nothing, other tails between."""
    with Engine.load(tiny_model(kind), threads=2) as engine:
        want = _last_logits(engine.session(), [len(IDS)])
        session = engine.session()
        session.prefill(IDS[:100])
        session.prefill([5, 6, 7] * 20)
        session.truncate(100)
        assert session.n_cached == 100
        phase = session.prefill(IDS[100:])

        assert phase.cached_tokens == 100
        assert phase.tokens == len(IDS) - 100
        assert np.array_equal(session.logits, want)


def test_scored_and_prefilled_are_the_same(tiny_model: MakeModel) -> None:
    """`score` gives at each position the bits that a prefill up to there gives."""
    with Engine.load(tiny_model("q8_0"), threads=2) as engine:
        scored = engine.session().logits_for(IDS[:70])
        for length in (1, 2, 33, 70):
            session = engine.session()
            session.prefill(IDS[:length])
            assert np.array_equal(session.logits, scored[length - 1])


def test_decoded_and_prefilled_are_the_same(tiny_model: MakeModel) -> None:
    """Tokens that were decoded one by one leave the logits that prefilling them leaves."""
    with Engine.load(tiny_model("q4_0"), threads=2) as engine:
        session = engine.session()
        session.prefill(IDS[:30])
        ids = list(session.decode(max_tokens=20))
        session.prefill([])
        decoded = session.logits.copy()
        other = engine.session()
        other.prefill([*IDS[:30], *ids])

        assert np.array_equal(other.logits, decoded)
