"""Facts of a model that shape its phase diagram: KV cache, windows, states, experts."""

from __future__ import annotations

from ..physics.costs import ModelCost

_ROWS = (1, 8, 64)  # of a pass, for which experts are listed


def kind_of(cost: ModelCost) -> str:
    """Return the model's kind: dense, hybrid, sparse, or hybrid and sparse."""
    hybrid, sparse = "hybrid" * (cost.state_bytes > 0), "sparse" * (cost.experts > 0)
    return " and ".join(part for part in (hybrid, sparse) if part) or "dense"


def facts(cost: ModelCost) -> list[str]:
    """Return a line per fact: bytes per position and sequence, and experts per pass."""
    first, *others = short_facts(cost)
    attend = sum(group.layers for group in cost.attention) or cost.layers
    windows = f", {len(cost.windows)} with a window of {max(cost.windows)}" if cost.windows else ""
    return [f"{first}: {attend} of {cost.layers} layers attend{windows}", *others]


def short_facts(cost: ModelCost) -> list[str]:
    """Return the facts of a model, without attention layers and windows."""
    found = [f"{cost.kv_bytes / 1024:,.4g} KiB of KV cache a position"]
    if cost.state_bytes:
        size = f"{cost.state_bytes / 2**20:,.3g} MiB"
        found.append(f"{size} of state a sequence, whatever its length")
    if cost.experts:
        touched = ", ".join(f"{experts_touched(cost, rows):,.0f}" for rows in _ROWS)
        rows = ", ".join(str(n) for n in _ROWS)
        used = f"{cost.experts_used} of {cost.experts} experts a token"
        found.append(f"{used}; {rows} rows read {touched}")
    return found


def experts_touched(cost: ModelCost, rows: int) -> float:
    """Return the expected number of distinct experts that a layer reads for `rows` rows."""
    return cost.expected_experts(rows) / max(1, cost.sparse_layers)
