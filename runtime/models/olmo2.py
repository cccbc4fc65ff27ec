"""OLMo 2 and 3: norms after the halves of a layer, not before them.

x = x + rmsnorm(W_o attend(norm(W_q x), norm(W_k x), W_v x))
x = x + rmsnorm(W_down (silu(W_gate x) * W_up x))

The norms of q and k are over all heads together. In OLMo 3 three of four layers see a window, and
only the others rotate by scaled frequencies.
"""

from __future__ import annotations

from .decoder import Decoder


class Olmo2(Decoder):
    """The architecture `olmo2`."""

    architecture = "olmo2"
    understands = frozenset({"attention.sliding_window", "attention.sliding_window_pattern"})
    qk_norm = "rows"
    pre_norm = False
    post_norm = True
    period = 4
    near_base = 0.0
