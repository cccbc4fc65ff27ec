"""The switch for thinking on the command line."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.runtime.cli.arguments import build_parser
from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("verb", [["run", "x"], ["chat"]])
def test_three_ways(verb: list[str]) -> None:
    """Thinking is on, off, or left to the model."""
    parser = build_parser()

    assert parser.parse_args(verb).think is None
    assert parser.parse_args([*verb, "--think"]).think is True
    assert parser.parse_args([*verb, "--no-think"]).think is False


def test_a_model_without_the_switch(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """The switch reaches the agent: it says that this model's template has none, and answers."""
    path = tmp_path / "trace.jsonl"
    done = triplepoint(
        "run", "Which files are here?", "--dir", folder, "--no-think", "--trace", path
    )

    assert done.returncode == 0, done.stderr
    assert "no switch for thinking" in done.stderr
    trace = Trace.load(path)
    assert trace.header is not None
    assert any("no switch for thinking" in note for note in trace.header.config["notes"])
