"""Weights from the file into panels."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny

from triplepoint.errors import GGUFError, UnsupportedModelError
from triplepoint.jit.compile import Library
from triplepoint.jit.kernels.panels import FORMATS, pack_reference
from triplepoint.jit.pool import Pool
from triplepoint.runtime.gguf.file import GGMLType
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.synthetic.write import synthetic_path
from triplepoint.runtime.weights import packing
from triplepoint.runtime.weights.loader import WeightLoader

MakeModel = Callable[[str], Path]
Q, GATE, UP = (f"blk.0.{part}.weight" for part in ("attn_q", "ffn_gate", "ffn_up"))
Q_SHAPE, FFN_SHAPE = (192, 96), (160, 96)


@pytest.fixture
def loader(library: Library, tiny_model: MakeModel) -> WeightLoader:
    return WeightLoader(open_gguf(tiny_model("q4_0")), library)


def _rows(loader: WeightLoader, name: str) -> np.ndarray:
    data = loader.gguf.data(name)
    return data.reshape(loader.gguf.tensors[name].shape[0], -1).copy()


def test_packed_matrices(loader: WeightLoader, pool: Pool) -> None:
    """Plain and fused matrices lie in panels as the reference packs them."""
    target, lanes = loader.library.target, loader.lanes
    q, fused = loader.matrix(Q, *Q_SHAPE), loader.gate_up(GATE, UP, *FFN_SHAPE)
    raw = {name: _rows(loader, name) for name in (Q, GATE, UP)}
    arena = loader.pack_all(pool)

    want = pack_reference(raw[Q], raw[Q][lanes:], "q4_0", target, 2 * lanes)
    assert np.array_equal(q.panels, want.reshape(-1))
    want = pack_reference(raw[GATE], raw[UP], "q4_0", target, lanes)
    assert np.array_equal(fused.panels, want.reshape(-1))
    assert q.panels.ctypes.data % 64 == 0
    assert fused.panels.ctypes.data % 64 == 0
    assert arena.used >= q.nbytes + fused.nbytes


def test_what_a_matrix_knows(loader: WeightLoader) -> None:
    """Sizes of a matrix, and of two fused ones."""
    q, fused = loader.matrix(Q, *Q_SHAPE), loader.gate_up(GATE, UP, *FFN_SHAPE)
    lanes = loader.lanes

    assert (q.rows, q.depth, q.blocks, q.units) == (192, 96, 3, -(-192 // (2 * lanes)))
    assert (fused.rows, fused.units) == (160, -(-160 // lanes))
    assert (q.parameters, fused.parameters) == (192 * 96, 2 * 160 * 96)
    assert fused.fused
    assert not q.fused
    assert fused.sources == (GATE, UP)


def test_progress(loader: WeightLoader, pool: Pool) -> None:
    """The caller hears the share that is packed, up to all of it."""
    heard: list[float] = []
    loader.matrix(Q, *Q_SHAPE)
    loader.pack_all(pool, heard.append)

    assert heard[-1] == 1.0
    assert heard == sorted(heard)


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "f16"])
def test_pieces(
    library: Library,
    pool: Pool,
    tiny_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """However small the pieces, every byte is as the reference packs it, and none is left out.

    A row that only pads a panel has scales of 0 and the bits of some other row: those may differ.
    """
    monkeypatch.setattr(packing, "PIECE", 1 << 13)
    monkeypatch.setattr(packing, "AHEAD", 1 << 14)
    loader = WeightLoader(open_gguf(tiny_model(kind)), library)
    target, lanes, heard = library.target, loader.lanes, []
    shapes = {name: loader.gguf.tensors[name].shape for name in (Q, "token_embd.weight")}
    plain = {name: loader.matrix(name, *shape) for name, shape in shapes.items()}
    fused = loader.gate_up(GATE, UP, *FFN_SHAPE)
    loader.pack_all(pool, heard.append)

    assert sum(m.nbytes for m in loader.wanted) > 5 * packing.PIECE
    assert heard == sorted(heard)
    assert heard[-1] == 1.0
    for name, matrix in plain.items():
        raw, other = (_rows(loader, name) for _ in range(2))
        other[[0, lanes]] ^= 0xFF
        want, also = (pack_reference(r, r[lanes:], kind, target, 2 * lanes) for r in (raw, other))
        matters = want == also  # all but the rows with which the reference pads
        matters[0] = True
        got = matrix.panels.reshape(want.shape)
        assert (got == want)[matters].all(), name
        assert matters.mean() > 0.9
    want = pack_reference(_rows(loader, GATE), _rows(loader, UP), kind, target, lanes)
    assert np.array_equal(fused.panels, want.reshape(-1))


@pytest.mark.parametrize("kind", FORMATS)
def test_packed_size(library: Library, tmp_path: Path, kind: str) -> None:
    """Packed weights of every type take at most 1.05 times the bytes that the file has for them.

    Those of IQ3 take 138 bytes for 256, those of IQ2 and IQ1 106: docs/models.md says so.

    A Qwen3's shapes, cut to few rows; only sizes are looked at.
    """
    path, shapes = tmp_path / "sizes.gguf", {"a": (1024, 1024), "b": (96, 2560), "c": (151, 512)}
    with GGUFWriter(path) as writer:
        for name, shape in shapes.items():
            writer.declare(name, shape, GGMLType[kind.upper()])
        for name, shape in shapes.items():
            writer.write(name, np.zeros(GGMLType[kind.upper()].nbytes(shape), np.uint8))
    loader = WeightLoader(open_gguf(path), library)
    for name, shape in shapes.items():
        loader.matrix(name, *shape)
    in_file = sum(info.nbytes for info in loader.gguf.tensors.values())

    wide = {"iq3": 138, "iq2": 106, "iq1": 106}.get(kind.partition("_")[0])
    most = wide / FORMATS[kind].file_bytes if wide else 1.0
    assert loader.packed_bytes <= 1.05 * most * in_file
    assert loader.packed_bytes >= in_file


def test_nothing_to_pack(loader: WeightLoader, pool: Pool) -> None:
    """A loader that was asked for nothing has nothing to do."""
    assert loader.pack_all(pool).used == 0


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_vectors(library: Library, tmp_path: Path, kind: str) -> None:
    """Norm weights of any float type become float32, with zeros behind them."""
    import gguf

    path = tmp_path / "norms.gguf"
    values = np.linspace(-2, 2, 5).astype(np.float32)
    quant = gguf.GGMLQuantizationType[kind.upper()]
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_tensor("norm", gguf.quants.quantize(values, quant), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    loader = WeightLoader(open_gguf(path), library)

    got = loader.vector("norm", 5, 8)
    assert got.dtype == np.float32
    assert got.tolist() == [*values.tolist(), 0, 0, 0]  # these values fit all three types
    assert loader.vector("norm", 5).shape == (5,)


def test_a_quantized_norm_is_refused(loader: WeightLoader) -> None:
    """A vector must be a float."""
    with pytest.raises(GGUFError, match="no tensor 'missing'"):
        loader.vector("missing", 96)
    with pytest.raises(GGUFError, match=r"\[96\], but the metadata say \[95\]"):
        loader.vector("blk.0.attn_norm.weight", 95)


def test_gate_and_up_of_two_types(library: Library, pool: Pool, tmp_path: Path) -> None:
    """They stay apart, and count together."""
    path = tmp_path / "mixed.gguf"
    tiny.write_tiny(path, "q4_0", kinds={GATE: "f16"})
    loader = WeightLoader(open_gguf(path), library)
    gate = loader.gate_up(GATE, UP, *FFN_SHAPE)
    loader.pack_all(pool)

    assert gate.up is not None
    assert (gate.format.name, gate.up.format.name) == ("f16", "q4_0")
    assert not gate.fused
    assert gate.parts == loader.wanted == (gate, gate.up)
    assert gate.parameters == 2 * 160 * 96
    assert gate.nbytes == gate.panels.nbytes + gate.up.panels.nbytes
    raw = _rows(loader, UP)
    want = pack_reference(raw, raw[loader.lanes :], "q4_0", library.target, 2 * loader.lanes)
    assert np.array_equal(gate.up.panels, want.reshape(-1))


def _columns(
    library: Library, path: Path, kind: GGMLType, width: int
) -> tuple[WeightLoader, np.ndarray]:
    """A loader of a file with one tensor of 70 rows, twice as wide, and the bytes of its rows."""
    shape = (70, 2 * width)
    raw = np.random.default_rng(1).integers(0, 124, (70, kind.nbytes(shape) // 70), np.uint8)
    with GGUFWriter(path) as writer:
        writer.declare("a.weight", shape, kind)
        writer.write("a.weight", raw)
    return WeightLoader(open_gguf(path), library), raw


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "Q6_K", "NVFP4"])
def test_columns(
    library: Library, pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Columns of a tensor are packed as if a tensor had only these, in pieces too."""
    monkeypatch.setattr(packing, "PIECE", 1 << 13)
    width, target, lanes = 256, library.target, library.target.lanes
    loader, raw = _columns(library, tmp_path / "columns.gguf", GGMLType[name], width)
    parts = loader.columns("a.weight", 70, (width, width))
    loader.pack_all(pool)

    for matrix, rows in zip(parts, np.split(raw, 2, axis=1), strict=True):
        one = np.ascontiguousarray(rows)
        want = pack_reference(one, one[lanes:], name.lower(), target, 2 * lanes)
        got = matrix.panels.reshape(want.shape)
        assert np.array_equal(got[:-1], want[:-1])  # rows that only pad hold what has no scale


def test_columns_that_cut_a_block(library: Library, tmp_path: Path) -> None:
    """Columns end where blocks of the file do: those of NVFP4 are two of what panels have.

    Halves of 96 were packed from the wrong bytes.
    """
    loader, _ = _columns(library, tmp_path / "columns.gguf", GGMLType.NVFP4, 96)
    with pytest.raises(UnsupportedModelError, match=r"has rows of 96, not a multiple of 64"):
        loader.columns("a.weight", 70, (96, 96))


def test_what_is_refused(loader: WeightLoader, library: Library, tmp_path: Path) -> None:
    """Missing tensors, other shapes and mixed types are errors that name the tensor."""
    with pytest.raises(GGUFError, match="no tensor 'missing'"):
        loader.matrix("missing", 1, 1)
    with pytest.raises(GGUFError, match=r"\[192, 96\], but the metadata say \[96, 192\]"):
        loader.matrix(Q, 96, 192)
    path = tmp_path / "mixed.gguf"
    tiny.write_tiny(path, "q4_0", kinds={GATE: "f16", Q: "f64"})
    mixed = WeightLoader(open_gguf(path), library)
    with pytest.raises(GGUFError, match=r"\[160, 96\], but the metadata say \[161, 96\]"):
        mixed.gate_up(GATE, UP, 161, 96)
    with pytest.raises(UnsupportedModelError, match=rf"{Q} is F64, which has no kernel"):
        mixed.matrix(Q, *Q_SHAPE)
    remedy = "rows of 48, not a multiple of 32, in each of the parts .* `triplepoint make quantize`"
    with pytest.raises(UnsupportedModelError, match=remedy):
        mixed.columns(UP, 160, (48, 48))


# VmHWM begins with the program; ru_maxrss would have the size of the process that started it.
PEAK = """
import sys
from pathlib import Path

from triplepoint import Engine

with Engine.load(sys.argv[1], threads=2) as engine:
    packed = engine.loaded.weights.used
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    print(packed, int(lines["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory(tmp_path: Path) -> None:
    """A process that loads a model of 0.9 GB never has 256 MiB more than its packed weights.

    The weights were in the file's mapping before: what is packed leaves it.
    """
    model = synthetic_path("synthetic:qwen3-4b:q4_0:layers=12", tmp_path)
    command = [sys.executable, "-c", PEAK, str(model)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    model.unlink()
    packed, peak = map(int, ran.stdout.split())

    assert packed > 800 << 20
    assert peak <= packed + (256 << 20), f"{(peak - packed) >> 20} MiB more"


@pytest.mark.parametrize("experts", [0, 3])
def test_factors(library: Library, pool: Pool, tmp_path: Path, experts: int) -> None:
    """An NVFP4 tensor's factor, or each expert's, is in its rows' part of every panel.

    What activations of four bits would need is known, and not taken for a strange tensor; a table
    whose rows are read singly is refused where it has a factor.
    """
    rng, target, lanes = np.random.default_rng(1), library.target, library.target.lanes
    shape = (experts, 70, 128) if experts else (70, 128)
    raw = {name: rng.integers(0, 256, (*shape[:-1], 72), np.uint8) for name in ("a", "b", "c")}
    scales = {name: rng.uniform(0.1, 3, max(1, experts)).astype(np.float32) for name in "ab"}
    path = tmp_path / "factors.gguf"
    with GGUFWriter(path) as writer:
        for name in raw:
            writer.declare(f"{name}.weight", shape, GGMLType.NVFP4)
        for name, values in scales.items():
            writer.declare(f"{name}.scale", values.shape, GGMLType.F32)
        writer.declare("a.input_scale", (1,), GGMLType.F32)
        for name, values in raw.items():
            writer.write(f"{name}.weight", values)
        for name, values in scales.items():
            writer.write(f"{name}.scale", values)
        writer.write("a.input_scale", np.ones(1, np.float32))
    loader = WeightLoader(open_gguf(path), library)
    fused = loader.gate_up("a.weight", "b.weight", 70, 128, experts)
    plain = {name: loader.matrix(f"{name}.weight", 70, 128, experts) for name in ("a", "c")}
    loader.pack_all(pool)

    rows = {name: values.reshape(-1, 70, 72) for name, values in raw.items()}
    scales["c"] = np.ones(max(1, experts), np.float32)
    for expert in range(max(1, experts)):
        for name, matrix in plain.items():
            one = rows[name][expert]
            want = pack_reference(one, one[lanes:], "nvfp4", target, 2 * lanes)
            want[:, -8 * lanes :].view("<f4")[:] *= scales[name][expert]
            got = np.split(matrix.panels, matrix.copies)[expert].reshape(want.shape)
            assert np.array_equal(got[:-1], want[:-1])  # the last one has rows that only pad
            assert np.array_equal(got[:, -8 * lanes :], want[:, -8 * lanes :])
        want = pack_reference(rows["a"][expert], rows["b"][expert], "nvfp4", target, lanes)
        factors = want[:, -8 * lanes :].view("<f4")
        factors[:, :lanes] *= scales["a"][expert]
        factors[:, lanes:] *= scales["b"][expert]
        assert np.array_equal(np.split(fused.panels, fused.copies)[expert], want.reshape(-1))
    assert {"a.scale", "b.scale", "a.input_scale"} <= loader.requested
    with pytest.raises(
        UnsupportedModelError, match=r"read one by one, have their own scale factor .*a\.scale"
    ):
        loader.table("a.weight")
