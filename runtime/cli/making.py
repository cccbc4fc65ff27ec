"""The arguments of the verbs that make GGUF files and judge them. Nothing heavy is imported."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from ...errors import ModelError

AddVerb = Callable[[str, str], argparse.ArgumentParser]
Positive = Callable[[str], int]


def add_making(add_verb: AddVerb, positive: Positive) -> None:
    """Add quantize, …; `add_verb` takes a name and a summary."""
    quantize = add_verb("quantize", "write a GGUF file in smaller types")
    quantize.add_argument("source", metavar="IN", help="GGUF file to read")
    quantize.add_argument("target", metavar="OUT", help="GGUF file to write")
    quantize.add_argument("type", metavar="TYPE", help="such as Q4_K_M, Q8_0; any other lists them")
    quantize.add_argument("--imatrix", metavar="FILE", help="what matters most: see imatrix")
    _force(quantize)
    quantize.add_argument("-t", "--threads", type=positive, metavar="N", help="threads (all cores)")

    convert = add_verb("convert", "write a Hugging Face checkpoint as a GGUF file")
    convert.add_argument("source", metavar="FOLDER", help="folder with config.json and safetensors")
    convert.add_argument("target", metavar="OUT", help="GGUF file to write")
    convert.add_argument(
        "--type",
        type=str.lower,
        choices=("auto", "f32", "f16", "bf16", "q8_0"),
        default="auto",
        help="type of the matrices (the checkpoint's own)",
    )
    _force(convert)
    convert.add_argument("-t", "--threads", type=positive, metavar="N", help="threads (all cores)")

    perplexity = add_verb(
        "perplexity", "measure how well a model predicts a text: perplexity and KL divergence"
    )
    perplexity.add_argument("model", metavar="MODEL", help="GGUF file, nano, or synthetic:…")
    perplexity.add_argument("file", metavar="FILE", help="the text, in UTF-8")
    perplexity.add_argument(
        "--kl-base", metavar="BASE", help="model to measure the divergence from"
    )
    _add_chunks(perplexity, positive)

    imatrix = add_verb("imatrix", "compute an importance matrix of a model's weights from a text")
    imatrix.add_argument("model", metavar="MODEL", help="GGUF file, nano, or synthetic:…")
    imatrix.add_argument("file", metavar="FILE", help="the text, in UTF-8")
    imatrix.add_argument(
        "-o", "--output", default="imatrix.gguf", metavar="OUT", help="file to write (imatrix.gguf)"
    )
    _force(imatrix)
    _add_chunks(imatrix, positive)


def _force(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--force", action="store_true", help="replace OUT if it is there")


def check_new(path: str, *, force: bool) -> None:
    """Say at once, before the work is done, that a file would be replaced.

    Raises:
        ModelError: it is there, and `force` does not say that it may go.
    """
    if os.path.isfile(path) and not force:
        raise ModelError(f"{path} is there already; name another file, or replace it with --force")


def _add_chunks(verb: argparse.ArgumentParser, positive: Positive) -> None:
    verb.add_argument(
        "-c", "--chunk", type=positive, default=512, metavar="N", help="tokens of a chunk (512)"
    )
    verb.add_argument("--chunks", type=positive, metavar="N", help="chunks at most (all)")
    verb.add_argument("-t", "--threads", type=positive, metavar="N", help="threads (all cores)")
    verb.add_argument("--target", metavar="T", help="CPU target, e.g. avx2 (the best one)")
    verb.add_argument("--kv", choices=("bf16", "q8", "f32"), help="format of the KV cache (bf16)")


def megabytes(count: float) -> str:
    """Bytes as MB or GB."""
    return f"{count / 1e9:,.2f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"
