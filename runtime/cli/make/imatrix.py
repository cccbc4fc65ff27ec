"""``triplepoint make imatrix``: the importance of a model's weights, measured on a text."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...evaluate.imatrix import collect
from ...evaluate.perplexity import text_ids
from ..atomic_write import check_new
from ..load_engine import load_engine
from ..output import Output


def run(args: argparse.Namespace, output: Output) -> None:
    """Measure the importance matrix on a text, and write it to a file."""
    check_new(args.output, force=args.force)
    args.context = args.chunk
    with output.progress, load_engine(args, output) as engine:
        found = collect(
            engine,
            text_ids(args.file, engine.tokenizer),
            args.chunk,
            max_chunks=args.chunks,
            on_chunk=lambda done, of: output.progress.loading(done / of, "reading the text"),
        )
    found.write(args.output, Path(args.file).name)
    output.line(
        f"{args.output}: {len(found.sums)} matrices, {found.chunks} chunks of {found.size} tokens"
    )
    if found.unused_experts:
        output.line(f"{found.unused_experts} experts received no tokens; use a longer text")
    output.json(
        {
            "path": args.output,
            "matrices": len(found.sums),
            "chunks": found.chunks,
            "chunk_size": found.size,
            "unused_experts": found.unused_experts,
        }
    )
