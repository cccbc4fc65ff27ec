"""The vocabulary of a GGUF file, and which tokens untrusted text may become.

Three sets matter:

- *refused*: ids that plain text can never become. Every control token, and every user-defined token
  that looks like markup (`<tool_call>`): a file that contains `</tool_response>` must not end the
  tool result it is in.
- *hidden*: refused ids that are not shown in decoded text: the control tokens. `<tool_call>` is
  user-defined, part of what the model says, and shown.
- *plain markers*: user-defined tokens that are no markup (runs of spaces, say). They are taken as
  one token wherever their text occurs, in all text.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cached_property
from typing import Any

import numpy as np

from ...errors import UnsupportedModelError
from ..gguf.file import GGUFFile
from ..gguf.types import Texts, TokenType

_PREFIX = "tokenizer.ggml."

# The largest vocabulary has 262,144 tokens of 2.5 MB together, the longest token 256 bytes. Of more
# than some ten times that, libraries that are handed them take seconds and gigabytes, or panic.
MAX_TOKENS = 3 << 20
MAX_TOKEN = 1 << 13  # bytes
MAX_TOTAL = 1 << 25  # bytes of all tokens together
SAMPLED = 1024  # tokens that are compared with each other

# Keys that name a special token's id.
_NAMED = (
    *("bos", "eos", "eot", "eom", "unknown", "seperator", "separator", "padding", "cls", "mask"),
    *("prefix", "suffix", "middle", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep"),
    "fim_sep",
)

# Texts of control tokens that end a turn in the models of this format, whatever `eos` says.
STOP_TEXTS = frozenset(
    {
        *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|end_of_text|>", "<|endoftext|>"),
        *("<|return|>", "<|call|>", "<end_of_turn>", "<|endofturn|>", "<|end_of_turn|>", "</s>"),
        *("<eos>", "<｜end▁of▁sentence｜>", "<|END_OF_TURN_TOKEN|>", "<end_of_utterance>"),
        *("<start_function_response>", "<turn|>", "<|tool_response>", "<|observation|>"),
    }
)

# Where all are there, a turn is made of messages, and `<|end|>` ends but one of them.
_HARMONY = {"<|return|>", "<|call|>", "<|end|>"}

# Tokens around what is to be filled in: keys that name them, and their texts in files without keys.
_FILL = {
    "prefix": (
        ("fim_pre", "prefix"),
        *("<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"),
        *("<|code_prefix|>", "<|prefix|>"),
    ),
    "suffix": (
        ("fim_suf", "suffix"),
        *("<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"),
        *("<|code_suffix|>", "<|suffix|>"),
    ),
    "middle": (
        ("fim_mid", "middle"),
        *("<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"),
        *("<|code_middle|>", "<|middle|>"),
    ),
    "padding": (("fim_pad",), "<|fim_pad|>", "<fim_pad>", "<fim-pad>"),
    "repository": (
        ("fim_rep",),
        *("<|repo_name|>", "<|fim_repo|>", "<fim-repo>", "<reponame>", "<REPO>"),
    ),
    "file": (("fim_sep",), "<|file_sep|>"),
}

_MARKUP = re.compile(r"<.+>|\[.+\]|.*(?:<[|｜]|[|｜]>).*", re.DOTALL)
_HTML = re.compile(
    r"</?(?:html|body|footer|iframe|h[1-6]|p|br|hr|div|span|a|b|i|s|u|em|strong|sub|sup|code|pre"
    r"|blockquote|ul|ol|li|table|caption|thead|tbody|tfoot|tr|th|td)>"
)
_ALWAYS_CONTROL = re.compile(r"<[|｜].+[|｜]>", re.DOTALL)


def looks_like_markup(token: str) -> bool:
    """Return whether a token, spaces aside, is a tag: `<…>`, `[…]`, or with `<|` or `|>`.

    Tags of HTML are not meant: Gemma has tokens for them, and no template gives them a meaning.
    """
    token = token.strip()
    return _MARKUP.fullmatch(token) is not None and _HTML.fullmatch(token) is None


class Vocabulary:
    """The tokens, token types and special ids of one model.

    Attributes:
        n_vocab: number of tokens.
        bos, eos: ids of the tokens that begin and end a text, or None.
    """

    def __init__(self, gguf: GGUFFile) -> None:
        self._texts = self._read_texts(gguf)
        self.n_vocab = len(self._texts)
        self._require_different(gguf)
        self._types = self._read_types(gguf)
        self._named = self._read_named(gguf)
        self.bos = self._named.get("bos")
        self.eos = self._named.get("eos")

    def _read_texts(self, gguf: GGUFFile) -> Texts:
        key = _PREFIX + "tokens"
        found = gguf.strings(key)
        if found is None or not len(found):
            raise UnsupportedModelError(f"{gguf.path}: it holds no vocabulary ({key})")
        if len(found) > MAX_TOKENS:
            gguf.refuse(key, f"{len(found)} tokens; the limit is {MAX_TOKENS}")
        texts = gguf.texts(key, longest=MAX_TOKEN, total=MAX_TOTAL)
        assert texts is not None
        return texts

    def _require_different(self, gguf: GGUFFile) -> None:
        """Refuse a file if most of its tokens are duplicates; a few are common."""
        ids = range(0, self.n_vocab, max(1, self.n_vocab // SAMPLED))
        seen: dict[str, int] = {}
        same = [(i, first) for i in ids if (first := seen.setdefault(self._texts.at(i), i)) != i]
        if 2 * len(same) > len(ids):
            index, first = same[0]
            gguf.refuse_element(
                _PREFIX + "tokens", index, f"the same as token {first}, as most are"
            )

    def require_character(self, gguf: GGUFFile, characters: Container[str]) -> None:
        """Refuse a file without any of the characters as a normal token: no text would encode."""
        normal = (i for i in self._texts.shortest(4) if self._types[i] == TokenType.NORMAL)
        if not any(self._texts.at(i) in characters for i in normal):
            message = "no token is a single character, so no text can be written"
            gguf.refuse(_PREFIX + "tokens", message)

    def _read_types(self, gguf: GGUFFile) -> np.ndarray[tuple[int], np.dtype[Any]]:
        key = _PREFIX + "token_type"
        types = gguf.numbers(key, self.n_vocab)
        if types is None:
            return np.full(self.n_vocab, TokenType.NORMAL, np.int32)
        if types.dtype.kind not in "iu":
            gguf.refuse(key, "must be an array of whole numbers")
        return types[: self.n_vocab].copy()  # out of the mapping: they are needed all the time

    def _read_named(self, gguf: GGUFFile) -> dict[str, int]:
        """Read the ids of named special tokens; -1, also as an unsigned number, means none."""
        named: dict[str, int] = {}
        for name in _NAMED:
            key = f"{_PREFIX}{name}_token_id"
            token = gguf.integer(key, -1, low=-1, high=2**32 - 1)
            if token in (-1, 2**32 - 1):
                continue
            if token >= self.n_vocab:
                gguf.refuse(key, f"{token} is outside the vocabulary of {self.n_vocab}")
            named[name] = token
        return named

    def named(self, name: str) -> int | None:
        """Return the id of `tokenizer.ggml.NAME_token_id`, or None."""
        return self._named.get(name)

    @cached_property
    def tokens(self) -> list[str]:
        """Return the text of every token, as in the file."""
        return self._texts.all()

    @property
    def characters(self) -> int:
        """Return an upper bound on the characters of all tokens together."""
        return self._texts.nbytes

    def ids_of(self, *kinds: TokenType) -> list[int]:
        """Return the ids of the tokens of these types, ascending."""
        return np.flatnonzero(np.isin(self._types, kinds)).tolist()

    def kind(self, token: int) -> int:
        """Return the `TokenType` number of a token; an unknown number is unchanged."""
        return int(self._types[token])

    @cached_property
    def hidden(self) -> frozenset[int]:
        """Return the ids of control tokens, which are not part of the model's text."""
        tokens = self.tokens
        control = set(self.ids_of(TokenType.CONTROL, TokenType.UNKNOWN))
        # Files converted carelessly carry their control tokens as normal ones.
        control.update(
            i
            for i in self._texts.starting(b"<")
            if tokens[i].startswith(("<|", "<｜")) and self._is_stray_control(i)
        )
        control.update(i for i in self._named.values() if looks_like_markup(tokens[i]))
        return frozenset(control)

    def _is_stray_control(self, token: int) -> bool:
        text = self.tokens[token]
        normal = self._types[token] == TokenType.NORMAL
        return bool(normal) and _ALWAYS_CONTROL.fullmatch(text) is not None

    @cached_property
    def refused(self) -> frozenset[int]:
        """Return the ids that untrusted text can never become."""
        tokens = self.tokens
        markup = (i for i in self.ids_of(TokenType.USER_DEFINED) if looks_like_markup(tokens[i]))
        return self.hidden | frozenset(markup)

    @cached_property
    def plain_markers(self) -> dict[str, int]:
        """Map the tokens that are matched whole in any text to their ids."""
        return self._markers(set(self.ids_of(TokenType.USER_DEFINED)) - self.refused)

    @cached_property
    def all_markers(self) -> dict[str, int]:
        """Map the tokens that are matched whole in a template's text to their ids."""
        return self._markers({*self.refused, *self.ids_of(TokenType.USER_DEFINED)})

    def _markers(self, ids: set[int]) -> dict[str, int]:
        markers: dict[str, int] = {}
        for token in sorted(ids):
            if self.tokens[token]:
                markers.setdefault(self.tokens[token], token)
        return markers

    @cached_property
    def mergeable(self) -> dict[str, int]:
        """Map texts that BPE merges may produce to their ids: normal tokens, not refused."""
        ids = dict(zip(self.tokens, range(self.n_vocab), strict=True))
        others = np.flatnonzero(self._types != TokenType.NORMAL).tolist()
        for token in {*others, *self.refused}:
            text = self.tokens[token]
            if ids.get(text) == token:
                del ids[text]
        return ids

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Return the ids that end a turn in a history; some do not end an answer."""
        ends = {self._named[name] for name in ("eos", "eot", "eom") if name in self._named}
        ends.update(i for i in self.refused if self.tokens[i] in STOP_TEXTS)
        return frozenset(ends)

    @cached_property
    def fill(self) -> dict[str, int]:
        """Return the ids of the fill-in-the-middle tokens by role."""
        texts = {text for _, *texts in _FILL.values() for text in texts}
        known = {text: i for i, text in enumerate(self.tokens) if text in texts}
        found: dict[str, int] = {}
        for role, (keys, *texts) in _FILL.items():
            ids = [self._named[key] for key in keys if key in self._named]
            ids += [known[text] for text in texts if text in known]
            if ids:
                found[role] = ids[0]
        return found

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Return the ids that end an answer: eos, end of turn, end of message."""
        texts = {self.tokens[i]: i for i in self.end_ids}
        inner = {texts["<|end|>"]} if texts.keys() >= _HARMONY else frozenset()
        return self.end_ids - inner
