"""Passes with half of one resource, built from the same ops as the pass itself.

    control   every product in pieces, one op for each; all else as it is
    memory    of two neighboring pieces the first is multiplied twice: half of the bytes come from
              where the weights lie, the same products are done. Neighboring experts share their
              weights, neighboring pages of the cache are one
    compute   the same bytes, half of the products: of many tokens the products and attention take
              half, of one token every second piece is read and not multiplied, and attention takes
              half of its heads. Of experts with few tokens each, half of the panels are only read
    dispatch  the ops as they are, two passes in one run, and every second barrier left out

So the tape of a pass really does less of one thing. Its results mean nothing: use a session of its
own. Times of `memory` and `compute` stand against `control`, which has as many ops and barriers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from triplepoint.jit.compile import spec
from triplepoint.jit.kernels import attention
from triplepoint.jit.kernels.batch import describe, own_indices
from triplepoint.jit.kernels.epilogue import GATES
from triplepoint.jit.kernels.panels import FORMATS
from triplepoint.jit.pool import aligned
from triplepoint.jit.tape import Op, PerThread, Tape
from triplepoint.runtime.engine.model.plan import Plan
from triplepoint.runtime.forward.batch import Span
from triplepoint.runtime.forward.descriptor import ONE, OUTPUTS, TOKENS
from triplepoint.runtime.forward.gemms import CHUNKS
from triplepoint.runtime.forward.graph import GraphBuilder

from . import perturb

if TYPE_CHECKING:
    from triplepoint.runtime.engine.session import Session

Perturbation = Literal["", "control", "memory", "compute", "dispatch"]
PIECE = 1 << 20  # bytes of a piece for each thread: it is near when it is read again
FEW = 3.0  # tokens of an expert below which half of them cannot be left out
# Which argument is the number of tokens.
_COUNT = {"gemm_quant": 4, "gemm_amx": 5, "gemm_float": 6, "gemm_selected": 5}


def perturbed(session: Session, name: Perturbation, tokens: int) -> Plan[PerturbedGraph]:
    """Build a pass of up to `tokens` tokens with half of `name`'s resource; "" changes nothing."""

    class Kind(PerturbedGraph):
        half = name
        expected = (
            tokens
            * session.phases.core.loaded.cost.experts_used
            / max(1, session.phases.core.loaded.cost.experts)
        )

    label = name or "whole"
    return Plan(session.phases.core.loaded, label, tokens, Kind)


class PerturbedGraph(GraphBuilder):
    """A graph whose ops are changed when its tape is finished.

    Attributes:
        half: which resource there is half of.
        expected: tokens of the pass that an expert gets, if all get as many.
    """

    half: ClassVar[Perturbation] = ""
    expected: ClassVar[float] = 0.0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.tape = _Changed(self.tape.name, self.tape.threads, self._change)
        self._chance = np.random.default_rng(1)  # which experts tokens go to: alike in all passes

    # --- what becomes of the ops

    def _change(self, ops: Sequence[Op]) -> list[Op]:
        self._fix_experts(ops)
        if not self.half:
            return list(ops)
        if self.half == "dispatch":
            return self._fewer_barriers(ops)
        return [changed for op in ops for changed in self._one(op)]

    def _one(self, op: Op) -> list[Op]:
        kernel = op.kernel.source.name
        if kernel == "gemm_experts":
            return self._experts(op)
        if kernel in _COUNT and "router" not in op.name:
            return self._in_pieces(op)
        if kernel == "attention" and self.half == "compute":
            return [self._fewer_heads(op) if self.decode else self._fewer_rows(op)]
        if kernel == "group":
            return self._lists(op)
        return [op]

    def _in_pieces(self, op: Op) -> list[Op]:
        """Split a product into pieces."""
        form, blocks = self._format(op)
        panel = form.panel_bytes(blocks, self.target.lanes)
        units = op.args[0].nbytes // panel
        pairs = max(1, round(op.args[0].nbytes / self.tape.threads / PIECE / 2))
        if units < 2 * self.tape.threads:
            return [op]
        cuts = [units * n // (2 * pairs) for n in range(2 * pairs + 1)]
        return [self._piece(op, panel, cuts, n, last=n == 2 * pairs - 1) for n in range(2 * pairs)]

    def _piece(self, op: Op, panel: int, cuts: Sequence[int], n: int, *, last: bool) -> Op:
        kernel = op.kernel.source.name
        again = self.half == "memory" and n % 2
        first, size = cuts[n - 1] if again else cuts[n], cuts[n + 1] - cuts[n]
        args, head = list(op.args), kernel == "gemm_selected"
        data = args[0].reshape(-1)[first * panel :]
        if head:
            args[6] = np.arange(first, first + size + 1, dtype=np.int32)
            args[6][-1] = first  # what is looked at ahead
        else:
            width = self.target.lanes * (1 if self._fused(op) else 2)
            args[0], args[2] = data, args[2][:, cuts[n] * width :]
        units = self._head_part(size) if head else np.array([size], np.int64)
        kind = op.kernel
        if self.half == "compute" and self.decode and n % 2:
            kind, args = spec(perturb.stream_only), [data, self._sinks(), panel]
        elif self.half == "compute" and not head and not self.decode:
            args[_COUNT[kernel]] = self._half_of_tokens()
        chunk = max(1, size // (CHUNKS * self.tape.threads))
        return dataclasses.replace(
            op, kernel=kind, args=args, units=units, chunk=chunk, barrier=op.barrier and last
        )

    def _head_part(self, size: int) -> np.ndarray:
        """Return the units of a piece of the output head: none in a pass without outputs."""
        return self.units(self.counted(lambda _, counts: int(counts[OUTPUTS] > 0)), size)

    def _half_of_tokens(self) -> np.ndarray:
        return self.units(self.counted(lambda _, counts: max(1, counts[TOKENS] // 2)))

    def _fewer_rows(self, op: Op) -> Op:
        """Attend with half the tokens, to as much of the cache on average."""
        rows, tiles = own_indices(np.zeros_like(self.rows)), aligned(self.tiles.shape, np.int64)
        sizes = dict(op.kernel.constants)
        tile, heads = attention.token_tile(sizes["group"]), sizes["kv_heads"]

        def half(spans: Sequence[Span], _: Sequence[int]) -> int:
            (span,) = spans  # what is changed here are passes of one sequence
            tokens = len(span.ids)
            half = max(1, tokens // 2)
            part = span.start + (tokens - half) // 2, half, span.table
            return describe(rows, tiles, [part], tile)

        units = self.units(self.counted(half), heads)
        return dataclasses.replace(op, args=[*op.args[:7], tiles, rows, *op.args[9:]], units=units)

    def _fewer_heads(self, op: Op) -> Op:
        """Attend with half the query heads of each KV head."""
        constants = dict(op.kernel.constants)
        group = constants["group"] = max(1, constants["group"] // 2)
        # Fewer heads may make a larger tile, and so need more scratch.
        dims = constants["head_dim"], constants.get("value_dim", 0)
        scratch = self.scratch("scores", attention.scratch_bytes(group, *dims))
        args = [*op.args[:6], scratch, *op.args[7:]]
        return dataclasses.replace(op, kernel=spec(attention.attention, **constants), args=args)

    # --- experts

    def _fix_experts(self, ops: Sequence[Op]) -> None:
        """Fix every token's experts at random: a changed pass must not choose them."""
        chosen = np.zeros(0, np.int32)
        for op in ops:
            kernel, sizes = op.kernel.source.name, dict(op.kernel.constants)
            if op.name.endswith((".k_b", ".v_b")):  # heads, of which none is chosen
                continue
            if kernel == "route":
                everyone = [
                    self._chance.permutation(sizes["experts"]) for _ in range(self.max_tokens)
                ]
                chosen = aligned(self.max_tokens * sizes["used"] + 1, np.int32)
                chosen[:-1] = np.concatenate([order[: sizes["used"]] for order in everyone])
                if self.decode and self.half == "memory":
                    chosen[1:-1:2] = chosen[:-2:2]
            elif kernel == "group":
                op.args = [chosen, *op.args[1:]]
            elif kernel == "gemm_experts" and self.decode:
                op.args = [*op.args[:6], chosen, *op.args[7:]]

    def _experts(self, op: Op) -> list[Op]:
        """Run the lower half of every expert's panels, then the upper one."""
        args, constants = list(op.args), dict(op.kernel.constants)
        args[5] //= 2
        name, data = constants["fmt"], args[0].reshape(-1)
        panel = FORMATS[name].panel_bytes(constants["blocks"], self.target.lanes)
        middle = data.nbytes // panel // 2 * panel
        units = op.units
        if self.decode:
            units = np.array([int(op.units[0]) // 2], np.int64)
        chunk = max(1, op.chunk // 2)
        lower = dataclasses.replace(op, args=args, units=units, chunk=chunk, barrier=False)
        args = [data[middle:], *args[1:]]
        kind = op.kernel
        if self.half == "compute" and self.expected < FEW:
            kind = spec(perturb.stream_experts_only, fmt=name, blocks=constants["blocks"])
            args = [args[0], self._sinks(), args[5], args[6]]
        upper = dataclasses.replace(op, kernel=kind, args=args, units=units, chunk=chunk)
        return [lower, upper]

    def _lists(self, op: Op) -> list[Op]:
        """Change the lists of pairs by expert: make them shorter, or lead to fewer experts."""
        args = list(op.args)
        args[6], args[7] = args[6] // 2, args[7] // 2
        grouped = dataclasses.replace(op, args=args)
        divide = 2 if self.half == "compute" and self.expected >= FEW else 1
        one = self.units(ONE)
        subsample = Op(
            f"{op.name}.subsample", spec(perturb.subsample, divide=divide),
            [args[3], args[4], args[5]], one,
        )  # fmt: skip
        mask = -2 if self.half == "memory" else -1
        kernel = spec(perturb.alias, count=dict(op.kernel.constants)["experts"], mask=mask)
        alias = Op(f"{op.name}.alias", kernel, [args[2]], one, barrier=False)
        return [grouped, alias, subsample]

    # --- barriers

    def _fewer_barriers(self, ops: Sequence[Op]) -> list[Op]:
        """Run two passes, and between their first and last op every second barrier.

        Who goes to which expert is counted on one thread: the barriers around that stay.
        """
        out: list[Op] = []
        met = 0
        for op in [*ops, *ops]:
            fixed = op.kernel.source.name in ("route", "group")
            met += op.barrier
            stays = op.barrier and (fixed or met % 2 == 0)
            out.append(dataclasses.replace(op, barrier=stays))
        out[-1].barrier = True
        return out

    # --- helpers

    def _format(self, op: Op):
        constants = dict(op.kernel.constants)
        form = FORMATS[constants["fmt"]]
        return form, constants["blocks"] if "blocks" in constants else op.args[3]

    def _fused(self, op: Op) -> bool:
        return dict(op.kernel.constants)["epilogue"] in GATES

    def _sinks(self) -> PerThread:
        return PerThread([aligned(64, np.uint8) for _ in range(self.tape.threads)])


class _Changed(Tape):
    """A tape that changes its ops before it becomes native."""

    def __init__(self, name: str, threads: int, change: Callable[[Sequence[Op]], list[Op]]) -> None:
        super().__init__(name, threads)
        self._change_ops = change

    def finish(self, library: Any, pool: Any):
        self.ops[-1].barrier = True
        self.ops = self._change_ops(self.ops)
        return super().finish(library, pool)
