"""The options that say how tokens are picked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from triplepoint.runtime.cli.arguments import build_parser
from triplepoint.runtime.cli.sampling_options import sampling_of
from triplepoint.runtime.engine.sampling.settings import Sampling

Run = Callable[..., "CompletedProcess[str]"]


def _read(*options: str) -> Sampling | None:
    return sampling_of(build_parser().parse_args(["run", "q", *options]))


def test_options_become_settings() -> None:
    """Each under its name; nothing given leaves all to the model's file."""
    assert _read() is None
    assert _read("--temp", "0") == Sampling(temperature=0)
    options = (
        "--temp 0.7 --top-k 20 --top-p 0.9 --sampling min_p=0.05 --sampling repeat_penalty=1.1"
    )
    options += " --sampling presence_penalty=0.5 --sampling frequency-penalty=-0.5 --seed 7"
    options += " --sampling penalty_last=64"
    options += " --sampling logit_bias=5:-inf --sampling logit_bias=6:1.5 --stop END --stop STOP"
    bias = {5: float("-inf"), 6: 1.5}
    want = Sampling(0.7, 20, 0.9, 0.05, 7, 1.1, 0.5, -0.5, 64, bias, ("END", "STOP"))
    assert _read(*options.split()) == want


def test_a_random_seed_is_another_each_time() -> None:
    """It is a number from then on, so that the trace has it."""
    seeds = {settings.seed for _ in range(3) if (settings := _read("--seed", "random"))}
    assert len(seeds) == 3
    assert all(isinstance(seed, int) for seed in seeds)


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--temp", "warm", "'warm' is not a number"),
        ("--temp", "-1", "give 0 (greedy) or more"),
        ("--temperature", "-1", "give 0 (greedy) or more"),
        ("--sampling", "repeat_penalty=0", "give a number above 0; 1 is off"),
        ("--temp", "nan", "give 0 (greedy) or more"),
        ("--top-k", "1.5", "'1.5' is not a whole number"),
        ("--top-p", "0", "give more than 0, at most 1"),
        ("--seed", "x", "'x' is not a whole number"),
        ("--sampling", "logit_bias=hello:1", "'hello:1' is not ID:NUMBER"),
        ("--sampling", "logit_bias=5", "'5' is not ID:NUMBER"),
        ("--sampling", "warmth=5", "is not KEY=VALUE with one of the keys min_p, "),
        ("--stop", "", "give at most 32 texts of 1 to 256 characters"),
    ],
)
def test_wrong_values(
    option: str, value: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage: the option, the value and what would make sense."""
    with pytest.raises(SystemExit) as ended:
        _read(f"{option}={value}")
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert "argument --" in shown
    assert option in shown
    assert problem in shown


def test_a_run_that_is_sampled(triplepoint: Run, nano: Path, folder: Path) -> None:
    """The settings are in the trace, and a token that the vocabulary lacks is an error."""
    done = triplepoint("run", "hello", "--dir", folder, "--json", "--temp", "0.5", "--seed", "3")
    assert json.loads(done.stdout)["run"]["config"]["sampling"]["seed"] == 3

    wrong = triplepoint("run", "hello", "--dir", folder, "--sampling", "logit_bias=999999:1")
    assert wrong.returncode == 2
    assert "logit_bias names token 999999" in wrong.stderr
