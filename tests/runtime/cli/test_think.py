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

    assert parser.parse_args(verb).think == {}
    assert parser.parse_args([*verb, "--think", "on"]).think == {"thinking": True}
    assert parser.parse_args([*verb, "--think", "off"]).think == {"thinking": False}
    assert parser.parse_args([verb[0], "--think", "on", *verb[1:]]).think == {"thinking": True}


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--think", "200"], {"thinking_tokens": 200}),
        (["--think=0"], {"thinking_tokens": 0}),
        (["--think", "1.5s"], {"thinking_seconds": 1.5}),
        (["--think", "on"], {"thinking": True}),
    ],
)
def test_a_budget(words: list[str], given: dict[str, object]) -> None:
    """Tokens, or seconds; a question behind the option is no budget."""
    args = build_parser().parse_args(["run", *words, "How many lines?"])

    assert args.think == given
    assert args.question == "How many lines?"


def test_a_model_without_the_switch(
    triplepoint: Run, nano: Path, folder: Path, tmp_path: Path
) -> None:
    """The switch reaches the agent: it says that this model's template has none, and answers."""
    path = tmp_path / "trace.jsonl"
    done = triplepoint(
        "run", "Which files are here?", "--dir", folder, "--think", "off", "--trace", path
    )

    assert done.returncode == 0, done.stderr
    assert "no switch for thinking" in done.stderr
    trace = Trace.load(path)
    assert trace.header is not None
    assert any("no switch for thinking" in note for note in trace.header.config["notes"])
