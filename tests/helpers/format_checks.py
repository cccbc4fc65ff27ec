"""What the tests of formats share: tools, and a turn fed to grammar and reader token by token."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from triplepoint.runtime.conversation.formats.toolcalls import ToolCall, ToolFormat
from triplepoint.runtime.conversation.grammar import TurnConstraint
from triplepoint.runtime.conversation.reply import Reply, ReplyReader
from triplepoint.runtime.tokens.tokenizer import Tokenizer

END = "<|im_end|>"
QUOTED = "<tool_call> [/INST] {] </parameter><parameter=y> </function>"
"""Tags in an argument: letters, where the same tags around a call are tokens."""


def allowed(constraint: TurnConstraint, n_vocab: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The mask as one bool a token."""
    mask = constraint.mask()
    if mask is None:
        return np.ones(n_vocab, np.bool_)
    return np.unpackbits(mask.view(np.uint8), bitorder="little")[:n_vocab].astype(np.bool_)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """The ids of what a model writes."""
    parts = re.split(f"({re.escape(QUOTED)})", text)
    return tokenizer.encode_parts([(part, part != QUOTED) for part in parts])


def take(constraint: TurnConstraint, tokenizer: Tokenizer, text: str) -> str | None:
    """Feed a text as the model's; what of it is not allowed and what follows, or None."""
    ids = encode(tokenizer, text)
    for i, token in enumerate(ids):
        if not allowed(constraint, tokenizer.n_vocab)[token]:
            return tokenizer.decode(ids[i:], special=True)
        constraint.advance(token)
    return None


def read(tokenizer: Tokenizer, form: ToolFormat, ids: Sequence[int], tools: Sequence[Any]) -> Reply:
    """The turn as the agent reads it."""
    reader = ReplyReader(tokenizer, form, tools=tools)
    for token in ids:
        reader.push(token)
    return reader.finish()


def same(found: Sequence[ToolCall], expected: Sequence[ToolCall]) -> bool:
    """Whether calls say the same, however they are written."""
    return [call.key for call in found] == [call.key for call in expected]
