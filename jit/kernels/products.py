"""The product with panels of any format, for kernels that choose which panels they take."""

from __future__ import annotations

from ..simd import Kernel, Ptr
from .activations import group_of
from .gemm import Epilogue, Product, float_product, quant_product
from .gemm_k import k_product
from .panels import FORMATS


def product_of(
    k: Kernel,
    fmt: str,
    epilogue: Epilogue,
    blocks: int,
    fine: bool,
    scratch: Ptr,
    tile: int = 0,
    whole: int = 0,
) -> Product:
    """Products with panels of `blocks` blocks.

    fine, tile, whole: as `gemm_quant` has them; scratch: each thread's own, for K-quants.
    """
    family = FORMATS[fmt].family
    if family == "float":
        return float_product(k, fmt, epilogue, blocks, tile)
    if family == "blocks":
        return quant_product(k, fmt, epilogue, blocks, group_of(blocks, fine=fine), tile, whole)
    return k_product(k, fmt, epilogue, blocks, scratch, tile, whole)
