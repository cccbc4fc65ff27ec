"""Packing K-quants into panels."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kquants import KQUANTS, even_k, random_k
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.panels import FORMATS, pack, pack_reference
from triplepoint.jit.kernels.panels_k import SUPER, offsets, six_bits_reference

ASKS = ()  # see helpers/feature_sets.py


def _packed(
    runner: Runner,
    fmt: str,
    first: np.ndarray,
    second: np.ndarray,
    rows: tuple[int, int],
    step: int,
) -> np.ndarray:
    """Call the kernel; `rows` are the rows that count in each half's source."""
    form, row_bytes = FORMATS[fmt], first.shape[1]
    blocks, units = row_bytes // form.file_bytes, -(-rows[0] // step)
    out = np.full((units, blocks, form.panel_block_bytes(runner.target.lanes)), 0xEE, np.uint8)
    args = [first, second, out, row_bytes, step, *rows, blocks, np.zeros(units, np.int32)]
    runner.call(spec(pack, fmt=fmt), args, 0, units)
    return out


@pytest.mark.parametrize("fmt", KQUANTS)
def test_plain_matrix(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Any bytes come out as in the reference, padding rows too; no byte is left as it was."""
    lanes = runner.target.lanes
    for depth, rows in ((256, 2 * lanes),) if runner.emulated else (
        (256, lanes + 1), (512, 2 * lanes), (1536, 70)
    ):  # fmt: skip
        raw = random_k(rng, rows, depth, fmt).raw
        second = np.ascontiguousarray(raw[lanes:])
        got = _packed(runner, fmt, raw, second, (rows, rows - lanes), 2 * lanes)

        assert np.array_equal(got, pack_reference(raw, second, fmt, runner.target, 2 * lanes))


@pytest.mark.parametrize("fmt", KQUANTS)
def test_fused_matrices(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Gate rows fill the first half of each panel and up rows the second."""
    lanes = native.target.lanes
    for rows in (1, lanes, 2 * lanes + 3):
        gate, up = (random_k(rng, rows, 512, fmt).raw for _ in range(2))
        got = _packed(native, fmt, gate, up, (rows, rows), lanes)

        assert np.array_equal(got, pack_reference(gate, up, fmt, native.target, lanes))


@pytest.mark.parametrize("fmt", KQUANTS)
def test_fewer_rows_than_lanes(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Where the second half has no rows, its address is not followed and its fp16 scales are 0."""
    lanes, at = native.target.lanes, offsets(fmt, native.target.lanes)
    raw = random_k(rng, 3, 512, fmt).raw
    got = _packed(native, fmt, raw, raw, (3, 0), 2 * lanes)[0]

    for part in ("d",) if fmt == "q6_k" else ("d", "dmin"):
        halves = got[:, at[part] : at[part] + 4 * lanes].view(np.uint16)
        assert halves[:, :3].all()
        assert not halves[:, 3:].any()


@pytest.mark.parametrize("fmt", KQUANTS)
def test_panels_mean_the_weights(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Read by the table in the module's docstring, a panel gives what `gguf` dequantizes.

    This holds the reference itself against an oracle: every nibble, upper bit, scale and min.
    """
    lanes = native.target.lanes
    matrix = random_k(rng, 2 * lanes, 512, fmt)
    raw = matrix.raw
    panel = pack_reference(raw, raw[lanes:], fmt, native.target, 2 * lanes)[0]
    for row in range(2 * lanes):
        got = np.concatenate([_read(block, fmt, lanes, row) for block in panel])

        assert np.allclose(got, matrix.values[row], rtol=1e-6, atol=1e-6)


def _read(block: np.ndarray, fmt: str, lanes: int, row: int) -> np.ndarray:
    """The 256 weights of one row of one panel's block, float64."""
    at = {**offsets(fmt, lanes)}
    names = [*at]

    def part(name: str, dtype: type) -> np.ndarray:
        """What the row has of a part: [count] of `dtype`, or [count, elements] if it is wider."""
        until = at[names[names.index(name) + 1]]
        return block[at[name] : until].view(dtype).reshape(-1, 2 * lanes)[:, row]

    d = float(part("d", np.float16)[0])
    nibbles = np.ascontiguousarray(part("nibble", np.int32)).view(np.uint8)
    if fmt == "q6_k":
        scales = np.ascontiguousarray(part("scale", np.int16)).view(np.int8).astype(int)
        high = np.ascontiguousarray(part("high", np.int32)).view(np.uint8)
        q = np.zeros(256, int)
        for n in range(2):
            for quarter in range(4):
                low = nibbles[n * 64 + (quarter & 1) * 32 :][:32] >> (4 * (quarter >> 1)) & 15
                top = high[n * 32 :][:32] >> (2 * quarter) & 3
                q[n * 128 + quarter * 32 :][:32] = low | top << 4
        return d * scales.repeat(16) * (q - 32)
    chunks = nibbles.reshape(4, 32)
    q = np.stack([chunks & 15, chunks >> 4], axis=1).reshape(8, 32).astype(int)
    if fmt == "q5_k":
        fifth = np.ascontiguousarray(part("high", np.int32)).view(np.uint8)
        q |= (fifth >> np.arange(8)[:, None] & 1) << 4
    scales = part("scale", np.uint8).astype(int)
    mins = np.ascontiguousarray(part("min", np.uint16)).view(np.uint8).astype(int)
    dmin = float(part("dmin", np.float16)[0])
    return (d * scales[:, None] * q - dmin * mins[:, None]).reshape(-1)


def test_six_bits() -> None:
    """Every value of every one of the 16 fields comes back from its 12 bytes."""
    for value in range(64):
        for least in (0, 21, 63 - value):
            matrix = even_k("q4_k", np.zeros((1, SUPER)), value, least)
            scales, mins = six_bits_reference(matrix.raw[:, 4:16])

            assert (scales == value).all()
            assert (mins == least).all()


@pytest.mark.parametrize("fmt", KQUANTS)
def test_parts_fill_the_block(native: Native, fmt: str) -> None:
    """The parts of a panel's block follow one another and end where the next block begins."""
    at = offsets(fmt, native.target.lanes)

    assert list(at.values()) == sorted(at.values())
    assert at["end"] == FORMATS[fmt].panel_block_bytes(native.target.lanes)
