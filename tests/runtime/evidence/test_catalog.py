"""The files of a workspace that may be looked at."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from helpers.workspaces import catalog_of, write

from triplepoint.runtime.evidence import catalog as catalog_module
from triplepoint.runtime.evidence.catalog import Catalog
from triplepoint.runtime.evidence.reading import Texts
from triplepoint.tools import Policy, Rule, Workspace


def test_walk(tmp_path: Path) -> None:
    """Files by path; what programs fill and what git ignores is passed over, and told."""
    write(tmp_path, {
        "a.txt": "", "deep/b.txt": "", "node_modules/x.js": "", ".gitignore": "*.log\n/tmp/\n",
        "run.log": "", "tmp/y": "", "deep/.gitignore": "!keep.log\n", "deep/keep.log": "",
    })  # fmt: skip
    found = catalog_of(tmp_path)
    assert set(found.files) == {
        ".gitignore", "a.txt", "deep/.gitignore", "deep/b.txt", "deep/keep.log",
    }  # fmt: skip
    assert sorted(found.passed) == ["node_modules/", "run.log", "tmp/"]
    assert set(found.listing(".") or ()) == {
        ".gitignore", "a.txt", "deep/", "node_modules/", "run.log", "tmp/",
    }  # fmt: skip
    assert found.listing("none") is None


@pytest.mark.parametrize("tool", ["read_file", "search", "list_dir", "*"])
@pytest.mark.parametrize("action", ["deny", "ask"])
def test_policy(tmp_path: Path, tool: str, action: str) -> None:
    """What a rule keeps from one of the tools, or asks about, is not there, nor a link to it."""
    write(tmp_path, {"a.txt": "", "secret/key": "", "deep/secret/x": "", ".env": ""})
    (tmp_path / "link").symlink_to("secret/key")
    rules = [Rule(tool, action, {"path": "secret/**"}), Rule(tool, action, {"path": ".env"})]  # type: ignore[arg-type]
    found = catalog_of(tmp_path, Policy(rules=rules))

    assert set(found.files) == {"a.txt", "deep/secret/x"}
    assert set(found.listing(".") or ()) == {"a.txt", "deep/"}
    assert not found.passed


def test_a_rule_about_all(tmp_path: Path) -> None:
    """Where every look is asked about, nothing is looked at."""
    write(tmp_path, {"a.txt": ""})
    assert not catalog_of(tmp_path, Policy(rules=[Rule("read_file", "ask")])).files


def test_links_and_hidden_files(tmp_path: Path) -> None:
    """No link leads out, none is followed into a folder, and what is hidden is not there."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    write(inside, {"a.txt": "", "deep/b.txt": "", "trace.jsonl": ""})
    write(outside, {"secret": ""})
    (inside / "leads_out").symlink_to(outside / "secret")
    (inside / "folder_out").symlink_to(outside)
    (inside / "deep" / "again").symlink_to("..")
    workspace = Workspace(inside)
    workspace.hide([inside / "trace.jsonl"])
    found = Catalog(workspace, None, Texts(workspace))
    found.refresh()

    assert set(found.files) == {"a.txt", "deep/b.txt"}


def test_changes_are_seen(tmp_path: Path) -> None:
    """New, gone and changed files, and a new .gitignore, also in what was read before."""
    write(tmp_path, {"a.txt": "1", "deep/b.txt": "1"})
    found = catalog_of(tmp_path)
    time.sleep(0.06)
    found.refresh()
    before = found.version
    found.refresh()
    assert found.version == before

    write(tmp_path, {"deep/c.txt": "1"})
    (tmp_path / "a.txt").write_text("22")
    found.refresh()
    assert "deep/c.txt" in found.files
    assert found.files["a.txt"][0] == 2
    (tmp_path / "a.txt").unlink()
    write(tmp_path, {".gitignore": "b.*"})
    found.refresh()
    assert set(found.files) == {".gitignore", "deep/c.txt"}


def test_large_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many files those that changed lately are looked at; any before it is used; all if deep."""
    monkeypatch.setattr(catalog_module, "FEW", 0)
    write(tmp_path, {"old.txt": "1", "new.txt": "1"})
    os.utime(tmp_path / "old.txt", (1e9, 1e9))
    time.sleep(0.06)
    found = catalog_of(tmp_path)
    (tmp_path / "new.txt").write_text("22")
    with (tmp_path / "old.txt").open("a") as file:
        file.write("2")
    found.refresh()
    assert found.files["new.txt"][0] == 2
    assert found.files["old.txt"][0] == 1
    assert not found.current("old.txt")
    assert found.current("old.txt")

    os.utime(tmp_path / "old.txt", (1e9, 1e9))
    found.refresh(deep=True)
    assert found.files["old.txt"][1] == 10**18


def test_late(tmp_path: Path) -> None:
    """Out of time, the folders read so far count, and it is known that some are missing."""
    write(tmp_path, {"a.txt": "", "deep/b.txt": ""})
    workspace = Workspace(tmp_path)
    found = Catalog(workspace, None, Texts(workspace))
    found.refresh(lambda: True)
    assert set(found.files) == {"a.txt"}
    assert not found.whole
    found.refresh()
    assert set(found.files) == {"a.txt", "deep/b.txt"}
    assert found.whole


def test_documents(tmp_path: Path) -> None:
    """What is attached is a file like others."""
    (tmp_path / "work").mkdir()
    (tmp_path / "given.txt").write_text("x")
    with Workspace(tmp_path / "work") as workspace:
        with (tmp_path / "given.txt").open("rb") as file:
            workspace.attach("given.txt", file)
        found = Catalog(workspace, None, Texts(workspace))
        found.refresh()
        assert set(found.files) == {"given.txt"}
        assert found.listing(".") == ["given.txt"]


def test_a_folder_that_became_a_link_or_was_hidden(tmp_path: Path) -> None:
    """What is known of it counts no longer, though its time is the same."""
    write(tmp_path / "in", {"a.txt": "", "deep/b.txt": "", "own/c.txt": ""})
    write(tmp_path / "out", {"b.txt": "secret"})
    past = time.time() - 60
    for place in ("in/deep", "in/own", "out"):
        os.utime(tmp_path / place, (past, past))
    found = catalog_of(tmp_path / "in")
    assert "deep/b.txt" in found.files
    (tmp_path / "in/deep").rename(tmp_path / "gone")
    (tmp_path / "in/deep").symlink_to(tmp_path / "out")
    found.workspace.hide([tmp_path / "in/own"])
    found.refresh()

    assert set(found.files) == {"a.txt"}


def test_a_walk_that_is_cut_short(tmp_path: Path) -> None:
    """The folders that it did not come to are those of the walk before."""
    write(tmp_path, {"a/a.txt": "", "b/b.txt": ""})
    found = catalog_of(tmp_path)
    found.refresh(lambda: True)

    assert not found.whole
    assert set(found.files) == {"a/a.txt", "b/b.txt"}
