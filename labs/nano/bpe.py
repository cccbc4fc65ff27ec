"""nano's vocabulary: byte-level BPE whose merges stay within a word or a run of spaces.

The file names the standard `qwen2` pre-tokenizer, which hangs a space, a quote or a tab onto the
word behind it. Here no merge ever joins them, nor two punctuation signs: a word is the same
tokens everywhere, so that copying it needs no dictionary, and the JSON of a tool call has one
tokenisation however it is cut. Digits are single tokens by the pre-tokenizer itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

QWEN2_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORD_OR_SPACES = r"\p{L}+| +|[\s\S]"
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
VOCABULARY_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens by id (byte-level text), merges in order of rank; the special tokens come last."""

    tokens: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]

    @property
    def ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"tokens": self.tokens, "merges": self.merges}))

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        data = json.loads(path.read_text())
        merges = tuple((left, right) for left, right in data["merges"])
        return cls(tuple(data["tokens"]), merges)

    @classmethod
    def of_gguf(cls, metadata: Mapping[str, Any]) -> Vocabulary:
        """Return the vocabulary in the metadata of a GGUF."""
        pairs = (merge.split(" ") for merge in metadata["tokenizer.ggml.merges"])
        merges = tuple((left, right) for left, right in pairs)
        return cls(tuple(metadata["tokenizer.ggml.tokens"]), merges)


def learn(texts: Iterable[str], size: int = VOCABULARY_SIZE) -> Vocabulary:
    """Learn the vocabulary of `size` tokens that shortens `texts` most."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"),
            pre_tokenizers.Split(Regex(WORD_OR_SPACES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(CONTROL) - len(TAGS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = tuple((left, right) for left, right in model["merges"])
    return Vocabulary((*tokens, *CONTROL, *TAGS), merges)


def plain_tokenizer(vocabulary: Vocabulary) -> Tokenizer:
    """Return the `tokenizers` object under the qwen2 pre-tokenizer, without special tokens."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    special = set(CONTROL + TAGS)
    ids = {token: number for token, number in vocabulary.ids.items() if token not in special}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=list(vocabulary.merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
