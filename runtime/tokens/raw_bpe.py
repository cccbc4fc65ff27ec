"""BPE on raw characters with `▁` for the space, as in Gemma 4's GGUF files.

    spaces become ▁; a text is cut at its newlines and nowhere else; each line, and each run of
    newlines, is merged as one word
    what is no token in the end is spelled out in byte tokens <0x00> … <0xFF>

A run of newlines is one token where the vocabulary has it, whether the file kept the merges of
newlines or not. A text always begins with BOS, whatever the file says.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..gguf.file import GGUFFile
from ..gguf.types import TokenType
from .byte_bpe import merge_model, merged_ids, merges_refusal, read_merges
from .foreign import translated
from .sentencepiece import SPACE, piece_bytes
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as MergeTokenizer

_LINES = r"[^\n]+|\n+"


class RawBPE:
    """Raw-character BPE tokenizer: encodes text without markers, decodes tokens to bytes."""

    add_bos = always_bos = True
    adds_space_prefix = False

    def __init__(self, gguf: GGUFFile, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        if not vocabulary.ids_of(TokenType.BYTE):
            vocabulary.require_character(gguf, frozenset(map(chr, range(0x21, 0x7F))))
        self._merges = read_merges(gguf, vocabulary.characters)
        self._path = gguf.path

    @cached_property
    def _tokenizer(self) -> MergeTokenizer:
        from tokenizers import Regex, Tokenizer
        from tokenizers.pre_tokenizers import Split

        tokens = dict(self._vocabulary.mergeable)
        tokens |= {self._vocabulary.tokens[i]: i for i in self._vocabulary.ids_of(TokenType.BYTE)}
        merges = self._merges.all()
        runs = [token for token in tokens if len(token) > 1 and not token.strip("\n")]
        if not any("\n" in merge for merge in merges):
            merges += [f"{run[1:]} \n" for run in sorted(runs, key=len, reverse=True)]
        with translated(merges_refusal(self._path)):
            tokenizer = Tokenizer(merge_model(tokens, merges, byte_fallback=True))
            tokenizer.pre_tokenizer = Split(Regex(_LINES), "isolated")
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Encode `text` to ids; bytes without a token are dropped."""
        return merged_ids(self._tokenizer, text.replace(" ", SPACE))

    def token_bytes(self, token: str, kind: int) -> bytes:
        """Return the bytes of a token's text."""
        return piece_bytes(token, kind)
