"""GEMMs on the tape and the preparation of their inputs: kernels, buffers, shares of panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...jit.compile import Spec, spec
from ...jit.kernels import (
    activations,
    gemm,
    gemm_amx,
    lm_head,
)
from ...jit.kernels.epilogue import Epilogue
from ...jit.tape import DYNAMIC, REPLICATED, STATIC, PerThread, Tape
from ...jit.targets import CpuTarget
from ..weights.matrix import Matrix
from .descriptor import OUTPUTS, TOKENS, PassDescriptor
from .tensors import (
    Activation,
    HeadShape,
    QuantizedActivation,
    QuantizedRows,
    Workspace,
    padded,
)

CHUNKS = 16  # of each thread's panels in a prefill's GEMM: what another may take over
DECODE_CHUNKS = 0  # in a decode a panel is read at the speed of memory, whoever reads it: no parts


class GemmBuilder(PassDescriptor):
    """The part of a graph builder that puts GEMMs on the tape."""

    def __init__(
        self,
        name: str,
        target: CpuTarget,
        threads: int,
        max_tokens: int,
        buffers: Workspace,
        heads: HeadShape,
    ) -> None:
        super().__init__(max_tokens, heads, threads)
        self.target = target
        self.tape = Tape(name, threads, elastic=True)
        self.buffers = buffers
        self.register_tiles: Mapping[str, int] = {}  # of the GEMMs, if not the usual ones

    def _prepare(
        self,
        name: str,
        x: Activation,
        into: Sequence[Matrix],
        weight: np.ndarray | None,
        eps: float,
        outputs: bool,
    ) -> QuantizedActivation:
        wanted: dict[activations.ActivationFormat, bool] = {}  # and whether laid out for tiles
        for part in (part for w in into for part in w.parts):
            form = part.activation(self.target)
            tiled = not outputs and self._in_tiles(part)
            wanted[form] = wanted.get(form, False) or tiled
        forms = {}
        for n, (form, tiled) in enumerate(wanted.items(), 1):
            # Each has a buffer of its own, also beside others of its kind.
            label, last = name if n == 1 else f"{name}.{n}.{form.kind}", n == len(wanted)
            rows = self._prepare_form(label, x, form, weight, eps, outputs, last)
            if tiled:
                rows = self._arrange(f"{label}.tiles", rows, x.width)
            forms[form] = rows
        return QuantizedActivation(forms)

    def _prepare_form(
        self,
        name: str,
        x: Activation,
        form: activations.ActivationFormat,
        weight: np.ndarray | None,
        eps: float,
        outputs: bool,
        last: bool,
    ) -> QuantizedRows:
        quantize = form.kind != "float"
        if not quantize and weight is None:
            if not isinstance(x.data, PerThread):
                self.tape.ops[-1].barrier = True  # GEMMs read what others have prepared
            return QuantizedRows(x.data, x.stride)
        width = -(-x.width // activations.BLOCK) * activations.BLOCK if quantize else x.stride
        row_bytes = width // activations.BLOCK * activations.BLOCK_BYTES if quantize else 4 * width
        max_rows = self.max_tokens * x.each
        data = self.memory(name, max_rows, row_bytes, np.uint8, replicated=self.decode)
        sizes = {"norm": weight is not None, "kind": form.kind, "group": form.group}
        kernel = spec(activations.prepare, **sizes, gather=outputs)
        args = [x.data, weight if weight is not None else x.data, data, x.stride, x.width, width,
                float(eps), form.zero_point, form.base, self.wanted]  # fmt: skip
        self.tape.op(
            name,
            kernel,
            args,
            self.units(OUTPUTS if outputs else TOKENS, x.each),
            mode=REPLICATED if self.decode else STATIC,
            barrier=last and not self.decode,
        )
        return QuantizedRows(data, width)

    def _in_tiles(self, w: Matrix) -> bool:
        """Return whether passes of this graph run GEMMs with `w` on AMX tiles."""
        wide = not self.decode and self.max_tokens >= gemm_amx.FROM
        return wide and not w.experts and gemm_amx.takes(w.format.name, self.target)

    def _arrange(self, name: str, rows: QuantizedRows, width: int) -> QuantizedRows:
        """Rearrange quantized rows for tiles, too. The op that wrote them needs no barrier."""
        blocks = -(-width // activations.BLOCK)
        size = gemm_amx.tiles_bytes(gemm_amx.ROWS, blocks)
        tiles = self.buffers.get(name, -(-self.max_tokens // gemm_amx.ROWS), size, np.uint8)
        args = [rows.data, tiles, blocks, self.units(TOKENS)]
        self.tape.ops[-1].barrier = False  # each thread lays out what it has prepared
        self.tape.op(name, spec(gemm_amx.arrange), args, self.units(TOKENS))
        return replace(rows, tiles=tiles)

    def before_experts(
        self, w: Matrix, lists: Sequence[np.ndarray | PerThread], units: np.ndarray, share: int
    ) -> None:
        """Observe the input of the next GEMM by experts: a hook, which does nothing here."""

    def _gemm(
        self,
        name: str,
        w: Matrix,
        x: QuantizedActivation,
        out: Activation,
        epilogue: Epilogue,
        *,
        barrier: bool = True,
    ) -> None:
        form, count = w.format, self.units(TOKENS)
        rows = x.forms[w.activation(self.target)]
        sizes: dict[str, Any] = {"fmt": form.name, "epilogue": epilogue}
        if form.family == "float":
            sizes |= {name: n for name, n in self.register_tiles.items() if name == "tile"}
            kernel = spec(gemm.gemm_float, **sizes)
            args = [w.panels, rows.data, out.data, w.depth, rows.stride, out.stride, count]
        else:
            sizes |= {"blocks": w.blocks, **self.register_tiles}
            args = [w.panels, rows.data, out.data, out.stride, count]
            if rows.tiles is not None and gemm_amx.takes(form.name, self.target):
                kernel = spec(gemm_amx.gemm_amx, **sizes)
                args.insert(2, rows.tiles)
                args.append(self.scratch("tiles", gemm_amx.scratch_bytes(self.max_tokens)))
            else:
                kernel = spec(gemm.gemm_quant, **sizes)
                size = gemm.scratch_bytes(form.name, w.depth, self.target)
                args.append(self.scratch("unpack", size))
        self._shared(name, kernel, args, np.array([w.units], np.int64), w.units, barrier)

    def _gated(self, name: str, w: Matrix, x: QuantizedActivation, *ways: Epilogue) -> Activation:
        """Compute gate and up at once where one matrix has both, else one after the other."""
        out, (fused, after) = self.row(name, w.rows), ways
        if w.up is None:
            self._gemm(name, w, x, out, fused)
        else:
            self._gemm(f"{name}.gate", w, x, out, "store")
            self._gemm(name, w.up, x, out, after)
        return out

    def _head(self, w: Matrix, x: QuantizedActivation, out: np.ndarray, *which: np.ndarray) -> None:
        """Add the GEMM with the output head, over a list of panels that has so many."""
        form = w.format
        rows = x.forms[w.activation(self.target)]
        scratch = gemm.scratch_bytes(form.name, w.depth, self.target)
        panels, units = which
        args = [w.panels, rows.data, out, 4 * rows.stride, out.shape[-1], self.units(OUTPUTS),
                panels, self.scratch("unpack", scratch)]  # fmt: skip
        sizes = {"fmt": form.name, "blocks": w.blocks}
        kernel = spec(lm_head.gemm_selected, **sizes, **self.register_tiles)
        self._shared("output", kernel, args, units, w.units, True)

    def _shared(
        self,
        name: str,
        kernel: Spec,
        args: Sequence[Any],
        units: np.ndarray,
        max_units: int,
        barrier: bool,
    ) -> None:
        """Add a GEMM whose panels, up to `max_units`, the threads share."""
        # Decode streams: one contiguous range of panels for each thread reads fastest, and so it
        # does in prefill until a thread has done its own.
        chunks = DECODE_CHUNKS if self.decode else CHUNKS
        mode = DYNAMIC if chunks else STATIC
        chunk = max(1, max_units // (max(1, chunks) * self.tape.threads))
        each = args[0].nbytes // max_units if self.decode else 0
        self.tape.op(
            name, kernel, args, units, mode=mode, chunk=chunk, barrier=barrier, unit_bytes=each
        )

    def scratch(self, name: str, nbytes: int) -> np.ndarray | PerThread:
        """Allocate per-thread memory that lasts for one op."""
        own = self.memory(name, 1, nbytes, np.uint8, replicated=True)
        return replace(own, scratch=True) if isinstance(own, PerThread) else own

    def row(self, name: str, width: int, each: int = 1, *, replicated: bool = False) -> Activation:
        """Return a buffer for an activation, `each` rows a token, or one for each thread."""
        rows = self.max_tokens * each
        data = self.memory(name, rows, padded(width), replicated=replicated)
        return Activation(data, width, each)

    def memory(
        self, name: str, rows: int, width: int, dtype: type = np.float32, *, replicated: bool
    ) -> np.ndarray | PerThread:
        """Return an array of the workspace, or one for each thread."""
        if not replicated:
            return self.buffers.get(name, rows, width, dtype)
        names = [f"{name}.{t}" for t in range(self.tape.threads)]
        return PerThread([self.buffers.get(n, rows, width, dtype) for n in names])
