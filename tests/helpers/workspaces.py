"""Folders for tests of what looks at them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from triplepoint.runtime.evidence.catalog import Catalog
from triplepoint.runtime.evidence.reading import Texts
from triplepoint.tools import Policy, Workspace


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files by path, with their folders."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def catalog_of(root: Path, policy: Policy | None = None) -> Catalog:
    """The catalog of a folder."""
    workspace = Workspace(root)
    made = Catalog(workspace, policy, Texts(workspace))
    made.refresh()
    return made
