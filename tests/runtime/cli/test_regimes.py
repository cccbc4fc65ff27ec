"""`triplepoint regimes`, with the embedded model."""

from __future__ import annotations

import json
import subprocess
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from triplepoint.runtime.cli import regimes
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.regimes import BUSY, RECALIBRATE, _steps
from triplepoint.runtime.engine.policy.choices import CHUNKS

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_the_picture(triplepoint: Run, tmp_path: Path) -> None:
    """Blocks in the terminal, an SVG or an HTML page in a file, numbers as JSON."""
    done = triplepoint("regimes", "-o", "map.svg")

    assert done.returncode == 0
    assert done.stderr in (
        "",
        f"triplepoint: the calibration looks disturbed: {BUSY}; {RECALIBRATE}\n",
    )
    assert done.stdout.startswith("The regimes of triplepoint-nano\n")
    assert "c" * 20 in done.stdout
    assert done.stdout.endswith("map.svg\n")
    assert (tmp_path / "map.svg").read_text().startswith("<svg ")

    found = json.loads(triplepoint("regimes", "-o", "map.html", "--recalibrate", "--json").stdout)
    assert found["calibration"]["passes"]["chunk"] in CHUNKS
    assert len(found["bounds"]) == len(found["tokens"]) == len(found["tokens_per_s"])
    assert "<svg " in (tmp_path / "map.html").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_a_run_on_it(triplepoint: Run, tmp_path: Path) -> None:
    """A recorded run is drawn; its phases are in the JSON, transitions numbered from 1."""
    (tmp_path / "a.txt").write_text("retry\n")
    triplepoint("run", "Which file mentions retry?", "--trace", "t.jsonl")
    found = json.loads(triplepoint("regimes", "--run", "t.jsonl", "--json").stdout)

    assert [step["phase"] for step in found["run"]][:2] == ["prefill", "decode"]
    numbers = [step["number"] for step in found["run"] if step["number"]]
    assert numbers == list(range(1, len(numbers) + 1))


def test_of_a_file_the_last_run_is_drawn(recorded: Path) -> None:
    """Not all of them as one path; with the model that it was of."""
    assert [step.tokens for step in _steps(str(recorded))[1]] == [3]
    text = recorded.read_text()
    again = text.replace('"run":"2', '"run":"3').replace('"name":"nano"', '"name":"other"')
    recorded.write_text(text + again)

    model, path = _steps(str(recorded))

    assert (model, [step.tokens for step in path]) == ("other", [3])


@pytest.mark.parametrize("model", ["nano", "qwen"])
def test_a_run_of_another_model_is_told(
    model: str, recorded: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path says little on the diagram of this one."""
    engine = SimpleNamespace(model=SimpleNamespace(name=model), close=lambda: None)
    for name, made in (("load_engine", engine), ("_picture", (None, None)), ("_document", {})):
        monkeypatch.setattr(regimes, name, lambda *_, made=made: made)
    given = {"model": None, "output": None, "beside": None, "run": str(recorded), "context": None}

    assert regimes.run(Namespace(**given), Output(as_json=True)) == 0

    told = "triplepoint: the run is of nano, the diagram of qwen\n"
    assert capsys.readouterr().err == ("" if model == "nano" else told)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["-o", "map.png"], "cannot write PNG; write an .svg"),
        (["-o", "map.pdf"], "must end in .svg or .html"),
        (["--run", "missing.jsonl"], "missing.jsonl"),
        (["--context", "2"], "--context: a diagram needs 3 tokens or more"),
        (["nano", "--beside", "nano", "-o", "map.html"], "cannot be combined with an .html page"),
    ],
)
def test_what_cannot_be_drawn_is_told(args: list[str], message: str, triplepoint: Run) -> None:
    """Before anything is measured, one line says what and why."""
    done = triplepoint("regimes", *args)

    assert done.returncode != 0
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
