"""Resolves the file and folder names in a question, and finds those that do not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from ...errors import ToolError
from ...tools.paths import clean_path, printable
from .catalog import Catalog
from .question import Question
from .words import DENSE, fold

MAX_NAMED = 3
NEAREST = 3
# A path or name as people write them. What ends a sentence is no part of it.
_NAME = re.compile(r"[\w~@%+=,./-]*[\w/~-]")
_ENDING = re.compile(r"[A-Za-z][A-Za-z0-9]{0,7}")
# Extensions that distinguish a missing file's name from a version, a host or a method.
_KNOWN = frozenset(
    """
    bak bash bat bib c cc cfg cnf conf config cpp crt css csv dat db diff doc docx env err gif go gz
    h hpp htm html ini ipynb j2 java jl jpeg jpg js json jsonl jsx key kt list lock log lua md mo
    ndjson out patch pdf php pl png po pptx properties proto ps1 pub py pyi r rb repo rs rst rules
    service sh socket sql sqlite svg swift tab tar tex timer tmpl toml ts tsv tsx txt xls xlsx xml
    xz yaml yml zip zsh zst
    """.split()  # noqa: SIM905
)
_DENSE_RUN = re.compile(f"[{DENSE}]+")
_PLAIN = 4  # letters of a name without its ending that count as naming it

_IDENTIFIER = re.compile(
    r"\b(?:[A-Za-z]\w*_\w+|[A-Z]{4,}|[A-Za-z]*[a-z][A-Z]\w*|[A-Z]+\d{2,}|\d+(?:\.\d+){2,})\b"
)


@dataclass(frozen=True)
class Missing:
    """A name in the question that does not exist in the workspace."""

    name: str
    """The name as written in the question."""
    nearest: tuple[str, ...] = ()
    """Paths with similar names."""


@dataclass(frozen=True)
class Names:
    """The files and folders of the workspace that a question names."""

    files: tuple[str, ...] = ()
    """Paths of named files, the clearest matches first."""
    folders: tuple[str, ...] = ()
    """Paths of named folders."""
    missing: tuple[Missing, ...] = ()
    """Names that do not exist."""


def named(question: Question, catalog: Catalog) -> Names:
    """Find the files and folders that a question names, and names that do not exist."""
    files: dict[str, int] = {}
    missing: list[Missing] = []
    by_name = catalog.by_name()
    names = written(question.text)
    spoken = set(fold(question.text).split())
    rest = question.text  # where a word may be a name without its ending
    for name in dict.fromkeys(names):
        if "/" in name.strip("/"):  # the parts of a path name nothing else
            rest = rest.replace(name, " ")
        if name.startswith("/"):
            name = catalog.workspace.relative(name)
        if path := _path(name, catalog):
            files.setdefault(path, 0)
        elif ends := _ends_with(name, by_name, catalog):
            for path in ends:
                files.setdefault(path, 1)
        elif _is_name(name):
            missing.append(Missing(printable(name), tuple(_nearest(name, by_name))))
    folders = _folders([*names, *_DENSE_RUN.findall(question.text)], catalog)
    prefixes = {path.rpartition("/")[2].casefold(): f"{path}/" for path in folders}
    for word in _plain_words(rest):
        # A word may be a name only by chance: where several files have it, it says little.
        paths = by_name.get(word, [])
        exact = [path for path in paths if path.rpartition("/")[2].casefold() == word]
        if not exact:  # beside a path it is a word, and a folder's name means what is in that
            paths = [] if 0 in files.values() else paths
            paths = [path for path in paths if path.startswith(prefixes.get(word, ""))]
        for path in exact or paths if len(exact or paths) <= MAX_NAMED else ():
            files.setdefault(path, 2 if exact else 3)
    if re.search(f"[{DENSE}]", question.text):  # no spaces around a name
        for stem, paths in by_name.items():
            if not stem.isascii() and len(stem) >= 2 and stem in question.text.casefold():
                files.update((path, 2) for path in paths if path not in files)

    def common(path: str) -> int:
        """Count the folders of a path that the question has, to choose among equal names."""
        return sum(fold(part) in spoken for part in path.split("/")[:-1])

    order = sorted(files, key=lambda path: (files[path], -common(path), len(path), path))
    # "the swift.conf sample" is swift.conf-sample.
    longer = [path.rpartition("/")[2].casefold() for path in files]
    missing = [m for m in missing if not any(n.startswith(m.name.casefold()) for n in longer)]
    return Names(tuple(order[:MAX_NAMED]), tuple(folders), tuple(missing))


def written(text: str) -> list[str]:
    """Return the substrings of a text that may be a path or a name."""
    apart = _DENSE_RUN.sub(" ", text)  # it may be in a script without spaces
    return [
        found[0].removeprefix("./")
        for one in dict.fromkeys((text, apart))
        for found in _NAME.finditer(one)
    ]


def unknown_names(question: Question, unknown: Collection[str], known: Iterable[str]) -> list[str]:
    """Return identifiers of a question that no file contains, such as `max_retries` or 1.0.0.

    Args:
        unknown: words of the question that no file contains.
        known: names of files, which are not reported.
    """
    files = " ".join(known).casefold()
    return [
        printable(found[0])
        for found in _IDENTIFIER.finditer(question.text)
        if fold(found[0]) in unknown and found[0].casefold() not in files
    ]


def _path(name: str, catalog: Catalog) -> str:
    """Return a name as a path if such a file exists, even one that walks skip; else empty."""
    if name in catalog.files:
        return name
    if "/" not in name and "." not in name:
        return ""
    try:
        path = clean_path(name)
        there = path != "." and not catalog.hides_above(path)
        if there and (path in catalog.files or catalog.workspace.open(path).close() is None):
            return path
    except ToolError:
        pass
    return ""


def _ends_with(name: str, by_name: dict[str, list[str]], catalog: Catalog) -> list[str]:
    """Return the files whose path ends in a name, ignoring case."""
    wanted = name.casefold().strip("/")
    last = wanted.rpartition("/")[2]
    if "." not in last and "/" not in wanted:
        return []
    paths = [p for p in by_name.get(last, ()) if f"/{p.casefold()}".endswith(f"/{wanted}")]
    if not paths and "/" in wanted:
        # Without its ending, as modules are named, or below another folder.
        paths = [p for p in by_name.get(last, ()) if f"/{wanted}." in f"/{p.casefold()}"]
    if not paths and "." in last:
        # logs/app.log where app.log is kept packed: app.log.gz, app.log.1
        paths = [p for p in by_name.get(last, ()) if p.rpartition("/")[2].casefold() != last]
        paths = [p for p in paths if f"/{wanted}." in f"/{p.casefold()}"]
    return paths[: 2 * MAX_NAMED]


def _is_name(name: str) -> bool:
    """Return whether a text is clearly a file name, by its extension."""
    last = name.rstrip("/").rpartition("/")[2]
    stem, dot, ending = last.rpartition(".")
    if not dot or not stem or "@" in name or "//" in name:
        return False
    return bool(_ENDING.fullmatch(ending)) and ending.lower() in _KNOWN


def _nearest(name: str, by_name: dict[str, list[str]]) -> Iterable[str]:
    """Return the paths of files with a similar name, by the last part of the path."""
    last = name.casefold().rpartition("/")[2]
    full = [
        key for key, paths in by_name.items() if any(p.casefold().endswith(key) for p in paths[:1])
    ]
    # Comparing 20,000 names takes too long; those that share a start or an end come into question.
    if len(full) > 2000:
        full = [key for key in full if key[:2] == last[:2] or key[-6:] == last[-6:]][:2000]
    found: list[str] = []
    for key in difflib.get_close_matches(last, full, n=NEAREST, cutoff=0.6):
        found += [path for path in by_name[key] if path not in found]
    return [printable(path) for path in found[:NEAREST]]


def _plain_words(text: str) -> list[str]:
    """Return possible file names without extension: single words and pairs, in lower case."""
    one = re.findall(r"[\w.-]*\w", text.casefold())
    pairs = [f"{a}{sign}{b}" for a, b in pairwise(one) for sign in ("_", "-", "")]
    plural = [f"{word}s" for word in pairs]
    return [word for word in dict.fromkeys([*one, *pairs, *plural]) if len(word) >= _PLAIN]


def _folders(written: Iterable[str], catalog: Catalog) -> list[str]:
    """Return the folders that are named, by path or by its last parts."""
    by_last: dict[str, list[str]] = {}
    for path in catalog.folders:
        if path != ".":
            by_last.setdefault(path.rpartition("/")[2].casefold(), []).append(path)
    found: list[str] = []
    for name in written:
        wanted = name.strip("/").casefold()
        paths = by_last.get(wanted.rpartition("/")[2], []) if wanted else []
        if _DENSE_RUN.fullmatch(wanted):  # no spaces around a name
            found += [p for last, several in by_last.items() if last in wanted for p in several]
        ends = [path for path in paths if f"/{path.casefold()}".endswith(f"/{wanted}")]
        ends.sort(key=lambda path: (path.casefold() != wanted, len(path)))
        found += [path for path in ends[:2] if path not in found]
    return list(dict.fromkeys(found))[:MAX_NAMED]
