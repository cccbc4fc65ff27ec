"""count: totals that are exact, groups in plain words, and what was left out is told."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from helpers.refusals import refusal

from triplepoint.tools import Workspace
from triplepoint.tools import count as count_module
from triplepoint.tools import search as search_module
from triplepoint.tools.count import count_lines, grouping

ACCESS = [
    f'10.0.0.{host} - - [{day:02}/Mar/2026:{hour:02}:05:09 +0000] "GET {url} HTTP/1.1" {status} 12'
    for host, day, hour, url, status in [
        (1, 14, 5, "/cart", 200),
        (2, 14, 5, "/cart", 502),
        (1, 14, 6, "/login", 502),
        (1, 15, 6, "/cart", 502),
    ]
]


def count(workspace: Workspace, pattern: str, path: str = ".", **given: object) -> list[str]:
    return count_lines(workspace, pattern, path, max_chars=4000, **given).split("\n")  # type: ignore[arg-type]


def groups(lines: list[str]) -> dict[str, int]:
    """The groups of a result by name."""
    found = [line.split("  ") for line in lines[1:] if not line.startswith("[")]
    return {key: int(number) for number, key, _ in found}


@pytest.fixture
def access(root: Path) -> str:
    (root / "access.log").write_text("\n".join(ACCESS) + "\n")
    return "access.log"


def test_a_file(workspace: Workspace, access: str) -> None:
    """The total comes first; the first lines stand behind it as in search."""
    assert count(workspace, "/CART", access) == [
        "3 lines with `/CART` in access.log (1 file, 4 lines looked at)",
        f"access.log:1:{ACCESS[0]}",
        f"access.log:2:{ACCESS[1]}",
        f"access.log:4:{ACCESS[3]}",
    ]
    assert count(workspace, "", access)[0].startswith("4 lines in access.log")
    assert count(workspace, "", access)[-1] == "[cut: 1 more]"
    assert count(workspace, "nothing", access) == [
        "0 lines with `nothing` in access.log (1 file, 4 lines looked at)"
    ]


@pytest.mark.parametrize(
    ("by", "first"),
    [
        ("ip", "3  10.0.0.1  (first: access.log:1)"),
        ("by IPs", "3  10.0.0.1  (first: access.log:1)"),
        ("status", "3  502  (first: access.log:2)"),
        ("day", "3  14/Mar/2026  (first: access.log:1)"),
        ("hours", "2  14/Mar/2026:05  (first: access.log:1)"),
        ("file", "4  access.log  (first: access.log:1)"),
        (r"\.(\d+) - ", "3  1  (first: access.log:1)"),
        (r"(log[io]n|cart)", "3  cart  (first: access.log:1)"),
    ],
)
def test_groups(workspace: Workspace, access: str, by: str, first: str) -> None:
    """The largest group is first, with the line that it is first seen in."""
    lines = count(workspace, "", access, by=by)

    assert lines[1] == first
    assert sum(groups(lines).values()) == 4


def test_a_folder_is_counted_by_file(workspace: Workspace, root: Path) -> None:
    """Binary files and folders of builds are told, whatever was found; packed files are read."""
    (root / "a.txt").write_text("x\nx\n")
    (root / "b.bin").write_bytes(b"x\0")
    (root / "old.log.gz").write_bytes(gzip.compress(b"x\nx\nx\n"))
    (root / "node_modules").mkdir()
    (root / "node_modules/c.txt").write_text("x\n")

    lines = count(workspace, "x")

    assert lines[0].startswith("5 lines with `x` in . (2 files, 5 lines looked at), by file, 2 ")
    assert groups(lines) == {"old.log.gz": 3, "a.txt": 2}
    assert lines[3:] == [
        "[cut: b.bin not searched: binary]",
        "[cut: node_modules not searched; give such a folder as the path to search it]",
    ]


@pytest.mark.parametrize(
    ("by", "line", "wanted"),
    [
        ("ip", "from 10.0.0.1.", "10.0.0.1"),
        ("ip", "10.0.0.1:80", "10.0.0.1"),
        ("ip", "peer fe80::1:2 up", "fe80::1:2"),
        ("ip", "at 12:34:56 version 1.2.3", None),
        ("day", "2026-03-14T05:06:07Z x", "2026-03-14"),
        ("day", "Mar  4 05:06:07 host x", "Mar  4"),
        ("date", "14.03.2026 05:06", "14.03.2026"),
        ("day", "05:06:07 x", None),
        ("hour", "2026-03-14 05:06:07", "2026-03-14 05"),
        ("hour", "[14/Mar/2026:05:06:07 +0000]", "14/Mar/2026:05"),
        ("hour", "05:06:07 x", "05"),
        ("level", "2026 WARN x ERROR", "WARN"),
        ("level", "an error in prose", None),
        ("level", "[error] x", "ERROR"),
        ("severity", '{"severity": "high"}', "HIGH"),
        ("level", "level=debug x", "DEBUG"),
        ("status", '"GET / HTTP/1.1" 404 12', "404"),
        ("status", '{"status": 503}', "503"),
        (r"user=(\w+)", "superuser USER=y", "y"),
    ],
)
def test_keys(by: str, line: str, wanted: str | None) -> None:
    """Each word finds what it says, as it is written."""
    keys = grouping(by)
    assert keys is not None
    assert keys([line], 10.0) == [wanted]


def test_lines_without_a_key(workspace: Workspace, root: Path, access: str) -> None:
    """Some are told; where all are, the error says what by may be, and shows a line."""
    (root / "b.log").write_text("level=info\n[error] x\nno\n")

    assert "[1 of these lines have none]" in count(workspace, "", "b.log", by="level")
    told = refusal(lambda: count(workspace, "", access, by="level"))
    assert told.startswith("none of the 4 lines has by=level; by is one of file, day, hour, level,")
    assert "such a line: 10.0.0.1" in told


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"by": "(a)(b)"}, "by=(a)(b) cannot be counted by; by is one of file, day, hour, level,"),
        ({"by": "user"}, "by=user cannot be counted by; by is one of file, day, hour, level, ip,"),
        ({"by": "(a"}, "by is a bad regular expression: missing ), unterminated subpattern"),
        ({"by": "x" * 1001}, "by has 1001 characters; 1000 are allowed"),
        ({"by": "\ud800"}, "by is not valid Unicode"),
        ({"path": "no.log"}, "no such file or folder: no.log"),
        ({"path": "../x"}, "outside the workspace: ../x"),
        ({"pattern": "(", "regex": True}, "bad regular expression"),
    ],
)
def test_refusals(
    workspace: Workspace, access: str, given: dict[str, object], message: str
) -> None:
    """What cannot be counted is an error that says why."""
    asked = {"pattern": "", "path": access, **given}

    def call() -> object:
        return count(workspace, **asked)  # type: ignore[arg-type]

    assert refusal(call).startswith(message)


def test_an_expression_without_an_end(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes exponential time is stopped; lines before it are counted, the others told."""
    (root / "a").write_text("aab\n" * 3 + "a" * 4000 + "\n" + "aab\n")
    monkeypatch.setattr(search_module, "MAX_SECONDS", 1.0)

    began = time.monotonic()
    lines = count(workspace, "", "a", by=r"(?:a+)+(b)$")

    assert time.monotonic() - began < 5
    assert lines[1] == "3  b  (first: a:1)"
    assert lines[2].startswith("[cut: 2 lines not grouped: by took more than ")


def test_more_groups_than_are_kept(
    workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups, and their names, are bounded; the total is right all the same."""
    (root / "a").write_text("".join(f"n{at} {'x' * 300}\n" for at in range(100)))
    monkeypatch.setattr(count_module, "MAX_GROUPS", 40)

    lines = count(workspace, "", "a", by=r"(\S+)")

    assert lines[0].startswith("100 lines in a ")
    assert len(groups(lines)) == count_module.MAX_SHOWN
    assert lines[-2:] == ["[cut: 9 more]", "[cut: 60 lines of further groups; more than 40]"]
    assert len(count(workspace, "", "a", by="(.*)")[1]) < 300


def test_batches_add_up(workspace: Workspace, access: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many lines are grouped at once changes nothing."""
    whole = count(workspace, "", access, by=r"(cart|login)")
    monkeypatch.setattr(count_module, "BATCH", 1)

    assert count(workspace, "", access, by=r"(cart|login)") == whole


def test_time_is_bounded(workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A count that was stopped says "at least", and where it ended."""
    (root / "big.log").write_text("user=a error\n" * 2_000_000)
    monkeypatch.setattr(search_module, "MAX_SECONDS", 0.2)

    began = time.monotonic()
    lines = count(workspace, "error", "big.log", by="user=(.)")

    assert time.monotonic() - began < 3
    assert lines[0].startswith("at least ")
    assert lines[-1].startswith("[cut: the search stopped after 0.2 seconds, at line ")


@pytest.mark.slow
@pytest.mark.parametrize("resolver", ["walk"], indirect=True)  # a file that is open has no names
def test_a_large_file(workspace: Workspace, root: Path) -> None:
    """200 MB take no longer than a search may, and no line is lost without a word."""
    with (root / "big.log").open("wb") as file:
        for _ in range(200):
            file.write(b"2026-03-14 05:00:00 INFO nothing of note happened here\n" * 19_000)

    began = time.monotonic()
    lines = count(workspace, "INFO", "big.log", by="hour")

    assert time.monotonic() - began < 15
    whole = 200 * 19_000
    counted = groups(lines)["2026-03-14 05"]
    assert counted == whole or (lines[0].startswith("at least") and "[cut: " in lines[-1])


def test_hostile_files(workspace: Workspace, root: Path) -> None:
    """Long lines, NUL behind the head and damaged packing end in a result or error."""
    (root / "long").write_text("x" * 3_000_000 + " needle\nneedle\n")
    (root / "nul").write_bytes(b"a\n" * 10_000 + b"\0needle\n")
    (root / "bad.gz").write_bytes(gzip.compress(b"x\n" * 100)[:-12])
    (root / "none.gz").write_text("x\n")

    assert count(workspace, "needle", "long")[0].startswith("2 lines")
    assert count(workspace, "needle", "nul")[0].startswith("1 line ")
    assert "packed file is damaged" in refusal(lambda: count(workspace, "", "none.gz"))
    assert "bad.gz and 1 more could not be read" in count(workspace, "")[-1]


def test_a_bomb(workspace: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a packed file no more is read than of any other."""
    monkeypatch.setattr(search_module, "MAX_BYTES", 1_000_000)
    (root / "a.gz").write_bytes(gzip.compress(b"0123456789\n" * 1_000_000))

    lines = count(workspace, "", "a.gz")

    assert lines[0].startswith("at least 9")
    assert any("searched only at the start: too large" in line for line in lines)
