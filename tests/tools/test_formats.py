"""The bytes that nano was trained on."""

from __future__ import annotations

import pytest

from triplepoint.tools import formats


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\rb\u2028c\x0cd\n", ["a\rb\u2028c\x0cd"]),
    ],
)
def test_only_line_feeds_end_a_line(text: str, lines: list[str]) -> None:
    """A last line end begins no further line; CRLF counts as one end; nothing else does."""
    assert formats.split_lines(text) == lines


def test_lines_are_numbered_from_one() -> None:
    """A short file is given whole, each line behind its number and a tab."""
    assert formats.read_result(["first", "", "  third"]) == "1\tfirst\n2\t\n3\t  third"


def test_a_range_keeps_the_file_numbers() -> None:
    """start and end are both included, and an end past the file is the file's end."""
    lines = [f"line {n}" for n in range(1, 11)]

    assert formats.read_result(lines, 3, 4) == "3\tline 3\n4\tline 4"
    assert formats.read_result(lines, 9, 99) == "9\tline 9\n10\tline 10"


def test_an_empty_file_says_so() -> None:
    """No lines is an answer, not an empty string."""
    assert formats.read_result([]) == "(empty file)"


def test_more_lines_than_the_cap() -> None:
    """The last line says which lines are left out of how many and how to go on."""
    lines = ["x"] * 950

    shown = formats.read_result(lines).split("\n")
    assert shown[199] == "200\tx"
    assert shown[200:] == ["[cut: lines 201 to 950 of 950 not shown; read on with start=201]"]

    shown = formats.read_result(lines, 11, 300).split("\n")
    assert shown[0] == "11\tx"
    assert shown[200:] == ["[cut: lines 211 to 300 of 950 not shown; read on with start=211]"]


def test_more_characters_than_the_cap() -> None:
    """The numbered lines stay within 16,384 characters; whole lines only."""
    lines = ["y" * 400] * 60

    *body, note = formats.read_result(lines).split("\n")
    assert len(body) == 40
    assert len("\n".join(body)) <= 16_384 < len("\n".join(body)) + 405
    assert note == "[cut: lines 41 to 60 of 60 not shown; read on with start=41]"


def test_a_long_line_is_cut() -> None:
    """500 characters are shown and the rest is counted."""
    assert formats.read_result(["z" * 500]) == "1\t" + "z" * 500
    assert formats.read_result(["z" * 1734]) == "1\t" + "z" * 500 + " [cut: 1234 more characters]"


def test_one_line_is_shown_however_small_the_cap() -> None:
    """Reading on with the given start always makes progress."""
    text = formats.read_result(["aaaa", "bbbb"], max_chars=1)

    assert text == "1\taaaa\n[cut: lines 2 to 2 of 2 not shown; read on with start=2]"


def test_listing_order() -> None:
    """Bytes order of the bare names: capitals first, a folder sorts without its slash."""
    names = ["b.txt", "a/", "a-b", "B.txt", "é", ".hidden", "z"]

    assert formats.list_result(names) == ".hidden\nB.txt\na/\na-b\nb.txt\nz\né"
    assert formats.list_result([]) == "(empty folder)"


def test_listing_cut() -> None:
    """200 names, a count of the rest, and how those after them are listed."""
    names = [f"f{n:03}" for n in range(257)]

    shown = formats.list_result(reversed(names)).split("\n")
    assert shown[:200] == names[:200]
    pattern = "entries not shown, from f200 on; list some with a pattern such as path="
    assert shown[200:] == [f"[cut: 57 of 257 {pattern}f*]"]
    cut = formats.list_result(names[:201], 257, folder="a/b").split("\n")
    assert cut[200:] == [f"[cut: 57 of 257 {pattern}a/b/f*]"]
    # The next name is not known, or begins with a sign of patterns.
    unknown = formats.list_result(names[:200], 257).split("\n")
    assert unknown[200:] == ["[cut: 57 of 257 entries not shown]"]
    assert formats.list_result(["*a", "*b"], max_chars=1).endswith("such as path=*]")


def test_search_hits() -> None:
    """path:line:text with leading spaces kept; a long line is cut and says so."""
    hits = [
        formats.search_hit("a.txt", 1, "  x = 1"),
        formats.search_hit("b/c.txt", 12, "y" * 310),
    ]

    cut = "b/c.txt:12:" + "y" * 300 + " [cut: 10 more characters]"
    assert formats.search_result(hits) == "a.txt:1:  x = 1\n" + cut
    assert formats.search_result([]) == "No matches found."


def test_search_takes_one_hit_more_than_it_shows() -> None:
    """50 hits are whole; a 51st only adds the note, and the search may stop there."""
    hits = [f"a:{n}:x" + "y" * n for n in range(1, 61)]
    assert formats.search_result(hits[:50]) == "\n".join(hits[:50])

    source = iter(hits)
    shown = formats.search_result(source).split("\n")
    assert shown[:50] == hits[:50]
    assert shown[50:] == ["[cut: more than 50 matches; narrow the pattern or the path]"]
    assert len(list(source)) == 9


def test_search_shows_few_of_lines_alike() -> None:
    """What differs in more than numbers is shown, up to the bound of hits that are looked at."""
    beats = [f"a:{n}:beat {n}" for n in range(1, formats.MAX_LOOKED + 1)]
    other = [f"a1:{n}:beat {n}" for n in range(1, 5)]
    note = "[cut: more than {} matches, of lines alike the first 3; narrow the pattern or the path]"

    mixed = [*beats[:100], "a:101:beat x", *other]
    want = [*beats[:3], "a:101:beat x", *other[:3], note.format(7), "[cut: why]"]
    assert formats.search_result(mixed, ["[cut: why]"]).split("\n") == want
    late = formats.search_result([*beats, "a:1:too late"])
    assert late.split("\n") == [*beats[:3], note.format(3)]
