"""Repetition in real text: false alarms and longest repeats over files.

    python -m labs.bench.repetition [-m MODEL.gguf] [PATH …]

Reads files as if a model had written them, with nothing in its context that it could copy. Without
paths: what there is on any machine, the standard library's sources and tables, and base64, hex
dumps, CSV and logs made of them. An embedded or given model's tokenizer cuts them; `words` is what
replies of other servers are cut into.
"""

from __future__ import annotations

import argparse
import base64
import csv
import io
import sysconfig
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from triplepoint.runtime.conversation.repetition import Repetition, Words
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.tokens.tokenizer import Tokenizer

_MAX_BYTES = 400_000  # of one file


def texts(paths: Sequence[Path] = ()) -> Iterator[tuple[str, str]]:
    """Return names and texts of these files and folders, or of the standard library."""
    if paths:
        for path in paths:
            files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
            for file in files:
                yield str(file), _read(file)
        return
    library = Path(sysconfig.get_paths()["stdlib"])
    sources = sorted(library.glob("*.py"))
    yield from ((path.name, _read(path)) for path in sources)
    yield from ((p.name, _read(p)) for p in sorted((library / "encodings").glob("*.py"))[::4])
    code = b"".join(path.read_bytes() for path in sources[:8])[:120_000]
    yield "base64 of sources", base64.encodebytes(code).decode()
    yield "base64 of compressed", base64.b64encode(zlib.compress(code)).decode()
    rows = (f"{n:08x}  {code[n : n + 16].hex(' ')}\n" for n in range(0, 60_000, 16))
    yield "hex dump", "".join(rows)
    table = io.StringIO()
    stats = [(path.name, path.stat()) for path in sources]
    csv.writer(table).writerows(
        (n, name, s.st_size, s.st_mtime) for n, (name, s) in enumerate(stats)
    )
    yield "CSV", table.getvalue()
    yield "listing", "\n".join(f"-rw-r--r-- 1 root root {s.st_size:9} {name}" for name, s in stats)
    yield (
        "log",
        "\n".join(
            f"2026-03-14 09:{n // 60 % 60:02}:{n % 60:02} INFO read {name}: {s.st_size} bytes"
            for n, (name, s) in enumerate(stats)
        ),
    )
    yield "rules", f"{'=' * 120}\na\n{'-' * 120}\nb\n|{'---|' * 30}\nc\n{'*' * 100}\n"


def longest(ids: Iterable[int]) -> tuple[int, bool]:
    """Return the longest repetition among tokens, and whether a reply would be ended for one."""
    found, maximum, ended = Repetition(), 0, False
    for token in ids:
        maximum = max(maximum, found.push(token))
        ended = ended or found.hopeless
    return maximum, ended


def report(
    name: str, encode: Callable[[str], Sequence[int]], found: Sequence[tuple[str, str]]
) -> int:
    """Print what was found with one tokenizer; return the number of false alarms."""
    lengths = sorted(((*longest(encode(text)), file) for file, text in found), reverse=True)
    alarms = sum(ended for _, ended, _ in lengths)
    size = sum(len(text.encode()) for _, text in found)
    print(f"{name}: {alarms} false alarms in {len(found)} texts, {size / 1e6:.1f} MB")
    for length, ended, file in sorted(lengths, key=lambda one: (-one[1], -one[0]))[: alarms + 5]:
        print(f"  {length:5} tokens with nothing new{', ended' * ended}  {file}")
    return alarms


def _read(path: Path) -> str:
    return path.read_bytes()[:_MAX_BYTES].decode("utf-8", "replace")


def main() -> int:
    """Run the command above."""
    parser = argparse.ArgumentParser(prog="labs.bench.repetition")
    parser.add_argument("paths", nargs="*", type=Path)
    parser.add_argument("-m", "--model", type=Path, action="append", help="a GGUF file")
    args = parser.parse_args()
    found = list(texts(args.paths))
    alarms = 0
    for path in args.model or [NANO]:
        with open_gguf(path) as file:
            tokenizer = Tokenizer.from_gguf(file)
        alarms += report(path.stem, tokenizer.encode, found)
    return min(1, alarms + report("words", lambda text: Words().push(text), found))


if __name__ == "__main__":
    raise SystemExit(main())
