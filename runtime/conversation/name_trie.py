"""A byte trie of names, and the tokens that continue each prefix.

The names are sorted, and a node is what was written since a name began: so names cost nothing to
add, and no grammar is compiled. A vocabulary is indexed once.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer

Ids: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"

_MAX_NODES = 4096  # of a trie whose tokens are cached
_FEW = 3  # names: where more are left, their common beginning is left to the model
_BEHIND = ("}", ",", ")", "\n")  # what may follow a closing quote, and be one token with it
_FAR = re.compile(rb"[:=]\s*[\"'].", re.DOTALL)
_BEYOND = re.compile(rb"[\"'](?=.)", re.DOTALL)


class TokenIndex:
    """Index of a vocabulary's tokens by their bytes, without control tokens.

    Attributes:
        ids: token ids by their bytes.
        beyond: ids of the tokens that go on after a quote, by their bytes up to it.
        near: all ids in `beyond`; far: those of them that also contain the start of a value.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        raw, control = tokenizer.token_bytes, tokenizer.control_ids
        self.ids = {raw(n): n for n in range(tokenizer.n_vocab) if n not in control}
        self._sorted = sorted(self.ids)
        self.beyond: dict[bytes, list[int]] = {}
        for one, token in self.ids.items():
            for mark in _BEYOND.finditer(one):
                self.beyond.setdefault(one[: mark.end()], []).append(token)
        near = {n for ids in self.beyond.values() for n in ids}
        self.near: Ids = np.array([*near], np.int64)
        self.far: Ids = np.array([n for n in near if _FAR.search(raw(n))], np.int64)

    def begin(self, piece: bytes) -> bool:
        """Return whether any token begins with `piece`."""
        at = bisect_left(self._sorted, piece)
        return at < len(self._sorted) and self._sorted[at].startswith(piece)


class NameTrie:
    """Trie of names as they are escaped in an argument's text.

    Args:
        index: of the vocabulary.
        names: with the closing quote, so that none begins as another one; one without it is open:
            behind it anything may follow.
    """

    def __init__(self, index: TokenIndex, names: Iterable[bytes]) -> None:
        self._index, self.names = index, sorted(set(names))
        self._tokens: dict[bytes, Ids] = {}

    def is_prefix(self, node: bytes) -> bool:
        """Return whether any name begins with `node`."""
        at = bisect_left(self.names, node)
        return at < len(self.names) and self.names[at].startswith(node)

    def ends(self, node: bytes) -> bool:
        """Return whether `node` is a complete name, or begins with one."""
        at = bisect_right(self.names, node)
        return at > 0 and node.startswith(self.names[at - 1])

    def tokens(self, node: bytes) -> Ids:
        """Return the ids of the tokens that continue a name, or complete one and go past it."""
        found = self._tokens.get(node)
        if found is None:
            ids, todo = list[int](), [b""]
            while todo:
                piece = todo.pop()
                if piece and (token := self._index.ids.get(piece)) is not None:
                    ids.append(token)
                if self.ends(node + piece):
                    ids += self._index.beyond.get(piece, ())
                    continue
                further = (piece + byte for byte in self._bytes(node + piece))
                todo += filter(self._index.begin, further)
            found = np.array(ids, np.int64)
            if len(self._tokens) >= _MAX_NODES:
                self._tokens.clear()
            self._tokens[node] = found
        return found

    def _bytes(self, node: bytes) -> Iterator[bytes]:
        """Yield the bytes with which some name continues after `node`."""
        names, at = self.names, bisect_left(self.names, node)
        while at < len(names) and names[at].startswith(node):
            byte = names[at][len(node)]
            yield bytes((byte,))
            at = bisect_left(names, node + bytes((byte + 1,)), at)

    def forced(self, tokenizer: Tokenizer, node: bytes, before: str) -> list[int]:
        """Return the next tokens that all names after `node` share, as the tokenizer splits them.

        Empty where many names are left, or where the tokenizer splits `node` otherwise.

        Args:
            tokenizer: of the vocabulary.
            node: where the name is.
            before: what precedes the name, its quote included.
        """
        at, to = bisect_left(self.names, node), len(node) + 1
        left = [name for name in self.names[at : at + _FEW + 1] if name.startswith(node)]
        quote, begin = before[-1:].encode(), len(before) + len(node)
        if len(left) > _FEW or not all(name.endswith(quote) for name in left):
            return []
        if left[0][:to] != left[-1][:to] or left[0][to - 1 :] == quote:
            return []
        ways: list[list[int]] = []
        behind = _BEHIND if len(left) == 1 else _BEHIND[:1]  # of several the names tell the ends
        for text in (before + name.decode() + end for name in left for end in behind):
            located = tokenizer.locate([(text, False)])
            if all(start != begin for _, start in located):
                return []
            ways.append([token for token, start in located if start >= begin])
        same = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*ways, strict=False))
        return [tokens[0] for tokens in same]
