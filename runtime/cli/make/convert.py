"""``triplepoint make convert``: convert a Hugging Face checkpoint to GGUF."""

from __future__ import annotations

import argparse

from ...convert.convert import convert
from ..atomic_write import check_new
from ..output import Output
from ..tables import megabytes


def run(args: argparse.Namespace, output: Output) -> None:
    """Convert the checkpoint, and print what was left out and the types of the tensors."""
    check_new(args.target, force=args.force)
    with output.progress:
        done = convert(
            args.source,
            args.target,
            args.type,
            threads=args.threads,
            progress=lambda share: output.progress.loading(share, "converting"),
        )
    if done.unused:
        some = ", ".join(done.unused[:3]) + (", …" if len(done.unused) > 3 else "")
        output.line(f"{len(done.unused)} tensors are not used and were left out: {some}")
    if done.left_out:
        some = ", ".join(done.left_out[:3]) + (", …" if len(done.left_out) > 3 else "")
        output.line(
            f"{len(done.left_out)} added tokens have no row in the embedding table and were left "
            f"out: {some}"
        )
    for note in done.notes:
        output.note(note)
    kinds = ", ".join(f"{count} × {kind}" for kind, count in done.types.most_common())
    output.line(f"{done.path}: {done.architecture}, tokenizer {done.tokenizer}, {kinds}")
    output.line(
        f"{done.parameters / 1e6:,.1f} M weights, {megabytes(done.nbytes)}, {done.seconds:.1f} s"
    )
    output.json(done.as_dict())
