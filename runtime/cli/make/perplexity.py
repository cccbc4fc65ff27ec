"""``triplepoint make perplexity``: how well a model predicts a text."""

from __future__ import annotations

import argparse

from ...evaluate.perplexity import Perplexity, perplexity, text_ids
from ..load_engine import load_engine
from ..output import Output


def run(args: argparse.Namespace, output: Output) -> None:
    """Compute the perplexity of a text; print the estimate after each chunk."""
    args.context = args.chunk
    with load_engine(args, output) as engine:
        ids = text_ids(args.file, engine.tokenizer)

        def on_chunk(found: Perplexity) -> None:
            output.piece(f"[{found.chunks}]{found.value:.4f},")

        if args.kl_base is None:
            found = perplexity(engine, ids, args.chunk, max_chunks=args.chunks, on_chunk=on_chunk)
        else:
            args.model = args.kl_base
            with load_engine(args, output) as base:
                found = perplexity(
                    engine, ids, args.chunk, base=base, max_chunks=args.chunks, on_chunk=on_chunk
                )
    _show(output, found)
    output.json(found.as_dict())


def _show(output: Output, found: Perplexity) -> None:
    output.end_line()
    output.line(
        f"perplexity {found.value:.4f} ± {found.error:.4f} "
        f"({found.chunks} chunks of {found.size} tokens, {found.nll.count:,} scored)"
    )
    if found.divergence is None:
        return
    told = found.as_dict()
    output.line(f"of the base model {told['base_perplexity']:.4f}")
    output.line(
        f"KL divergence {told['kl']:.3e} ± {told['kl_error']:.1e} "
        f"(median {told['kl_median']:.3e}, 99 % below {told['kl_99']:.3e}, "
        f"largest {told['kl_max']:.3e})"
    )
    output.line(f"same top token {told['same_top']:.3%} ± {told['same_top_error']:.3%}")
