"""Constrains path arguments of calls to the names that exist.

While the text of such an argument is written, in a call of JSON or in another dress, only what goes
on with a name may come; what all names that are left have in common is written without a pass. All
other text keeps the mask that it has.

`Requirement.names` says which arguments of which tools, all of whose arguments are plain values;
and the paths: one a line, folders with a slash behind them, and with two where what is below is not
known, so that it may be anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...tools.paths import one_form
from ..engine.around import Around
from .caches import LRUCache, per_object
from .name_trie import Ids, NameTrie, TokenIndex
from .reply import ReplyReader

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer
    from .grammar import Mask, TurnConstraint
    from .requirement import Requirement

_MAX_TRIES = 12  # tries of a tokenizer
_PART = re.compile(
    rb"\"((?:[^\"\\]+|\\.)*)(\"?)|'((?:[^'\\]+|\\.)*)('?)|[:=,})]|[^\"':=,})]+", re.DOTALL
)


@per_object
def _of(tokenizer: Tokenizer) -> tuple[TokenIndex, LRUCache[NameTrie]]:
    """Return a vocabulary's index (0.3 s for 150,000 tokens) and the cache of its tries, cached."""
    return TokenIndex(tokenizer), LRUCache(_MAX_TRIES)


def _spelled(required: Requirement, kind: str, quote: bytes) -> Iterator[bytes]:
    """Yield the paths of a kind (``file``, ``folder`` or ``any``) escaped as between quotes."""
    assert required.names is not None, "something is held"
    texts = [(path, True) for path in required.also]
    for path in required.names["paths"].split("\n"):
        name, is_open = path.rstrip("/"), path.endswith("//")
        if kind != ("folder" if path == name else "file"):
            texts.append((name, True))
        if path != name and (is_open or kind != "file"):
            texts.append((f"{name}/", not is_open))
    for text, whole in texts:
        for one in {text, one_form(text)}:
            raw = json.dumps(one, ensure_ascii=False)[1:-1].encode()
            if quote == b"'":
                raw = raw.replace(b'\\"', b'"').replace(b"'", b"\\'")
            yield raw + quote * whole
            if one not in ("", ".", "./"):
                yield b"./" + raw + quote * whole


@dataclass(slots=True)
class _Read:
    """Parser state of partially written arguments."""

    trie: NameTrie | None = None  # of the name that is being written
    node: bytes = b""  # what there is of it
    before: str = ""  # what precedes it
    awaits: bool = False  # whether a value of a held argument is to come
    broken: bool = False  # whether a name is none that is there
    done: bool = False


class HeldNames(Around):
    """Wraps the constraint `inner`: path arguments of calls must be in `required.names`."""

    def __init__(self, inner: TurnConstraint, tokenizer: Tokenizer, required: Requirement) -> None:
        super().__init__(inner)
        assert required.names is not None, "something is held"
        self._inner, self._tokenizer, self._required = inner, tokenizer, required
        self._of_tools: Mapping[str, Mapping[str, str]] = required.names["arguments"]
        self._reader = ReplyReader(tokenizer, required.form, tags=required.thinking)
        self._calls, self._dressed = -1, False  # the last own call; whether one in another dress
        self._text: bytes | None = None  # of arguments of which some are held
        self._held: Mapping[str, str] = {}
        self._now, self._tries = _Read(), dict[tuple[str, bytes], NameTrie]()
        self._ahead: list[int] | None = None  # tokens that are forced; None: not looked yet

    def mask(self) -> Mask | None:
        """Return the bitmask of allowed tokens: bit t % 32 of word t // 32; None allows all."""
        mask, now = super().mask(), self._now
        if self._text is None:
            return mask
        if now.trie is not None:
            forced = self.forced()
            ids = now.trie.tokens(now.node) if forced is None else np.array([forced], np.int64)
            ids = _allowed(mask, ids)
            mask = self._words(ids) if len(ids) else mask  # a pattern may fit no name
        # A token may open a value and continue with what is no name.
        index = _of(self._tokenizer)[0]
        crossing = _allowed(mask, index.near if now.awaits else index.far).tolist()
        if refused := [token for token in crossing if not self.allows_names((token,))]:
            words = ~self._words(np.array(refused, np.int64))
            mask = words if mask is None else mask & words
        return mask

    def forced(self) -> int | None:
        """Return the next token where only one is allowed, else None."""
        if (trie := self._now.trie) is None:
            return self._inner.forced()
        if self._ahead is None:
            ahead = trie.forced(self._tokenizer, self._now.node, self._now.before)
            self._ahead = ahead[: self._inner.allows(ahead)] if ahead else []
        return self._ahead[0] if self._ahead else None

    def allows(self, tokens: Sequence[int]) -> int:
        """Return the length of the longest allowed prefix of `tokens`; the state is unchanged."""
        return self.allows_names(tokens[: self._inner.allows(tokens)])

    def allows_names(self, tokens: Sequence[int]) -> int:
        """Return the length of the longest prefix of `tokens` that keeps to allowed names."""
        text = self._text
        for n, token in enumerate(tokens if text is not None else ()):
            text = (text or b"") + self._tokenizer.token_bytes(token)
            read = self._read(text)
            if read.broken or read.done:
                return n if read.broken else len(tokens)
        return len(tokens)

    def advance(self, token: int) -> None:
        """Advance the state by the sampled token."""
        super().advance(token)
        known = self._ahead is not None and self._ahead[:1] == [token]
        self._ahead = (self._ahead or [])[1:] or None if known else None
        raw = self._tokenizer.token_bytes(token)
        if self._text is not None:
            self._set(self._text + raw)
        begun, was = self._inner.begun(), self._dressed
        self._dressed = begun is not None
        if begun is not None and not was:
            self._begin(begun[0].name, begun[1], raw)
        if self._inner.in_call and not self._dressed:
            self._reader.push(token)
            for piece in self._reader.call_pieces():
                if piece.index != self._calls:
                    self._calls = piece.index
                    self._begin(piece.name, piece.text, raw)

    def _begin(self, name: str, text: str, raw: bytes) -> None:
        """Start to follow a call's arguments from their first text, which may cut a character."""
        self._held = self._of_tools.get(name, {})
        begun = text.encode("utf-8", "replace")
        self._set(raw[raw.rfind(begun) :] if begun in raw else begun)

    def _set(self, text: bytes) -> None:
        read = self._read(text) if self._held else _Read(done=True)
        ended = read.done or read.broken  # what is no name, as a pattern wants it, is free
        self._text, self._now = (None, _Read()) if ended else (text, read)

    def _read(self, text: bytes) -> _Read:
        """Parse partial arguments in JSON or Python syntax."""
        key, word, read = "", b"", _Read()
        for part in _PART.finditer(text):
            if part[0][:1] in (b'"', b"'"):
                quote, word = part[0][:1], (part[1] or b"") + (part[3] or b"")
                whole = bool(part[2] or part[4])
                trie = self._trie(self._held[key], quote) if key in self._held else None
                node = word + quote if whole else text[part.start() + 1 :]
                fits = trie is None or trie.ends(node) or (not whole and trie.is_prefix(node))
                read.broken = read.broken or not fits
                if not whole:
                    before = text[part.start() - 1 : part.start() + 1].decode("ascii", "replace")
                    held = None if trie is None or trie.ends(node) else trie
                    return _Read(held, node, before, broken=read.broken)
            elif part[0] in (b":", b"=", b","):
                key, word = "" if part[0] == b"," else word.decode("utf-8", "replace").strip(), b""
            elif part[0] in (b"}", b")"):
                read.done = True
                return read
            else:
                word = part[0]
        read.awaits = key in self._held
        return read

    def _trie(self, kind: str, quote: bytes) -> NameTrie | None:
        """Return the trie of the names of a kind, cached; None where no such name exists."""
        if (kind, quote) not in self._tries:
            (index, tries), required = _of(self._tokenizer), self._required
            self._tries[kind, quote] = tries.get(
                (required.recipe["names"], *required.also, kind, quote),
                lambda: NameTrie(index, _spelled(required, kind, quote)),
            )
        trie = self._tries[kind, quote]
        return trie if trie.names else None

    def _words(self, tokens: Ids) -> Mask:
        words = np.zeros(-(-self._tokenizer.n_vocab // 32), np.uint32)
        np.bitwise_or.at(words, tokens >> 5, np.uint32(1) << (tokens & 31).astype(np.uint32))
        return words


def _allowed(mask: Mask | None, tokens: Ids) -> Ids:
    """Filter token ids to those that a mask allows."""
    if mask is None:
        return tokens
    return tokens[(mask[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1 == 1]
