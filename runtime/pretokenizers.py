"""How text is cut into words before byte-pair merges, by the name in `tokenizer.ggml.pre`.

A wrong cut gives other tokens than the model was trained with and nothing else looks wrong, so a
name that is not in this table is refused. The patterns are those of the models' own tokenizer
definitions; each is applied to the pieces that the one before it left, matches and gaps alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UnsupportedModelError


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """Patterns, applied in turn. `ignore_merges`: a word that is itself a token is taken as is."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False  # what the family does when the file does not say


# Spelled out rather than (?i:…): case folding would also take 'ſ (long s) for 's.
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN2 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
# Words with inner capitals are cut: `camelCase` is `camel` and `Case`.
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LEAD}{_UPPER}*{_LOWER}+|{_LEAD}{_UPPER}+{_LOWER}*|\p{{N}}|{_SYMBOLS}|{_SPACES}"
_GPT4O = (
    rf"{_LEAD}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_LEAD}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACES}"
)
_DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
) + _SPACES

_FAMILIES: dict[PreTokenizer, tuple[str, ...]] = {
    PreTokenizer((_QWEN2,)): (
        "qwen2",
        "deepseek-r1-qwen",
        "stablelm2",
        "hunyuan",
        "megrez",
        "solar-open",
        "grok-2",
    ),
    PreTokenizer((_QWEN35,)): ("qwen35",),
    PreTokenizer((_LLAMA3,), ignore_merges=True, add_bos=True): (
        "llama-bpe",
        "llama3",
        "llama-v3",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
    ),
    PreTokenizer((_LLAMA3,)): ("smaug-bpe", "dbrx", "chatglm-bpe", "glm4"),
    PreTokenizer((_GPT2,)): (
        "gpt-2",
        "phi-2",
        "mpt",
        "olmo",
        "jais",
        "exaone4",
        "trillion",
        "mellum",
        "granite-docling",
    ),
    PreTokenizer((r"\p{N}", _GPT2)): (
        "smollm",
        "starcoder",
        "refact",
        "command-r",
        "codeshell",
        "exaone",
        "minerva-7b",
    ),
    PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")): ("falcon",),
    PreTokenizer((_TEKKEN,), ignore_merges=True, add_bos=True): ("tekken",),
    PreTokenizer((_GPT4O,)): ("gpt-4o", "llama4"),
    PreTokenizer((r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", _DEEPSEEK3)): (
        "deepseek-v3",
        "hunyuan-dense",
    ),
    PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")): (
        "deepseek-coder",
    ),
}

PRE_TOKENIZERS = {name: family for family, names in _FAMILIES.items() for name in names}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer that `tokenizer.ggml.pre` names; UnsupportedModelError if unknown."""
    found = PRE_TOKENIZERS.get(name)
    if found is None:
        known = ", ".join(sorted(PRE_TOKENIZERS))
        said = f"the pre-tokenizer {name!r} is not known" if name else "no pre-tokenizer is named"
        raise UnsupportedModelError(f"{said} (tokenizer.ggml.pre); known: {known}")
    return found
