"""The arguments of ``regimes``. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .keeping import DEFAULT_MODEL


def add_regimes(
    add: Callable[[str, str], argparse.ArgumentParser],
    positive: Callable[[str], int],
    numbers: Callable[[str], list[int]],
) -> None:
    """Add the verb."""
    verb = add("regimes", "the phase diagram of a model on this machine")
    verb.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help=f"GGUF file, pulled alias or ORG/NAME[:QUANT], nano, or synthetic:… ({DEFAULT_MODEL})",
    )
    verb.add_argument("--trace", metavar="TRACE", help="draw this run on it")
    verb.add_argument(
        "--batch",
        type=numbers,
        metavar="B,…",
        help="also with B sequences in each pass: how the memory-bound region shrinks",
    )
    verb.add_argument("-o", "--output", metavar="FILE", help="write the picture as .svg or .html")
    verb.add_argument(
        "--measure", action="store_true", help="time some points and draw them on it too"
    )
    verb.add_argument(
        "--recalibrate",
        action="store_true",
        help="measure the kernels again, ignoring the saved calibration",
    )
    verb.add_argument("-t", "--threads", type=positive, metavar="N", help="threads (all cores)")
    verb.add_argument("--target", metavar="T", help="CPU target, e.g. avx2 (the best one)")
    verb.add_argument("--kv", choices=("bf16", "q8", "f32"), help="format of the KV cache (bf16)")
    verb.add_argument("--context", type=positive, metavar="N", help="context length in tokens")
