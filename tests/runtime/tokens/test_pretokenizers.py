"""Words are cut as the named pre-tokenizer cuts them; expected pieces are worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers.pre_tokenizers import Sequence

from triplepoint.errors import UnsupportedModelError
from triplepoint.runtime.tokens.byte_bpe import word_splits
from triplepoint.runtime.tokens.pretokenizers import PRE_TOKENIZERS, pre_tokenizer

FILE = Path("model.gguf")
TEXT = "I'll don'T 12345 a_b  x\n\n  y camelCase c/d/\n"

# `|` stands between pieces.
EXPECTED = {
    "qwen2": "I|'ll| don|'T| |1|2|3|4|5| a|_b| | x|\n\n| | y| camelCase| c|/d|/\n",
    "llama-bpe": "I|'ll| don|'T| |123|45| a|_b| | x|\n\n| | y| camelCase| c|/d|/\n",
    "gpt-2": "I|'ll| don|'|T| 12345| a|_|b| | x|\n\n | y| camelCase| c|/|d|/|\n",
    "smollm": "I|'ll| don|'|T| |1|2|3|4|5| a|_|b| | x|\n\n | y| camelCase| c|/|d|/|\n",
    "falcon": "I|'|ll| don|'|T| |123|45| a|_|b| | x|\n\n | y| camelCase| c|/|d|/|\n",
    "tekken": "I|'ll| don|'T| |1|2|3|4|5| a|_b| | x|\n\n| | y| camel|Case| c|/d|/\n",
    "gpt-4o": "I'll| don'T| |123|45| a|_b| | x|\n\n| | y| camel|Case| c|/d|/\n",
    "deepseek-v3": "I|'ll| don|'T| |123|45| a|_b| | x|\n\n| | y| camelCase| c|/d|/\n",
    "deepseek-coder": "I|'|ll| don|'|T| |1|2|3|4|5| a|_|b| | x|\n|\n| | y| camelCase| c|/|d|/|\n",
    "deepseek-llm": "I|'|ll| don|'|T| |1|2|3|4|5| a|_|b| | x|\n|\n| | y| camelCase| c|/|d|/|\n",
    "seed-coder": "I|'ll| don|'T| |1|2|3|4|5| a|_b| | x|\n\n| | y| camelCase| c|/d|/|\n",
}
EXPECTED["qwen35"] = EXPECTED["qwen2"]
EXPECTED["smaug-bpe"] = EXPECTED["glm4"] = EXPECTED["llama-bpe"]
EXPECTED["laguna"] = "I|'ll| don|'T| |1|2|3|4|5| a|_b| | x|\n\n| | y| camelCase| c|/d|/|\n"


def pieces(name: str, text: str) -> list[str]:
    split = Sequence(word_splits(pre_tokenizer(name, FILE)))
    return [piece for piece, _ in split.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", EXPECTED)
def test_pieces(name: str) -> None:
    """Each family cuts contractions, digits, spaces, newlines and capitals in its own way."""
    assert pieces(name, TEXT) == EXPECTED[name].split("|")


def test_every_family_is_checked() -> None:
    """No pre-tokenizer is in the table whose cuts are not written down above."""
    assert {PRE_TOKENIZERS[name] for name in EXPECTED} == set(PRE_TOKENIZERS.values())


def test_combining_marks() -> None:
    """qwen35 keeps combining marks in the word, qwen2 cuts at them."""
    text = "n\u0303u क्षि"
    assert pieces("qwen2", text) == ["n", "\u0303u", " क", "्ष", "ि"]
    assert pieces("qwen35", text) == ["n\u0303u", " क्षि"]


def test_unicode_digits_and_spaces() -> None:
    """Digits and spaces beyond ASCII count as such."""
    assert pieces("llama-bpe", "１２３４") == ["１２３", "４"]
    assert pieces("qwen2", "a\u3000\u00a0b") == ["a", "\u3000", "\u00a0b"]


def test_chinese_is_its_own_word() -> None:
    """deepseek-v3 cuts Chinese and kana from what stands beside them."""
    assert pieces("deepseek-v3", "ab中文c") == ["ab", "中文", "c"]


def test_letters_of_deepseek_llm() -> None:
    """deepseek-llm keeps cased letters together and cuts all others one by one.

    Its range of symbols, `:` to `~`, holds the ASCII letters too: they part from their neighbors.
    """
    assert pieces("deepseek-llm", "Größe Ωμέγα ПРИВЕТ") == ["Gr", "öß", "e", " Ωμέγα", " ПРИВЕТ"]
    assert pieces("deepseek-llm", "中文 한국 x") == ["中文", " ", "한국", " x"]
    assert pieces("deepseek-llm", "a，b。 ") == ["a", "，", "b", "。", " "]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_nothing_is_lost(name: str) -> None:
    """The pieces of any text, joined, are the text."""
    text = "".join(map(chr, range(0x20, 0x500))) + " \r\n\t x \u2028🦙\u200d🦙\x00\x1f" + TEXT
    assert "".join(pieces(name, text)) == text


def test_unknown_name() -> None:
    """An unknown name is refused with the known ones; so is none at all."""
    with pytest.raises(UnsupportedModelError, match=r"'klingon' is not known.*gpt-2, .*qwen2"):
        pre_tokenizer("klingon", FILE)
    with pytest.raises(UnsupportedModelError, match="no pre-tokenizer is named"):
        pre_tokenizer("", FILE)


def test_laguna_cuts_lines_first() -> None:
    """A line break is never taken with the symbol or the spaces before it."""
    assert pieces("qwen2", "a: \n\n b{\n") == ["a", ":", " \n\n", " b", "{\n"]
    assert pieces("laguna", "a: \n\n b{\n") == ["a", ":", " ", "\n\n", " b", "{", "\n"]
