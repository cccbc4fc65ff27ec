"""What greedy decode gains by reading a part of the output head, on texts.

    python -m labs.bench.head_bound code.txt prose.txt -m MODEL.gguf

The model continues the beginning of each text with and without `--tune head_bound=off`, in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from triplepoint.runtime.cli.bench.options import Repetitions
from triplepoint.runtime.cli.exit_codes import Exit
from triplepoint.runtime.cli.load_engine import engine_options, load_engine
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.engine.session import Session

from .command import run_command


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options: texts, lengths, model."""
    parser.add_argument("texts", nargs="+", type=Path, help="files, of which the beginning is read")
    parser.add_argument("--prompt", type=int, default=100, help="tokens read (default: 100)")
    parser.add_argument("--tokens", type=int, default=32, help="tokens written (default: 32)")
    engine_options(context=False).add_to(parser)
    Repetitions.add_to(parser)


def decode(session: Session, prompt: int, tokens: int) -> tuple[float, float, list[int]]:
    """Decode behind the first `prompt` tokens; return seconds and bytes of a token, and the ids."""
    session.truncate(prompt)
    session.prefill([])
    began = time.perf_counter()
    ids = list(session.decode(max_tokens=tokens, stop=()))
    assert session.last_phase is not None, "it has just ended"
    return (time.perf_counter() - began) / tokens, session.last_phase.bytes / tokens, ids


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print one row for each text."""
    args.draft = ("auto", 0)
    both = [(args.tune or []) + [("head_bound", value)] for value in ("on", "off")]
    engines = [load_engine(argparse.Namespace(**{**vars(args), "tune": t}), output) for t in both]
    rows = {}
    for path in args.texts:
        sessions = [engine.session() for engine in engines]
        text = engines[0].tokenizer.encode(path.read_text(errors="replace"))[: args.prompt]
        found = [[], []]
        for session in sessions:
            session.prefill(text)
            decode(session, len(text), 2)
        for n in range(args.repetitions):
            for which in (0, 1) if n % 2 else (1, 0):
                found[which].append(decode(sessions[which], len(text), args.tokens))
        assert found[0][0][2] == found[1][0][2], "the tokens are those of all logits"
        faster = sorted(off[0] / on[0] for on, off in zip(*found, strict=True))
        read = found[0][0][1] / found[1][0][1]
        on, off = (1e3 * statistics.median(one[0] for one in part) for part in found)
        rows[path.stem] = {"ms": on, "ms_off": off, "faster": faster, "bytes": read}
        gain = statistics.median(faster)
        output.line(
            f"{path.stem:12s} {on:6.2f} ms a token, {off:6.2f} without: {gain:.2f}"
            f" ({faster[0]:.2f} … {faster[-1]:.2f}) times as fast, {read:.2f} of the bytes"
        )
    output.json(rows)
    for engine in engines:
        engine.close()
    return Exit.OK


if __name__ == "__main__":
    raise SystemExit(run_command("head_bound", add_options, run))
