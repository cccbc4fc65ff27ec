"""``--tune jump_forward`` and ``--draft``: the same answer, and in the trace which it was."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.traces import Trace

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.slow
def test_answers_are_the_same(triplepoint: Run, folder: Path, tmp_path: Path) -> None:
    """With both on and with both off, and the traces tell them apart."""
    ask = ["run", "Which file mentions retry?", "--dir", folder, "-q"]
    off, on = tmp_path / "off.jsonl", tmp_path / "on.jsonl"
    first = triplepoint(*ask, "--tune", "jump_forward=off", "--draft", "off", "--trace", off)
    second = triplepoint(*ask, "--draft", "4", "--trace", on)

    assert first.stdout == second.stdout != ""
    settings = []
    for path in (off, on):
        header = Trace.load(path).header
        assert header is not None
        settings.append((header.config["jump_forward"], header.config["draft_tokens"]))
    assert settings == [(False, 0), (True, 4)]
    forced = [sum(p.forced_tokens for p in Trace.load(path).phases) for path in (off, on)]
    assert forced[0] == 0 < forced[1]
    verified = triplepoint("replay", on, "--verify", "--tune", "jump_forward=off")
    assert verified.returncode == 0, verified.stderr


@pytest.mark.parametrize("wrong", ["17", "-1", "some"])
def test_no_such_number(triplepoint: Run, wrong: str) -> None:
    """What is no number of drafts is wrong usage."""
    result = triplepoint("run", "hello", "--draft", wrong)
    assert result.returncode == 2
    assert "is not auto, off, a number up to 16, lookup or mtp" in result.stderr
