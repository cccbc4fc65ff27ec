"""Trained weights that others made: looked for in one folder, never downloaded by a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Engine

VARIABLE = "TRIPLEPOINT_REAL_MODELS"
MODELS = ("smollm2-135m", "qwen2.5-coder-0.5b")

Load = Callable[..., Engine]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Path:
    """The file of each model, named `NAME.gguf`."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with {', '.join(MODELS)} as GGUF files")
    path = Path(folder) / f"{request.param}.gguf"
    if not path.exists():
        pytest.skip(f"{request.param}.gguf is not in the folder that {VARIABLE} names")
    return path


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Engine]:
    """The model as users load it."""
    with Engine.load(model, context=4096) as engine:
        yield engine


@pytest.fixture(scope="module")
def oracle(model: Path) -> tuple[Any, Any]:
    """The model and its tokenizer by `transformers`, in F32 on the dequantized weights."""
    torch = pytest.importorskip("torch", reason="torch computes the reference")
    transformers = pytest.importorskip("transformers", reason="it computes the reference")
    pytest.importorskip("accelerate", reason="transformers reads GGUF files with it")
    given = {"gguf_file": model.name}
    network = transformers.AutoModelForCausalLM.from_pretrained(
        model.parent, dtype=torch.float32, **given
    )
    return network, transformers.AutoTokenizer.from_pretrained(model.parent, **given)
