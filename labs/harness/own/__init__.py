"""Folders that seeded code writes: the same bytes on every machine and in every version."""

from __future__ import annotations

from collections.abc import Callable

from .small import pi

FOLDERS: dict[str, Callable[[], dict[str, bytes]]] = {
    "pi": pi,
}
"""By name, what writes the files of a folder."""
