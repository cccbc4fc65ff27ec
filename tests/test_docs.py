"""The documents say what is so: examples run, tables are the code's, links lead somewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from triplepoint import Engine, LimitReachedError

ROOT = Path(__file__).parents[1]
if not (ROOT / "docs").is_dir():
    pytest.skip("the documents are not beside the tests", allow_module_level=True)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# --- the Python examples


def python_blocks(name: str) -> list[Any]:
    """Each Python block of a page, for parametrize: its code, and the line where it begins."""
    text = read(name)
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [
        pytest.param(match[1], line, id=f"{name}:{line}")
        for match in found
        for line in [text[: match.start(1)].count("\n") + 1]
    ]


@pytest.mark.parametrize(
    ("code", "line"), [*python_blocks("README.md"), *python_blocks("docs/api.md")]
)
def test_a_python_example_runs(
    code: str,
    line: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each example runs by itself where there is an examples/incident, and shows something."""
    shutil.copytree(ROOT / "examples" / "incident", tmp_path / "examples" / "incident")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    names: dict[str, Any] = {"__name__": "__main__"}
    # Line numbers of a traceback are those of the page.
    compiled = compile("\n" * (line - 1) + code, "example", "exec", dont_inherit=True)

    try:
        exec(compiled, names)
    except LimitReachedError as error:
        # The example is sound; what the model says is judged elsewhere (runtime/nano/evaluate.py).
        pytest.xfail(f"the embedded model came to no answer: {error}")
    finally:
        for value in names.values():
            if isinstance(value, Engine):
                value.close()

    assert capsys.readouterr().out.strip()
