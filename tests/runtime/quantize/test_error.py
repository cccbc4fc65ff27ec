"""How far a quantized model is from what it was made from."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import pytest
from helpers.tiny_qwen3 import write_tiny

from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.quantize import error as module
from triplepoint.runtime.quantize.error import weight_error
from triplepoint.runtime.quantize.quantize import quantize
from triplepoint.runtime.quantize.rows import RowMaker


def test_error(tmp_path: Path, maker: RowMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over the matrices by the `gguf` package's reading, also in several pieces; 0 for the
    file itself."""
    source, out = tmp_path / "a.gguf", tmp_path / "b.gguf"
    write_tiny(source, "f16")
    quantize(source, out, "Q4_0", threads=1)
    total, count = 0.0, 0
    for one, other in zip(*(gguf.GGUFReader(p).tensors for p in (source, out)), strict=True):
        if one.data.ndim > 1:
            x = one.data.astype(np.float64)
            off = gguf.quants.dequantize(other.data, other.tensor_type) - x
            total += x.size * float((off**2).sum() / (x**2).sum())
            count += x.size
    with open_gguf(source) as before, open_gguf(out) as after:
        whole = weight_error(before, after, maker)
        monkeypatch.setattr(module, "PIECE", 1000)
        assert math.isclose(weight_error(before, after, maker), whole, rel_tol=1e-5)
        assert weight_error(before, before, maker) == 0

    assert math.isclose(whole, math.sqrt(total / count), rel_tol=1e-4)
    assert 0.05 < whole < 0.12
