"""Held-out cases: words, file names and phrasings that training never sees."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from .batches import Encoder
from .chatml import round_segments, system_segments
from .corpus import FAMILIES, LONG_FAMILIES
from .scene import FOLLOW_UPS
from .talks import talk
from .words import Lexicon
from .writer import Round, Writer


@dataclass(frozen=True, slots=True)
class Case:
    """A held-out conversation, its ids, and which of them the assistant has to produce."""

    rounds: tuple[Round, ...]
    ids: list[int]
    targets: list[bool]


@dataclass(frozen=True, slots=True)
class Band:
    """Contexts of more than `above` and at most `limit` tokens; `size` as in the corpus."""

    above: int
    limit: int
    size: int


EVALUATED = (*FAMILIES, FOLLOW_UPS)
"""The families of cases: those of single questions, and conversations that go on."""
BANDS = (Band(0, 512, 14), Band(512, 1024, 30), Band(1024, 2048, 60))


def cases(
    encoder: Encoder, family: str, band: Band, count: int, seed: int, *, known_ways: bool = False
) -> Iterable[Case]:
    """Return `count` held-out rounds of a family with conversations of the band's length."""
    words = Lexicon(random.Random(f"{seed} {family} {band}"), held_out=True)
    writer = Writer(words, band.size, known_ways, band.above > 0 and family in LONG_FAMILIES)
    head, _ = encoder(system_segments())
    tries = found = 0
    while found < count and tries < 60 * count:
        tries += 1
        items = talk(writer) if family == FOLLOW_UPS else [FAMILIES[family][0](writer)]
        if not all(item.files.possible for item in items):
            continue
        ids, targets = encoder(segment for item in items for segment in round_segments(item))
        if band.above < len(head) + len(ids) <= band.limit:
            found += 1
            yield Case(tuple(items), head + ids, [False] * len(head) + targets)
