"""Reads folder files: TOML descriptions of a folder with questions, and writes the folders.

    about = "what the folder is"
    copy = "../incident"            # optional: begin with a copy, relative to this file
    folders = ["empty"]             # optional: empty folders

    [files]                         # path to text
    "app.log" = '''…'''
    [binary]                        # path to bytes in hex
    [links]                         # path to where the symlink points
    [built."long.log"]              # a long file from few templates: see `long_text`

    [singles]                       # family to questions, each a conversation of its own
    "setting" = [{ask = "…", has = ["8080"]}]

    [[talk]]                        # a conversation of several turns
    family = "setting"
    turns = [{ask = "…", has = ["…"]}, {ask = "and the host?", has = ["…"]}]

A turn's rules are the fields of `Turn`. The first turn of a talk counts for its family, the
others for the family "follow-up".
"""

from __future__ import annotations

import datetime
import re
import shutil
import tomllib
import zlib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

FOLLOW_UP = "follow-up"


@dataclass(frozen=True, slots=True)
class Turn:
    """One question and the rules of a right answer; texts are compared by `verdict.fold`.

    Attributes:
        has: facts that the answer must contain, each in the files, their names or the questions.
            Of a list, any one.
        says: likewise, for words that need not be in the files.
        lacks: texts that the answer must not contain.
        none: it must state that something is absent, but not that a whole file or folder is.
        absent: it must state that a file or folder is absent, and not that it holds no error.
        cannot: it must state that the model cannot do this.
        or_cannot: stating that is right as well.
    """

    ask: str
    has: tuple[tuple[str, ...], ...] = ()
    says: tuple[tuple[str, ...], ...] = ()
    lacks: tuple[str, ...] = ()
    none: bool = False
    absent: bool = False
    cannot: bool = False
    or_cannot: bool = False

    @classmethod
    def read(cls, given: dict[str, Any]) -> Turn:
        """Build a turn from a table of the TOML file.

        Raises:
            ValueError: an unknown field, or a question without a rule.
        """
        unknown = set(given) - {one.name for one in fields(cls)}
        if unknown or not set(given) - {"ask", "lacks"}:
            raise ValueError(f"{given.get('ask')!r}: {unknown or 'no rule'}")
        made = dict(given)
        for name in ("has", "says"):
            groups = made.get(name, ())
            made[name] = tuple((g,) if isinstance(g, str) else tuple(g) for g in groups)
        made["lacks"] = tuple(made.get("lacks", ()))
        return cls(**made)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation over one folder."""

    folder: str
    family: str
    turns: tuple[Turn, ...]

    def family_of(self, number: int) -> str:
        return FOLLOW_UP if number else self.family


@dataclass(frozen=True, slots=True)
class Folder:
    """Description of a folder: its files and the conversations over them."""

    name: str
    texts: dict[str, str]
    binary: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    copy: Path | None = None
    talks: tuple[Talk, ...] = ()

    def write(self, root: Path) -> None:
        """Write the files below `root`, which may be missing."""
        if self.copy is None:
            root.mkdir(parents=True)
        else:
            shutil.copytree(self.copy, root)
        for name in self.folders:
            (root / name).mkdir(parents=True)
        for name, content in {**self.binary, **self.texts}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        for name, target in self.links.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target)


def read_folder(path: Path) -> Folder:
    """Read a folder from its TOML file.

    Raises:
        ValueError: it is not as described above.
    """
    given = tomllib.loads(path.read_text(encoding="utf-8"))
    known = {"about", "copy", "folders", "files", "binary", "links", "built", "singles", "talk"}
    if set(given) - known:
        raise ValueError(f"{path.name}: unknown {set(given) - known}")
    texts = dict(given.get("files", {}))
    for name, recipe in given.get("built", {}).items():
        texts[name] = long_text(name, **recipe)
    talks = [
        Talk(path.stem, family, (Turn.read(turn),))
        for family, turns in given.get("singles", {}).items()
        for turn in turns
    ]
    for talk in given.get("talk", ()):
        turns = tuple(Turn.read(turn) for turn in talk["turns"])
        talks.append(Talk(path.stem, talk["family"], turns))
    copy = given.get("copy")
    return Folder(
        path.stem,
        texts,
        {name: bytes.fromhex(digits) for name, digits in given.get("binary", {}).items()},
        dict(given.get("links", {})),
        tuple(given.get("folders", ())),
        None if copy is None else path.resolve().parent / copy,
        tuple(talks),
    )


def read_suite(path: Path) -> list[Folder]:
    """Read folders from TOML files, sorted by name; `path` is one file or a folder of them."""
    found = [path] if path.is_file() else sorted(path.glob("*.toml"))
    if not found:
        raise ValueError(f"{path}: no .toml files of a suite")
    return [read_folder(one) for one in found]


def long_text(
    name: str,
    *,
    lines: int,
    begin: datetime.datetime,
    step: int,
    stamp: str,
    templates: list[str],
    marked: dict[str, str] | None = None,
) -> str:
    """Generate a long file: alternating templates with made-up numbers, and given lines.

    Args:
        name: its path, which the numbers are drawn from: the same text each time.
        lines: how many it has.
        begin: the time of the first line.
        step: seconds from line to line, on average.
        stamp: the format of ``{stamp}``, as for `strftime`.
        templates: lines with ``{stamp}``, ``{LOW-HIGH}`` for a number and ``{hexN}`` for digits.
        marked: line number to the lines that are inserted there; ``{stamp}`` is replaced there.
    """
    marks = {int(number): text.strip("\n").split("\n") for number, text in (marked or {}).items()}
    out: list[str] = []
    while len(out) < lines:
        number = len(out) + 1
        draw = _draws(f"{name}:{number}")
        time = begin + datetime.timedelta(seconds=step * number + next(draw) % max(step, 1))
        shown = time.strftime(stamp)
        if number in marks:
            out += [line.replace("{stamp}", shown) for line in marks.pop(number)]
            continue
        text = templates[next(draw) % len(templates)].replace("{stamp}", shown)

        def fill(match: re.Match[str], draw: Any = draw) -> str:
            if match[3]:
                return f"{next(draw):08x}{next(draw):08x}"[: int(match[3])]
            low, high = int(match[1]), int(match[2])
            return str(low + next(draw) % (high - low + 1))

        out.append(re.sub(r"\{(?:(\d+)-(\d+)|hex(\d+))\}", fill, text))
    if marks or len(out) != lines:
        raise ValueError(f"{name}: marked lines at {list(marks)} do not fit in {lines} lines")
    return "\n".join(out) + "\n"


def _draws(seed: str) -> Any:
    """Yield an endless sequence of numbers below 2**32 that depends on the seed alone."""
    count = 0
    while True:
        count += 1
        yield zlib.crc32(f"{count}:{seed}".encode())
