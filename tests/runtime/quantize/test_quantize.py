"""Whole files in smaller types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from helpers.tiny_mtp import write_model as write_mtp
from helpers.tiny_qwen3 import write_tiny
from helpers.tiny_qwen3moe import write_tiny as write_tiny_moe

from triplepoint.errors import GGUFError, ModelError, UnsupportedModelError
from triplepoint.runtime.engine.engine import NANO, Engine
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.quantize.quantize import quantize, whole_file
from triplepoint.runtime.tokens.tokenizer import Tokenizer

TEXT = (
    "<|im_start|>user\nWhat's the error in app.log?<|im_end|>\n<|im_start|>assistant\n"
    '<tool_call>\n{"name": "read_file", "arguments": {"path": "app.log"}}\n</tool_call><|im_end|>\n'
    "<|im_start|>user\n<tool_response>\n1\t2026-03-14 09:24:02 INFO boot: starting on web-3\n"
    "2\t2026-03-14 09:26:47 WARNING payment: retry 1 of 3\n3\t2026-03-14 09:26:52 ERROR payment: "
    "connection to db-2 refused after 3 retries\n</tool_response><|im_end|>\n"
    "<|im_start|>assistant\nThe error is: payment: connection to db-2 refused after 3 retries"
)


def test_file(nano_f32: Path, tmp_path: Path) -> None:
    """Another reader finds the types of the mix, and every key as it was but the file's type."""
    out = tmp_path / "out.gguf"
    report = quantize(nano_f32, out, "Q4_K_M", threads=2)
    with open_gguf(nano_f32) as before, open_gguf(out) as after:
        kept = set(before.metadata) - {"general.file_type", "general.quantization_version"}
        assert set(after.metadata) - kept == {"general.file_type", "general.quantization_version"}
        assert all(before.stored(key) == after.stored(key) for key in kept)
        assert after.integer("general.file_type") == 15
        assert list(after.tensors) == list(before.tensors)
    kinds = {t.name: t.tensor_type.name for t in gguf.GGUFReader(out).tensors}

    assert kinds["token_embd.weight"] == "Q6_K"
    assert kinds["blk.0.attn_q.weight"] == "Q4_K"
    assert kinds["blk.0.attn_norm.weight"] == "F32"
    # Rows of 640; the first eighth of the layers would have been Q6_K.
    assert kinds["blk.0.ffn_down.weight"] == "Q8_0"
    assert ("blk.0.ffn_down.weight", "Q6_K", "Q8_0") in report.narrowed
    assert kinds["blk.1.ffn_down.weight"] == "Q5_0"
    assert ("blk.1.ffn_down.weight", "Q4_K", "Q5_0") in report.narrowed
    assert report.nbytes == out.stat().st_size
    assert report.types == {kind: list(kinds.values()).count(kind) for kind in set(kinds.values())}
    assert not report.requantized


# Mean KL divergence from the F32 file over the text above, in nats. Seen: about 2e-4, 2e-3, 1.2e-2;
# int8 activations are a part of it. The bounds leave room for the next weights.
BOUNDS = {"Q8_0": 5e-4, "Q6_K": 4e-3, "Q4_K_M": 3e-2}


@pytest.mark.slow
def test_nano_says_the_same(nano_f32: Path, tmp_path: Path) -> None:
    """The smaller a type, the further its answers move, but for each within a bound."""
    with open_gguf(NANO) as file:
        ids = Tokenizer.from_gguf(file).encode(TEXT, special=True)
    base = log_probabilities(nano_f32, ids)
    found = {}
    for kind in BOUNDS:
        path = tmp_path / f"{kind}.gguf"
        quantize(nano_f32, path, kind, threads=2)
        other = log_probabilities(path, ids)
        found[kind] = float((np.exp(base) * (base - other)).sum(1).mean())

    assert all(found[kind] <= bound for kind, bound in BOUNDS.items()), found
    assert found["Q4_K_M"] > found["Q6_K"] > found["Q8_0"]


def test_a_factor_beside_a_matrix_is_not_lost(tmp_path: Path) -> None:
    """NVFP4 with a factor of the whole tensor is refused: another type has no use for it."""
    path, out = tmp_path / "a.gguf", tmp_path / "b.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "qwen3")
        writer.add("qwen3.block_count", 1)
        writer.declare("blk.0.ffn_up.weight", (4, 64), GGMLType.NVFP4)
        writer.declare("blk.0.ffn_up.scale", (1,), GGMLType.F32)
        writer.write("blk.0.ffn_up.weight", np.zeros(4 * 36, np.uint8))
        writer.write("blk.0.ffn_up.scale", np.ones(1, np.float32))

    with pytest.raises(UnsupportedModelError, match=r"with a factor .*blk\.0\.ffn_up\.scale"):
        quantize(path, out, "Q8_0", threads=1)
    assert not out.exists()


def log_probabilities(path: Path, ids: list[int]) -> np.ndarray:
    with Engine.load(path, threads=2, kv="f32", context=len(ids)) as engine:
        logits = engine.session().logits_for(ids).astype(np.float64)
    logits -= logits.max(1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


def test_experts(tmp_path: Path) -> None:
    """A mixture of experts: three-dimensional tensors are quantized, the router is not."""
    source, out = tmp_path / "moe.gguf", tmp_path / "out.gguf"
    write_tiny_moe(source, "f32")
    quantize(source, out, "Q8_0", threads=1)
    before = {t.name: t for t in gguf.GGUFReader(source).tensors}
    for tensor in gguf.GGUFReader(out).tensors:
        values = before[tensor.name].data
        if "ffn_gate_inp" in tensor.name or values.ndim == 1:
            assert tensor.tensor_type.name == "F32"
            assert np.array_equal(tensor.data, values)
        else:
            assert tensor.tensor_type.name == "Q8_0"
            made = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            assert np.array_equal(tensor.data, made)


@pytest.mark.parametrize("mix", ["Q4_K_M", "Q8_0"])
def test_a_layer_that_drafts(mix: str, tmp_path: Path) -> None:
    """What is written can be read, also where two matrices share the rows of one tensor."""
    source, out = tmp_path / "mtp.gguf", tmp_path / "out.gguf"
    write_mtp(source, "glm4-flash")
    quantize(source, out, mix, threads=1)

    with Engine.load(out, threads=1) as engine:
        assert engine.session().logits_for([1, 2, 3]).shape[0] == 3


def test_requantized(tmp_path: Path) -> None:
    """A quantized source is taken, and the report names what was quantized twice."""
    source = tmp_path / "tiny.gguf"
    write_tiny(source, "q8_0")
    report = quantize(source, tmp_path / "out.gguf", "Q4_0", threads=1)

    assert "blk.0.attn_q.weight" in report.requantized


def test_same_file(tmp_path: Path) -> None:
    """The file to read from is not written to, by whatever name it is called."""
    source = tmp_path / "tiny.gguf"
    write_tiny(source, "f16")
    before = source.read_bytes()
    (tmp_path / "link.gguf").symlink_to(source)
    for target in (source, tmp_path / "link.gguf"):
        with pytest.raises(ModelError, match="give the result another name"):
            quantize(source, target, "Q8_0")
    assert source.read_bytes() == before


def test_nothing_is_left_of_a_failure(tmp_path: Path) -> None:
    """A weight that cannot be stored ends it; the file that was there before is still whole."""
    source, target = tmp_path / "tiny.gguf", tmp_path / "out.gguf"
    write_tiny(source, "f16", nan_row=7)
    target.write_bytes(b"before")
    with pytest.raises(ModelError, match=r"token_embd\.weight has the weight nan in row 7"):
        quantize(source, target, "Q8_0", threads=1)

    assert target.read_bytes() == b"before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.gguf", "tiny.gguf"]


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """As root a device would become a file for all programs: /dev/null, say."""
    source, pipe = tmp_path / "tiny.gguf", tmp_path / "out.gguf"
    write_tiny(source, "f16")
    os.mkfifo(pipe)
    (tmp_path / "link.gguf").symlink_to(pipe)

    for target in (pipe, tmp_path / "link.gguf"):
        with pytest.raises(ModelError, match=r"cannot write .*: it is not a regular file"):
            quantize(source, target, "Q8_0", threads=1)

    assert pipe.is_fifo()


def test_a_link_stays_one(tmp_path: Path) -> None:
    """What it leads to is written, there or not, and nothing else is left in either folder."""
    source, folder, link = tmp_path / "tiny.gguf", tmp_path / "disk", tmp_path / "out.gguf"
    write_tiny(source, "f16")
    folder.mkdir()
    link.symlink_to(folder / "real.gguf")
    for _ in range(2):
        quantize(source, link, "Q8_0", threads=1)

    assert link.is_symlink()
    assert [p.name for p in folder.iterdir()] == ["real.gguf"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["disk", "out.gguf", "tiny.gguf"]


def test_full_disk(tmp_path: Path) -> None:
    """What the disk has no room for is not begun; what it refuses midway leaves nothing."""
    with (
        pytest.raises(ModelError, match=r"but the disk has .* left"),
        whole_file(tmp_path / "out.gguf", 1 << 60),
    ):
        pass
    source = tmp_path / "tiny.gguf"
    write_tiny(source, "f16")
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
from triplepoint.runtime.cli import main
files = {str(source)!r}, {str(tmp_path / "out.gguf")!r}
raise SystemExit(main(["make", "quantize", *files, "Q8_0"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert done.returncode == 3
    assert "File too large" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("target", "words"), [("none/out.gguf", "there is no folder"), (".", "it is a folder")]
)
def test_target_that_cannot_be(tmp_path: Path, target: str, words: str) -> None:
    """A folder that is missing, or a folder in the file's place."""
    source = tmp_path / "tiny.gguf"
    write_tiny(source, "f16")
    with pytest.raises(ModelError, match=words):
        quantize(source, tmp_path / target, "Q8_0")


def test_cut_source(tmp_path: Path) -> None:
    """A file that ends early is refused before anything is written."""
    source = tmp_path / "tiny.gguf"
    write_tiny(source, "f16")
    source.write_bytes(source.read_bytes()[:-100])
    with pytest.raises(GGUFError, match="tensor"):
        quantize(source, tmp_path / "out.gguf", "Q8_0")
    assert not (tmp_path / "out.gguf").exists()


def write_imatrix(path: Path, name: str, sums: np.ndarray) -> None:
    w = gguf.GGUFWriter(path, "imatrix")
    w.add_tensor(f"{name}.in_sum2", sums.astype(np.float32)[None])
    w.add_tensor(f"{name}.counts", np.ones((1, 1), np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.mark.slow
def test_imatrix(nano_f32: Path, tmp_path: Path) -> None:
    """Columns that the imatrix calls dear come back closer; the file says that it was used."""
    name = "blk.0.attn_q.weight"
    dear = np.ones(256)
    dear[::4] = 200
    write_imatrix(tmp_path / "i.gguf", name, dear)
    plain, skewed = tmp_path / "plain.gguf", tmp_path / "skewed.gguf"
    quantize(nano_f32, plain, "Q4_K_M", threads=1)
    report = quantize(nano_f32, skewed, "Q4_K_M", threads=1, imatrix=tmp_path / "i.gguf")

    def errors(path: Path) -> np.ndarray:
        a, b = (
            next(t for t in gguf.GGUFReader(p).tensors if t.name == name) for p in (nano_f32, path)
        )
        off = gguf.quants.dequantize(b.data, b.tensor_type) - a.data
        return (off**2).mean(0)

    assert errors(skewed)[::4].mean() < 0.9 * errors(plain)[::4].mean()
    assert "blk.0.attn_k.weight" in report.unmatched
    assert name not in report.unmatched
    with open_gguf(skewed) as file:
        assert file.string("quantize.imatrix.file") == "i.gguf"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("F16", "blk.0.attn_q.weight"), ("Q8_0", "blk.0.attn_q.weight"), ("Q4_K_M", "another")],
)
def test_imatrix_without_effect(tmp_path: Path, kind: str, name: str) -> None:
    """Types that have no use for one, and one of another model, are refused."""
    source, out = tmp_path / "tiny.gguf", tmp_path / "out.gguf"
    write_tiny(source, "f16")
    write_imatrix(tmp_path / "i.gguf", name, np.ones(64))

    with pytest.raises(ModelError, match=r"i\.gguf would have no effect: .*K-quants, Q4_0"):
        quantize(source, out, kind, imatrix=tmp_path / "i.gguf")
    assert not out.exists()
