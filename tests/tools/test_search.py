"""search: what it finds, in which order, and that nothing makes it hang."""

from __future__ import annotations

import os
import re
import tempfile
import time
from pathlib import Path

import pytest
from helpers.refusals import refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from triplepoint.tools import FileTools, FindTools, Workspace
from triplepoint.tools import search as search_module
from triplepoint.tools.formats import split_lines
from triplepoint.tools.search import MAX_COUNTED_LINE, MAX_REGEX_LINE, matcher


def stopped(why: str) -> str:
    return f"[cut: the search stopped after {why}; what follows was not searched; narrow the path]"


@pytest.fixture
def tree(root: Path) -> Path:
    """A small project."""
    contents = {
        "a.txt": b"One ERROR here\nnothing\n  indented error\n",
        "src/main.py": b"def main():\n    raise Error\n",
        "src/util.py": b"x = 1\r\ny = error\r\n",
        "src-old/main.py": b"error\n",
        "logo.png": b"\x89PNG\0error\n",
        ".hidden": b"hidden error\n",
        ".git/config": b"error\n",
        "src/__pycache__/x.txt": b"error\n",
        "node_modules/lib/x.js": b"error\n",
        ".venv/x.py": b"error\n",
    }
    for name, content in contents.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    os.mkfifo(root / "pipe")
    return root


def test_literal_search(files: FileTools, tree: Path) -> None:
    """Case does not count; files in bytes order; binaries, FIFOs and four folders are left out."""
    assert files.search("error").split("\n") == [
        ".hidden:1:hidden error",
        "a.txt:1:One ERROR here",
        "a.txt:3:  indented error",
        "src-old/main.py:1:error",
        "src/main.py:2:    raise Error",
        "src/util.py:2:y = error",
    ]


def test_search_below_a_path(files: FileTools, tree: Path) -> None:
    """A folder or one file; a skipped folder is searched when it is asked for by name."""
    both = "src/main.py:2:    raise Error\nsrc/util.py:2:y = error"
    assert files.search("error", "src") == both
    assert files.search("error", "./src/") == both
    assert files.search("ERROR", "a.txt").split("\n")[0] == "a.txt:1:One ERROR here"
    assert files.search("error", ".git") == ".git/config:1:error"
    assert files.search("error", "src/__pycache__/x.txt") == "src/__pycache__/x.txt:1:error"
    assert files.search("no such text") == (
        "No matches found.\n[cut: logo.png not searched: binary]\n"
        "[cut: .venv and 1 more not searched; give such a folder as the path to search it]"
    )
    assert files.search("no such text", "a.txt") == "No matches found."


def test_search_refusals(files: FileTools, tree: Path) -> None:
    """What was named and cannot be searched is an error, not an empty answer."""
    assert refusal(lambda: files.search("x", "no")) == "no such file or folder: no"
    assert refusal(lambda: files.search("x", "logo.png")) == "binary file: logo.png (11 bytes)"
    assert refusal(lambda: files.search("x", "pipe")) == "not a regular file: pipe"
    assert refusal(lambda: files.search("x", "../x")) == "outside the workspace: ../x"
    assert refusal(lambda: files.search("")) == "the pattern is empty"
    spans = "the pattern holds a line break; each line is searched on its own"
    assert refusal(lambda: files.search("a\nb")) == spans
    long = "the pattern has 1001 characters; 1000 are allowed"
    assert refusal(lambda: files.search("x" * 1001)) == long


def test_a_literal_is_no_expression(files: FileTools, root: Path) -> None:
    """Every character stands for itself unless regex is asked for."""
    (root / "a").write_text("f(x) = a.b*c [1] \\d $5\nfx aXb\n")

    for pattern in ("f(x)", "a.b*c", "[1]", "\\d", "$5"):
        assert files.search(pattern).startswith("a:1:")
        assert "\n" not in files.search(pattern)


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [
        (r"^\d{4}-\d\d-\d\d ", [1, 2]),
        (r"error|warning", [2, 3]),
        (r"refused$", [2]),
        (r"(\w+) retries", [4]),
        (r"\bdb-[0-9]+\b", [2, 4]),
        (r"(?P<host>db-2).*after", [4]),
        (r"[^\x00-\x7f]", [5]),
        (r"straße", [5]),
        (r"^$", [6]),
        (r"(?-i)ERROR", [2]),
    ],
)
def test_regex_search(files: FileTools, root: Path, pattern: str, lines: list[int]) -> None:
    """The common notation works line by line, without regard to case."""
    (root / "log").write_text(
        "2026-03-14 started\n2026-03-15 ERROR db-2 refused\r\nWarning\n"
        "db-2 failed after 3 retries\nStraße\n\n"
    )

    found = files.search(pattern, regex=True)
    assert [int(hit.split(":")[1]) for hit in found.split("\n")] == lines


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "unclosed group"),
        ("[a", "unclosed character class"),
        ("*a", "repetition operator missing expression"),
        ("a)", "unopened group"),
        ("a(?=b)", "look-around, including look-ahead and look-behind, is not supported"),
        (r"(a)\1", "backreferences are not supported"),
        (r"((\w{99}){99}){99}", "it repeats too much"),
    ],
)
def test_bad_expressions(files: FileTools, pattern: str, reason: str) -> None:
    """The reason is told in one line."""
    message = refusal(lambda: files.search(pattern, regex=True))
    assert message == f"bad regular expression: {reason}"


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+$",
        r"^(a|a)*$",
        r"(a|aa)+$",
        r"(.*a){20}$",
        r"^(([a-z])+.)+[A-Z]([a-z])+$",
        r"a*a*a*a*a*a*a*a*a*a*b",
        r"(a?){40}a{40}$",
        r"(?:a+){1,40}b",
        r"(\w+\s*)*(\d+)*(.*)*(.*)*x{200}y",
        r"[^x]{0,9000}y",
    ],
)
def test_catastrophic_patterns(files: FileTools, root: Path, pattern: str) -> None:
    """Patterns that never end in a backtracking engine give an answer, on long lines too."""
    (root / "a").write_text("a" * 40 + "!\n" + "a" * 4000 + "!\n" + "aé" * 2000 + "!\n")

    assert files.search(pattern, regex=True) == "No matches found."


def test_literal_case_folding() -> None:
    """Folding is that of Unicode, on both sides."""
    assert matcher("STRASSE", regex=False)("Die Straße")
    assert matcher("ΣΊΣΥΦΟΣ", regex=False)("σίσυφος")
    assert not matcher("a", regex=False)("b")


def test_many_hits(files: FileTools, root: Path) -> None:
    """50 lines and a note; exactly 50 need no note."""
    words = [f"hit {chr(97 + n // 10)}{chr(97 + n % 10)}" for n in range(50)]
    (root / "a").write_text("\nmiss\n".join(words))
    assert len(files.search("hit").split("\n")) == 50

    (root / "b").write_text("hit\n")
    shown = files.search("hit").split("\n")
    assert len(shown) == 51
    assert shown[49] == "a:99:hit ej"
    assert shown[50] == "[cut: more than 50 matches; narrow the pattern or the path]"


def test_one_among_many_alike(files: FileTools, root: Path) -> None:
    """Where not all can be shown, a thousand heartbeats do not hide the one line that matters."""
    beats = [f"{n:02d}:00 heartbeat ok, errors=0, load {n % 7}" for n in range(1000)]
    (root / "a.log").write_text("\n".join([*beats[:870], "error: no key", *beats[870:]]))
    (root / "b.log").write_text("7 errors=0\n")

    assert files.search("error").split("\n") == [
        *(f"a.log:{n + 1}:{beats[n]}" for n in range(3)),
        "a.log:871:error: no key",
        "b.log:1:7 errors=0",
        "[cut: more than 5 matches, of lines alike the first 3; narrow the pattern or the path]",
    ]


def test_long_lines(files: FileTools, root: Path) -> None:
    """A hit shows the start of its line; a very long line is searched, too."""
    (root / "a").write_text("x" * 310 + "hit\n" + "hit" + "y" * 300_000 + "hit\nlast hit\n")

    assert files.search("hit").split("\n") == [
        "a:1:" + "x" * 300 + " [cut: 13 more characters]",
        "a:2:hit" + "y" * 297 + " [cut: 299706 more characters]",
        "a:3:last hit",
    ]


@pytest.mark.parametrize("before", [400, 4_000, 70_000, 65_534, 65_536 + 128 * 1024 - 2, 2_000_000])
@pytest.mark.parametrize("letter", ["x", "\u00e9"])
def test_a_hit_within_a_very_long_line(
    files: FileTools, root: Path, before: int, letter: str
) -> None:
    """It is found wherever it is, with an excerpt around it and what is left out on both sides."""
    line = letter * before + "ERROR: disk full" + "y" * 80_000
    (root / "a.json").write_text(f"first\r\n{line}\r\nerror at the end\r\n")

    hit, last = files.search("error: DISK").split("\n")[0], files.search("at the end")
    found = re.fullmatch(
        r"a.json:2:\[cut: (\d+) characters before\] (.*) \[cut: (\d+) more .*", hit
    )
    assert found
    assert "ERROR: disk" in found[2]
    assert len(found[2]) <= 300
    assert int(found[1]) + len(found[2]) + int(found[3]) == len(line)
    assert line[int(found[1]) :].startswith(found[2])
    assert last == "a.json:3:error at the end"
    assert files.search("nowhere") == "No matches found."


@settings(max_examples=20, deadline=None)
@given(
    st.integers(4_000, 400_000), st.integers(0, 400_000), st.sampled_from(["hit", "Straße", "ss"])
)
def test_a_long_line_anywhere(length: int, at: int, word: str) -> None:
    """A word is found at each place of a line, also where it lies on the edge of two reads."""
    line = "." * min(at, length) + word + "." * max(0, length - at)
    with tempfile.TemporaryDirectory() as folder, Workspace(folder) as workspace:
        Path(folder, "a").write_text(line)
        found = FileTools(workspace).search(word.upper())
    assert word in found or len(line) < 4096
    assert found.count("\n") == 0


def test_a_line_that_is_longer_than_is_read(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found in the part that was read is shown."""
    monkeypatch.setattr(search_module, "BUDGET", 2**20)
    (root / "a").write_text("x" * 500_000 + "hit" + "x" * 2_000_000)
    hit, note = files.search("hit").split("\n")
    assert "hit" in hit
    assert note == "[cut: a searched only at the start: too large]"


def test_what_was_passed_over(files: FileTools, root: Path) -> None:
    """It is named where nothing was found, and only there: how many files, why, which first."""
    for name in ("b.bin", "a.bin", "sub/c.bin"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(b"needle\0")
    for name in ("node_modules/i.js", "sub/node_modules/j.js", ".git/config"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("needle\n")
    folders = (
        "[cut: node_modules and 1 more not searched; give such a folder as the path to search it]"
    )
    assert files.search("needle").split("\n") == [
        "No matches found.",
        "[cut: a.bin and 2 more not searched: binary]",
        folders,
    ]
    assert FindTools(files.workspace).find("*.js") == f"No files found.\n{folders}"
    assert files.search("needle", "node_modules") == "node_modules/i.js:1:needle"
    (root / "z.txt").write_text("needle\n")
    assert files.search("needle") == "z.txt:1:needle"
    assert FindTools(files.workspace).find("*.txt") == "z.txt"


@pytest.mark.parametrize(
    ("pattern", "most"), [("h.t", MAX_REGEX_LINE), ("hi{1}t", MAX_COUNTED_LINE)]
)
def test_expressions_see_the_start_of_a_line(
    files: FileTools, root: Path, pattern: str, most: int
) -> None:
    """Of so many characters, so that no pattern and line together take long; this is said."""
    lines = ["x" * (most - 3) + "hit", "x" * (most - 2) + "hit", "x" * 300_000, "hit"]
    (root / "a").write_text("\n".join(lines) + "\n")

    assert files.search(pattern, regex=True).split("\n") == [
        "a:1:" + "x" * 300 + f" [cut: {most - 300} more characters]",
        "a:4:hit",
        "[cut: 2 very long lines searched only at the start]",
    ]
    assert len(files.search("hit").split("\n")) == 3


def test_files_that_cannot_be_read(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that vanishes between the listing and the open is named; the others are searched."""
    (root / "a").write_text("hit\n")
    (root / "b").write_text("hit\n")
    walk = files.workspace.walk

    def walk_with_a_ghost(*args: object, **options: object) -> object:
        yield "a-ghost"
        yield from walk(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(files.workspace, "walk", walk_with_a_ghost)

    assert files.search("hit") == "a:1:hit\nb:1:hit\n[cut: a-ghost could not be read]"


def test_bounds(files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, bytes and seconds are limited, and the answer says which limit it was."""
    for number in range(9):
        (root / f"f{number}").write_text("x" * 99 + "\n")

    with monkeypatch.context() as patch:
        patch.setattr(search_module, "MAX_FILES", 4)
        note = stopped("4 files, before f4")
        assert files.search("hit") == f"No matches found.\n{note}"
    with monkeypatch.context() as patch:
        patch.setattr(search_module, "MAX_FILES", 9)
        assert files.search("hit") == "No matches found."
    with monkeypatch.context() as patch:
        patch.setattr(search_module, "BUDGET", 50)
        partly = "[cut: f0 and 8 more searched only at the start: too large]"
        assert files.search("hit") == f"No matches found.\n{partly}"
    with monkeypatch.context() as patch:
        patch.setattr(search_module, "MAX_SECONDS", -1.0)
        late = stopped("-1 seconds, at line 2 of f0")
        assert files.search("hit") == f"No matches found.\n{late}"


@pytest.mark.slow
def test_a_folder_of_many_files(files: FileTools, root: Path) -> None:
    """Where no narrower path can be named, the last file must be found all the same."""
    (root / "f").write_text("x\n")
    for number in range(25_000):
        os.link(root / "f", root / f"f{number}")
    (root / "last").write_text("hit\n")
    assert files.search("hit") == "last:1:hit"
    assert FindTools(files.workspace).find("la*") == "last"


def test_the_deadline_is_kept_where_there_are_no_lines(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folders without files, empty files and binary ones take time too."""
    monkeypatch.setattr(search_module, "MAX_SECONDS", -1.0)
    (root / "a" / "b").mkdir(parents=True)
    note = stopped("-1 seconds, in the folders of .")
    assert files.search("hit") == f"No matches found.\n{note}"

    (root / "0").touch()
    (root / "1").write_bytes(b"\0")
    note = stopped("-1 seconds, before 1")
    assert files.search("hit") == f"No matches found.\n{note}"


def test_the_byte_bound(files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bytes of one search, no further file is opened."""
    monkeypatch.setattr(search_module, "MAX_BYTES", 2**20)
    for number in range(3):
        (root / f"f{number}").write_text("0123456\n" * 2**16)
    (root / "g").write_text("hit\n")

    note = stopped("1 MiB, after f1")
    assert files.search("hit") == f"No matches found.\n{note}"


def test_the_deadline_is_kept_within_a_file(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow expression is stopped between two lines of one file."""
    (root / "a").write_text("x\n" * 1000)
    clock = iter(range(1_000_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))

    note = stopped("10 seconds, at line 12 of a")
    assert files.search(r"y\z", regex=True) == f"No matches found.\n{note}"
    assert next(clock) < 100


def test_enough_hits_end_it_sooner(
    files: FileTools, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With hits to go on with, the rest of the time is not waited for; it is said how far it is."""
    (root / "a").write_text("x hit\n" * search_module.ENOUGH)
    (root / "b").write_text("x\n" * 100)
    clock = iter(n / 10 for n in range(1_000_000))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))

    found = files.search(r"hit\z", regex=True).split("\n")
    assert len(found) == search_module.ENOUGH + 1
    assert found[-1].startswith("[cut: the search stopped after 2 seconds, at line ")
    assert next(clock) < 5


def test_many_short_lines_are_searched_in_time(files: FileTools, root: Path) -> None:
    """An expression is tried on many lines at once: millions of them are no reason to stop."""
    (root / "big.log").write_text("x\n" * 16_000_000 + "the end\n")

    assert files.search("^the (end|start)$", regex=True) == "big.log:16000001:the end"


@pytest.mark.slow
@given(
    st.sampled_from(
        [
            *("^a", "b$", "^$", r"\Aa", r"b\z", r"\bab\b", "a.b", "[^b]", r"a\s+b", "(?-i)A"),
            *("a|^b$", r"\r$", "(?m)^a$", "(?P<n>a)b", "(?:a|b){2}", r"\Ba", "a*", r"^\W*$"),
        ]
    ),
    st.text("abA \r\n\u00e4-", max_size=60),
)
@settings(max_examples=300, deadline=None)
def test_lines_together_find_what_each_line_finds(pattern: str, text: str) -> None:
    """The quicker way to search finds the same lines as a look at each of them."""
    fits = matcher(pattern, regex=True)
    wanted = [n for n, line in enumerate(split_lines(text), 1) if fits(line)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "PIECE", 5)
        (Path(folder) / "f").write_bytes(text.encode())
        with Workspace(folder) as workspace:
            hits = list(search_module.Search(workspace, pattern, True).file("f"))
    assert [hit.number for hit in hits] == wanted
