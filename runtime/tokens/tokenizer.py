"""The tokenizer of a GGUF file: text to token ids and back.

Text is of two kinds. What a chat template writes around the messages is trusted: the control tokens
in it are recognized (`special=True`). What users, files and tools say is not: whatever it contains,
it becomes ordinary tokens (`special=False`), because the tokens that merging may produce do not
include the refused ones at all; see vocabulary.py for which those are.

Building the merge tables of a large vocabulary takes a quarter of a second, so it waits for the
first `encode`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Protocol

from ...errors import UnsupportedModelError
from ..gguf.file import GGUFFile
from ..gguf.header import shown
from ..gguf.types import TokenType
from .byte_bpe import ByteBPE
from .raw_bpe import RawBPE
from .sentencepiece import SentencePiece
from .vocabulary import Vocabulary

_MODELS = {"gpt2": ByteBPE, "llama": SentencePiece, "gemma4": RawBPE}  # by tokenizer.ggml.model
_BLANK = re.compile(r"[^\S\x1c-\x1f]+")  # blank in Unicode: these four are so to Python alone
_SURROGATES = re.compile("[\ud800-\udfff]")


class Merger(Protocol):
    """Interface of the encoders of text without markers: ByteBPE, SentencePiece and RawBPE."""

    add_bos: bool
    """Whether text begins with BOS if the file does not specify it."""
    always_bos: bool
    """Whether text begins with BOS whatever the file specifies."""
    adds_space_prefix: bool

    def encode(self, text: str) -> list[int]: ...
    def token_bytes(self, token: str, kind: int) -> bytes: ...


class Tokenizer:
    """The tokenizer of one model; thread-safe.

    Attributes:
        vocabulary: the tokens and their types.
        n_vocab: number of tokens.
        bos, eos: ids, or None when the model has none.
        add_bos: whether the model wants `bos` before a text (templates often write it themselves).
        chat_template: the model's Jinja template, or None.
        tool_template: the template for conversations with tools; `chat_template` by default.
        answer_forms: the forms of the model's answers, or None (`conversation/answer_forms.py`).
        swallowing: ids of the markers that strip the whitespace after them.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        merger: Merger,
        *,
        add_bos: bool,
        chat_template: str | None,
        tool_template: str | None = None,
        answer_forms: str | None = None,
        swallowing: frozenset[int] = frozenset(),
    ) -> None:
        self.vocabulary = vocabulary
        self.n_vocab = vocabulary.n_vocab
        self.bos, self.eos = vocabulary.bos, vocabulary.eos
        self.add_bos = add_bos
        self.chat_template, self.answer_forms = chat_template, answer_forms
        self.tool_template = tool_template or chat_template
        self.swallowing = swallowing
        self._merger = merger
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def from_gguf(cls, gguf: GGUFFile) -> Tokenizer:
        """Build the tokenizer from the metadata of `gguf`.

        Raises UnsupportedModelError for a kind of tokenizer that is not known, and GGUFError for
        metadata that cannot be right. The file may be closed afterwards.
        """
        model = gguf.string("tokenizer.ggml.model", "")
        if model not in _MODELS:
            known = ", ".join(sorted(_MODELS))
            message = f"{gguf.path}: the tokenizer model {shown(model)} is not supported"
            raise UnsupportedModelError(f"{message} (tokenizer.ggml.model); known: {known}")
        vocabulary = Vocabulary(gguf)
        merger = _MODELS[model](gguf, vocabulary)
        return cls(
            vocabulary,
            merger,
            add_bos=(
                gguf.boolean("tokenizer.ggml.add_bos_token", merger.add_bos) or merger.always_bos
            )
            and vocabulary.bos is not None,
            chat_template=gguf.string("tokenizer.chat_template", "") or None,
            tool_template=gguf.string("tokenizer.chat_template.tool_use", "") or None,
            answer_forms=gguf.string("triplepoint.answers", "") or None,
            swallowing=_swallowing(gguf, vocabulary),
        )

    @property
    def stop_ids(self) -> frozenset[int]:
        """Return the ids that end an answer: eos, end of turn, end of message."""
        return self.vocabulary.stop_ids

    @property
    def eot(self) -> int | None:
        """Return the end-of-turn token, or None."""
        return self.vocabulary.named("eot")

    @property
    def fill_ends(self) -> frozenset[int]:
        """Return the ids that end a fill-in-the-middle text, in addition to `stop_ids`."""
        marks = self.vocabulary.fill
        return frozenset(marks[n] for n in ("padding", "repository", "file") if n in marks)

    @property
    def control_ids(self) -> frozenset[int]:
        """Return the ids of control tokens and tags, which untrusted text never becomes."""
        return self.vocabulary.refused

    # --- text to ids ------------------------------------------------------------------------

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Encode `text` to ids, without BOS.

        With `special`, control tokens spelled in `text` are recognized: only for trusted text.
        Without it, no id of `control_ids` results, whatever `text` is.
        """
        return self.encode_parts([(text, special)])

    def encode_parts(self, parts: Iterable[tuple[str, bool]]) -> list[int]:
        """Encode the joined texts of `parts` to ids, each with its own `special`.

        A marker is recognized only inside one part, and words are cut as in the joined text: so a
        rendered template gives the ids it would give as a whole, but control tokens never arise
        from untrusted parts, nor across an edge.
        """
        text, cuts = self._joined(parts)
        if text and not cuts:
            return self._merger.encode(text)
        return [token for token, _ in self._encode_between(text, cuts)]

    def locate(self, parts: Iterable[tuple[str, bool]]) -> list[tuple[int, int]]:
        """Encode as `encode_parts`; return pairs of id and byte offset in the joined UTF-8 text."""
        return self._encode_between(*self._joined(parts))

    def _joined(self, parts: Iterable[tuple[str, bool]]) -> tuple[str, list[tuple[int, int, int]]]:
        texts: list[str] = []
        cuts: list[tuple[int, int, int]] = []  # start, end, id of each marker
        done = 0
        for text, special in parts:
            if not isinstance(text, str):
                raise TypeError(f"a text must be a str, not {text!r}")
            text = _encodable(text)
            pattern, markers = self._all_markers if special else self._plain_markers
            if pattern is not None:
                for match in pattern.finditer(text):
                    cuts.append((done + match.start(), done + match.end(), markers[match[0]]))
            texts.append(text)
            done += len(text)
        return "".join(texts), cuts

    def _encode_between(self, text: str, cuts: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        pos = at = 0  # characters, bytes
        for start, end, token in [*cuts, (len(text), len(text), -1)]:
            if start > pos:
                chunk = text[pos:start]
                found += self._encode_chunk(chunk, at)
                at += len(chunk.encode("utf-8"))
            if token >= 0:
                found.append((token, at))
                at += len(text[start:end].encode("utf-8"))
            pos = max(pos, end)
            if token in self.swallowing:
                blank = _BLANK.match(text, pos)
                at += len(blank[0].encode("utf-8")) if blank else 0
                pos = blank.end() if blank else pos
        return found

    def _encode_chunk(self, text: str, at: int) -> Iterator[tuple[int, int]]:
        """Yield the ids of a text without markers, with their byte offsets from `at`."""
        begin = at - self._merger.adds_space_prefix  # that space is nowhere in the text
        for token in self._merger.encode(text):
            yield token, max(begin, at)
            begin += len(self.token_bytes(token))

    @cached_property
    def _plain_markers(self) -> tuple[re.Pattern[str] | None, dict[str, int]]:
        return _any_of(self.vocabulary.plain_markers)

    @cached_property
    def _all_markers(self) -> tuple[re.Pattern[str] | None, dict[str, int]]:
        return _any_of(self.vocabulary.all_markers)

    # --- ids to text ------------------------------------------------------------------------

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token's text; of a control token, those of its name."""
        known = self._bytes.get(token)
        if known is None:
            if not 0 <= token < self.n_vocab:
                raise ValueError(f"token {token} is outside the vocabulary of {self.n_vocab}")
            text, kind = self.vocabulary.tokens[token], self.vocabulary.kind(token)
            raw = kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
            known = text.encode("utf-8") if raw else self._merger.token_bytes(text, kind)
            self._bytes[token] = known
        return known

    def decode_bytes(self, ids: Iterable[int], *, special: bool = False) -> bytes:
        """Decode `ids` to bytes; control tokens by name with `special`, else left out."""
        hidden = frozenset() if special else self.vocabulary.hidden
        return b"".join(self.token_bytes(token) for token in ids if token not in hidden)

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Decode `ids` to text; invalid UTF-8 becomes U+FFFD.

        The space that SentencePiece prepends to a text is removed.
        """
        raw = self.decode_bytes(ids, special=special)
        if self._merger.adds_space_prefix and raw.startswith(b" "):
            raw = raw[1:]
        return raw.decode("utf-8", "replace")

    def stream(self) -> TokenStream:
        """Return an incremental decoder."""
        return TokenStream(self)


class TokenStream:
    """Incremental decoder; bytes of an incomplete character are buffered."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """Decode a token; return the text that it completes, empty for control tokens."""
        return self._decoder.decode(self._tokenizer.decode_bytes((token,)))

    def flush(self) -> str:
        """End the text; return U+FFFD for an incomplete character, else an empty text."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text


def _swallowing(gguf: GGUFFile, vocabulary: Vocabulary) -> frozenset[int]:
    """Return the ids of markers that strip the whitespace after them (see `swallows`).

    No key of the file records them. Phi-3's turn tokens do so: after ``<|user|>`` its tokenizer
    drops the line break that its template writes.
    """
    kind = gguf.string("general.architecture", ""), gguf.string("tokenizer.ggml.model", "")
    return frozenset(i for i in vocabulary.hidden if swallows(*kind, vocabulary.tokens[i]))


def swallows(architecture: str, model: str, marker: str) -> bool:
    """Return whether a marker strips the whitespace after it, as this engine reads a file.

    Args:
        architecture: `general.architecture`.
        model: `tokenizer.ggml.model`.
        marker: text of a control token.
    """
    phi3 = architecture == "phi3" and model == "llama"
    return phi3 and marker not in ("<unk>", "<s>", "<|endoftext|>")


def _encodable(text: str) -> str:
    """Replace lone surrogates, which UTF-8 lacks, by U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    return text


def _any_of(markers: dict[str, int]) -> tuple[re.Pattern[str] | None, dict[str, int]]:
    """Return a pattern that finds every marker, the longest first, and their ids."""
    if not markers:
        return None, markers
    longest_first = sorted(markers, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first))), markers
