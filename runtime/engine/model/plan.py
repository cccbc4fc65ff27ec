"""Plans: the graph and native tape for each kind of pass of an engine.

A plan belongs to the engine. The descriptor of a pass lists its rows, so that all sessions use the
same few plans, and a new session or a fork costs no tape.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from ....jit.tape import CompiledTape, Tape, TapeTimes
from ...forward.graph import GraphBuilder
from ...forward.hidden import HiddenGraph
from ...forward.logits import ROWS, argmax_ops, argmax_rows_ops
from ...forward.split_kv import TOKENS as SPLIT_TOKENS
from ...forward.split_kv import SplitKVGraph

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...forward.batch import Span
    from .loaded_model import LoadedModel

_HEAVY = ("gemm", "attention", "stream")
G = TypeVar("G", bound=GraphBuilder)


class Plan(Generic[G]):
    """The graph of one kind of pass, and its native tape."""

    def __init__(self, loaded: LoadedModel, name: str, max_tokens: int, kind: type[G]) -> None:
        network, choice = loaded.network, loaded.outputs
        self.graph = kind(
            name,
            loaded.target,
            loaded.threads,
            max_tokens,
            loaded.buffers,
            network.config.heads,
            loaded.layout,
        )
        self.graph.register_tiles = loaded.tuning.tiles
        if max_tokens == 1:
            self.graph.choice = choice
        network.forward(self.graph, choice.logits)
        if max_tokens == 1:
            argmax_ops(self.graph.tape, choice)
        self.tape: CompiledTape = self.graph.tape.finish(loaded.library, loaded.pool)
        self.name = name
        self.max_tokens = max_tokens
        kernels = [op.kernel.source.name for op in self.graph.tape.ops]
        light = [n for n, kernel in enumerate(kernels) if not kernel.startswith(_HEAVY)]
        # Time inside kernels; in those that neither multiply by weights nor attend; in all.
        kinds = np.zeros((3, *self.tape.times.stats.shape))
        kinds[0, ..., 0] = kinds[1, :, light, 0] = kinds[2] = 1.0
        self._kinds = kinds.reshape(3, -1)

    def seconds(self, times: TapeTimes) -> list[float]:
        """Return the threads' seconds: in kernels, in those not GEMM or attention, in total."""
        return times.sums(self._kinds)


class Plans:
    """The plans of an engine, each built when it is first needed.

    Where a setting that plans are made of has changed, such as the tokens of a chunk, there is
    another one for it; the previous plan stays cached.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self._loaded = loaded
        self._built: dict[tuple[object, ...], Plan] = {}
        # The last one, since it is asked for at every pass.
        self._prefill: tuple[int, object, Plan[GraphBuilder]] | None = None

    @property
    def decode(self) -> Plan[GraphBuilder]:
        """The plan for passes of one token: each thread prepares inputs; ends in an argmax."""
        return self._plan("decode", 1, GraphBuilder)

    @property
    def prefill(self) -> Plan[GraphBuilder]:
        """The plan of up to a chunk of rows, with logits of up to `choice.ROWS` of them."""
        tuning, found = self._loaded.tuning, self._prefill
        if found is None or found[0] != tuning.chunk or found[1] is not tuning.tiles:
            plan = self._plan("prefill", self._most, GraphBuilder)
            found = self._prefill = tuning.chunk, tuning.tiles, plan
        return found[2]

    @property
    def hidden(self) -> Plan[HiddenGraph]:
        """The plan of up to a chunk of rows that ends before the output head."""
        return self._plan("hidden", self._most, HiddenGraph)

    def build(self) -> None:
        """Build the plans that most phases need."""
        _ = self.decode, self.prefill, self.choose

    def split(self, plan: Plan, spans: Sequence[Span]) -> Plan:
        """Return the variant of `plan` with split attention, if it fits such a pass."""
        if plan is not self.decode and plan is not self.prefill:
            return plan
        most = min(plan.max_tokens, SPLIT_TOKENS)
        found = self._plan(f"{plan.name}.split", most, SplitKVGraph, plan.name)
        return found if found.graph.fits(spans) else plan

    @cached_property
    def choose(self) -> CompiledTape:
        """The tape of the greedy choice, in the rows that `OutputBuffers.rows` selects."""
        loaded = self._loaded
        tape = Tape("choose", loaded.threads, elastic=True)
        with loaded.lock:
            argmax_rows_ops(tape, loaded.outputs)
            return tape.finish(loaded.library, loaded.pool)

    @property
    def _most(self) -> int:
        return max(ROWS, min(self._loaded.tuning.chunk, self._loaded.context))

    def _plan(self, key: str, most: int, kind: type[G], name: str = "") -> Plan[G]:
        where = key, most, *self._loaded.tuning.tiles.items()
        found = self._built.get(where)
        if found is None:
            # Plans share buffers: two that were built at once would have each other's.
            with self._loaded.lock:
                found = self._built.get(where)
                if found is None:
                    found = self._built[where] = Plan(self._loaded, name or key, most, kind)
        return found
