"""Answers of fixed forms that quote what was given, where a model's file declares them.

A file may hold such forms under `KEY`: terminals of a Lark grammar, of which `ANSWER` is the
whole answer. They may use four that are defined here, of the conversation so far:

    QUOTE    a run of whole words and signs, within one line, of what was asked and returned
    NUMBER   one that is a number
    SETTING  a name and what stands behind it on its line: "port is 80", "port in a.conf is 80",
             "port is 80 (line 3); 81 (line 9)", where the lines have numbers
    FOUND    names of files in which a search found something, each once, in its order

The embedded model's file has them: it cannot write a word that stands nowhere, or a name with the
value of another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer

KEY = "triplepoint.answers"
_PIECES = re.compile(r"\w+|\W", re.DOTALL)
"""What a quotation cannot cut: words and numbers."""


_NUMBERED = re.compile(r"(?:\S.*?:)??(\d+)[:\t](.*)")
"""A line as the tools show it: its number, and itself."""
_NAME = re.compile(r"[^\s=:\"'`,;(){}\[\]<>]+")
_HIT = re.compile(r"(\S.*?):\d+:")
_WORD = re.compile(r"\w")
_NAMES = 4
"""How many words from its beginning on a line may name what it sets (`export`, `ENV`, `- `)."""
MOST_PLACES = 12
"""How many places of a name one answer can list."""


def rules(forms: str, given: str) -> str:
    """The Lark rules of `answer`, in the forms `forms`, that may quote `given`."""
    return "\n".join(
        [
            "answer: ANSWER",
            forms,
            r"QUOTE: GIVEN & /[^\n]+/",
            "NUMBER: GIVEN & /[0-9]+/",
            f"GIVEN: {_part_of(given or ' ')}",
            *(_settings(given) if "SETTING" in forms else ()),
            *(_found(given) if "FOUND" in forms else ()),
        ]
    )


def _part_of(text: str) -> str:
    return f"%regex {json.dumps({'substring_chunks': _PIECES.findall(text)})}"


def _settings(given: str) -> list[str]:
    """The rules of `SETTING`: one for each name, of what stands behind it wherever it does."""
    behind: dict[str, dict[int, dict[str, None]]] = {}
    for row in dict.fromkeys(given.split("\n")):
        numbered = _NUMBERED.fullmatch(row)
        number, line = (int(numbered[1]), numbered[2]) if numbered else (0, row)
        for name in islice(_NAME.finditer(line), _NAMES):
            rest = line[name.end() :].strip()
            if _WORD.search(rest):
                behind.setdefault(name[0], {}).setdefault(number, {})[rest] = None
    names: dict[str, str] = {}

    def value(rest: str) -> str:
        return names.setdefault(rest, f"V{len(names)}")

    found: list[str] = []
    for name, rows in behind.items():
        values = dict.fromkeys(value(rest) for rests in rows.values() for rest in rests)
        numbers = sorted(number for number in rows if number)[:MOST_PLACES]
        places = [
            f'({" | ".join(map(value, rows[number]))}) " (line {number})"' for number in numbers
        ]
        # Each once, in their order; a name that stands once has no other place.
        ends = [
            " ".join([place, *(f'("; " {later})?' for later in places[at + 1 :])])
            for at, place in enumerate(places[:-1])
        ]
        known = json.dumps(name, ensure_ascii=False)
        found.append(f'{known} (" in " QUOTE)? " is " ({" | ".join([*values, *ends])})')
    return [
        "SETTING: " + "\n    | ".join(found or ['QUOTE " is " QUOTE']),
        *(f"{v}: R{v} & /.+/\nR{v}: {_part_of(rest)}" for rest, v in names.items()),
    ]


def _found(given: str) -> list[str]:
    """The rules of `FOUND`, each the rest of the list behind a file."""
    paths: dict[str, None] = {}
    for row in given.split("\n"):
        if hit := _HIT.match(row):
            paths.pop(hit[1], None)  # its place is that in the last result that has it
            paths[hit[1]] = None
    names = [json.dumps(path, ensure_ascii=False) for path in paths]
    further = [f" BEHIND{at}" for at in range(1, len(names))] + [""]
    lists = [name + more for name, more in zip(names, further, strict=False)]
    behind = [
        f'BEHIND{at}: (", " {name})?{more}'
        for at, (name, more) in enumerate(zip(names, further, strict=False))
    ]
    return ["FOUND: " + ("\n    | ".join(lists) or "QUOTE"), *behind[1:]]


def quotable(tokenizer: Tokenizer, ids: Sequence[int], opening: int, closing: int) -> str:
    """The text of a conversation's tokens without the model's calls: their patterns are no facts.

    Args:
        tokenizer: of the model.
        ids: the tokens so far.
        opening, closing: the tokens around calls.
    """
    kept: list[int] = []
    inside = False
    ends = {closing, *tokenizer.stop_ids}  # a call that was cut ends with its turn
    for token in ids:
        inside = (inside or token == opening) and token not in ends
        if not inside:
            kept.append(token)
    return tokenizer.decode(kept)
