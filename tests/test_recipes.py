"""Every recipe of docs/recipes.md runs by itself and shows something."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from helpers.openai_server import openai_server, text
from helpers.pages import ROOT, read

from triplepoint import LimitReachedError

SERVER = "http://localhost:8080/v1"


def recipes() -> Iterator[Any]:
    """Each program of the page with the line where it begins, named by its heading."""
    page = read("docs/recipes.md")
    for match in re.finditer(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        heading = re.findall(r"^## (.+)$", page[: match.start()], re.MULTILINE)[-1]
        line = page[: match.start(1)].count("\n") + 1
        yield pytest.param(match[1], line, id=heading)


@pytest.mark.slow
@pytest.mark.parametrize(("code", "line"), list(recipes()))
def test_a_recipe_runs(
    code: str,
    line: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a folder with examples/incident; a server stands in where one is named."""
    if "mcp" in code:
        pytest.importorskip("mcp", reason="the mcp extra is not installed")
        if not Path(sys.executable).with_name("mcp-server-time").exists():
            pytest.skip("mcp-server-time is not installed")
    shutil.copytree(ROOT / "examples" / "incident", tmp_path / "examples" / "incident")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    answers = openai_server(text("Hello.")) if SERVER in code else nullcontext()
    with answers as server:
        if server is not None:
            code = code.replace(SERVER, server.url)
        compiled = compile("\n" * (line - 1) + code, "recipe", "exec", dont_inherit=True)
        try:
            exec(compiled, {"__name__": "__main__"})
        except LimitReachedError as error:
            # The recipe is sound; what the model says is judged in labs/nano/evaluate.py.
            pytest.xfail(f"the embedded model came to no answer: {error}")

    assert capsys.readouterr().out.strip()


def test_there_are_recipes() -> None:
    """A dozen, each under a heading of its own."""
    headings = re.findall(r"^## (.+)$", read("docs/recipes.md"), re.MULTILINE)

    assert len(headings) == len(set(headings)) == len(list(recipes())) >= 10
