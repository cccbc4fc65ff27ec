"""What a `config.json` says, as transformers reads it; what is refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.defaults import norm_epsilon, with_defaults
from triplepoint.runtime.convert.rope import rope_settings
from triplepoint.runtime.convert.settings import ARCHITECTURES, MISTRAL_WINDOW, read_settings

BASE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 8192,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}


def metadata(**changes: Any) -> dict[str, Any]:
    """The file's keys for `BASE` with these changes, without the architecture in front."""
    found = read_settings(BASE | changes)
    return {key.removeprefix(f"{found.architecture}."): v for key, v in found.metadata.items()}


def test_gemmas_soft_caps() -> None:
    """The usual ones where the configuration lacks the key, none where it says null."""
    keys = ("attn_logit_softcapping", "final_logit_softcapping")
    absent = metadata(model_type="gemma2")
    null = metadata(model_type="gemma2", **dict.fromkeys(keys))

    assert [absent[key] for key in keys] == [50.0, 30.0]
    assert [null[key] for key in keys] == [0.0, 0.0]
    assert metadata(model_type="gemma2", head_dim=None)["attention.key_length"] == 256


@pytest.mark.parametrize(
    ("changes", "window"),
    [
        ({"model_type": "mistral", "sliding_window": 1024}, 1024),
        ({"model_type": "mistral", "sliding_window": None}, None),
        ({"model_type": "mistral"}, MISTRAL_WINDOW),
        ({"model_type": "llama", "sliding_window": 1024}, None),
        ({"model_type": "ministral3", "sliding_window": 1024}, 1024),
        ({"model_type": "ministral3"}, None),
    ],
)
def test_windows_of_llama_and_mistral(changes: dict[str, Any], window: int | None) -> None:
    """Those of transformers: a Llama has none, a Mistral has one unless null says otherwise."""
    assert metadata(**changes).get("attention.sliding_window") == window


@pytest.mark.parametrize("kind", [k for k, a in ARCHITECTURES.items() if not a.startswith("gemma")])
def test_what_is_not_said(kind: str) -> None:
    """Epsilons and the base of rotary frequencies are those that transformers takes."""
    transformers = pytest.importorskip("transformers")
    usual = transformers.AutoConfig.for_model(kind)
    usual = getattr(usual, "text_config", usual).to_dict()
    said = {k: v for k, v in BASE.items() if k not in ("rms_norm_eps", "rope_theta")}
    c = with_defaults(said | {"model_type": kind}, ARCHITECTURES[kind])
    rope = usual.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    if rope.get("rope_type") == "yarn":
        ours = rope_settings(c, "full_attention")
        assert {k: rope.get(k) for k in ours} == ours
    elif rope.get("rope_type") == "default":
        assert rope_settings(c, "full_attention").get("rope_theta", 10000.0) == rope["rope_theta"]
    if kind != "nemotron_h":
        key = "norm_eps" if kind.startswith("lfm2") else "rms_norm_eps"
        assert norm_epsilon(c, ARCHITECTURES[kind]) == usual[key]


def test_the_epsilon_that_an_lfm2_has() -> None:
    """It has a name of its own, and one of the usual name changes nothing."""
    found = metadata(model_type="lfm2", norm_eps=2e-5)
    assert found["attention.layer_norm_rms_epsilon"] == 2e-5


def test_mistrals_window_is_that_of_transformers() -> None:
    """What a configuration without the key means."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")

    assert transformers.MistralConfig().sliding_window == MISTRAL_WINDOW


def test_partial_rotation() -> None:
    """Only where transformers reads the key; it cannot run a Llama that has one and scaling."""
    half: dict[str, Any] = {"partial_rotary_factor": 0.5}
    linear = {"rope_scaling": {"type": "linear", "factor": 2.0}}

    assert metadata(**half)["rope.dimension_count"] == 32
    assert metadata(model_type="phi3", **half)["rope.dimension_count"] == 16
    with pytest.raises(UnsupportedModelError, match=r"partial_rotary_factor with rope scaling"):
        metadata(**half, **linear)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("given", [{}, {"factor": None}, {"factor": "4"}, {"factor": 0}])
def test_scaling_without_a_factor(kind: str, given: dict[str, Any]) -> None:
    """It is asked for by name."""
    with pytest.raises(ModelError, match=rf"rope scaling '{kind}' needs a factor"):
        metadata(rope_scaling={"type": kind, **given})
