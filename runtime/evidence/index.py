"""An inverted index of text chunks by word, in a file of SQLite's FTS5.

    CACHE/evidence/<digest of the folder's path>.sqlite

It holds words and offsets, no text: what is shown is read from the files. A text is stored by its
content, so one that is moved or copied is not indexed again. It may be removed at any time;
one that is damaged or of another version is made anew, one that another process writes to is read
as it was. No fault of it is an error: then there is no index, and files are scanned.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ...arguments import user_folder
from ...errors import SettingError, ToolError
from ..files import make_folder, private_opener
from .catalog import Catalog
from .reading import Key, Texts
from .words import Terms, indexed, is_dense, stem

VERSION = 1
ROWS = 16  # lines of a chunk
MAX_BYTES = 256 << 20  # of one index
MAX_ALL = 1 << 30  # of all of them; the ones that were not used for longest go first
MAX_TEXT = 32 << 20  # bytes of one file that are read into it
BATCH = 1 << 20  # characters between two commits
DEAD = 0.5  # share of chunks that no file has any more at which it is made anew
FEW_CHUNKS = 1000  # below which that does not matter
BUSY = 0.05  # seconds that a question waits for another process
PAGE = 4096
_TOKEN = re.compile(r"[^\W_]+")

_TABLES = f"""
CREATE TABLE file(path TEXT PRIMARY KEY, size INT, changed INT, inode INT, content INT);
CREATE TABLE content(id INTEGER PRIMARY KEY, digest BLOB UNIQUE, chunks INT, plain INT);
CREATE TABLE chunk(id INTEGER PRIMARY KEY, content INT, line INT, start INT, length INT);
CREATE VIRTUAL TABLE words USING fts5(body, content='', tokenize="unicode61 remove_diacritics 0");
CREATE VIRTUAL TABLE vocabulary USING fts5vocab('words', 'row');
PRAGMA user_version = {VERSION};
"""


@dataclass(frozen=True)
class Chunk:
    """A chunk of text that contains words of a question."""

    paths: tuple[str, ...]
    """Paths of the files that contain the chunk."""
    line: int
    """Number of its first line."""
    start: int
    """Byte offset in each file."""
    length: int
    """Length in bytes; 0: offsets are unknown, so the file is read whole."""


def cache_folder() -> Path:
    """Return the folder of the indexes.

    Raises:
        SettingError: the user's cache folder is unknown.
    """
    return user_folder("cache") / "evidence"


class Index:
    """The index of one workspace. Safe to use from several threads and processes.

    Attributes:
        file: path of the database; None if the cache cannot be written.
    """

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self.file: Path | None = None
        self._lock = threading.RLock()
        self._open: sqlite3.Connection | None = None
        self._known: dict[str, tuple[Key, int]] = {}
        self._paths: dict[int, list[str]] = {}
        self._opened = 0  # inode of the file that is open
        self._seen = -1  # PRAGMA data_version of what is known
        self._split: tuple[tuple[int, int], tuple[set[str], list[str]]] = (-1, -1), (set(), [])
        self._full = False
        name = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        with contextlib.suppress(OSError, SettingError):
            folder = folder or cache_folder()
            make_folder(folder)
            self.file = folder / f"{name}.sqlite"
            _prune(folder, self.file)

    def close(self) -> None:
        """Close the index file."""
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._open = None

    def remove(self) -> None:
        """Remove the index file, for instance because it is damaged."""
        with self._lock:
            self.close()
            self._known, self._paths, self._seen = {}, {}, -1
            for end in ("", "-wal", "-shm", "-journal"):
                if self.file is not None:
                    with contextlib.suppress(OSError):
                        os.unlink(f"{self.file}{end}")

    # ------------------------------------------------------------------------------ asking

    def fresh(self, catalog: Catalog) -> tuple[set[str], list[str]]:
        """Split the catalog's files into those with an up-to-date index entry, and all others."""
        with self._lock:
            try:
                self._load(self._connection())
            except sqlite3.Error as error:
                self._failed(error)
            state = catalog.version, self._seen
            if self._split[0] != state:
                known, files = self._known, catalog.files
                new = [p for p, key in files.items() if p not in known or known[p][0] != key]
                self._split = state, (files.keys() - new, new)
            return self._split[1]

    def find(
        self, terms: Terms, fresh: set[str], but: set[str], limit: int
    ) -> tuple[list[Chunk], dict[str, int], int]:
        """Return the best chunks for a question, chunk counts by word, and the number of chunks.

        Args:
            terms: of the question.
            fresh, but: files to search, and files to leave out.
            limit: maximum number of chunks.
        """
        with self._lock:
            try:
                connection = self._connection()
                total = connection.execute("SELECT max(id) FROM chunk").fetchone()[0] or 0
                chunks: list[Chunk] = []
                # More than are wanted: of some the files are gone.
                rows = connection.execute(
                    "SELECT c.content, c.line, c.start, c.length FROM (SELECT rowid, rank FROM "
                    "words WHERE words MATCH ? ORDER BY rank LIMIT ?) f "
                    "JOIN chunk c ON c.id = f.rowid ORDER BY f.rank, c.id",
                    (_match(terms, connection) or '""', 2 * limit),
                )
                for content, *where in rows:
                    here = self._paths.get(content, ())
                    if paths := tuple(p for p in here if p in fresh and p not in but):
                        chunks.append(Chunk(paths, *where))
                return chunks[:limit], _frequencies(terms, connection), total
            except sqlite3.Error as error:
                self._failed(error)
                return [], {}, 0

    # ---------------------------------------------------------------------------- building

    def update(self, catalog: Catalog, texts: Texts, late: Callable[[], bool]) -> bool:
        """Index the files that are new or changed; return whether all are indexed now.

        Args:
            catalog: the files.
            texts: their texts.
            late: once it returns True, the remaining files are left to the next call.
        """
        if self.file is None or self._full:
            return False
        try:
            with closing(self._connect(1.0)) as connection:
                done = self._update(connection, catalog, texts, late)
                rows = connection.execute(
                    "SELECT sum(chunks), (SELECT max(id) FROM chunk) FROM content "
                    "WHERE id IN (SELECT content FROM file)"
                ).fetchone()
            live, all_chunks = rows[0] or 0, rows[1] or 0
            if done and all_chunks > FEW_CHUNKS and live < all_chunks * (1 - DEAD):
                self.remove()
                return False
            return done
        except sqlite3.Error as error:
            self._full = "full" in str(error)
            self._failed(error)
        except OSError:
            pass
        return False

    def _update(
        self,
        connection: sqlite3.Connection,
        catalog: Catalog,
        texts: Texts,
        late: Callable[[], bool],
    ) -> bool:
        rows = connection.execute("SELECT path, size, changed, inode FROM file")
        known = {_path(path): (size, changed, inode) for path, size, changed, inode in rows}
        files = dict(catalog.files)
        with connection:
            if catalog.whole and (gone := known.keys() - files.keys()):
                names = ((os.fsencode(path),) for path in gone)
                connection.executemany("DELETE FROM file WHERE path = ?", names)
        waiting = [path for path, key in files.items() if known.get(path) != key]
        while waiting:
            size = 0
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                while waiting and size < BATCH:
                    if late():
                        return False
                    size += self._take(connection, waiting.pop(), files, texts)
        return True

    def _take(
        self, connection: sqlite3.Connection, path: str, files: dict[str, Key], texts: Texts
    ) -> int:
        """Index one file; return its cost in characters."""
        content, size = None, 0
        with contextlib.suppress(ToolError):  # no text, gone, or not ours to read
            text = texts.get(path, MAX_TEXT)
            size = len(text.whole)
            content = _content(connection, text.whole, files[path][0])
        connection.execute(
            "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?)",
            (os.fsencode(path), *files[path], content),
        )
        return size + 200

    # -------------------------------------------------------------------------- connection

    def _connection(self) -> sqlite3.Connection:
        if self._open is not None and self._inode() != self._opened:
            self.close()  # another process has made it anew
        if self._open is None:
            self._open = self._connect(BUSY)
            self._opened, self._seen = self._inode(), -1
        return self._open

    def _inode(self) -> int:
        try:
            return os.stat(self.file).st_ino if self.file is not None else 0
        except OSError:
            return 0

    def _connect(self, timeout: float) -> sqlite3.Connection:
        if self.file is None:
            raise sqlite3.OperationalError("there is no place for it")
        try:
            os.close(private_opener(str(self.file), os.O_RDWR | os.O_CREAT))
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from None
        connection = sqlite3.connect(self.file, timeout, check_same_thread=False)
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, VERSION):
                raise sqlite3.DatabaseError(f"it is of version {version}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")  # what a crash tears is made anew
            connection.execute(f"PRAGMA max_page_count = {MAX_BYTES // PAGE}")
            if not version:
                _make(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _load(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._seen:
            return
        known: dict[str, tuple[Key, int]] = {}
        paths: dict[int, list[str]] = {}
        rows = connection.execute("SELECT path, size, changed, inode, content FROM file")
        for name, size, changed, inode, content in rows:
            path = _path(name)
            known[path] = (size, changed, inode), content
            if content is not None:
                paths.setdefault(content, []).append(path)
        self._known, self._paths, self._seen = known, paths, version

    def _failed(self, error: sqlite3.Error) -> None:
        """Handle a database error: keep a locked or full index, remove it after any other error."""
        message = str(error)
        if "locked" in message or "busy" in message or "full" in message or self.file is None:
            return
        self.remove()


def _make(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        # Another process may have been quicker.
        if not connection.execute("PRAGMA user_version").fetchone()[0]:
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)


def _path(name: bytes | str) -> str:
    return os.fsdecode(name)


def _content(connection: sqlite3.Connection, whole: str, size: int) -> int:
    data = whole.encode("utf-8", "replace")
    digest = hashlib.blake2b(data, digest_size=16).digest()
    # Where the text is not the file's bytes, as in packed ones, a place in it says nothing.
    plain = size - len(data) in (0, 1)  # without the last line end
    row = connection.execute("SELECT id, plain FROM content WHERE digest = ?", (digest,)).fetchone()
    if row is not None:
        if row[1] and not plain:
            connection.execute("UPDATE content SET plain = 0 WHERE id = ?", (row[0],))
            connection.execute("UPDATE chunk SET length = 0 WHERE content = ?", (row[0],))
        return row[0]
    made = connection.execute(
        "INSERT INTO content(digest, plain) VALUES (?, ?)", (digest, plain)
    ).lastrowid
    assert made is not None
    count = 0
    for line, part, start, length in chunked(whole):
        row = made, line, start, length if plain else 0
        rowid = connection.execute(
            "INSERT INTO chunk(content, line, start, length) VALUES (?, ?, ?, ?)", row
        ).lastrowid
        connection.execute("INSERT INTO words(rowid, body) VALUES (?, ?)", (rowid, indexed(part)))
        count += 1
    connection.execute("UPDATE content SET chunks = ? WHERE id = ?", (count, made))
    return made


def chunked(whole: str) -> Iterator[tuple[int, str, int, int]]:
    """Split a text into chunks; yield first line number, text, byte offset and byte length."""
    lines, start = whole.split("\n"), 0
    for first in range(0, len(lines), ROWS):
        part = "\n".join(lines[first : first + ROWS])
        length = (len(part) if part.isascii() else len(part.encode("utf-8", "replace"))) + 1
        yield first + 1, part, start, length
        start += length


def _match(terms: Terms, connection: sqlite3.Connection) -> str:
    """Build the FTS5 query: each word itself, by its stem, and as an indexed abbreviation.

    An exact match counts twice, since the stem matches, too.
    """
    parts: list[str] = []
    for word in terms.telling:
        parts.append(_phrase(word))
        if is_dense(word):
            continue
        if len(start := stem(word)) < len(word):
            parts.append(f"{_phrase(start)} *")
    if short := list(terms.short):
        marks = ",".join("?" * len(short))
        query = f"SELECT term FROM vocabulary WHERE term IN ({marks})"
        parts += (_phrase(term) for (term,) in connection.execute(query, short))
    parts += (_phrase(one) for one in terms.compounds)
    return " OR ".join(part for part in parts if part != '""')


def _phrase(text: str) -> str:
    """Quote a text as an FTS5 phrase, whatever characters it contains."""
    return f'"{" ".join(_TOKEN.findall(indexed(text)))}"'


def _frequencies(terms: Terms, connection: sqlite3.Connection) -> dict[str, int]:
    found: dict[str, int] = {}
    for word in (*terms.weights, *terms.compounds):
        if word in terms.compounds or is_dense(word):
            phrase = _phrase(word)
            query = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT 5000)"
            found[word] = connection.execute(query, (phrase,)).fetchone()[0]
        else:
            start = stem(word)
            query = "SELECT sum(doc) FROM vocabulary WHERE term >= ? AND term < ?"
            last = start + ("\U0010ffff" if len(start) < len(word) else "\0")
            found[word] = connection.execute(query, (start, last)).fetchone()[0] or 0
    return found


def _prune(folder: Path, keep: Path) -> None:
    """Remove the least recently used indexes until all together are small enough."""
    found = [(one.stat().st_mtime, one.stat().st_size, one) for one in folder.glob("*.sqlite*")]
    size = sum(nbytes for _, nbytes, _ in found)
    for _, nbytes, one in sorted(found):
        if size <= MAX_ALL:
            return
        if not one.name.startswith(keep.name):
            one.unlink(missing_ok=True)
            size -= nbytes
