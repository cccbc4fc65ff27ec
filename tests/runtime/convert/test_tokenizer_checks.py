"""What a tokenizer does beside merging: known to change nothing, noted, or refused by name."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from triplepoint.errors import UnsupportedModelError
from triplepoint.runtime.convert.tokenizer_checks import (
    check_added,
    check_bytes,
    check_pieces,
    check_prefix_space,
    puts_space_first,
)
from triplepoint.runtime.tokens import tokenizer

MARK = "▁"
PREPEND = {"type": "Prepend", "prepend": MARK}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "normalizers": list(steps)}


def metaspace(**more: Any) -> dict[str, Any]:
    return {"type": "Metaspace", "replacement": MARK, **more}


@pytest.mark.parametrize(
    ("normalizer", "notes"), [(None, 0), (sequence(), 0), ({"type": "NFC"}, 1)]
)
def test_bytes_of_published_models(normalizer: Any, notes: int) -> None:
    """Llama 3, DeepSeek and Qwen have these; NFC is told of."""
    model = {"continuing_subword_prefix": "", "end_of_word_suffix": ""}
    found = check_bytes({"normalizer": normalizer, "model": model})

    assert len(found) == notes
    assert all("NFC" in note for note in found)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        *[
            ({"normalizer": {"type": kind}}, f'the normalizer {{"type": "{kind}"')
            for kind in ("NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Nmt")
        ],
        ({"normalizer": sequence({"type": "NFC"}, {"type": "Lowercase"})}, "Lowercase"),
        ({"normalizer": PREPEND}, "Prepend"),
        ({"normalizer": REPLACE}, "Replace"),
        ({"model": {"end_of_word_suffix": "</w>"}}, "end_of_word_suffix = '</w>'"),
        ({"model": {"continuing_subword_prefix": "##"}}, "continuing_subword_prefix = '##'"),
    ],
)
def test_bytes_that_are_refused(change: dict[str, Any], said: str) -> None:
    """Each by name."""
    with pytest.raises(UnsupportedModelError) as caught:
        check_bytes(change)
    assert said in str(caught.value)
    assert "the ids of texts would be others" in str(caught.value)


def test_prefix_space() -> None:
    """It stands in the pre-tokenizer; a post-processor that has it too does not count."""
    plain = {"type": "ByteLevel", "add_prefix_space": False}
    check_prefix_space(plain)
    for pre in (
        {"type": "ByteLevel", "add_prefix_space": True},
        {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits"}, plain | {"add_prefix_space": True}],
        },
    ):
        with pytest.raises(UnsupportedModelError, match="a space before every text"):
            check_prefix_space(pre)


@pytest.mark.parametrize(
    ("normalizer", "pre", "prefix", "notes"),
    [
        (sequence(PREPEND, REPLACE), None, True, []),
        (REPLACE, {"type": "Split", "pattern": {"String": " "}}, False, []),
        (None, metaspace(prepend_scheme="first", split=False), True, ["special token"]),
        (None, metaspace(prepend_scheme="always", split=False), True, ["begin with one;"]),
        (None, metaspace(prepend_scheme="never", split=False), False, []),
        (None, metaspace(add_prefix_space=True), True, ["begin with one;"]),
        (None, metaspace(add_prefix_space=False), False, []),
        (sequence({"type": "NFC"}, REPLACE), None, False, ["NFC"]),
    ],
    ids=["llama", "gemma", "mistral", "always", "never", "old", "old never", "nfc"],
)
def test_pieces_of_published_models(
    normalizer: Any, pre: Any, prefix: bool, notes: list[str]
) -> None:
    """What their files have, and whether a space comes first."""
    described = {"normalizer": normalizer, "pre_tokenizer": pre, "model": {"vocab": {"▁a": 0}}}
    found = check_pieces(described)

    assert puts_space_first(described) is prefix
    assert len(found) == len(notes)
    assert all(words in note for words, note in zip(notes, found, strict=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"normalizer": sequence({"type": "NFKC"}, PREPEND, REPLACE)}, "NFKC"),
        ({"normalizer": {"type": "Precompiled"}}, "Precompiled"),
        ({"normalizer": PREPEND | {"prepend": " "}}, "Prepend"),
        ({"normalizer": REPLACE | {"content": "_"}}, "Replace"),
        ({"pre_tokenizer": {"type": "Digits"}}, 'the pre_tokenizer {"type": "Digits"'),
        ({"pre_tokenizer": metaspace(split=True)}, "split of Metaspace) beside '▁▁'"),
        ({"pre_tokenizer": metaspace(replacement="_")}, "Metaspace"),
    ],
)
def test_pieces_that_are_refused(change: dict[str, Any], said: str) -> None:
    """Each by name."""
    with pytest.raises(UnsupportedModelError) as caught:
        check_pieces({"model": {"vocab": {"▁a": 0, "▁▁": 1}}} | change)
    assert said in str(caught.value)


def test_added_tokens_that_take_spaces() -> None:
    """Phi-3 and others have some: converted, with a note that names three."""
    added = [{"id": n, "content": f"<|{n}|>", "rstrip": True, "special": True} for n in range(5)]
    settings = {"added_tokens_decoder": {"9": {"content": "<mask>", "lstrip": True}}}
    (note,) = check_added({"added_tokens": added}, settings)

    assert "'<|0|>', '<|1|>', '<|2|>' and 3 more tokens (lstrip, rstrip)" in note
    assert check_added({"added_tokens": [{"id": 0, "content": "<s>"}]}, {}) == []


def test_spaces_that_this_engine_drops_too() -> None:
    """Those behind Phi-3's special tokens: there is nothing to note, but for those before one."""
    swallows = partial(tokenizer.swallows, "phi3", "llama")
    user = {"id": 1, "content": "<|user|>", "rstrip": True, "special": True}
    assert check_added({"added_tokens": [user]}, {}, swallows) == []
    for other in ({"lstrip": True}, {"special": False}, {"content": "<|endoftext|>"}):
        (note,) = check_added({"added_tokens": [user | other]}, {}, swallows)
        assert "drops spaces" in note


def test_added_tokens_that_stand_alone() -> None:
    """A note where no text has it; refused where it is a word."""
    marked = {"id": 0, "content": "</s>", "single_word": True, "special": True}
    (note,) = check_added({"added_tokens": [marked]}, {})

    assert "'</s>' only as whole words" in note
    word = marked | {"content": "lead", "special": False}
    with pytest.raises(UnsupportedModelError, match="'lead' only as a whole word"):
        check_added({"added_tokens": [word]}, {})
