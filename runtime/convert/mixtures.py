"""Settings of mixtures of experts."""

from __future__ import annotations

from typing import Any

from .checkpoint_settings import CheckpointSettings
from .fields import refuse, whole

SIGMOID = 2  # of `expert_gating_func`


def add_experts(s: CheckpointSettings, c: dict[str, Any], width: str, shared: str = "") -> None:
    """Add the number of experts and their width; width, shared: keys of the configuration."""
    a, m = s.architecture, s.metadata
    s.experts = whole(c, "num_experts")
    m[f"{a}.expert_count"] = s.experts
    m[f"{a}.expert_used_count"] = whole(c, "num_experts_per_tok")
    m[f"{a}.expert_feed_forward_length"] = whole(c, width)
    if shared:
        m[f"{a}.expert_shared_feed_forward_length"] = whole(c, shared)


def add_groups(s: CheckpointSettings, c: dict[str, Any]) -> None:
    """Add the number of expert groups, and how many of them a token is routed to."""
    s.metadata[f"{s.architecture}.expert_group_count"] = int(c.get("n_group") or 1)
    s.metadata[f"{s.architecture}.expert_group_used_count"] = int(c.get("topk_group") or 1)


def add_dense_layers(s: CheckpointSettings, c: dict[str, Any], usual: int) -> None:
    """Add the number of leading dense layers; `usual` where the configuration lists no kinds."""
    sparse = [kind != "dense" for kind in c.get("mlp_layer_types") or []]
    dense = sparse.index(True) if True in sparse else usual
    if not all(sparse[dense:]):
        refuse(c, "mlp_layer_types", c["mlp_layer_types"])
    s.metadata[f"{s.architecture}.leading_dense_block_count"] = dense
    s.kinds = [str(n < dense) for n in range(s.layers)]


def refuse_other_mixtures(c: dict[str, Any], *, normed: bool) -> None:
    """Refuse experts whose weights do not sum to 1, and dense layers among sparse ones.

    normed: whether they add up to 1 where nothing is said.
    """
    if not c.get("norm_topk_prob", normed):
        refuse(c, "norm_topk_prob", c.get("norm_topk_prob"))
    if c.get("mlp_only_layers") or c.get("decoder_sparse_step", 1) != 1:
        refuse(c, "mlp_only_layers", c.get("mlp_only_layers"))
