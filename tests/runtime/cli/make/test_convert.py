"""`triplepoint make convert`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

from helpers.checkpoints import write_checkpoint

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_convert(triplepoint: Run, tmp_path: Path) -> None:
    """Writes the file and says what is in it; --json holds the same."""
    write_checkpoint(tmp_path / "tiny", "qwen2")
    done = triplepoint("make", "convert", "tiny", "tiny.gguf", "--type", "F16")

    assert (done.returncode, done.stderr) == (0, "")
    assert "tiny.gguf: qwen2, tokenizer gpt2, qwen2, 23 × F16" in done.stdout
    found = json.loads(
        triplepoint("make", "convert", "tiny", "tiny.gguf", "--force", "--json").stdout
    )
    assert found["kind"] == "F32"
    assert found["nbytes"] == (tmp_path / "tiny.gguf").stat().st_size


def test_errors(triplepoint: Run, tmp_path: Path) -> None:
    """One line, status 3."""
    done = triplepoint("make", "convert", "none", "tiny.gguf")

    assert done.returncode == 3
    assert done.stderr.startswith("triplepoint: error: none is not a folder")
