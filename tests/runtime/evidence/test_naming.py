"""Names in a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.workspaces import catalog_of, write

from triplepoint.runtime.evidence.naming import Names, named
from triplepoint.runtime.evidence.question import read
from triplepoint.tools import Policy, Rule

FILES = (
    "config/server.ini", "logs/app.log", "logs/old/app.log", "README.md", "src/main.py",
    "src/limits.yaml", "swift/swift.conf-sample", "菜谱/红烧肉.md", "logs/job.log.gz",
    "leapseconds", "a/__init__.py", "b/__init__.py", "build/out.txt", "setup.py",
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, dict.fromkeys(FILES, "x\n"))
    return tmp_path


def asked(root: Path, text: str, policy: Policy | None = None) -> Names:
    return named(read(text), catalog_of(root, policy))


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("What is in config/server.ini?", ["config/server.ini"]),
        ("Which port is in server.ini?", ["config/server.ini"]),
        ("which port is in Server.INI", ["config/server.ini"]),
        ("errors in ./logs/app.log, please", ["logs/app.log"]),
        ("errors of old/app.log", ["logs/old/app.log"]),
        ("what do our limits say", ["src/limits.yaml"]),
        ("what does the readme say", ["README.md"]),
        ("the swift.conf sample", ["swift/swift.conf-sample"]),
        ("until when is the leap second file valid", ["leapseconds"]),
        ("红烧肉要放多少糖", ["菜谱/红烧肉.md"]),
        ("errors of job.log", ["logs/job.log.gz"]),
        ("what is in build/out.txt", ["build/out.txt"]),
        ("what does init do", []),
        ("which main port", ["src/main.py"]),
    ],
)
def test_files(root: Path, text: str, files: list[str]) -> None:
    """By path, by its end, by name, by name without its ending; also what is passed over."""
    assert list(asked(root, text).files[:1]) == files


@pytest.mark.parametrize(
    ("text", "files", "folders"),
    [
        ("main of logs/old/app.log", ["logs/old/app.log"], []),
        ("how many lines has logs/old", [], ["logs/old"]),
        ("what does swift say", ["swift/swift.conf-sample"], ["swift"]),
        ("what does config say", [], ["config"]),
    ],
)
def test_words_beside_paths(
    tmp_path: Path, text: str, files: list[str], folders: list[str]
) -> None:
    """Parts of a path name no file, nor does a folder's name one that lies elsewhere."""
    write(tmp_path, dict.fromkeys((*FILES, "a/old.txt", "b/config.py"), "x\n"))
    found = asked(tmp_path, text)
    assert (list(found.files), list(found.folders)) == (files, folders)


def test_absolute_paths(root: Path) -> None:
    """A path from the top is one below the workspace, or nothing."""
    assert asked(root, f"what is in {root}/README.md?").files == ("README.md",)
    assert asked(root, "what is in /etc/passwd?").files == ()


def test_folders(root: Path) -> None:
    """By path, or by the last name."""
    assert asked(root, "which files are in logs/old?").folders == ("logs/old",)
    assert asked(root, "what is in the swift folder").folders == ("swift",)
    assert asked(root, "菜谱文件夹里有哪些文件?").folders == ("菜谱",)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("What is in logs/missing.log?", {"logs/missing.log": ()}),
        ("What is in servr.ini?", {"servr.ini": ("config/server.ini",)}),
        ("Is version 3.11 in use, and what is e.g. app.run?", {}),
        ("Mail me at ann@example.py", {}),
        ("what is in readme.txt", {"readme.txt": ("README.md",)}),
    ],
)
def test_missing(root: Path, text: str, names: dict[str, tuple[str, ...]]) -> None:
    """What is surely a file's name and is not there is told, with names like it."""
    found = asked(root, text).missing
    assert [one.name for one in found] == list(names)
    for one in found:
        assert set(names[one.name]) <= set(one.nearest)


def test_parts_of_a_missing_name_name_nothing(root: Path) -> None:
    """No other file is taken for one that is not there."""
    found = asked(root, "What does limits/none.txt say?")
    assert not found.files
    assert found.missing[0].name == "limits/none.txt"


def test_hidden_names(root: Path) -> None:
    """What the policy hides is neither named nor near a name."""
    policy = Policy(rules=[Rule("*", "deny", {"path": "config/**"})])
    found = asked(root, "What is in config/server.ini?", policy)
    assert not found.files
    assert [one.name for one in found.missing] == ["config/server.ini"]
    assert "config/server.ini" not in found.missing[0].nearest
    assert not asked(root, "what is in config", policy).folders
