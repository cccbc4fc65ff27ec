"""A checkpoint's tokenizer as GGUF metadata.

`tokenizer.json` with byte-level BPE becomes tokens and merges, and the name of the pre-tokenizer
that cuts a text as the checkpoint's own does. SentencePiece (`tokenizer.model`, or a
`tokenizer.json` with byte fallback) becomes pieces with scores; Gemma 4's keeps its merges.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelError, UnsupportedModelError
from ..gguf.types import TokenType
from ..tokens.byte_bpe import word_splits
from ..tokens.pretokenizers import PRE_TOKENIZERS
from ..tokens.tokenizer import swallows
from ..tokens.vocabulary import STOP_TEXTS
from .safetensors import read_json
from .sentencepiece_model import read_model
from .tokenizer_checks import (
    SPACE,
    added_tokens,
    check_added,
    check_bytes,
    check_pieces,
    check_prefix_space,
    puts_space_first,
)

_CONTROL = re.compile(r"<[|｜].+[|｜]>", re.DOTALL)
_BYTE = re.compile("<0x[0-9A-F]{2}>")
_NAMED = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding", "sep": "seperator",
          "cls": "cls", "mask": "mask"}  # fmt: skip

# Everything that the known pre-tokenizers treat differently.
PROBE = (
    "I'm sure it's HE'LL we'VE don’t; camelCase HTTPServer3 über-ſ 7 12345 3.14 1,000,000\n"
    "  two  spaces\tand\ttabs   \n\n\n\r\n x=[1, 2];//c++ a/b/\n!!!\n ...—“q” $9 <|x|> #tag @me\n"
    "日本語のテキスト、中文字符 한국어 ไทย ครับ हिन्दी é e\u0301 😀👍🏽 αβγ Ωmega дом İ ⅷ ²³ ١٢٣ "
    "__init__ don'T YOU'RE\u00a0nbsp \u3000wide 0x1F a1b2 end   "
)
# Names of equal families, the usual one for an architecture first.
_USUAL = {"granite": "refact", "qwen2": "qwen2", "qwen3": "qwen2", "qwen3moe": "qwen2",
          "deepseek2": "glm4", "lfm2": "lfm2", "lfm2moe": "lfm2"}  # fmt: skip
_PREFERRED = ("qwen2", "llama-bpe", "gpt-2", "smollm", "tekken", "gpt-4o", "qwen35", "deepseek-v3",
              "deepseek-llm", "deepseek-coder", "falcon", "smaug-bpe")  # fmt: skip


@dataclass(slots=True)
class TokenizerData:
    """The tokenizer data of a GGUF file.

    Attributes:
        model: `tokenizer.ggml.model`; pre: `tokenizer.ggml.pre`.
        tokens, types: of every id; scores: of every piece; merges: of byte-level BPE.
        others: further keys under `tokenizer.ggml.`, and the chat templates by their full keys.
        left_out: added tokens whose ids lie past the embedding table: no text can have them.
        notes: in what the file's tokenizer differs from the checkpoint's; a sentence each.
    """

    model: str
    pre: str
    tokens: list[str]
    types: list[int]
    scores: np.ndarray | None = None
    merges: list[str] = field(default_factory=list)
    others: dict[str, bool | int | str] = field(default_factory=dict)
    templates: dict[str, str | list[str]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_tokenizer(folder: Path, config: Mapping[str, Any], size: int, arch: str) -> TokenizerData:
    """Read the tokenizer of the checkpoint in `folder`, its vocabulary padded to `size` ids.

    config: `config.json`'s; size: rows of the embedding table.

    Raises:
        UnsupportedModelError: of a kind that cannot be said in GGUF.
        ModelError: a file is missing or makes no sense.
    """
    settings_file = folder / "tokenizer_config.json"
    settings = read_json(settings_file) if settings_file.exists() else {}
    whole = folder / "tokenizer.json"
    described = read_json(whole) if whole.exists() else None
    if arch == "gemma4" and described is not None and not _byte_level(described):
        data = _from_letters(described)
    elif (folder / "tokenizer.model").exists() and not (described and _byte_level(described)):
        data = _from_model(folder / "tokenizer.model", described)
    elif described is None:
        raise ModelError(f"{folder} has neither tokenizer.json nor tokenizer.model")
    elif _byte_level(described):
        data = _from_bytes(described, arch)
    else:
        data = _from_pieces(described)
    data.notes += check_added(described, settings, partial(swallows, arch, data.model))
    _add_marked(data, added_tokens(described, settings), size)
    _fill(data, size)
    generation = folder / "generation_config.json"
    ends = read_json(generation).get("eos_token_id") if generation.exists() else None
    _add_ends(data, described, settings, config)
    _add_other_ends(data, ends or config.get("eos_token_id"))
    _add_templates(data, folder, settings)
    return data


# --- the vocabulary


def _byte_level(described: Mapping[str, Any]) -> bool:
    model = described.get("model") or {}
    if model.get("type") not in ("BPE", None):
        raise UnsupportedModelError(
            f"tokenizer.json holds a {model.get('type')} model; BPE can be converted"
        )
    return '"ByteLevel"' in json.dumps([described.get("pre_tokenizer"), described.get("decoder")])


def _table(described: Mapping[str, Any]) -> list[str]:
    """Return the tokens in the order of their ids, empty where there is none."""
    vocab = (described.get("model") or {}).get("vocab")
    if not isinstance(vocab, dict) or not vocab:
        raise ModelError("tokenizer.json has no vocabulary (model.vocab)")
    ids = list(vocab.values())
    if not all(isinstance(n, int) and 0 <= n < 1 << 24 for n in ids):
        raise ModelError("tokenizer.json has ids that are no whole numbers")
    tokens = [""] * (max(ids) + 1)
    for token, n in vocab.items():
        tokens[n] = token
    return tokens


def _merges(described: Mapping[str, Any]) -> list[tuple[str, str]]:
    found = (described.get("model") or {}).get("merges") or []
    return [
        (left, right)
        for left, right in ((m[0], m[1]) if isinstance(m, list) else m.split(" ", 1) for m in found)
    ]


def _from_bytes(described: Mapping[str, Any], arch: str) -> TokenizerData:
    tokens, notes = _table(described), check_bytes(described)
    merges = [f"{left} {right}" for left, right in _merges(described)]
    ignore = bool((described.get("model") or {}).get("ignore_merges"))
    pre = detect_pre(described.get("pre_tokenizer"), ignore_merges=ignore, arch=arch)
    types: list[int] = [TokenType.NORMAL] * len(tokens)
    return TokenizerData("gpt2", pre, tokens, types, merges=merges, notes=notes)


def detect_pre(pre_tokenizer: Any, *, ignore_merges: bool, arch: str) -> str:
    """Find the name of the pre-tokenizer that splits a probe as `tokenizer.json` does.

    Raises:
        UnsupportedModelError: none of those that are known does.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Sequence

    if pre_tokenizer is None:
        raise UnsupportedModelError("tokenizer.json has no pre_tokenizer")
    check_prefix_space(pre_tokenizer)
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    theirs = _words(_tokenizer({"model": empty, "pre_tokenizer": pre_tokenizer}).pre_tokenizer)
    usual = (_USUAL[arch],) if arch in _USUAL else ()
    fitting = []
    for name in (*usual, *_PREFERRED, *PRE_TOKENIZERS):
        family = PRE_TOKENIZERS[name]
        to_characters = ByteLevel(add_prefix_space=False, use_regex=False)
        ours = Sequence([*word_splits(family), to_characters])
        if _words(ours) == theirs:
            if family.ignore_merges == ignore_merges:
                return name
            fitting.append(name)
    if fitting:
        merges = "takes whole words first" if ignore_merges else "merges every word"
        raise UnsupportedModelError(
            f"this tokenizer cuts a text as {fitting[0]} does but {merges} (ignore_merges)"
        )
    raise UnsupportedModelError(
        "no known pre-tokenizer cuts a text as this tokenizer.json does: "
        + json.dumps(pre_tokenizer)[:300]
    )


def _words(pre_tokenizer: Any) -> list[tuple[str, tuple[int, int]]]:
    """Split the probe into words as they are merged, with their start and end."""
    return list(pre_tokenizer.pre_tokenize_str(PROBE))


def _tokenizer(described: Mapping[str, Any]) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(json.dumps(dict(described)))
    except Exception as error:  # the library raises nothing narrower
        raise ModelError(f"tokenizer.json cannot be used: {error}") from error


def _from_model(path: Path, described: Mapping[str, Any] | None) -> TokenizerData:
    """Read SentencePiece's own file; as in transformers, a `tokenizer.json` beside it decides."""
    model = read_model(path)
    if model.other_rules and described is None:
        raise UnsupportedModelError(
            f"{path} asks for {' and '.join(model.other_rules)}, which is not supported: the ids "
            "of texts would be others (it is ignored where a tokenizer.json beside it does without)"
        )
    others: dict[str, bool | int | str] = {"add_space_prefix": model.adds_space_prefix}
    others["remove_extra_whitespaces"] = False
    data = TokenizerData("llama", "default", model.pieces, model.types, model.scores, others=others)
    data.notes = check_pieces(described) if described else []
    if model.other_rules:
        rules = " and ".join(model.other_rules)
        data.notes.append(f"tokenizer.model asks for {rules}, but not tokenizer.json; left out")
    for name, n in model.named.items():
        data.others[f"{name}_token_id"] = n
    return data


def _from_pieces(described: Mapping[str, Any], *, merges: bool = False) -> TokenizerData:
    """Read SentencePiece from `tokenizer.json` alone: a piece's score is its first merge's rank."""
    model = described.get("model") or {}
    if not model.get("byte_fallback"):
        raise UnsupportedModelError("tokenizer.json is neither byte-level nor with byte fallback")
    tokens = _table(described)
    scores = np.full(len(tokens), -1e6, np.float32)
    ids = {token: n for n, token in enumerate(tokens)}
    for rank, (left, right) in reversed(list(enumerate(_merges(described)))):
        if left + right in ids:
            scores[ids[left + right]] = -float(rank)
    types = [TokenType.BYTE if _BYTE.fullmatch(t) else TokenType.NORMAL for t in tokens]
    unknown = model.get("unk_token")
    if unknown in ids:
        types[ids[unknown]] = TokenType.UNKNOWN
    data = TokenizerData("llama", "default", tokens, [int(t) for t in types], scores)
    data.notes = check_pieces(described, merges=merges)
    data.others["add_space_prefix"] = puts_space_first(described)
    return data


def _from_letters(described: Mapping[str, Any]) -> TokenizerData:
    """Read BPE on characters: as pieces, except that the merges count."""
    data = _from_pieces(described, merges=True)
    data.model, data.pre = "gemma4", "gemma4"
    data.merges = [f"{left} {right}" for left, right in _merges(described)]
    return data


# --- marked tokens, filling, beginning and end


def _add_marked(data: TokenizerData, added: Mapping[int, Mapping[str, Any]], size: int) -> None:
    for n, entry in added.items():
        text = str(entry.get("content"))
        if n >= size:  # Gemma 3's text models have <image_soft_token> there
            data.left_out.append(text)
            continue
        if n >= len(data.tokens):
            _fill(data, n + 1)
        known = data.types[n] in (TokenType.UNKNOWN, TokenType.BYTE)
        if known and data.tokens[n] == text:
            continue
        control = entry.get("special") or _CONTROL.fullmatch(text) is not None
        data.types[n] = TokenType.CONTROL if control else TokenType.USER_DEFINED
        # A user-defined piece is compared with text, where the space is a space.
        spaced = data.model == "llama" and not control
        data.tokens[n] = text.replace(SPACE, " ") if spaced else text


def _fill(data: TokenizerData, size: int) -> None:
    """Give ids without a token an unreachable one."""
    if len(data.tokens) > size:
        raise ModelError(
            f"the tokenizer has {len(data.tokens)} tokens, the model's embedding table {size} rows"
        )
    for n, token in enumerate(data.tokens):
        if not token:
            data.tokens[n], data.types[n] = f"[PAD{n}]", TokenType.UNUSED
    for n in range(len(data.tokens), size):
        data.tokens.append(f"[PAD{n}]")
        data.types.append(TokenType.UNUSED)
    if data.scores is not None:
        missing = size - len(data.scores)
        data.scores = np.concatenate([data.scores, np.full(missing, -1e6, np.float32)])


def _add_ends(
    data: TokenizerData,
    described: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    config: Mapping[str, Any],
) -> None:
    ids = {token: n for n, token in reversed(list(enumerate(data.tokens)))}
    for theirs, name in _NAMED.items():
        text = settings.get(f"{theirs}_token")
        text = text.get("content") if isinstance(text, dict) else text
        number = config.get(f"{theirs}_token_id")
        number = number[0] if isinstance(number, list) and number else number
        if isinstance(text, str) and text in ids:
            number = ids[text]
        if isinstance(number, int) and 0 <= number < len(data.tokens):
            data.others[f"{name}_token_id"] = number
    begins, ends = _wrapped(described) if described else (None, None)
    for name, found in (("bos", begins), ("eos", ends)):
        setting = settings.get(f"add_{name}_token")
        adds = found if isinstance(found, bool) else setting if isinstance(setting, bool) else None
        if adds is not None:
            data.others[f"add_{name}_token"] = adds


def _add_other_ends(data: TokenizerData, ends: Any) -> None:
    """Add end tokens that neither `eos` nor their text identifies."""
    known = {data.others.get(f"{name}_token_id") for name in ("eos", "eot", "eom")}
    others = [
        n
        for n in (ends if isinstance(ends, list) else [ends])
        if isinstance(n, int) and 0 <= n < len(data.tokens) and n not in known
        and data.tokens[n] not in STOP_TEXTS
    ]  # fmt: skip
    others = list(dict.fromkeys(others))
    for name, n in zip(("eot", "eom"), others, strict=False):
        data.others.setdefault(f"{name}_token_id", n)
    if others[2:]:
        texts = ", ".join(repr(data.tokens[n]) for n in others[2:])
        data.notes.append(
            f"a GGUF file can name three tokens that end an answer; the checkpoint has more, after "
            f"which the model will write on: {texts}"
        )


def _wrapped(described: Mapping[str, Any]) -> tuple[bool | None, bool | None]:
    """Return whether the tokenizer adds a token before and after a text; None if unspecified."""
    if not described.get("post_processor"):
        return None, None
    tokenizer = _tokenizer(described)
    plain, whole = (tokenizer.encode("a", add_special_tokens=s).ids for s in (False, True))
    if len(plain) == len(whole):
        return False, False
    return whole[: len(plain)] != plain, whole[-len(plain) :] != plain


def _add_templates(data: TokenizerData, folder: Path, settings: Mapping[str, Any]) -> None:
    found = settings.get("chat_template")
    named = found if isinstance(found, list) else [{"name": "default", "template": found}]
    templates = {
        t["name"]: t["template"]
        for t in named
        if isinstance(t, dict) and isinstance(t.get("template"), str)
    }
    template_file = folder / "chat_template.jinja"
    if template_file.exists():
        templates["default"] = template_file.read_text(encoding="utf-8")
    for name, text in templates.items():
        key = "tokenizer.chat_template" + ("" if name == "default" else f".{name}")
        data.templates[key] = text
    others = [name for name in templates if name != "default"]
    if others:
        data.templates["tokenizer.chat_templates"] = others
