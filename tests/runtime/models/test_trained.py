"""Trained weights: the embedded model, in several types, against transformers and llama.cpp.

Fourteen held-out conversations, one of each kind, with the calls and results that belong to them.
The *plain* file of a type holds in float32 what its weights stand for: what an engine without any
rounding of activations would compute, and what both engines are validated against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from helpers import peer_logits
from helpers.qwen3_numpy import divergence
from helpers.tiers import quick
from helpers.tiny_qwen3 import torch_logits

import triplepoint.runtime.nano
from labs.nano.batches import Encoder
from labs.nano.bpe import Vocabulary
from labs.nano.corpus import FAMILIES
from labs.nano.held_out import BANDS, Case, cases
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.quantize.quantize import quantize

MODEL = Path(triplepoint.runtime.nano.__file__).with_name("nano.gguf")
CONTEXT, STEPS = 1024, 256
KINDS = ("Q8_0", "Q4_0", "Q4_K_M", "Q5_K_M")  # the last two have matrices of Q6_K
# Mean KL divergence of rounded activations from none, which is also that between the engines.
# Measured: 9e-5 to 1.9e-4 over all positions, whichever two are compared.
KL, TOP1 = 1e-3, 0.99
# Where the plain file prefers its first choice to the second by as much (natural logarithm), any
# rounding of activations must choose the same.
SURE = 0.5


@dataclass(frozen=True)
class Talk:
    """A conversation: its ids, the part before the model's first word, where the model speaks."""

    case: Case

    @property
    def ids(self) -> list[int]:
        return self.case.ids

    @property
    def prompt(self) -> list[int]:
        return self.ids[: self.case.targets.index(True)]

    @property
    def spoken(self) -> np.ndarray:
        """Positions whose logits choose a token of the model's."""
        return np.flatnonzero(self.case.targets) - 1


@pytest.fixture(scope="module")
def talks() -> list[Talk]:
    """One of each kind."""
    with open_gguf(MODEL) as file:
        encoder = Encoder(Vocabulary.of_gguf(file.metadata))
    out = [Talk(case) for kind in FAMILIES for case in cases(encoder, kind, BANDS[0], 1, 7)]
    assert len(out) == len(FAMILIES)
    return out


Make = Callable[..., Path]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The model in a type, or the plain file of that type."""
    folder = tmp_path_factory.mktemp("trained")

    def make(kind: str, *, plain: bool = False) -> Path:
        path = folder / f"{kind}{'-plain' if plain else ''}.gguf"
        if not path.exists():
            if plain:
                quantize(make(kind), path, "F32", threads=1)
            elif kind == "Q8_0":
                path.write_bytes(MODEL.read_bytes())
            else:
                quantize(make("Q8_0", plain=True), path, kind, threads=1)
        return path

    return make


@pytest.fixture(scope="module")
def scores(model: Make, talks: list[Talk]) -> Callable[..., list[np.ndarray]]:
    """Our logits of every position of each conversation, by file."""
    known: dict[Path, list[np.ndarray]] = {}

    def score(kind: str, *, plain: bool = False) -> list[np.ndarray]:
        path = model(kind, plain=plain)
        if path not in known:
            with Engine.load(path, kv="f32", context=CONTEXT) as engine:
                known[path] = [engine.session().logits_for(talk.ids) for talk in talks]
        return known[path]

    return score


Scores = Callable[..., list[np.ndarray]]


def _greedy(path: Path, talks: list[Talk]) -> list[list[int]]:
    """STEPS tokens after each prompt, past the ends of turns."""
    out = []
    with Engine.load(path, kv="f32", context=CONTEXT) as engine:
        for talk in talks:
            session = engine.session()
            session.prefill(talk.prompt)
            out.append(list(session.decode(max_tokens=STEPS)))
    return out


# --- transformers


def _oracle() -> None:
    pytest.importorskip("torch", reason="the oracle is torch: pip install '.[oracle]'")
    pytest.importorskip(
        "transformers", reason="the oracle is transformers: pip install '.[oracle]'"
    )


@pytest.mark.slow
def test_greedy_tokens_are_those_of_transformers(model: Make, talks: list[Talk]) -> None:
    """In F32, 256 tokens after each prompt are the ones that transformers would choose."""
    _oracle()
    path = model("Q8_0", plain=True)
    for talk, answer in zip(talks, _greedy(path, talks), strict=True):
        ids = [*talk.prompt, *answer[:-1]]
        assert answer == torch_logits(path, ids)[len(talk.prompt) - 1 :].argmax(-1).tolist()


@pytest.mark.parametrize("kind", quick(KINDS, ci=("Q4_0", "Q4_K_M")))
def test_what_is_spoken_is_that_of_transformers(
    model: Make, scores: Scores, talks: list[Talk], kind: str
) -> None:
    """In every type the model says what the plain file says in transformers, where that is sure."""
    _oracle()
    path, spoken = model(kind, plain=True), 0
    for talk, ours in zip(talks, scores(kind), strict=True):
        want = torch_logits(path, talk.ids)
        assert divergence(want, ours).mean() <= KL
        at, second = talk.spoken, np.partition(want[talk.spoken], -2)[:, -2]
        sure = want[at].max(-1) - second >= SURE
        assert np.array_equal(ours[at][sure].argmax(-1), want[at][sure].argmax(-1))
        spoken += int(sure.sum())
    assert spoken >= 512


# --- llama.cpp


@pytest.mark.slow
def test_greedy_tokens_are_those_of_llama_cpp(peer: str, model: Make, talks: list[Talk]) -> None:
    """In F32, 256 tokens after each prompt are llama.cpp's, each engine going its own way."""
    path = model("Q8_0", plain=True)
    theirs = peer_logits.greedy(peer, path, [talk.prompt for talk in talks], STEPS)
    assert _greedy(path, talks) == theirs


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_quantized_files_agree_with_llama_cpp(
    peer: str, model: Make, scores: Scores, talks: list[Talk], kind: str
) -> None:
    """On the same file both choose the same: always where what is spoken is sure, else at 99 %.

    Both round activations to int8, each in its own way: we are as near to the plain file as they.
    """
    path = model(kind)
    theirs = np.concatenate([peer_logits.theirs(peer, path, talk.ids) for talk in talks])
    ours, plain = (np.concatenate(scores(kind, plain=p)) for p in (False, True))
    starts = np.cumsum([0, *(len(talk.ids) for talk in talks)])
    spoken = np.concatenate(
        [start + talk.spoken for start, talk in zip(starts, talks, strict=False)]
    )
    same = ours.argmax(-1) == theirs.argmax(-1)
    sure = plain[spoken].max(-1) - np.partition(plain[spoken], -2)[:, -2] >= SURE

    assert len(same) > 2500
    assert sure.sum() >= 512
    assert same[spoken][sure].all()
    assert same.mean() >= TOP1
    assert 0 < divergence(theirs, ours).mean() <= KL
    assert 0 < divergence(plain, ours).mean() <= 1.3 * divergence(plain, theirs).mean()
