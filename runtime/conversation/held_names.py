"""Holds arguments that must name what is there to the names that are there.

While the text of such an argument is written, in a call of JSON or in another dress, only what goes
on with a name may come; what all names that are left have in common is written without a pass. All
other text keeps the mask that it has.

`Requirement.names` says which arguments of which tools, and the paths: one a line, folders with a
slash behind them, and with two where what is below is not known, so that it may be anything.
"""

from __future__ import annotations

import copy
import json
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...tools.paths import one_form
from ..inference.around import Around
from .kept import Kept
from .name_trie import QUOTES, Ids, NameTrie, token_index
from .reply import ReplyReader

if TYPE_CHECKING:
    from ..tokens.tokenizer import Tokenizer
    from .grammar import Mask, TurnConstraint
    from .requirement import Requirement

_MOST_KEPT = 4  # sets of paths of a tokenizer
_OPEN, _CLOSE, _BEFORE_VALUE, _ESCAPE = b"{[(", b"}])", b":=", ord("\\")


class Paths:
    """What may be written of paths, by kind and by the quote around it.

    Args:
        tokenizer: of the model.
        paths: see the module.
        also: more that may be written, though they are not there.
    """

    def __init__(self, tokenizer: Tokenizer, paths: str, also: Sequence[str]) -> None:
        self.index = token_index(tokenizer)
        self._paths, self._also = paths.split("\n"), also
        self._made: dict[tuple[str, int], NameTrie] = {}

    def trie(self, kind: str, quote: int) -> NameTrie | None:
        """Those of a kind (``file``, ``folder`` or ``any``); None where there are none."""
        made = self._made.get((kind, quote))
        if made is None:
            made = NameTrie(self.index, self._spelled(kind, quote))
            self._made[kind, quote] = made
        return made if len(made) else None

    def _spelled(self, kind: str, quote: int) -> Iterator[bytes]:
        for name, end in self._texts(kind):
            for text in {name, one_form(name)}:
                if quote == ord('"'):
                    raw = json.dumps(text, ensure_ascii=False)[1:-1].encode()
                else:
                    raw = text.replace("\\", "\\\\").replace("'", "\\'").encode()
                yield raw + bytes((quote,)) * end
                if name not in (".", "./"):
                    yield b"./" + raw + bytes((quote,)) * end

    def _texts(self, kind: str) -> Iterator[tuple[str, bool]]:
        """Paths as they may be written, and whether they end there."""
        for path in self._paths:
            name = path.rstrip("/")
            if path == name:
                if kind != "folder":
                    yield name, True
                continue
            is_open = path.endswith("//")
            if kind != "file":
                yield name, True
            if is_open or kind != "file":
                yield f"{name}/", not is_open
        for path in self._also:
            yield path, True


_kept: weakref.WeakKeyDictionary[Tokenizer, Kept[Paths]] = weakref.WeakKeyDictionary()
_kept_lock = threading.Lock()


def _paths_of(tokenizer: Tokenizer, required: Requirement) -> Paths:
    """Those of a requirement; made once for the same ones."""
    assert required.names is not None, "nothing is to be held"
    paths, also = required.names["paths"], tuple(required.also)
    with _kept_lock:
        kept = _kept.setdefault(tokenizer, Kept(_MOST_KEPT))
    return kept.get((required.recipe["names"], also), lambda: Paths(tokenizer, paths, also))


@dataclass(slots=True)
class _Arguments:
    """Where the arguments of a call are, byte by byte: an object of JSON, or what Python's are."""

    held: Mapping[str, str]
    """Kinds of the arguments that are held, by name."""
    paths: Paths
    depth: int = 0
    """Brackets that are open, the one around the arguments included."""
    places: Sequence[str] = ()
    """Names of the arguments from here on, where they may have none of their own."""
    key: str = ""
    """The argument whose value is being written."""
    word: bytes = b""
    """The last text, or what stands outside of texts: it may be a key."""
    quote: int = 0
    """What ends the text that is being written."""
    escaped: bool = False
    trie: NameTrie | None = None
    """Of the name that is being written."""
    node: bytes = b""
    """What there is of it."""
    done: bool = False
    broken: bool = False
    """Whether something was written that is no name."""

    @property
    def awaits(self) -> bool:
        """Whether the value of a held argument is the next thing to be written."""
        return not self.quote and self.depth == 1 and self.key in self.held

    def read(self, raw: bytes) -> None:
        """Read on."""
        for byte in raw:
            if self.done:
                return
            if self.trie is not None:
                self._read_name(byte, self.trie)
            elif self.quote:
                self._read_text(byte)
            else:
                self._read_sign(byte)

    def _read_name(self, byte: int, trie: NameTrie) -> None:
        self.node += bytes((byte,))
        if not trie.goes_on(self.node):
            self.broken, self.trie = True, None
            self._read_text(byte)
        elif trie.ends(self.node):
            self.trie, self.quote = None, 0 if byte == self.quote else self.quote

    def _read_text(self, byte: int) -> None:
        if self.escaped or byte == _ESCAPE:
            self.escaped = not self.escaped
        elif byte == self.quote:
            self.quote = 0
        else:
            self.word += bytes((byte,))

    def _read_sign(self, byte: int) -> None:
        if byte in QUOTES:
            if not self.key and self.places and self.depth == 1:
                self.key = self.places[0]
            if self.awaits:
                self.trie, self.node = self.paths.trie(self.held[self.key], byte), b""
            self.quote, self.word = byte, b""
        elif byte in _OPEN:
            self.depth += 1
        elif byte in _CLOSE:
            self.depth -= 1
            self.done = self.depth <= 0
        elif self.depth == 1 and byte in _BEFORE_VALUE:
            self.key, self.word = self.word.decode("utf-8", "replace").strip(), b""
        elif self.depth == 1 and byte == ord(","):
            self.key, self.word, self.places = "", b"", self.places[1:]
        else:
            self.word += bytes((byte,))


class HeldNames(Around):
    """The constraint of a turn, with arguments of its calls held to names.

    Args:
        inner: of the turn.
        tokenizer: of the model.
        required: has `names`.
    """

    def __init__(self, inner: TurnConstraint, tokenizer: Tokenizer, required: Requirement) -> None:
        super().__init__(inner)
        assert required.names is not None, "something is to be held"
        self._inner, self._tokenizer, self._required = inner, tokenizer, required
        self._held: Mapping[str, Mapping[str, str]] = required.names["arguments"]
        self._paths: Paths | None = None
        self._reader = ReplyReader(tokenizer, required.form, tags=required.thinking)
        self._call = -1
        """Number of the last call of the model's own format."""
        self._dressed = False
        """Whether a call in another dress is being written."""
        self._arguments: _Arguments | None = None
        """Of the call that is being written, where some are held."""
        self._before = ""
        self._ahead: list[int] | None = None
        """Tokens that are forced from here on; None: not looked yet."""

    def mask(self) -> Mask | None:
        """See `Constraint.mask`."""
        if (arguments := self._arguments) is None:
            return super().mask()
        mask, index = super().mask(), arguments.paths.index
        if arguments.trie is not None:
            if (forced := self.forced()) is not None:
                return self._only(np.array([forced], np.int64))
            among = _allowed(mask, arguments.trie.tokens(arguments.node))
            mask = self._only(among) if len(among) else mask  # a pattern may fit no name
        # A token may open the value, or end another one and do so, and go on with what is no name.
        crossing = _allowed(mask, index.near if arguments.awaits else index.far)
        refused = [token for token in crossing.tolist() if not self._fits((token,))]
        if refused:
            mask = self._every() if mask is None else mask.copy()
            for token in refused:
                mask[token // 32] &= ~np.uint32(1 << token % 32)
        return mask

    def forced(self) -> int | None:
        """See `LookaheadConstraint.forced`."""
        arguments = self._arguments
        if arguments is None or arguments.trie is None:
            return self._inner.forced()
        if self._ahead is None:
            node = arguments.node
            ahead = arguments.trie.forced(self._tokenizer, node, self._before)
            self._ahead = ahead[: self._inner.allows(ahead)] if ahead else []
        return self._ahead[0] if self._ahead else None

    def allows(self, tokens: Sequence[int]) -> int:
        """See `LookaheadConstraint.allows`."""
        count = self._inner.allows(tokens)
        return count if self._arguments is None else self._fits(tokens[:count])

    def advance(self, token: int) -> None:
        """See `Constraint.advance`."""
        super().advance(token)
        known = self._ahead is not None and self._ahead[:1] == [token]
        self._ahead = (self._ahead or [])[1:] or None if known else None
        raw = self._tokenizer.token_bytes(token)
        if self._arguments is not None:
            self._arguments.read(raw)
            if self._arguments.done:
                self._arguments = None
        self._look(token, raw)

    def _look(self, token: int, raw: bytes) -> None:
        """See whether the arguments of a call begin with a token."""
        begun, was = self._inner.begun(), self._dressed
        self._dressed = begun is not None
        if begun is not None and not was:
            head, text = begun
            self._begin(head.name, text, raw, python=head.python)
        if self._inner.in_call and not self._dressed:
            self._reader.push(token)
            for piece in self._reader.call_pieces():
                if piece.index != self._call:
                    self._call = piece.index
                    self._begin(piece.name, piece.text, raw)

    def _begin(self, name: str, text: str, raw: bytes, *, python: bool = False) -> None:
        """Read the beginning of the arguments: a text, which may lack the end of a character."""
        self._arguments, held = None, self._held.get(name)
        if not held:
            return
        self._paths = self._paths or _paths_of(self._tokenizer, self._required)
        made = _Arguments(held, self._paths)
        if python:
            tools = (one["function"] for one in self._required.tools)
            schemas = (one.get("parameters") or {} for one in tools if one["name"] == name)
            made.depth, made.places = 1, [*next(schemas, {}).get("properties", ())]
        self._before = '="' if python else ': "'
        begin = raw.rfind(text.encode("utf-8", "replace"))
        made.read(raw[begin:] if begin >= 0 else text.encode("utf-8", "replace"))
        self._arguments = None if made.done else made

    def _fits(self, tokens: Sequence[int]) -> int:
        """How many of these tokens go on with names where names are to be."""
        assert self._arguments is not None
        made = copy.copy(self._arguments)
        made.broken = False
        for n, token in enumerate(tokens):
            made.read(self._tokenizer.token_bytes(token))
            if made.broken:
                return n
        return len(tokens)

    def _only(self, tokens: Ids) -> Mask:
        words = np.zeros(-(-self._tokenizer.n_vocab // 32), np.uint32)
        np.bitwise_or.at(words, tokens >> 5, np.uint32(1) << (tokens & 31).astype(np.uint32))
        return words

    def _every(self) -> Mask:
        return self._only(np.arange(self._tokenizer.n_vocab))


def _allowed(mask: Mask | None, tokens: Ids) -> Ids:
    """Those of some tokens that a mask allows."""
    if mask is None or not len(tokens):
        return tokens
    return tokens[(mask[tokens >> 5] >> (tokens & 31).astype(np.uint32)) & 1 == 1]
