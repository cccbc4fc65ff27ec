"""The well-known models: the file that lists them, and their short names."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from triplepoint.errors import ModelError
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.hub import makers
from triplepoint.runtime.hub.aliases import KnownModel, by_alias, known_models
from triplepoint.runtime.hub.makers import maker_sampling
from triplepoint.runtime.hub.model_info import unsupported_quant
from triplepoint.runtime.hub.names import is_hub_name, is_repo, parse_name
from triplepoint.runtime.hub.variants import quant_of
from triplepoint.runtime.synthetic.shapes import SHAPES
from triplepoint.runtime.synthetic.write import SyntheticModel

ROOT = Path(__file__).parents[3]
IDS = [one.alias for one in known_models()]


def test_the_list_is_sound() -> None:
    """Not too many to read, each once, from small to large, with a name that no path has."""
    sizes = [one.nbytes for one in known_models()]
    assert 20 <= len(IDS) == len(set(IDS)) <= 30
    assert sizes == sorted(sizes)
    assert {"qwen3:4b", "llama3.2:3b", "gemma3:4b", "qwen3.5:4b", "gpt-oss:20b"} <= set(IDS)
    assert all(by_alias(alias.upper()) for alias in IDS)
    assert all(re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", one.date) for one in known_models())


@pytest.mark.parametrize("model", known_models(), ids=IDS)
def test_shapes_have_the_size_of_the_file(model: KnownModel) -> None:
    """The tensors of the shape and the vocabulary make the file: that is what predictions rest on,
    and neither the size nor the shape can be wrong alone.

    A header with its tokens has 1 to 17 MB. Some mixtures have more bits than ours for matrices of
    their own: Phi's fused ones, what leads into and out of a recurrence, latents.
    """
    assert is_repo(model.repo)
    assert _stored(model.file) == model.quant
    assert unsupported_quant(quant_of(model.file)) is None
    shape = model.shape
    tensors = SyntheticModel(model.alias, model.quant, shape).tensors()
    left = model.nbytes - sum(GGMLType.nbytes(kind, dims) for _, dims, kind in tensors)
    wider = model.alias.startswith("phi") or shape.family in ("qwen35", "deepseek2", "nemotron_h")
    assert 1e6 < left < (0.05 * model.nbytes if wider else 17e6)


def test_shapes_by_name() -> None:
    """A shape is what the same name after `synthetic:` is, or that but for what is said."""
    mixed, plain = by_alias("lfm2.5:8b-a1b"), by_alias("qwen3.6:35b-a3b")
    assert mixed is not None
    assert plain is not None
    assert mixed.shape == replace(SHAPES["lfm2-8b-a1b"], vocab=128_000)
    assert plain.shape == SHAPES["qwen3.5-35b-a3b"]


def _stored(file: str) -> str:
    """How `synthetic:` names what most weights of a file are: some makers name their own."""
    quant = quant_of(file).lower()
    if "-qat-" in file:
        return "q4_0"  # what such models are trained for
    return {"mxfp4": "mxfp4_moe"}.get(quant, quant.removeprefix("ud-"))


def test_an_alias_is_a_name() -> None:
    """Whatever takes a model on the Hub takes an alias; a near miss is told what there is."""
    assert is_hub_name("qwen3:4b")
    name = parse_name("Qwen3:4B")
    assert (name.repo, name.selector) == ("Qwen/Qwen3-4B-GGUF", "Qwen3-4B-Q4_K_M.gguf")

    assert not is_hub_name("qwen3:5b")
    with pytest.raises(ModelError, match="did you mean qwen3:"):
        parse_name("qwen3:5b")
    with pytest.raises(ModelError, match="`triplepoint models` lists"):
        parse_name("zzz")


def test_what_makers_recommend() -> None:
    """Found by architecture and name; each value is one that sampling takes, with its source."""
    text = (ROOT / "runtime" / "hub" / "models.toml").read_text()
    for entry in tomllib.loads(text)["sampling"]:
        one = makers.MakerSampling(**entry)
        for thinks in (True, False):
            assert not Sampling(**one.values(thinks=thinks)).greedy
        assert one.source.startswith(("https://", "generation_config.json of https://"))
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", one.date)
    qwen = maker_sampling("Qwen3-8B", "qwen3")
    assert qwen is not None
    assert qwen.never_greedy
    assert [qwen.values(thinks=thinks)["temperature"] for thinks in (True, False)] == [0.6, 0.7]
    llama = maker_sampling("Meta Llama 3.1 8B Instruct", "llama")
    assert llama is not None
    assert not llama.never_greedy
    for name, architecture in (
        ("Qwen3-8B", "llama"),
        ("nano", "qwen3"),
        ("Qwen2.5 Coder 1.5B Instruct", "qwen2"),
    ):
        assert maker_sampling(name, architecture) is None
