"""The weights of a GGUF file in transformers: `map_checkpoint` the other way round."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from helpers.tiny_qwen3 import dequantized

from triplepoint.runtime.convert.mapping import map_checkpoint


def checkpoint_of(
    path: Path, config: dict[str, Any], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, np.ndarray]:
    """Float32 weights by their names in a checkpoint, of these `shapes`, from a file's tensors.

    Where each value went is seen by sending the numbers of places through the mapping.
    """
    weights = dequantized(path)
    out = {name: np.full(int(np.prod(shape)), np.nan, np.float32) for name, shape in shapes.items()}
    for tensor in map_checkpoint(config, list(shapes)).tensors:
        if tensor.constant is not None:
            continue
        (source,) = tensor.sources
        shape, values = shapes[source], weights[tensor.name].ravel()
        places = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        (at_zero,) = np.unique(tensor.make([np.zeros(shape)]))
        if at_zero == -1:  # -exp(x)
            where, values = -tensor.make([np.log(places + 1)]) - 1, np.log(-values)
        else:
            where, values = tensor.make([places]) - at_zero, values - at_zero
        out[source][np.rint(where).astype(np.int64).ravel()] = values
    return {name: values.reshape(shapes[name]) for name, values in out.items()}


@functools.lru_cache(maxsize=2)
def _model(path: Path, name: str) -> Any:
    import torch
    from helpers.trained_small import MODELS, encoder
    from transformers import AutoConfig, AutoModelForCausalLM

    config = {**MODELS[name].config, "vocab_size": len(encoder(name).vocabulary.tokens)}
    settings = {**config, "attn_implementation": "eager", "pad_token_id": 0}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings)).eval().float()
    shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
    state = {n: torch.from_numpy(v) for n, v in checkpoint_of(path, config, shapes).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    assert all(p.isfinite().all() for p in model.parameters())
    model.tie_weights()
    return model


def torch_logits(path: Path, name: str, ids: list[int]) -> np.ndarray:
    """Logits of every position by transformers on the file's weights: float32 [len(ids), vocab]."""
    import torch

    with torch.no_grad():
        return _model(path, name)(torch.tensor([ids])).logits[0].float().numpy()
