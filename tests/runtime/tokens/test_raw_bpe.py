"""Gemma 4's tokenizer: ids are those of the `tokenizers` library with the published settings."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers
from tokenizers.models import BPE

from triplepoint.errors import GGUFError
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.sentencepiece import SPACE
from triplepoint.runtime.tokens.tokenizer import Tokenizer as Ours

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool_response>", '<|"|>']
LETTERS = [*"abcdeé界.1", SPACE]
RUNS = ["\n" * n for n in range(1, 8)]
KINDS = [TokenType.CONTROL] * 6 + [TokenType.USER_DEFINED] * 2


def random_merges(seed: int, count: int = 120) -> list[tuple[str, str]]:
    """Merges of what there is already, none of them twice."""
    rng = random.Random(seed)
    tokens, merges = list(LETTERS), []
    while len(merges) < count:
        pair = rng.choice(tokens), rng.choice(tokens[-30:])
        if len("".join(pair)) <= 12 and pair not in merges:
            merges.append(pair)
            if "".join(pair) not in tokens:
                tokens.append("".join(pair))
    return merges


def newline_merges() -> list[tuple[str, str]]:
    """Every way to make a run of two, the longest runs first, as the published file has them."""
    longest = reversed(RUNS[1:])
    return [(run[:i], run[i:]) for run in longest for i in range(len(run) - 1, 0, -1)]


def write(path: Path, merges: list[tuple[str, str]], **more: Any) -> Ours:
    """The tokenizer of a file with these merges."""
    made = {"".join(pair): None for pair in merges} | dict.fromkeys(RUNS)
    texts = [*LETTERS, *(token for token in made if token not in LETTERS)]
    kinds = [*KINDS, *[TokenType.BYTE] * 256, *[TokenType.NORMAL] * len(texts)]
    values = {
        "model": "gemma4",
        "tokens": [*SPECIAL, *BYTES, *texts],
        "token_type": np.array(kinds, np.int32),
        "scores": np.zeros(len(kinds), np.float32),
        "merges": [" ".join(pair) for pair in merges],
        "bos_token_id": 2,
        "eos_token_id": 1,
        **more,
    }
    with GGUFWriter(path) as writer:
        for key, value in values.items():
            writer.add(f"tokenizer.ggml.{key}", value)
    with open_gguf(path) as file:
        return Ours.from_gguf(file)


@cache
def pair(seed: int, newlines: bool) -> tuple[Ours, Tokenizer]:
    """Our tokenizer, whose file has the merges of newlines or not, and the library's."""
    merges = [*newline_merges(), *random_merges(seed)]
    with TemporaryDirectory() as folder:
        kept = merges if newlines else [m for m in merges if "\n" not in m[0]]
        ours = write(Path(folder) / "raw.gguf", kept)
    vocabulary = {token: i for i, token in enumerate(ours.vocabulary.tokens)}
    model = BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    oracle = Tokenizer(model)
    oracle.normalizer = normalizers.Replace(" ", SPACE)
    return ours, oracle


TEXTS = st.text(st.sampled_from([*"abcde é界.1\n\n\t", "ж", "🦙", "\r"]), max_size=60)


@pytest.mark.parametrize("newlines", [True, False], ids=["all merges", "none of newlines"])
@given(text=TEXTS, seed=st.integers(0, 4))
def test_ids_equal_the_library(newlines: bool, text: str, seed: int) -> None:
    """Random texts over random merges give the library's ids and come back as they were."""
    ours, oracle = pair(seed, newlines)
    ids = ours.encode(text)

    assert ids == oracle.encode(text).ids
    assert ours.decode(ids) == text


@given(text=TEXTS, cut=st.integers(0, 60))
def test_where_tokens_begin(text: str, cut: int) -> None:
    """Each token lies where the one before it ends, whoever wrote which part."""
    ours, _ = pair(0, True)
    at = 0
    for token, begin in ours.locate([(text[:cut], True), (text[cut:], False)]):
        assert begin == at
        at += len(ours.token_bytes(token))
    assert at == len(text.encode())


def test_markers_and_spaces(tmp_path: Path) -> None:
    """Tags are tokens in a template's text only; a `▁` reads back as a space; no space is added."""
    ours = write(tmp_path / "raw.gguf", random_merges(1))
    turn, bos = ours.vocabulary.tokens.index("<|turn>"), 2

    assert ours.encode("<|turn>a", special=True)[0] == turn
    assert turn not in ours.encode("<|turn>a")
    assert ours.decode(ours.encode("<|turn>a")) == "<|turn>a"
    assert ours.decode(ours.encode("a▁b")) == "a b"
    assert (ours.bos, ours.add_bos) == (bos, True)
    assert {ours.vocabulary.tokens[i] for i in ours.stop_ids} == {
        *("<eos>", "<turn|>", "<|tool_response>")
    }


def test_bos_always(tmp_path: Path) -> None:
    """Also where a file says otherwise, as the first ones of this model did."""
    assert write(tmp_path / "raw.gguf", random_merges(1), add_bos_token=False).add_bos


def test_a_run_longer_than_any_token(tmp_path: Path) -> None:
    """It is cut into the longest runs that there are."""
    ours = write(tmp_path / "raw.gguf", random_merges(1))

    assert [len(ours.token_bytes(i)) for i in ours.encode("\n" * 17)] == [7, 7, 3]


def test_more_merges_than_there_can_be(tmp_path: Path) -> None:
    """Such a file is refused by name before anything is made of them."""
    with pytest.raises(GGUFError, match=r"raw\.gguf.*100000 merges"):
        write(tmp_path / "raw.gguf", [("a", "b")] * 100_000)
