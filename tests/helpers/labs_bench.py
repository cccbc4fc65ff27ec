"""The research benches as a person in the checkout runs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def bench(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of them."""
    command = [sys.executable, "-m", f"labs.bench.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


def table_of(text: str) -> list[list[str]]:
    """The cells of the lines of a Markdown table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
