"""What `show` says of real files, from their headers alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.real_headers import HEADERS, Header, write_header
from helpers.tiers import quick

from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.hub.model_info import read_model_info
from triplepoint.runtime.models import ARCHITECTURES

# Sinks, Mamba-2. What `show` tells of others is in tests/runtime/cli/test_show.py.
QUICK = ("gpt-oss-20b", "Granite-4.0-H-Tiny")
FEW = [header for header in HEADERS if header.name in QUICK]


@pytest.mark.parametrize("header", quick(HEADERS, *FEW), ids=lambda header: header.name)
def test_a_real_header(tmp_path: Path, header: Header) -> None:
    """What the published file of each family says of itself is all that is needed to run it."""
    path = tmp_path / "model.gguf"
    write_header(path, header)

    facts = read_model_info(path)

    assert (facts.name, facts.architecture) == (header.name, header.architecture)
    assert facts.layers == header.metadata["block_count"]
    assert facts.template
    assert header.architecture in ARCHITECTURES
    assert not facts.problems
    assert facts.memory is not None
    assert facts.mtp == ("used" if "nextn_predict_layers" in header.metadata else "")


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen3.5-4B", 3.57),
        ("Qwen3.5-35B-A3B", 33.6),
        ("gemma-4-26B-A4B", 24.5),
        ("Qwen3-VL-30B-A3B", 29.9),
        ("gemma-4-12B", 10.9),
        ("gemma-4-31B", 29.3),
        ("DeepSeek-V2-Lite-Chat", 15.3),
        ("gpt-oss-20b", 19.7),
        ("LFM2-8B-A1B", 8.2),
        ("GLM-4.7-Flash", 29.9),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B", 30.9),
        ("Granite-4.0-H-Tiny", 6.8),
        ("Granite-4.0-H-Micro", 2.98),
        ("Laguna-XS.2", 33.0),
    ],
)
def test_the_sizes_are_those_of_the_models(tmp_path: Path, name: str, billions: float) -> None:
    """The tensors together have as many weights as the model does without its embeddings."""
    header = next(header for header in HEADERS if header.name == name)
    write_header(tmp_path / "model.gguf", header)
    with open_gguf(tmp_path / "model.gguf") as gguf:
        count = sum(_product(info.shape) for info in gguf.tensors.values())

    assert count / 1e9 == pytest.approx(billions, rel=0.02)


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
