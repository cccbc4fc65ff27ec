"""The tools in memory against the real ones."""

from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.runtime.nano.corpus import FAMILIES, rounds
from triplepoint.runtime.nano.files import Call, MemoryFiles

tools = pytest.importorskip("triplepoint.tools", reason="the tools room is not there yet")
if not hasattr(tools, "FileTools"):
    pytest.skip("the file tools are not there yet", allow_module_level=True)


def real(root: Path, call: Call, max_lines: int = 200) -> str:
    by_name = {tool.name: tool for tool in tools.FileTools(root, max_lines=max_lines)}
    try:
        return by_name[call.name].call(dict(call.arguments))
    except ToolError as error:
        return f"error: {error}"


def write(root: Path, files: MemoryFiles) -> None:
    for name, text in files.texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_those_of_the_real_tools(family: str, tmp_path: Path) -> None:
    """Every result in the corpus is, byte for byte, what the real tool returns on those files."""
    for number, item in enumerate(rounds(21, 25, size=20, family=family)):
        root = tmp_path / str(number)
        root.mkdir()
        write(root, item.files)
        for call, result in item.steps:
            assert real(root, call, item.files.max_lines) == result


@pytest.mark.parametrize(
    "call",
    [
        Call("read_file", {"path": "long.log"}),
        Call("read_file", {"path": "long.log", "start": 180}),
        Call("read_file", {"path": "long.log", "start": 990}),
        Call("read_file", {"path": "empty"}),
        Call("read_file", {"path": "sub"}),
        Call("read_file", {"path": "wide.txt"}),
        Call("list_dir", {}),
        Call("list_dir", {"path": "sub"}),
        Call("list_dir", {"path": "empty"}),
        Call("list_dir", {"path": "nowhere"}),
        Call("search", {"pattern": "LINE 9"}),
        Call("search", {"pattern": "line 90", "path": "sub"}),
        Call("search", {"pattern": "nothing like it"}),
    ],
)
def test_limits_are_those_of_the_real_tools(call: Call, tmp_path: Path) -> None:
    """Cut, empty and refused results are the same too."""
    files = MemoryFiles(
        {
            "long.log": "\n".join(f"this is line {n}" for n in range(300)) + "\n",
            "empty": "",
            "wide.txt": "x" * 700 + "\nshort\n",
            "sub/a.log": "line 90\n  line 901\n",
            "sub/deeper/b.log": "no",
            "sub-way.txt": "line 9",
        }
    )
    write(tmp_path, files)
    assert files.run(call) == real(tmp_path, call)
