"""SentencePiece BPE with `▁` for the space: pieces with scores, as in llama-style GGUF files.

    repeat: of all neighboring pairs whose joined text is a piece, join the one with the highest
            score (the leftmost of equals)
    what is no piece in the end is spelled out in byte tokens <0x00> … <0xFF>

No piece has a `▁` after another character, so no join crosses the beginning of a word; words are
therefore merged one by one and remembered. A vocabulary with such a piece is merged as a whole.

A `▁` in the text itself reads back as a space, as with every model of this kind.
"""

from __future__ import annotations

import re
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np

from ...errors import UnsupportedModelError
from ..gguf.file import GGUFFile
from ..gguf.types import TokenType
from .vocabulary import Vocabulary

SPACE = "▁"
MAX_REMEMBERED = 1 << 16  # words
MAX_WORD = 64  # characters of a word worth remembering

_WORD = re.compile(f"{SPACE}+[^{SPACE}]*|[^{SPACE}]+")
_INNER_SPACE = re.compile(f"[^{SPACE}]{SPACE}")
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class SentencePiece:
    """SentencePiece BPE tokenizer: encodes text without markers, decodes tokens to bytes."""

    add_bos = True
    always_bos = False

    def __init__(self, gguf: GGUFFile, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        if not vocabulary.ids_of(TokenType.BYTE):
            vocabulary.require_character(gguf, frozenset(map(chr, range(0x21, 0x7F))))
        self.adds_space_prefix = gguf.boolean("tokenizer.ggml.add_space_prefix", True)
        if gguf.boolean("tokenizer.ggml.remove_extra_whitespaces", False):
            key = "tokenizer.ggml.remove_extra_whitespaces"
            raise UnsupportedModelError(f"{gguf.path}: {key} is not supported")
        scores = gguf.numbers("tokenizer.ggml.scores", vocabulary.n_vocab)
        if scores is None:
            gguf.refuse("tokenizer.ggml.scores", "missing")
        if not np.isfinite(scores).all():
            gguf.refuse("tokenizer.ggml.scores", "holds numbers that are not finite")
        self._scores = scores[: vocabulary.n_vocab].copy()  # out of the mapping: needed later
        self._remembered: dict[str, list[int]] = {}

    @cached_property
    def _pieces(self) -> dict[str, tuple[float, int]]:
        """Return each piece's (negated score, id), so that the best sorts first."""
        order = (-self._scores.astype(np.float64)).tolist()
        return {text: (order[i], i) for text, i in self._vocabulary.mergeable.items() if text}

    @cached_property
    def _crosses_words(self) -> bool:
        return any(_INNER_SPACE.search(text) for text in self._pieces if SPACE in text)

    @cached_property
    def _byte_ids(self) -> dict[int, int]:
        tokens = self._vocabulary.tokens
        found = ((_BYTE.fullmatch(tokens[i]), i) for i in self._vocabulary.ids_of(TokenType.BYTE))
        return {int(match[1], 16): i for match, i in found if match}

    def encode(self, text: str) -> list[int]:
        """Encode `text` to ids; bytes without a token are dropped.

        `text` is at the start or after a marker, so it gets a space in front.
        """
        text = text.replace(" ", SPACE)
        if self.adds_space_prefix:
            text = SPACE + text
        if self._crosses_words:
            return self._merge(text)
        ids: list[int] = []
        for word in _WORD.findall(text):
            ids += self._word(word)
        return ids

    def _word(self, word: str) -> list[int]:
        ids = self._remembered.get(word)
        if ids is None:
            ids = self._merge(word)
            if len(word) <= MAX_WORD and len(self._remembered) < MAX_REMEMBERED:
                self._remembered[word] = ids
        return ids

    def _merge(self, text: str) -> list[int]:
        """Merge the characters of `text` to pieces by score; return their ids."""
        pieces = self._pieces
        parts: list[str] = list(text)
        after = list(range(1, len(parts) + 1))  # place of the next part
        before = list(range(-1, len(parts) - 1))
        queue: list[tuple[float, int, str]] = []
        for at in range(len(parts) - 1):
            joined = parts[at] + parts[at + 1]
            if joined in pieces:
                queue.append((pieces[joined][0], at, joined))
        heapify(queue)
        while queue:
            _, at, joined = heappop(queue)
            right = after[at]
            # One of the two was joined to something else meanwhile.
            if not parts[at] or right >= len(parts) or parts[at] + parts[right] != joined:
                continue
            parts[at], parts[right] = joined, ""
            after[at] = after[right]
            if after[right] < len(parts):
                before[after[right]] = at
                self._offer(queue, at, joined + parts[after[right]])
            if before[at] >= 0:
                self._offer(queue, before[at], parts[before[at]] + joined)
        return [token for part in parts if part for token in self._ids(part)]

    def _offer(self, queue: list[tuple[float, int, str]], at: int, joined: str) -> None:
        found = self._pieces.get(joined)
        if found is not None:
            heappush(queue, (found[0], at, joined))

    def _ids(self, part: str) -> list[int]:
        found = self._pieces.get(part)
        if found is not None:
            return [found[1]]
        byte_ids = self._byte_ids
        return [byte_ids[byte] for byte in part.encode("utf-8") if byte in byte_ids]

    def token_bytes(self, token: str, kind: int) -> bytes:
        """Return the bytes of a token's text."""
        return piece_bytes(token, kind)


def piece_bytes(token: str, kind: int) -> bytes:
    """Return the bytes of a piece: a byte token's byte, else its text with spaces for `▁`."""
    match = _BYTE.fullmatch(token) if kind == TokenType.BYTE else None
    return bytes([int(match[1], 16)]) if match else token.replace(SPACE, " ").encode("utf-8")
