"""Answers of fixed forms that quote what was given, where a model's file declares them.

A file may hold such forms under `KEY`: terminals of a Lark grammar, of which `ANSWER` is the
whole answer. They may use two that are defined here, of the conversation so far:

    QUOTE   a run of whole words and signs, within one line, of what was asked and returned
    NUMBER  one that is a number

The embedded model's file has them: it cannot write a word that stands nowhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer

KEY = "triplepoint.answers"
_PIECES = re.compile(r"\w+|\W", re.DOTALL)
"""What a quotation cannot cut: words and numbers."""


def rules(forms: str, given: str) -> str:
    """The Lark rules of `answer`, in the forms `forms`, that may quote `given`."""
    pieces = _PIECES.findall(given) or [" "]
    return "\n".join(
        [
            "answer: ANSWER",
            forms,
            r"QUOTE: GIVEN & /[^\n]+/",
            "NUMBER: GIVEN & /[0-9]+/",
            f"GIVEN: %regex {json.dumps({'substring_chunks': pieces})}",
        ]
    )


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
