"""The base of all architectures: pre-norm layers between an embedding table and an output head.

x = x + W_o attend(W_q h, W_k h, W_v h),   h = rmsnorm(x)
x = x + W_down (silu(W_gate h) * W_up h),  h = rmsnorm(x)

An architecture is a subclass that overrides what differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar, Literal, get_args

import numpy as np

from ...errors import UnsupportedModelError
from ...jit.kernels.kvcache import KeyForm
from ...jit.pool import Pool
from ..forward.graph import GraphBuilder
from ..forward.kv import KVLayout
from ..forward.tensors import Activation, AttentionSpec, HeadShape, padded
from ..gguf.file import GGUFFile
from ..weights.loader import WeightLoader
from ..weights.matrix import Matrix
from .blocks import Attention, Block, GatedFFN, Half, Recurrence
from .config import Config, read_config, refuse_features, windowed_layers
from .mtp import MTP, state_floats
from .rotary import Rotation, plain_rotation, read_rotation

# Tensors that some files hold and nobody needs.
SUPERFLUOUS = re.compile(r".*(rope_freqs|attn_rot_embd|inv_freq).*")
Name = Callable[[str], str]
GLOBAL, LOCAL = range(2)  # numbers of the rotations, where layers with a window have their own


class Decoder:
    """The base class of models: requests the weights, and builds a pass as a graph.

    Attributes:
        architecture: as `general.architecture` names it.
        understands: keys of `config.FEATURES` that it honors.
        adjacent: whether its files have the pairs that are rotated side by side.
        qk_norm: whether queries and keys are normed: head by head, all heads together, or not.
        pre_norm, post_norm: whether what enters a half of a layer is normed, and what leaves it.
        gated: whether queries bring a gate of what becomes of them, head by head.
        gate: of the feed-forward half.
        ffn_norm, last_norm: the tensors that norm what the feed-forward half and the head get.
        drafts_from: what the layer behind the last takes that drafts (`mtp.py`): what the head
            gets, or the same before its norm; None: such layers are left out.
        mtp: that layer, if the file has it and it was asked for.
        period: one layer of so many sees everything, and the others a window, unless a key says
            otherwise; 0: windows are no matter of layers. whole: which of so many it is.
        windowed: whether all layers have the window of the file, if it is below the context.
        near_base: base of the rotation of layers with a window, where no key says it; 0: that of
            the others; None: there is one rotation for all.
        yarn_pairs: whether the range that YaRN mixes begins and ends at a pair, as no key says.
        config, blocks: sizes and weights.
        rotations: ways of rotating that the layers' rules name by number.
        embedding_scale: what the embedding's rows are multiplied by.
        eps: of the norms of x; cap: bound of the logits, 0 for none.
        logit_scale: what the weights of the last norm were divided by.
    """

    architecture: ClassVar[str]
    understands: ClassVar[frozenset[str]] = frozenset()
    adjacent: ClassVar[bool] = False
    qk_norm: ClassVar[Literal["heads", "rows"] | None] = None
    pre_norm: ClassVar[bool] = True
    post_norm: ClassVar[bool] = False
    gated: ClassVar[bool] = False
    gate: ClassVar[Literal["silu", "gelu"]] = "silu"
    ffn_norm: ClassVar[str] = "ffn_norm.weight"
    last_norm: ClassVar[str] = "output_norm.weight"
    period: ClassVar[int] = 0
    whole: ClassVar[int] = -1
    usual_window: ClassVar[int] = 0
    windowed: ClassVar[bool] = False
    near_base: ClassVar[float | None] = None
    yarn_pairs: ClassVar[bool] = True
    drafts_from: ClassVar[Literal["normed", "plain"] | None] = None
    mtp: MTP | None = None
    embedding_scale = 1.0
    logit_scale = 1.0
    cap = 0.0

    def __init__(self, gguf: GGUFFile, weights: WeightLoader) -> None:
        self.gguf, self.weights = gguf, weights
        refuse_features(gguf, self.architecture, self.understands)
        self.config = c = self.read_config()
        self.eps = c.eps
        self.rotations = self.read_rotations()
        self.embedding_format = weights.format_of("token_embd.weight").name
        self.embedding = weights.table("token_embd.weight")
        self.read_scales()
        self.blocks: list[Block] = []
        for n in range(c.layers):
            name = f"blk.{n}.{{}}".format
            mixer = (self.load_attention if c.shapes[n] else self.load_recurrence)(name, n)
            ffn = self.load_ffn(name, n) if c.ffns[n] else None
            self.blocks.append(Block(mixer, ffn, self.load_last(name, n)))
        self.output_norm = self.norm_weight(self.last_norm)
        tied = "output.weight" not in gguf.tensors
        self.output = weights.matrix(
            "token_embd.weight" if tied else "output.weight", c.n_vocab, c.width
        )
        self._refuse_unknown_tensors()

    # --- what architectures replace

    def read_config(self) -> Config:
        return read_config(self.gguf, self.architecture)

    def read_rotations(self) -> list[Rotation]:
        """Return the model's kinds of rotation (RoPE); `rule` refers to one by index."""
        gguf, a, head_dim = self.gguf, self.architecture, self.config.heads.head_dim
        found = [read_rotation(gguf, self.weights, a, head_dim, whole_pairs=self.yarn_pairs)]
        if self.near_base is not None:
            base = self.near_base or gguf.number(f"{a}.rope.freq_base", 10000.0)
            found.append(plain_rotation(gguf, a, head_dim, base, "_swa"))
        return found

    def read_scales(self) -> None:
        """Read the scales of activations, if there are any."""

    def rule(self, layer: int) -> AttentionSpec:
        """Return a layer's attention spec: scale, rotation, window, heads and KV source."""
        heads, source = self.config.shapes[layer], self.config.sources[layer]
        assert heads is not None, f"layer {layer} has no attention"
        key = f"{self.architecture}.attention.sliding_window"
        window = self.gguf.integer(key, self.usual_window) if self.slides[layer] else 0
        if self.windowed and window >= self.config.context:
            window = 0
        return AttentionSpec(
            heads.head_dim**-0.5,
            table=LOCAL if window and self.near_base is not None else GLOBAL,
            adjacent=self.adjacent,
            window=window,
            heads=heads,
            source=None if source == layer else source,
        )

    @cached_property
    def slides(self) -> list[bool]:
        """Whether each layer has a sliding window, for models with windows."""
        layers = self.config.layers
        if not self.period:
            return [self.windowed] * layers
        return windowed_layers(self.gguf, self.architecture, layers, self.period, self.whole)

    def load_ffn(self, name: Name, layer: int) -> Half:
        """Request one layer's feed-forward half; `name` makes a tensor's full name."""
        return self.load_gated(name, self.config.ffns[layer])

    def load_recurrence(self, name: Name, layer: int) -> Recurrence | None:
        """Request the recurrent first half of a layer without heads; None if it has none."""
        return None

    def load_last(self, name: Name, layer: int) -> Half | None:
        """Request the third part of a layer; None if it has none."""
        return None

    def gate_and_up(self, name: Name, rows: int) -> Matrix:
        """Request the gate and up matrices of a dense feed-forward half, as one."""
        gate, up = (name(f"ffn_{part}.weight") for part in ("gate", "up"))
        return self.weights.gate_up(gate, up, rows, self.config.width)

    def tables(self, positions: int, context: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the rotary tables of `rotations`, cos and sin of each, for `context` tokens."""
        return [rotation.tables(positions) for rotation in self.rotations]

    def block(self, g: GraphBuilder, x: Activation, w: Block) -> None:
        """Build the ops of one layer."""
        for half in w.halves:
            half.add(g, x, self.eps)

    # --- what they share

    def load_attention(self, name: Name, layer: int) -> Half:
        """Request the attention weights of a layer."""
        c, w, has, rule = self.config, self.weights, self.gguf.tensors, self.rule(layer)
        h = rule.heads or c.heads
        rows, kv_rows = h.heads * h.head_dim, h.kv_heads * h.head_dim
        if fused := name("attn_qkv.weight") in has and not self.gated:
            parts = {"attn_qkv": rows + 2 * kv_rows}
        else:
            parts = {"attn_q": (1 + self.gated) * rows, "attn_k": kv_rows, "attn_v": kv_rows}
        if rule.source is not None:
            # Some files have them all the same.
            unread = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
            w.requested.update(name(part) for part in unread)
            del parts["attn_k"], parts["attn_v"]
        elif self.values_are_keys(layer):
            del parts["attn_v"]
        biases = None
        if not self.gated and any(name(f"{part}.bias") in has for part in parts):
            biases = np.concatenate([w.vector(name(f"{p}.bias"), n) for p, n in parts.items()])
        a = Attention(
            norm=self.norm_weight(name("attn_norm.weight")) if self.pre_norm else None,
            qkv=tuple(w.matrix(name(f"{p}.weight"), n, c.width) for p, n in parts.items()),
            o=w.matrix(name("attn_output.weight"), c.width, rows),
            rule=rule,
            biases=biases,
            fused=fused,
            gated=self.gated,
        )
        q_norm, k_norm = (name(f"attn_{part}_norm.weight") for part in "qk")
        if self.qk_norm == "heads":
            one = w.vector(q_norm, h.head_dim)
            a.qk_norms = one, one if rule.source is not None else w.vector(k_norm, h.head_dim)
        elif self.qk_norm == "rows":
            a.row_norms = (
                w.vector(q_norm, rows, padded(rows)),
                w.vector(k_norm, kv_rows, padded(kv_rows)),
            )
        if name("attn_output.bias") in has and not self.post_norm:
            a.o_bias = self.norm_weight(name("attn_output.bias"))
        if name("attn_sinks.weight") in has:
            a.sinks = w.vector(name("attn_sinks.weight"), h.heads)
        if self.post_norm:
            a.post_norm = self.norm_weight(name("post_attention_norm.weight"))
        return a

    @property
    def attentions(self) -> list[Attention]:
        """The layers' attention, of those that have one."""
        return [block.mixer for block in self.blocks if isinstance(block.mixer, Attention)]

    def norm_keys(self, layout: KVLayout, pool: Pool) -> None:
        """Compute the norms of the rows of the keys' matrices, where keys are equalized."""
        for a in self.attentions:
            if "equalized" in a.key_forms(layout.format, layout.tables):
                a.key_norms = self.weights.row_norms(a.qkv[1], a.norm, pool)

    def key_forms(self, layout: KVLayout) -> dict[KeyForm, int]:
        """Return the number of layers whose stored keys are `centered`, and `equalized`."""
        found = [
            form for a in self.attentions for form in a.key_forms(layout.format, layout.tables)
        ]
        return {form: found.count(form) for form in get_args(KeyForm)}

    @property
    def key_norms(self) -> list[np.ndarray]:
        """What `norm_keys` computed, layer by layer."""
        return [a.key_norms for a in self.attentions if a.key_norms is not None]

    def values_are_keys(self, layer: int) -> bool:
        """Return whether a layer has no matrix for values: keys and values share a projection."""
        return False

    def load_gated(self, name: Name, rows: int) -> GatedFFN:
        """Request the weights of a dense feed-forward half."""
        return GatedFFN(
            norm=self.norm_weight(name(self.ffn_norm)) if self.pre_norm else None,
            gate_up=self.gate_and_up(name, rows),
            down=self.weights.matrix(name("ffn_down.weight"), self.config.width, rows),
            gate=self.gate,
            post_norm=self.norm_weight(name("post_ffw_norm.weight")) if self.post_norm else None,
        )

    def norm_weight(self, name: str) -> np.ndarray:
        """Request the weights of a norm over the model's width."""
        return self.weights.vector(name, self.config.width, padded(self.config.width))

    def embed(self, g: GraphBuilder) -> Activation:
        """Build the embedding of a pass's tokens; return x."""
        c, form = self.config, self.embedding_format
        # Where nothing but norms is added to x, each thread can do that for itself.
        return g.embedding(
            self.embedding, form, c.width, self.embedding_scale, replicated=self.post_norm
        )

    def forward(self, g: GraphBuilder, out: np.ndarray) -> None:
        """Build one pass; logits go to `out`, float32 [rows, stride]."""
        x = self.embed(g)
        for n, w in enumerate(self.blocks):
            with g.layer(n):
                self.block(g, x, w)
        if self.mtp is not None:
            self.mtp.fill(g, x)
        g.logits(x, self.output_norm, self.eps, self.output, out, self.cap)

    @property
    def matrices(self) -> list[Matrix]:
        """Every matrix that one decode step reads, the output head last."""
        drafting = self.mtp.filling if self.mtp else ()
        return [*(m for w in self.blocks for m in w.matrices), *drafting, self.output]

    @property
    def windows(self) -> list[int]:
        """The window of each layer: how many positions a token attends to; 0: all."""
        return [w.window for w in self.blocks]

    @property
    def cached(self) -> list[tuple[HeadShape | None, int]]:
        """For each layer, the heads whose keys and values it caches, and its window.

        Behind them those of the layer that drafts.
        """
        found = list(zip(self.config.cached, self.windows, strict=True))
        return found + ([(self.mtp.heads, 0)] if self.mtp else [])

    @property
    def recurrent(self) -> dict[int, Recurrence]:
        """The layers with a recurrent state in place of keys and values, by number."""
        mixers = ((n, w.mixer) for n, w in enumerate(self.blocks))
        return {n: mixer for n, mixer in mixers if isinstance(mixer, Recurrence)}

    @property
    def row_width(self) -> int:
        """Width of the row stored with each position for the draft layer."""
        return padded(self.mtp.width) if self.mtp and not self.recurrent else 0

    @property
    def states(self) -> list[tuple[int, int]]:
        """The layers that have a part of a sequence's state, each with its size in floats."""
        found = [(n, part.state_floats) for n, part in self.recurrent.items()]
        if found and self.mtp:
            found.append((self.mtp.layer, state_floats(self.mtp.width)))
        return found

    def _refuse_unknown_tensors(self) -> None:
        """Refuse tensors that no layer requested: their computation is not supported."""
        unknown = [
            name
            for name in self.gguf.tensors
            if name not in self.weights.requested
            and not SUPERFLUOUS.fullmatch(name)
            and not self._drafts(name)
        ]
        if unknown:
            raise UnsupportedModelError(
                f"{self.gguf.path}: {len(unknown)} tensors that {self.architecture} does not have "
                f"here, such as {unknown[0]!r}"
            )

    def _drafts(self, name: str) -> bool:
        """Return whether a tensor is of a draft layer, after the last one."""
        found = re.match(r"blk\.(\d+)\.", name)
        layers = self.gguf.integer(f"{self.architecture}.block_count")
        return found is not None and self.config.layers <= int(found[1]) < layers
