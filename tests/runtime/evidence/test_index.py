"""The index of words."""

from __future__ import annotations

import gzip
import os
import sqlite3
import stat
import threading
from pathlib import Path

import pytest
from helpers.workspaces import catalog_of, write

from triplepoint.runtime.evidence import index as index_module
from triplepoint.runtime.evidence.catalog import Catalog
from triplepoint.runtime.evidence.index import ROWS, Index, chunked
from triplepoint.runtime.evidence.reading import Texts
from triplepoint.runtime.evidence.words import terms

LONG = "\n".join(f"line {n} has nothing" for n in range(100))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "work", {
        "a.ini": "[mail]\nhost = smtp.example.org\n",
        "deep/b.txt": f"{LONG}\nZielplatte ist voll\n",
        "zh.txt": "谁是负责人\n负责人:陈美玲\n",
    })  # fmt: skip
    return tmp_path / "work"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def updated(catalog: Catalog, cache: Path) -> Index:
    index = Index(catalog.workspace.root, cache)
    assert index.update(catalog, Texts(catalog.workspace), lambda: False)
    return index


def found(index: Index, catalog: Catalog, question: str) -> list[tuple[str, int]]:
    fresh, _ = index.fresh(catalog)
    chunks, _, _ = index.find(terms(question), fresh, set(), 10)
    return [(path, chunk.line) for chunk in chunks for path in chunk.paths]


def chunks_of(index: Index) -> int:
    return index.find(terms("host"), set(), set(), 1)[2]


def test_chunks_are_where_they_say() -> None:
    """Each chunk is a whole number of lines, at its place in bytes."""
    whole = "\n".join(f"zeile äö {n}" for n in range(40))
    data = f"{whole}\n".encode()
    parts = list(chunked(whole))
    assert [line for line, *_ in parts] == [1, 1 + ROWS, 1 + 2 * ROWS]
    for _, part, start, length in parts:
        assert data[start : start + length].decode() == part + "\n"


def test_find(root: Path, cache: Path) -> None:
    """Words, other forms of them, pairs of characters and compounds are found, the rest is not."""
    catalog = catalog_of(root)
    index = updated(catalog, cache)
    assert found(index, catalog, "which host") == [("a.ini", 1)]
    assert found(index, catalog, "the Zielplatten") == [("deep/b.txt", 97)]
    assert found(index, catalog, "负责人是谁") == [("zh.txt", 1)]
    assert found(index, catalog, "smtp.example.org") == [("a.ini", 1)]
    assert found(index, catalog, 'quoted "a b" OR * NEAR(') == []
    assert found(index, catalog, "zebra") == []
    _, counts, total = index.find(terms("nothing host"), index.fresh(catalog)[0], set(), 5)
    assert total == 9
    assert counts["host"] == 1
    assert counts["nothing"] == 7


def test_only_changes_are_read(root: Path, cache: Path) -> None:
    """What is as it was is not read again, nor is a copy; what changed or went is not found."""
    catalog = catalog_of(root)
    index = updated(catalog, cache)
    chunks = chunks_of(index)
    write(root, {"copy.ini": (root / "a.ini").read_text(), "a.ini": "port = 25\n"})
    (root / "zh.txt").unlink()
    catalog.refresh(deep=True)
    fresh, new = index.fresh(catalog)
    assert sorted(new) == ["a.ini", "copy.ini"]
    assert fresh == {"deep/b.txt"}

    assert index.update(catalog, Texts(catalog.workspace), lambda: False)
    assert chunks_of(index) == chunks + 1
    assert found(index, catalog, "host") == [("copy.ini", 1)]
    assert found(index, catalog, "port") == [("a.ini", 1)]
    assert found(index, catalog, "负责人") == []


def test_packed_files_have_no_places(root: Path, cache: Path) -> None:
    """A place in a packed text is none in its file, also where a plain file has the same text."""
    text = (root / "a.ini").read_text()
    catalog = catalog_of(root)
    index = updated(catalog, cache)
    (root / "z.gz").write_bytes(gzip.compress(text.encode()))
    catalog.refresh(deep=True)
    assert index.update(catalog, Texts(catalog.workspace), lambda: False)
    fresh, _ = index.fresh(catalog)
    (chunk,) = index.find(terms("host"), fresh, set(), 5)[0]
    assert set(chunk.paths) == {"a.ini", "z.gz"}
    assert chunk.length == 0


@pytest.mark.parametrize("damage", ["text", "torn", "pages", "version"])
def test_damage_is_mended(root: Path, cache: Path, damage: str) -> None:
    """A damaged index is no error: nothing is found, and the next update makes it anew."""
    catalog = catalog_of(root)
    index = updated(catalog, cache)
    assert index.file is not None
    index.close()
    for end in ("-wal", "-shm"):
        Path(f"{index.file}{end}").unlink(missing_ok=True)
    data = index.file.read_bytes()
    match damage:
        case "text":
            index.file.write_bytes(b"no database at all" * 100)
        case "torn":
            index.file.write_bytes(data[: len(data) // 2])
        case "pages":
            index.file.write_bytes(data[:4096] + os.urandom(len(data) - 4096))
        case _:
            with sqlite3.connect(index.file) as connection:
                connection.execute("PRAGMA user_version = 99")
            connection.close()
    again = Index(root, cache)
    found(again, catalog, "host")
    for _ in range(2):
        if again.update(catalog, Texts(catalog.workspace), lambda: False):
            break
    assert found(again, catalog, "host") == [("a.ini", 1)]


def test_locked(root: Path, cache: Path) -> None:
    """While another process writes, nothing is written, and no error is told."""
    catalog = catalog_of(root)
    index = updated(catalog, cache)
    assert index.file is not None
    other = sqlite3.connect(index.file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    try:
        write(root, {"new.txt": "fresh words\n"})
        catalog.refresh()
        assert found(Index(root, cache), catalog, "host") in ([("a.ini", 1)], [])
        assert not index.update(catalog, Texts(catalog.workspace), lambda: False)
    finally:
        other.execute("ROLLBACK")
        other.close()
    assert index.update(catalog, Texts(catalog.workspace), lambda: False)
    assert found(index, catalog, "fresh") == [("new.txt", 1)]


def test_several_at_once(root: Path, cache: Path) -> None:
    """Those that bring it up to date at the same time do no harm to each other."""
    write(root, {f"many/{n}.txt": f"word{n} and more\n" for n in range(200)})
    catalogs = [catalog_of(root) for _ in range(4)]
    indexes = [Index(root, cache) for _ in catalogs]
    threads = [
        threading.Thread(target=index.update, args=(c, Texts(c.workspace), lambda: False))
        for index, c in zip(indexes, catalogs, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert updated(catalogs[0], cache).fresh(catalogs[0])[1] == []
    assert found(indexes[3], catalogs[3], "word77") == [("many/77.txt", 1)]


def test_bounds(root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not grow beyond its bytes, and old ones of other folders go."""
    monkeypatch.setattr(index_module, "MAX_BYTES", 200_000)
    words = "\n".join(f"{n:x}word{n} {n * 7:x}other{n}" for n in range(30_000))
    write(root, {"big.txt": words})
    catalog = catalog_of(root)
    index = Index(root, cache)
    assert not index.update(catalog, Texts(catalog.workspace), lambda: False)
    assert index.file is not None
    assert index.file.stat().st_size <= 200_000
    index.close()

    monkeypatch.setattr(index_module, "MAX_ALL", 1000)
    updated(catalog_of(root / "deep"), cache)
    assert not index.file.exists()


def test_no_place(root: Path, tmp_path: Path) -> None:
    """Without a cache that can be written there is no index, and no error."""
    (tmp_path / "file").write_text("")
    index = Index(root, tmp_path / "file" / "cache")
    catalog = catalog_of(root)
    assert not index.update(catalog, Texts(catalog.workspace), lambda: False)
    assert index.fresh(catalog) == (set(), list(catalog.files))
    assert index.find(terms("host"), set(), set(), 5) == ([], {}, 0)


def test_private(root: Path, cache: Path) -> None:
    """Only its owner may read it."""
    index = updated(catalog_of(root), cache)
    assert index.file is not None
    assert stat.S_IMODE(index.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


def test_made_anew_when_mostly_dead(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that no file has any more do not stay for ever."""
    monkeypatch.setattr(index_module, "FEW_CHUNKS", 5)
    catalog = catalog_of(root)
    index = updated(catalog, cache)
    (root / "deep" / "b.txt").write_text("short\n")
    catalog.refresh(deep=True)
    assert not index.update(catalog, Texts(catalog.workspace), lambda: False)
    assert index.update(catalog, Texts(catalog.workspace), lambda: False)
    assert chunks_of(index) == 3
    assert found(index, catalog, "short") == [("deep/b.txt", 1)]
