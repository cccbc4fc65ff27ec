"""Importance matrices: what enters every product, summed over a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from helpers import tiny_models, tiny_qwen3moe

from triplepoint.errors import ModelError
from triplepoint.runtime.convert.mapping import map_checkpoint
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.evaluate.imatrix import Collected, collect
from triplepoint.runtime.quantize.importance import Importance
from triplepoint.runtime.quantize.quantize import quantize

SIZE, CHUNKS = 40, 2
ORACLE = "torch and transformers are not installed"


def some_ids(count: int = SIZE * CHUNKS) -> list[int]:
    return np.random.default_rng(3).integers(0, 250, count).tolist()


def collected(path: Path, threads: int = 2) -> Collected:
    with Engine.load(path, threads=threads, kv="f32", context=SIZE) as engine:
        return collect(engine, some_ids(), SIZE)


def torch_sums(name: str) -> dict[str, np.ndarray]:
    """The same by transformers, from hooks on its linear layers: by names in the GGUF file."""
    torch = pytest.importorskip("torch", reason=ORACLE)
    transformers = pytest.importorskip("transformers", reason=ORACLE)
    settings = tiny_models.config_of(name) | {"attn_implementation": "eager", "pad_token_id": 0}
    config = transformers.AutoConfig.for_model(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    weights = tiny_models.checkpoint(name)
    model.load_state_dict({n: torch.from_numpy(v) for n, v in weights.items()}, strict=False)
    mapping = map_checkpoint(tiny_models.config_of(name), list(weights))
    sums: dict[str, np.ndarray] = {}

    def watch(target: str):
        def hook(module: Any, inputs: Any) -> None:
            squares = (inputs[0][0].double() ** 2).sum(0).numpy()
            sums[target] = sums.get(target, 0) + squares

        return hook

    modules = dict(model.named_modules())
    for tensor in mapping.tensors:
        module = modules.get(tensor.sources[0].removesuffix(".weight")) if tensor.sources else None
        if module is None or tensor.name == "output.weight":
            continue
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(watch(tensor.name))
    ids = some_ids()
    with torch.no_grad():
        for n in range(CHUNKS):
            model(torch.tensor([ids[n * SIZE : (n + 1) * SIZE]]))
    return sums


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "gemma3", "phi3"])
def test_as_transformers_sees_it(tmp_path: Path, name: str) -> None:
    """Every matrix but the head, each column, as hooks in transformers see it."""
    want = torch_sums(name)
    tiny_models.write_model(tmp_path / "model.gguf", name, "f32")
    found = collected(tmp_path / "model.gguf")

    # Their fused matrices are one tensor here, too.
    assert set(found.sums) == set(want)
    for tensor, values in want.items():
        assert found.counts[tensor].tolist() == [SIZE * CHUNKS]
        assert np.allclose(found.sums[tensor][0], values, rtol=1e-3), tensor


def test_experts(tmp_path: Path) -> None:
    """Every token is seen by as many experts as it uses, with the input that the router sees."""
    tiny_qwen3moe.write_tiny(tmp_path / "moe.gguf", "f32")
    found = collected(tmp_path / "moe.gguf")
    used, experts = tiny_qwen3moe.USED, tiny_qwen3moe.EXPERTS
    for layer in range(tiny_qwen3moe.LAYERS):
        part = f"blk.{layer}.ffn_{{}}.weight".format
        router = found.sums[part("gate_inp")][0]
        for name in ("gate_exps", "up_exps", "down_exps"):
            assert found.sums[part(name)].shape[0] == experts
            assert found.counts[part(name)].sum() == used * SIZE * CHUNKS
        for name in ("gate_exps", "up_exps"):
            assert np.allclose(found.sums[part(name)].sum(0), used * router, rtol=1e-4)
        seen = found.counts[part("down_exps")] > 0
        assert ((found.sums[part("down_exps")].sum(1) > 0) == seen).all()


def test_threads(tmp_path: Path) -> None:
    """The same sums with one thread and with two."""
    tiny_qwen3moe.write_tiny(tmp_path / "moe.gguf", "q8_0")
    one, two = (collected(tmp_path / "moe.gguf", threads) for threads in (1, 2))

    assert all(np.array_equal(one.sums[name], two.sums[name]) for name in one.sums)


def test_file(tmp_path: Path) -> None:
    """The file has two tensors a matrix; quantizing reads it."""
    tiny_models.write_model(tmp_path / "model.gguf", "llama", "f32")
    found = collected(tmp_path / "model.gguf", 1)
    path = tmp_path / "imatrix.gguf"
    found.write(path, "text.txt")
    reader = gguf.GGUFReader(path)
    tensors = {t.name: t.data for t in reader.tensors}

    name = "blk.1.ffn_down.weight"
    assert reader.fields["general.type"].contents() == "imatrix"
    assert reader.fields["imatrix.datasets"].contents() == ["text.txt"]
    assert reader.fields["imatrix.chunk_count"].contents() == CHUNKS
    assert reader.fields["imatrix.chunk_size"].contents() == SIZE
    assert np.array_equal(tensors[f"{name}.in_sum2"], found.sums[name].astype(np.float32))
    assert tensors[f"{name}.counts"].tolist() == [[SIZE * CHUNKS]]
    means = found.sums[name] / found.sums[name].mean()
    got = Importance.read(path).of(name, 1, means.shape[1])
    assert got is not None
    assert np.allclose(got, means, atol=1e-3)
    # Q8_0 rounds all columns alike.
    with pytest.raises(ModelError, match="no effect"):
        quantize(tmp_path / "model.gguf", tmp_path / "q.gguf", "Q8_0", imatrix=path, threads=1)


def test_short_text(tmp_path: Path) -> None:
    """Less than a chunk is refused."""
    tiny_models.write_model(tmp_path / "model.gguf", "llama", "f32")
    with (
        Engine.load(tmp_path / "model.gguf", threads=1) as engine,
        pytest.raises(ModelError, match="a chunk needs 40"),
    ):
        collect(engine, some_ids(30), SIZE)


def test_session_afterwards(tmp_path: Path) -> None:
    """Watching changes nothing: the engine's answers are what they were."""
    tiny_models.write_model(tmp_path / "model.gguf", "llama", "f32")
    with Engine.load(tmp_path / "model.gguf", threads=2) as engine:
        before = engine.session().logits_for(some_ids(20))
        collect(engine, some_ids(), SIZE)
        assert np.array_equal(engine.session().logits_for(some_ids(20)), before)
