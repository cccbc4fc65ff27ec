"""Some hundreds of paths that try to leave the workspace, given to every tool."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools import FileTools

CANARY = "CANARY-7f3a"

# What a path may climb or jump with, and what it may then aim at.
CLIMBS = [
    *("../" * n for n in (1, 2, 3, 8, 40)),
    *(
        "./../",
        "sub/../../",
        "sub/./../../",
        "sub//..//../",
        ".//..//",
        "a/b/../../../",
        "...//../",
    ),
    *("..\\", "..\\..\\", "sub\\..\\..\\", ".\\..\\", "..\\/", "../\\"),
    *("%2e%2e/", "%2e%2e%2f", "..%2f", "..%5c", "..%c0%af", "%252e%252e%252f", "..;/", "..%00/"),
    *("\uff0e\uff0e/", "..\u2215", "..\u2044", "\u2025/", ".\u200b./", "..\u200b/", "\u202e../"),
    *(".. /", " ../", "..\t/", "..\n/", "..\r/", "..\x0b/", "..\x1b[2J/", "..\x7f/", "..\0/"),
    *("/", "//", "///", "\\", "\\\\", "/./", "/../", "~/", "~root/", "~/../", "$HOME/", "${HOME}/"),
    *(
        "file:///",
        "file://localhost/",
        "file:",
        "C:/",
        "C:\\",
        "c:",
        "\\\\?\\C:\\",
        "//./",
        "\\\\.\\",
    ),
    *("out/", "up/", "up/up/", "abs/", "chain/", "fs/", "sub/up/../", "sub/out/", "Out/", "OUT/"),
    *(
        "/proc/self/root/",
        "/proc/self/cwd/",
        "/dev/fd/",
        "root/../",
        "../root/../",
        "../root-evil/",
    ),
]
TARGETS = [
    "",
    "secret.txt",
    "outside/secret.txt",
    "root-evil/secret.txt",
    "etc/passwd",
    "{outside}",
]

ALONE = [
    *("..", "../", "/..", "...", "....", ". .", "..\n", "../.", "..//", "../..", "../../../../.."),
    *("\0", "a\0b", "a.txt\0.png", "../secret.txt\0", "\0../secret.txt", "sub\0/../../secret.txt"),
    *(
        "x" * 255,
        "x" * 256,
        "x" * 5000,
        "x/" * 3000,
        "../" * 3000,
        "sub/" * 2000,
        "./" * 5000 + "..",
    ),
    *("\ud800", "..\udc80", "\udcff\udcfe", "a\udc2fb", "\udc2e\udc2e/secret.txt", "é", "e\u0301"),
    *(
        "/proc/self/mem",
        "/proc/self/environ",
        "/proc/1/root",
        "/proc/kcore",
        "/dev/zero",
        "/dev/mem",
    ),
    *(
        "/dev/stdin",
        "/dev/tty",
        "/etc/shadow",
        "/root/.ssh/id_rsa",
        "/sys/kernel",
        "/proc/self/fd/0",
    ),
    *("self/fd/0", "pipe", "socket", "hole", "loop", "loop/loop", "self/self/self", "sub/self"),
    *("a.txt/", "a.txt/.", "a.txt/..", "a.txt/../a.txt", "a.txt:stream", "a.txt::$DATA", "a.txt."),
    *("secret", "secret.txt", "fs/etc/passwd", "deep", "dangling", "CON", "NUL", "COM1", "aux.txt"),
    *(
        "-",
        "--help",
        "-rf /",
        "*",
        "?",
        "[a-z]*",
        "{a,b}",
        "|cat /etc/passwd",
        ";id",
        "`id`",
        "$(id)",
    ),
    *(
        "%s%s%s%n",
        "{0}",
        "{path}",
        "\x1b]52;c;aGk=\x07",
        "\u2028../secret.txt",
        "\ufeff../secret.txt",
    ),
]


def corpus(outside: Path) -> list[str]:
    made = (climb + target for climb, target in itertools.product(CLIMBS, TARGETS))
    own = [str(outside), f"{outside}/secret.txt", f"/proc/self/root{outside}", f"//{outside}"]
    paths = [path.replace("{outside}", str(outside)) for path in (*made, *ALONE, *own)]
    return list(dict.fromkeys(paths))


@pytest.fixture
def outside(root: Path, tmp_path: Path) -> Path:
    """Secrets around the workspace, and symlinks in it that lead to them."""
    folder = tmp_path / "outside"
    evil = tmp_path / "root-evil"  # its path starts like the workspace's
    for place in (folder, evil):
        place.mkdir()
        (place / "secret.txt").write_text(f"{CANARY} inside\n")
        (place / f"{CANARY}.name").touch()
    (tmp_path / "secret.txt").write_text(f"{CANARY}\n")

    (root / "sub").mkdir()
    (root / "a.txt").write_text("plain inside\n")
    (root / "sub" / "b.txt").write_text("deeper inside\n")
    links = {
        "out": folder,
        "up": "..",
        "abs": "/",
        "fs": "/proc/self/root",
        "self": "/proc/self",
        "secret": folder / "secret.txt",
        "secret.txt": "../secret.txt",
        "chain": "out",
        "dangling": "../nothing",
        "loop": "loop",
        "deep": "sub/../../secret.txt",
        "sub/out": "../../outside",
        "sub/up": "../..",
        "sub/self": ".",
    }
    for name, target in links.items():
        (root / name).symlink_to(target)
    os.mkfifo(root / "pipe")
    return folder


def attempt(call: Callable[[], str]) -> str:
    """The text that the model gets; only a ToolError may be raised."""
    try:
        return call()
    except ToolError as error:
        return f"error: {error}"


def test_the_corpus_is_large(tmp_path: Path) -> None:
    """The figure that is promised: at least 500 different paths."""
    assert len(corpus(tmp_path)) >= 500


def test_no_path_leaves_the_workspace(
    files: FileTools,
    outside: Path,
    tmp_path: Path,
    watch: Callable[..., Callable[[], bytes]],
) -> None:
    """Nothing outside is opened, read or named, and every answer is one clean text."""
    seen = watch(
        tmp_path,
        tmp_path / "secret.txt",
        *(tmp_path / "root-evil").rglob("*"),
        tmp_path / "root-evil",
        outside,
        outside / "secret.txt",
    )  # not /etc/passwd: other processes read it too

    for path in corpus(outside):
        answers = [
            attempt(lambda path=path: files.read_file(path)),
            attempt(lambda path=path: files.list_dir(path)),
            attempt(lambda path=path: files.search("inside", path)),
            attempt(lambda path=path: files.search(".", path, regex=True)),
        ]
        for answer in answers:
            assert CANARY not in answer, path
            assert "root:" not in answer, path
            assert not set(answer) & {"\0", "\x1b", "\r", "\u2028"}, path
            answer.encode()  # no lone surrogates
            if answer.startswith("error: "):
                assert "\n" not in answer, path
                assert len(answer) < 400, path
        assert seen() == b"", path


def test_a_search_of_everything_stays_inside(files: FileTools, outside: Path) -> None:
    """A search from the top finds what is inside and goes through no symlink."""
    *found, note = files.search("inside").split("\n")
    assert found == ["a.txt:1:plain inside", "sub/b.txt:1:deeper inside"]
    assert re.fullmatch(r"\[cut: abs and \d+ more not followed: symlinks\]", note)
    assert CANARY not in files.search(".", regex=True)


def test_the_watch_sees(
    outside: Path, tmp_path: Path, watch: Callable[..., Callable[[], bytes]]
) -> None:
    """The test's own instrument: an open outside is noticed (where there is inotify)."""
    seen = watch(outside / "secret.txt")
    if seen is bytes:
        pytest.skip("no inotify here")
    (outside / "secret.txt").read_bytes()

    assert seen() != b""
