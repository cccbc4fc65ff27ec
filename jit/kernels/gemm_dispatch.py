"""The product with panels of any format, for kernels that choose their panels."""

from __future__ import annotations

from ..simd import Kernel, Ptr
from ..targets import CpuTarget
from . import gemm, gemm_k
from .epilogue import Epilogue
from .gemm_float import float_product
from .panels import FORMATS
from .tiles import TileGemm


def scratch_bytes(fmt: str, depth: int, target: CpuTarget) -> int:
    """Return the bytes of scratch of one thread for panels of `depth` values a row."""
    if FORMATS[fmt].family == "k":
        return gemm_k.scratch_bytes(fmt, depth, target.lanes)
    return gemm.scratch_bytes(fmt, depth, target)


def tile_gemm(
    k: Kernel,
    fmt: str,
    epilogue: Epilogue,
    blocks: int,
    scratch: Ptr,
    tile: int = 0,
    max_single_tile: int = 0,
) -> TileGemm:
    """Return the product with panels of `blocks` blocks.

    tile, max_single_tile: as `gemm_quant` has them; scratch: each thread's own, `scratch_bytes` of
    it.
    """
    family = FORMATS[fmt].family
    if family == "float":
        return float_product(k, fmt, epilogue, blocks, tile)
    product = gemm.quant_product if family == "blocks" else gemm_k.k_product
    return product(k, fmt, epilogue, blocks, scratch, tile, max_single_tile)
