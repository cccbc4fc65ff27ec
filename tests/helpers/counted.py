"""Bytes and operations of a pass, counted on the tape that computes it: no cost model is asked.

A model of real shapes is built from the header of its file alone: its weights are a hole in the
file and untouched memory, so tens of billions of them cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from triplepoint.jit import targets
from triplepoint.jit.compile import Library, ObjectCache
from triplepoint.jit.kernels.batch import COUNT, START
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat
from triplepoint.jit.tape import Op
from triplepoint.runtime import models
from triplepoint.runtime.engine.model.model_cost import model_cost
from triplepoint.runtime.forward.batch import Span
from triplepoint.runtime.forward.graph import GraphBuilder
from triplepoint.runtime.forward.kv import KVLayout
from triplepoint.runtime.forward.state import StateLayout
from triplepoint.runtime.forward.tensors import Workspace
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.memory import Arena
from triplepoint.runtime.models.decoder import Decoder
from triplepoint.runtime.physics.costs import ModelCost
from triplepoint.runtime.synthetic.write import SyntheticModel
from triplepoint.runtime.weights.loader import WeightLoader

VOCABULARY = 4096  # tokens: how many there are is no part of what is counted


@dataclass
class Counts:
    """Counts of a pass, by what they are of."""

    weight_bytes: int = 0
    head_bytes: int = 0
    expert_bytes: int = 0
    linear_flops: int = 0
    attention_flops: int = 0
    kv_read_bytes: float = 0.0
    state_flops: int = 0
    state_floats: int = 0


@dataclass
class Counted:
    """A model that was built, and what it is made of."""

    model: SyntheticModel
    network: Decoder
    layout: KVLayout
    cost: ModelCost
    lanes: int

    def decode(self, start: int) -> Counts:
        """What the tape of one token at KV length `start` reads and multiplies."""
        c = self.network.config
        g = GraphBuilder("counted", targets.detect(), 1, 1, Workspace(), c.heads, self.layout)
        self.network.forward(g, np.zeros((1, c.n_vocab), np.float32))
        g.set_pass([Span(0, start, [0], 1)])
        found = Counts()
        for op in g.tape.ops:
            self._count(found, op)
        return found

    def _count(self, found: Counts, op: Op) -> None:
        kernel, s = op.kernel.source.name, dict(op.kernel.constants)
        units = int(op.units[0])
        if kernel.startswith("gemm"):
            panels = _panels(self.network, op.args[0])
            depth = panels.depth
            found.linear_flops += 2 * units * 2 * self.lanes * depth
            nbytes = units * panels.panels.nbytes // (panels.units * panels.copies)
            found.weight_bytes += nbytes
            if op.name == "output":
                found.head_bytes += nbytes
            if "_exps" in panels.sources[0]:
                found.expert_bytes += nbytes
        elif kernel == "attention":
            tile = next(a for a in op.args if getattr(a, "ndim", 0) == 2 and a.dtype == np.int64)[0]
            seen = int(tile[START] + tile[COUNT])
            seen = min(seen, s["window"]) if s.get("window") else seen
            out = s.get("value_dim") or s["head_dim"]
            heads = s["kv_heads"] * s["group"]
            found.attention_flops += 2 * heads * (s["head_dim"] + out) * seen
            cached = s["head_dim"] * (1 if s.get("value_dim") else 2)
            found.kv_read_bytes += 2 * s["kv_heads"] * cached * seen
        elif kernel == "delta_rule":
            floats = s["value_heads"] * s["key_dim"] * s["value_dim"]
            found.state_floats += floats
            found.state_flops += 7 * floats
        elif kernel == "mamba2":
            floats = s["heads"] * s["head_dim"] * s["state_dim"]
            found.state_floats += floats
            found.state_flops += 5 * floats
        elif kernel == "short_conv":
            found.state_floats += (s["taps"] - 1) * s["channels"]
            found.state_flops += 2 * s["taps"] * s["channels"]


def _panels(network: Decoder, data: Any) -> Any:
    """The matrix that these panels are of."""
    return next(m for m in network.weights.wanted if m.panels is data)


@contextmanager
def counted(name: str, folder: Path, kv: KVFormat = "bf16") -> Iterator[Counted]:
    """The model `synthetic:NAME`, from its header."""
    with laid_out(SyntheticModel.parse(f"synthetic:{name}"), folder, kv) as found:
        yield found


@contextmanager
def laid_out(found: SyntheticModel, folder: Path, kv: KVFormat = "bf16") -> Iterator[Counted]:
    """The same of any synthetic model."""
    model = replace(found, shape=replace(found.shape, vocab=VOCABULARY))
    path = folder / "header.gguf"
    model.write_header(path)
    with open_gguf(path) as gguf:
        library = Library(targets.detect(), ObjectCache(None))
        weights = WeightLoader(gguf, library)
        network = models.build(gguf, weights)
        weights.place(Arena(weights.arena_bytes, huge_pages=False))
        recurrent = network.recurrent
        states = StateLayout.of((n, part.state_floats) for n, part in recurrent.items())
        layout = KVLayout(kv, network.config.cached, PAGE, network.tables(PAGE, PAGE),
                          windows=tuple(network.windows),
                          states=states if recurrent else None)  # fmt: skip
        yield Counted(model, network, layout, model_cost(network, layout), library.target.lanes)
