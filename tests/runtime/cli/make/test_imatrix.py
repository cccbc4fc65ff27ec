"""`triplepoint make imatrix`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_imatrix(triplepoint: Run, tmp_path: Path) -> None:
    """Writes a file that quantize takes; a missing text is one line, status 3."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{n} INFO order {n * 37} was paid, all is well\n" for n in range(30)))
    done = triplepoint("make", "imatrix", "nano", text, "-o", "i.gguf", "-c", "64", "--chunks", "2")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "i.gguf: 70 matrices, 2 chunks of 64 tokens\n"
    told = json.loads(
        triplepoint("make", "imatrix", "nano", text, "-c", "64", "--chunks", "1", "--json").stdout
    )
    assert told["path"] == "imatrix.gguf"
    assert (tmp_path / "imatrix.gguf").exists()

    done = triplepoint("make", "imatrix", "nano", "none.txt")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
