"""Texts of twelve kinds, 100 kB, from templates (`texts.toml`) and a seed: nobody's text but ours.

A text uses a template again only when all others have been used, each time with other words.
`python tests/helpers/texts.py FOLDER [EACH]` writes them as `KIND-N.txt`, for
`labs.bench.exactness`; EACH: only so many of a kind.
"""

from __future__ import annotations

import base64
import random
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

BYTES = {"base64": 1100, "numbers": 1000}  # of a text, at least; two kinds give a token per byte
USUAL_BYTES = 2350
EACH = 4  # texts of a kind

MADE_UP: dict[str, Callable[[random.Random], object]] = {
    "int": lambda r: r.randrange(10, 990),
    "digit": lambda r: r.randrange(2, 10),
    "port": lambda r: r.randrange(1024, 65536),
    "milli": lambda r: f"{r.randrange(1000):03}",
    "float": lambda r: f"{r.random() * 10 ** r.randrange(1, 4):.{r.randrange(1, 4)}f}",
    "hex": lambda r: f"{r.getrandbits(32):08x}",
    "ip": lambda r: ".".join(str(r.randrange(1, 255)) for _ in range(4)),
    "year": lambda r: r.randrange(1871, 2026),
    "day": lambda r: r.randrange(10, 32),
    "date": lambda r: f"20{r.randrange(19, 27)}-{r.randrange(1, 13):02}-{r.randrange(1, 29):02}",
    "clock": lambda r: f"{r.randrange(24)}:{r.randrange(60):02}",
    "time": lambda r: ":".join(f"{r.randrange(n):02}" for n in (24, 60, 60)),
}


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def kinds() -> list[str]:
    """Return the names of the kinds."""
    return [*_data()["templates"], *BYTES]


def text(kind: str, number: int) -> str:
    """Make text `number` of a kind: always the same."""
    draw = random.Random(f"{kind} {number}")
    made, pieces = "", _pieces(kind, draw)
    while len(made.encode()) < BYTES.get(kind, USUAL_BYTES):
        made += next(pieces)
    return made


def texts(each: int = EACH) -> dict[str, str]:
    """Return the first `each` texts of every kind, named `KIND-N`."""
    return {f"{kind}-{n}": text(kind, n) for kind in kinds() for n in range(each)}


def _pieces(kind: str, draw: random.Random) -> Iterator[str]:
    """Yield parts of a text, without end."""
    while kind == "base64":
        yield base64.b64encode(draw.randbytes(57)).decode() + "\n"
    while kind == "numbers":
        digits = draw.randrange(1, 40)
        sign, whole = draw.choice(["", "-", "+"]), draw.randrange(10 ** (digits - 1), 10**digits)
        yield sign + draw.choice([f"{whole}", f"{whole:,}", f"{whole:e}", f"0.{whole}"]) + " "
    ends = {"prose": " ", "arabic": " ", "thai": " ", "chinese": "", "code": "\n\n"}
    while True:
        templates = _data()["templates"][kind]
        for template in draw.sample(templates, len(templates)):
            yield _filled(template, draw) + ends.get(kind, "\n")


def _filled(template: str, draw: random.Random) -> str:
    """Put words for the names of a template; a capital asks for a capital."""
    words = _data()["words"]

    def word(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        low = name.lower()
        found = draw.choice(words[low]) if low in words else None
        if found is None:
            found = str(MADE_UP[low](draw)) if low in MADE_UP else match[0]
        return found if name == low else found.capitalize()

    names = "|".join(sorted([*words, *MADE_UP], key=len, reverse=True))
    return re.sub(rf"\$(?:({names})|{{({names})}})", word, template, flags=re.IGNORECASE)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in texts(*map(int, sys.argv[2:])).items():
        (folder / f"{name}.txt").write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
