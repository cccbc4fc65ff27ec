"""Lines that share most with a question."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from helpers.workspaces import catalog_of, write

from triplepoint.runtime.evidence import ranking
from triplepoint.runtime.evidence.index import Index
from triplepoint.runtime.evidence.question import read
from triplepoint.runtime.evidence.ranking import Ranked, Ranking
from triplepoint.runtime.evidence.reading import Texts

LOG = "".join(f"2026-03-14 10:{n % 60:02} INFO worker-{n % 7} job {n} done\n" for n in range(3000))
FILES = {
    "config/mail.ini": "[smtp]\nhost = mail.example.org\nport = 2525\n[imap]\nport = 993\n",
    "config/web.ini": "[http]\nport = 8080\n",
    "app.py": "class Board:\n    def __init__(\n        self,\n        width: int = 30,\n    ):\n",
    "notes/zh.txt": "说明\n负责人:陈美玲\n",
    "notes/de.txt": "Die Sicherung läuft um 22:45 Uhr.\nDer Drucker steht im Flur.\n",
    "app.log": LOG + "2026-03-14 11:00 FATAL worker-3 disk full\n" + LOG,
}


@pytest.fixture(params=["scan", "index"])
def ranker(tmp_path: Path, request: pytest.FixtureRequest) -> Ranking:
    write(tmp_path / "work", FILES)
    catalog = catalog_of(tmp_path / "work")
    texts = Texts(catalog.workspace)
    if request.param == "scan":
        return Ranking(catalog, texts, None)
    index = Index(catalog.workspace.root, tmp_path / "cache")
    assert index.update(catalog, texts, lambda: False)
    return Ranking(catalog, texts, index)


def rank(ranker: Ranking, text: str, seconds: float = 60.0) -> Ranked:
    return ranker.rank(read(text), (), time.monotonic() + seconds)


@pytest.mark.parametrize(
    ("text", "path", "number"),
    [
        ("Which smtp port?", "config/mail.ini", 3),
        ("imap port", "config/mail.ini", 5),
        ("which port does the web server use", "config/web.ini", 2),
        ("Wann läuft die Sicherung?", "notes/de.txt", 1),
        ("wo stehen die drucker", "notes/de.txt", 2),
        ("谁是负责人?", "notes/zh.txt", 2),
        ("How wide is a board, its width?", "app.py", 4),
        ("why was the disk full?", "app.log", 3001),
        ("what went wrong with worker-3", "app.log", 3001),
        ("what is mail.example.org", "config/mail.ini", 2),
    ],
)
def test_best_line(ranker: Ranking, text: str, path: str, number: int) -> None:
    """Keys under their headings, other forms of words, other scripts, failures: index or not."""
    best = rank(ranker, text).lines[0]
    assert (best.path, best.number) == (path, number)
    assert best.text == FILES[path].split("\n")[number - 1]


def test_strength(ranker: Ranking) -> None:
    """How much of a question one place has."""
    assert rank(ranker, "Which smtp port?").strength > 0.9
    assert rank(ranker, "What is the capital of Italy?").strength == 0
    assert 0 < rank(ranker, "smtp giraffe zebra elephant").strength < 0.5


def test_lines_alike_do_not_crowd_out(ranker: Ranking) -> None:
    """Of lines that differ in numbers alone, few come before others."""
    lines = rank(ranker, "what did worker-3 do").lines
    kinds = [line.text[-25:] for line in lines[:8]]
    assert any("FATAL" in kind or "full" in kind for kind in kinds)


def test_out_of_time(tmp_path: Path) -> None:
    """What was not searched is counted."""
    write(tmp_path, FILES)
    catalog = catalog_of(tmp_path)
    found = rank(Ranking(catalog, Texts(catalog.workspace), None), "which disk was full", -1)
    assert found.unsearched == len(FILES)
    assert found.searched == 0


def test_changed_since_it_was_indexed(
    tmp_path: Path, ranker: Ranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line is never told from a file's earlier text."""
    (tmp_path / "work" / "config" / "mail.ini").write_text("# moved\n\n[smtp]\nport = 26\n")
    best = rank(ranker, "Which smtp port?").lines[0]
    assert (best.number, best.text) == (4, "port = 26")


def test_large_files_are_looked_at_in_part(
    ranker: Ranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of very many lines with a word those with most of them are looked at."""
    monkeypatch.setattr(ranking, "LINES", 5)
    found = rank(ranker, "worker-3 disk fatal")
    assert found.lines[0].number == 3001
    assert len(found.lines) <= 10
