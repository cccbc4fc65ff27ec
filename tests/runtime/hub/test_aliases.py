"""The well-known models: the file that lists them, and their short names."""

from __future__ import annotations

import pytest

from triplepoint.errors import ModelError
from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.hub.aliases import KnownModel, by_alias, known_models
from triplepoint.runtime.hub.names import is_hub_name, is_repo, parse_name
from triplepoint.runtime.hub.variants import quant_of
from triplepoint.runtime.synthetic.shapes import Shape
from triplepoint.runtime.synthetic.write import SyntheticModel

IDS = [one.alias for one in known_models()]


def test_the_list_is_sound() -> None:
    """About a dozen, each once, from small to large, with a name that no path or repository has."""
    sizes = [one.nbytes for one in known_models()]
    assert 12 <= len(IDS) == len(set(IDS)) <= 20
    assert sizes == sorted(sizes)
    assert {"qwen3:4b", "llama3.2:3b", "gemma3:4b"} <= set(IDS)
    assert all(by_alias(alias.upper()) for alias in IDS)


@pytest.mark.parametrize("model", known_models(), ids=IDS)
def test_shapes_have_the_size_of_the_file(model: KnownModel) -> None:
    """The tensors of the shape and the vocabulary make the file: that is what predictions rest on.

    A header with its tokens has 1 to 8 MB. Phi's fused matrices have a little more bits.
    """
    assert is_repo(model.repo)
    assert quant_of(model.file).lower() == model.quant
    shape = Shape(**model.shape)
    tensors = SyntheticModel(model.alias, model.quant, shape).tensors()
    left = model.nbytes - sum(GGMLType.nbytes(kind, dims) for _, dims, kind in tensors)
    assert 1e6 < left < (6e7 if model.alias.startswith("phi") else 8e6)


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
