"""Folders that seeded code writes: the same bytes on every machine and in every version."""

from __future__ import annotations

from .office import office
from .shop import shop
from .written import clinica, host, kanban, pi, shipu, werkstatt

FOLDERS = {
    "clinica": clinica,
    "host": host,
    "kanban": kanban,
    "office": office,
    "pi": pi,
    "shipu": shipu,
    "shop": shop,
    "werkstatt": werkstatt,
}
"""By name, what writes the files of a folder."""
