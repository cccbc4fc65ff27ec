"""How far a kernel may be from its float64 reference, in one table.

Errors are the largest absolute difference over the largest magnitude of the reference.
"""

from __future__ import annotations

import numpy as np

TOLERANCES = {
    # One chain of float32 multiply-adds over at most a few hundred values.
    "float product": 3e-6,
    # int32 sums are exact; the float32 sum over blocks is what rounds.
    "int8 product": 2e-6,
    # The same, where mins take off about as much as the scales put on.
    "k product": 4e-6,
    # One multiplication and one subtraction, rounded twice or once.
    "k embedding": 2e-7,
    # Two of them, an exp and a division more.
    "k silu": 8e-6,
    # exp and a division more.
    "silu": 4e-6,
    # A sum of squares, a square root and a division.
    "norm": 2e-6,
    # A state that each token changes; errors fade as the state does.
    "recurrence": 1e-5,
    # As rotation and norm in float32.
    "rope": 2e-6,
    # bf16 keeps 8 bits: half a unit in the last place of 1 is 2^-8.
    "bf16": 2.0**-8 * 1.01,
    # Scores and weighted values in float32.
    "attention f32": 5e-6,
    # Against a reference with the same rounded K and V: q and the probabilities are float32.
    "attention bf16": 5e-6,
    # With vdpbf16ps q and the probabilities are bf16 too.
    "attention bf16 dot": 8e-3,
}


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Largest difference over the largest magnitude of `want`."""
    assert got.shape == want.shape, (got.shape, want.shape)
    assert np.isfinite(got).all()
    difference = np.abs(got.astype(np.float64) - want.astype(np.float64)).max(initial=0.0)
    return float(difference / max(np.abs(want).max(initial=0.0), 1e-30))


def assert_close(got: np.ndarray, want: np.ndarray, kind: str, where: object = "") -> None:
    """`got` is as near to `want` as TOLERANCES[kind] says."""
    far = error(got, want)
    assert far <= TOLERANCES[kind], f"{kind} {where}: error {far:.2e} > {TOLERANCES[kind]:.2e}"
