"""The product with panels of any format, for kernels that choose which panels they take."""

from __future__ import annotations

from ..simd import Kernel, Ptr
from .gemm import Epilogue, TileGemm, float_product, quant_product
from .gemm_k import k_product
from .panels import FORMATS


def tile_gemm(
    k: Kernel,
    fmt: str,
    epilogue: Epilogue,
    blocks: int,
    scratch: Ptr,
    tile: int = 0,
    max_single_tile: int = 0,
) -> TileGemm:
    """Products with panels of `blocks` blocks.

    tile, max_single_tile: as `gemm_quant` has them; scratch: each thread's own, for K-quants.
    """
    family = FORMATS[fmt].family
    if family == "float":
        return float_product(k, fmt, epilogue, blocks, tile)
    if family == "blocks":
        return quant_product(k, fmt, epilogue, blocks, tile, max_single_tile)
    return k_product(k, fmt, epilogue, blocks, scratch, tile, max_single_tile)
