"""SentencePiece's `tokenizer.model`: the few fields used of a protocol-buffers message.

ModelProto     1: pieces, 2: trainer settings, 3: normalizer settings
piece          1: text, 2: score (float), 3: type (1 if not given)
trainer        3: model type (1 unigram, 2 BPE), 24: whether spaces belong to the word before them,
               40 … 43: ids of unknown, bos, eos, padding
normalizer     2: characters that become others, 3: whether a space is put before a text, 4: whether
               runs of spaces are cut, 5: whether spaces become marks; 3 to 5 are true if not given
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ...errors import ModelError, UnsupportedModelError

_IDS = {40: ("unknown", 0), 41: ("bos", 1), 42: ("eos", 2), 43: ("padding", -1)}
_BPE = 2


@dataclass(slots=True)
class SentencePieceModel:
    """The vocabulary of a SentencePiece model: pieces by id, with GGUF's type numbers.

    other_rules: by name, normalizations of a text other than a space put before it.
    """

    pieces: list[str]
    types: list[int]
    scores: np.ndarray
    adds_space_prefix: bool = True
    named: dict[str, int] = field(default_factory=dict)
    other_rules: list[str] = field(default_factory=list)


def read_model(path: Path) -> SentencePieceModel:
    """Read the vocabulary of a `tokenizer.model`.

    Raises:
        ModelError: it is damaged.
        UnsupportedModelError: a unigram model.
    """
    try:
        return _read(path.read_bytes(), path)
    except (IndexError, struct.error, UnicodeDecodeError, ValueError) as error:
        raise ModelError(f"{path} is damaged, or no SentencePiece model") from error


def _read(raw: bytes, path: Path) -> SentencePieceModel:
    pieces: list[str] = []
    types: list[int] = []
    scores: list[float] = []
    trainer: dict[int, bytes | int] = {}
    normalizer: dict[int, bytes | int] = {}
    for number, value in _fields(raw):
        if number == 1:
            piece = dict(_fields(_message(value)))
            pieces.append(_message(piece.get(1, b"")).decode())
            scores.append(struct.unpack("<f", _message(piece.get(2, bytes(4))))[0])
            types.append(int(piece.get(3, 1)))
        elif number == 2:
            trainer = dict(_fields(_message(value)))
        elif number == 3:
            normalizer = dict(_fields(_message(value)))
    if not pieces:
        raise ValueError("no pieces")
    if trainer.get(3, 1) != _BPE:
        raise UnsupportedModelError(f"{path} is a unigram model; BPE can be converted")
    model = SentencePieceModel(pieces, types, np.array(scores, np.float32))
    model.adds_space_prefix = bool(normalizer.get(3, 1))
    supported = {
        "characters that become others (precompiled_charsmap)": bool(normalizer.get(2)),
        "runs of spaces to be cut (remove_extra_whitespaces)": bool(normalizer.get(4, 1)),
        "plain spaces (escape_whitespaces = false)": not normalizer.get(5, 1),
        "spaces behind words (treat_whitespace_as_suffix)": bool(trainer.get(24, 0)),
    }
    model.other_rules = [rule for rule, given in supported.items() if given]
    for number, (name, usual) in _IDS.items():
        value = int(trainer.get(number, usual))
        value -= (value >> 63) << 64  # negative numbers are written as 64 bits
        if 0 <= value < len(pieces):
            model.named[name] = value
    return model


def _message(value: bytes | int) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a message should be")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (field number, value): a whole number, or the bytes of anything else."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            size, at = _varint(raw, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(raw):
            raise ValueError("cut")
        yield tag >> 3, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
