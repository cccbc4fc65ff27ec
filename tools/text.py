"""Reads text files of any size in bounded memory."""

from __future__ import annotations

import codecs
import errno
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import FileIO
from typing import IO, cast

from ..errors import ToolError
from .formats import MAX_HIT, binary_file
from .paths import shown

HEAD = 8 * 1024  # bytes that decide whether a file is text
MAX_INVALID = 0.10  # share of bytes in the head that may be no UTF-8; Latin-1 prose has about 5 %
CHUNK = 128 * 1024  # bytes a read
LONG_LINE = 64 * 1024  # bytes; of a longer line only the start is read
OVERLAP = 4096  # characters of one that are looked at twice; no literal pattern is as long
BUDGET = 64 * 1024 * 1024  # bytes read of one file
PACKED = (".gz", ".xz", ".zst")
MAX_DICTIONARY = 128 << 20  # bytes that unpacking .xz may take; its own header asks for them


LATIN = "triplepoint.latin1"
"""Name of the decoding error handler `_as_latin`, for `errors` of `bytes.decode`."""


def _as_latin(error: UnicodeError) -> tuple[str, int]:
    """Decode bytes that are not UTF-8 as Latin-1 letters and signs, else as U+FFFD."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    wrong = error.object[error.start : error.end]
    return "".join(chr(byte) if byte > 0xA0 else "\ufffd" for byte in wrong), error.end


codecs.register_error(LATIN, _as_latin)


class BinaryFileError(ToolError):
    """The file is not text."""


@dataclass(frozen=True)
class Block:
    """Some whole lines, or the beginning of one that is too long to buffer."""

    text: str  # lines joined by \n, without the last line end
    length: int | None = None  # characters of the one long line of which `text` is the start
    hit: tuple[int, str] | None = None  # where in that line an excerpt with a hit starts, and it

    def lines(self) -> list[str]:
        """Return the lines without their ends."""
        return [line.removesuffix("\r") for line in self.text.split("\n")]

    def count(self) -> int:
        """Return the number of lines in the block."""
        return self.text.count("\n") + 1


class TextFile:
    """The lines of an open file, read once from the start.

    A byte order mark is dropped; behind that of UTF-16 the text is read as that. A byte that is no
    UTF-8 is the letter of Latin-1 if it is one there, else U+FFFD. Everything else stays as it is.
    """

    find: Callable[[str], bool] | None = None
    """Predicate to apply to the whole of a line that is too long to buffer."""

    def __init__(self, file: FileIO, path: str, budget: int = BUDGET) -> None:
        """Read the head of the file.

        Args:
            file: the open file; the caller closes it.
            path: its name, for messages.
            budget: how many bytes to read at most.

        Raises:
            BinaryFileError: the file is no text.
            ToolError: it cannot be read.
        """
        self.size = os.fstat(file.fileno()).st_size
        self.cut = False  # the budget ended before the file did
        self.read = 0  # bytes so far
        self._file = file
        self._path = path
        self._budget = budget
        self._wide: codecs.IncrementalDecoder | None = None
        self._head = self._next()
        if is_utf16(self._head[:HEAD]):
            self._wide = codecs.getincrementaldecoder("utf-16")("replace")
            self._head = self._wide.decode(self._head).encode()
        elif is_binary(self._head[:HEAD]):
            raise BinaryFileError(binary_file(shown(path), self.size))
        self._head = self._head.removeprefix(codecs.BOM_UTF8)

    def blocks(self) -> Iterator[Block]:
        """Yield the text in blocks; sets `cut` when the budget is used up."""
        rest, chunk = b"", self._head
        while chunk:
            data = rest + chunk
            whole, end, rest = data.rpartition(b"\n")
            if end:
                yield Block(whole.decode("utf-8", LATIN))
            if len(rest) > LONG_LINE:
                long, rest = self._long_line(rest)
                if long is not None:
                    yield long
            chunk = self._next()
        if rest and not self.cut:
            yield Block(rest.removesuffix(b"\n").decode("utf-8", LATIN))

    def _long_line(self, start: bytes) -> tuple[Block | None, bytes]:
        """Skip the rest of a long line; return its block (None: budget) and what follows."""
        decoder = codecs.getincrementaldecoder("utf-8")(LATIN)
        tail = text = decoder.decode(start)
        hit = self.find and first_hit(self.find, text)
        length = len(text)
        last = start[-1:]
        while chunk := self._next():
            part, end, rest = chunk.partition(b"\n")
            tail = tail[-OVERLAP:] + (piece := decoder.decode(part, final=bool(end)))
            length += len(piece)
            hit = hit or (self.find and first_hit(self.find, tail, length - len(tail)))
            last = part[-1:] or last
            if end:
                return Block(text, length - (last == b"\r"), hit), rest
        if self.cut and hit is None:
            return None, b""
        return Block(text, length + len(decoder.decode(b"", final=True)), hit), b""

    def _next(self) -> bytes:
        """Return the next bytes, as UTF-8; none at the end of the file or budget."""
        while True:
            chunk = self._next_raw()
            if self._wide is None:
                return chunk
            text = self._wide.decode(chunk, final=not chunk)
            if text or not chunk:
                return text.encode()

    def _next_raw(self) -> bytes:
        if self.read >= self._budget:
            # Growing or endless files have no size to compare with: one more byte decides.
            self.cut = self.cut or bool(self._read(1))
            return b""
        chunk = self._read(min(CHUNK, self._budget - self.read))
        self.read += len(chunk)
        return chunk

    def _read(self, size: int) -> bytes:
        try:
            # None: nothing there yet, in a file that only looks regular (some in /proc wait).
            return self._file.read(size) or b""
        except OSError as error:
            raise ToolError(f"cannot read {shown(self._path)}: {error.strerror}") from None


class _Xz:
    """Unpacks .xz with a bound on its memory, which `lzma.open` does not have."""

    def __init__(self, file: IO[bytes]) -> None:
        import lzma  # not at import time, like the others: few files are packed

        self._file = file
        self._one = lzma.LZMADecompressor(memlimit=MAX_DICTIONARY)

    def read(self, size: int = CHUNK, /) -> bytes:
        while not self._one.eof:
            data = self._file.read(CHUNK) if self._one.needs_input else b""
            if self._one.needs_input and not data:
                break
            if out := self._one.decompress(data, size):
                return out
        return b""


class _Unpacked(FileIO):
    """What a packed file holds, read on through the descriptor of that file."""

    def __init__(self, file: FileIO, path: str) -> None:
        super().__init__(file.fileno(), "rb", closefd=False)
        raw = cast("IO[bytes]", file)
        if path.endswith(".gz"):
            import gzip

            self._inside = gzip.GzipFile(fileobj=raw)
        elif path.endswith(".xz"):
            self._inside = _Xz(raw)
        else:
            try:  # whatever module for it is there; none is installed for it
                import zstandard  # pyright: ignore[reportMissingImports]
            except ImportError:
                raise ToolError("no module for .zst is installed") from None
            unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_DICTIONARY)
            self._inside = unpacker.stream_reader(raw, read_across_frames=True)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes of the text."""
        try:
            return self._inside.read(-1 if size is None else size)
        except Exception as error:  # each module has errors of its own
            raise OSError(errno.EIO, f"the packed file is damaged: {error}") from None


def unpacked(file: FileIO, path: str) -> FileIO:
    """Return the decompressed contents of a file that ends in one of `PACKED`, else the file."""
    return _Unpacked(file, path) if path.endswith(PACKED) else file


def first_hit(find: Callable[[str], bool], text: str, at: int = 0) -> tuple[int, str] | None:
    """Return the start of an excerpt with the first hit, and the excerpt; None without one."""
    if not find(text):
        return None
    end = bisect_left(range(len(text)), True, key=lambda end: find(text[:end]))
    start = max(0, end - MAX_HIT // 2) if at or end > MAX_HIT else 0
    return at + start, text[start : start + MAX_HIT]


def is_utf16(head: bytes) -> bool:
    """Return whether a file's first bytes are UTF-16 text with a byte order mark."""
    if not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    text = head.decode("utf-16", "replace")
    return "\0" not in text and text.count("\ufffd") <= 1 + MAX_INVALID * len(text)


def is_text(head: bytes) -> bool:
    """Return whether a file with these first bytes can be read as text."""
    return is_utf16(head) or not is_binary(head)


def is_binary(head: bytes) -> bool:
    """Return whether a file's first bytes are not UTF-8 text, or nearly so."""
    if b"\0" in head:
        return True
    valid = codecs.getincrementaldecoder("utf-8")("ignore").decode(head)
    # The head may end inside a character: up to three bytes that are not wrong yet.
    return len(head) - len(valid.encode()) > 3 + MAX_INVALID * len(head)
