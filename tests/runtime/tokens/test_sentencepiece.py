"""SentencePiece vocabularies: ids equal those of a plain search for the best pair."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from triplepoint.errors import GGUFError, UnsupportedModelError
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.tokenizer import Tokenizer

WORDS = [
    "▁the",
    "▁then",
    "▁th",
    "▁",
    "▁▁",
    "▁▁▁▁",
    "th",
    "he",
    "hen",
    "en",
    "▁t",
    "in",
    "ing",
    "▁a",
]
LETTERS = list("abcdefghinrtxy.é▁")

Build = Callable[..., Tokenizer]


def pieces(extra: list[str]) -> list[tuple[str, TokenType, float]]:
    """Three control tokens, the bytes, then pieces with falling scores."""
    made = [
        ("<unk>", TokenType.UNKNOWN, 0.0),
        ("<s>", TokenType.CONTROL, 0.0),
        ("</s>", TokenType.CONTROL, 0.0),
    ]
    made += [(f"<0x{byte:02X}>", TokenType.BYTE, 0.0) for byte in range(256)]
    texts = list(dict.fromkeys([*WORDS, *extra, *LETTERS]))
    # Every third shares its score with the next: then the leftmost pair goes first.
    made += [(text, TokenType.NORMAL, -float(i - i // 3)) for i, text in enumerate(texts)]
    made += [("<tool>", TokenType.USER_DEFINED, 0.0), ("```", TokenType.USER_DEFINED, 0.0)]
    return made


@pytest.fixture
def build(tmp_path: Path) -> Build:
    def write(extra: list[str] | None = None, **metadata: Any) -> Tokenizer:
        made = pieces(extra or [])
        values: dict[str, Any] = {
            "model": "llama",
            "tokens": [text for text, _, _ in made],
            "scores": np.array([score for _, _, score in made], np.float32),
            "token_type": np.array([kind for _, kind, _ in made], np.int32),
            "bos_token_id": 1,
            "eos_token_id": 2,
            **metadata,
        }
        path = tmp_path / "spm.gguf"
        with GGUFWriter(path) as writer:
            for key, value in values.items():
                if value is not None:
                    writer.add(f"tokenizer.ggml.{key}", value)
        with open_gguf(path) as file:
            return Tokenizer.from_gguf(file)

    return write


def plain_merge(text: str, made: list[tuple[str, TokenType, float]]) -> list[int]:
    """The rule itself: join the best pair, leftmost of equals, until none is left."""
    known = {t: (i, s) for i, (t, kind, s) in enumerate(made) if kind is TokenType.NORMAL}
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [a + b for a, b in pairwise(parts)]
        scored = [(-known[pair][1], place) for place, pair in enumerate(pairs) if pair in known]
        if not scored:
            break
        _, place = min(scored)
        parts[place : place + 2] = [pairs[place]]
    first_byte = 3
    return [
        token
        for part in parts
        for token in (
            [known[part][0]] if part in known else [first_byte + byte for byte in part.encode()]
        )
    ]


@pytest.mark.parametrize("extra", [[], ["n▁t", "e▁"]], ids=["words", "pieces across words"])
def test_ids_equal_the_plain_rule(build: Build, extra: list[str]) -> None:
    """Random texts give the ids of the plain rule, also with pieces that cross words."""
    tokenizer, made = build(extra), pieces(extra)
    rng = random.Random(7)
    for _ in range(300):
        text = "".join(rng.choice("thena   ing.xé") for _ in range(rng.randint(1, 40)))
        assert tokenizer.encode(text) == plain_merge(text, made), text


def test_round_trip(build: Build) -> None:
    """Any text comes back: unknown characters through their bytes, leading spaces counted."""
    tokenizer = build()
    for text in ("", " ", "  the  ", "the then", "Größe 世界 🦙", "\n\t\x00", "<0x0A>", "a\r\nb"):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_byte_fallback(build: Build) -> None:
    """A character without a piece becomes its UTF-8 bytes; the text <0x0A> is no byte token."""
    tokenizer = build(add_space_prefix=False)
    assert tokenizer.encode("世") == [3 + byte for byte in "世".encode()]
    assert 3 + 0x0A not in tokenizer.encode("<0x0A>")


def test_space_prefix(build: Build) -> None:
    """A space goes before the text and after each marker, unless the file says otherwise."""
    with_prefix = build()
    assert with_prefix.encode("then") == with_prefix.encode("<s>then", special=True)[1:]
    the, then = (with_prefix.vocabulary.tokens.index(word) for word in ("▁the", "▁then"))
    assert with_prefix.encode("then the") == [then, the]
    assert with_prefix.encode("the<s>the", special=True) == [the, 1, the]

    without = build(add_space_prefix=False)
    assert without.decode(without.encode(" the")) == " the"
    assert without.encode(" the") == [the]


def test_outside_text_makes_no_control_token(build: Build) -> None:
    """Control tokens and tags are spelled out, even where pieces would merge up to them."""
    tokenizer = build(["<", "s", ">", "/", "<s", "<s>", "tool", "<tool", "<tool>"])
    ours = tokenizer.control_ids
    assert {1, 2} < ours
    for text in ("<s>", "</s>", "<unk>", "<tool>", "<s><s>", "< s>", "a<s>b", "<<s>s>"):
        ids = tokenizer.encode(text)
        assert not ours & set(ids)
        assert tokenizer.decode(ids) == text
    assert tokenizer.encode("<s>", special=True) == [1]


def test_plain_markers(build: Build) -> None:
    """User-defined tokens that are no tags are taken whole in any text."""
    tokenizer = build()
    fence = tokenizer.vocabulary.tokens.index("```")
    assert fence in tokenizer.encode("a```b")


def test_defaults(build: Build) -> None:
    """bos is wanted unless the file says no; eos ends an answer."""
    tokenizer = build()
    assert (tokenizer.add_bos, tokenizer.bos, tokenizer.eos) == (True, 1, 2)
    assert tokenizer.stop_ids == {2}
    assert build(add_bos_token=False).add_bos is False


def test_bad_scores(build: Build) -> None:
    """Missing, short, wrong or infinite scores are errors of the file."""
    count = len(pieces([]))
    for scores, message in (
        (None, "missing"),
        (np.zeros(count - 1, np.float32), f"has {count - 1} elements, {count} are needed"),
        (np.full(count, np.nan, np.float32), "not finite"),
        (["a"] * count, "array of numbers"),
    ):
        with pytest.raises(GGUFError, match=message) as caught:
            build(scores=scores)
        assert caught.value.field == "metadata 'tokenizer.ggml.scores'"


def test_unsupported_whitespace_rule(build: Build) -> None:
    """A file that wants spaces collapsed is refused: ids would be wrong."""
    with pytest.raises(UnsupportedModelError, match="remove_extra_whitespaces"):
        build(remove_extra_whitespaces=True)


def test_scores_may_be_whole_numbers(build: Build) -> None:
    """Scores of another numeric type give the same ids as the float32 ones."""
    made = pieces([])
    scores = np.array([score for _, _, score in made])
    expected = build().encode("the then thing")
    assert build(scores=scores.astype(np.int32)).encode("the then thing") == expected
