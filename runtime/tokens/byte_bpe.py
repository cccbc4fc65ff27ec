"""Byte-level BPE: maps each byte to a printable character, and merges these to tokens.

The merging itself is done by the `tokenizers` library; here its model is built from the vocabulary
and the merges of the GGUF file.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ModelError, SettingError
from ..gguf.file import GGUFFile
from ..gguf.types import Texts
from .foreign import translated
from .pretokenizers import PreTokenizer, pre_tokenizer
from .vocabulary import MAX_TOKEN, MAX_TOTAL, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as MergeTokenizer
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import Split


MAX_MERGE = MAX_TOKEN + 1  # bytes: two parts of a token and a space
LONG = 4096  # characters


def byte_characters() -> str:
    """Return the 256 characters that represent bytes in byte-level BPE vocabularies.

    Printable Latin-1 maps to itself; the other 68 bytes take the characters from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


# For codecs.charmap_encode: character → byte, in C.
_BYTE_OF = codecs.charmap_build(byte_characters())


def word_splits(pre: PreTokenizer) -> list[Split]:
    """Convert the patterns of a pre-tokenizer to splits of the `tokenizers` library."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    return [Split(Regex(pattern), "isolated") for pattern in pre.patterns]


def merged_ids(tokenizer: MergeTokenizer, text: str) -> list[int]:
    """Encode a text with the library; a long text does not block other threads.

    `encode` holds the GIL, 0.95 s for 1.6 MB against 0.02 s of `encode_batch_fast`, and is slower
    (1.3 times for 20 kB, 2.2 times for 1.6 MB) since it also computes offsets. A batch starts the
    library's own threads, which short texts do not need.

    Raises:
        SettingError: the library gives up, as on a run of ten million spaces.
    """
    try:
        if len(text) < LONG:
            return tokenizer.encode(text, add_special_tokens=False).ids
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
    except BaseException:  # only now: texts are short, and many
        why = f"a text of {len(text):,} characters cannot be cut into tokens"
        with translated(lambda error: SettingError(f"{why}: {error}")):
            raise


def read_merges(gguf: GGUFFile, characters: int) -> Texts:
    """Read the merges of a file; their length is bounded by the tokens' characters."""
    key = "tokenizer.ggml.merges"
    found = gguf.strings(key)
    if found is None:
        gguf.refuse(key, "missing")
    # Each cuts a token in two, and a token has no more places for that than characters.
    if len(found) > characters:
        gguf.refuse(key, f"{len(found)} merges, but the tokens have {characters} characters")
    merges = gguf.texts(key, longest=MAX_MERGE, total=2 * MAX_TOTAL)
    assert merges is not None
    return merges


def merge_model(tokens: dict[str, int], merges: Sequence[str], **options: Any) -> BPE:
    """Build the library's BPE model; merges that name a missing token are left out.

    Args:
        tokens: text → id.
        merges: two tokens each, a space between them.
        options: further options of the library's `BPE`.
    """
    from tokenizers.models import BPE

    cut = (merge.partition(" ") for merge in merges)
    pairs = [(first, second) for first, _, second in cut]
    try:
        return BPE(tokens, pairs, **options)
    except Exception:  # the library raises nothing narrower: a merge names a missing token
        known = [(a, b) for a, b in pairs if a in tokens and b in tokens and a + b in tokens]
    return BPE(tokens, known, **options)


def merges_refusal(path: Path) -> Callable[[BaseException], ModelError]:
    """Return a function that converts the library's error on merges to a ModelError."""
    key = "tokenizer.ggml.merges"
    return lambda error: ModelError(
        f"{path}: the merges do not fit the vocabulary: {error} ({key})"
    )


class ByteBPE:
    """Byte-level BPE tokenizer: encodes text without markers, decodes tokens to bytes."""

    always_bos = adds_space_prefix = False

    def __init__(self, gguf: GGUFFile, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._pre = pre_tokenizer(gguf.string("tokenizer.ggml.pre", ""), gguf.path)
        self.add_bos = self._pre.add_bos
        vocabulary.require_character(gguf, frozenset(byte_characters()))
        self._merges = read_merges(gguf, vocabulary.characters)
        self._path = gguf.path

    @cached_property
    def _tokenizer(self) -> MergeTokenizer:
        from tokenizers import Tokenizer
        from tokenizers.pre_tokenizers import ByteLevel, Sequence

        with translated(merges_refusal(self._path)):
            tokens, merges = self._vocabulary.mergeable, self._merges.all()
            model = merge_model(tokens, merges, ignore_merges=self._pre.ignore_merges)
            tokenizer = Tokenizer(model)
            to_characters = ByteLevel(add_prefix_space=False, use_regex=False)
            tokenizer.pre_tokenizer = Sequence([*word_splits(self._pre), to_characters])
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Encode `text` to ids; bytes without a token are dropped."""
        return merged_ids(self._tokenizer, text)

    def token_bytes(self, token: str, kind: int) -> bytes:
        """Return the bytes of a token's text."""
        try:
            return codecs.charmap_encode(token, "strict", _BYTE_OF)[0]
        except UnicodeEncodeError:  # not made of byte characters: a marker, or padding
            return token.encode("utf-8")
