"""list_dir and read_file on real files: exact results, exact refusals, bounded work."""

from __future__ import annotations

import os
import tracemalloc
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.refusals import refusal

from triplepoint.tools import FileTools, Policy, Rule, formats
from triplepoint.tools import files as files_module

GIB = 1024**3


@contextmanager
def little_memory(limit: int = 16 * 1024 * 1024) -> Iterator[None]:
    """What is done inside may hold at most `limit` bytes at once."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit


def sparse(path: Path, start: bytes, size: int) -> None:
    """A file of `size` bytes that begins with `start` and is one hole after it."""
    path.write_bytes(start)
    try:
        os.truncate(path, size)
    except OSError as error:
        pytest.skip(f"this file system holds no file of {size:,} bytes: {error}")


# ----------------------------------------------------------------------------------- list_dir


def test_list_dir(files: FileTools, root: Path) -> None:
    """Names in bytes order, folders with a slash, hidden ones like the others."""
    for name in ("b.txt", "B.txt", ".env"):
        (root / name).touch()
    (root / "a").mkdir()

    assert files.list_dir() == ".env\nB.txt\na/\nb.txt"
    assert files.list_dir("a") == "(empty folder)"
    assert refusal(lambda: files.list_dir("b.txt")) == "not a folder: b.txt is a file"
    assert refusal(lambda: files.list_dir("logs")) == "no such folder: logs"


def test_list_dir_of_many(files: FileTools, root: Path) -> None:
    """The first 200 of 257 and how many are left out."""
    for number in range(257):
        (root / f"f{number:03}").touch()

    shown = files.list_dir().split("\n")
    assert shown[0] == "f000"
    pattern = "list some with a pattern such as path=f*"
    assert shown[199:] == ["f199", f"[cut: 57 of 257 entries not shown, from f200 on; {pattern}]"]


def test_list_dir_of_strange_names(files: FileTools, root: Path) -> None:
    """A name is one line whatever it holds; bytes that are no UTF-8 do not break the text."""
    for name in (b"a\nb", b"esc\x1b[2J", b"bad\xff", "ok é".encode()):
        (root / os.fsdecode(name)).touch()

    shown = files.list_dir()
    assert shown == "a\\nb\nbad\\udcff\nesc\\x1b[2J\nok é"
    shown.encode()


# ---------------------------------------------------------------------------------- read_file


def test_read_file(files: FileTools, root: Path) -> None:
    """Numbered lines, the range included at both ends."""
    (root / "logs").mkdir()
    (root / "logs" / "app.log").write_bytes(b"one\r\ntwo\n\n  four\tx")

    assert files.read_file("logs/app.log") == "1\tone\n2\ttwo\n3\t\n4\t  four\tx"
    assert files.read_file("logs/app.log", 2) == "2\ttwo\n3\t\n4\t  four\tx"
    assert files.read_file("logs/app.log", 2, 2) == "2\ttwo"
    assert files.read_file("logs/app.log", end=1) == "1\tone"
    assert files.read_file("./logs//app.log", 4, 99) == "4\t  four\tx"


def test_read_file_refusals(files: FileTools, root: Path) -> None:
    """Each slip of a model has its own words."""
    (root / "logs").mkdir()
    (root / "one").write_text("x\n")
    (root / "app.log").write_text("x\n" * 12)
    (root / "empty").touch()
    (root / "logo.png").write_bytes(b"\x89PNG\0" + bytes(4091))
    os.mkfifo(root / "pipe")

    assert files.read_file("empty") == "(empty file)"
    assert refusal(lambda: files.read_file("no.txt")) == "no such file: no.txt"
    assert refusal(lambda: files.read_file("logs")) == "not a file: logs is a folder"
    assert refusal(lambda: files.read_file("../x")) == "outside the workspace: ../x"
    assert refusal(lambda: files.read_file("pipe")) == "not a regular file: pipe"
    assert refusal(lambda: files.read_file("logo.png")) == "binary file: logo.png (4,096 bytes)"
    late = "app.log has 12 lines; start=40 is past its end"
    assert refusal(lambda: files.read_file("app.log", 40)) == late
    assert refusal(lambda: files.read_file("one", 2)) == "one has 1 line; start=2 is past its end"
    zero = "start must be 1 or more: lines are counted from 1"
    assert refusal(lambda: files.read_file("app.log", 0)) == zero
    assert refusal(lambda: files.read_file("app.log", 5, 3)) == "end=3 is before start=5"
    vast = "start or end is too large for a line number"
    assert refusal(lambda: files.read_file("app.log", 10**5000)) == vast


@pytest.mark.parametrize(("start", "end"), [(1, None), (1, 200), (1, 201), (300, 900), (900, None)])
def test_read_file_agrees_with_the_pure_format(
    files: FileTools, root: Path, start: int, end: int | None
) -> None:
    """The streamed result is, byte for byte, what the format says about the whole text."""
    lines = [f"line {n} " + "é" * (n * 7 % 900) for n in range(1, 951)]
    (root / "big").write_text("\n".join(lines) + "\n")

    assert files.read_file("big", start, end) == formats.read_result(lines, start, end)


def test_every_line_is_reached_by_reading_on(files: FileTools, root: Path) -> None:
    """Following `read on with start=` shows each line once, in order, and ends."""
    lines = [f"{n} " + "y" * (n * 131 % 700) for n in range(1, 1001)]
    (root / "big").write_text("\n".join(lines))

    seen: list[int] = []
    start = 1
    while start:
        *body, last = files.read_file("big", start).split("\n")
        note, _, following = last.partition("start=")
        assert note.startswith("[cut: ") or not following
        body += [] if following else [last]
        seen += [int(line.partition("\t")[0]) for line in body]
        start = int(following.removesuffix("]") or 0)

    assert seen == list(range(1, 1001))


def test_own_caps(workspace: object, root: Path, resolver: str) -> None:
    """max_lines and max_chars apply to every tool."""
    for number in range(9):
        (root / f"file{number}").write_text("word\n" * 9)
    files = FileTools(root, max_lines=2, max_chars=20)

    cut = "[cut: lines 3 to 9 of 9 not shown; read on with start=3]"
    assert files.read_file("file0") == f"1\tword\n2\tword\n{cut}"
    pattern = "list some with a pattern such as path=f*"
    cut = f"[cut: 6 of 9 entries not shown, from file3 on; {pattern}]"
    assert files.list_dir() == f"file0\nfile1\nfile2\n{cut}"
    narrow = "[cut: more than 1 matches; narrow the pattern or the path]"
    assert files.search("word") == f"file0:1:word\n{narrow}"


# -------------------------------------------------------------------------------- huge files


def test_a_terabyte_of_nothing(files: FileTools, root: Path) -> None:
    """A sparse file of 1 TB is binary at once, for a read and for a search."""
    sparse(root / "hole", b"", 1024 * GIB)

    with little_memory():
        hole = "binary file: hole (1,099,511,627,776 bytes)"
        assert refusal(lambda: files.read_file("hole")) == hole
        assert refusal(lambda: files.search("x", "hole")) == hole
        assert files.search("x") == "No matches found.\n[cut: hole not searched: binary]"


def test_one_line_of_four_gigabytes(files: FileTools, root: Path) -> None:
    """The line is not read to its end; lines before it are shown."""
    head = b"first line\n" + b"word " * 2000
    sparse(root / "line", head, 4 * GIB)

    with little_memory():
        shown = files.read_file("line")
        assert shown == "1\tfirst line\n[cut: lines 2 and on not shown; read on with start=2]"
        large = (
            "file too large: line (4,294,967,296 bytes); "
            "line 2 does not end within its first 64 MiB"
        )
        assert refusal(lambda: files.read_file("line", 2)) == large
        assert refusal(lambda: files.read_file("line", 9)) == large.replace("line 2", "line 9")
        assert files.search("first", "line").split("\n") == [
            "line:1:first line",
            "[cut: line searched only at the start: too large]",
        ]


def test_the_start_of_a_large_file(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file too large to count, the first lines are shown and the rest can be asked for."""
    monkeypatch.setattr(files_module, "BUDGET", 1000)
    (root / "large").write_text("a line\n" * 500)

    shown = files.read_file("large").split("\n")
    assert shown[199:] == [
        "200\ta line",
        "[cut: lines 201 and on not shown; read on with start=201]",
    ]


def test_endless_files(root: Path) -> None:
    """Files in /proc have no size and some have no end: they are read in bounds or refused."""
    if not os.path.exists("/proc/self/mem"):
        pytest.skip("no /proc here")
    files = FileTools("/proc/self")

    assert "Name:" in files.read_file("status")
    assert refusal(lambda: files.read_file("mem")).startswith("cannot read mem: ")
    assert files.search("VmRSS", "status").startswith("status:")


def test_the_incident_example() -> None:
    """The folder of the README's first command holds the answer, where a model will look."""
    folder = Path(__file__).parents[2] / "examples" / "incident"
    files = FileTools(folder)
    error = "2026-03-14 09:26:53 ERROR payment: connection to db-2 refused after 3 retries"

    assert "app.log" in files.list_dir().split("\n")
    assert error in files.read_file("app.log")
    assert files.search("error", "app.log").split(":", 2)[2] == error


def test_names_of_a_large_folder_by_pattern(files: FileTools, root: Path) -> None:
    """Past 200 the listing says how others are listed; a name with such a sign is that name."""
    (root / "big/sub").mkdir(parents=True)
    for number in range(250):
        (root / f"big/f{number:03}.log").touch()
    accent = unicodedata.normalize("NFD", "é.txt")
    (root / "big" / accent).touch()

    shown = files.list_dir("big").split("\n")
    assert shown[-1] == (
        "[cut: 52 of 252 entries not shown, from f199.log on; "
        "list some with a pattern such as path=big/f*]"
    )
    assert files.list_dir("big/f2*").split("\n") == [f"f{n}.log" for n in range(200, 250)]
    assert files.list_dir("./big/?ub") == "sub/"
    assert files.list_dir("big/é*") == accent
    assert files.list_dir("big/*.txt/") == accent
    assert files.list_dir("big/x*") == "No matches found."
    assert refusal(lambda: files.list_dir("small/x*")) == "no such folder: small"
    assert refusal(lambda: files.list_dir("../x*")).startswith("outside the workspace: ")
    (root / "big/f2*").mkdir()
    (root / "big/f2*/inside").touch()
    assert files.list_dir("big/f2*") == "inside"


def test_a_pattern_is_under_the_rules_for_its_folder(files: FileTools, root: Path) -> None:
    """What may not be listed is not listed by the names in it either."""
    (root / "secret").mkdir()
    rule = Rule("list_dir", "deny", {"path": "secret"})
    listing = next(one for one in files if one.name == "list_dir")
    for path in ("secret", "secret/*", "./secret//?"):
        assert not Policy(rules=[rule]).decide(listing, {"path": path}, {"path": path}).allowed
    assert Policy(rules=[rule]).decide(listing, {"path": "*"}, {"path": "*"}).allowed


# -------------------------------------------------------------------------- what is elsewhere


def test_a_name_with_accents_is_pointed_to(files: FileTools, root: Path) -> None:
    """However it is written here and there; what is named can be asked for."""
    one, two = (unicodedata.normalize(form, "café/résumé.txt") for form in ("NFC", "NFD"))
    (root / two).parent.mkdir()
    (root / two).write_text("x\n")

    for name in ("résumé.txt", unicodedata.normalize("NFD", "résumé.txt")):
        assert refusal(lambda name=name: files.read_file(name)).endswith(f"(there is {one})")
    assert refusal(lambda: files.list_dir("old/café")).endswith(f"(there is {one[:4]})")
    assert refusal(lambda: files.read_file("RÉSUMÉS")).endswith(f"(there is {one})")
    assert files.read_file(one) == "1\tx"


def test_a_link_to_nothing_is_told_and_pointed_past(files: FileTools, root: Path) -> None:
    """A listing has it, so the error says what it is, and where else its name is."""
    (root / "logs").mkdir()
    (root / "logs/x.log").write_text("x\n")
    (root / "x.log").symlink_to("current/x.log")

    assert files.list_dir() == "logs/\nx.log"
    if files.workspace.resolver == "openat2":
        assert refusal(lambda: files.read_file("x.log")) == (
            "no such file: x.log (the link x.log leads to nothing) (there is logs/x.log)"
        )


def test_a_name_that_is_elsewhere_is_pointed_to(files: FileTools, root: Path) -> None:
    """An error about a missing path says where its last name is: three places at most."""
    for folder in ("logs", "logs/old", "z/logs"):
        (root / folder).mkdir(parents=True)
    (root / "logs/x.log").write_text("x\n")
    (root / "z/logs/y.log").write_text("y\n")

    there = "no such file: x.log (there is logs/x.log)"
    assert refusal(lambda: files.read_file("x.log")) == there
    assert refusal(lambda: files.read_file("lgos//x.log")) == (
        "no such file: lgos/x.log (there is logs/x.log)"
    )
    there = "no such file or folder: x.log (there is logs/x.log)"
    assert refusal(lambda: files.search("x", "./x.log")) == there
    assert refusal(lambda: files.list_dir("x/logs/")) == (
        "no such folder: x/logs (there are logs, z/logs)"
    )
    assert refusal(lambda: files.search("x", "x/logs")) == (
        "no such file or folder: x/logs (there are logs, z/logs)"
    )
    # A folder is no file, a file no folder, and a half of a word no word.
    assert refusal(lambda: files.list_dir("x.log")) == "no such folder: x.log"
    assert refusal(lambda: files.read_file("a/lo")) == "no such file: a/lo"
    assert refusal(lambda: files.read_file("l")) == "no such file: l"

    (root / "logs/old/x.log").write_text("x\n")
    (root / "z/x.log").write_text("x\n")
    three = "no such file: x.log (there are logs/old/x.log, logs/x.log, z/x.log)"
    assert refusal(lambda: files.read_file("x.log")) == three
    (root / "z/logs/x.log").write_text("x\n")
    more = "no such file: x.log (there are logs/old/x.log, logs/x.log, z/logs/x.log and more)"
    assert refusal(lambda: files.read_file("x.log")) == more


def test_a_word_of_a_name_points_to_it(files: FileTools, root: Path) -> None:
    """Where no name is just that: files whose names have all its words, in any case."""
    for name in ("web-access.log", "web/prod.toml", "web/Prod_old.toml", "README.md", "a/db.log"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x\n")

    def told(path: str) -> str:
        return refusal(lambda: files.search("x", path)).removeprefix("no such file or folder: ")

    assert told("readme") == "readme (there is README.md)"
    assert told("the access logs") == "the access logs"
    assert told("access logs") == "access logs (there is web-access.log)"
    assert told("web/prod") == "web/prod (there are web/Prod_old.toml, web/prod.toml)"
    assert told("old prod") == "old prod (there is web/Prod_old.toml)"
    # What has an extension is a whole name, and a folder needs its own.
    assert told("access.log") == "access.log"
    assert refusal(lambda: files.list_dir("readme")) == "no such folder: readme"
    (root / "z").mkdir()
    (root / "z/readme").write_text("x\n")
    assert told("readme") == "readme (there is z/readme)"


def test_what_walks_pass_over_is_not_pointed_to(files: FileTools, root: Path) -> None:
    """Nothing in .git and its like, behind links, or with a name that cannot be written."""
    outside = root.parent / "outside"
    for folder in (root / ".git", root / "node_modules/a", root / "a\nb", outside):
        folder.mkdir(parents=True)
        (folder / "x.log").write_text("x\n")
    (root / "linked").symlink_to(outside)
    (root / "within").symlink_to(root / ".git")

    assert refusal(lambda: files.read_file("x.log")) == "no such file: x.log"
    assert refusal(lambda: files.search("x", "x.log")) == "no such file or folder: x.log"


def test_what_a_policy_hides_is_not_pointed_to(root: Path) -> None:
    """A rule that keeps a path, or a folder above it, from a tool keeps its name out of errors."""
    for folder in ("secret/deep", "asked", "public"):
        (root / folder).mkdir(parents=True)
        (root / folder / "x.log").write_text("x\n")
    (root / "secret/only.log").write_text("x\n")
    rules = [
        Rule("*", "allow", {"path": "public/**"}),
        Rule("read_file", "deny", {"path": "secret/deep/**"}),
        Rule("list_dir", "deny", {"path": "secret"}),
        Rule("search", "ask", {"path": "asked/*"}),
        Rule("read_file", "deny", {"path": "**/x.log"}),
    ]
    guarded = FileTools(root, policy=Policy("yes", rules))
    open_ = FileTools(root, policy=Policy("yes"))

    assert refusal(lambda: guarded.search("x", "x.log")) == (
        "no such file or folder: x.log (there is public/x.log)"
    )
    assert refusal(lambda: guarded.read_file("only.log")) == "no such file: only.log"
    assert refusal(lambda: guarded.list_dir("deep")) == "no such folder: deep"
    assert refusal(lambda: open_.read_file("only.log")) == (
        "no such file: only.log (there is secret/only.log)"
    )
    assert refusal(lambda: open_.read_file("x.log")) == (
        "no such file: x.log (there are asked/x.log, public/x.log, secret/deep/x.log)"
    )


def test_looking_elsewhere_is_bounded(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many files are looked at, and for so long; also where there are folders alone."""
    for folder in ("a", "b", "c"):
        (root / folder).mkdir()
        (root / folder / "y.log").write_text("y\n")
    (root / "c/x.log").write_text("x\n")
    there = "no such file: x.log (there is c/x.log)"

    assert refusal(lambda: files.read_file("x.log")) == there
    monkeypatch.setattr(files_module, "MAX_FILES", 3)
    assert refusal(lambda: files.read_file("x.log")) == there
    monkeypatch.setattr(files_module, "MAX_FILES", 2)
    assert refusal(lambda: files.read_file("x.log")) == "no such file: x.log"
    monkeypatch.setattr(files_module, "MAX_FILES", 3)
    monkeypatch.setattr(files_module, "MAX_LOOK", -1.0)
    assert refusal(lambda: files.read_file("x.log")) == "no such file: x.log"
