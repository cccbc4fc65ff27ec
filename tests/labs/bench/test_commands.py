"""The research benches as commands: run from the checkout, with one line for an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def bench(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of them, as a person in the checkout does."""
    command = [sys.executable, "-m", f"labs.bench.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def test_what_it_gives_is_measured() -> None:
    """`speculation` has a row for each text, with and without, and the grammar's cost."""
    result = bench("speculation", "-m", "nano", "-r", "1", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    calls = {row["text"]: row for row in report["texts"]}
    assert list(calls)[3:] == ["edit_file", "read_file", "search", "set_level"]
    for name in ("read_file", "search", "set_level"):
        assert calls[name]["forced"] > 0.4 * calls[name]["tokens"]
        assert calls[name]["passes"] < calls[name]["tokens"] - calls[name]["forced"] + 1
    assert [row["call"] for row in report["grammar"]] == ["read_file", "search", "set_level"]


def test_each_point_is_a_row() -> None:
    """`causal` has a row for each point of the grid."""
    result = bench("causal", "1,4", "-m", "nano", "-d", "0", "--json")
    assert result.returncode == 0, result.stderr
    assert [row["tokens"] for row in json.loads(result.stdout)] == [1, 4]


@pytest.mark.parametrize(
    ("name", "arguments", "status", "message"),
    [
        ("causal", ["99999", "-m", "nano"], 2, "nothing to measure: no length fits"),
        ("causal", ["2", "--reps", "3"], 2, "no such option: --reps"),
        ("scenario", ["-m", "none.gguf"], 3, "none.gguf"),
        ("speculation", ["-m", "none.gguf"], 3, "none.gguf"),
    ],
)
def test_an_error_is_one_line(name: str, arguments: list[str], status: int, message: str) -> None:
    """Wrong usage and models that are none have the status of the shipped verbs."""
    result = bench(name, *arguments)
    assert result.returncode == status
    assert message in result.stderr
    assert len([line for line in result.stderr.splitlines() if "error: " in line]) == 1
