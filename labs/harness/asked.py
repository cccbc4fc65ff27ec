"""Read `sets/*.txt`: questions, and for each the finders that compute its answer.

    == value host              kind and tree
    ? which port does sshd use here
    = the ssh/sshd_config :: ^Port (\\d+)

A blank line ends a question; ``?de``, ``?es`` and ``?zh`` begin those that are not English. Under
``?``:

    = FINDER ARGUMENT :: …     a method of `Tree`, by the names below; all that are given are needed
    ~ FORM / FORM              other forms of what the line above finds first
    - TEXT / TEXT              what an answer must not contain
    ^ FINDER …                 a line that comes near what is not there
    ! CHANGE ARGUMENT :: …     what a task changes: replace, everywhere, add, drop, create, move …

A second ``?`` begins a second question that refers to the first. ``date`` before a finder: its
answer may have any form of a date. Conditions of tables: ``state=paid, amount>100``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from .gold import Found, Row, Tree, Unclear, Where, amount, dated

Kind = Literal[
    "value", "line", "which", "log", "count", "group", "table", "list", "names", "source", "doc",
    "version", "absent", "follow", "plain", "edit",
]  # fmt: skip
"""`which` file holds it, `group`: the most frequent value, `absent`: it has no answer, `follow`:
a second question refers to the first, `plain`: it needs no file, `edit`: a task to change files."""
Language = Literal["en", "de", "es", "zh"]
SETS = Path(__file__).with_name("sets")

_FIND: Mapping[str, Callable[..., Found]] = {
    "the": Tree.the,
    "key": Tree.key,
    "under": Tree.under,
    "first": Tree.first,
    "last": Tree.last,
    "line": lambda tree, path, number: tree.line(path, int(number)),
    "after": lambda tree, path, regex, steps="1", value="(.+)": tree.after(
        path, regex, int(steps), value
    ),
    "count": Tree.count,
    "most": Tree.most,
    "times": lambda tree, pattern, regex: tree.most(pattern, regex, 1),
    "all": Tree.all,
    "file": Tree.files_with,
    "files": lambda tree, regex, pattern="*": tree.files_with(regex, pattern, None),
    "names": Tree.names,
    "many": Tree.number_of_files,
    "rows": lambda tree, path, where="": tree.number_of_rows(path, _where(where)),
    "cell": lambda tree, path, column, where: tree.cell(path, column, _where(where)),
    "by": Tree.group,
    "bysum": lambda tree, path, by, column="": tree.group(path, by, column or None, 1),
    "defined": Tree.defined,
    "default": Tree.default,
    "methods": Tree.methods,
    "absent": Tree.absent,
    "lacks": lambda tree, path, *regexes: tree.absent(*regexes, path=path),
    "nofile": Tree.no_file,
    "said": lambda tree, *forms: Found((forms,)),
}
_TOTAL = ("sum", "mean", "min", "max")
_EXTREME = {"largest": "max", "smallest": "min"}


@dataclass
class Ask:
    """One thing to ask, and the finders of its answer."""

    text: str
    finders: list[str] = field(default_factory=list)
    forms: dict[int, list[str]] = field(default_factory=dict)
    none: list[str] = field(default_factory=list)
    near: list[str] = field(default_factory=list)

    def find(self, tree: Tree) -> Found:
        """Find the answer in a tree.

        Raises:
            Unclear: the tree does not have the one answer.
        """
        found = Found(())
        for place, finder in enumerate(self.finders):
            found &= find(tree, finder).also(*self.forms.get(place, ()))
        found = found.but(*self.none)
        for finder in self.near:
            found = found.near(find(tree, finder))
        return found


@dataclass
class Asked:
    """One question, which may have two turns, or a task."""

    kind: Kind
    tree: str
    language: Language
    turns: list[Ask] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def after(self, tree: Tree) -> dict[str, str | None]:
        """Return the contents of changed files after a task, by path; None: deleted."""
        texts: dict[str, str | None] = {}
        values = [find(tree, one).first.lstrip("#") for one in self.turns[0].finders]
        for change in self.changes:
            word, _, rest = change.partition(" ")
            texts |= _changed(tree, word, rest.split(" :: "), texts, values)
        return texts


def read() -> Iterator[Asked]:
    """Yield all questions, in the order of their files."""
    for path in sorted(SETS.glob("*.txt")):
        kind, tree, one = "", "", None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            mark, _, rest = line.partition(" ")
            if mark == "==":
                kind, tree = rest.split()
            elif mark[:1] == "?":
                if one is None:
                    one = Asked(kind, tree, mark[1:] or "en")  # type: ignore[arg-type]
                one.turns.append(Ask(rest))
            elif one is not None and one.turns and mark in ("=", "~", "-", "^", "!"):
                _add(one, mark, rest)
            elif line.strip() and not line.startswith("#"):
                raise ValueError(f"{path.name}, line {number}: {line!r}")
            if not line.strip() and one is not None:
                yield one
                one = None
        if one is not None:
            yield one


def _add(one: Asked, mark: str, rest: str) -> None:
    turn = one.turns[-1]
    if mark == "=":
        turn.finders.append(rest)
    elif mark == "~":
        turn.forms.setdefault(len(turn.finders) - 1, []).extend(rest.split(" / "))
    elif mark == "-":
        turn.none += rest.split(" / ")
    elif mark == "^":
        turn.near.append(rest)
    else:
        one.changes.append(rest)


def find(tree: Tree, finder: str) -> Found:
    """Find the answer in a tree by one line of a set.

    Raises:
        Unclear: the tree does not have the one answer.
    """
    word, _, rest = finder.partition(" ")
    if word == "date":
        return dated(find(tree, rest))
    given = rest.split(" :: ")
    if word in _TOTAL:
        path, column, *where = given
        return tree.total(path, column, word, _where(*where))
    if word in _EXTREME:
        path, column, named, *where = given
        return tree.extreme(path, column, _EXTREME[word], named, _where(*where))
    return _FIND[word](tree, *given)


def _where(text: str = "") -> Where | None:
    """Parse conditions of a row, such as ``state=paid, amount>100, date~2025-03``."""
    if not text:
        return None
    tests = [re.split(r"\s*([=<>~])\s*", one, maxsplit=1) for one in text.split(", ")]

    def holds(row: Row) -> bool:
        for name, sign, value in tests:
            cell = row.get(name, "")
            if sign == "=":
                good = cell == value
            elif sign == "~":
                good = cell.startswith(value)
            elif cell in ("", "NA", "-"):
                return False
            else:
                good = amount(cell) > float(value) if sign == ">" else amount(cell) < float(value)
            if not good:
                return False
        return True

    return holds


def _changed(
    tree: Tree, word: str, given: list[str], now: dict[str, str | None], values: list[str]
) -> dict[str, str | None]:
    """Apply one change to files, where `now` has the results of earlier changes."""

    def text(path: str) -> str:
        held = now.get(path) or tree.files[path].decode()
        return held if held.endswith("\n") else held + "\n"

    def filled(line: str) -> str:
        return line.replace("\\n", "\n").format(*values)

    path = given[0]
    match word, given[1:]:
        case "replace", [regex, new]:
            made, times = re.subn(f"(?m){regex}", new, text(path))
            if times != 1:
                raise Unclear(f"{times} places of {path} match {regex!r}")
            return {path: made}
        case "everywhere", [old, new]:
            here = [p for p in tree.texts if fnmatch(p, path) and old in text(p)]
            if not here:
                raise Unclear(f"no file has {old!r}")
            return {p: text(p).replace(old, new) for p in here}
        case "add", ["end", line]:
            return {path: text(path) + filled(line) + "\n"}
        case "add", [regex, line]:
            made, times = re.subn(f"(?m)^(.*{regex}.*)$", lambda m: f"{m[1]}\n{line}", text(path))
            if times != 1:
                raise Unclear(f"{times} lines of {path} match {regex!r}")
            return {path: made}
        case "drop", [regex]:
            kept = [line for line in text(path).splitlines() if not re.search(regex, line)]
            return {path: "\n".join(kept) + "\n"}
        case "create", [line]:
            return {path: filled(line) + "\n"}
        case "remove", []:
            return {path: None}
        case "move", [to]:
            return {path: None, to: text(path)}
    raise ValueError(f"no such change: {word} {given}")
