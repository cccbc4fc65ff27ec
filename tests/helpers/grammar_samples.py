"""Tools to call under a grammar, and random texts that one lets pass."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from triplepoint.runtime.conversation.grammar import CallGrammar
from triplepoint.runtime.conversation.reasoning_tags import NO_THINKING
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.tools import tool


@tool
def read_file(path: str, start: int = 1, end: int | None = None) -> str:
    """Reads lines."""
    return f"{path} {start} {end}"


@tool
def no_arguments() -> str:
    """Takes nothing."""
    return "ok"


def grammar_of(tokenizer: Tokenizer, schema: Mapping[str, Any]) -> CallGrammar:
    """The grammar of answers of a schema."""
    made = CallGrammar(tokenizer, output=schema, thinking=NO_THINKING)
    made.check()
    return made


def sample(grammar: CallGrammar, seed: int, limit: int = 300) -> str | None:
    """A random answer, of which what ends it comes as soon as it may; None if it grew too long."""
    rng, constraint = random.Random(seed), grammar.constraint()
    tokenizer, ids = grammar.tokenizer, list[int]()
    closing = {tokenizer.encode(text)[0] for text in '"]}'}
    while len(ids) < limit:
        mask = constraint.mask()
        assert mask is not None
        allowed = [t for t in range(tokenizer.n_vocab) if mask[t // 32] >> t % 32 & 1]
        if ending := [t for t in allowed if t in tokenizer.stop_ids]:
            constraint.advance(ending[0])
            return tokenizer.decode(ids)
        soon = [t for t in allowed if t in closing] if len(ids) > 20 else []
        ids.append(rng.choice(soon or allowed))
        constraint.advance(ids[-1])
    return None
