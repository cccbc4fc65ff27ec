"""Names that a model cannot write: the file whose name looks the same is found, and ruled by."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import EditTools, FileTools, FindTools, Policy, Rule, Workspace
from triplepoint.tools.alike import meant

TWO = "re\u0301sume\u0301.txt"  # letter and accent, as macOS had them
ONE = "r\u00e9sum\u00e9.txt"
BYTES = os.fsdecode(b"caf\xe9.log")


@pytest.mark.parametrize(
    ("there", "asked"),
    [
        (TWO, ONE),
        (ONE, TWO),
        (f"cafe\u0301/{TWO}", f"caf\u00e9/{ONE}"),
        (BYTES, r"caf\udce9.log"),
        ("new\nline", r"new\nline"),
        (f"a\tb/{BYTES}", r"a\tb/caf\udce9.log"),
    ],
)
def test_a_name_that_looks_the_same(
    workspace: Workspace, root: Path, there: str, asked: str
) -> None:
    """All tools take it for the file, as `list_dir` shows it."""
    (root / there).parent.mkdir(exist_ok=True)
    (root / there).write_text("one\n")
    files, edit = FileTools(workspace), EditTools(workspace)
    assert files.read_file(asked) == "1\tone"
    assert files.search("one", asked).endswith(":1:one")
    edit.edit_file(asked, "one", "two")
    edit.write_file(asked, "three\n")
    assert (root / there).read_text() == "three\n"
    assert [path for path in root.rglob("*") if path.is_file()] == [root / there]
    edit.move(asked, "plain.txt")
    assert (root / "plain.txt").read_text() == "three\n"


def test_a_folder_and_what_is_new_in_it(workspace: Workspace, root: Path) -> None:
    """No second folder is made that looks like the first one."""
    (root / "cafe\u0301").mkdir()
    edit = EditTools(workspace)
    edit.write_file(f"caf\u00e9/{ONE}", "x")
    assert os.listdir(root) == ["cafe\u0301"]
    assert FileTools(workspace).list_dir("caf\u00e9") == ONE
    with pytest.raises(ToolError, match="into itself"):
        edit.move("cafe\u0301", "caf\u00e9/in")
    assert "deleted" in edit.delete("caf\u00e9")
    assert not (root / "cafe\u0301").exists()


def test_a_pattern_of_names(workspace: Workspace, root: Path) -> None:
    """Either form of a letter fits the other."""
    (root / TWO).touch()
    assert FindTools(workspace).find(ONE) == TWO
    assert FindTools(workspace).find("re\u0301s*") == TWO


def test_what_is_there_goes_first(workspace: Workspace, root: Path) -> None:
    """And where two look the same, none is meant."""
    for name in (ONE, TWO, BYTES, r"caf\udce9.log", "A\u030a", "\u212b"):
        (root / name).touch()
    for name in (ONE, TWO, BYTES, r"caf\udce9.log", "missing-\u00e9", "no/\u00e9/\\x", "\u00c5"):
        assert meant(workspace, name) == name


def test_a_document_that_was_attached(workspace: Workspace, root: Path) -> None:
    """Its name, too."""
    (root.parent / "x").write_text("one\n")
    with open(root.parent / "x", "rb") as file:
        workspace.attach(TWO, file)
    assert FileTools(workspace).read_file(ONE) == "1\tone"


@pytest.mark.parametrize("link", ["../x", "/etc"])
def test_no_way_out(workspace: Workspace, root: Path, link: str) -> None:
    """What a name stands for is opened as every name is."""
    (root / TWO).symlink_to(link)
    for tool in (FileTools(workspace).read_file, EditTools(workspace).delete):
        with pytest.raises(ToolError):
            tool(f"{ONE}/passwd")
    with pytest.raises(ToolError, match="outside the workspace"):
        meant(workspace, f"../{ONE}")


def test_hidden_names_stay_hidden(workspace: Workspace, root: Path) -> None:
    """What a run writes into its folder is not found under another name."""
    (root / TWO).write_text("x")
    workspace.hide([root / TWO])
    with pytest.raises(ToolError, match="no such file"):
        FileTools(workspace).read_file(ONE)


@pytest.mark.parametrize("rule", [TWO, ONE, "re\u0301*", "caf?.log"])
@pytest.mark.parametrize("name", ["read_file", "search", "write_file", "edit_file", "delete"])
def test_rules_hold_for_the_file_that_is_meant(
    workspace: Workspace, root: Path, rule: str, name: str
) -> None:
    """Another way to write a name gets around no rule."""
    for there in (TWO, BYTES):
        (root / there).touch()
    tools = {tool.name: tool for tool in (*FileTools(workspace), *EditTools(workspace))}
    policy = Policy("yes", [Rule(name, "deny", {"path": rule})])
    asked = ONE if rule.startswith("r") else r"caf\udce9.log"
    given = {"path": asked, "pattern": "x", "content": "x", "old": "x", "new": "y"}
    wanted = {key: given[key] for key in tools[name].parameters["properties"] if key in given}
    for path in (asked, TWO if asked == ONE else BYTES):
        assert not policy.decide(tools[name], wanted | {"path": path}).allowed
    assert policy.decide(tools[name], wanted | {"path": "plain"}).allowed


def test_rules_for_what_is_in_a_folder(workspace: Workspace, root: Path) -> None:
    """To list a folder is about what a rule says of all in it."""
    (root / "cafe\u0301").mkdir()
    (tool,) = [tool for tool in FileTools(workspace) if tool.name == "list_dir"]
    policy = Policy(rules=[Rule("*", "deny", {"path": "cafe\u0301/**"})])
    assert not policy.decide(tool, {"path": "caf\u00e9"}).allowed
