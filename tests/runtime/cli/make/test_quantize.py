"""`triplepoint make quantize`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from triplepoint.runtime.gguf.types import GGMLType
from triplepoint.runtime.gguf.write import GGUFWriter

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_quantize(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """Writes the file, and says types, sizes, and what is not as asked."""
    done = triplepoint("make", "quantize", nano, "small.gguf", "q4_k_m")

    assert (done.returncode, done.stderr) == (0, "")
    assert "small.gguf: Q4_K_M, 55 × Q4_K" in done.stdout
    assert "blk.0.ffn_down.weight is Q8_0: its row length is not a multiple" in done.stdout
    assert "tensors were already quantized" in done.stdout
    assert "bits per weight" in done.stdout
    assert (tmp_path / "small.gguf").stat().st_size < nano.stat().st_size


def test_two_matrices_in_one(triplepoint: Run, tmp_path: Path) -> None:
    """Rows that would be wide enough, were they not of two matrices, are told as what they are."""
    with GGUFWriter(tmp_path / "in.gguf") as writer:
        writer.add("general.architecture", "qwen35")
        writer.add("qwen35.block_count", 1)
        writer.declare("blk.0.nextn.eh_proj.weight", (4, 256), GGMLType.F32)
        writer.write("blk.0.nextn.eh_proj.weight", np.ones((4, 256), np.float32))
    done = triplepoint("make", "quantize", "in.gguf", "out.gguf", "Q4_K_M")

    assert "eh_proj.weight is Q5_0: half its row length is not a multiple" in done.stdout


def test_for_machines(triplepoint: Run, nano: Path) -> None:
    """--json holds the same."""
    found = json.loads(triplepoint("make", "quantize", nano, "small.gguf", "Q8_0", "--json").stdout)

    assert found["mix"] == "Q8_0"
    assert found["types"] == {"Q8_0": 71, "F32": 41}
    assert found["narrowed"] == []


def test_errors(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """One line each: status 2 for an unknown type, 3 for a missing file."""
    done = triplepoint("make", "quantize", nano, "small.gguf", "Q4")
    assert done.returncode == 2
    assert done.stderr.startswith("triplepoint: error: unknown type 'Q4'; known: F32, F16")

    done = triplepoint("make", "quantize", "none.gguf", "small.gguf", "Q8_0")
    assert done.returncode == 3
    assert "cannot open the model file none.gguf" in done.stderr
    assert list(tmp_path.glob("*small*")) == []


def test_nothing_is_replaced_unless_asked(triplepoint: Run, nano: Path, tmp_path: Path) -> None:
    """A file that is there stays, and the work is not begun; --force replaces it."""
    (tmp_path / "there.gguf").write_text("mine")
    (tmp_path / "text.txt").write_text("some words\n")
    for args in (
        ("make", "quantize", nano, "there.gguf", "Q8_0"),
        ("make", "convert", "folder", "there.gguf"),
        ("make", "imatrix", "nano", "text.txt", "-o", "there.gguf"),
    ):
        done = triplepoint(*args)
        assert done.returncode == 3
        assert "there.gguf already exists; name another file, or overwrite it with --force" in (
            done.stderr
        )
    assert (tmp_path / "there.gguf").read_text() == "mine"
    done = triplepoint("make", "quantize", nano, "there.gguf", "Q8_0", "--force")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "there.gguf").stat().st_size > 1000
