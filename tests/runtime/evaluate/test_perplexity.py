"""Perplexity in llama.cpp's windows, and the divergence of one model from another."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.tiny_qwen3 import write_tiny

from triplepoint.errors import ContextOverflowError, ModelError
from triplepoint.runtime.engine.engine import NANO, Engine
from triplepoint.runtime.evaluate.perplexity import (
    Mean,
    chunks_of,
    log_probabilities,
    perplexity,
    text_ids,
)

SIZE = 64


@pytest.fixture(scope="module")
def nano() -> Iterator[Engine]:
    with Engine.load("nano", threads=2, kv="f32") as engine:
        yield engine


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    lines = [
        f"{n:02}:{n * 7 % 60:02} INFO shop: order {n * 37} was paid, all is well" for n in range(40)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_windows(nano: Engine, text: Path) -> None:
    """Chunks from an empty cache; of each the tokens after its middle are scored, but the first."""
    ids = text_ids(text, nano.tokenizer)
    found = perplexity(nano, ids, SIZE, max_chunks=3)
    losses = []
    for n in range(3):
        chunk = ids[n * SIZE : (n + 1) * SIZE]
        logits = nano.session(SIZE).logits_for(chunk).astype(np.float64)
        probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        losses += [-np.log(probabilities[t - 1, chunk[t]]) for t in range(SIZE // 2 + 1, SIZE)]

    assert (found.chunks, found.nll.count) == (3, 3 * (SIZE // 2 - 1))
    assert np.isclose(found.value, np.exp(np.mean(losses)), rtol=1e-5)
    error = found.value * np.std(losses) / np.sqrt(len(losses) - 1)
    assert np.isclose(found.error, error, rtol=1e-5)


def test_every_chunk_is_told(nano: Engine, text: Path) -> None:
    """The running estimate, chunk by chunk; the last one is the result."""
    told: list[float] = []
    found = perplexity(
        nano, text_ids(text, nano.tokenizer), SIZE, on_chunk=lambda p: told.append(p.value)
    )

    assert len(told) == found.chunks > 3
    assert told[-1] == found.value
    assert len(set(told)) > 1


def test_beginning_of_text(nano: Engine) -> None:
    """Where the model wants it, every chunk begins with the token that begins a text."""

    class WithBos:
        bos, add_bos = 5, True

    ids = list(range(100, 200))
    assert [c[0] for c in chunks_of(ids, 30, WithBos())] == [5, 5, 5]  # pyright: ignore
    assert chunks_of(ids, 30, WithBos())[1][1:] == ids[31:60]  # pyright: ignore
    assert [c[0] for c in chunks_of(ids, 30, nano.tokenizer)] == [100, 130, 160]


def test_model_against_itself(nano: Engine, text: Path) -> None:
    """No divergence, the same top token everywhere, the same perplexity."""
    ids = text_ids(text, nano.tokenizer)
    told = perplexity(nano, ids, SIZE, base=nano, max_chunks=2).as_dict()

    assert told["kl_max"] < 1e-6
    assert told["same_top"] == 1.0
    assert told["base_perplexity"] == told["perplexity"]


def test_divergence(nano: Engine, text: Path, tmp_path: Path) -> None:
    """As computed from whole rows of logits; a smaller type is some way off."""
    from triplepoint.runtime.quantize.quantize import quantize

    quantize(NANO, tmp_path / "q4.gguf", "Q4_0", threads=2)
    ids = text_ids(text, nano.tokenizer)
    with Engine.load(tmp_path / "q4.gguf", threads=2, kv="f32") as other:
        told = perplexity(other, ids, SIZE, base=nano, max_chunks=1)
        half = slice(SIZE // 2, SIZE - 1)
        p, q = (
            log_probabilities(e.session(SIZE).logits_for(ids[:SIZE])[half]) for e in (nano, other)
        )
    kl = (np.exp(p) * (p - q)).sum(1)

    assert told.divergence is not None
    assert np.isclose(told.divergence.kl.value, kl.mean(), rtol=1e-3)
    assert np.isclose(told.divergence.quantile(1.0), kl.max(), rtol=1e-3)
    assert told.divergence.same_top.value == (p.argmax(1) == q.argmax(1)).mean()
    assert 1e-4 < kl.mean() < 1


def test_another_vocabulary(nano: Engine, tmp_path: Path) -> None:
    """Models with different vocabularies cannot be compared."""
    write_tiny(tmp_path / "tiny.gguf", "f32")
    with (
        Engine.load(tmp_path / "tiny.gguf", threads=1) as tiny,
        pytest.raises(ModelError, match="different vocabularies"),
    ):
        perplexity(nano, [1] * 200, SIZE, base=tiny)


def test_text_that_cannot_be_scored(nano: Engine, tmp_path: Path) -> None:
    """Too short, not UTF-8, not there; chunks of nothing."""
    path = tmp_path / "text.txt"
    path.write_text("short")
    with pytest.raises(ModelError, match=r"the text has \d tokens, a chunk needs 64"):
        perplexity(nano, text_ids(path, nano.tokenizer), SIZE)
    path.write_bytes(b"caf\xe9 au lait")
    with pytest.raises(ModelError, match=r"is not UTF-8 text: .* at byte 3"):
        text_ids(path, nano.tokenizer)
    with pytest.raises(ModelError, match="cannot read"):
        text_ids(tmp_path / "none", nano.tokenizer)
    with pytest.raises(ModelError, match="ask for at least 4"):
        chunks_of([1] * 100, 2, nano.tokenizer)


def test_last_line_end(nano: Engine, tmp_path: Path) -> None:
    """One line end at the end of the file does not count."""
    (tmp_path / "a").write_text("two lines\n\n")
    (tmp_path / "b").write_text("two lines\n")

    assert text_ids(tmp_path / "a", nano.tokenizer) == nano.tokenizer.encode("two lines\n")
    assert text_ids(tmp_path / "b", nano.tokenizer) == nano.tokenizer.encode("two lines")


def test_scores_in_pieces(nano: Engine) -> None:
    """`scores` gives the rows of `score`, after a prefill too, and leaves the session in order."""
    ids = list(range(100, 180))
    whole = nano.session(100).logits_for(ids)
    session = nano.session(100)
    session.prefill(ids[:30])
    pieces = [rows.copy() for rows in session.scores(ids[30:])]

    assert np.allclose(np.concatenate(pieces), whole[30:], atol=1e-4)
    assert session.tokens == ids
    session.prefill([])
    assert np.allclose(session.logits, whole[-1], atol=1e-4)
    with pytest.raises(ContextOverflowError):
        next(session.scores([1] * 50))


def test_mean() -> None:
    """Mean and standard error of what was added, however it was split."""
    values = np.array([1.0, 2.0, 4.0, 8.0, 9.0])
    mean = Mean()
    mean.add(values[:2])
    mean.add(values[2:])

    assert mean.value == values.mean()
    assert np.isclose(mean.error, values.std() / np.sqrt(4))


PEER = """
import json, sys, numpy, llama_cpp
path, text, size, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
model = llama_cpp.Llama(path, n_ctx=size, n_batch=size, logits_all=True, verbose=False)
ids = model.tokenize(open(text, "rb").read().removesuffix(b"\\n"), add_bos=False, special=False)
losses = []
for n in range(chunks):
    chunk = ids[n * size : (n + 1) * size]
    model.reset()
    model.eval(chunk)
    rows = numpy.array(model.scores[size // 2 : size - 1], numpy.float64)
    rows -= numpy.log(numpy.exp(rows).sum(1, keepdims=True))
    losses += (-rows[range(len(rows)), chunk[size // 2 + 1 :]]).tolist()
print(json.dumps({"ids": ids, "perplexity": float(numpy.exp(numpy.mean(losses)))}))
"""


@pytest.mark.slow
def test_against_llama_cpp(nano: Engine, text: Path, peer: str) -> None:
    """llama.cpp finds the same tokens in the text and the same perplexity for nano, to 1 %."""
    arguments = [str(NANO), str(text), "256", "2"]
    done = subprocess.run([peer, "-c", PEER, *arguments], capture_output=True, timeout=300)
    told = json.loads(done.stdout)
    ids = text_ids(text, nano.tokenizer)

    assert told["ids"] == ids
    assert np.isclose(perplexity(nano, ids, 256, max_chunks=2).value, told["perplexity"], rtol=1e-2)
