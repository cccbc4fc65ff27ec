"""The input of a pass: rows of one sequence or of several.

The next chunk of a prompt, the one token of a decode, a draft to be verified, tokens that a grammar
forced are all spans. What a row gets does not depend on the other spans of its pass, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Consecutive tokens of one sequence."""

    table: int
    """The page table of its KV cache, as `KVCache.table` names it; positions up to the last row's
    have pages that this sequence may write."""
    start: int
    """Position of the first token."""
    ids: Sequence[int]
    """Token ids."""
    outputs: int = 0
    """Number of last tokens for which logits are computed."""
