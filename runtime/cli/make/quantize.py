"""``triplepoint make quantize``: convert a GGUF file to smaller types."""

from __future__ import annotations

import argparse

from ...gguf.types import parts_of
from ...quantize.quantize import Report, quantize
from ..atomic_write import check_new
from ..output import Output
from ..tables import megabytes


def run(args: argparse.Namespace, output: Output) -> None:
    """Quantize the file, and print the resulting types and sizes."""
    check_new(args.target, force=args.force)
    with output.progress:
        report = quantize(
            args.source,
            args.target,
            args.type,
            imatrix=args.imatrix,
            threads=args.threads,
            progress=lambda share: output.progress.loading(share, "quantizing"),
        )
    _show(output, report)
    output.json(report.as_dict())


def _show(output: Output, report: Report) -> None:
    for name, wanted, kind in report.narrowed[:5]:
        length = "its row length" if parts_of(name) == 1 else "half its row length"
        output.line(f"{name} is {kind}: {length} is not a multiple of the block size of {wanted}")
    if len(report.narrowed) > 5:
        output.line(f"… and {len(report.narrowed) - 5} more like it")
    if report.requantized:
        output.line(
            f"{len(report.requantized)} tensors were already quantized, which costs quality "
            "twice; quantize from F16 or BF16 if you can"
        )
    if report.unmatched:
        first = report.unmatched[0]
        output.line(f"the imatrix has no data for {len(report.unmatched)} tensors, such as {first}")
    kinds = ", ".join(f"{count} × {kind}" for kind, count in report.types.most_common())
    output.line(f"{report.path}: {report.mix}, {kinds}")
    rate = report.read_nbytes / 1e6 / max(report.seconds, 1e-9)
    output.line(
        f"{megabytes(report.source_nbytes)} → {megabytes(report.nbytes)}, "
        f"{report.bits_per_weight:.2f} bits per weight, {report.seconds:.1f} s ({rate:,.0f} MB/s)"
    )
