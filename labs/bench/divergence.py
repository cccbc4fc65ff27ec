"""How far an engine's logits of texts are from a reference's, and from another engine's.

KL(p || q) = sum of p (log p - log q) over the vocabulary, in nats, of the reference's p: for each
token of a text but the first, each given the tokens before it. Behind one token alone nothing is
generated, and a network's values there may be so large that 8-bit activations with a scale for 256
lose the others: its divergence, several nats, would be most of a mean (docs/measured.md).
"""

from __future__ import annotations

import datetime
import json
import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path

import numpy as np

from triplepoint.jit.targets import cpuinfo

DRAWS = 10_000  # of the bootstrap
Rows = Iterable[np.ndarray]  # logits of a text, float32 [n, n_vocab] at a time
REFERENCE = "reference"


@dataclass
class Score:
    """The figures of one text and engine.

    ids: checksum of the tokens; tokens: how many count; kl: their mean divergence in nats; same:
    number of equal top tokens; nll: mean of -log p of the next token, and the reference's.
    """

    ids: int
    tokens: int
    kl: float
    same: int
    nll: float
    reference_nll: float


@dataclass
class Figures:
    """What is known of each token of one text and engine: see `Score`."""

    kl: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    nll: list[float] = field(default_factory=list)


@dataclass
class Ratio:
    """Of mean divergences: the median of the texts' ratios, that of all tokens, its interval."""

    median: float
    mean: float
    low: float
    high: float


def shifted(row: np.ndarray) -> tuple[np.ndarray, float]:
    """Return logits less their maximum, float32 [n_vocab], and the log of their sum of exp."""
    x = row - row.max()
    return x, math.log(np.exp(x).sum(dtype=np.float64))


def compare(ids: Sequence[int], expected: Rows, got: Mapping[str, Rows]) -> dict[str, Figures]:
    """Compare engines' logits of a text, in pieces of equal size, with those of the reference."""
    found = {name: Figures() for name in (REFERENCE, *got)}
    targets = iter(ids[2:])
    for n, pieces in enumerate(zip(expected, *got.values(), strict=True)):
        behind = (piece[1:] if n == 0 else piece for piece in pieces)
        for row, *others in zip(*behind, strict=True):  # one at a time: it fits the cache
            (base, norm), target = shifted(row), next(targets, None)
            p, top = np.exp(base - np.float32(norm)), base.argmax()
            for one, other in zip(found.values(), (row, *others), strict=True):
                own, own_norm = (base, norm) if other is row else shifted(other)
                one.kl.append(max(0.0, float(p @ (base - own)) + own_norm - norm))
                one.same.append(bool(own.argmax() == top))
                if target is not None:
                    one.nll.append(own_norm - float(own[target]))
    return found


def scores(ids: Sequence[int], found: Mapping[str, Figures]) -> dict[str, Score]:
    """Summarize what `compare` found, for every engine but the reference."""
    check, base = zlib.crc32(json.dumps(list(ids)).encode()), float(np.mean(found[REFERENCE].nll))
    return {
        name: Score(
            check, len(one.kl), float(np.mean(one.kl)), sum(one.same), float(np.mean(one.nll)), base
        )
        for name, one in found.items()
        if name != REFERENCE
    }


def ratio(ours: Sequence[Score], theirs: Sequence[Score]) -> Ratio:
    """Compute how many times as far our logits are as theirs, over the same texts.

    The interval is a bootstrap's over texts: tokens of one text are not independent.
    """
    assert [one.ids for one in ours] == [one.ids for one in theirs], "other texts, or other tokens"
    tokens = np.array([one.tokens for one in ours])
    a, b = (tokens * [one.kl for one in each] for each in (ours, theirs))
    drawn = np.random.default_rng(0).integers(0, len(a), (DRAWS, len(a)))
    low, high = np.quantile(a[drawn].sum(axis=1) / b[drawn].sum(axis=1), (0.025, 0.975))
    return Ratio(float(np.median(a / b)), float(a.sum() / b.sum()), float(low), float(high))


def perplexity_change(found: Sequence[Score]) -> float:
    """Return an engine's perplexity over texts relative to the reference's, less 1."""
    pairs = np.array([one.tokens - 1 for one in found])
    behind = [one.nll - one.reference_nll for one in found]
    return float(np.expm1(pairs @ behind / pairs.sum()))


def read_record(path: Path, engine: str, model: str) -> dict[str, Score]:
    """Return what `write_record` has stored of an engine's scores of a model, by text."""
    stored = json.loads(path.read_text(encoding="utf-8"))[f"{engine} {model}"]
    return {name: Score(*values) for name, values in stored["texts"].items()}


def write_record(
    path: Path, engine: str, version: str, model: str, found: Mapping[str, Score]
) -> None:
    """Add the scores of an engine to a file, with version, date and CPU."""
    stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    texts = {
        name: [float(f"{n:.6g}") if isinstance(n, float) else n for n in astuple(one)]
        for name, one in found.items()
    }
    about = {"version": version, "date": f"{datetime.date.today()}", "cpu": cpuinfo("model name")}
    stored[f"{engine} {model}"] = about | {"texts": texts}
    lines = (f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(stored.items()))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
