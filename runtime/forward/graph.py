"""Builder of a forward pass on the tape: a model's code reads like its equations.

A `GraphBuilder` builds one plan: a pass of up to `max_tokens` rows of any sequences. It decides
which kernel, which buffer and which sharing of work each step gets; the model says only what is
computed.

Two plans come out of the same code. In *decode* (one token) every thread prepares the shared
input of a GEMM for itself, since that is cheaper than a barrier, and a KV head's rotation and
attention stay on one thread: five barriers a layer. In *prefill* the tokens are shared out and
all meet in between."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ...jit.compile import Spec, spec
from ...jit.kernels import (
    activations,
    argmax,
    attention,
    embed,
    latent,
    rope,
)
from ...jit.kernels.kvcache import KeyForm
from ...jit.pool import aligned
from ...jit.tape import DYNAMIC, REPLICATED, STATIC, PerThread
from ...jit.targets import CpuTarget
from ..weights.matrix import Matrix
from .descriptor import OUTPUTS, PANELS, ROTATIONS, TOKENS, Tiling
from .gemms import GemmBuilder
from .head_bound import HeadBound
from .kv import BASE, KVLayout
from .logits import OutputBuffers
from .tensors import (
    Activation,
    AttentionSpec,
    HeadShape,
    QuantizedActivation,
    Temperature,
    Workspace,
    padded,
)


class GraphBuilder(GemmBuilder):
    """The builder of one plan: the ops of a pass of up to `max_tokens` rows."""

    choice: OutputBuffers | None = None
    """Where the plan's greedy choice is made, if its tape ends with that."""
    head_bound: HeadBound | None = None
    """The part of its passes that may read a part of the output head, if there is one."""

    def __init__(
        self,
        name: str,
        target: CpuTarget,
        threads: int,
        max_tokens: int,
        buffers: Workspace,
        heads: HeadShape,
        kv: KVLayout,
    ) -> None:
        super().__init__(name, target, threads, max_tokens, buffers, heads)
        self.kv = kv
        self._temperatures: dict[Temperature, np.ndarray] = {}
        self._changed: set[int | None] = set()  # layers whose keys are stored centered or equalized
        self.layer_index = 0

    @contextlib.contextmanager
    def layer(self, index: int) -> Iterator[None]:
        self.layer_index = index
        with self.tape.part(f"blk.{index}."):
            yield

    def embedding(
        self,
        table: np.ndarray,
        matrix_format: str,
        width: int,
        scale: float = 1.0,
        *,
        replicated: bool = False,
        name: str = "",
    ) -> Activation:
        """Look up the embedding rows of this pass's ids, times `scale`.

        `replicated`: in decode every thread gets them for itself, for a model that adds to them by
        `add_norm` only: what is done to them needs no barrier then. `name`: of a table that is not
        what x begins with.
        """
        form = embed.FORMATS[matrix_format]
        replicated = replicated and self.decode
        x = self.row(name or "x", width, replicated=replicated)
        blocks = width // form.block
        args = [table, self.ids, x.data, blocks * form.file_bytes, blocks, x.stride]
        kernel = spec(embed.embed, fmt=matrix_format, **({"scale": scale} if scale != 1 else {}))
        mode = REPLICATED if replicated else STATIC
        label, units = name or "embed", self.units(TOKENS)
        self.tape.op(label, kernel, args, units, mode=mode, barrier=not replicated)
        return x

    def norm(
        self, x: Activation, weight: np.ndarray, eps: float, into: Sequence[Matrix], name: str
    ) -> QuantizedActivation:
        """Compute RMSNorm of `x`, and prepare the result for the matrices `into`."""
        return self._prepare(name, x, into, weight, eps, outputs=False)

    def quantize(self, x: Activation, into: Sequence[Matrix], name: str) -> QuantizedActivation:
        """Quantize `x` for the matrices `into`, without a norm."""
        return self._prepare(name, x, into, None, 0.0, outputs=False)

    def matmul(
        self, w: Matrix, x: QuantizedActivation, name: str, *, last: bool = True
    ) -> Activation:
        """Compute w x. `last` is False if another GEMM of this input follows: no barrier yet."""
        out = self.row(name, w.rows)
        self._gemm(name, w, x, out, "store", barrier=last)
        return out

    def add_matmul(self, x: Activation, w: Matrix, y: QuantizedActivation, name: str) -> None:
        """Add x += w y."""
        self._gemm(name, w, y, x, "add")

    def silu_mul(self, w: Matrix, x: QuantizedActivation, name: str) -> Activation:
        """Compute silu(gate x) * (up x) for a gate/up matrix."""
        return self._gated(name, w, x, "silu_mul", "after_silu")

    def gelu_mul(self, w: Matrix, x: QuantizedActivation, name: str) -> Activation:
        """Compute gelu(gate x) * (up x), gelu by tanh."""
        return self._gated(name, w, x, "gelu_mul", "after_gelu")

    def add_norm(
        self,
        x: Activation,
        y: Activation,
        weight: np.ndarray,
        eps: float,
        name: str,
        scale: float = 1.0,
    ) -> None:
        """Compute x = scale (x + rmsnorm(y)). No barrier: the next op splits tokens alike."""
        width = y.width
        args = [x.data, y.data, weight, x.stride, y.stride, width, padded(width), float(eps), scale]
        kernel = spec(activations.add_norm, **({"scaled": True} if scale != 1 else {}))
        self._by_tokens(name, kernel, args, isinstance(x.data, PerThread))

    def add_norms(
        self, x: Activation, y: Activation, weight: np.ndarray, eps: float, name: str, scale: float
    ) -> None:
        """Apply `add_norm` to each part of x and y, which are as wide as `weight`."""
        width = len(weight)
        assert x.stride == y.stride == x.width, name
        assert x.width % width == 0 == padded(width) - width, name
        args = [x.data, y.data, weight, width, width, width, width, float(eps), scale]
        kernel = spec(activations.add_norm, scaled=True)
        self.tape.op(name, kernel, args, self.units(TOKENS, x.width // width))

    def gate_heads(self, x: Activation, gate: Activation, head_dim: int, name: str) -> None:
        """Compute x = softplus(gate) * x; each head of x has one gate, or one for each dim."""
        heads = x.width // head_dim
        args = [x.data, gate.data, x.stride, gate.stride, heads]
        kernel = spec(activations.gate_heads, head_dim=head_dim, gates=gate.width // heads)
        self.tape.op(name, kernel, args, self.units(TOKENS, heads))

    def gelu_times(self, x: Activation, y: Activation, name: str) -> None:
        """Compute x = gelu(x) * y."""
        args = [x.data, y.data, x.stride, y.stride, padded(x.width)]
        self.tape.op(name, spec(activations.gelu_times), args, self.units(TOKENS))

    def square(self, x: Activation, name: str) -> None:
        """Compute x = relu(x)^2."""
        args = [x.data, x.stride, padded(x.width)]
        self.tape.op(name, spec(activations.square), args, self.units(TOKENS, x.each))

    def add_bias(self, x: Activation, bias: np.ndarray, name: str) -> None:
        """Add x += bias, float32 [padded(width)]. No barrier: the next op splits tokens alike."""
        args = [x.data, bias, x.stride, padded(x.width)]
        self._by_tokens(name, spec(activations.add_bias), args, isinstance(x.data, PerThread))

    def rmsnorm(self, x: Activation, weight: np.ndarray, eps: float, name: str) -> Activation:
        """Compute rmsnorm(x) as float32, for uses other than GEMMs."""
        form = activations.ActivationFormat("float", 1, 0)
        data = self._prepare_form(name, x, form, weight, eps, outputs=False, last=True).data
        if isinstance(data, PerThread):
            return Activation(PerThread([one.view(np.float32) for one in data.buffers]), x.width)
        return Activation(data.view(np.float32), x.width)

    def _by_tokens(self, name: str, kernel: Spec, args: list[Any], replicated: bool) -> None:
        """Add an op on each token, with no barrier after it."""
        mode = REPLICATED if replicated else STATIC
        self.tape.op(name, kernel, args, self.units(TOKENS), mode=mode, barrier=False)

    def attend(
        self,
        q: Activation,
        k: Activation | None,
        v: Activation | None,
        rule: AttentionSpec,
        *,
        norms: tuple[np.ndarray, np.ndarray] | None = None,
        biases: np.ndarray | None = None,
        sinks: np.ndarray | None = None,
        eps: float = 0.0,
        gated: bool = False,
        key_forms: Collection[KeyForm] = (),
        key_norms: np.ndarray | None = None,
    ) -> Activation:
        """Rotate q and k, append k and v to the cache, and attend to it.

        Before that come the biases (of all query heads, keys and values, one after the other) and
        the norms of q and k, if there are any. A layer that reads another's cache has no k and v.
        key_forms: what stored keys are that have biases; key_norms: see `rope.equalizers`.
        sinks: float32 [heads]. gated: in q each head's query is followed by a gate, and its result
        is multiplied by sigmoid(gate).
        """
        h, kv = rule.heads or self.heads, self.kv
        assert (k is None) == (v is None) == (rule.source is not None), rule
        tiling = self.tiling(h)
        sizes: dict[str, Any] = {
            "head_dim": h.head_dim, "kv_heads": h.kv_heads, "group": h.group, "kv": kv.format
        }  # fmt: skip
        cos, sin = kv.tables[rule.table or 0]
        q_norm, k_norm = norms or (cos, cos)  # unread when there are none
        form: dict[str, Any] = {
            "rotated": 0 if rule.table is None else 2 * cos.shape[1],
            "adjacent": rule.adjacent,
            "bias": biases is not None,
        }
        bias = cos if biases is None else biases
        assert rule.source not in self._changed, "whose keys lack a bias that is not known here"
        if key_forms:
            assert biases is not None, "a form of keys with biases"
            self._changed.add(self.layer_index)
            left = biases.reshape(-1, h.head_dim)[h.heads :][: h.kv_heads]
            if "centered" in key_forms:
                means = rope.center_biases(left, cos, sin, rule.adjacent)
                left = left - means
                bias, sizes["centered"] = np.append(bias, means), cos.shape[1]
            if "equalized" in key_forms:
                assert key_norms is not None, "`norm_keys` computed them"
                sized = key_norms.reshape(left.shape)
                both = rope.equalizers(sized, left, cos.shape[1], rule.adjacent)
                bias, form["equalized"] = np.append(bias, both), True
        width = h.head_dim + 2 * sizes.get("centered", 0)
        rotated = self.buffers.get("rotated", self.max_tokens, h.heads * width)
        cache = [BASE, *kv.offsets(self.layer_index if rule.source is None else rule.source)]
        keys, values = k or q, v or q
        if gated:
            form["gated"] = True
        if rule.norm_values:
            form["norm_values"] = True
        if rule.source is not None:
            form["store"] = False
        temperatures = cos
        if rule.temperature is not None:
            form["temperature"], temperatures = True, self._factors(rule.temperature)
        # In decode a KV head's attention follows on the thread that rotated it: no barrier.
        self.tape.op(
            "rope",
            spec(rope.rope_store, **sizes, norm=norms is not None, **form),
            [q.data, keys.data, values.data, q_norm, k_norm, bias, cos, sin, temperatures, rotated,
             *cache, q.stride, keys.stride, float(eps), rule.scale, self.units(TOKENS),
             self.rows],
            self.units(ROTATIONS, h.kv_heads),
            barrier=not self.decode,
        )  # fmt: skip
        out = self.row("attention", h.heads * h.out_dim)
        self._attention(sizes, rule, [rotated, *cache], out, tiling, sinks)
        if gated:
            kernel = spec(activations.gate_by_queries, heads=h.heads, dim=h.head_dim)
            args = [out.data, q.data, out.stride, q.stride]
            self.tape.op("attention_gate", kernel, args, self.units(TOKENS, h.heads))
        return out

    def attend_latent(
        self,
        absorbed: Activation,
        q: Activation,
        kv: Activation,
        weight: np.ndarray,
        rule: AttentionSpec,
        eps: float,
    ) -> Activation:
        """Append each token's latent and rotated key to the cache, and attend to it.

        absorbed: each head's query projected to the latent, rows [tokens * heads]; q: rows of the
        same kind, whose last dims are rotated; kv: the latent, which is normed here, and the key's
        last dims.
        """
        h = rule.heads or self.heads
        tiling, layout = self.tiling(h), self.kv
        cos, sin = layout.tables[rule.table or 0]
        rotated = self.buffers.get("rotated", self.max_tokens, h.heads * h.head_dim)
        cache = [BASE, *layout.offsets(self.layer_index)]
        sizes = {"head_dim": h.head_dim, "kv_heads": 1, "group": h.heads, "kv": layout.format,
                 "value_dim": h.out_dim}  # fmt: skip
        assert h.kv_heads == 1, h
        assert absorbed.each == q.each == h.heads, h
        self.tape.op(
            "rope",
            spec(latent.latent_store, kv=layout.format, latent=h.out_dim, heads=h.heads,
                 rotated=2 * cos.shape[1]),
            [absorbed.data, q.data, kv.data, weight, cos, sin, rotated, *cache[:2], absorbed.stride,
             q.stride, q.width, kv.stride, float(eps), rule.scale, self.rows],
            self.units(TOKENS, h.heads + 1),
        )  # fmt: skip
        out = self.row("attention", h.heads * h.out_dim)
        self._attention(sizes, rule, [rotated, *cache], out, tiling, None)
        return out

    def _factors(self, temperature: Temperature) -> np.ndarray:
        if temperature not in self._temperatures:
            self._temperatures[temperature] = temperature.factors(self.kv.capacity)
        return self._temperatures[temperature]

    def _attention(
        self,
        sizes: dict[str, Any],
        rule: AttentionSpec,
        inputs: list[Any],
        out: Activation,
        tiling: Tiling,
        sinks: np.ndarray | None,
    ) -> None:
        """Attend with the queries and the cache of `inputs`."""
        h = tiling.heads
        scratch = self.scratch("scores", attention.scratch_bytes(h.group, h.head_dim, h.value_dim))
        sink, unread = {} if sinks is None else {"sink": True}, self.kv.tables[0][0]
        sink |= {"first": rule.first} if rule.first else {}
        self.tape.op(
            "attention",
            spec(attention.attention, **sizes, window=rule.window, cap=rule.cap, **sink),
            [*inputs, out.data, out.stride, scratch, tiling.tiles, tiling.rows,
             unread if sinks is None else sinks, self.kv.centers[rule.table or 0]],
            self.units(tiling.count, h.kv_heads),
            mode=STATIC if self.decode else DYNAMIC,
        )  # fmt: skip

    def logits(
        self,
        x: Activation,
        weight: np.ndarray,
        eps: float,
        w: Matrix,
        out: np.ndarray,
        cap: float = 0.0,
    ) -> None:
        """Add the output norm and head for tokens that want logits. out: float32 [rows, stride].

        With a cap c the logits are c tanh(logits / c).
        """
        if not isinstance(x.data, PerThread):
            self.tape.ops[-1].barrier = True  # these tokens are shared out otherwise
        matrices = [w, w.copy] if self.choice and w.copy else [w]
        ready = self._prepare("output_norm", x, matrices, weight, eps, outputs=True)
        self.head_panels = w.units
        self.panels = aligned(w.units + 1, np.int32)
        self.panels[: w.units] = np.arange(w.units)
        self._head(w, ready, out, self.panels, self.units(PANELS))
        if self.choice and w.copy:
            bound = self.head_bound = HeadBound(w, w.copy)
            bound.add_ops(self, ready, self.choice)
            self._head(w, ready, out, bound.panels, bound.found)
        if cap:
            args, units = [out, out.shape[-1], argmax.PARTS, float(cap)], (OUTPUTS, argmax.PARTS)
            self.tape.op("soft_cap", spec(activations.soft_cap), args, self.units(*units))

    @property
    def state_offset(self) -> int:
        """Offset of the current layer's part in a sequence's state, in float32 values."""
        assert self.kv.states is not None, "this model has no states"
        return self.kv.states.offsets[self.layer_index]
