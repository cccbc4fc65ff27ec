"""Granite 4 H: most layers are Mamba-2, the others attend without positions; Granite's four scales.

x = x + r W_out mamba(conv(x B C), z, dt),  z x B C dt = W_in h      (layers without KV heads)
x = x + r W_o attend(W_q h, W_k h, W_v h),  scores a q k             (the others)
x = x + r W_down (silu(W_gate h) * W_up h),                          h = rmsnorm(x)

`jit/kernels/mamba2.py` has the recurrence, `granite.py` the scales. Some have a mixture of experts
and one that is shared in place of the last line: `experts.py`.
"""

from __future__ import annotations

from .blocks import Half
from .config import Config, read_config
from .decoder import Name
from .experts import Mixture
from .granite import Granite
from .mamba import MambaHalf, load_mamba


class GraniteHybrid(Granite, Mixture):
    """The architecture `granitehybrid`."""

    architecture = "granitehybrid"
    understands = Granite.understands | Mixture.understands

    def read_config(self) -> Config:
        sparse = self.gguf.integer(f"{self.architecture}.expert_count", 0)
        return super().read_config() if sparse else read_config(self.gguf, self.architecture)

    def load_ffn(self, name: Name, layer: int) -> Half:
        c = self.config
        if not c.experts:
            return self.load_gated(name, c.ffns[layer])
        return super().load_ffn(name, layer)

    def load_recurrence(self, name: Name, layer: int) -> MambaHalf:
        return load_mamba(self, name)
