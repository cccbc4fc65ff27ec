"""Numbers as people say them."""

from __future__ import annotations

import random

_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
ORDINALS = tuple(_ORDINALS.split(" "))
_CARDINALS = "one two three four five six seven eight nine ten eleven twelve"
CARDINALS = tuple(_CARDINALS.split(" "))


def ordinal(rng: random.Random, number: int) -> str:
    """Return `third` or `3rd`."""
    if number <= len(ORDINALS) and rng.random() < 0.6:
        return ORDINALS[number - 1]
    tens = 10 < number % 100 < 14
    return f"{number}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
