"""Makes another model of a copy of nano: same name and size, other weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from triplepoint.runtime.gguf.open import open_gguf


def change_weights(path: Path) -> Path:
    """Scale the weights of one norm, in place: all keys and values become others."""
    with open_gguf(path) as gguf:
        norm = gguf.tensors["blk.0.attn_norm.weight"]
        weights = gguf.data(norm.name).view(np.float32) * np.linspace(1, 2, norm.shape[0])
    with path.open("r+b") as file:
        file.seek(norm.offset)
        file.write(weights.astype(np.float32).tobytes())
    return path
