"""`triplepoint bench types`, with the embedded model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.labs_bench import table_of

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_the_table(triplepoint: Run, tmp_path: Path) -> None:
    """A row for the model and for each type, with bits, size, error, perplexity and speed, and what
    each is below."""
    text = tmp_path / "text.txt"
    text.write_text("the error in app.log was: connection refused after 3 retries\n" * 60)
    given = ["bench", "types", "q8_0,Q4_K_M", "-n", "3", "-r", "2"]
    done = triplepoint(*given, "--text", str(text), "--chunks", "1")
    as_json = json.loads(triplepoint(*given, "--json").stdout)

    assert done.returncode == 0, done.stderr
    heading, _, *rows = table_of(done.stdout)
    assert heading[:4] == ["type", "bits/weight", "size", "error"]
    assert heading[4:] == ["perplexity", "KL", "decode t/s", "min … max"]
    assert [row[0] for row in rows] == ["Q8_0, as it is", "Q8_0", "Q4_K_M"]
    assert float(rows[1][1]) > float(rows[2][1])
    assert rows[0][3] == "0.00%" != rows[2][3]
    assert "error: root mean square" in done.stdout
    assert "quantized already" in done.stdout
    assert "medians of 2" in done.stdout
    assert [row["type"] for row in as_json] == ["", "Q8_0", "Q4_K_M"]
    for row in as_json:
        assert row["min_ts"] <= row["median_ts"] <= row["max_ts"]


def test_unknown_type(triplepoint: Run) -> None:
    """A type that is not known is refused with the list, before a model is loaded."""
    done = triplepoint("bench", "types", "Q9_K", "-m", "missing.gguf")

    assert done.returncode == 2
    assert "unknown type 'Q9_K'; known:" in done.stderr
