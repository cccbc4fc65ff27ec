"""Vectors of texts against transformers; the same bits however they are read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_models

from triplepoint import Engine
from triplepoint.errors import ContextOverflowError, PassCancelledError, SettingError
from triplepoint.runtime.engine.embedding import normalized

IDS = np.random.default_rng(3).integers(0, 256, 150).tolist()


def _model(folder: Path, name: str = "qwen3", metadata: dict[str, Any] | None = None) -> Path:
    path = folder / f"{name}.gguf"
    tiny_models.write_model(path, name, metadata=metadata)
    return path


@pytest.fixture(scope="module")
def last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as Qwen3-Embedding's file is: the last token's state, and that ends the text."""
    return _model(
        tmp_path_factory.mktemp("embedding"),
        metadata={"qwen3.pooling_type": np.uint32(3), "tokenizer.ggml.add_eos_token": True},
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "gemma3", "granite", "llama"])
def test_transformers(tmp_path: Path, name: str) -> None:
    """All poolings are those of the normed states that transformers gives."""
    torch = pytest.importorskip("torch", reason="the reference needs torch")
    with torch.no_grad():
        model = tiny_models.torch_model(name).model
        states = model(torch.tensor([IDS])).last_hidden_state[0].float().numpy()
    want = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}

    with Engine.load(_model(tmp_path, name), kv="f32") as engine:
        got = {way: engine.embed([IDS], pooling=way, normalize=False)[0] for way in want}
        every = engine.embedder.vector(IDS, "none")

    for way, vector in want.items():
        assert np.abs(got[way] - vector).max() <= 2e-5 * np.ptp(vector), way
    assert np.abs(every - states).max() <= 2e-5 * np.ptp(states)


def test_as_the_file_says(last: Path) -> None:
    """A text ends with the token that ends texts; its state is the vector, one long."""
    with Engine.load(last, kv="f32") as engine:
        eos, embedder = engine.tokenizer.eos, engine.embedder
        assert embedder.ids("ab") == [*engine.tokenizer.encode("ab"), eos]
        found = engine.embed(["ab", [1, 2]])
        again = engine.embed([embedder.ids("ab")], pooling="last")

    assert found.shape == (2, embedder.width)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found[0], again[0])
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-6)


def test_same_bits(last: Path) -> None:
    """However many tokens a pass takes, on however many threads, beside others."""
    found: list[np.ndarray] = []
    for settings in ({"tune": {"chunk": 64}, "threads": 1}, {"threads": 2}):
        with Engine.load(last, **settings) as engine:  # pyright: ignore[reportArgumentType]
            found += [engine.embed([IDS], pooling=way) for way in ("mean", "last")]
            other = threading.Thread(target=_decode, args=(engine,))
            other.start()
            found += [engine.embed([IDS], pooling=way) for way in ("mean", "last")]
            other.join()
            texts = engine.embed([[7], IDS, [9, 9]], pooling="mean")
            np.testing.assert_array_equal(texts[1], found[0][0])
    for one in found[2:]:
        assert any(np.array_equal(one, known) for known in found[:2])


def _decode(engine: Engine) -> None:
    session = engine.session()
    session.prefill(IDS[:20])
    list(session.decode(max_tokens=40))


def test_what_was_decoded_stays(last: Path) -> None:
    """A session beside it writes the same tokens, and pages are given back."""
    with Engine.load(last) as engine:
        session, prompt = engine.session(), IDS[:30]
        session.prefill(prompt)
        want = list(session.decode(max_tokens=20))
        session.truncate(len(prompt))
        session.prefill([])
        used, got = engine.loaded.layout.memory.used, list[int]()
        for token in session.decode(max_tokens=20):
            got.append(token)
            engine.embed([IDS])
        assert got == want
        assert engine.loaded.layout.memory.used == used


def test_pages_that_were_taken_back(last: Path) -> None:
    """A text whose pages went to others is read anew; one that nobody wants ends."""
    with Engine.load(last, tune={"chunk": 64}) as engine:
        want = engine.embed([IDS], pooling="mean", normalize=False)[0]
        looks = 0

        def look() -> None:
            nonlocal looks
            looks += 1
            if looks == 3:
                (mine,) = (s for s in engine.core.scheduler.sequences if s.cache.held)
                with engine.core.scheduler.mutex:
                    mine.evict()

        np.testing.assert_array_equal(engine.embedder.vector(IDS, "mean", look), want)
        assert looks > 4

        def leave() -> None:
            raise PassCancelledError("the client is gone")

        with pytest.raises(PassCancelledError):
            engine.embedder.vector(IDS, "mean", leave)
        np.testing.assert_array_equal(engine.embedder.vector(IDS, "mean"), want)


def test_passes_beside_decodes(last: Path) -> None:
    """A pass has few rows where more would take longer than the deadline, and somebody decodes."""
    with Engine.load(last) as engine:
        scheduler, session = engine.core.scheduler, engine.session()
        scheduler.deadline_s = 1e-9
        want = engine.embed([IDS])
        session.prefill(IDS[:20])
        assert scheduler.rows_aside(150, 0) == 150
        for _ in session.decode(max_tokens=2):
            assert scheduler.rows_aside(150, 0) == 9
            np.testing.assert_array_equal(engine.embed([IDS]), want)
        scheduler.deadline_s = 1e9
        for _ in session.decode(max_tokens=2):
            assert scheduler.rows_aside(150, 0) == 150


def test_little_memory(last: Path) -> None:
    """Where sessions have all of it, one that rests gives way; what never fits is told."""
    with Engine.load(last, kv_memory=1) as engine, pytest.raises(ContextOverflowError):
        engine.embed([IDS])
    with Engine.load(last) as engine:
        want = engine.embed([IDS])
        engine.loaded.layout.memory.budget = 2 << 20
        session = engine.session()
        session.prefill(IDS)
        np.testing.assert_array_equal(engine.embed([IDS]), want)


def test_refused(last: Path, tmp_path: Path) -> None:
    """What makes no vector is told by name."""
    with Engine.load(last, context=64) as engine:
        for wrong in ("average", "none", ""):
            with pytest.raises(SettingError, match="pooling"):
                engine.embed(["x"], pooling=wrong)
        with pytest.raises(ContextOverflowError, match="150 tokens"):
            engine.embed([IDS])
        with pytest.raises(SettingError, match="an empty text"):
            engine.embed([[]])
        assert engine.embed([]).shape == (0, 128)
    for metadata in ({}, {"qwen3.pooling_type": np.uint32(4)}):
        with (
            Engine.load(_model(tmp_path, metadata=metadata)) as engine,
            pytest.raises(SettingError, match=r"qwen3\.pooling_type"),
        ):
            engine.embed(["x"])


def test_normalized() -> None:
    """llama-server's norms."""
    vector = np.array([3.0, -4.0, 0.0], np.float32)
    assert normalized(vector, -1).tolist() == [3.0, -4.0, 0.0]
    assert normalized(vector, 0).tolist() == [24570.0, -32760.0, 0.0]
    np.testing.assert_allclose(normalized(vector, 1), [3 / 7, -4 / 7, 0], rtol=1e-6)
    np.testing.assert_allclose(normalized(vector), [0.6, -0.8, 0], rtol=1e-6)
    assert normalized(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
