"""nano's vocabulary."""

import pytest

from labs.nano.bpe import CONTROL, TAGS, Vocabulary, learn, plain_tokenizer
from labs.nano.chatml import round_segments
from labs.nano.corpus import rounds


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    texts = [s.text for item in rounds(1, 300, size=6) for s in round_segments(item)]
    return learn(texts, size=700)


@pytest.mark.parametrize(
    "text",
    [
        "What's the error in app.log?",
        "12\tERROR  cannot open /var/log: Permission denied\n13\t\n",
        "grüße, 日本語, \U0001f642 \x00\x1b[0m \r\n\t  tabs",
        "<|im_end|> and <tool_call> are plain text here",
        "",
    ],
)
def test_any_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    """Ids decode to the text they came from, and no text gives a special token."""
    tokenizer = plain_tokenizer(vocabulary)
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert all(number < vocabulary.ids[CONTROL[0]] for number in ids)


def test_a_word_is_the_same_tokens_everywhere(vocabulary: Vocabulary) -> None:
    """Whatever stands before or behind a word, its own tokens do not change."""
    tokenizer = plain_tokenizer(vocabulary)
    alone = tokenizer.encode("timeout").ids
    for before, after in ((" ", " "), ("\t", "\n"), ('"', '"'), ("/", "."), ("=", ","), ("(", "?")):
        ids = tokenizer.encode(before + "timeout" + after).ids
        assert ids[1:-1] == alone


def _bytes(symbols: str) -> bytes:
    """What the symbols of a byte-level vocabulary stand for."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {chr(byte): byte for byte in printable} | {chr(256 + n): b for n, b in enumerate(rest)}
    return bytes(table[symbol] for symbol in symbols)


def test_digits_and_signs_stand_alone(vocabulary: Vocabulary) -> None:
    """No merge joins a digit, a sign or a space to anything but spaces to spaces.

    It may join the bytes of one character beyond ASCII, and letters of any script.
    """
    for left, right in vocabulary.merges:
        raw = _bytes(left + right)
        text = raw.decode("utf-8", "ignore")
        one_sign = not any(byte < 128 for byte in raw) and len(text) <= 1
        assert text.strip(" ") == "" or text.isalpha() or one_sign, raw
        assert " " not in text or text.strip(" ") == "", raw


def test_special_tokens_come_last(vocabulary: Vocabulary) -> None:
    """All 256 bytes are tokens; the special ones close the vocabulary."""
    assert vocabulary.tokens[-7:] == CONTROL + TAGS
    assert len(set(vocabulary.tokens)) == len(vocabulary.tokens) == 700
    assert len([token for token in vocabulary.tokens if len(token) == 1]) >= 256
