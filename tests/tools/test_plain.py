"""The file tools for small models: errors and results say what is there, and no more is told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from helpers.refusals import refusal

from triplepoint.tools import FileTools, PlainFileTools, Policy, Rule, ToolSet, Workspace

HIDING = Policy(
    rules=[Rule("*", "deny", {"path": "secret/**"}), Rule("read_file", "deny", {"path": "k.txt"})]
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that is itself called logs, as a person's may be."""
    folder = tmp_path / "logs"
    (folder / "nginx").mkdir(parents=True)
    (folder / "secret").mkdir()
    (folder / "nginx/access.log").write_text("GET /a\nGET /b\n")
    (folder / "journal.log").write_text("start\nFATAL disk full\nsmtp_host = mx1\n")
    (folder / "k.txt").write_text("FATAL key 7\n")
    (folder / "secret/pay.csv").write_text("who,euro\nAnn,7\n")
    (folder / "sales.csv").write_text("who,euro\nAnn,1\nBob,2\n")
    return folder


@pytest.fixture
def plain(workspace: Workspace) -> PlainFileTools:
    return PlainFileTools(workspace)


@pytest.fixture
def hiding(workspace: Workspace) -> PlainFileTools:
    return PlainFileTools(workspace, policy=HIDING)


def test_the_tools(plain: PlainFileTools, workspace: Workspace) -> None:
    """Five; those without plain words are what they were."""
    assert ToolSet(plain).names == ["list_dir", "read_file", "search", "count", "table"]
    assert len(plain) == 5
    assert ToolSet(FileTools(workspace)).names == ["list_dir", "read_file", "search"]


def test_descriptions_hold_nothing_to_copy(plain: PlainFileTools) -> None:
    """No values, and of what code may give a model is not told; code may give it."""
    schemas = json.dumps(ToolSet(plain).schemas())
    assert not any(sign in schemas for sign in ("*", "2026", "e.g.", "such as", "logs/", ".txt"))
    shown = {one.name: list(one.parameters["properties"]) for one in plain}
    assert shown == {
        "list_dir": ["path"],
        "read_file": ["path", "start"],
        "search": ["pattern", "path"],
        "count": ["pattern", "path", "by"],
        "table": ["path", "query"],
    }
    tools = ToolSet(plain)
    told = tools.get("read_file").call({"path": "journal.log", "start": 2, "end": 2})
    assert told == "2\tFATAL disk full\n[line 2 of 3]"
    assert tools.get("count").call({"pattern": "^f", "path": ".", "regex": True})[:7] == "2 lines"


def test_the_folder_by_its_own_name(plain: PlainFileTools, root: Path) -> None:
    """It is the folder; so is its absolute path; errors say what it is called and holds."""
    names = "journal.log\nk.txt\nnginx/\nsales.csv\nsecret/"
    holds = (
        "this folder is itself called logs; it holds journal.log, k.txt, nginx/, sales.csv, secret/"
    )

    assert plain.list_dir("logs") == plain.list_dir(str(root)) == names
    assert plain.read_file("logs/journal.log") == plain.read_file(f"{root}/journal.log")
    assert refusal(lambda: plain.read_file("logs")) == f"not a file: . is a folder; {holds}"
    assert refusal(lambda: plain.list_dir("data")) == f"no such folder: data; {holds}"


def test_what_is_near(plain: PlainFileTools) -> None:
    """A path that is not there: where its name is, names like it, and what its folder holds."""
    there = "the folder nginx holds access.log"
    near = f"no such file: nginx/acess.log (near: nginx/access.log); {there}"

    assert refusal(lambda: plain.read_file("nginx/acess.log")) == near
    assert refusal(lambda: plain.table("nginx/acess.log", "")) == near
    assert "(there is nginx/access.log); this folder" in refusal(
        lambda: plain.count("", "access.log")
    )
    assert refusal(lambda: plain.read_file("nginx")) == f"not a file: nginx is a folder; {there}"
    assert refusal(lambda: plain.list_dir("k.txt")) == "not a folder: k.txt is a file"
    assert (
        refusal(lambda: plain.read_file("/k.txt"))
        == "outside the workspace: /k.txt (there is k.txt)"
    )
    assert refusal(lambda: plain.read_file("/etc/passwd")) == "outside the workspace: /etc/passwd"
    assert refusal(lambda: plain.search("x", "nginx/no/way")).endswith(there)


def test_parts(workspace: Workspace, root: Path) -> None:
    """A result says which part of the file it is."""
    (root / "long.log").write_text("".join(f"{n}\n" for n in range(1, 1451)))
    plain = PlainFileTools(workspace, max_lines=200)

    def last(**given: int) -> str:
        return plain.read_file("long.log", **given).rpartition("\n")[2]

    assert last() == "[lines 1–200 of 1,450; page 1 of 8 read; read on with start=201]"
    assert last(start=1301) == "[lines 1301–1450 of 1,450]"
    assert last(start=1201) == "[lines 1201–1400 of 1,450; read on with start=1401]"
    assert last(start=5, end=9) == "[lines 5–9 of 1,450]"
    assert plain.read_file("k.txt") == "1\tFATAL key 7\n[the whole file: 1 line]"
    (root / "empty").touch()
    assert plain.read_file("empty") == "(empty file)"
    assert (
        refusal(lambda: plain.read_file("k.txt", 9)) == "k.txt has 1 line; start=9 is past its end"
    )


def test_a_search_without_a_hit(plain: PlainFileTools) -> None:
    """It says how much there is, what is next to it, and the lines that mark failures."""
    assert plain.search("error", "journal.log").split("\n") == [
        "No matches found.",
        "[looked at: 3 lines]",
        "[lines that mark failures:]",
        "journal.log:2:FATAL disk full",
    ]
    assert plain.search("smtp host", "journal.log").split("\n")[2:] == [
        "[lines with some of the words:]",
        "journal.log:3:smtp_host = mx1",
    ]
    assert plain.search("zzz", "nginx") == "No matches found.\n[looked at: 2 lines in 1 files]"
    assert plain.count("zzz", "nginx").split("\n")[1] == "[looked at: 2 lines in 1 files]"


def test_an_expression_is_understood(plain: PlainFileTools) -> None:
    """A text that stands nowhere and is an expression counts as one; one that stands there not."""
    assert plain.search("fatal|panic", "journal.log") == "journal.log:2:FATAL disk full"
    assert plain.count("GET /(a|b)").startswith("2 lines with `GET /(a|b)`")
    assert plain.search("= mx1") == "journal.log:3:smtp_host = mx1"
    assert plain.search("(", "nginx").startswith("No matches found.")


def test_patterns_of_paths(plain: PlainFileTools, root: Path) -> None:
    """A path may be a pattern, for a search and a count; what is there by that name comes first."""
    (root / "nginx/a*.log").write_text("GET /c\n")

    assert plain.count("", "*.log").startswith("6 lines in . (3 files")
    assert plain.count("GET", "nginx/acc*").startswith("2 lines with `GET` in nginx (1 file")
    assert plain.search("GET /c", "nginx/a*.log") == "nginx/a*.log:1:GET /c"
    assert plain.search("FATAL", "j*.log") == "journal.log:2:FATAL disk full"
    assert refusal(lambda: plain.search("x", "no/*.log")).startswith("no such file or folder: no; ")


def test_packed_files_are_read(plain: PlainFileTools, root: Path) -> None:
    """All tools read them, as text."""
    (root / "old.log.gz").write_bytes(gzip.compress(b"one\ntwo\n"))

    assert plain.read_file("old.log.gz") == "1\tone\n2\ttwo\n[the whole file: 2 lines]"
    assert plain.search("two") == "old.log.gz:2:two"
    assert plain.count("", "old.log.gz").startswith("2 lines")


def test_what_a_rule_keeps_is_not_told(hiding: PlainFileTools) -> None:
    """Neither in listings and searches nor in errors and what they say is near."""
    told = [
        hiding.list_dir(),
        hiding.search("FATAL"),
        hiding.search("euro"),
        hiding.search("key error"),
        hiding.count("FATAL"),
        hiding.count("Ann"),
        refusal(lambda: hiding.read_file("pay.csv")),
        refusal(lambda: hiding.list_dir("secre")),
        refusal(lambda: hiding.read_file("/secret/pay.csv")).replace(": /secret/pay.csv", ""),
    ]

    assert "journal.log:2:FATAL" in told[1]
    assert not any("secret" in one or "key 7" in one for one in told)
    assert "k.txt" in told[0]  # which may be listed, and not read


@pytest.mark.parametrize("policy", [HIDING, Policy(rules=[Rule("search", "ask", {"path": "k.*"})])])
def test_rules_for_tools_of_the_same_kind_hold(root: Path, policy: Policy) -> None:
    """What may not be searched is not counted, and what may not be read is no table."""
    tools = ToolSet(PlainFileTools(root, policy=policy))
    asked = {"count": {"path": "k.txt"}, "table": {"path": "k.txt"}}
    decided = {name: policy.decide(tools.get(name), asked[name]).allowed for name in asked}

    assert decided == (
        {"count": True, "table": False} if policy is HIDING else {"count": False, "table": True}
    )
