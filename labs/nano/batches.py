"""Token sequences for training: conversations of generated rounds, filled to a fixed length."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .bpe import CONTROL, Vocabulary, plain_tokenizer
from .chatml import Segment, round_segments, system_segments
from .corpus import draw
from .words import Lexicon
from .writer import Writer

TARGET, OTHER = 1.0, 0.02
"""Loss weights. The others' was 0.15 for the first 8.6 million tokens, while the copying heads
formed; kept there, the noise of random words would drown what is left to learn."""
LONG_FROM, LONG = 1024, 0.7
"""From this length on, so many of the sequences begin with a round that has a long result."""
SCORED = 0.5
"""Share of all tokens that are scored: the assistant's are a quarter to almost a half."""


class Encoder:
    """The tokenizer of segments, each by itself, as in the runtime."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.ids = vocabulary.ids
        self.first_special = self.ids[CONTROL[0]]
        self.tokenizer = plain_tokenizer(vocabulary)
        self.pieces = tuple(t for t in vocabulary.tokens if t.isascii() and t.isalpha())
        self.constant = lru_cache(4096)(self._encode)

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self.tokenizer.encode(text).ids)

    def __call__(self, segments: Iterable[Segment]) -> tuple[list[int], list[bool]]:
        """Return ids, and which of them the assistant has to produce."""
        ids: list[int] = []
        targets: list[bool] = []
        for text, target, control in segments:
            if control:
                new: tuple[int, ...] = (self.ids[text],)
            else:
                new = self.constant(text) if len(text) < 24 else self._encode(text)
            ids += new
            targets += [target] * len(new)
        return ids, targets


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the curriculum: its end as a share, and its sequences."""

    until: float
    tokens: int
    batch: int
    size: int


def sequence(
    encoder: Encoder, seed: int, tokens: int, size: int
) -> tuple[list[int], list[bool], list[int]]:
    """Build conversations behind one system prompt, cut at `tokens` + 1 ids; the first whole.

    Returns the ids, which of them are targets, and which conversation each is of, from 1; the
    system prompt is 0.
    """
    writer = Writer(Lexicon(random.Random(seed), pieces=encoder.pieces), size)
    ids, targets = encoder(system_segments())
    head = len(ids)
    talks = [0] * head
    while len(ids) <= tokens:
        first = len(ids) == head
        writer.long = first and tokens >= LONG_FROM and writer.rng.random() < LONG
        writer.size = size if first or writer.rng.random() < 0.5 else max(2, size // 3)
        more, wanted = _drawn(encoder, writer)
        tries = 0
        while len(ids) + len(more) > tokens + 1 and (first or tries < 2):
            writer.size = max(2, writer.size * 2 // 3)
            more, wanted = _drawn(encoder, writer)
            tries += 1
        ids += more
        targets += wanted
        talks += [talks[-1] + 1] * len(more)
    return ids[: tokens + 1], targets[: tokens + 1], talks[: tokens + 1]


def _drawn(encoder: Encoder, writer: Writer) -> tuple[list[int], list[bool]]:
    return encoder(segment for item in draw(writer) for segment in round_segments(item))


@dataclass(frozen=True, slots=True)
class Batch:
    """ids [batch, tokens]; the rows (flat) that are scored, their labels and weights; which
    conversation each token is of [batch, tokens], 0 for the system prompt that all see."""

    ids: np.ndarray
    rows: np.ndarray
    labels: np.ndarray
    weights: np.ndarray
    talks: np.ndarray


def make_batch(encoder: Encoder, seed: int, stage: Stage) -> Batch:
    """Build a batch that scores every assistant token, and others up to a fixed share."""
    made = [
        sequence(encoder, seed * 1024 + number, stage.tokens, stage.size)
        for number in range(stage.batch)
    ]
    ids = np.array([ids for ids, _, _ in made], dtype=np.int64)
    targets = np.array([targets for _, targets, _ in made])[:, 1:].ravel()
    talks = np.array([talks for _, _, talks in made], dtype=np.int64)
    order = np.random.default_rng(seed).random(targets.size) - targets
    rows = np.sort(np.argsort(order)[: int(SCORED * targets.size)])
    return Batch(
        ids[:, :-1].copy(),
        rows,
        ids[:, 1:].ravel()[rows],
        np.where(targets[rows], TARGET, OTHER).astype(np.float32),
        talks[:, :-1].copy(),
    )
