"""Q2_K, Q3_K and IQ1 to IQ4: packing, rows and products on every feature set.

Few kernels are compiled: tiles and epilogues are what the tests of `gemm_k.py` show already.
"""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from helpers.feature_sets import DOT, on
from helpers.kquants import put_half, stored_matrix
from helpers.matrices import FileMatrix, fused_panels_of, panels_of, random_matrix
from helpers.runners import Native, Runner
from helpers.small_quants import (
    EIGHTS,
    GRIDS,
    LARGEST,
    SMALL,
    even_small,
    put_scale,
    random_small,
)
from helpers.tiers import quick
from helpers.tolerances import assert_close

from triplepoint.jit.compile import build_assembly, spec
from triplepoint.jit.dot import KEY_INSTRUCTION
from triplepoint.jit.kernels import embed, gemm, grids, moe
from triplepoint.jit.kernels.activations import (
    BLOCK_BYTES,
    dequantize_reference,
    field_reference,
    quantize_reference,
)
from triplepoint.jit.kernels.codebook import TABLES, UNIT
from triplepoint.jit.kernels.epilogue import Epilogue, silu_mul_reference
from triplepoint.jit.kernels.gemm import UNPACK_FROM, gemm_quant, scratch_bytes
from triplepoint.jit.kernels.panels import FORMATS, pack, pack_reference
from triplepoint.jit.kernels.panels_k import offsets
from triplepoint.jit.targets import TARGETS, detect

ASKS = (DOT,)  # see helpers/feature_sets.py
DEPTH = 512  # of all products: one kernel for each format and feature set
SMALLEST = {"tile": 1, "max_single_tile": 1}  # kernels of which only the instructions matter
MANY = UNPACK_FROM["q3_k"]
TOKENS = (1, 2, 5, 7, MANY - 1, MANY, MANY + 6)
# Types whose parts the others share: those have them in another order, or fewer.
TYPICAL = [fmt for fmt in SMALL if fmt not in EIGHTS or fmt in ("iq2_xs", "iq1_m")]


class Product:
    """The kernel with its weights packed: give it activations, get outputs."""

    def __init__(self, runner: Runner, weights: FileMatrix, up: FileMatrix | None = None) -> None:
        self.runner, self.weights, target = runner, weights, runner.target
        self.panels = fused_panels_of(weights, up, target) if up else panels_of(weights, target)
        self.width = len(self.panels) * target.lanes * (1 if up else 2)
        self.activation = weights.form.activation(target, weights.depth)
        # As many bytes as the kernel asks for, and a guard page behind them.
        size = scratch_bytes(weights.fmt, weights.depth, target)
        self.scratch = np.full(size, 0xEE, np.uint8)

    def prepared(self, x: np.ndarray) -> np.ndarray:
        """float32 [tokens, depth] -> quantized blocks."""
        kind, group, zero_point, base = self.activation
        return quantize_reference(x, zero_point, group, kind, base)

    def run(self, x: np.ndarray, epilogue: Epilogue = "store") -> np.ndarray:
        """Every stored output, padding rows too. x: float32 rows, or blocks of uint8."""
        out = np.full((len(x), self.width), np.nan, np.float32)
        blocks = x if x.ndim == 3 else self.prepared(x)
        kernel = spec(
            gemm_quant, fmt=self.weights.fmt, epilogue=epilogue, blocks=self.weights.blocks
        )
        count = np.array([len(x)], np.int64)
        args = [self.panels, blocks, out, self.width, count, self.scratch]
        self.runner.call(kernel, args, 0, len(self.panels))
        return out

    def want(self, x: np.ndarray) -> np.ndarray:
        """By float64, from the activations that the kernel really multiplies."""
        return gemm.reference(
            self.weights.values, dequantize_reference(self.prepared(x), self.activation)
        )

    def as_blocks(self, q: np.ndarray) -> np.ndarray:
        """int8 [tokens, depth] with scale 1 as quantized blocks."""
        kind, _, zero_point, base = self.activation
        grouped = q.reshape(len(q), -1, 32)
        out = np.zeros((*grouped.shape[:2], BLOCK_BYTES), np.uint8)
        out[..., :4] = np.frombuffer(np.float32(1).tobytes(), np.uint8)
        fields = field_reference(grouped.astype(np.int32), zero_point, kind, base)
        out[..., 4:8] = fields[..., None].view(np.uint8)
        out[..., 8:] = grouped.view(np.uint8)
        return out


@on("runner", ())
@pytest.mark.parametrize("fmt", quick(SMALL, *TYPICAL))
def test_packing(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Any bytes come out as in the reference; a row that only pads has fp16 scales of 0."""
    lanes, at = runner.target.lanes, offsets(fmt, runner.target.lanes)
    rows = 2 * lanes + 3
    raw = random_small(rng, rows, DEPTH, fmt).raw
    second = np.ascontiguousarray(raw[lanes:])
    out = np.full((2, 2, FORMATS[fmt].panel_block_bytes(lanes)), 0xEE, np.uint8)
    args = [raw, second, out, raw.shape[1], 2 * lanes, rows, rows - lanes, 2]
    args.append(np.zeros(2, np.int32))
    runner.call(spec(pack, fmt=fmt), args, 0, 2)

    assert np.array_equal(out, pack_reference(raw, second, fmt, runner.target, 2 * lanes))
    scales = out[:, :, : at["scale"]].view(np.uint16).reshape(2, 2, -1, 2 * lanes)
    assert scales[0].all()
    assert not scales[1, ..., 3:].any()
    assert at["end"] == FORMATS[fmt].panel_block_bytes(lanes)


@on("runner", ())
@pytest.mark.parametrize("fmt", quick(SMALL, *TYPICAL))
def test_rows(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Each id gives its dequantized row; what lies past the row's width is not written."""
    table, ids = random_small(rng, 40, DEPTH, fmt), np.array([0, 39, 7, 7, 12], np.int32)
    out = np.full((len(ids), DEPTH + 64), 3.0, np.float32)
    args = [table.raw, ids, out, table.raw.shape[1], 2, DEPTH + 64]
    runner.call(spec(embed.embed, fmt=fmt), args, 0, len(ids))

    assert_close(out[:, :DEPTH], embed.reference(table.values, ids), "k embedding")
    assert (out[:, DEPTH:] == 3.0).all()


@pytest.mark.parametrize("fmt", quick(SMALL, "q3_k", "iq2_xs"))
def test_store(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """out = W x for all tile sizes, the same bits alone and in any chunk, unpacked or not.

    Rows that only pad a panel come out as zeros. Nothing past the weights, the activations or the
    scratch memory is touched: the runner lays a guard page there.
    """
    rows = 33
    product = Product(runner, random_small(rng, rows, DEPTH, fmt))
    x = rng.standard_normal((40, DEPTH)).astype(np.float32)
    whole = product.run(x)
    assert_close(whole[:, :rows], product.want(x), "k product")
    assert not whole[:, rows:].any()

    for tokens in (1, 5) if runner.emulated else TOKENS:
        for first in (3, 40 - tokens):
            part = product.run(x[first : first + tokens])
            assert np.array_equal(part, whole[first : first + tokens]), (tokens, first)


@pytest.mark.parametrize("fmt", LARGEST)
def test_extremes_are_exact(runner: Runner, fmt: str) -> None:
    """The largest quants, scales, mins and activations: no sum saturates or wraps.

    Also d = 0 and d < 0. With d a power of two, every value is an integer that float32 holds
    (IQ4_XS rounds its sum over two blocks).
    """
    n, most = np.arange(DEPTH), LARGEST[fmt]
    quants = np.stack([n * 0, n * 0 + most, n % 2 * most, n // 2 % 2 * most])
    signs = np.where(n % 2, -127, 127)
    rows = [np.full(DEPTH, 127), np.full(DEPTH, -127), signs, np.where(n // 2 % 2, -127, 127)]
    x = np.tile(np.stack(rows).astype(np.int8), (MANY // 4 + 1, 1))
    cases = [(31, 0, 1.0), (-32, 0, 1.0), (-32, 0, -0.5), (0, 0, 1.0), (-32, 0, 0.0)]
    if fmt == "q2_k":
        cases = [(15, 15, 1.0), (15, 0, 1.0), (0, 15, -0.5), (15, 15, 0.0)]
    for scale, least, d in cases[1:2] if runner.emulated else cases:
        product = Product(runner, even_small(fmt, quants, scale, least, d))
        blocks = product.as_blocks(x)
        got, few = product.run(blocks)[:, :4], product.run(blocks[:4])[:, :4]
        want = x.astype(np.float64) @ product.weights.values.astype(np.float64).T

        room = 1e-7 * 127 * DEPTH * 127 * 32 * abs(d) if fmt == "iq4_xs" else 0
        assert np.abs(got - want).max() <= room, (scale, least, d)
        assert np.array_equal(few, got[:4])


@pytest.mark.parametrize("fmt", GRIDS)
def test_extremes_of_a_grid(runner: Runner, fmt: str) -> None:
    """The largest magnitudes, scales and activations of either sign: no sum saturates or wraps."""
    at = max(range(256), key=lambda n: sum(grids.entries(fmt)[n]))
    raw = np.zeros((3, DEPTH // 256, FORMATS[fmt].file_bytes), np.uint8)
    put_half(raw, 0, 1.0)
    raw[..., 2:66] = at
    raw[1:, :, 66:] = np.array([0xFF, 0xAA])[:, None, None]
    if fmt == "iq3_s":
        raw[..., 66:74], raw[..., 106:] = 0, 0xFF
    else:
        raw[..., 69::4] |= 0xF0
    product = Product(runner, stored_matrix(fmt, raw.reshape(3, -1)))
    signs = np.where(np.arange(DEPTH) % 2, -127, 127)
    x = np.stack([np.full(DEPTH, 127), np.full(DEPTH, -127), signs]).astype(np.int8)
    blocks = product.as_blocks(np.tile(x, (MANY // 3 + 1, 1)))
    want = x.astype(np.float64) @ product.weights.values.astype(np.float64).T

    for got in (product.run(blocks[:3]), product.run(blocks)[:3]):
        assert np.abs(got[:, :3] - want).max() <= 2e-7 * np.abs(want).max()
    assert np.abs(want).max() == 127 * np.abs(product.weights.values[0]).sum()


@pytest.mark.parametrize("fmt", EIGHTS)
def test_extremes_of_eights(runner: Runner, fmt: str) -> None:
    """The same for grids of eight, with places of any kind under the largest scales."""
    rng, rows = np.random.default_rng(1), 6
    raw = rng.integers(0, 256, (rows, DEPTH // 256, FORMATS[fmt].file_bytes), dtype=np.uint8)
    qs = raw[..., 0 if fmt == "iq1_m" else 2 :]
    if fmt == "iq2_xxs":
        pairs = raw[..., 2:].reshape(rows, -1, 8, 8)
        pairs[:2, ..., :4], pairs[..., 7] = 255, pairs[..., 7] | 0xF0
        pairs[0, ..., 4:7], pairs[0, ..., 7] = 0, 0xF0
        raw[..., 2:] = pairs.reshape(rows, -1, 64)
    elif fmt == "iq2_xs":
        qs[0, :, :64] = np.tile(np.array([255, 1], np.uint8), 32)  # the last place, no sign
        raw[..., 66:] = 255
    elif fmt == "iq2_s":
        qs[0, :, :32], raw[0, :, 34:66], raw[0, :, 66:74], raw[..., 74:] = 255, 0, 255, 255
    elif fmt == "iq1_s":
        qs[0, :, :32], raw[0, :, 34::2] = 255, 255
        raw[..., 35::2] = raw[..., 35::2] | 0x70
        raw[0, :, 35::2] = 0x7F
    else:
        qs[0, :, :32], raw[0, :, 32:48], raw[..., 48:] = 255, 0x77, 255
    put_scale(raw, fmt, 0, 1.0)
    product = Product(runner, stored_matrix(fmt, raw.reshape(rows, -1)))
    signs = np.where(product.weights.values[1] < 0, -127, 127)
    x = np.stack([np.full(DEPTH, 127), np.full(DEPTH, -127), signs]).astype(np.int8)
    blocks = product.as_blocks(np.tile(x, (MANY // 3 + 1, 1)))
    want = x.astype(np.float64) @ product.weights.values.astype(np.float64).T

    for got in (product.run(blocks[:3]), product.run(blocks)[:3]):
        assert np.abs(got[:, :rows] - want).max() <= 2e-7 * np.abs(want).max()
    largest = max(TABLES[fmt]) * UNIT[fmt] * (15 if fmt.startswith("iq1") else 31)
    assert np.abs(product.weights.values[0]).max() == largest
    assert want[0, 0] == 127 * np.abs(product.weights.values[0]).sum()


@pytest.mark.parametrize("fmt", EIGHTS)
def test_grids_of_eight(fmt: str) -> None:
    """A grid's entries are those of the `gguf` package, and so are the numbers of its digits."""
    oracle = getattr(gguf.quants, fmt.upper())
    oracle.init_grid()
    got = grids.entries(fmt)

    if fmt.startswith("iq1"):
        assert np.array_equal(got.astype(int) - 1, oracle.grid.reshape(-1, 8))
        steps = np.multiply.outer([1, -1], [1 / 8] * 3) + np.array([-1, 0, 1])
        assert np.array_equal(np.reshape(TABLES[fmt], (2, 4))[:, :3] * UNIT[fmt], steps)
        return
    assert np.array_equal(np.array(TABLES[fmt])[got], oracle.grid.reshape(-1, 8))
    assert TABLES[fmt][4:] == tuple(-value for value in TABLES[fmt][:4])


@pytest.mark.parametrize("fmt", GRIDS)
def test_grids(fmt: str) -> None:
    """A grid's entries are those of the `gguf` package, and so is each magnitude."""
    oracle = getattr(gguf.quants, fmt.upper())
    oracle.init_grid()
    table = TABLES[fmt]
    size = 2 if fmt == "iq3_xxs" else 1
    got = np.array([[table[m] for m in entry] for entry in grids.entries(fmt)]) * size

    assert np.array_equal(got, oracle.grid.reshape(-1, 4))
    assert table[8:] == tuple(-value for value in table[:8])


@pytest.mark.parametrize("fmt", quick(SMALL, *TYPICAL))
def test_each_value_has_its_place(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """One activation at a time picks one column of W: no weight is mistaken for another.

    As few tokens and, all at once, from an unpacked panel.
    """
    product = Product(runner, random_small(rng, 8, DEPTH, fmt))
    columns = np.arange(0, DEPTH, 37) if runner.emulated else np.arange(0, DEPTH, 3)
    x = np.zeros((len(columns), DEPTH), np.int8)
    x[np.arange(len(columns)), columns] = 1
    blocks = product.as_blocks(x)
    got = product.run(blocks)[:, :8]
    steps = range(0, 14 if runner.emulated else len(columns), 14)
    few = np.concatenate([product.run(blocks[n : n + 14])[:, :8] for n in steps])

    # Terms of the size of a whole block's may cancel: a weight alone is smaller than they are.
    want = product.weights.values.T[columns].astype(np.float32)
    assert np.abs(got - want).max() <= 1e-6 * np.abs(product.weights.values).max() * 16
    assert np.array_equal(few, got[: len(few)])


@pytest.mark.parametrize(
    "fmt", quick(SMALL, "q3_k", "iq3_s", "iq1_m")
)  # one for each code of a tile
def test_best_target(rng: np.random.Generator, fmt: str, best: Native) -> None:
    """A fused pair gives silu(gate x) * (up x), and experts get their own tokens' rows."""
    gate, up = (random_small(rng, 21, DEPTH, fmt, 0.005) for _ in range(2))
    x = rng.standard_normal((31, DEPTH)).astype(np.float32)
    product = Product(best, gate, up)
    want = silu_mul_reference(Product(best, gate).want(x), Product(best, up).want(x))
    assert_close(product.run(x, "silu_mul")[:, :21], want, "k silu")

    # Two experts; pairs 0, 2, 4, … go to the second, the others to the first.
    both = [Product(best, m) for m in (gate, up)]
    rows, width = product.prepared(x), both[0].width
    out = np.full((len(x), width), np.nan, np.float32)
    pairs = np.concatenate([np.arange(1, 31, 2), np.arange(0, 31, 2)]).astype(np.int32)
    lists = [np.array([0, 1, 0], np.int32), np.array([0, 15, 31], np.int32), pairs]
    panels = np.stack([b.panels for b in both])
    args = [panels, rows, out, rows[0].nbytes, width, panels.shape[1], *lists, product.scratch]
    kernel = spec(moe.gemm_experts, fmt=fmt, epilogue="store", blocks=2, share=1)
    best.call(kernel, args, 0, 2 * panels.shape[1])
    for n, b in enumerate(both):
        assert_close(out[1 - n :: 2, :21], b.want(x)[1 - n :: 2], "k product", n)


@pytest.mark.parametrize("gate", ["silu", "gelu"])
def test_gates_of_another_type(rng: np.random.Generator, best: Native, gate: str) -> None:
    """The up product alone multiplies what is there, taken for the gate's product."""
    up, tokens = random_matrix(rng, 33, 64, "q4_0"), 7
    panels = panels_of(up, best.target)
    form = up.form.activation(best.target, 64)
    kind, group, zero_point, base = form
    blocks = quantize_reference(rng.standard_normal((tokens, 64)), zero_point, group, kind, base)
    width = len(panels) * 2 * best.target.lanes
    before = rng.standard_normal((tokens, width)).astype(np.float32)
    out, count = before.copy(), np.array([tokens], np.int64)
    kernel = spec(gemm.gemm_quant, fmt="q4_0", epilogue=f"after_{gate}", blocks=2)
    scratch = np.zeros(64, np.uint8)
    best.call(kernel, [panels, blocks, out, width, count, scratch], 0, len(panels))

    wide = before[:, :33].astype(np.float64)
    product = dequantize_reference(blocks, form) @ up.values.T
    inner = np.sqrt(2 / np.pi) * (wide + 0.044715 * wide**3)
    gated = wide / (1 + np.exp(-wide)) if gate == "silu" else wide / 2 * (1 + np.tanh(inner))
    assert_close(out[:, :33], (gated * product).astype(np.float32), "silu")
    assert not out[:, 33:].any()


@pytest.fixture(scope="module")
def best() -> Native:
    """Calls kernels of this machine's best feature set."""
    from helpers.runners import CheckedCache

    from triplepoint.jit.compile import default_folder

    return Native(detect(), CheckedCache(default_folder()))


@pytest.mark.parametrize(
    ("name", "fmt"),
    [("avx2", "q2_k"), ("avx-vnni", "iq4_xs"), ("neon-i8mm", "q3_k")],
)
def test_key_instructions(name: str, fmt: str) -> None:
    """The dot products are the instructions that a feature set is named for, on every host."""
    target = TARGETS[name]
    assembly = build_assembly(
        spec(gemm_quant, fmt=fmt, epilogue="store", blocks=2, **SMALLEST), target
    )

    assert KEY_INSTRUCTION[target.dot] in assembly
    if target.dot != "vpdpbusd":
        assert "vpdp" not in assembly


def test_what_the_dot_products_may_rely_on() -> None:
    """Sums of a sub-block fit in 16 bits, and weights with their scales in them in a byte."""
    assert 16 * LARGEST["q3_k"] * 127 < 1 << 15
    assert LARGEST["q2_k"] * 15 <= 127
    folded = np.multiply.outer(4 - np.arange(8), np.arange(-32, 32))
    assert (folded.min(), folded.max()) == (-128, 124)
    assert 256 * 128 * 127 < 1 << 24
