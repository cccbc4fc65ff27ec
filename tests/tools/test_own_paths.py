"""Paths that name the workspace itself: absolute ones, and the folder's own name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools, FindTools, Policy, Rule, Workspace
from triplepoint.tools.tool import Tool


def tools_of(workspace: Workspace) -> dict[str, Tool[..., Any]]:
    every = (*FileTools(workspace), *FindTools(workspace), *EditTools(workspace))
    return {tool.name: tool for tool in every}


def test_an_absolute_path_inside(workspace: Workspace, root: Path) -> None:
    """Every tool takes it as that path."""
    (root / "sub").mkdir()
    (root / "sub/a.txt").write_text("one\n")
    tools = tools_of(workspace)
    path = str(root / "sub/a.txt")

    assert tools["read_file"].call({"path": path}) == "1\tone"
    assert tools["list_dir"].call({"path": str(root)}) == "sub/"
    assert tools["list_dir"].call({"path": f"{root}/sub/*.txt"}) == "a.txt"
    assert tools["search"].call({"pattern": "one", "path": f"/{root}//sub/"}) == "sub/a.txt:1:one"
    assert tools["find"].call({"pattern": "*.txt", "path": f"{root}/sub"}) == "sub/a.txt"
    edited = tools["edit_file"].call({"path": path, "old": "one", "new": "two"})
    assert edited == "edited sub/a.txt at line 1: 1 line replaced by 1 line"
    written = tools["write_file"].call({"path": f"{root}/b.txt", "content": "x\n"})
    assert written == "wrote b.txt: 1 line, 2 bytes"
    assert tools["move"].call({"path": path, "to": f"{root}/c"}) == "moved sub/a.txt to c"
    assert tools["delete"].call({"path": f"{root}/c"}).startswith("deleted c; it is kept as ")
    # The functions, too.
    assert FileTools(workspace).read_file(f"{root}/b.txt") == "1\tx"
    EditTools(workspace).write_file(f"{root}/b.txt", "y\n")
    assert (root / "b.txt").read_text() == "y\n"


def test_a_folder_that_is_named_by_a_link(root: Path, tmp_path: Path) -> None:
    """An absolute path is understood as the folder was given, and as it is."""
    (root / "a").write_text("one\n")
    (tmp_path / "link").symlink_to(root)
    with Workspace(tmp_path / "link") as workspace:
        for place in (root, tmp_path / "link"):
            assert FileTools(workspace).read_file(f"{place}/a") == "1\tone"


@pytest.mark.parametrize("tail", ["/../secret", "x/a", "/sub/../../secret", "/\0", "/.."])
def test_an_absolute_path_outside(workspace: Workspace, root: Path, tail: str) -> None:
    """A folder whose name begins alike, and a path that climbs out, are outside."""
    (root.parent / "secret").write_text("SECRET\n")
    Path(f"{root}x").mkdir()
    (Path(f"{root}x") / "a").write_text("SECRET\n")
    with pytest.raises(ToolError, match=r"outside the workspace|not allowed|NUL"):
        FileTools(workspace).read_file(f"{root}{tail}")
    with pytest.raises(ToolError, match="outside the workspace"):
        FileTools(workspace).read_file("/etc/passwd")


def test_rules_hold_for_absolute_paths(workspace: Workspace, root: Path) -> None:
    """What a rule denies or allows, it does whichever way the path is written."""
    tools = tools_of(workspace)
    rules = [
        Rule("move", "deny", {"to": "secret/**"}),
        Rule("*", "deny", {"path": "secret/**"}),
        Rule("write_file", "allow", {"path": "drafts/**"}),
    ]
    policy = Policy("read-only", rules)

    def allowed(name: str, **arguments: str) -> bool:
        return policy.decide(tools[name], tools[name].validate(arguments)).allowed

    assert not allowed("read_file", path=f"{root}/secret/a")
    assert not allowed("read_file", path="root/secret/a")
    assert not allowed("write_file", path=f"{root}/secret/a", content="x")
    assert allowed("write_file", path=f"{root}/drafts/a", content="x")
    assert not allowed("write_file", path=f"{root}/other/a", content="x")
    policy = Policy("yes", rules)
    assert allowed("move", path="a", to="b")
    assert not allowed("move", path="a", to=f"{root}/secret/b")


def test_the_folder_s_own_name(workspace: Workspace, root: Path) -> None:
    """It means the folder, with what is in it, for what is to be there already."""
    (root / "app.log").write_text("one\n")
    tools = tools_of(workspace)
    for path in ("root", "./root/", "root/root", f"{root}/root"):
        assert tools["list_dir"].call({"path": path}) == "app.log"
        assert FileTools(workspace).list_dir(path) == "app.log"
    assert tools["list_dir"].call({"path": "root/*.log"}) == "app.log"
    assert tools["read_file"].call({"path": "root/app.log"}) == "1\tone"
    assert tools["search"].call({"pattern": "one", "path": "root"}) == "app.log:1:one"
    assert tools["find"].call({"pattern": "*.log", "path": "root"}) == "app.log"
    tools["edit_file"].call({"path": "root/app.log", "old": "one", "new": "two"})
    assert (root / "app.log").read_text() == "two\n"
    with pytest.raises(ToolError, match="no such folder: rooty"):
        tools["list_dir"].call({"path": "rooty"})


def test_a_folder_in_it_of_its_name(workspace: Workspace, root: Path) -> None:
    """It goes first; and such a one can be made."""
    tools = tools_of(workspace)
    (root / "a").write_text("outer\n")
    assert tools["write_file"].call({"path": "root/a", "content": "x"}).startswith("wrote root/a")
    assert (root / "root/a").read_text() == "x"
    assert (root / "a").read_text() == "outer\n"
    assert tools["list_dir"].call({"path": "root"}) == "a"
    assert tools["read_file"].call({"path": "root/a"}) == "1\tx"
    assert tools["move"].call({"path": "a", "to": "root/b"}) == "moved a to root/b"


@pytest.mark.parametrize(
    ("there", "wanted", "hint"),
    [
        ("README.md", "readme.md", "README.md"),
        ("docs/Guide.txt", "GUIDE.TXT", "docs/Guide.txt"),
        ("docs/README", "readme", "docs/README"),
        ("Straße.txt", "STRASSE.TXT", "Straße.txt"),
    ],
)
def test_a_name_in_another_case(
    workspace: Workspace, root: Path, there: str, wanted: str, hint: str
) -> None:
    """The error says which file there is."""
    (root / there).parent.mkdir(exist_ok=True)
    (root / there).write_text("x")
    with pytest.raises(ToolError) as refused:
        FileTools(workspace).read_file(wanted)
    assert str(refused.value) == f"no such file: {wanted} (there is {hint})"


def test_a_folder_in_another_case(workspace: Workspace, root: Path) -> None:
    """The same; and a name that is there exactly goes first."""
    (root / "Logs").mkdir()
    (root / "Logs/a").write_text("x")
    with pytest.raises(ToolError, match=r"no such folder: logs \(there is Logs\)"):
        FileTools(workspace).list_dir("logs")
    (root / "sub").mkdir()
    (root / "sub/LOGS").write_text("x")
    with pytest.raises(ToolError, match=r"no such file: LOGS \(there is sub/LOGS\)"):
        FileTools(workspace).read_file("LOGS")


def test_what_is_deleted_has_no_raw_control_characters(workspace: Workspace, root: Path) -> None:
    """The place where it is now can be shown, and brought back from as it is shown."""
    (root / "a\x1b[2Jb").write_text("x")
    edit = EditTools(workspace)
    result = edit.delete("a\x1b[2Jb")
    assert result.isprintable()
    place_now = result.partition("it is kept as ")[2]
    edit.move(place_now, "back")
    assert (root / "back").read_text() == "x"


NAMES = st.sampled_from(
    [
        *("a", "A", "b", "ws", "é", "e\u0301", "\x1b[2J", "\n", "a b", "~", "*", "-r", "\u2028"),
        *(os.fsdecode(b"\xff"), ".git", "x" * 255, "\\", "[", "{}"),
    ]
)
PARTS = st.one_of(NAMES, st.sampled_from(["..", ".", "", "WS", "link", "out", "loop"]), st.text())
PATHS = st.lists(PARTS, max_size=5).map("/".join)


TREES = st.lists(st.lists(NAMES, min_size=1, max_size=3), max_size=5)


@settings(max_examples=6, deadline=None)
@given(TREES, st.lists(PATHS, min_size=2, max_size=4))
def test_any_path_in_any_tree(trees: list[list[str]], paths: list[str]) -> None:
    """A result or a ToolError, nothing else; and nothing from outside."""
    _call_all(trees, paths)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(TREES, st.lists(PATHS, min_size=4))
def test_many_paths_in_many_trees(trees: list[list[str]], paths: list[str]) -> None:
    """The same, more often."""
    _call_all(trees, paths)


def _call_all(trees: list[list[str]], paths: list[str]) -> None:
    with tempfile.TemporaryDirectory() as around:
        root = Path(around, "ws")
        root.mkdir()
        Path(around, "secret").write_text("CANARY\n")
        for names in trees:
            place = root.joinpath(*names)
            try:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_text("hit\r\nline\n")
            except OSError:
                continue
        for link, to in (("link", "a"), ("out", "../secret"), ("loop", "loop")):
            (root / link).symlink_to(to)
        with Workspace(root) as workspace:
            tools = tools_of(workspace)
            for number, path in enumerate(paths):
                if number % 3 == 0:
                    path = f"{root}/{path}"
                given = {"path": path, "to": paths[-1], "content": "x\r\n", "pattern": "hit"}
                given |= {"old": "hit", "new": "a\r\nb"}
                for tool in tools.values():
                    known = tool.parameters["properties"]
                    arguments = {key: given[key] for key in known if key in given}
                    try:
                        result = tool.call(arguments)
                    except ToolError as error:
                        result = str(error)
                    assert "CANARY" not in result
        assert sorted(os.listdir(around)) == ["secret", "ws"]
        assert Path(around, "secret").read_text() == "CANARY\n"
