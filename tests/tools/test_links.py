"""Searches in folders with symlinks: what they lead to is found, or said to be left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint.tools import FileTools, FindTools, Workspace


@pytest.fixture
def linked(root: Path) -> Path:
    """A folder with links that stay inside."""
    (root / "docs" / "deep").mkdir(parents=True)
    (root / "src").mkdir()
    (root / "docs" / "a.txt").write_text("needle in a\n")
    (root / "docs" / "deep" / "b.txt").write_text("needle in b\n")
    (root / "src" / "c.txt").write_text("needle in c\n")
    return root


FOUND = "docs/a.txt:1:needle in a\ndocs/deep/b.txt:1:needle in b\nsrc/c.txt:1:needle in c"


@pytest.fixture
def follows(workspace: Workspace) -> bool:
    """Whether this way of opening files follows symlinks that stay inside."""
    return workspace.resolver == "openat2"


def test_what_is_searched_anyway_is_no_loss(linked: Path, files: FileTools, follows: bool) -> None:
    """A file is searched once, whatever links lead to it, also from above; nothing is said."""
    (linked / "link.txt").symlink_to("docs/a.txt")
    (linked / "src" / "up").symlink_to("..")
    (linked / "src" / "gone").symlink_to("nothing")
    result = files.search("needle")

    assert result.startswith(FOUND)
    assert (result == FOUND) == follows


def test_what_lies_elsewhere_is_searched_or_named(
    linked: Path, files: FileTools, follows: bool
) -> None:
    """In a part of the workspace: files behind links are, folders are not; nor loops."""
    (linked / "src" / "a.txt").symlink_to("../docs/a.txt")
    (linked / "src" / "folder").symlink_to("../docs/deep")
    (linked / "src" / "self").symlink_to(".")
    result = files.search("needle", "src")

    if follows:
        assert result == (
            "src/a.txt:1:needle in a\nsrc/c.txt:1:needle in c\n"
            "[cut: src/folder not followed: a symlink]"
        )
        assert files.search("needle", "src/folder") == "src/folder/b.txt:1:needle in b"
    else:
        assert "symlinks]" in result


def test_links_that_lead_out_stay_refused_and_are_named(
    linked: Path, files: FileTools, workspace: Workspace
) -> None:
    """By their own names; nothing of what they lead to, whatever was found."""
    (linked.parent / "outside").mkdir()
    (linked.parent / "outside" / "secret.txt").write_text("secret needle\n")
    for name in ("x", "data", "y"):  # the first by name is named, in whatever order they lie
        (linked / name).symlink_to(linked.parent / "outside")
    (linked / "key.txt").symlink_to("../outside/secret.txt")

    note = "\n[cut: data and 3 more not followed: symlinks]"
    for text, found in (("needle", FOUND), ("secret", "No matches found.")):
        assert sorted(files.search(text).split("\n")) == sorted((found + note).split("\n"))
    assert "key.txt" not in FindTools(workspace).find("*.txt")


def test_find_tells_every_name_of_a_file(linked: Path, workspace: Workspace, follows: bool) -> None:
    """In order, as list_dir does."""
    (linked / "CLAUDE.md").symlink_to("docs/a.txt")
    (linked / "b").symlink_to("docs")
    found = FindTools(workspace).find("[Ca]*")
    if follows:
        assert found == "CLAUDE.md\ndocs/a.txt"
    else:
        assert found.startswith("docs/a.txt\n[cut: ")


def test_a_link_into_what_is_skipped(linked: Path, files: FileTools, follows: bool) -> None:
    """Its target is not searched otherwise, so a file behind it is."""
    (linked / ".venv").mkdir()
    (linked / ".venv" / "x.txt").write_text("needle in x\n")
    (linked / "x.txt").symlink_to(".venv/x.txt")
    if follows:
        assert files.search("needle") == f"{FOUND}\nx.txt:1:needle in x"
