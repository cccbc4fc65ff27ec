"""Sound GGUF files of which one metadata value is a lie: another number, type, length, or none."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from triplepoint.runtime.gguf.file import GGUFFile
from triplepoint.runtime.gguf.types import STRUCT_CODES, ValueType
from triplepoint.runtime.models.config import FEATURES

T = ValueType
NAN, INF = float("nan"), float("inf")


class Lie(NamedTuple):
    """What stands at `key` instead; without a kind the key is left out."""

    key: str
    kind: ValueType | None
    value: Any


def _scalars() -> Iterator[tuple[ValueType, Any]]:
    small = (0, 1, 2, 3, 7, 8, 16, 31, 33, 64, 100, 127, 128, 255, 300, 512, 1000, 4096, 65536)
    yield from ((T.UINT32, n) for n in (*small, 2**24, 2**31 - 1, 2**31, 2**32 - 1))
    yield from ((T.INT32, n) for n in (-1, -(2**31), 5))
    yield from ((T.UINT64, n) for n in (2**32 + 1, 2**63, 2**64 - 1))
    yield from ((T.FLOAT32, x) for x in (NAN, INF, -INF, 0.0, -1.0, 1e-38, 3e38, 1e10, 0.5))
    yield from ((T.FLOAT64, x) for x in (1e300, NAN))
    yield from ((T.BOOL, n) for n in (0, 1))
    yield from ((T.UINT8, 0), (T.INT8, -1))
    words = ("", "x", "\x1b]52;c;x\x07", "x" * 100_000, "{{ 9**9**9 }}", "none", "linear", "yarn")
    yield from ((T.STRING, text) for text in (*words, "gpt2", "llama", "\n\n| x"))


def _arrays() -> Iterator[tuple[ValueType, Any]]:
    """Each: type of the elements, and they."""
    many: list[tuple[ValueType, Sequence[Any]]] = [
        (T.UINT32, [2**32 - 1]), (T.UINT8, [1]), (T.INT8, [-1]), (T.INT32, [-1]), (T.BOOL, [1]),
        (T.INT32, [2**31 - 1]), (T.FLOAT32, [NAN]), (T.UINT64, [2**63]), (T.FLOAT64, [1e300]),
        (T.STRING, [""]), (T.STRING, ["a"]), (T.STRING, ["a b"]), (T.STRING, ["\ufffd"]),
    ]  # fmt: skip
    yield from ((T.ARRAY, (kind, [*one] * 4000)) for kind, one in many)
    yield from ((T.ARRAY, (kind, one)) for kind, one in many)
    yield from ((T.ARRAY, (kind, [])) for kind in (T.UINT32, T.STRING))
    yield T.ARRAY, (T.STRING, ["x" * 70_000])
    yield T.ARRAY, (T.ARRAY, [(T.UINT32, [1])])


# Keys that a file need not have, but that a reader looks for.
MORE = (
    *("attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base"),
    *("rope.scaling.factor", "rope.scaling.type", "rope.scaling.original_context_length"),
    *("rope.scaling.yarn_beta_fast", "rope.scaling.attn_factor", "rope.scale_linear"),
    *("vocab_size", *FEATURES),
)
GENERAL = (
    *("general.alignment", "general.name", "general.type", "split.count", "split.no"),
    *(f"general.sampling.{key}" for key in ("temp", "top_k", "top_p", "min_p")),
    *(f"tokenizer.ggml.{key}_token_id" for key in ("bos", "eos", "eot", "padding")),
    *(f"tokenizer.ggml.{key}" for key in ("scores", "token_type", "pre", "add_bos_token")),
    *("tokenizer.chat_template", "tokenizer.ggml.add_space_prefix"),
    *("tokenizer.ggml.remove_extra_whitespaces", "tokenizer.ggml.precompiled_charsmap"),
)


def lies(gguf: GGUFFile) -> Iterator[Lie]:
    """Some five thousand."""
    a = gguf.string("general.architecture")
    for key in dict.fromkeys((*gguf.metadata, *(f"{a}.{key}" for key in MORE), *GENERAL)):
        if key in gguf.metadata:
            yield Lie(key, None, None)
        for kind, value in (*_scalars(), *_arrays()):
            yield Lie(key, kind, value)


def told(gguf: GGUFFile, lie: Lie) -> bytes:
    """The file with that lie in it; everything else as it is."""
    entries = {key: gguf.stored(key) for key in gguf.metadata}
    entries.pop(lie.key, None)
    if lie.kind is not None:
        entries[lie.key] = lie.kind, _encoded(lie.kind, lie.value)
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(gguf.tensors), len(entries)))
    for key, (kind, raw) in entries.items():
        out += _encoded(T.STRING, key) + struct.pack("<I", kind) + raw
    data = bytearray()
    for name, info in gguf.tensors.items():
        data += bytes(-len(data) % gguf.alignment)
        dims = struct.pack(f"<I{len(info.shape)}Q", len(info.shape), *reversed(info.shape))
        out += _encoded(T.STRING, name) + dims + struct.pack("<IQ", info.type, len(data))
        data += gguf.data(name).tobytes()
    return bytes(out + bytes(-len(out) % gguf.alignment) + data + bytes(gguf.alignment))


def _encoded(kind: ValueType, value: Any) -> bytes:
    if kind is T.STRING:
        return struct.pack("<Q", len(value.encode())) + value.encode()
    if kind is T.ARRAY:
        element, values = value
        head = struct.pack("<IQ", element, len(values))
        return head + b"".join(_encoded(element, one) for one in values)
    return struct.pack("<" + STRUCT_CODES[kind], value)
