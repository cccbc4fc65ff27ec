"""Loading models: what is found, what is refused and how, and what an engine lets go of."""

from __future__ import annotations

import gc
import hashlib
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_qwen3 as tiny

from triplepoint.errors import (
    EngineError,
    GGUFError,
    ModelError,
    TargetError,
    UnsupportedModelError,
)
from triplepoint.jit import targets
from triplepoint.runtime.engine.engine import Engine, resolve_model
from triplepoint.runtime.physics.machine import usable_cores

MakeModel = Callable[[str], Path]


@pytest.fixture(scope="module")
def engine(tiny_model: MakeModel) -> Iterator[Engine]:
    with Engine.load(tiny_model("q4_0"), threads=2) as engine:
        yield engine


def _pool_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("triplepoint-")]


# --- what is loaded


def test_facts_of_the_model(engine: Engine, tiny_model: MakeModel) -> None:
    """Name, type, sizes and hash are those of the file."""
    path = tiny_model("q4_0")
    model = engine.model
    weights = sum(int(np.prod(shape)) for shape in tiny.shapes().values())

    assert (model.name, model.architecture, model.quant) == ("tiny q4_0", "qwen3", "Q4_0")
    assert (model.path, model.nbytes) == (path, path.stat().st_size)
    assert (model.parameters, model.n_layers) == (weights, tiny.LAYERS)
    assert model.context_length == tiny.CONTEXT == engine.context
    assert model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_changed_file_has_another_hash(tmp_path: Path) -> None:
    """The remembered hash is that of the file as it is now."""
    path = tmp_path / "model.gguf"
    for seed in (1, 2):
        tiny.write_tiny(path, "q4_0", seed)
        with Engine.load(path, threads=1) as engine:
            assert engine.model.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_best_target_is_the_default(engine: Engine) -> None:
    """Unless told otherwise an engine uses all that the CPU has."""
    assert engine.target is targets.detect()
    assert engine.threads == 2
    assert engine.kv == "bf16"
    assert engine.machine.target == engine.target.name


@pytest.mark.slow
def test_the_environment_picks_a_target(
    tiny_model: MakeModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRIPLEPOINT_TARGET is used where no target is given, and only there."""
    monkeypatch.setenv("TRIPLEPOINT_TARGET", "generic")
    with Engine.load(tiny_model("q4_0"), threads=1) as engine:
        assert str(engine.target) == "generic"
    best = targets.detect().name
    with Engine.load(tiny_model("q4_0"), threads=1, target=best) as engine:
        assert str(engine.target) == best


@pytest.mark.slow
def test_a_second_load_compiles_nothing(engine: Engine, tiny_model: MakeModel) -> None:
    """Kernels of an earlier load come from the object cache."""
    engine.session()
    with Engine.load(tiny_model("q4_0"), threads=2) as again:
        again.session().prefill([1, 2, 3])
        assert again.loaded.library.cache.builds == 0
        assert again.loaded.library.cache.hits > 5


def test_progress_of_packing(tiny_model: MakeModel) -> None:
    """Shares of the packed weights rise up to all of them."""
    heard: list[float] = []
    with Engine.load(tiny_model("f32"), threads=1, progress=heard.append):
        pass

    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_nano_is_a_model() -> None:
    """The embedded model is found by its name and runs."""
    with Engine.load("nano", threads=1) as engine:
        session = engine.session()
        session.prefill(engine.tokenizer.encode("What is the error?"))
        assert len(list(session.decode(max_tokens=2))) == 2
        assert engine.model.path == resolve_model("nano")


# --- settings out of their range


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"kv": "f16"}, "unknown KV cache format 'f16'; known: bf16"),
    ({"threads": 0}, "threads must be from 1 to 256, not 0"),
    ({"threads": -2}, "threads must be from 1 to 256, not -2"),
    ({"threads": 257}, "threads must be from 1 to 256, not 257"),
    ({"context": 0}, "context must be at least 1 token, not 0"),
    ({"context": True}, "context must be a number of tokens, not True"),
    ({"kv_memory": True}, "kv_memory must be a number of bytes above 0, not True"),
    ({"spill": True}, "spill must be a number of bytes, or 0 for none, not True"),
    ({"threads": True}, "threads must be from 1 to 256, not True"),
    ({"jump_forward": "off"}, "jump_forward must be True or False, not 'off'"),
    ({"draft_tokens": True}, "draft_tokens=True is out of range"),
    ({"cache_packed_weights": "no"}, "cache_packed_weights must be True or False, not 'no'"),
    ({"tune": {"pages": "maybe"}}, "pages must be on or off, not 'maybe'"),
    ({"context": -1}, "context must be at least 1 token, not -1"),
    ({"context": 4097}, "4097 tokens is too long; tiny q4_0 was made for 4096"),
]


@pytest.mark.parametrize(("settings", "said"), BAD_SETTINGS)
def test_bad_settings(tiny_model: MakeModel, settings: dict[str, Any], said: str) -> None:
    """Each setting that cannot work is refused with its value and what would do."""
    with pytest.raises(EngineError, match=said):
        Engine.load(tiny_model("q4_0"), **settings)


def test_an_unknown_target(tiny_model: MakeModel) -> None:
    """A target that does not exist is refused before the model is read."""
    with pytest.raises(TargetError, match="unknown CPU target 'pentium'"):
        Engine.load(tiny_model("q4_0"), target="pentium")


@pytest.mark.parametrize("size", [0, -1, 4097, True])
def test_bad_sessions(engine: Engine, size: int) -> None:
    """A session has at least one position and at most the engine's."""
    message = f"context must be 1 to 4096, the engine's own, not {size}"
    with pytest.raises(EngineError, match=message):
        engine.session(size)


def test_a_smaller_context(tiny_model: MakeModel) -> None:
    """A context that was asked for is that of the sessions."""
    with Engine.load(tiny_model("q4_0"), threads=1, context=33) as engine:
        assert engine.context == engine.session().context == 33
        assert engine.session(7).context == 7


# --- models that cannot be found or run


@pytest.mark.parametrize("name", ["no-such-model", "folder/no.gguf", ""])
def test_no_such_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads nowhere is an error that says which names there are."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError):
        Engine.load(name)


def test_a_folder_is_not_a_model(tmp_path: Path) -> None:
    """A path that exists but is no file is an error of the model's kind."""
    with pytest.raises(ModelError):
        Engine.load(tmp_path)


def test_unknown_names_say_what_to_do() -> None:
    """The message lists the ways to name a model."""
    with pytest.raises(
        ModelError, match=r"no such model: gpt-9.*path to a GGUF file, .*pulled model, nano, or"
    ):
        resolve_model("gpt-9")
    with pytest.raises(ModelError, match="nonsense"):
        resolve_model("synthetic:nonsense:q4_0")


Q = "blk.1.attn_q.weight"
NORM = "blk.0.ffn_norm.weight"
BROKEN: list[tuple[dict[str, Any], type[ModelError], str]] = [
    ({"without": [Q]}, GGUFError, rf"no tensor '{Q}'"),
    ({"without": [NORM]}, GGUFError, rf"no tensor '{NORM}'"),
    ({"without": ["output_norm.weight"]}, GGUFError, "no tensor 'output_norm.weight'"),
    ({"without": ["token_embd.weight"]}, GGUFError, "token_embd.weight"),
    ({"reshaped": {Q: (160, 96)}}, GGUFError, rf"'{Q}' has shape \[160, 96\], .* say \[192, 96\]"),
    ({"reshaped": {NORM: (64,)}}, GGUFError, rf"'{NORM}' has shape \[64\], .* say \[96\]"),
    ({"reshaped": {"token_embd.weight": (300, 64)}}, GGUFError, r"\[300, 64\]"),
    ({"metadata": {"block_count": 4}}, GGUFError, r"no tensor 'blk\.3\.attn_norm\.weight'"),
    ({"metadata": {"head_count_kv": 4}}, GGUFError, "6 heads cannot share 4 KV heads"),
    ({"metadata": {"key_length": 48}}, UnsupportedModelError, "key_length = 48 and .* = 32 are"),
    ({"metadata": {"head_count": 0}}, GGUFError, "head_count"),
    ({"metadata": {"embedding_length": 0}}, GGUFError, "embedding_length"),
    ({"metadata": {"context_length": 0}}, GGUFError, "context_length"),
    ({"kinds": {Q: "f64"}}, UnsupportedModelError, rf"{Q} is F64, which has no kernel.*Q8_0"),
    ({"kinds": {"token_embd.weight": "f64"}}, UnsupportedModelError, "token_embd.weight is F64"),
    (
        {"architecture": "mamba"},
        UnsupportedModelError,
        "architecture 'mamba' is not supported.*llama.*qwen3",
    ),
    (
        {"architecture": "llama"},
        UnsupportedModelError,
        r"6 tensors that llama does not have here, such as 'blk\.0\.attn_q_norm\.weight'",
    ),
]


@pytest.mark.parametrize(("change", "error", "said"), BROKEN)
def test_broken_models(
    tmp_path: Path, change: dict[str, Any], error: type[ModelError], said: str
) -> None:
    """A file that is wrong in one way is refused with what is wrong; no thread is left behind."""
    path = tmp_path / "broken.gguf"
    tiny.write_tiny(path, "q8_0", **change)
    before = _pool_threads()
    with pytest.raises(error, match=said):
        Engine.load(path, threads=2)

    assert set(_pool_threads()) <= set(before)


def test_mixed_types_in_one_layer(tmp_path: Path) -> None:
    """Matrices of one layer may have types of their own, as real files do."""
    path = tmp_path / "mixed.gguf"
    kinds = {"blk.0.attn_v.weight": "q8_0", "blk.1.attn_output.weight": "f16"}
    kinds |= {"token_embd.weight": "q8_0", "blk.2.ffn_down.weight": "f32"}
    tiny.write_tiny(path, "q4_0", kinds=kinds)
    ids = list(range(40))
    with Engine.load(path, threads=2, kv="f32") as engine:
        got = engine.session().logits_for(ids)
        want = tiny.numpy_logits(path, ids)

        assert engine.model.quant == "Q4_0"
        assert np.abs(got - want).max() <= 0.04 * np.ptp(want)


def test_weights_that_are_too_large(tmp_path: Path) -> None:
    """A model that gives NaN ends a decode with an error, and not with a made-up token."""
    path = tmp_path / "nan.gguf"
    tiny.write_tiny(path, "f32", huge="blk.0.ffn_norm.weight")
    with Engine.load(path, threads=2) as engine:
        session = engine.session()
        session.prefill([1, 2, 3])
        with pytest.raises(EngineError, match="not finite"):
            list(session.decode(max_tokens=1))


# --- the end of an engine


def test_a_closed_engine_runs_no_pass(tiny_model: MakeModel) -> None:
    """After close a session refuses to go on, at once; closing twice is fine."""
    engine = Engine.load(tiny_model("q4_0"), threads=2)
    session = engine.session()
    session.prefill([1, 2, 3])
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        session.prefill([4])
    with pytest.raises(EngineError, match="closed"):
        list(session.decode(max_tokens=1))
    with pytest.raises(EngineError, match="closed"):
        session.fork()
    with pytest.raises(EngineError, match="closed"):
        engine.session()


def test_closing_waits_for_a_pass(tiny_model: MakeModel) -> None:
    """Its workers would leave, and the thread that runs it would wait for them for ever."""
    with ThreadPoolExecutor(1) as threads, Engine.load(tiny_model("q8_0"), threads=2) as engine:
        session = engine.session()
        with engine.loaded.lock:  # as a pass of this thread has it
            closing = threads.submit(engine.close)
            with pytest.raises(TimeoutError):
                closing.result(0.2)
            assert all(worker.is_alive() for worker in engine.loaded.pool._workers)
            with pytest.raises(EngineError, match="closed"):
                session.prefill([1, 2, 3])
        closing.result(60)
        assert not any(worker.is_alive() for worker in engine.loaded.pool._workers)


def test_with_closes(tiny_model: MakeModel) -> None:
    """Leaving a `with` block ends the threads."""
    before = _pool_threads()
    with Engine.load(tiny_model("q4_0"), threads=2) as engine:
        assert len(_pool_threads()) == len(before) + engine.threads - 1
    assert set(_pool_threads()) <= set(before)


def test_threads_are_at_most_the_cores(
    tiny_model: MakeModel, caplog: pytest.LogCaptureFixture
) -> None:
    """More would wait for each other: they are reduced, and a warning names both numbers."""
    cores = usable_cores()
    with Engine.load(tiny_model("q4_0"), threads=cores + 40) as engine:
        assert engine.threads == engine.loaded.tuning.fixed.threads == cores
    assert caplog.messages == [
        f"{cores + 40} threads do not fit {cores} usable cores; using {cores}"
    ]


@pytest.mark.slow
def test_a_forgotten_engine_is_freed(tiny_model: MakeModel) -> None:
    """Without references engine, weights and threads go, with no close."""
    before = _pool_threads()
    engine = Engine.load(tiny_model("q4_0"), threads=2)
    session = engine.session()
    session.prefill([1, 2, 3])
    gone = weakref.ref(engine)
    del engine, session
    gc.collect()

    assert gone() is None
    # Of those that were there some may have ended meanwhile: an earlier test's.
    assert set(_pool_threads()) <= set(before)


def test_engines_side_by_side(tiny_model: MakeModel) -> None:
    """Two models with threads of their own give what each gives alone."""
    ids = list(range(50))
    kinds = ("q8_0", "q4_0")
    alone = []
    for kind in kinds:
        with Engine.load(tiny_model(kind), threads=2) as engine:
            alone.append(engine.session().logits_for(ids))
    engines = [Engine.load(tiny_model(kind), threads=2) for kind in kinds]
    sessions = [engine.session() for engine in engines]
    together: list[list[np.ndarray]] = [[], []]
    for at in range(0, 50, 10):
        for n, session in enumerate(sessions):
            together[n].append(session.logits_for(ids[at : at + 10]))
    for engine in engines:
        engine.close()

    for rows, want in zip(together, alone, strict=True):
        assert np.array_equal(np.concatenate(rows), want)
