"""``triplepoint convert``: a Hugging Face checkpoint becomes a GGUF file."""

from __future__ import annotations

import argparse

from ..convert.convert import convert
from .making import check_new, megabytes
from .output import Output


def run(args: argparse.Namespace, output: Output) -> int:
    """Write the file and say what is in it."""
    check_new(args.target, force=args.force)
    try:
        done = convert(
            args.source,
            args.target,
            args.type,
            threads=args.threads,
            progress=lambda share: output.progress.loading(share, "converting"),
        )
    finally:
        output.progress.clear()
    if done.unused:
        some = ", ".join(done.unused[:3]) + (", …" if len(done.unused) > 3 else "")
        output.line(f"{len(done.unused)} tensors have no place in the file: {some}")
    kinds = ", ".join(f"{count} × {kind}" for kind, count in done.types.most_common())
    output.line(f"{done.path}: {done.architecture}, tokenizer {done.tokenizer}, {kinds}")
    output.line(
        f"{done.parameters / 1e6:,.1f} M weights, {megabytes(done.nbytes)}, {done.seconds:.1f} s"
    )
    output.json(done.as_dict())
    return 0
