"""Packing weights into panels."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.feature_sets import DOT
from helpers.matrices import FLOATS, QUANTIZED, put_number, random_matrix
from helpers.runners import Native, Runner

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels.panels import FORMATS, look, pack, pack_reference
from triplepoint.jit.kernels.panels_small import EIGHTS, GRIDS

ASKS = (DOT,)  # see helpers/feature_sets.py
DEPTHS = {"q4_0": (32, 96), "q8_0": (32, 96), "f32": (1, 37), "f16": (1, 37), "bf16": (1, 37)}


def _packed(
    runner: Runner, fmt: str, raw: np.ndarray, second: np.ndarray, rows: tuple[int, int], step: int
) -> np.ndarray:
    """Call the kernel; `rows` are the rows that count in each half's source."""
    form = FORMATS[fmt]
    row_bytes = raw.shape[1]
    blocks = row_bytes // form.file_bytes
    units = -(-rows[0] // step)
    out = np.full((units, blocks, form.panel_block_bytes(runner.target.lanes)), 0xEE, np.uint8)
    bad = np.full(units, -1, np.int32)
    args = [raw, second, out, row_bytes, step, *rows, blocks, bad]
    runner.call(spec(pack, fmt=fmt), args, 0, units)
    assert not bad.any()
    return out


@pytest.mark.parametrize("fmt", QUANTIZED + FLOATS)
def test_plain_matrix(runner: Runner, rng: np.random.Generator, fmt: str) -> None:
    """Both halves of a panel come from one matrix, `lanes` rows apart; the rest is as in numpy."""
    lanes = runner.target.lanes
    for depth in DEPTHS[fmt]:
        for rows in (2 * lanes,) if runner.emulated else (lanes + 1, 2 * lanes, 70):
            raw = random_matrix(rng, rows, depth, fmt).raw
            second = np.ascontiguousarray(raw[lanes:])
            got = _packed(runner, fmt, raw, second, (rows, rows - lanes), 2 * lanes)

            assert np.array_equal(got, pack_reference(raw, second, fmt, runner.target, 2 * lanes))


@pytest.mark.parametrize("fmt", QUANTIZED + FLOATS)
def test_fused_matrices(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Gate rows fill the first half of each panel and up rows the second."""
    lanes, depth = native.target.lanes, DEPTHS[fmt][1]
    for rows in (1, lanes, 2 * lanes + 3):
        gate, up = (random_matrix(rng, rows, depth, fmt).raw for _ in range(2))
        got = _packed(native, fmt, gate, up, (rows, rows), lanes)

        assert np.array_equal(got, pack_reference(gate, up, fmt, native.target, lanes))


@pytest.mark.parametrize("fmt", QUANTIZED + FLOATS)
def test_fewer_rows_than_lanes(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Where the second half has no rows at all, its address is not followed past the matrix."""
    lanes, form = native.target.lanes, FORMATS[fmt]
    depth = DEPTHS[fmt][1]
    raw = random_matrix(rng, 3, depth, fmt).raw
    got = _packed(native, fmt, raw, raw, (3, 0), 2 * lanes)

    # What a row's values are multiplied by: the scale, or the value itself.
    size = form.scale_bytes
    heads = got[0].reshape(depth // form.block, -1)[:, : 2 * lanes * size]
    by_lane = heads.reshape(len(heads), 2 * lanes, size)
    assert by_lane[:, :3].any()
    assert not by_lane[:, 3:].any()


@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_no_number_is_seen(native: Native, rng: np.random.Generator, fmt: str) -> None:
    """Of each format every float, scale and min; in any row of a panel, and in that panel only."""
    form, lanes = FORMATS[fmt], native.target.lanes
    blocks, rows = 3, 4 * lanes + 3
    clean = np.zeros((rows, blocks, form.file_bytes), np.uint8)
    size = form.scale_bytes
    infinity = form.exponent.to_bytes(size, "little")
    nan, most = (form.exponent | 1).to_bytes(size, "little"), (form.exponent - 1)
    minus = (form.exponent | 1 << (8 * size - 1)).to_bytes(size, "little")
    for row in (0, lanes - 1, lanes, 2 * lanes, rows - 1):
        for at in form.scales:
            for number in (infinity, nan, minus, most.to_bytes(size, "little")):
                raw, block = clean.copy(), int(rng.integers(blocks))
                put_number(raw[row, block], form, at, number)
                bad, looked = np.full(3, -1, np.int32), np.full(rows, -1, np.int32)
                out = np.zeros((3, blocks, form.panel_block_bytes(lanes)), np.uint8)
                sizes = [raw[0].size, 2 * lanes, rows, rows - lanes, blocks]
                native.call(spec(pack, fmt=fmt), [raw, raw[lanes:].copy(), out, *sizes, bad], 0, 3)
                native.call(spec(look, fmt=fmt), [raw, raw[0].size, blocks, looked], 0, rows)

                where = row * raw[0].size + block * form.file_bytes + at
                finite = int.from_bytes(number, "little") == most
                assert form.not_finite(raw).tolist() == ([] if finite else [where])
                found = {*np.flatnonzero(bad).tolist()}
                # Padding rows of the last panel read the first row of their half.
                found -= {2} if row in (0, lanes) else set()
                assert found == (set() if finite else {row // (2 * lanes)})
                assert np.flatnonzero(looked).tolist() == ([] if finite else [row])


def test_where_values_lie(native: Native) -> None:
    """The layout that the module's table promises, value by value, for one q8_0 and one q4_0 row.

    Row 1 of a panel is lane 1; its K-group g starts 4 bytes a lane, 8 bytes a pair of lanes on.
    """
    lanes = native.target.lanes
    flip = 0 if native.target.signed_bytes else 0x80
    q8 = np.zeros((lanes + 1, 34), np.uint8)
    q8[1, 2:] = np.arange(32)
    panel = _packed(native, "q8_0", q8, q8[lanes:], (lanes + 1, 1), 2 * lanes)[0, 0]
    for group in range(8):
        at = 4 * lanes + (2 * group * lanes + 1) * 4
        assert (panel[at : at + 4] == (np.arange(4) + 4 * group) ^ flip).all()

    q4 = np.zeros((lanes + 1, 18), np.uint8)
    q4[1, 2:] = np.arange(16) | (15 - np.arange(16)) << 4
    panel = _packed(native, "q4_0", q4, q4[lanes:], (lanes + 1, 1), 2 * lanes)[0, 0]
    for group in range(4):
        at = 4 * lanes + (2 * group * lanes + 1) * 4
        low, high = panel[at : at + 4] & 15, panel[at : at + 4] >> 4
        assert (low == np.arange(4) + 4 * group).all()  # K = 4 group …: K-group `group`
        assert (high == 15 - np.arange(4) - 4 * group).all()  # K = 16 + 4 group …: `group` + 4


def test_a_panel_is_as_big_as_its_rows(native: Native) -> None:
    """Packing adds no bytes, or under 5 % where 6-bit scales become bytes; more to grids' types."""
    for form in FORMATS.values():
        rows = 2 * native.target.lanes
        assert form.panel_block_bytes(native.target.lanes) == rows * form.row_bytes
        if form.name in (*GRIDS, *EIGHTS):
            other, less = ("iq4_xs", 0) if form.name in GRIDS else ("q3_k", 8)
            assert form.row_bytes == FORMATS[other].row_bytes - less
            continue
        assert form.file_bytes <= form.row_bytes <= 1.05 * form.file_bytes
        assert form.row_bytes == form.file_bytes or form.name in ("q3_k", "q4_k", "q5_k", "iq4_xs")


def test_zero_points(native: Native) -> None:
    """What is stored minus the zero point is the weight's own value."""
    stored_signed = native.target.signed_bytes
    assert FORMATS["q4_0"].zero_point(native.target) == 8
    assert FORMATS["q8_0"].zero_point(native.target) == (0 if stored_signed else 128)
    assert FORMATS["f16"].zero_point(native.target) == 0
