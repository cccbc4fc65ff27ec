"""Streaming a file gives the same lines as reading it whole, in little memory."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pytest

from triplepoint.tools import formats
from triplepoint.tools import text as text_module
from triplepoint.tools.text import BinaryFileError, Block, TextFile, is_binary, is_utf16

MIB = 1024 * 1024


def blocks(path: Path, budget: int = MIB) -> tuple[list[Block], bool]:
    """All blocks of a file, and whether the budget cut it."""
    with path.open("rb", buffering=0) as file:
        text = TextFile(file, path.name, budget)
        return list(text.blocks()), text.cut


def lines(path: Path, budget: int = MIB) -> list[str]:
    return [line for block in blocks(path, budget)[0] for line in block.lines()]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which every border falls everywhere, also inside characters."""
    monkeypatch.setattr(text_module, "CHUNK", 7)
    monkeypatch.setattr(text_module, "LONG_LINE", 30)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_lines_are_those_of_the_whole_text(
    encoding: str, small_chunks: None, tmp_path: Path
) -> None:
    """Any mix of line ends, scripts and borders gives the lines of the text read at once, also in
    UTF-16, as Windows writes what is redirected."""
    mark = "" if encoding == "utf-8" else "\ufeff"
    rng = random.Random(7)
    pieces = ["a", "bc", "é", "日", "😀", " ", "\t", "\r", "\u2028", "\n", "\r\n", "\n\n"]
    for case in range(300):
        text = "".join(rng.choices(pieces, k=case % 60))
        path = tmp_path / "text"
        path.write_bytes((mark + text).encode(encoding))

        expected = formats.split_lines(text)
        found = [(line, block.length) for block in blocks(path)[0] for line in block.lines()]
        assert len(found) == len(expected)
        for (line, length), whole in zip(found, expected, strict=True):
            if length is None:
                assert line == whole
            else:
                assert length == len(whole)
                assert whole.startswith(line)
                assert len(whole.encode()) > 30 - 3


def test_what_is_no_utf8_is_latin_1(small_chunks: None, tmp_path: Path) -> None:
    """A few bytes that are no UTF-8 do not make a file binary; they are what Latin-1 has there,
    beside characters of UTF-8, and what is a control there is replaced."""
    path = tmp_path / "latin"
    text = b"a plain line of text\ncaf\xe9 \xdf\n\xc3\xa9t\xc3\xa9\nodd \x93 byte\n"
    path.write_bytes(text * 20)

    assert lines(path)[:4] == ["a plain line of text", "café ß", "été", "odd \ufffd byte"]


def test_utf_16_is_known_by_its_mark() -> None:
    """Without one, or with no text behind it, it is binary."""
    assert is_utf16("\ufeffline\n".encode("utf-16-le"))
    assert is_utf16("\ufeffline\n".encode("utf-16-be")[:-1])
    assert not is_utf16("line\n".encode("utf-16-le"))
    assert not is_utf16(b"\xff\xfe\0\0l\0\0\0")  # UTF-32
    assert not is_utf16(b"\xff\xfe" + b"\0\xd8" * 40)
    assert not is_utf16(b"line")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    """The first line starts with its first letter."""
    path = tmp_path / "bom"
    path.write_bytes(b"\xef\xbb\xbffirst\n")

    assert lines(path) == ["first"]


@pytest.mark.parametrize(
    ("head", "binary"),
    [
        (b"", False),
        (b"plain", False),
        ("日本語のテキスト".encode(), False),
        ("日本語".encode()[:-1], False),
        (b"one \xe9 in a long enough line of plain text", False),
        (b"\x00", True),
        (b"text and then\x00", True),
        (b"\x7fELF\x02\x01\x01\x00", True),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(128, 256)), True),
        ("Привет, мир".encode("koi8-r"), True),
        ("text".encode("utf-16"), True),
        (random.Random(1).randbytes(8192), True),
    ],
)
def test_is_binary(head: bytes, binary: bool) -> None:
    """A NUL, or more than a tenth of bytes that are no UTF-8; a cut last character is neither."""
    assert is_binary(head) is binary


def test_binary_files_are_refused_by_name_and_size(tmp_path: Path) -> None:
    """The message tells what the file is and how big."""
    path = tmp_path / "logo.png"
    path.write_bytes(b"\x89PNG\0" + b"x" * 4091)

    with pytest.raises(BinaryFileError) as refused:
        blocks(path)
    assert str(refused.value) == "binary file: logo.png (4,096 bytes)"


@pytest.mark.parametrize("size", [99, 100, 101, 5000])
def test_the_budget_ends_the_reading(small_chunks: None, tmp_path: Path, size: int) -> None:
    """No more bytes are read than allowed; a file of exactly that size is not cut."""
    path = tmp_path / "text"
    path.write_bytes(b"0123456789abcdef01234567\n" * (size // 25) + b"x" * (size % 25))

    found, cut = blocks(path, budget=100)
    assert cut is (size > 100)
    shown = "\n".join(block.text for block in found)
    assert len(shown) <= 100
    if cut:
        assert shown == "\n".join(["0123456789abcdef01234567"] * 4)


def test_a_long_line_at_the_budget_is_dropped(small_chunks: None, tmp_path: Path) -> None:
    """A line whose end was not reached has no length, so it is not given."""
    path = tmp_path / "text"
    path.write_bytes(b"short\n" + b"x" * 500)

    found, cut = blocks(path, budget=100)
    assert [block.text for block in found] == ["short"]
    assert cut


@pytest.mark.parametrize("end", [b"b\nc\n", b"b\nc", b"b\n\n", b"\n", b""])
@pytest.mark.parametrize("size", [35, 36, 37, 38, 39, 40, 41])
def test_what_follows_a_long_line(
    small_chunks: None, tmp_path: Path, size: int, end: bytes
) -> None:
    """Lines that end the file in the chunk in which a long one ends, and no line more."""
    path = tmp_path / "text"
    path.write_bytes(b"x" * size + b"\n" + end)

    assert lines(path)[1:] == formats.split_lines(end.decode())


@pytest.mark.parametrize("tail", [b"\n", b"\r\n", b""])
def test_a_huge_line_takes_little_memory(tmp_path: Path, tail: bytes) -> None:
    """Of 24 MiB in one line only the start is kept; its length is right to the character."""
    path = tmp_path / "line"
    with path.open("wb") as file:
        for _ in range(24):
            file.write("é".encode() * (MIB // 2))
        file.write(tail)

    tracemalloc.start()
    found, cut = blocks(path, budget=64 * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert [block.length for block in found] == [12 * MIB]
    assert not cut
    assert peak < 2 * MIB
