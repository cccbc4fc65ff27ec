"""Adapts a vocabulary to the constrained-decoding library."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...errors import GrammarError
from ..tokens.foreign import translated
from .caches import per_object

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from ..tokens.tokenizer import Tokenizer

# How the library reports an interrupt that came while it fetched the tokens of a text.
_INTERRUPT = re.compile(r"panic: .*<class 'KeyboardInterrupt'>, value: KeyboardInterrupt\((\d*)")
_LONGEST = 1024  # bytes of a token: a longer one makes the library panic, so it is never allowed
_MAX_MATCHERS = 16  # grammars of one tokenizer
_lock = threading.Lock()


@per_object
def matcher_tables(tokenizer: Tokenizer) -> LLTokenizer:
    """Return the matcher's vocabulary tables, cached (0.5 s for 150,000 tokens)."""
    from llguidance import LLTokenizer, TokenizerWrapper

    if not tokenizer.stop_ids:
        raise GrammarError(
            "the model's vocabulary has no token that ends a turn, so no call can end; "
            "set tokenizer.ggml.eos_token_id in its file"
        )
    stops = sorted(tokenizer.stop_ids)
    with translated(refusal("the grammar library cannot use the model's vocabulary")):
        return LLTokenizer(TokenizerWrapper(_Vocabulary(tokenizer, stops[0])), eos_token=stops)


@per_object
def _prototypes(tokenizer: Tokenizer) -> dict[str, LLMatcher]:
    return {}


def fresh_matcher(tokenizer: Tokenizer, lark: str) -> LLMatcher:
    """Return a matcher of a grammar in its initial state.

    Grammars are cached: agents of one kind have the same, and to compile one takes 5 ms and more.
    """
    from llguidance import LLMatcher

    tables = matcher_tables(tokenizer)
    matchers = _prototypes(tokenizer)
    with _lock:
        found = matchers.get(lark)
    if found is None:
        found = LLMatcher(tables, lark, log_level=0)
        if found.is_error():
            return found
        with _lock:
            matchers[lark] = found
            while len(matchers) > _MAX_MATCHERS:
                del matchers[next(iter(matchers))]
    return found.deep_copy()


class _Vocabulary:
    """Adapter of a tokenizer to llguidance's interface; special tokens match by id only."""

    def __init__(self, tokenizer: Tokenizer, eos: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = eos
        self.bos_token_id = tokenizer.bos
        self.special_token_ids = sorted(tokenizer.control_ids)
        every = map(tokenizer.token_bytes, range(tokenizer.n_vocab))
        self.tokens = [raw if len(raw) <= _LONGEST else b"" for raw in every]

    def __call__(self, text: bytes | str) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return self._tokenizer.encode(text)


def refusal(what: str) -> Callable[[BaseException], GrammarError]:
    return lambda error: GrammarError(f"{what}: {first_line(str(error))}")


def first_line(text: str) -> str:
    """Return the first line of an error text of the library.

    Raises:
        KeyboardInterrupt: the library had turned an interrupt into this error.
    """
    if interrupt := _INTERRUPT.match(text):
        raise KeyboardInterrupt(*map(int, filter(None, interrupt.groups())))
    return text.strip().split("\n")[0][:300]
