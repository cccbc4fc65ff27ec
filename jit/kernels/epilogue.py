"""Epilogues of a matrix product: store it, add it to the output, or gate it."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..simd import Kernel, Ptr, Value, Var
from .mathlib import gelu_each, silu_each

Epilogue = Literal["store", "add", "silu_mul", "gelu_mul", "after_silu", "after_gelu"]
GATES = {"silu_mul": silu_each, "gelu_mul": gelu_each}
# For gates whose products are in `out` already: a type of weights of their own.
AFTER = {"after_silu": silu_each, "after_gelu": gelu_each}


def prefetch_outputs(k: Kernel, epilogue: Epilogue, outs: list[Ptr], unit: Value) -> None:
    """Prefetch the outputs that `apply_epilogue` reads, for tiles of more than two rows.

    They may lie in L3, and a tile would wait for them when it is done: on a Zen 5, 461 tokens, 1.0
    to 1.04 times as long on a quiet machine, up to 1.09 beside others that use its L3.
    """
    if len(outs) > 2 and (epilogue == "add" or epilogue in AFTER):
        for out in outs:
            for half in range(2):
                out.prefetch((unit * 2 + half) * k.lanes)


def apply_epilogue(
    k: Kernel, epilogue: Epilogue, sums: list[list[Var]], outs: list[Ptr], unit: Value
) -> None:
    """Write a tile's sums: stored, added to the output, or as silu(gate) * up (or gelu).

    The gate is the panel's first half, or the output's present value.
    """
    lanes, gate, after = k.lanes, GATES.get(epilogue), AFTER.get(epilogue)
    if gate:
        gates = gate(k, [first.value for first, _ in sums])
        for value, (_, up), out in zip(gates, sums, outs, strict=True):
            out.store(unit * lanes, value * up.value)
        return
    for half in range(2):
        at = unit * (2 * lanes) + half * lanes
        values = [pair[half].value for pair in sums]
        if epilogue == "add":
            values = [out.load(at, lanes) + v for out, v in zip(outs, values, strict=True)]
        elif after:
            gates = after(k, [out.load(at, lanes) for out in outs])
            values = [g * v for g, v in zip(gates, values, strict=True)]
        for out, value in zip(outs, values, strict=True):
            out.store(at, value)


def silu_mul_reference(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """Compute silu(gate) * up, elementwise."""
    wide = gate.astype(np.float64)
    return (wide / (1 + np.exp(-wide)) * up).astype(np.float32)
