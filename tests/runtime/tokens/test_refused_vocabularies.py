"""Vocabularies that no library is handed: refused with the token's index and place, or in bounds.

What the libraries are handed all the same, and cannot bear, becomes an error of ours.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triplepoint.errors import GGUFError, GrammarError, ModelError
from triplepoint.runtime.conversation.grammar import matcher_tables
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.hub.model_info import read_model_info
from triplepoint.runtime.tokens import vocabulary
from triplepoint.runtime.tokens.byte_bpe import byte_characters
from triplepoint.runtime.tokens.foreign import translated
from triplepoint.runtime.tokens.tokenizer import Tokenizer

TOKENS, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
BYTES = list(byte_characters())
Texts = Sequence[str | bytes]


def write(path: Path, tokens: Texts, merges: Texts = ("a b",), **more: Any) -> Path:
    """A file with a vocabulary alone."""
    values = {"model": "gpt2", "pre": "qwen2", "tokens": tokens, "merges": merges, **more}
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "qwen3")
        for key, value in values.items():
            writer.add(f"tokenizer.ggml.{key}", value)
    return path


def refused(path: Path) -> GGUFError:
    """How `Tokenizer.from_gguf` refuses the file; `show` must say the same."""
    with open_gguf(path) as gguf, pytest.raises(GGUFError) as caught:
        Tokenizer.from_gguf(gguf)
    said = str(caught.value).removeprefix(f"{path}: ")
    assert said != str(caught.value)
    assert said in read_model_info(path).problems
    return caught.value


def string_at(path: Path, offset: int | None) -> bytes:
    """The string whose length stands there."""
    assert offset is not None
    raw = path.read_bytes()
    (length,) = struct.unpack_from("<Q", raw, offset)
    return raw[offset + 8 : offset + 8 + length]


@pytest.mark.parametrize("nbytes", [vocabulary.MAX_TOKEN + 1, 60_000, 1 << 20])
@pytest.mark.parametrize("which", ["tokens", "merges"])
def test_a_string_that_is_too_long(tmp_path: Path, nbytes: int, which: str) -> None:
    """From 60,000 bytes on a library panics; the error has the index and the place."""
    long = b"x" * (nbytes + 1)
    if which == "tokens":
        path = write(tmp_path / "a.gguf", [*BYTES, "ab", long, "c"])
        error, index = refused(path), 257
    else:
        path = write(tmp_path / "a.gguf", [*BYTES, "ab"], ["a b", "c d", long])
        error, index = refused(path), 2
    assert error.field == f"metadata 'tokenizer.ggml.{which}'[{index}]"
    assert "the limit is" in str(error)
    assert string_at(path, error.offset) == long


@pytest.mark.parametrize(("tokens", "merges", "field"), [
    ([b"\xff\xfe"], ["a b"], f"metadata '{TOKENS}'[256]"),
    (["ab", b"x\xc3"], ["a b"], f"metadata '{TOKENS}'[257]"),
    (["ab"], ["a b", b"\xff \xfe"], f"metadata '{MERGES}'[1]"),
    ([b"\xff\xfe"], [b"\xff \xfe"], f"metadata '{TOKENS}'[256]"),
])  # fmt: skip
def test_what_is_not_utf8(tmp_path: Path, tokens: Texts, merges: Texts, field: str) -> None:
    """A token or a merge; both in one vocabulary made a library panic."""
    path = write(tmp_path / "a.gguf", [*BYTES, *tokens], merges)
    error = refused(path)
    assert (error.field, "not valid UTF-8" in str(error)) == (field, True)
    assert any(byte > 127 for byte in string_at(path, error.offset))


def test_most_tokens_are_identical(tmp_path: Path) -> None:
    """The second of them is named; a few that come twice are in real files, and harmless."""
    path = write(tmp_path / "a.gguf", [*BYTES, *["ab"] * 300])
    error = refused(path)
    assert "the same as token" in str(error)
    assert error.field == f"metadata '{TOKENS}'[257]"
    assert string_at(path, error.offset) == b"ab"

    with open_gguf(write(tmp_path / "b.gguf", [*BYTES, *["ab"] * 9])) as gguf:
        assert Tokenizer.from_gguf(gguf).encode("ab") == [256 + 8]


@pytest.mark.parametrize("tokens", [["\ufffd", "ab"], ["", "aa", "bb"], ["<|im_end|>", "hello"]])
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_no_text_can_be_written(tmp_path: Path, tokens: list[str], model: str) -> None:
    """No token is a single character: every text would be no tokens at all."""
    scores = np.zeros(len(tokens), np.float32)
    error = refused(write(tmp_path / "a.gguf", tokens, model=model, scores=scores))
    assert "no text can be written" in str(error)
    assert error.field == f"metadata '{TOKENS}'"


def test_characters_that_text_may_not_become(tmp_path: Path) -> None:
    """Single characters that are control tokens do not count."""
    kinds = np.full(257, TokenType.CONTROL, np.int32)
    path = write(tmp_path / "a.gguf", [*BYTES, "ab"], token_type=kinds)
    assert "no text can be written" in str(refused(path))


def test_more_merges_than_tokens_can_have(tmp_path: Path) -> None:
    """Each cuts a token at one of its characters; what is beyond is refused before it is read."""
    path = write(tmp_path / "a.gguf", [*BYTES, "ab"], ["a b"] * 999)
    assert "characters" in str(refused(path))


def test_bounds_are_ten_times_what_real_files_have() -> None:
    """262,144 tokens, 2.5 MB, and 256 bytes are the largest known."""
    assert vocabulary.MAX_TOKENS >= 10 * 262_144
    assert vocabulary.MAX_TOTAL >= 10 * 2_500_000
    assert 60_000 > vocabulary.MAX_TOKEN >= 10 * 256


@pytest.mark.parametrize("tokens", [[], ["x" * vocabulary.MAX_TOKEN], ["\ufffd", "\ufffd\ufffd"]])
def test_what_is_accepted_the_libraries_bear(tmp_path: Path, tokens: list[str]) -> None:
    """The longest token that is allowed, and tokens that look like damaged ones."""
    path = write(
        tmp_path / "a.gguf", [*BYTES, *tokens, "ab"], ["a b", "\ufffd \ufffd"], eos_token_id=3
    )
    with open_gguf(path) as gguf:
        tokenizer = Tokenizer.from_gguf(gguf)
    assert tokenizer.decode(tokenizer.encode("ab\ufffd")) == "ab\ufffd"
    assert matcher_tables(tokenizer).vocab_size == tokenizer.n_vocab


def test_a_panic_becomes_an_error_of_ours() -> None:
    """It is no `Exception`; a token of 60,000 bytes that the library is handed makes one."""
    from llguidance import LLTokenizer, TokenizerWrapper

    class Vocabulary:
        tokens = (*(bytes([byte]) for byte in range(256)), b"x" * 60_000, b"<end>")
        eos_token_id, bos_token_id, special_token_ids = 257, None, (257,)

        def __call__(self, text: str) -> list[int]:
            return []

    with (
        pytest.raises(GrammarError, match="theirs: ") as caught,
        translated(lambda error: GrammarError(f"theirs: {error}")),
    ):
        LLTokenizer(TokenizerWrapper(Vocabulary()), eos_token=[257])
    assert not isinstance(caught.value.__cause__, Exception)


def test_what_is_translated() -> None:
    """Foreign errors are; ours, Ctrl-C and a lack of memory are not."""
    for inside, outside in (
        (ValueError("x"), ModelError),
        (GGUFError("x", path=Path("a"), field="b", offset=0), GGUFError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (SystemExit(2), SystemExit),
        (MemoryError(), MemoryError),
    ):
        with pytest.raises(outside), translated(lambda error: ModelError(f"theirs: {error}")):
            raise inside
