"""Perplexity of a model on a text, and its divergence from a base model.

The windows are llama.cpp's, so that figures compare: the text is cut into chunks of `size` tokens,
each read with an empty cache; where the model wants it, the first token of each chunk gives way to
the one that begins a text. What the second half of a chunk's tokens say of the token after them is
scored.

    perplexity = exp(mean of -log p(token)),  its error = perplexity · deviation / sqrt(n - 1)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelError
from ..engine.engine import Engine
from ..engine.session import Session
from ..tokens.tokenizer import Tokenizer


@dataclass(slots=True)
class Mean:
    """A running mean with its standard error."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, values: np.ndarray) -> None:
        wide = values.astype(np.float64)
        self.count += wide.size
        self.total += float(wide.sum())
        self.squares += float((wide * wide).sum())

    @property
    def value(self) -> float:
        return self.total / self.count if self.count else math.nan

    @property
    def error(self) -> float:
        """Return the standard error; 0 for fewer than two values."""
        if self.count < 2:
            return 0.0
        spread = self.squares / self.count - self.value**2
        return math.sqrt(max(0.0, spread) / (self.count - 1))


@dataclass(slots=True)
class Divergence:
    """Divergence of a model's predictions from a base model's, over the scored tokens.

    Attributes:
        kl: of the Kullback-Leibler divergence from base to model, in nats.
        same_top: of whether both hold the same token for the likeliest.
        base: of -log p(token) in the base model.
        values: every single divergence, for the median and the largest.
    """

    kl: Mean = field(default_factory=Mean)
    same_top: Mean = field(default_factory=Mean)
    base: Mean = field(default_factory=Mean)
    values: list[np.ndarray] = field(default_factory=list)

    def add(self, base: np.ndarray, model: np.ndarray, targets: np.ndarray) -> None:
        """Add log-probabilities of base and model, float64 [n, n_vocab], and the next tokens."""
        kl = np.maximum((np.exp(base) * (base - model)).sum(1), 0.0)
        self.kl.add(kl)
        self.values.append(kl)
        self.same_top.add((base.argmax(1) == model.argmax(1)).astype(np.float64))
        self.base.add(-base[np.arange(len(targets)), targets])

    def quantile(self, share: float) -> float:
        """Return the quantile `share` of the per-token divergences."""
        return float(np.quantile(np.concatenate(self.values), share))


@dataclass(slots=True)
class Perplexity:
    """The perplexity of a text so far.

    Attributes:
        nll: of -log p(token); chunks, size: how many chunks of how many tokens.
        divergence: from the base model, if there was one.
    """

    size: int
    chunks: int = 0
    nll: Mean = field(default_factory=Mean)
    divergence: Divergence | None = None

    @property
    def value(self) -> float:
        return math.exp(self.nll.value)

    @property
    def error(self) -> float:
        return self.value * self.nll.error

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
        found: dict[str, Any] = {"perplexity": self.value, "error": self.error}
        found |= {"tokens": self.nll.count, "chunks": self.chunks, "chunk_size": self.size}
        if self.divergence is not None:
            d = self.divergence
            found |= {
                "base_perplexity": math.exp(d.base.value),
                "kl": d.kl.value,
                "kl_error": d.kl.error,
                "kl_median": d.quantile(0.5),
                "kl_99": d.quantile(0.99),
                "kl_max": d.quantile(1.0),
                "same_top": d.same_top.value,
                "same_top_error": d.same_top.error,
            }
        return found


def perplexity(
    engine: Engine,
    ids: Sequence[int],
    size: int = 512,
    *,
    base: Engine | None = None,
    max_chunks: int | None = None,
    on_chunk: Callable[[Perplexity], None] | None = None,
) -> Perplexity:
    """Compute the perplexity of the tokens `ids` in at most `max_chunks` chunks of `size` tokens.

    base: another model of the same vocabulary, to measure the divergence from; on_chunk: called
    with the estimate so far after each chunk.

    Raises:
        ModelError: the text is shorter than a chunk, or the vocabularies differ.
    """
    found = Perplexity(size)
    session, base_session = engine.session(size), None
    if base is not None:
        _check_same_vocabulary(engine, base)
        found.divergence, base_session = Divergence(), base.session(size)
    for chunk in chunks_of(ids, size, engine.tokenizer, max_chunks):
        _score(session, base_session, chunk, found)
        found.chunks += 1
        if on_chunk:
            on_chunk(found)
    return found


def text_ids(path: str | Path, tokenizer: Tokenizer) -> list[int]:
    """Return the token ids of a text file, after the bos token if the model uses one.

    One line end at the end is left out, as llama.cpp leaves it out.

    Raises:
        ModelError: the file cannot be read as UTF-8.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModelError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}"
        ) from error
    ids = tokenizer.encode(text.removesuffix("\n"))
    return [tokenizer.bos, *ids] if tokenizer.add_bos and tokenizer.bos is not None else ids


def chunks_of(
    ids: Sequence[int], size: int, tokenizer: Tokenizer, max_chunks: int | None = None
) -> list[list[int]]:
    """Split ids into whole chunks of `size` tokens, each with bos if the model uses one.

    Raises:
        ModelError: there is not even one.
    """
    if size < 4:
        raise ModelError(f"chunks of {size} tokens are too short; ask for at least 4")
    count = len(ids) // size
    if not count:
        raise ModelError(
            f"the text has {len(ids)} tokens, a chunk needs {size}; give a longer text, or "
            f"shorter chunks (-c)"
        )
    chunks = [list(ids[n * size : (n + 1) * size]) for n in range(min(count, max_chunks or count))]
    if tokenizer.add_bos and tokenizer.bos is not None:
        for chunk in chunks:
            chunk[0] = tokenizer.bos
    return chunks


def _check_same_vocabulary(engine: Engine, base: Engine) -> None:
    ours, theirs = engine.loaded.outputs.n_vocab, base.loaded.outputs.n_vocab
    if ours != theirs or engine.tokenizer.vocabulary.tokens != base.tokenizer.vocabulary.tokens:
        raise ModelError(
            f"{engine.model.name} and {base.model.name} have different vocabularies: their "
            "answers cannot be compared"
        )


def _score(
    session: Session, base_session: Session | None, chunk: list[int], found: Perplexity
) -> None:
    """Score one chunk from an empty cache: the second half, given the first."""
    first = len(chunk) // 2
    scored, targets = chunk[first:-1], np.array(chunk[first + 1 :])
    for each in (session, base_session):
        if each is not None:
            each.truncate(0)
            each.prefill(chunk[:first])
    others = base_session.scores(scored) if base_session is not None else None
    done = 0
    for rows in session.scores(scored):
        wanted = targets[done : done + len(rows)]
        done += len(rows)
        model = log_probabilities(rows)
        found.nll.add(-model[np.arange(len(rows)), wanted])
        if others is not None and found.divergence is not None:
            found.divergence.add(log_probabilities(next(others)), model, wanted)


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Return the float64 log softmax of logits float32 [n, n_vocab]."""
    shifted = logits - logits.max(1, keepdims=True)
    total = np.exp(shifted).sum(1, dtype=np.float64, keepdims=True)
    return shifted - np.log(total)
