"""Which type each tensor gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.peer_types import chosen_types

from triplepoint.errors import SettingError
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import GGMLType, TensorInfo
from triplepoint.runtime.quantize.mixes import MIXES, Chosen, ModelFacts, choose, mix_of
from triplepoint.runtime.quantize.quantize import plan_of
from triplepoint.runtime.synthetic.shapes import SHAPES
from triplepoint.runtime.synthetic.write import SyntheticModel


def kind(
    name: str,
    mix: str,
    *shape: int,
    layers: int = 28,
    group: int = 2,
    stored: str = "F16",
    names: Sequence[str] = (),
    **facts: Any,
) -> Chosen:
    info = TensorInfo(name, shape or (1024, 1024), GGMLType[stored], 0, 0)
    parts = ("attn_v", "ffn_down")
    names = names or [f"blk.{n}.{part}.weight" for n in range(layers) for part in parts]
    facts = {"tied": False, **facts}
    return choose(info, MIXES[mix], ModelFacts.of(names, layers, group, **facts))


# As llama-quantize (ggml 0.25.3) chose for a model of 14 layers in this mix.
MORE_OF_14 = [0, 3, 6, 9, 12, 13]


@pytest.mark.parametrize("mix", ["Q4_K_M", "Q5_K_M"])
@pytest.mark.parametrize("part", ["attn_v", "ffn_down", "ffn_down_exps"])
def test_half_of_the_layers(mix: str, part: str) -> None:
    """Values and the second feed-forward matrix are Q6_K in the first and last eighth and in every
    third layer between; the other parts never are."""
    more = [
        n for n in range(14)
        if kind(f"blk.{n}.{part}.weight", mix, layers=14, experts=32).kind is GGMLType.Q6_K
    ]  # fmt: skip
    others = {
        kind(f"blk.{n}.{name}.weight", mix, layers=14).kind
        for n in range(14)
        for name in ("attn_q", "attn_k", "attn_output", "ffn_gate", "ffn_up", "ffn_up_exps")
    }

    assert more == MORE_OF_14
    assert others == {MIXES[mix].kind}


@pytest.mark.parametrize(("group", "expected"), [(0, "Q3_K"), (3, "Q3_K"), (4, "Q4_K")])
def test_values_that_many_heads_share(group: int, expected: str) -> None:
    """In Q2_K values are Q4_K where four query heads share them, as llama-quantize has it."""
    assert kind("blk.9.attn_v.weight", "Q2_K", group=group).kind is GGMLType[expected]


@pytest.mark.parametrize("mix", ["Q4_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K"])
def test_output_head(mix: str) -> None:
    """The head is Q6_K, and so is the embedding table where there is no other head."""
    own = MIXES[mix].kind

    assert kind("output.weight", mix).kind is GGMLType.Q6_K
    assert kind("token_embd.weight", mix).kind is own
    assert kind("token_embd.weight", mix, tied=True).kind is GGMLType.Q6_K


def test_experts() -> None:
    """MXFP4_MOE is for experts; all else of such a file is Q8_0, as in other tools' files."""
    for name in ("gate", "up", "down"):
        chosen = kind(f"blk.0.ffn_{name}_exps.weight", "MXFP4_MOE", 4, 64, 96)
        assert chosen == Chosen(GGMLType.MXFP4)
    for name in ("token_embd", "output", "blk.0.attn_v", "blk.0.ffn_down"):
        assert kind(f"{name}.weight", "MXFP4_MOE", tied=True).kind is GGMLType.Q8_0


def test_one_type() -> None:
    """Q8_0 and the float types are the same for every matrix."""
    for mix in ("Q8_0", "F16", "BF16", "F32"):
        for name in ("output.weight", "token_embd.weight", "blk.0.attn_v.weight"):
            assert kind(name, mix, tied=True).kind is GGMLType[mix]


@pytest.mark.parametrize(
    "name", ["blk.3.attn_norm.weight", "blk.3.attn_q.bias", "rope_freqs.weight"]
)
def test_vectors(name: str) -> None:
    """What has one dimension stays as it is stored."""
    assert kind(name, "Q4_K_M", 1024, stored="F32").kind is GGMLType.F32
    assert kind(name, "Q4_K_M", 1024, stored="F16").kind is GGMLType.F16


def test_router() -> None:
    """The router of a mixture of experts stays as it is."""
    assert kind("blk.0.ffn_gate_inp.weight", "Q4_K_M", 128, 2048, stored="F32").kind is GGMLType.F32


@pytest.mark.parametrize(
    ("mix", "narrow"),
    [("Q2_K", "Q4_0"), ("Q4_K_M", "Q5_0"), ("Q5_K_M", "Q5_1"), ("Q6_K", "Q8_0")],
)
def test_narrow_rows(mix: str, narrow: str) -> None:
    """Rows that do not divide into 256 get a type of blocks of 32, and it is said of which."""
    chosen = kind("blk.5.attn_q.weight", mix, 1024, 640)

    assert chosen == Chosen(GGMLType[narrow], MIXES[mix].kind)


def test_very_narrow_rows() -> None:
    """Rows that do not divide into 32 either stay F16."""
    assert kind("blk.5.attn_q.weight", "Q4_K_M", 64, 40).kind is GGMLType.F16
    assert kind("blk.5.attn_q.weight", "Q8_0", 64, 40) == Chosen(GGMLType.F16, GGMLType.Q8_0)


@pytest.mark.parametrize(("width", "expected"), [(256, "Q4_K"), (128, "Q5_0"), (48, "F16")])
def test_rows_of_two_matrices(width: int, expected: str) -> None:
    """Blocks end where the second of two matrices beside each other begins: each is used alone."""
    chosen = kind("blk.3.nextn.eh_proj.weight", "Q4_K_M", width, 2 * width)

    assert chosen.kind is GGMLType[expected]


def test_names() -> None:
    """Names in any case; Q4_K means Q4_K_M; an unknown one is answered with the list."""
    assert mix_of("q4_k_m") is mix_of("Q4_K") is MIXES["Q4_K_M"]
    with pytest.raises(SettingError, match=r"unknown type 'q4km'; known: .*Q4_K_M"):
        mix_of("q4km")


@pytest.mark.parametrize("name", ["ssm_conv1d", "shortconv.conv"])
def test_convolutions_stay(name: str) -> None:
    """Weights of convolutions over a few tokens stay float32, as every engine wants them."""
    assert kind(f"blk.0.{name}.weight", "Q4_K_M", 1024, 4, stored="F32") == Chosen(GGMLType.F32)


def test_matrices_are_counted() -> None:
    """In a model whose layers do not all have values, the first two are the first that have."""
    names = [f"blk.{n}.attn_v.weight" for n in (2, 5, 10)]
    kinds = [kind(name, "Q3_K_M", names=names, layers=16).kind.name for name in names]
    assert kinds == ["Q5_K", "Q5_K", "Q4_K"]

    names = [f"blk.{n}.attn_qkv.weight" for n in range(9)]
    kinds = [kind(name, "Q4_K_S", names=names, layers=9).kind.name for name in names]
    assert kinds == ["Q5_K"] * 4 + ["Q4_K"] * 5


def test_shared_expert() -> None:
    """The second feed-forward matrix of the shared expert is chosen like those of the experts."""
    for name in ("ffn_down_exps", "ffn_down_shexp"):
        assert kind(f"blk.0.{name}.weight", "Q4_K_M", experts=64).kind is GGMLType.Q6_K
        assert kind(f"blk.9.{name}.weight", "Q4_K_M", experts=64).kind is GGMLType.Q4_K


def test_first_layers_under_an_imatrix() -> None:
    """Q4_0 and Q5_0 give the first eighth of `ffn_down` a min where an imatrix is used."""
    for mix, more in (("Q4_0", "Q4_1"), ("Q5_0", "Q5_1")):
        for layer, expected in ((2, more), (3, mix)):
            name = f"blk.{layer}.ffn_down.weight"
            assert kind(name, mix, imatrix=True).kind.name == expected
            assert kind(name, mix).kind.name == mix


QWEN2 = replace(SHAPES["qwen3-0.6b"], family="qwen2", kv_heads=2)
NAMES = ("smollm2-135m", "llama-3.1-8b", "qwen3-30b-a3b", "gemma3-1b", "gemma4-e2b")
NAMES += ("gemma4-26b-a4b", "gpt-oss-20b", "qwen3.5-35b-a3b", "lfm2-8b-a1b", "glm-4.7-flash")
NAMES += ("nemotron3-nano", "granite4-h-tiny")
SHAPED = {
    **{name: SHAPES[name] for name in NAMES},
    "qwen2.5-0.5b": replace(QWEN2, layers=24, width=896, ffn=4864, heads=14, head_dim=64),
    "qwen2.5-1.5b": replace(QWEN2, layers=28, width=1536, ffn=8960, heads=12),
    "qwen2-72b": replace(QWEN2, layers=80, width=8192, ffn=29_568, heads=64, kv_heads=8),
    "llama-2-70b": replace(SHAPES["llama-3.1-8b"], layers=80, width=8192, ffn=28_672, heads=64),
    "eight experts": replace(SHAPES["qwen3-30b-a3b"], experts=8, layers=8),
}
# Projections of latent attention have three dimensions, and llama.cpp takes them for experts.
OURS = ("attn_k_b.weight", "attn_v_b.weight")


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPED)
def test_against_llama_cpp(shape: str, tmp_path: Path, peer: str) -> None:
    """Every tensor of every mix has the type that llama.cpp's `llama_model_quantize` chooses."""
    path = tmp_path / "model.gguf"
    SyntheticModel(shape, "f16", SHAPED[shape]).write_header(path)
    numbers = [mix.number for mix in MIXES.values()]
    numbers += [-mix.number for mix in MIXES.values() if mix.guarded]
    theirs = chosen_types(peer, path, numbers)
    with open_gguf(path) as file:
        for mix in MIXES.values():
            for imatrix in (False, True) if mix.guarded else (False,):
                plan = plan_of(file, mix, imatrix=imatrix)
                ours = {info.name: chosen.kind.name for info, chosen in plan}
                others = theirs[-mix.number if imatrix else mix.number]
                if mix.name == "MXFP4_MOE":
                    others |= {name: "Q8_0" for name in others if name.endswith(OURS)}
                assert ours == others, (mix.name, imatrix)
