"""The tools in memory against the real ones."""

from dataclasses import replace
from pathlib import Path

import pytest

from labs.nano.corpus import rounds
from labs.nano.evaluate import write_files
from labs.nano.files import Call, MemoryFiles
from labs.nano.held_out import EVALUATED
from labs.nano.marks import ERRORS, SIGNS
from labs.nano.writer import AGENT_CHARS
from triplepoint import Agent, Engine
from triplepoint.errors import ToolError
from triplepoint.tools import FileTools, formats
from triplepoint.tools.search import MAX_REGEX_LINE


def real(root: Path, call: Call, files: MemoryFiles) -> str:
    file_tools = FileTools(root, max_lines=files.max_lines, max_chars=files.max_chars)
    by_name = {tool.name: tool for tool in file_tools}
    try:
        return by_name[call.name].call(dict(call.arguments))
    except ToolError as error:
        return f"error: {error}"


@pytest.mark.slow
@pytest.mark.parametrize("family", EVALUATED)
def test_results_are_those_of_the_real_tools(family: str, tmp_path: Path) -> None:
    """Every result in the corpus is, byte for byte, what the real tool returns on those files; what
    it says of files beside these comes behind it."""
    for number, item in enumerate(rounds(21, 25, size=20, family=family)):
        root = tmp_path / str(number)
        write_files(root, item.files.texts)
        alone = replace(item.files, notes=(), regex_notes=())
        noted = {"", *item.files.notes, *item.files.regex_notes}
        for call, result in item.steps:
            shown = real(root, call, item.files)
            assert alone.run(call) == shown
            assert result.startswith(shown)
            assert set(result.removeprefix(shown).split("\n")) <= noted


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
        Call("list_dir", {"path": "bare"}),
        Call("read_file", {"path": "picture"}),
        Call("search", {"pattern": "a", "path": "picture"}),
        Call("search", {"pattern": ERRORS, "regex": True}),
        Call("search", {"pattern": ERRORS, "path": "marks.log", "regex": True}),
        Call("search", {"pattern": SIGNS, "path": "marks.log", "regex": True}),
        Call("list_dir", {"path": "nowhere"}),
        Call("search", {"pattern": "LINE 9"}),
        Call("search", {"pattern": "line 90", "path": "sub"}),
        Call("search", {"pattern": "nothing like it"}),
        Call("read_file", {"path": "b.log"}),
        Call("read_file", {"path": "sbu/a.log"}),
        Call("search", {"pattern": "no", "path": "b.log"}),
        Call("search", {"pattern": "no", "path": "x/deeper"}),
        Call("list_dir", {"path": "deeper"}),
        Call("list_dir", {"path": "a.log"}),
        Call("read_file", {"path": "twice.txt"}),
        Call("read_file", {"path": "often.txt"}),
        Call("list_dir", {"path": "in"}),
    ],
)
@pytest.mark.parametrize("max_chars", [formats.MAX_CHARS, AGENT_CHARS])
def test_limits_are_those_of_the_real_tools(call: Call, max_chars: int, tmp_path: Path) -> None:
    """Cut, empty and refused results are the same too."""
    files = MemoryFiles(
        {
            "long.log": "\n".join(f"this is line {n}" for n in range(300)) + "\n",
            "empty": "",
            "wide.txt": "x" * 700 + "\nshort\n",
            "sub/a.log": "line 90\n  line 901\n",
            "sub/deeper/b.log": "no",
            "sub-way.txt": "line 9",
            "bare/": "",
            "picture": "\0a",
            **dict.fromkeys(("a/twice.txt", "a-b/twice.txt"), "x"),
            **dict.fromkeys((f"{n}/in/often.txt" for n in "dcbe"), "x"),
            "marks.log": "Error\nnpm ERR! code\nE0314 x\nE  x\nsterr\nKILLED\nCan't\n",
        },
        max_chars=max_chars,
    )
    write_files(tmp_path, files.texts)
    assert files.run(call) == real(tmp_path, call, files)


def test_the_corpus_knows_the_agent_s_cap(tmp_path: Path) -> None:
    """The agent cuts results at as many characters as the corpus does, at nano's context."""
    with Engine.load("nano", context=4096) as engine:
        agent = Agent(engine, workspace=tmp_path, trace=False)
        (tmp_path / "long.txt").write_text("some words of a line\n" * 500)
        call = Call("read_file", {"path": "long.txt"})
        files = MemoryFiles({"long.txt": "some words of a line\n" * 500}, max_chars=AGENT_CHARS)
        assert agent.tools.get("read_file").call(dict(call.arguments)) == files.run(call)


def test_what_is_left_out_is_told_as_by_the_real_tool(tmp_path: Path) -> None:
    """Behind the hits, and behind the word that there are none."""
    (tmp_path / "a.txt").write_text("port 80\n")
    (tmp_path / "long.json").write_text("x" * (MAX_REGEX_LINE + 1) + "\n")
    noted = ("[cut: 1 very long line searched only at the start]",)
    files = MemoryFiles({"a.txt": "port 80\n"}, regex_notes=noted)

    for pattern in ("po.t", "ho.t"):
        call = Call("search", {"pattern": pattern, "regex": True})
        assert real(tmp_path, call, files) == files.run(call)
        assert files.run(call).endswith(noted[0])
