"""Tiny models with a layer that drafts: its weights in a checkpoint, and what it computes, in numpy.

transformers leaves such layers out, so the reference is written here, from the formulas of
`runtime/models/mtp.py`: float64, all positions at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from . import hybrid_models as hybrid
from . import tiny_families
from . import tiny_models as tiny

NAMES = ("qwen35", "qwen35moe", "glm4-flash")


def weights(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of the layer, float32, by their names in a checkpoint."""
    c, rng = tiny.config_of(name), np.random.default_rng(seed + 77)
    width = c["hidden_size"]
    if name == "glm4-flash":
        begin = into = f"model.layers.{c['num_hidden_layers']}."
        shapes = tiny_families.layer_shapes(c, c["num_hidden_layers"] - 1)
        outside = {
            "eh_proj": "eh_proj",
            "enorm": "enorm",
            "hnorm": "hnorm",
            "norm": "shared_head.norm",
        }
    else:
        begin, into = "mtp.", "mtp.layers.0."
        attending = hybrid.kinds_of(c).index("full_attention")
        shapes = hybrid.layer_shapes(c, attending)
        outside = {
            "eh_proj": "fc",
            "enorm": "pre_fc_norm_embedding",
            "hnorm": "pre_fc_norm_hidden",
            "norm": "norm",
        }
    found = {into + part: shape for part, shape in shapes.items()}
    found[f"{begin}{outside['eh_proj']}.weight"] = (width, 2 * width)
    for part in ("enorm", "hnorm", "norm"):
        found[f"{begin}{outside[part]}.weight"] = (width,)
    plus_one = name != "glm4-flash"

    def values(shape: tuple[int, ...]) -> np.ndarray:
        noise = rng.standard_normal(shape)
        if len(shape) >= 2:
            return noise * 1.5 / np.sqrt(shape[-1])
        return noise * 0.2 + (0 if plus_one else 1)

    return {part: values(shape).astype(np.float32) for part, shape in found.items()}


def write_model(path: Path, name: str, kind: str = "f32", **more: Any) -> None:
    """Write the model's GGUF file, with the layer."""
    tiny.write_model(path, name, kind, extra=weights(name), **more)
