"""A generated vocabulary with the size, control tokens and ids of the Qwen3 models.

151,643 byte-level tokens: the 256 bytes, then merges made of letter pairs in the order of how often
letters come in English; plain text comes out at a little under two characters a token.
"""

from __future__ import annotations

from ..gguf.types import TokenType
from ..tokens.byte_bpe import byte_characters

N_MERGED = 151_643  # tokens before the first control token
N_VOCAB = 151_936

_LETTERS = "etaoinshrdlucmfwypvbgkqjxz"
_SPACE, _NEWLINE = "Ġ", "Ċ"

# From id 151643 on, as in Qwen3: control tokens, then (from <tool_call> on) user-defined ones.
CONTROL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    *("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
    *("<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
USER_DEFINED = (
    *("<tool_call>", "</tool_call>"),
    *("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
ENDOFTEXT = 151_643
IM_END = 151_645

CHAT_TEMPLATE = """\
{%- set begin = messages and messages[0].role == 'system' %}
{%- if begin or tools %}
{{- '<|im_start|>system\\n' }}
{%- if begin %}{{- messages[0].content }}{% endif %}
{%- if tools %}
{{- '\\n\\n# Tools\\nThese functions can be called; one JSON object describes each:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{% endfor %}
{{- '\\n</tools>\\nA call is its name and arguments as JSON between tags:\\n<tool_call>\\n' }}
{{- '{"name": NAME, "arguments": OBJECT}\\n</tool_call>' }}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
{{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
{%- elif not (loop.first and begin) %}
{{- '<|im_start|>' }}{{- message.role }}{{- '\\n' }}{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}
{%- set function = call.function or call %}
{%- if not loop.first or message.content %}{{- '\\n' }}{% endif %}
{{- '<tool_call>\\n{"name": ' }}{{- function.name | tojson }}{{- ', "arguments": ' }}
{%- if function.arguments is string %}{{- function.arguments }}
{%- else %}{{- function.arguments | tojson }}{% endif %}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""


def made_up_merges(count: int) -> list[tuple[str, str]]:
    """Generate `count` different BPE merges, most useful first, each of earlier tokens."""
    pairs = [a + b for a in _LETTERS for b in _LETTERS]
    merges = [(_SPACE, letter) for letter in _LETTERS + _LETTERS.upper()]
    merges += [(a, b) for a in _LETTERS for b in _LETTERS]
    merges += [(a, b) for a in _LETTERS.upper() for b in _LETTERS]
    merges += [(_SPACE * n, _SPACE * n) for n in (1, 2, 4, 8)]
    merges += [(_NEWLINE, _NEWLINE)]
    merges += [(_SPACE + letter, pair) for pair in pairs for letter in _LETTERS]
    for rank in range(2 * len(pairs)):  # both pairs frequent first
        for first in range(max(0, rank - len(pairs) + 1), min(rank, len(pairs) - 1) + 1):
            merges.append((pairs[first], pairs[rank - first]))
            if len(merges) >= count:
                return merges[:count]
    raise AssertionError(f"only {len(merges)} of {count} merges")


def made_up_vocabulary(
    merged: int = N_MERGED, total: int = N_VOCAB
) -> tuple[list[str], list[int], list[str]]:
    """Generate (tokens, token types, merges) as `tokenizer.ggml.*` holds them.

    merged: tokens before the first control token; total: all tokens.
    """
    merges = made_up_merges(merged - 256)
    tokens = list(byte_characters())
    tokens += [left + right for left, right in merges]
    tokens += [*CONTROL, *USER_DEFINED]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), total)]
    types = [int(TokenType.NORMAL)] * merged
    types += [int(TokenType.CONTROL)] * len(CONTROL)
    types += [int(TokenType.USER_DEFINED)] * len(USER_DEFINED)
    types += [int(TokenType.UNUSED)] * (total - len(types))
    return tokens, types, [f"{left} {right}" for left, right in merges]
