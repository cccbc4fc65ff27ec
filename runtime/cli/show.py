"""``triplepoint show``: what a model is, whether it can be run, and the memory that it takes."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, Any

from ...traces.sanitize import short
from ..hub.progress import size_text
from .exit_codes import Exit
from .load_engine import model_path
from .output import Output

if TYPE_CHECKING:
    from ..hub.model_info import FileInfo

_DRAFTS = {
    "used": "an MTP head: it drafts tokens beside what the context says",
    "left out": "an MTP head, which is left out: not supported for this architecture",
    "missing": "the model has an MTP head, but this file does not",
}
_CONTEXTS = (4096, 32768)  # for which memory is shown, beside the longest


def add_options(verb: argparse.ArgumentParser) -> None:
    """Which model."""
    verb.add_argument("name", metavar="MODEL", help="as after -m: a pulled model, file, nano, …")


def run(args: argparse.Namespace, output: Output) -> int:
    """Read the header and print what is in it."""
    from dataclasses import asdict

    from ..hub.model_info import read_model_info
    from ..inference.engine import resolve_model

    path = resolve_model(model_path(args.name, output))
    facts = read_model_info(path, os.environ.get("TRIPLEPOINT_TARGET"))
    show(facts, output)
    output.json({**asdict(facts), "context_memory": _contexts(facts), "runs": not facts.problems})
    return Exit.OK


def show(facts: FileInfo, output: Output) -> None:
    """Print the facts in blocks of names and values."""
    context = f"{facts.context:,} tokens" if facts.context else "not said"
    layers = f", {facts.layers} layers" if facts.layers else ""
    files = f" in {facts.files} files" if facts.files > 1 else ""
    _block(
        output,
        "model",
        [
            ("name", facts.name),
            ("file", f"{facts.path}, {size_text(facts.nbytes)}{files}"),
            ("architecture", f"{facts.architecture or '?'}{layers}"),
            ("parameters", f"{facts.parameters:,}, most of them {facts.quant}"),
            ("context", context),
            ("tokenizer", facts.tokenizer),
            *([("draft layer", _DRAFTS[facts.mtp])] if facts.mtp else []),
            ("chat template", "yes" if facts.template else "no: questions get a plain format"),
        ],
    )
    rows = [
        (kind, f"{share.tensors:>4} tensors {share.parameters:>16,} weights "
               f"{size_text(share.nbytes):>8}")
        for kind, share in facts.types.items()
    ]  # fmt: skip
    _block(output, "tensors", rows)
    _show_memory(facts, output)
    values = [(key, short(_value(value), 60)) for key, value in facts.metadata.items()]
    _block(output, "metadata", values)
    if not facts.problems:
        output.line("supported: this model runs here", "green")
    for problem in facts.problems:
        output.line(f"not supported: {problem}", "yellow")


def _show_memory(facts: FileInfo, output: Output) -> None:
    if facts.memory is None:
        return
    rows = [("weights, packed", size_text(facts.memory.weights))]
    for row in _contexts(facts):
        parts = ", ".join(f"{size_text(row[kv])} with {kv}" for kv in facts.memory.kv_token)
        rows.append((f"with {row['context']:,} tokens", parts))
    if total := _installed():
        rows.append(("this machine has", size_text(total)))
    _block(output, "memory", rows)


def _contexts(facts: FileInfo) -> list[dict[str, Any]]:
    """Memory for some lengths of context, in each format of the KV cache."""
    if facts.memory is None:
        return []
    longest = facts.context or max(_CONTEXTS)
    lengths = sorted({longest, *(n for n in _CONTEXTS if n < longest)})
    return [
        {"context": n, **{kv: facts.memory.total(n, kv) for kv in facts.memory.kv_token}}
        for n in lengths
    ]


def _installed() -> int:
    """Bytes of memory of this machine, 0 if the system does not say."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0


def _value(value: object) -> str:
    return " ".join(str(value).split())


def _block(output: Output, title: str, rows: list[tuple[str, str]]) -> None:
    output.line(title, "bold")
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        output.line(f"  {name.ljust(width)}  {value}".rstrip())
