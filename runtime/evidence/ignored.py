"""Rules for paths that a walk skips: `.gitignore`, and folders of generated files."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from ...errors import ToolError
from ...tools.globs import glob_matcher
from ...tools.search import SKIPPED_FOLDERS

MAX_RULES = 2000  # of one .gitignore

MADE = frozenset(
    (*SKIPPED_FOLDERS, ".hg", ".svn", "venv", ".tox", ".nox", ".eggs", ".mypy_cache", ".gradle",
     ".ruff_cache", ".pytest_cache", ".terraform", ".next", "bower_components")
)  # fmt: skip
"""Names of folders that only programs write to."""
# Also a person's words, so these count only beside what builds them, or with the tag of a cache.
_BUILT = frozenset(("build", "dist", "target", "out", "_build"))
_BUILDERS = frozenset(
    ("pyproject.toml", "setup.py", "setup.cfg", "package.json", "Cargo.toml", "CMakeLists.txt",
     "pom.xml", "build.gradle", "build.gradle.kts", "meson.build", "conf.py")
)  # fmt: skip


def is_made(name: str, siblings: Collection[str]) -> bool:
    """Return whether a folder holds generated files.

    Args:
        name: of the folder.
        siblings: the names in its parent folder.
    """
    return name in MADE or (name in _BUILT and not _BUILDERS.isdisjoint(siblings))


@dataclass(frozen=True)
class _Rule:
    fits: Callable[[str], bool]
    by_path: bool
    folders: bool
    keeps: bool


@dataclass
class Rules:
    """The rules of one `.gitignore`; the last rule that matches a path decides."""

    base: str = ""
    """Path of the file's folder with a slash at its end; empty for the workspace's root."""
    _rules: list[_Rule] = field(default_factory=list)
    _names: set[str] = field(default_factory=set)
    _ends: set[str] = field(default_factory=set)
    _mixed: bool = False

    @classmethod
    def of(cls, lines: Iterable[str], base: str) -> Rules:
        """Parse the lines of a `.gitignore`; rules that are not understood are skipped."""
        rules = cls(base)
        for _, line in zip(range(MAX_RULES), lines, strict=False):
            rules._add(re.sub(r"(?<!\\)\s+$", "", line))
        return rules

    def _add(self, line: str) -> None:
        if not line or line.startswith("#"):
            return
        keeps = line.startswith("!")
        pattern = line[keeps:].removeprefix("\\")
        folders, pattern = pattern.endswith("/"), pattern.rstrip("/")
        by_path = "/" in pattern
        pattern = pattern.removeprefix("/")
        plain = not keeps and not by_path and not folders
        # Nearly all rules are names and endings: a set finds those of a large folder at once.
        if plain and not re.search(r"[*?\[\\]", pattern):
            self._names.add(pattern)
        elif plain and re.fullmatch(r"\*\.[\w-]+", pattern):
            self._ends.add(pattern[1:])
        else:
            try:
                self._rules.append(_Rule(glob_matcher(pattern), by_path, folders, keeps))
            except ToolError:
                return
        self._mixed = self._mixed or keeps

    def says(self, path: str, is_folder: bool) -> bool | None:
        """Return whether a path is ignored; None if no rule matches it."""
        below = path.removeprefix(self.base)
        name = below.rpartition("/")[2]
        found: bool | None = None
        if name in self._names or (self._ends and f".{name.rpartition('.')[2]}" in self._ends):
            found = True
            if not self._mixed:
                return True
        for rule in self._rules:
            if (is_folder or not rule.folders) and rule.fits(below if rule.by_path else name):
                found = not rule.keeps
        return found


def is_ignored(rules: Iterable[Rules], path: str, is_folder: bool) -> bool:
    """Return whether a path is ignored: the innermost folder with a matching rule decides."""
    for one in rules:
        if (says := one.says(path, is_folder)) is not None:
            return says
    return False
