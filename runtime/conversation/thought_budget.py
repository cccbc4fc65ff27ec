"""Ends thinking that exceeds its budget with a sentence and the closing tag.

The sentence is the one with which Qwen3's makers stop a thought (arXiv:2505.09388, "Thinking
Budget"); after the bare tag alone models answer worse.
"""

from __future__ import annotations

import codecs
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..engine.around import Around
from ..engine.decoding import LookaheadConstraint

if TYPE_CHECKING:
    from ..engine.decoding import Constraint
    from ..tokens.tokenizer import Tokenizer
    from .reasoning_tags import Thinking


class ThoughtBudget(Around):
    """Forces the end of one turn's thinking once its budget is spent.

    Attributes:
        ended: number of thinking tokens at which the budget ended the thinking, or None.
    """

    def __init__(
        self,
        constraint: Constraint | None,
        tokenizer: Tokenizer,
        tags: Thinking,
        *,
        tokens: int | None,
        seconds: float,
        sentence: str,
        opened: bool,
    ) -> None:
        """Wrap a constraint; `sentence` ends thinking after `tokens` or non-zero `seconds`."""
        super().__init__(constraint)
        self._tokenizer, self._tags = tokenizer, tags.tags[:2]
        self._tokens, self._seconds = tokens, seconds
        self._ids = [tokenizer.encode(tag, special=True) for tag in self._tags]
        self._end = [*tokenizer.encode(sentence if tokens != 0 else "\n"), *self._ids[1]]
        self._began, self._count = time.perf_counter(), 0
        self._character = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""  # since the last tag, for tags that are no tokens
        self._thinks, self._forced = opened, list[int]()
        self.ended: int | None = None
        self._look()

    def mask(self) -> np.ndarray | None:
        """Return the bitmask of allowed tokens: bit t % 32 of word t // 32; None allows all."""
        if not self._forced:
            return super().mask()
        words = np.zeros(-(-self._tokenizer.n_vocab // 32), np.uint32)
        words[self._forced[0] // 32] = np.uint32(1 << self._forced[0] % 32)
        return words

    def forced(self) -> int | None:
        """Return the next token where only one is allowed, else None."""
        inner = self._constraint
        if self._forced:
            return self._forced[0]
        return inner.forced() if isinstance(inner, LookaheadConstraint) else None

    def allows(self, tokens: Sequence[int]) -> int:
        """Return the length of the longest allowed prefix of `tokens`; the state is unchanged."""
        inner = self._constraint
        if self._forced:
            return int(tokens[:1] == self._forced[:1])
        return inner.allows(tokens) if isinstance(inner, LookaheadConstraint) else len(tokens)

    def advance(self, token: int) -> None:
        """Advance the state by the sampled token."""
        super().advance(token)
        if self._forced:
            self._forced = self._forced[1:]
            self._thinks = bool(self._forced)
            return
        self._text = (self._text + self._tokenizer.decode([token], special=True))[-64:]
        ids, tag = self._ids[self._thinks], self._tags[self._thinks]
        if token == ids[0] if len(ids) == 1 else tag in self._text:
            self._thinks, self._text = not self._thinks, ""
        elif self._thinks:
            self._count += 1
        self._character.decode(self._tokenizer.token_bytes(token))
        self._look()

    def _look(self) -> None:
        """Force the end of thinking once the budget is spent, at a character boundary."""
        if not self._thinks or self._character.getstate()[0]:
            return
        late = self._count > 0 and 0 < self._seconds <= time.perf_counter() - self._began
        if late or (self._tokens is not None and self._count >= self._tokens):
            self._forced = list(self._end)
            self.ended = self._count if self.ended is None else self.ended
