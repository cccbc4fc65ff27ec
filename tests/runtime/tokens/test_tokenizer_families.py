"""Ids of every family equal those of the `tokenizers` library on the models' own definitions.

A vocabulary is trained for each family with the pre-tokenizer that its models publish, made of the
library's own parts (`Digits`, `Punctuation`, `ByteLevel`, …) where the definition has them. Written
to a GGUF file under the family's name, it must give the same ids for text of every kind. So this
needs no published file; those are checked in test_tokenizer.py where they are present.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.decoders import ByteFallback, Fuse, Replace, Strip
from tokenizers.decoders import Sequence as Decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split
from tokenizers.trainers import BpeTrainer

from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.byte_bpe import byte_characters
from triplepoint.runtime.tokens.pretokenizers import PRE_TOKENIZERS
from triplepoint.runtime.tokens.sentencepiece import SPACE
from triplepoint.runtime.tokens.tokenizer import Tokenizer as Ours

TEXTS = [
    "The disk is full: no space left on /dev/sda1 (errno 28), 12345 of 67,890 blocks used.",
    "def read_file(path, start=1):\n    return open(path)[start:]  # don't, we'll, I'D\n\n\n",
    "camelCase HTTPServer x² ½ ① ٣٤ १२ naïve Größe ПРИВЕТ мир Ωμέγα 世界，你好。 한국어 ไทย",
    "  two  spaces\t\ttabs\r\nline\r\n\r\n   end   ",
    "a_b-c/d\\e<f>g|h~i`j^k$l+m=n 3.14 1,000 100200300400",
    "🦙🦙 e\u0301\u0327 x\u200dy\u00a0z\u3000.",
]
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (
    CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = TEKKEN.replace(r"\p{M}]+|", r"\p{M}]+" + CONTRACTIONS + "?|")
GPT4O = GPT4O.replace(r"\p{M}]*|\p{N}|", r"\p{M}]*" + CONTRACTIONS + r"?|\p{N}{1,3}|")
CASED = r"[\p{Lu}\p{Ll}\p{Lt}]"  # on these texts the same as the long list of the definition


def regex(*patterns: str) -> list[Any]:
    """Steps that cut at each match, as tokenizer.json files say it."""
    return [Split(Regex(pattern), "isolated") for pattern in patterns]


def byte_level(use_regex: bool) -> ByteLevel:
    """The last step; with `use_regex` the library's own form of the GPT-2 pattern cuts before."""
    return ByteLevel(add_prefix_space=False, use_regex=use_regex)


FAMILIES: dict[str, list[Any]] = {
    "gpt-2": [byte_level(True)],
    "phi-2": [byte_level(True)],
    "mpt": [byte_level(True)],
    "smollm": [Digits(individual_digits=True), byte_level(True)],
    "starcoder": [Digits(individual_digits=True), byte_level(True)],
    "refact": [Digits(individual_digits=True), byte_level(True)],
    "command-r": [Digits(individual_digits=True), byte_level(True)],
    "falcon": [
        *(Punctuation("contiguous"), byte_level(True), Digits(individual_digits=False)),
        *regex("[0-9][0-9][0-9]"),
    ],
    "qwen2": [*regex(LLAMA3.replace("{1,3}", "")), byte_level(False)],
    "qwen35": [
        *regex(
            LLAMA3.replace("{1,3}", "")
            .replace(r"?\p{L}+", r"?[\p{L}\p{M}]+")
            .replace(r" ?[^\s\p{L}", r" ?[^\s\p{L}\p{M}")
        ),
        byte_level(False),
    ],
    "llama-bpe": [*regex(LLAMA3), byte_level(False)],
    "lfm2": [*regex(LLAMA3), byte_level(False)],
    "glm4": [*regex(LLAMA3), byte_level(False)],
    "dbrx": [*regex(LLAMA3), byte_level(False)],
    "laguna": [
        Split(Regex(r"\n+"), "isolated"),
        *regex(LLAMA3.replace("{1,3}", "")),
        byte_level(False),
    ],
    "gpt-4o": [*regex(GPT4O), byte_level(False)],
    "tekken": [*regex(TEKKEN), byte_level(False)],
    "deepseek-llm": [
        *regex(r"[\r\n]", rf"\s?{CASED}+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$"),
        *regex("[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
        *(Digits(individual_digits=True), byte_level(False)),
    ],
    "deepseek-coder": [
        *regex(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"),
        *(Digits(individual_digits=True), byte_level(False)),
    ],
}
REQUIRED = {
    *("qwen2", "qwen35", "llama-bpe", "gpt-2", "smollm", "starcoder", "deepseek-llm"),
    *("deepseek-coder", "command-r", "falcon", "phi-2", "mpt", "refact", "tekken"),
    *("gpt-4o", "glm4", "lfm2", "laguna"),
}


def write(path: Path, **values: Any) -> Ours:
    """The tokenizer of a GGUF file with these `tokenizer.ggml` values."""
    with GGUFWriter(path) as writer:
        for key, value in values.items():
            writer.add(f"tokenizer.ggml.{key}", value)
    with open_gguf(path) as file:
        return Ours.from_gguf(file)


def random_texts(count: int, length: int) -> list[str]:
    """Texts of words, spaces, digits and characters from all over Unicode."""
    rng = random.Random(5)
    parts = [part for text in TEXTS for part in (*text, *text.split())]
    texts = []
    for _ in range(count):
        drawn = [
            rng.choice(parts) if rng.random() < 0.9 else chr(rng.randrange(0x20, 0xD7FF))
            for _ in range(length)
        ]
        # Where case is folded, 'ſ is 's: the one known difference, and no one writes it.
        texts.append("".join(drawn).replace("ſ", "s"))
    return texts


def trained(name: str) -> Tokenizer:
    """A vocabulary trained with the family's published pre-tokenizer."""
    oracle = Tokenizer(BPE(ignore_merges=PRE_TOKENIZERS[name].ignore_merges))
    oracle.pre_tokenizer = Sequence(FAMILIES[name])
    trainer = BpeTrainer(
        vocab_size=500, initial_alphabet=list(byte_characters()), show_progress=False
    )
    oracle.train_from_iterator([text for text in TEXTS for _ in range(3)], trainer)
    return oracle


def write_bpe(path: Path, oracle: Tokenizer, name: str) -> Ours:
    """The oracle's vocabulary as a GGUF file that names its pre-tokenizer."""
    model = json.loads(oracle.to_str())["model"]
    return write(
        path,
        model="gpt2",
        pre=name,
        tokens=sorted(model["vocab"], key=model["vocab"].__getitem__),
        merges=[" ".join(merge) for merge in model["merges"]],
    )


def test_every_family_that_is_promised_is_here() -> None:
    """All pre-tokenizers that the documentation names are validated against the library."""
    assert REQUIRED <= set(FAMILIES) <= set(PRE_TOKENIZERS)


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_equal_the_library(name: str, tmp_path: Path) -> None:
    """Fixed and random text gives the library's ids, and comes back as it was."""
    oracle = trained(name)
    ours = write_bpe(tmp_path / "bpe.gguf", oracle, name)
    for text in [*TEXTS, *random_texts(40, 60)]:
        ids = ours.encode(text)
        assert ids == oracle.encode(text).ids, text
        assert ours.decode(ids) == text


# --- SentencePiece ------------------------------------------------------------------------------


def pieces() -> list[str]:
    """Pieces in order of their score: letters that are frequent, then what joins them."""
    oracle = Tokenizer(BPE())
    oracle.normalizer = normalizers.Replace(" ", SPACE)
    oracle.pre_tokenizer = Split(SPACE, "merged_with_next")
    trainer = BpeTrainer(vocab_size=300, show_progress=False)
    oracle.train_from_iterator(TEXTS[:2] * 3 + ["    " * 5], trainer)
    vocabulary = oracle.get_vocab()
    found = sorted(vocabulary, key=vocabulary.__getitem__)
    return [SPACE * 2, SPACE * 4, *(p for p in found if p not in (SPACE * 2, SPACE * 4))]


def spm_oracle(texts: list[str], scores: list[float], prefix: bool) -> Tokenizer:
    """The same vocabulary as transformers converts it: every way to split a piece is a merge."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *texts]
    vocabulary = {name: i for i, name in enumerate(names)}
    score = dict(zip(texts, scores, strict=True))
    merges = [
        (piece[:i], piece[i:])
        for piece in sorted(texts, key=lambda text: -score[text])
        for i in range(1, len(piece))
        if piece[:i] in score and piece[i:] in score
    ]
    oracle = Tokenizer(
        BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    steps: list[Any] = [normalizers.Replace(" ", SPACE)]
    oracle.normalizer = normalizers.Sequence(
        [normalizers.Prepend(SPACE), *steps] if prefix else steps
    )
    strip = [Strip(" ", 1, 0)] if prefix else []
    oracle.decoder = Decoders([Replace(SPACE, " "), ByteFallback(), Fuse(), *strip])
    return oracle


@pytest.mark.parametrize("name", ["llama", "gemma"])
def test_sentencepiece_equals_the_library(name: str, tmp_path: Path) -> None:
    """Scores, byte fallback and the leading space give the ids of transformers' converted form."""
    prefix = name == "llama"
    texts = pieces()
    scores = [-float(i) for i in range(len(texts))]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    kinds = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    kinds += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(texts)
    ours = write(
        tmp_path / "spm.gguf",
        model="llama",
        tokens=["<unk>", "<s>", "</s>", *bytes_, *texts],
        scores=np.array([0.0] * 259 + scores, np.float32),
        token_type=np.array(kinds, np.int32),
        add_space_prefix=prefix,
        bos_token_id=1,
        eos_token_id=2,
    )
    oracle = spm_oracle(texts, scores, prefix)
    for text in [*TEXTS, *random_texts(40, 40), " leading", "   ", "\n", "x"]:
        text = text.replace(SPACE, "_")
        ids = ours.encode(text)
        assert ids == oracle.encode(text).ids, text
        assert ours.decode(ids) == text == oracle.decode(ids)


# --- tokens that swallow the blank space after them ----------------------------------------------


def phi3(path: Path, architecture: str) -> Ours:
    """A small vocabulary like Phi-3's."""
    names = ["<unk>", "<s>", "</s>", "<|endoftext|>", "<|user|>", "<|end|>"]
    letters = [SPACE, *"abc\n"]
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", architecture)
        writer.add("tokenizer.ggml.model", "llama")
        writer.add("tokenizer.ggml.tokens", [*names, *letters])
        writer.add("tokenizer.ggml.scores", np.zeros(11, np.float32))
        kinds = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 5, *[TokenType.NORMAL] * 5]
        writer.add("tokenizer.ggml.token_type", np.array(kinds, np.int32))
    with open_gguf(path) as file:
        return Ours.from_gguf(file)


def test_phi3_markers_swallow_blank_space(tmp_path: Path) -> None:
    """Of `<|user|>` and a line break only the marker is left, as Phi-3's tokenizer defines it."""
    text = "<s>\n<|user|>\n a<|end|> \n<|user|>"
    ours = phi3(tmp_path / "phi3.gguf", "phi3")
    ids = {token: ours.vocabulary.tokens.index(token) for token in ours.vocabulary.tokens}

    found = ours.encode(text, special=True)

    space, line, a = ids[SPACE], ids["\n"], ids["a"]
    user, end = ids["<|user|>"], ids["<|end|>"]
    assert found == [ids["<s>"], space, line, user, space, a, end, user]
    assert phi3(tmp_path / "llama.gguf", "llama").encode(text, special=True) != found


def test_what_is_no_blank_space_is_kept(tmp_path: Path) -> None:
    """Python's idea of it has four control characters more than Unicode's and the library's."""
    ours = phi3(tmp_path / "phi3.gguf", "phi3")
    for sign in "\x1c\x1d\x1e\x1f":
        begins = ours.locate([("<|user|>\x85\u3000", True), (f"{sign}\na", False)])
        text = [ours.token_bytes(token).decode() for token, _ in begins]
        assert text == ["<|user|>", " ", "\n", "a"]


def test_where_tokens_begin(tmp_path: Path) -> None:
    """`locate` gives the byte of each token, blank space that was added or swallowed left out."""
    ours = phi3(tmp_path / "phi3.gguf", "phi3")
    parts = [("<|user|>\n", True), (" ab\n", False), ("<|end|>\n", True), ("c", False)]

    found = ours.locate(parts)

    begins = [(ours.token_bytes(token).decode(), begin) for token, begin in found]
    assert begins == [
        ("<|user|>", 0),
        *((" ", 10), ("a", 10), ("b", 11), ("\n", 12)),
        ("<|end|>", 13),
        *((" ", 21), ("c", 21)),
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_lie_one_behind_the_other(tmp_path: Path, text: str) -> None:
    """In byte-level vocabularies each token begins where the one before it ends."""
    ours = write_bpe(tmp_path / "bpe.gguf", trained("gpt-2"), "gpt-2")
    at = 0
    for token, begin in ours.locate([(text, True)]):
        assert begin == at
        at += len(ours.token_bytes(token))
    assert at == len(text.encode())
