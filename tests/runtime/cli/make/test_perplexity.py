"""`triplepoint make perplexity`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("".join(f"{n} INFO order {n * 37} was paid, all is well\n" for n in range(30)))
    return path


def test_perplexity(triplepoint: Run, text: Path) -> None:
    """The estimate after each chunk, then the result; --json holds the same."""
    done = triplepoint("make", "perplexity", "nano", text, "-c", "64", "--chunks", "2")
    told = json.loads(
        triplepoint(
            "make", "perplexity", "nano", text, "-c", "64", "--chunks", "2", "--json"
        ).stdout
    )
    lines = done.stdout.splitlines()

    assert (done.returncode, done.stderr) == (0, "")
    assert lines[0].startswith("[1]")
    assert f",[2]{told['perplexity']:.4f}," in lines[0]
    assert lines[1] == (
        f"perplexity {told['perplexity']:.4f} ± {told['error']:.4f} "
        "(2 chunks of 64 tokens, 62 scored)"
    )


def test_divergence(triplepoint: Run, text: Path) -> None:
    """Against another model: here itself."""
    done = triplepoint(
        "make", "perplexity", "nano", text, "-c", "64", "--chunks", "1", "--kl-base", "nano"
    )

    assert done.returncode == 0
    assert "KL divergence 0.000e+00" in done.stdout
    assert "same top token 100.000%" in done.stdout


def test_errors(triplepoint: Run, text: Path) -> None:
    """A short text, a missing one: one line, status 3."""
    done = triplepoint("make", "perplexity", "nano", text, "-c", "4000")
    assert done.returncode == 3
    assert "a chunk needs 4000" in done.stderr

    done = triplepoint("make", "perplexity", "nano", "none.txt")
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "cannot read none.txt" in done.stderr
