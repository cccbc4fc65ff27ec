"""Products with K-quant panels: every format, epilogue and feature set, and bit for bit."""

from __future__ import annotations

import struct
from itertools import cycle

import numpy as np
import pytest
from helpers.feature_sets import DOT, in_turn, place, some
from helpers.kquants import KQUANTS, LARGEST, even_k, random_k
from helpers.matrices import FileMatrix, fused_panels_of, panels_of
from helpers.runners import Runner
from helpers.tiers import quick
from helpers.tolerances import assert_close

from triplepoint.jit.compile import build_assembly, build_object, spec
from triplepoint.jit.dot import KEY_INSTRUCTION
from triplepoint.jit.kernels import gemm
from triplepoint.jit.kernels.activations import (
    BLOCK_BYTES,
    Kind,
    dequantize_reference,
    field_reference,
    quantize_reference,
)
from triplepoint.jit.kernels.epilogue import Epilogue, silu_mul_reference
from triplepoint.jit.kernels.gemm import UNPACK_FROM, gemm_quant, scratch_bytes
from triplepoint.jit.targets import TARGETS

ASKS = (DOT,)  # see helpers/feature_sets.py
ARM = [target.name for target in TARGETS.values() if target.arch == "aarch64"]

# All tile sizes, and both sides of the number from which a panel is unpacked first.
MANY = max(UNPACK_FROM.values())
TOKENS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 18, 19, 20, MANY - 1, MANY, 70)
FEW_TOKENS = (1, MANY + 1)  # under qemu each product is a process
SHAPES = ((70, 512), (1, 256), (33, 1536))  # the first one's kernel serves other tests too
TILED = ("q4_k", "q6_k", "q3_k", "iq4_xs")  # one for each code of a tile
TILES = ({"tile": 4}, {"tile": 8}, {"tile": 2, "max_single_tile": 9})
SMALLEST = {"tile": 1, "max_single_tile": 1}  # kernels of which only the instructions matter
DEPTH = 512


class Product:
    """The kernel with its weights packed: give it activations, get outputs."""

    def __init__(self, runner: Runner, weights: FileMatrix, up: FileMatrix | None = None) -> None:
        self.runner, self.weights = runner, weights
        target = runner.target
        self.panels = fused_panels_of(weights, up, target) if up else panels_of(weights, target)
        self.width = len(self.panels) * target.lanes * (1 if up else 2)
        self.kind: Kind = weights.form.activation(target, weights.depth).kind
        # As many bytes as the kernel asks for, and a guard page behind them.
        size = scratch_bytes(weights.fmt, weights.depth, target)
        self.scratch = np.full(size, 0xEE, np.uint8)
        self.tiles: dict[str, int] = {}

    def run(
        self, x: np.ndarray, epilogue: Epilogue = "store", out: np.ndarray | None = None
    ) -> np.ndarray:
        """Every stored output, padding rows too: float32 [tokens, width].

        x: float32 [tokens, depth], or quantized blocks uint8 [tokens, depth / 32, 40].
        """
        out = np.full((len(x), self.width), np.nan, np.float32) if out is None else out
        blocks = x if x.ndim == 3 else quantize_reference(x, 0, 8, self.kind)
        sizes = {"fmt": self.weights.fmt, "epilogue": epilogue, "blocks": self.weights.blocks}
        kernel = spec(gemm_quant, **sizes, **self.tiles)
        count = np.array([len(x)], np.int64)
        args = [self.panels, blocks, out, self.width, count, self.scratch]
        self.runner.call(kernel, args, 0, len(self.panels))
        return out


def _seen(x: np.ndarray) -> np.ndarray:
    """The activations that the kernel really multiplies."""
    return dequantize_reference(quantize_reference(x, 0, 8))


@pytest.mark.parametrize("fmt", quick(KQUANTS, "q4_k"))
def test_store(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """out = W x for odd shapes and all tile sizes; rows that only pad a panel come out as zeros.

    Nothing past the weights or the activations is read: the runner lays a guard page there.
    """
    others = some(SHAPES[1:], runner.target, place(runner.target) + KQUANTS.index(fmt))
    for rows, depth in SHAPES[:1] if runner.emulated else (SHAPES[0], *others):
        product = Product(runner, random_k(rng, rows, depth, fmt))
        for tokens in FEW_TOKENS if runner.emulated else TOKENS:
            x = rng.standard_normal((tokens, depth)).astype(np.float32)
            got = product.run(x)
            want = gemm.reference(product.weights.values, _seen(x))

            assert_close(got[:, :rows], want, "k product", (rows, depth, tokens))
            assert not got[:, rows:].any()


# q5_k is as q4_k, with a bit more.
@in_turn("runner", "fmt", KQUANTS, ASKS, quick=("q4_k", "q6_k"))
def test_add(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """out += W x, and nothing is added where rows only pad a panel."""
    rows = 33
    product = Product(runner, random_k(rng, rows, DEPTH, fmt))
    for tokens in FEW_TOKENS[1:] if runner.emulated else (1, 7, 9):
        x = rng.standard_normal((tokens, DEPTH)).astype(np.float32)
        before = rng.standard_normal((tokens, product.width)).astype(np.float32)
        got = product.run(x, "add", before.copy())
        want = before[:, :rows] + gemm.reference(product.weights.values, _seen(x))

        assert_close(got[:, :rows], want, "k product", tokens)
        assert np.array_equal(got[:, rows:], before[:, rows:])


@in_turn("runner", "fmt", KQUANTS[::-1], ASKS, quick=("q4_k", "q6_k"))
def test_silu_mul(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """A fused pair gives silu(gate x) * (up x)."""
    rows = 21
    gate, up = (random_k(rng, rows, DEPTH, fmt, 0.001) for _ in range(2))
    product = Product(runner, gate, up)
    for tokens in FEW_TOKENS[1:] if runner.emulated else (1, 7, 9):
        x = rng.standard_normal((tokens, DEPTH)).astype(np.float32)
        got = product.run(x, "silu_mul")
        want = silu_mul_reference(
            gemm.reference(gate.values, _seen(x)), gemm.reference(up.values, _seen(x))
        )

        assert_close(got[:, :rows], want, "k silu", tokens)
        assert not got[:, rows:].any()


@pytest.mark.parametrize("fmt", KQUANTS)
def test_same_bits_in_any_tile(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """A token's outputs have the same bits alone, in any chunk and at any place in it.

    The whole and the longest chunk come from an unpacked panel, the others do not.
    """
    product = Product(runner, random_k(rng, 40, DEPTH, fmt))
    x = rng.standard_normal((70, DEPTH)).astype(np.float32)
    whole = product.run(x)

    for chunk in (1, 7) if runner.emulated else (1, 2, 3, 4, 5, 7, 8, 13, 24, 29):
        for first in (0, 31, 70 - chunk):
            part = product.run(x[first : first + chunk])
            assert np.array_equal(part, whole[first : first + chunk]), (chunk, first)


# --- extremes


def _as_blocks(q: np.ndarray, kind: Kind) -> np.ndarray:
    """int8 [tokens, depth] with scale 1 as quantized blocks."""
    grouped = q.reshape(len(q), -1, 32)
    out = np.zeros((*grouped.shape[:2], BLOCK_BYTES), np.uint8)
    out[..., :4] = np.frombuffer(np.float32(1).tobytes(), np.uint8)
    sums = field_reference(
        grouped.astype(np.int32), 0, "pairs16" if kind == "pairs16" else "pairs32"
    )
    out[..., 4:8] = sums[..., None].view(np.uint8)
    out[..., 8:] = grouped.view(np.uint8)
    return out


def _extreme_activations(depth: int) -> np.ndarray:
    """int8 rows of -127, 127 and mixtures of them."""
    signs = np.where(np.arange(depth) % 2, -127, 127)
    pairs = np.where(np.arange(depth) // 2 % 2, -127, 127)
    rows = [np.full(depth, 127), np.full(depth, -127), signs, -signs, pairs]
    return np.stack(rows).astype(np.int8)


def _extreme_quants(fmt: str) -> np.ndarray:
    """Stored quants: all 0, all at the largest, alternating by one and by two."""
    n, most = np.arange(DEPTH), LARGEST[fmt]
    rows = [np.full(DEPTH, 0), np.full(DEPTH, most), n % 2 * most, n // 2 % 2 * most]
    return np.stack(rows)


@pytest.mark.slow
@pytest.mark.parametrize("fmt", TILED)
def test_same_bits_with_any_tile(native: Runner, rng: np.random.Generator, fmt: str) -> None:
    """How many tokens a tile takes, and up to how many are one tile, changes no bit."""
    product = Product(native, random_k(rng, 33, DEPTH, fmt))
    x = rng.standard_normal((MANY + 3, DEPTH)).astype(np.float32)
    tiles = some(TILES, native.target, place(native.target) + TILED.index(fmt))
    for tokens in (1, 7, 9, 10, MANY + 3):
        product.tiles = {}
        usual = product.run(x[:tokens])
        for product.tiles in tiles:
            found = product.run(x[:tokens])
            # Any bytes are a scale for Q3_K, among them some that are not a number.
            assert np.array_equal(found, usual, equal_nan=True), (product.tiles, tokens)


@pytest.mark.parametrize("fmt", KQUANTS)
def test_extremes(runner: Runner, fmt: str) -> None:
    """The largest quants, scales, mins and activations: no sum saturates or wraps.

    Also d = 0 and d < 0. float32 rounds sums over 2^24, so the comparison is nearly exact.
    """
    x = np.tile(_extreme_activations(DEPTH), (MANY // 4, 1))
    cases = [(63, 63, 1.0), (63, 0, 1.0), (63, 63, -1.0), (1, 63, 0.5), (63, 63, 0.0)]
    if fmt == "q6_k":
        cases = [(127, 0, 1.0), (-128, 0, 1.0), (-128, 0, -1.0), (1, 0, 0.5), (127, 0, 0.0)]
    for scale, least, d in cases[::3] if runner.emulated else cases:
        product = Product(runner, even_k(fmt, _extreme_quants(fmt), scale, least, d))
        blocks = _as_blocks(x, product.kind)
        got = product.run(blocks)[:, :4]
        few = product.run(blocks[:5])[:, :4]
        want = x.astype(np.float64) @ product.weights.values.astype(np.float64).T

        # What cancels: the scales' and the mins' shares, each at most this.
        most = 127 * DEPTH * abs(d) * max(LARGEST[fmt] * abs(scale), least)
        assert np.abs(got - want).max() <= 1e-7 * most, (scale, least, d)
        assert np.array_equal(few, got[:5])


@pytest.mark.parametrize("fmt", KQUANTS)
def test_each_value_has_its_place(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """One activation at a time picks one column of W: no weight is mistaken for another."""
    weights = random_k(rng, 8, DEPTH, fmt)
    product = Product(runner, weights)
    columns = np.arange(0, DEPTH, 37) if runner.emulated else np.arange(DEPTH)
    x = np.zeros((len(columns), DEPTH), np.int8)
    x[np.arange(len(columns)), columns] = 1
    got = product.run(_as_blocks(x, product.kind))[:, :8]

    assert_close(got, weights.values.T[columns].astype(np.float32), "k product")


def test_a_broken_token_stays_alone(native: Runner, rng: np.random.Generator) -> None:
    """NaN and Inf in one token's activations leave the other tokens of its tile as they are."""
    for fmt in KQUANTS:
        product = Product(native, random_k(rng, 33, DEPTH, fmt))
        x = rng.standard_normal((5, DEPTH)).astype(np.float32)
        sound = product.run(x)
        x[2, 3], x[3, 40] = np.nan, np.inf
        got = product.run(x)

        assert np.array_equal(got[[0, 1, 4]], sound[[0, 1, 4]])
        assert not np.isfinite(got[[2, 3], :33]).any()


def test_no_tokens(native: Runner, rng: np.random.Generator) -> None:
    """A count of 0 reads no activations and writes nothing."""
    product = Product(native, random_k(rng, 33, DEPTH, "q4_k"))
    product.run(np.zeros((0, DEPTH // 32, BLOCK_BYTES), np.uint8))


# --- what is generated


@pytest.mark.parametrize(("name", "fmt"), [*zip(TARGETS, cycle(KQUANTS), strict=False)])
def test_key_instructions(name: str, fmt: str) -> None:
    """Each feature set's dot products are the instructions it was named for, on every host."""
    target = TARGETS[name]
    assembly = build_assembly(
        spec(gemm_quant, fmt=fmt, epilogue="store", blocks=2, **SMALLEST), target
    )

    assert KEY_INSTRUCTION[target.dot] in assembly
    has_mins = fmt != "q6_k"
    if target.dot == "vpdpbusd" and has_mins:
        assert "vpdpwssd" in assembly
        assert "vpmaddwd" not in assembly  # into which LLVM would split it
    if target.dot != "vpdpbusd":
        assert "vpdp" not in assembly
    if target.dot == "maddubs":
        assert "pmaddwd" in assembly


@pytest.mark.parametrize(("name", "fmt"), [*zip(ARM, cycle(KQUANTS), strict=False)])
def test_objects_need_nothing(name: str, fmt: str) -> None:
    """Objects for aarch64 are made on every host, and call nothing outside themselves."""
    kernel = spec(gemm_quant, fmt=fmt, epilogue="silu_mul", blocks=2, **SMALLEST)
    data = build_object(kernel, TARGETS[name])

    assert _undefined(data) == []


def _undefined(data: bytes) -> list[str]:
    """Names that a 64-bit ELF object asks its linker for."""
    assert data[:5] == b"\x7fELF\x02"
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    # A section header: name, type, flags, address, offset, size, link, info, alignment, entry size.
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + n * size) for n in range(count)]
    found = []
    for header in headers:
        if header[1] != 2:  # SHT_SYMTAB
            continue
        strings = headers[header[6]][4]
        for at in range(header[4], header[4] + header[5], 24):
            name, _, _, section = struct.unpack_from("<IBBH", data, at)
            if section == 0 and name:
                found.append(data[strings + name : data.index(b"\0", strings + name)].decode())
    return found
