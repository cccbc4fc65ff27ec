"""Constrains a reply to prose: its first token cannot open a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..engine.around import Around
from .caches import per_object

if TYPE_CHECKING:
    from ..engine.decoding import Constraint
    from ..tokens.tokenizer import Tokenizer
    from .grammar import Mask

_CODE = (b"{", b"[", b"`", b"<")
"""Characters with which a call in plain text begins, also in a fence."""


class Prose(Around):
    """Masks tokens that may open a call, for the first token of a reply only.

    An answer may quote code; a reply that begins with code is mostly a call that no grammar
    constrained.
    """

    def __init__(self, constraint: Constraint | None, tokenizer: Tokenizer) -> None:
        super().__init__(constraint)
        self._tokenizer, self._begun = tokenizer, False

    def mask(self) -> Mask | None:
        """Return the bitmask of allowed tokens: bit t % 32 of word t // 32; None allows all."""
        mask = super().mask()
        if self._begun:
            return mask
        words = _words_of(self._tokenizer)
        both = words if mask is None else mask & words
        return both if both.any() else mask

    def advance(self, token: int) -> None:
        """Advance the state by the sampled token."""
        self._begun = self._begun or bool(self._tokenizer.token_bytes(token).strip())
        super().advance(token)


@per_object
def _words_of(tokenizer: Tokenizer) -> Mask:
    """Return the mask of tokens that do not begin as code does, leading blanks ignored."""
    allowed = np.zeros(-(-tokenizer.n_vocab // 32) * 32, np.uint8)
    raw = tokenizer.token_bytes
    allowed[: tokenizer.n_vocab] = [
        not raw(token).lstrip().startswith(_CODE) for token in range(tokenizer.n_vocab)
    ]
    return np.packbits(allowed, bitorder="little").view(np.uint32)
