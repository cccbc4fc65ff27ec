"""What stored keys are that have biases: told as kernels store them."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import tiny_models as tiny

from triplepoint.jit.kernels.kvcache import KVFormat
from triplepoint.runtime.agent.run_metadata import start_on
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.kv.page_keys import fingerprint

FORMS = {"bf16": (True, False), "k16v8": (True, False), "q8": (True, True), "f32": (False, False)}


@pytest.mark.parametrize("name", ["qwen2", "llama"])
@pytest.mark.parametrize("kv", FORMS)
def test_what_is_told_is_what_is_stored(tmp_path: Path, name: str, kv: KVFormat) -> None:
    """The kernels of a pass, a trace's header and the keys of pages agree, layer by layer."""
    path = tmp_path / "model.gguf"
    tiny.write_model(path, name, "q8_0")
    with Engine.load(path, kv=kv, threads=1) as engine:
        ops = engine.core.plans.prefill.graph.tape.ops
        kernels = [op.kernel for op in ops if op.kernel.source.name == "rope_store"]
        tuning = start_on(engine).tuning
        pages = fingerprint(engine.loaded)["keys"]

    for form, chosen in zip(("centered", "equalized"), FORMS[kv], strict=True):
        layers = sum(bool(dict(kernel.constants).get(form)) for kernel in kernels)
        assert layers == (len(kernels) if chosen and name == "qwen2" else 0)
        assert tuning[f"{form} keys"]["value"] == pages[form] == layers
