"""How far a quantized model's weights are from those that it was made from."""

from __future__ import annotations

import math

import numpy as np

from ..gguf.file import GGUFFile
from .rows import PIECE, RowMaker


def weight_error(before: GGUFFile, after: GGUFFile, maker: RowMaker) -> float:
    """Return the relative root mean square error of the matrices, 0 where all are the same.

    Of each matrix it is sum (w' - w)^2 / sum w^2; of these the mean, by number of weights, and its
    root.
    """
    total, count = 0.0, 0
    for name, info in before.tensors.items():
        if len(info.shape) < 2:
            continue
        kinds, width = (info.type, after.tensors[name].type), info.shape[-1]
        step, rows = max(1, PIECE // width), math.prod(info.shape[:-1])
        off, size = 0.0, 0.0
        for at in range(0, rows if kinds[0] is not kinds[1] else 0, step):
            pair = []
            for file, kind in zip((before, after), kinds, strict=True):
                nbytes = kind.nbytes((width,))
                data = file.data(name)[at * nbytes : min(at + step, rows) * nbytes]
                pair.append(maker.widen(data, kind, len(data) // nbytes, width).copy())
            difference = pair[1] - pair[0]
            off += float(np.dot(difference, difference))
            size += float(np.dot(pair[0], pair[0]))
        total += rows * width * off / (size or 1.0)
        count += rows * width
    return math.sqrt(total / max(1, count))
