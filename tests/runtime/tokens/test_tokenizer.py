"""Byte-level BPE: ids as the trained tokenizer and as real vocabularies have them, and back.

A small vocabulary is trained here, so that every clone tests something real; the vocabularies of
published models are checked too where ../shared/reference/vocab is present.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import tokenizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from triplepoint.errors import GGUFError, ModelError, SettingError, UnsupportedModelError
from triplepoint.runtime.gguf.file import ValueType
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.byte_bpe import LONG, byte_characters, merged_ids
from triplepoint.runtime.tokens.tokenizer import Tokenizer
from triplepoint.runtime.tokens.vocabulary import looks_like_markup

VOCABULARIES = Path(__file__).parents[4] / "shared" / "reference" / "vocab"
REAL = ["qwen2", "llama-bpe", "gpt-2", "llama-spm"]
needs_vocabularies = pytest.mark.skipif(
    not VOCABULARIES.is_dir(), reason="no ../shared/reference/vocab here"
)

# Text, kind: what follows the trained tokens.
MARKERS = [
    ("<|endoftext|>", TokenType.CONTROL),
    ("<|im_start|>", TokenType.CONTROL),
    ("<|im_end|>", TokenType.CONTROL),
    ("<tool_call>", TokenType.USER_DEFINED),
    ("</tool_call>", TokenType.USER_DEFINED),
    ("[TOOL_CALLS]", TokenType.USER_DEFINED),
    ("<unk>", TokenType.UNKNOWN),
    ("<|stray|>", TokenType.NORMAL),  # a control token that was converted carelessly
    ("error", TokenType.CONTROL),  # a control token that is a word: merges lead up to it
    ("    ", TokenType.USER_DEFINED),
    ("  ", TokenType.USER_DEFINED),
    ("[PAD0]", TokenType.UNUSED),
]

TEXTS = [
    "",
    " ",
    "error in line 12: the error of errors",
    "Größe 世界 🦙 e\u0301 \x00\x1b[0m\ufeff",
    "a  b\n\n   c\t\td\r\n  ",
    "def f(x):\n    return {'a': [1, 2]}  # don't",
    "\u2028\u00a0\u3000 ½ ①",
]

CORPUS = [Path(__file__).read_text(encoding="utf-8"), *TEXTS, "the error in the log " * 20]

Write = Callable[..., Tokenizer]


@pytest.fixture(scope="module")
def trained() -> tokenizers.Tokenizer:
    """The oracle: 1,000 merges trained on this file, cut with the library's own GPT-2 pattern."""
    oracle = tokenizers.Tokenizer(BPE())
    oracle.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
    trainer = BpeTrainer(
        vocab_size=1256,
        initial_alphabet=list(byte_characters()),
        show_progress=False,
    )
    oracle.train_from_iterator(CORPUS, trainer)
    return oracle


@pytest.fixture
def write(trained: tokenizers.Tokenizer, tmp_path: Path) -> Write:
    """Writes the trained vocabulary with markers to a GGUF file; `metadata` replaces values."""

    def make(markers: list[tuple[str, TokenType]] | None = None, **metadata: Any) -> Tokenizer:
        model = json.loads(trained.to_str())["model"]
        tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
        markers = MARKERS if markers is None else markers
        kinds = [TokenType.NORMAL] * len(tokens) + [kind for _, kind in markers]
        values: dict[str, Any] = {
            "ggml.model": "gpt2",
            "ggml.pre": "gpt-2",
            "ggml.tokens": tokens + [text for text, _ in markers],
            "ggml.token_type": [int(kind) for kind in kinds],
            "ggml.merges": [" ".join(merge) for merge in model["merges"]],
            **metadata,
        }
        path = tmp_path / "bpe.gguf"
        with GGUFWriter(path) as writer:
            for key, value in values.items():
                if value is not None:
                    kind = ValueType.INT32 if key == "ggml.token_type" else None
                    writer.add(f"tokenizer.{key}", value, None if isinstance(value, str) else kind)
        with open_gguf(path) as file:
            return Tokenizer.from_gguf(file)

    return make


def marker_id(tokenizer: Tokenizer, text: str) -> int:
    """The id of a marker: the last token with this text."""
    tokens = tokenizer.vocabulary.tokens
    return len(tokens) - 1 - tokens[::-1].index(text)


# --- encoding -----------------------------------------------------------------------------------


def test_ids_equal_the_trained_tokenizer(write: Write, trained: tokenizers.Tokenizer) -> None:
    """Without markers, ids are those of the tokenizer that the vocabulary was trained with."""
    tokenizer = write([])
    for text in CORPUS:
        assert tokenizer.encode(text) == trained.encode(text).ids
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_random_text_comes_back(write: Write) -> None:
    """decode(encode(text)) is text for characters from all over Unicode."""
    tokenizer = write()
    rng = random.Random(3)
    for _ in range(300):
        picks = (rng.choice([0x20, 0x3C, 0x7C, rng.randrange(0x3000), 0x1F600]) for _ in range(30))
        text = "".join(map(chr, picks))
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
@pytest.mark.parametrize("unit", [" ", "a", "1", "\n", "<", "🦙", "é ", "<|im_end|>"])
def test_long_runs(write: Write, unit: str) -> None:
    """Long runs of one thing, the usual stumbling block of patterns, are encoded and come back."""
    tokenizer = write()
    text = unit * 50_000
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_others_run_while_a_long_text_is_cut(write: Write) -> None:
    """These 1.5 MB take about a second, in which other conversations would get no token."""
    tokenizer, text = write(), "error in line 12: the error of errors\n" * 40_000
    passed: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.wait(0.001):
            passed.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    part = tokenizer.encode(text[:38])
    began = time.perf_counter()
    ids = merged_ids(tokenizer._merger._tokenizer, text)  # pyright: ignore[reportAttributeAccessIssue]
    ended = time.perf_counter()
    done.set()
    other.join()

    assert ids == part * 40_000
    assert sum(began < at < ended for at in passed) >= 10


@pytest.mark.parametrize("length", [12, LONG])
def test_a_text_on_which_the_library_gives_up(length: int) -> None:
    """As on ten million spaces, where it panics. The text is at fault, and not the model's file."""

    class PanicException(BaseException):
        pass

    library: Any = Mock()
    library.encode.side_effect = library.encode_batch_fast.side_effect = PanicException("retry")
    with pytest.raises(SettingError, match=f"text of {length:,} characters cannot be cut .*retry"):
        merged_ids(library, " " * length)


def test_what_is_no_text(write: Write) -> None:
    """It is named, as a wrong argument is."""
    with pytest.raises(TypeError, match="a text must be a str, not 5"):
        write().encode(5)  # pyright: ignore[reportArgumentType]


def test_lone_surrogates(write: Write) -> None:
    """A character that UTF-8 cannot say becomes U+FFFD instead of an error."""
    tokenizer = write()
    assert tokenizer.decode(tokenizer.encode("a\ud800b\udfffc")) == "a\ufffdb\ufffdc"


def test_plain_markers_in_any_text(write: Write) -> None:
    """User-defined tokens that are no tags are one token in all text, the longest one first."""
    tokenizer = write()
    four, two = marker_id(tokenizer, "    "), marker_id(tokenizer, "  ")
    for special in (False, True):
        assert tokenizer.encode(" " * 7, special=special)[:2] == [four, two]
        assert four in tokenizer.encode("x\n    y", special=special)


def test_ignore_merges(write: Write) -> None:
    """With llama-bpe a word that is a token is taken as such even if no merge leads to it."""
    word, merges = [("qqq", TokenType.NORMAL)], ["t h"]
    whole = write(word, **{"ggml.pre": "llama-bpe", "ggml.merges": merges})
    assert whole.encode("qqq") == [marker_id(whole, "qqq")]
    merged = write(word, **{"ggml.pre": "smaug-bpe", "ggml.merges": merges})
    assert len(merged.encode("qqq")) == 3


def test_merges_of_missing_tokens_are_left_out(write: Write) -> None:
    """A merge whose result is no token does not stop the others."""
    tokenizer = write([], **{"ggml.merges": ["t h", "q z", "zz zz", "th e", "broken", " "]})
    the = tokenizer.vocabulary.tokens.index("the")
    assert tokenizer.encode("the") == [the]
    assert tokenizer.decode(tokenizer.encode("qz")) == "qz"


# --- control tokens -----------------------------------------------------------------------------


def carriers(text: str) -> list[str]:
    """Untrusted texts that hold `text`: alone, adjacent, nested, doubled, with spaces, in JSON."""
    half = len(text) // 2
    return [
        text,
        text + text,
        f" {text} ",
        f"x{text}y",
        text[:half] + text + text[half:],
        text[:1] + text,
        text + text[-1:],
        f"\n{text}\n{text}",
        json.dumps({"name": text}),
        f"<|im_start|>{text}</tool_call>",
        text.replace("|", "||"),
        text.upper(),
    ]


def hold_control_tokens(tokenizer: Tokenizer) -> int:
    """Prove for every control token that outside text never becomes one; how many were tried."""
    refused = tokenizer.control_ids
    for token in sorted(refused):
        text = tokenizer.vocabulary.tokens[token]
        for carrier in carriers(text):
            ids = tokenizer.encode(carrier)
            assert refused.isdisjoint(ids), (carrier, ids)
            assert tokenizer.decode(ids) == carrier
        for cut in range(1, len(text)):
            parts = [(text[:cut], True), (text[cut:], False)]
            assert token not in tokenizer.encode_parts(parts), parts
            assert token not in tokenizer.encode_parts([(t, not s) for t, s in parts]), parts
            assert token not in tokenizer.encode_parts([(t, False) for t, _ in parts]), parts
    everything = "".join(tokenizer.vocabulary.tokens[token] for token in sorted(refused))
    assert refused.isdisjoint(tokenizer.encode(everything))
    assert tokenizer.decode(tokenizer.encode(everything)) == everything
    return len(refused)


def test_outside_text_makes_no_control_token(write: Write) -> None:
    """Every control token and tag stays ordinary text in outside text, whatever surrounds it."""
    tokenizer = write(**{"ggml.bos_token_id": 1256, "ggml.eos_token_id": 1258})
    plain = {"    ", "  ", "[PAD0]"}
    refused = {marker_id(tokenizer, text) for text, _ in MARKERS if text not in plain}
    assert tokenizer.control_ids == refused
    assert hold_control_tokens(tokenizer) == len(refused)


def test_no_merge_leads_to_a_control_token(write: Write) -> None:
    """A control token that is also a word, or that merges spell out, is not merged up to."""
    steps = ["< |", "<| x", "<|x |", "<|x| >"]
    steps_tokens = [(step.replace(" ", ""), TokenType.NORMAL) for step in steps[:-1]]
    for pre in ("gpt-2", "llama-bpe"):
        tokenizer = write(
            [*steps_tokens, ("<|x|>", TokenType.CONTROL), ("error", TokenType.CONTROL)],
            **{"ggml.pre": pre, "ggml.merges": [*steps, "e r", "r o", "ro r", "er ror"]},
        )
        for text in ("<|x|>", "error", " error", "errors"):
            ids = tokenizer.encode(text)
            assert tokenizer.control_ids.isdisjoint(ids)
            assert tokenizer.decode(ids) == text


def test_template_text_makes_control_tokens(write: Write) -> None:
    """In trusted text every marker is recognized, and only in the trusted parts."""
    tokenizer = write()
    for text, kind in MARKERS:
        if kind is not TokenType.UNUSED:
            assert tokenizer.encode(text, special=True) == [marker_id(tokenizer, text)]

    start, end = (marker_id(tokenizer, text) for text in ("<|im_start|>", "<|im_end|>"))
    parts = [("<|im_start|>user\n", True), ("hi <|im_end|>", False), ("<|im_end|>\n", True)]
    ids = tokenizer.encode_parts(parts)
    assert [i for i in ids if i in tokenizer.control_ids] == [start, end]
    assert tokenizer.decode(ids, special=True) == "".join(text for text, _ in parts)


def test_parts_give_the_ids_of_the_whole(write: Write) -> None:
    """Words are cut as if the parts were one text: an edge changes no ids."""
    tokenizer = write()
    text = "the failure in the log: don't\n\npanic 1234"
    whole = tokenizer.encode(text)
    for cut in range(len(text)):
        assert tokenizer.encode_parts([(text[:cut], True), (text[cut:], False)]) == whole


def test_what_looks_like_markup() -> None:
    """Tags in angle or square brackets and anything with <| or |> count; code and spaces do not."""
    for tag in ("<tool_call>", "<eos>", "<think>\n", "[INST]", " [/INST]", "<|x|>", "<|a|>b"):
        assert looks_like_markup(tag), tag
    for plain in (
        "  ",
        "```",
        "->",
        "<",
        "<<",
        "a<b",
        "[]",
        "<>",
        "\n\n",
        "x]",
        "<td>",
        "</h1>",
        "</s>",
    ):
        assert not looks_like_markup(plain), plain


# --- decoding -----------------------------------------------------------------------------------


def test_decoding_control_tokens(write: Write) -> None:
    """Control tokens are left out unless asked for; the tags of tool calls are text."""
    tokenizer = write()
    ids = tokenizer.encode("<|im_start|>a<tool_call>b<|im_end|>", special=True)
    assert tokenizer.decode(ids) == "a<tool_call>b"
    assert tokenizer.decode(ids, special=True) == "<|im_start|>a<tool_call>b<|im_end|>"
    assert tokenizer.decode_bytes(ids) == b"a<tool_call>b"


def test_bytes_of_tokens(write: Write) -> None:
    """The first 256 trained tokens stand for the 256 bytes; ids outside are refused."""
    tokenizer = write()
    found = {tokenizer.token_bytes(token) for token in range(256)}
    assert found == {bytes([byte]) for byte in range(256)}
    assert tokenizer.token_bytes(marker_id(tokenizer, "<|im_end|>")) == b"<|im_end|>"
    for token in (-1, tokenizer.n_vocab):
        with pytest.raises(ValueError, match="outside the vocabulary"):
            tokenizer.token_bytes(token)


def test_stream_equals_decode(write: Write) -> None:
    """Pushed one by one, ids give the text of the whole, never half a character."""
    tokenizer = write()
    rng = random.Random(9)
    for text in [*TEXTS, "".join(chr(rng.randrange(0x80, 0xD000)) for _ in range(200))]:
        stream = tokenizer.stream()
        pushed = [stream.push(token) for token in tokenizer.encode(text)]
        assert "\ufffd" not in "".join(pushed)
        assert "".join(pushed) + stream.flush() == text
    for _ in range(100):
        ids = [rng.randrange(tokenizer.n_vocab) for _ in range(50)]
        stream = tokenizer.stream()
        text = "".join(map(stream.push, ids)) + stream.flush()
        assert text == tokenizer.decode(ids)


def test_stream_keeps_unfinished_characters(write: Write) -> None:
    """Three of the four bytes of a llama give nothing, then U+FFFD at the end of the text."""
    tokenizer = write([], **{"ggml.merges": ["t h"]})
    ids = tokenizer.encode("🦙")
    assert len(ids) == 4
    stream = tokenizer.stream()
    assert [stream.push(token) for token in ids[:3]] == ["", "", ""]
    assert stream.flush() == "\ufffd"
    assert [stream.push(token) for token in ids] == ["", "", "", "🦙"]


# --- metadata -----------------------------------------------------------------------------------


def test_special_ids(write: Write) -> None:
    """bos, eos, stops, template and add_bos come from the file."""
    tokenizer = write(
        **{
            "ggml.bos_token_id": 1256,
            "ggml.eos_token_id": 1256,
            "ggml.add_bos_token": True,
            "chat_template": "{{ messages }}",
            "chat_template.tool_use": "{{ tools }}",
        }
    )
    assert (tokenizer.bos, tokenizer.eos, tokenizer.add_bos) == (1256, 1256, True)
    assert (tokenizer.chat_template, tokenizer.tool_template) == ("{{ messages }}", "{{ tools }}")
    # <|im_end|> ends a turn though the file does not say so.
    assert tokenizer.stop_ids == {1256, marker_id(tokenizer, "<|im_end|>")}


def test_special_ids_missing(write: Write) -> None:
    """Without special ids, or with -1 in either spelling, there is none."""
    for none in (None, -1, 2**32 - 1):
        tokenizer = write([], **{"ggml.bos_token_id": none, "ggml.add_bos_token": True})
        assert (tokenizer.bos, tokenizer.eos, tokenizer.add_bos) == (None, None, False)
        assert (tokenizer.stop_ids, tokenizer.chat_template) == (frozenset(), None)


def test_wrong_metadata(write: Write) -> None:
    """Wrong types, lengths and ids in the metadata are errors that name the key."""
    for key, value, message in (
        ("ggml.tokens", [1, 2], "array of strings"),
        ("ggml.token_type", [1, 1], "has 2 elements, 1268 are needed"),
        ("ggml.token_type", "x", "array of numbers"),
        ("ggml.merges", None, "missing"),
        ("ggml.merges", [1], "array of strings"),
        ("ggml.bos_token_id", 1268, "outside the vocabulary of 1268"),
        ("ggml.eos_token_id", "x", "whole number"),
        ("ggml.pre", 3, "a string"),
        ("ggml.add_bos_token", 1, "a boolean"),
        ("chat_template", 1, "a string"),
    ):
        with pytest.raises(GGUFError, match=message) as caught:
            write(**{key: value})
        assert caught.value.field == f"metadata 'tokenizer.{key}'"


def test_unsupported_models(write: Write) -> None:
    """Kinds of tokenizer that are not known are refused with those that are."""
    with pytest.raises(UnsupportedModelError, match=r"'bert' is not supported.*gpt2, llama"):
        write(**{"ggml.model": "bert"})
    with pytest.raises(UnsupportedModelError, match=r"'klingon' is not known.*known: .*qwen2"):
        write(**{"ggml.pre": "klingon"})
    with pytest.raises(UnsupportedModelError, match="holds no vocabulary"):
        write(**{"ggml.tokens": None})
    assert issubclass(UnsupportedModelError, ModelError)


def test_nothing_is_built_before_it_is_needed(write: Write, tmp_path: Path) -> None:
    """Opening a model, its special ids and decoding do without the `tokenizers` library."""
    write()
    code = (
        "import sys\n"
        "from triplepoint.runtime.gguf.open import open_gguf\n"
        "from triplepoint.runtime.tokens.tokenizer import Tokenizer\n"
        f"tokenizer = Tokenizer.from_gguf(open_gguf({str(tmp_path / 'bpe.gguf')!r}))\n"
        "tokenizer.stop_ids, tokenizer.control_ids, tokenizer.decode([1, 2, 3])\n"
        "assert 'tokenizers' not in sys.modules\n"
        "tokenizer.encode('a')\n"
        "assert 'tokenizers' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- vocabularies of published models -----------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Callable[[str], Tokenizer]:
    loaded: dict[str, Tokenizer] = {}

    def load(name: str) -> Tokenizer:
        if name not in loaded:
            with open_gguf(VOCABULARIES / f"ggml-vocab-{name}.gguf") as file:
                loaded[name] = Tokenizer.from_gguf(file)
        return loaded[name]

    return load


@pytest.mark.slow
@needs_vocabularies
@pytest.mark.parametrize("name", REAL)
def test_real_vocabulary(real: Callable[[str], Tokenizer], name: str) -> None:
    """Ids are exactly those that llama.cpp publishes for its test texts, which come back."""
    tokenizer = real(name)
    base = VOCABULARIES / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{base}.inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{base}.out").read_text(encoding="utf-8").split("\n")
    assert len(texts) == len(lines) > 40
    for text, line in zip(texts, lines, strict=True):
        ids = tokenizer.encode(text)
        assert ids == [int(token) for token in line.split()], text
        assert tokenizer.decode(ids) == text


@pytest.mark.slow
@needs_vocabularies
@pytest.mark.parametrize("name", REAL)
def test_real_control_tokens(real: Callable[[str], Tokenizer], name: str) -> None:
    """No control token of a published vocabulary ever comes from outside text."""
    counts = {"qwen2": 293, "llama-bpe": 256, "gpt-2": 1, "llama-spm": 3}
    assert hold_control_tokens(real(name)) == counts[name]
