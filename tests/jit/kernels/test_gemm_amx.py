"""Products by AMX tiles have the bits of those without: formats, shapes, numbers of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kquants import put_half, stored_matrix
from helpers.matrices import FileMatrix, fused_panels_of, panels_of, random_matrix
from helpers.runners import Native

from triplepoint.jit.compile import build_assembly, spec
from triplepoint.jit.kernels import gemm_amx
from triplepoint.jit.kernels.activations import quantize_reference
from triplepoint.jit.kernels.gemm import gemm_quant
from triplepoint.jit.kernels.gemm_amx import FROM, MIN_PER_TILE, ROWS, TAKEN
from triplepoint.jit.targets import TARGETS, CpuTarget, missing

TARGET = TARGETS["amx-bf16"]
LACKS = missing(TARGET)
on_this_cpu = pytest.mark.skipif(bool(LACKS), reason=f"lacks {', '.join(LACKS)}")
native = pytest.mark.parametrize("native", ["amx-bf16"], indirect=True)
# Few, whole tiles, tokens that are left, and tiles that are not full.
TOKENS = (1, FROM - 1, FROM, FROM + 3, FROM + MIN_PER_TILE, FROM + ROWS - 1, 100)


class Products:
    """One matrix, multiplied with and without tiles."""

    def __init__(self, native: Native, weights: FileMatrix, up: FileMatrix | None = None) -> None:
        self.native, self.weights = native, weights
        self.panels = fused_panels_of(weights, up, TARGET) if up else panels_of(weights, TARGET)
        self.width = len(self.panels) * TARGET.lanes * (1 if up else 2)

    def both(
        self, x: np.ndarray, epilogue: str, first: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """float32 [tokens, width] by `gemm_quant` and by `gemm_amx`; `first`: what is there."""
        kind, group, zero_point, base = self.weights.form.activation(TARGET, self.weights.depth)
        blocks = quantize_reference(x, zero_point, group, kind, base)
        deep, count = self.weights.blocks, np.array([len(x)], np.int64)
        start = np.full((len(x), self.width), np.nan, np.float32) if first is None else first
        sizes = {"fmt": self.weights.fmt, "epilogue": epilogue, "blocks": deep}

        plain = start.copy()
        args = [self.panels, blocks, plain, self.width, count, np.zeros(64, np.uint8)]
        self.native.call(spec(gemm_quant, **sizes), args, 0, len(self.panels))

        tiles = np.full(gemm_amx.tiles_bytes(len(x), deep), 0x7F, np.uint8)
        self.native.call(spec(gemm_amx.arrange), [blocks, tiles, deep, count], 0, len(x))
        tiled, scratch = start.copy(), np.zeros(gemm_amx.scratch_bytes(len(x)), np.uint8)
        args = [self.panels, blocks, tiles, tiled, self.width, count, scratch]
        self.native.call(spec(gemm_amx.gemm_amx, **sizes), args, 0, len(self.panels))
        return plain, tiled


def _matrix(rng: np.random.Generator, fmt: str) -> FileMatrix:
    if fmt != "iq4_nl":  # which the `gguf` package reads but does not make
        return random_matrix(rng, 70, 256, fmt)
    raw = rng.integers(0, 256, (70, 8, 18), dtype=np.uint8)
    put_half(raw, 0, rng.standard_normal((70, 8)))
    return stored_matrix(fmt, raw.reshape(70, -1))


@on_this_cpu
@native
@pytest.mark.parametrize("fmt", TAKEN)
def test_the_same_bits(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Any number of tokens; activations of all sizes, blocks of zeros and weights of padding."""
    products = Products(native, _matrix(rng, fmt))
    for tokens in TOKENS:
        x = rng.standard_normal((tokens, 256)) * 10.0 ** rng.integers(-6, 4, (tokens, 1))
        x[::5, 32:64] = 0
        plain, tiled = products.both(x.astype(np.float32), "store")

        assert np.isfinite(tiled).all()
        assert (plain.view(np.int32) == tiled.view(np.int32)).all(), tokens


@on_this_cpu
@native
@pytest.mark.parametrize("blocks", [1, 3, 4, 7, 16, 17, 33, 70])
def test_any_depth(native: Native, rng: np.random.Generator, blocks: int) -> None:
    """Less than a group, groups and what is left of one, several chunks."""
    products = Products(native, random_matrix(rng, 33, 32 * blocks, "q4_0"))
    x = rng.standard_normal((FROM + 20, 32 * blocks)).astype(np.float32)
    plain, tiled = products.both(x, "store")

    assert (plain.view(np.int32) == tiled.view(np.int32)).all()


@on_this_cpu
@native
@pytest.mark.parametrize("epilogue", ["add", "silu_mul", "gelu_mul", "after_silu", "after_gelu"])
def test_what_becomes_of_sums(native: Native, rng: np.random.Generator, epilogue: str) -> None:
    """All that a product does with what it has computed."""
    gated = epilogue in ("silu_mul", "gelu_mul")
    one, two = (random_matrix(rng, 64, 160, "q8_0") for _ in range(2))
    products = Products(native, one, two if gated else None)
    x = rng.standard_normal((FROM + 5, 160)).astype(np.float32)
    first = rng.standard_normal((len(x), products.width)).astype(np.float32)
    plain, tiled = products.both(x, epilogue, first)

    assert (plain.view(np.int32) == tiled.view(np.int32)).all()
    assert (tiled != first).any()


@on_this_cpu
@native
def test_what_is_not_finite(native: Native, rng: np.random.Generator) -> None:
    """A row with a NaN or an infinity is the only one that has them."""
    products = Products(native, random_matrix(rng, 32, 64, "q4_0"))
    x = rng.standard_normal((FROM, 64)).astype(np.float32)
    x[3, 5], x[17, 40] = np.nan, np.inf
    plain, tiled = products.both(x, "store")

    assert not np.isfinite(tiled[[3, 17]]).any()
    assert np.isfinite(np.delete(tiled, [3, 17], axis=0)).all()
    rest = np.delete(np.arange(FROM), [3, 17])
    assert (plain[rest].view(np.int32) == tiled[rest].view(np.int32)).all()


def test_the_instructions() -> None:
    """Tiles are used, and their state is given up (no CPU is needed to see this)."""
    text = build_assembly(spec(gemm_amx.gemm_amx, fmt="q4_0", epilogue="store", blocks=4), TARGET)
    for word in ("ldtilecfg", "tileloadd", "tdpbssd", "tilestored", "tilerelease"):
        assert word in text, word


@pytest.mark.parametrize("target", TARGETS.values(), ids=str)
def test_who_takes_them(target: CpuTarget) -> None:
    """Only this feature set, and only formats of blocks of 32."""
    taken = [fmt for fmt in (*TAKEN, "q4_k", "nvfp4", "f16") if gemm_amx.takes(fmt, target)]
    assert taken == (list(TAKEN) if target is TARGET else [])
