"""docs/fleet.md: its commands and its program run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.pages import ROOT, read

URL = "http://localhost:11435"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples."""
    shutil.copytree(ROOT / "examples" / "tickets", tmp_path / "examples" / "tickets")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def commands() -> list[str]:
    """The commands of the page, in order."""
    return re.findall(r"^ {4}(triplepoint .*)$", read("docs/fleet.md"), re.MULTILINE)


def shell(line: str, place: Path) -> str:
    program = f"{shlex.quote(sys.executable)} -m triplepoint "
    script = line.replace("triplepoint ", program, 1)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def answers(path: Path) -> list[str]:
    return [json.loads(line)["answer"] for line in path.read_text().splitlines()]


@pytest.fixture
def url() -> Iterator[str]:
    """A server of nano."""
    pytest.importorskip("uvicorn", reason="the serve extra is not installed")
    from helpers.serving import SETTINGS, Server

    from triplepoint import Engine

    server = Server(SETTINGS, lambda name: Engine.load(name))
    server.wait()
    yield server.url
    server.close()


@pytest.mark.slow
def test_from_one_folder_to_servers(place: Path, url: str) -> None:
    """One after the other, each does what the page says; all give the same answers."""
    one, many, served = commands()[:3]
    assert "certificate" in shell(one, place)
    shell(many, place)
    shell(served.replace(URL, url), place)

    found = answers(place / "results.jsonl")
    assert len(found) == 3
    assert "certificate" in found[1]
    assert answers(place / "served.jsonl") == found


@pytest.mark.slow
def test_the_program(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It shows a line for each folder."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", read("docs/fleet.md"), re.DOTALL | re.MULTILINE)
    exec(compile(code, "fleet.md", "exec", dont_inherit=True), {"__name__": "__main__"})

    assert len(capsys.readouterr().out.splitlines()) == 3
