"""Tokenizers of checkpoints: the ids stay what they were."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.checkpoints import LLAMA3, QWEN2, TEXTS, byte_tokenizer, split_regex
from tokenizers import Tokenizer as Theirs
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from triplepoint.errors import ModelError, UnsupportedModelError
from triplepoint.runtime.convert.vocabulary import PROBE, TokenizerData, read_tokenizer
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import TokenType
from triplepoint.runtime.gguf.write import GGUFWriter
from triplepoint.runtime.tokens.tokenizer import Tokenizer

SIZE = 330
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTES])
# As tokenizer.json files of these families have it; whether whole words come first.
FAMILIES: dict[str, tuple[Callable[[], Any], bool]] = {
    "qwen2": (lambda: split_regex(QWEN2), False),
    "llama-bpe": (lambda: split_regex(LLAMA3), True),
    "smaug-bpe": (lambda: split_regex(LLAMA3), False),
    "gpt-2": (lambda: BYTES, False),
    "smollm": (lambda: DIGITS, False),
    "tekken": (lambda: split_regex(TEKKEN), True),
}


def ours(data: TokenizerData, path: Path) -> Tokenizer:
    """The tokenizer as it is read from a file with this data."""
    with GGUFWriter(path) as writer:
        writer.add("tokenizer.ggml.model", data.model)
        writer.add("tokenizer.ggml.pre", data.pre)
        writer.add("tokenizer.ggml.tokens", data.tokens)
        writer.add("tokenizer.ggml.token_type", np.array(data.types, np.int32))
        if data.scores is not None:
            writer.add("tokenizer.ggml.scores", data.scores)
        if data.merges:
            writer.add("tokenizer.ggml.merges", data.merges)
        for key, value in data.others.items():
            writer.add(f"tokenizer.ggml.{key}", value)
        for key, value in data.templates.items():
            writer.add(key, value)
    with open_gguf(path) as file:
        return Tokenizer.from_gguf(file)


def save(folder: Path, tokenizer: Theirs, settings: dict[str, Any] | None = None) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings or {}))


@pytest.mark.parametrize("name", FAMILIES)
def test_ids_of_byte_level_bpe(tmp_path: Path, name: str) -> None:
    """The pre-tokenizer is told from what it does, and every text has the ids it had."""
    make, ignore_merges = FAMILIES[name]
    theirs = byte_tokenizer(make(), ignore_merges=ignore_merges)
    save(tmp_path, theirs)
    data = read_tokenizer(tmp_path, {}, SIZE, "llama")
    tokenizer = ours(data, tmp_path / "v.gguf")

    assert (data.model, data.pre) == ("gpt2", name)
    for text in (*TEXTS, PROBE, "", " ", "\n\n a"):
        assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize(
    ("arch", "pre"), [("llama", "llama-bpe"), ("lfm2moe", "lfm2"), ("deepseek2", "glm4")]
)
def test_families_that_cut_alike(tmp_path: Path, arch: str, pre: str) -> None:
    """Of the same cuts the architecture's own name is taken: it says whether BOS comes first."""
    save(tmp_path, byte_tokenizer(split_regex(LLAMA3), ignore_merges=True))

    assert read_tokenizer(tmp_path, {}, SIZE, arch).pre == pre


def test_ids_of_gemma4(tmp_path: Path) -> None:
    """Letters are merged as the checkpoint merges them, runs of newlines included."""
    theirs = Theirs(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    theirs.normalizer = normalizers.Replace(" ", "▁")
    theirs.pre_tokenizer = pre_tokenizers.Split("\n", "contiguous")
    letters = sorted({*"".join(TEXTS).replace(" ", "▁")})
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE + 300,
        special_tokens=["<unk>", "<bos>", *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=letters,
        show_progress=False,
    )
    theirs.train_from_iterator([*TEXTS, "\n" * 5, "\n\n"] * 3, trainer)
    theirs.add_special_tokens(["<bos>"])
    save(tmp_path, theirs, {"bos_token": "<bos>"})
    data = read_tokenizer(tmp_path, {}, SIZE + 400, "gemma4")
    tokenizer = ours(data, tmp_path / "v.gguf")

    assert (data.model, tokenizer.add_bos) == ("gemma4", True)
    for text in (*TEXTS, PROBE, "", " ", "\n\n a\n\n\n\n\nb"):
        assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids, text


def test_usual_name(tmp_path: Path) -> None:
    """Of names for the same cut the architecture's usual one is taken."""
    save(tmp_path, byte_tokenizer(DIGITS))
    assert read_tokenizer(tmp_path, {}, SIZE, "granite").pre == "refact"


@pytest.mark.parametrize(
    ("pre", "ignore_merges", "words"),
    [
        (split_regex(r"\p{L}+|\s"), False, "no known pre-tokenizer"),
        (split_regex(QWEN2), True, "takes whole words first"),
    ],
    ids=["cut", "merges"],
)
def test_unknown_pre_tokenizer(tmp_path: Path, pre: Any, ignore_merges: bool, words: str) -> None:
    """One that no name stands for is refused: other ids would be wrong without a sign."""
    save(tmp_path, byte_tokenizer(pre, ignore_merges=ignore_merges))
    with pytest.raises(UnsupportedModelError, match=words):
        read_tokenizer(tmp_path, {}, SIZE, "llama")


def test_composed_text(tmp_path: Path) -> None:
    """Qwen's tokenizer applies NFC, no engine of GGUF files does: composed text has its ids."""
    theirs = byte_tokenizer(split_regex(QWEN2))
    theirs.normalizer = normalizers.NFC()
    save(tmp_path, theirs)
    data = read_tokenizer(tmp_path, {}, SIZE, "qwen3")
    tokenizer = ours(data, tmp_path / "v.gguf")
    composed, apart = "Größe, naïve café", "cafe\u0301"

    assert len(data.notes) == 1
    assert tokenizer.encode(composed) == theirs.encode(composed).ids
    assert tokenizer.encode(apart) != theirs.encode(apart).ids


def test_prefix_space_is_refused(tmp_path: Path) -> None:
    """The words of such a tokenizer lie in the same places, but the first is another."""
    save(tmp_path, byte_tokenizer(pre_tokenizers.ByteLevel(add_prefix_space=True)))
    with pytest.raises(UnsupportedModelError, match="a space before every text"):
        read_tokenizer(tmp_path, {}, SIZE, "llama")


def test_marked_tokens(tmp_path: Path) -> None:
    """Special tokens are control tokens, added ones user-defined, missing ids unused."""
    theirs = byte_tokenizer(split_regex(QWEN2))
    theirs.add_tokens(["<tool_call>"])
    settings = {"bos_token": None, "eos_token": {"content": "<|im_end|>"}, "add_bos_token": False}
    save(tmp_path, theirs, settings)
    data = read_tokenizer(tmp_path, {"pad_token_id": 3, "bos_token_id": 7}, SIZE, "qwen3")
    ids = theirs.get_vocab()

    assert len(data.tokens) == len(data.types) == SIZE
    assert data.types[ids["<|im_start|>"]] == TokenType.CONTROL
    assert data.types[ids["<tool_call>"]] == TokenType.USER_DEFINED
    assert data.types[-1] == TokenType.UNUSED
    assert data.others["eos_token_id"] == ids["<|im_end|>"]
    assert data.others["padding_token_id"] == 3
    assert data.others["bos_token_id"] == 7
    assert data.others["add_bos_token"] is False


def test_token_before_every_text(tmp_path: Path) -> None:
    """Whether one is put there is told from what the tokenizer does."""
    theirs = byte_tokenizer(split_regex(LLAMA3), ignore_merges=True)
    bos = theirs.token_to_id("<|im_start|>")
    theirs.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", bos)]
    )
    save(tmp_path, theirs, {"bos_token": "<|im_start|>"})
    data = read_tokenizer(tmp_path, {}, SIZE, "llama")

    assert (data.others["add_bos_token"], data.others["add_eos_token"]) == (True, False)
    assert ours(data, tmp_path / "v.gguf").add_bos
    assert "eot_token_id" not in data.others


def test_further_ends_of_an_answer(tmp_path: Path) -> None:
    """Tokens that end one, of which only a list of ids tells: generation_config.json's first."""
    theirs = byte_tokenizer(split_regex(QWEN2))
    theirs.add_special_tokens(["<|user|>", "<|over|>"])
    save(tmp_path, theirs, {"eos_token": "<|im_end|>"})
    ids = theirs.get_vocab()
    names = ("<|im_end|>", "<|endoftext|>", "<|user|>", "<|over|>")
    ends = [ids[name] for name in names if name in ids]

    data = read_tokenizer(tmp_path, {"eos_token_id": ends}, SIZE, "qwen3")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends[:-1]}))
    fewer = read_tokenizer(tmp_path, {"eos_token_id": ends}, SIZE, "qwen3")

    named = {name: data.others.get(f"{name}_token_id") for name in ("eos", "eot", "eom")}
    assert named == {"eos": ids["<|im_end|>"], "eot": ids["<|user|>"], "eom": ids["<|over|>"]}
    assert fewer.others["eot_token_id"] == ids["<|user|>"]
    assert "eom_token_id" not in fewer.others


@pytest.mark.parametrize("beside", [True, False], ids=["generation_config", "config"])
def test_one_further_end(tmp_path: Path, beside: bool) -> None:
    """An id alone counts as a list does, where it is not the tokenizer's eos."""
    theirs = byte_tokenizer(split_regex(QWEN2))
    theirs.add_special_tokens(["<|user|>"])
    save(tmp_path, theirs, {"eos_token": "<|im_end|>"})
    ids = theirs.get_vocab()
    said = {"eos_token_id": ids["<|user|>"]}
    if beside:
        (tmp_path / "generation_config.json").write_text(json.dumps(said))
    data = read_tokenizer(tmp_path, {} if beside else said, SIZE, "qwen3")
    same = read_tokenizer(tmp_path, {"eos_token_id": ids["<|im_end|>"]}, SIZE, "qwen3")

    assert (data.others["eos_token_id"], data.others["eot_token_id"]) == (
        ids["<|im_end|>"],
        ids["<|user|>"],
    )
    assert data.notes == []
    assert beside or "eot_token_id" not in same.others


def test_more_ends_than_a_file_can_name(tmp_path: Path) -> None:
    """The first three are named, and a note says which are not."""
    theirs = byte_tokenizer(split_regex(QWEN2))
    names = [f"<end {n}>" for n in range(4)]
    theirs.add_special_tokens(names)
    save(tmp_path, theirs, {"eos_token": names[0]})
    ends = [theirs.get_vocab()[name] for name in names]
    data = read_tokenizer(tmp_path, {"eos_token_id": [*ends, ends[1]]}, SIZE, "qwen3")

    assert [data.others[f"{name}_token_id"] for name in ("eos", "eot", "eom")] == ends[:3]
    assert len(data.notes) == 1
    assert data.notes[0].endswith("will write on: '<end 3>'")


def test_templates(tmp_path: Path) -> None:
    """From tokenizer_config.json, one or several, or from a file beside it."""
    theirs = byte_tokenizer(split_regex(QWEN2))
    save(tmp_path, theirs, {"chat_template": "one"})
    found = read_tokenizer(tmp_path, {}, SIZE, "qwen2").templates
    assert found == {"tokenizer.chat_template": "one"}

    several = [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "b"}]
    save(tmp_path, theirs, {"chat_template": several})
    (tmp_path / "chat_template.jinja").write_text("c")
    assert read_tokenizer(tmp_path, {}, SIZE, "qwen2").templates == {
        "tokenizer.chat_template": "c",
        "tokenizer.chat_template.tool_use": "b",
        "tokenizer.chat_templates": ["tool_use"],
    }


def test_too_many_tokens(tmp_path: Path) -> None:
    """More tokens than the embedding table has rows."""
    save(tmp_path, byte_tokenizer(split_regex(QWEN2)))
    with pytest.raises(ModelError, match="has 290 tokens, the model's embedding table 280 rows"):
        read_tokenizer(tmp_path, {}, 280, "qwen2")


def test_nothing_to_read(tmp_path: Path) -> None:
    """Neither kind of file; or one that is no tokenizer."""
    with pytest.raises(ModelError, match=r"neither tokenizer\.json nor tokenizer\.model"):
        read_tokenizer(tmp_path, {}, SIZE, "llama")
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
    with pytest.raises(UnsupportedModelError, match="holds a WordPiece model"):
        read_tokenizer(tmp_path, {}, SIZE, "llama")
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}, "decoder": "ByteLevel"}')
    with pytest.raises(ModelError, match="has no vocabulary"):
        read_tokenizer(tmp_path, {}, SIZE, "llama")


# --- SentencePiece

MARK = "▁"


@pytest.fixture(scope="module")
def pieces() -> Theirs:
    """A tokenizer with byte fallback, as Llama 2's tokenizer.json is."""
    tokenizer = Theirs(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace(MARK, " "), decoders.ByteFallback()])
    first = ["<unk>", "<s>", "</s>", *(f"<0x{n:02X}>" for n in range(256))]
    # Words apart while it learns, so that no piece has a space inside.
    tokenizer.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=first, show_progress=False, limit_alphabet=60
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    described = json.loads(tokenizer.to_str())
    described["pre_tokenizer"] = None
    described["added_tokens"] = described["added_tokens"][:3]
    return Theirs.from_str(json.dumps(described))


@pytest.mark.parametrize("scheme", ["first", "always", "never"])
def test_ids_of_metaspace(tmp_path: Path, pieces: Theirs, scheme: str) -> None:
    """As newer files have it: the same ids but for texts that begin with a space."""
    theirs = Theirs.from_str(pieces.to_str())
    theirs.normalizer = normalizers.Sequence([])
    theirs.pre_tokenizer = pre_tokenizers.Metaspace(MARK, scheme, split=False)
    save(tmp_path, theirs)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    tokenizer = ours(data, tmp_path / "v.gguf")

    assert len(data.notes) == (scheme != "never")
    for text in TEXTS:
        assert tokenizer.encode(text) == theirs.encode(text, add_special_tokens=False).ids


def test_ids_of_pieces(tmp_path: Path, pieces: Theirs) -> None:
    """From tokenizer.json alone: merges become scores, bytes stand for what has no piece."""
    save(tmp_path, pieces, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})
    data = read_tokenizer(tmp_path, {}, 500, "llama")
    tokenizer = ours(data, tmp_path / "v.gguf")

    assert (data.model, data.types[0], data.types[3]) == (
        "llama",
        TokenType.UNKNOWN,
        TokenType.BYTE,
    )
    assert data.others["add_space_prefix"] is True
    for text in (*TEXTS, PROBE.replace(MARK, "")):
        assert tokenizer.encode(text) == pieces.encode(text, add_special_tokens=False).ids


def varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_file(
    data: TokenizerData,
    *,
    kind: int = 2,
    prefix: bool = True,
    normalizer: dict[int, int | bytes] | None = None,
) -> bytes:
    """A `tokenizer.model` with the pieces of `data`; normalizer: further fields of its settings."""
    out = b""
    assert data.scores is not None
    for token, type_, score in zip(data.tokens, data.types, data.scores, strict=True):
        piece = field(1, token.encode()) + field(2, float(score))
        out += field(1, piece + (field(3, int(type_)) if type_ != 1 else b""))
    trainer = field(3, kind) + field(40, 0) + field(41, 1) + field(42, 2) + field(43, -1)
    rules = {3: int(prefix), 4: 0} | (normalizer or {})
    said = b"".join(field(number, value) for number, value in rules.items())
    return out + field(2, trainer) + field(3, field(1, b"identity") + said)


def test_model_file(tmp_path: Path, pieces: Theirs) -> None:
    """`tokenizer.model` gives pieces, scores, types, named ids and whether a space comes first."""
    save(tmp_path, pieces)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(model_file(data, prefix=False))
    again = read_tokenizer(folder, {}, 430, "gemma3")

    assert again.tokens[:420] == data.tokens
    assert again.types[:420] == data.types
    assert again.scores is not None
    assert data.scores is not None
    assert np.array_equal(again.scores[:420], data.scores)
    assert again.types[420:] == [TokenType.UNUSED] * 10
    assert again.others["add_space_prefix"] is False
    assert {k: v for k, v in again.others.items() if k.endswith("_id")} == {
        "unknown_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
    }


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({4: 1}, "runs of spaces to be cut"),
        ({2: bytes(64)}, "characters that become others"),
        ({5: 0}, "plain spaces"),
    ],
)
def test_other_rules_of_a_model_file(
    tmp_path: Path, pieces: Theirs, rules: dict[int, int | bytes], said: str
) -> None:
    """Refused by name, unless a tokenizer.json beside it does without: then a note."""
    save(tmp_path, pieces)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    (tmp_path / "tokenizer.model").write_bytes(model_file(data, normalizer=rules))
    (note,) = read_tokenizer(tmp_path, {}, 420, "llama").notes
    assert said in note
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=said):
        read_tokenizer(tmp_path, {}, 420, "llama")


def test_tokenizer_json_beside_a_model_file(tmp_path: Path, pieces: Theirs) -> None:
    """What transformers would read is refused there, too."""
    save(tmp_path, pieces)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    (tmp_path / "tokenizer.model").write_bytes(model_file(data))
    pieces = Theirs.from_str(pieces.to_str())
    pieces.normalizer = normalizers.Lowercase()
    save(tmp_path, pieces)
    with pytest.raises(UnsupportedModelError, match="Lowercase"):
        read_tokenizer(tmp_path, {}, 420, "llama")


def test_marked_pieces(tmp_path: Path, pieces: Theirs) -> None:
    """Tokens that tokenizer_config.json adds to a `tokenizer.model` take their places."""
    save(tmp_path, pieces)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(model_file(data))
    added = {"300": {"content": "<start_of_turn>", "special": True}, "425": {"content": "▁▁"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    found = read_tokenizer(tmp_path, {}, 430, "gemma3")

    assert (found.tokens[300], found.types[300]) == ("<start_of_turn>", TokenType.CONTROL)
    assert (found.tokens[425], found.types[425]) == ("  ", TokenType.USER_DEFINED)


def test_added_tokens_past_the_table(tmp_path: Path, pieces: Theirs) -> None:
    """As Gemma 3's text models have one: left out, and said; the vocabulary itself is refused."""
    save(tmp_path, pieces)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model").write_bytes(model_file(data))
    added = {"419": {"content": "<last>"}, "420": {"content": "<image_soft_token>"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    found = read_tokenizer(tmp_path, {}, 420, "gemma3")

    assert (len(found.tokens), found.tokens[419]) == (420, "<last>")
    assert found.left_out == ["<image_soft_token>"]
    with pytest.raises(ModelError, match="has 420 tokens, the model's embedding table 419 rows"):
        read_tokenizer(tmp_path, {}, 419, "gemma3")


def test_damaged_model_file(tmp_path: Path, pieces: Theirs) -> None:
    """Refused by name at every cut; and so is a unigram model."""
    save(tmp_path, pieces)
    data = read_tokenizer(tmp_path, {}, 420, "llama")
    (tmp_path / "tokenizer.json").unlink()
    path = tmp_path / "tokenizer.model"
    path.write_bytes(model_file(data, kind=1))
    with pytest.raises(UnsupportedModelError, match="unigram"):
        read_tokenizer(tmp_path, {}, 430, "llama")
    path.write_bytes(b"")
    with pytest.raises(ModelError, match=r"tokenizer\.model is damaged"):
        read_tokenizer(tmp_path, {}, 430, "llama")
    path.write_bytes(model_file(data)[:1000] + b"\xff" * 20)
    with pytest.raises(ModelError, match=r"tokenizer\.model is damaged"):
        read_tokenizer(tmp_path, {}, 430, "llama")
