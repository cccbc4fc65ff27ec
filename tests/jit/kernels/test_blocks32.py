"""Q4_1, Q5_0, Q5_1, IQ4_NL, MXFP4 and NVFP4, younger than Q4_0: packing, rows and products."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from helpers.feature_sets import BF16, DOT, in_turn, on, place, some
from helpers.matrices import FileMatrix, fused_panels_of, panels_of, random_matrix
from helpers.runners import Native, Runner
from helpers.tiers import quick
from helpers.tolerances import assert_close

from triplepoint.jit.compile import build_assembly, spec
from triplepoint.jit.dot import KEY_INSTRUCTION
from triplepoint.jit.kernels import codebook, embed, gemm
from triplepoint.jit.kernels.activations import dequantize_reference, quantize_reference
from triplepoint.jit.kernels.codebook import IQ4_NL, reference
from triplepoint.jit.kernels.epilogue import Epilogue, silu_mul_reference
from triplepoint.jit.kernels.panels import FORMATS, pack, pack_reference
from triplepoint.jit.targets import TARGETS

ASKS = (DOT, BF16)  # see helpers/feature_sets.py
SIBLINGS = ("q5_0", "q4_1", "q5_1", "iq4_nl", "mxfp4", "nvfp4")
TOKENS = (1, 2, 3, 5, 6, 7, 13, 16, 70)
FEW_TOKENS = (1, 8)  # under qemu each product is a process


def _random_bytes(rng: np.random.Generator, rows: int, depth: int, fmt: str) -> FileMatrix:
    """Any quants and fifth bits under scales and mins of either sign (or powers of two)."""
    form = FORMATS[fmt]
    raw = rng.integers(0, 256, (rows, depth // 32, form.file_bytes), dtype=np.uint8)
    if fmt == "nvfp4":
        small = rng.integers(0, 33, (rows, depth // 64, 4))
        raw.reshape(rows, -1, 36)[..., :4] = np.where(small == 32, 0x7F, small)
        return _stored(fmt, raw.reshape(rows, -1))
    if fmt == "mxfp4":
        raw[..., 0] = rng.integers(118, 125, raw.shape[:2])
        return _stored(fmt, raw.reshape(rows, -1))
    for at in range(0, 4 if form.has_min else 2, 2):
        halves = rng.uniform(-0.05, 0.05, (*raw.shape[:2], 1)).astype(np.float16)
        raw[..., at : at + 2] = halves.view(np.uint8)
    return _stored(fmt, raw.reshape(rows, -1))


def _depth(fmt: str, depth: int) -> int:
    """`depth` values, or so many more that they fill the file's blocks of NVFP4."""
    return -(-depth // 64) * 64 if fmt == "nvfp4" else depth


def _stored(fmt: str, raw: np.ndarray) -> FileMatrix:
    return FileMatrix(fmt, raw, gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[fmt.upper()]))


class Product:
    """The kernel with its weights packed: give it activations, get outputs."""

    def __init__(self, runner: Runner, weights: FileMatrix, up: FileMatrix | None = None) -> None:
        self.runner, self.weights, target = runner, weights, runner.target
        self.panels = fused_panels_of(weights, up, target) if up else panels_of(weights, target)
        self.width = len(self.panels) * target.lanes * (1 if up else 2)
        self.activation = weights.form.activation(target, weights.depth)

    def run(
        self, x: np.ndarray, epilogue: Epilogue = "store", out: np.ndarray | None = None
    ) -> np.ndarray:
        """Every stored output, padding rows too: float32 [tokens, width]."""
        out = np.full((len(x), self.width), np.nan, np.float32) if out is None else out
        kind, group, zero_point, base = self.activation
        blocks = quantize_reference(x, zero_point, group, kind, base)
        sizes = {"fmt": self.weights.fmt, "epilogue": epilogue, "blocks": self.weights.blocks}
        size = gemm.scratch_bytes(self.weights.fmt, self.weights.depth, self.runner.target)
        scratch = np.full(size + 64, 0x7F, np.uint8)
        args = [self.panels, blocks, out, self.width, np.array([len(x)], np.int64), scratch]
        self.runner.call(spec(gemm.gemm_quant, **sizes), args, 0, len(self.panels))
        assert (scratch[size:] == 0x7F).all()
        return out

    def want(self, x: np.ndarray) -> np.ndarray:
        """By float64, from the activations that the kernel really multiplies."""
        return gemm.reference(self.weights.values, self.seen(x))

    def seen(self, x: np.ndarray) -> np.ndarray:
        """The activations that the kernel really multiplies."""
        kind, group, *_ = self.activation
        return dequantize_reference(quantize_reference(x, 0, group, kind), self.activation)


@on("runner", ())
@pytest.mark.parametrize("fmt", SIBLINGS)
def test_packing(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Any bytes come out as in the reference, padding rows too; no byte is left as it was."""
    form, lanes = FORMATS[fmt], runner.target.lanes
    shapes = ((96, 2 * lanes + 1),) if runner.emulated else ((32, lanes + 1), (96, 70))
    for depth, rows in ((_depth(fmt, depth), rows) for depth, rows in shapes):
        raw = _random_bytes(rng, rows, depth, fmt).raw
        second = np.ascontiguousarray(raw[lanes:])
        units = -(-rows // (2 * lanes))
        want = pack_reference(raw, second, fmt, runner.target, 2 * lanes)
        out = np.full(want.shape, 0xEE, np.uint8)
        args = [raw, second, out, raw.shape[1], 2 * lanes, rows, rows - lanes, depth // 32]
        args.append(np.zeros(units, np.int32))
        runner.call(spec(pack, fmt=fmt), args, 0, units)

        assert np.array_equal(out, want)
        assert out.nbytes == units * form.panel_bytes(depth // 32, lanes)
        assert form.panel_block_bytes(lanes) == 2 * lanes * form.file_bytes


@pytest.mark.parametrize("fmt", SIBLINGS)
def test_rows(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Each id gives its dequantized row exactly; what lies past the row's width is not written."""
    width = _depth(fmt, 96)
    table = _random_bytes(rng, 40, width, fmt)
    ids = np.array([0, 39, 7, 7, 12], np.int32)
    out = np.full((len(ids), 160), 3.0, np.float32)
    args = [table.raw, ids, out, table.raw.shape[1], table.blocks, 160]
    runner.call(spec(embed.embed, fmt=fmt), args, 0, len(ids))

    assert np.array_equal(out[:, :width], embed.reference(table.values, ids))
    assert (out[:, width:] == 3.0).all()


@pytest.mark.parametrize("fmt", quick(SIBLINGS, SIBLINGS[0]))
def test_store(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """out = W x for odd shapes and all tile sizes; rows that only pad a panel come out as zeros."""
    shapes = [(40, 256)]  # its kernel serves other tests too
    if not runner.emulated:
        turn = place(runner.target) + SIBLINGS.index(fmt)
        shapes += some([(1, 32), (70, 192)], runner.target, turn)
    for rows, depth in ((rows, _depth(fmt, depth)) for rows, depth in shapes):
        # The `gguf` package has no quantizer for these.
        only = fmt in ("iq4_nl", "nvfp4")
        for make in (_random_bytes,) if only else (random_matrix, _random_bytes):
            product = Product(runner, make(rng, rows, depth, fmt))
            for tokens in FEW_TOKENS if runner.emulated else TOKENS:
                x = rng.standard_normal((tokens, depth)).astype(np.float32)
                got = product.run(x)

                assert_close(got[:, :rows], product.want(x), "k product", (rows, depth, tokens))
                assert not got[:, rows:].any()


@in_turn("native", "fmt", SIBLINGS, ASKS, quick=("q4_1", "mxfp4"))
def test_epilogues(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """out += W x; and a fused pair gives silu(gate x) * (up x)."""
    gate, up = (_random_bytes(rng, 33, 256, fmt) for _ in range(2))
    x = rng.standard_normal((7, 256)).astype(np.float32)
    plain = Product(native, gate)
    before = rng.standard_normal((7, plain.width)).astype(np.float32)
    got = plain.run(x, "add", before.copy())
    assert_close(got[:, :33], before[:, :33] + plain.want(x), "k product")
    assert np.array_equal(got[:, 33:], before[:, 33:])

    fused = Product(native, gate, up).run(x, "silu_mul")
    want = silu_mul_reference(plain.want(x), Product(native, up).want(x))
    assert_close(fused[:, :33], want, "k silu")
    assert not fused[:, 33:].any()


@pytest.mark.parametrize("fmt", SIBLINGS)
def test_same_bits_in_any_tile(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """A token's outputs have the same bits alone, in any chunk and at any place in it."""
    product = Product(native, _random_bytes(rng, 40, 256, fmt))
    x = rng.standard_normal((70, 256)).astype(np.float32)
    whole = product.run(x)

    for chunk in (1, 2, 3, 4, 5, 7, 8, 13, 29):
        for first in (0, 31, 70 - chunk):
            part = product.run(x[first : first + chunk])
            assert np.array_equal(part, whole[first : first + chunk]), (chunk, first)


@pytest.mark.parametrize("fmt", SIBLINGS)
def test_extremes_are_exact(runner: Runner, fmt: str) -> None:
    """Quants 0 or at the largest, mins of -64, activations of ±127: no sum saturates or wraps."""
    form, depth = FORMATS[fmt], 256
    raw = np.zeros((4, depth // 32, form.file_bytes), np.uint8)
    if fmt == "mxfp4":
        raw[..., 0], raw[..., 1:] = 128, 0x77
    elif fmt == "nvfp4":
        raw[...] = 0x77
        raw.reshape(4, -1, 36)[..., :4] = 0x40  # 2, of which tables have half
    else:
        raw[..., :2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    if form.has_min:
        raw[2:, :, 2:4] = np.frombuffer(np.float16(-64).tobytes(), np.uint8)
    if fmt == "nvfp4":
        raw.reshape(4, -1, 36)[1::2, :, 4:] = 255
    else:
        raw[1::2, :, form.head_bytes - 4 * form.has_fifth :] = 255
    weights = _stored(fmt, raw.reshape(4, -1))
    x = np.full((3, depth), 127, np.float32)
    x[1] *= -1
    x[2, ::2] *= -1
    x = np.tile(x, (6, 1))  # from some tokens on, panels may be unpacked
    product = Product(runner, weights)
    got = product.run(x)[:, :4]

    if product.activation.kind == "factors":
        assert np.allclose(got, product.want(x), rtol=3e-7)
    else:
        assert np.array_equal(got, x.astype(np.int64) @ weights.values.astype(np.int64).T)


def test_every_exponent(runner: Runner) -> None:
    """MXFP4 scales from 2^-126 to 2^116 count exactly, in products and rows; less counts as 0.

    NaN (255) is refused as the file is read; with much larger ones products leave float32, with
    factors of activations 2^10 sooner.
    """
    factored = FORMATS["mxfp4"].activation(runner.target, 32).kind == "factors"
    end = 235 if factored else 245
    exponents = np.arange(0, end, 10 if runner.emulated else 1, dtype=np.uint8)
    raw = np.full((len(exponents), 17), 0xA5, np.uint8)  # 3 and -1
    raw[:, 0] = exponents
    table = _stored("mxfp4", raw)
    tiny = exponents < 2
    assert np.abs(table.values[tiny]).max() < 1e-37
    want = np.where(tiny[:, None], 0, table.values)
    rows = np.zeros((len(raw), 32), np.float32)
    ids = np.arange(len(raw), dtype=np.int32)
    runner.call(spec(embed.embed, fmt="mxfp4"), [raw, ids, rows, 17, 1, 32], 0, len(raw))
    product, x = Product(runner, table), np.eye(1, 32, dtype=np.float32) * 127
    got = product.run(x)[0, : len(raw)]

    assert np.array_equal(rows, want)
    if factored:
        assert np.allclose(got, want[:, 0] * product.seen(x)[0, 0], rtol=3e-7, atol=0)
    else:
        assert np.array_equal(got, want[:, 0] * np.float32(127))


def test_every_small_scale(runner: Runner) -> None:
    """All bytes that an NVFP4 scale can be: the NaN counts as 0, the eighth bit for nothing."""
    raw = np.full((64, 36), 0xA5, np.uint8)
    raw[:, :4] = np.arange(256).reshape(64, 4)
    table, ids = _stored("nvfp4", raw), np.arange(64, dtype=np.int32)
    rows = np.zeros((64, 64), np.float32)
    runner.call(spec(embed.embed, fmt="nvfp4"), [raw, ids, rows, 36, 2, 64], 0, 64)
    x = np.zeros((4, 64), np.float32)
    x[np.arange(4), np.arange(4) * 16] = 127
    got = Product(runner, table).run(x)[:, :64]

    assert np.array_equal(rows, table.values)
    assert np.array_equal(got, table.values[:, ::16].T * np.float32(127))


def test_the_table_is_the_oracles() -> None:
    """What a nibble stands for is what the `gguf` package says."""
    assert tuple(gguf.quants.IQ4_NL.kvalues) == IQ4_NL
    assert tuple(gguf.quants.MXFP4.kvalues) == codebook.E2M1
    assert tuple(gguf.quants.NVFP4.kvalues) == codebook.E2M1
    assert reference(np.array([[0, 15]], np.uint8), IQ4_NL).tolist() == [[-127, 113]]


@pytest.mark.parametrize(
    ("name", "fmt"),
    [
        (name, fmt)
        for n, name in enumerate(TARGETS)
        for fmt in (SIBLINGS[n % 3], SIBLINGS[3 + n % 3])  # one of numbers, one with a table
    ],
)
def test_key_instructions(name: str, fmt: str) -> None:
    """Each feature set multiplies with its own instruction; tables are one shuffle."""
    target = TARGETS[name]
    smallest = {"tile": 1, "max_single_tile": 1}  # only the instructions matter
    kernel = spec(gemm.gemm_quant, fmt=fmt, epilogue="store", blocks=2, **smallest)
    assembly = build_assembly(kernel, target)

    assert KEY_INSTRUCTION[target.dot] in assembly
    if fmt in codebook.TABLES:
        assert codebook.KEY_INSTRUCTION.get(target.dot, "") in assembly
