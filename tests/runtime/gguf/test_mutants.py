"""Every truncation of a GGUF file, and thousands of files near it: refused, or read as they are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from helpers.tiers import quick

from triplepoint.errors import GGUFError
from triplepoint.runtime.gguf.file import GGMLType, GGUFFile, StringArray, ValueType
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.write import GGUFWriter


@pytest.fixture
def small_file(tmp_path: Path) -> bytes:
    """A file with every kind of field: all value types, nested arrays, three tensors."""
    path = tmp_path / "small.gguf"
    with GGUFWriter(path) as writer:
        writer.add("general.architecture", "test")
        for kind in ValueType:
            if kind not in (ValueType.STRING, ValueType.ARRAY):
                writer.add(f"one.{kind.name}", 1, kind)
                writer.add(f"many.{kind.name}", [1, 0, 1], kind)
        writer.add("strings", ["", "a", "Ω" * 20])
        writer.add("nested", [[1, 2], [3]])
        for name, shape, kind in (
            ("embd", (4, 32), GGMLType.Q8_0),
            ("norm", (5,), GGMLType.F32),
            ("experts", (2, 3, 64), GGMLType.Q4_0),
        ):
            writer.declare(name, shape, kind)
        for name, nbytes in (("embd", 4 * 34), ("norm", 20), ("experts", 12 * 18)):
            writer.write(name, bytes(range(nbytes)))
    return path.read_bytes()


def read_all(path: Path) -> GGUFFile:
    """Open and touch everything that is read late."""
    with open_gguf(path) as file:
        for name, info in file.tensors.items():
            assert len(file.data(name)) == info.nbytes
        for value in file.metadata.values():
            if isinstance(value, StringArray):
                assert len(value.strings) == len(value)
    return file


@pytest.mark.slow
def test_truncation_at_every_byte(tmp_path: Path, small_file: bytes) -> None:
    """Cut anywhere before the end of the last tensor, the file is refused, within its length."""
    path = tmp_path / "cut.gguf"
    path.write_bytes(small_file)
    end = max(info.offset + info.nbytes for info in read_all(path).tensors.values())
    assert len(small_file) - 32 < end <= len(small_file)

    for length in range(end):
        path.write_bytes(small_file[:length])
        with pytest.raises(GGUFError, match="looks truncated: download it again") as caught:
            open_gguf(path)
        assert caught.value.offset is not None
        assert 0 <= caught.value.offset <= length
        assert caught.value.field
        assert str(caught.value).startswith(f"{path}: ")


def mutants(seed_file: bytes, count: int, seed: int) -> list[bytes]:
    """Files near `seed_file`: numbers replaced by telling ones, bits flipped, pieces moved."""
    rng = np.random.default_rng(seed)
    telling = [0, 1, 2, 3, 4, 5, 8, 9, 12, 13, 31, 32, 33, 63, 127, 128, 255, 256, 2**15, 2**16]
    telling += [2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**42 + 1, 2**61, 2**62, 2**63 - 1]
    telling += [2**63, 2**64 - 32, 2**64 - 8, 2**64 - 1, len(seed_file), len(seed_file) - 1]

    def number(raw: bytearray, at: int) -> None:
        width = int(rng.choice([1, 4, 8]))
        value = telling[rng.integers(len(telling))] & (2 ** (8 * width) - 1)
        raw[at : at + width] = value.to_bytes(width, "little")

    def near(raw: bytearray, at: int) -> None:
        raw[at] = (raw[at] + int(rng.integers(-2, 3))) % 256

    def flip(raw: bytearray, at: int) -> None:
        raw[at] ^= 1 << int(rng.integers(8))

    def drop(raw: bytearray, at: int) -> None:
        del raw[at : at + int(rng.integers(1, 17))]

    def double(raw: bytearray, at: int) -> None:
        raw[at:at] = raw[at : at + int(rng.integers(1, 65))]

    changes: list[Callable[[bytearray, int], None]] = [number, number, near, flip, drop, double]
    header = seed_file.index(bytes(range(100)))  # where the tensor data begins
    made = []
    for _ in range(count):
        raw = bytearray(seed_file)
        for _ in range(int(rng.integers(1, 4))):
            changes[rng.integers(len(changes))](raw, int(rng.integers(4, header - 80)))
        made.append(bytes(raw))
    return made


def hold_mutants(path: Path, files: list[bytes]) -> list[bytes]:
    """Open every mutant in little memory; only GGUFError may come. Returns those that open."""
    accepted = []
    tracemalloc.start()
    try:
        for raw in files:
            path.write_bytes(raw)
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            offset = offset_of_error(path)
            if offset is None:
                accepted.append(raw)
            else:
                assert 0 <= offset <= len(raw)
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 256 << 10, f"{peak} bytes were allocated for a file of {len(raw)}"
    finally:
        tracemalloc.stop()
    return accepted


def offset_of_error(path: Path) -> int | None:
    """Where the file is damaged; None when it opens and reads."""
    try:
        read_all(path)
    except GGUFError as error:
        return error.offset
    return None


@pytest.mark.parametrize("seed", quick([1, 2, 3], ci=[1]))
def test_mutants(tmp_path: Path, small_file: bytes, seed: int) -> None:
    """Of thousands of damaged files each opens or ends in a GGUFError, in bounded memory."""
    accepted = hold_mutants(tmp_path / "mutant.gguf", mutants(small_file, 1500, seed))

    # The mutants must reach beyond the first field: some still open, and most do not.
    assert 30 < len(accepted) < 1400


@pytest.mark.slow
def test_accepted_mutants_read_as_the_oracle_does(tmp_path: Path, small_file: bytes) -> None:
    """A damaged file that opens here has the tensor table that the `gguf` package reads."""
    path = tmp_path / "mutant.gguf"
    accepted = hold_mutants(path, mutants(small_file, 300, 4))

    compared = 0
    for raw in accepted:
        path.write_bytes(raw)
        try:
            oracle = gguf.GGUFReader(path)
        except Exception:  # stricter than we are in places, and raises what comes
            continue
        with open_gguf(path) as file:
            ours = [(t.name, t.shape, int(t.type), t.offset) for t in file.tensors.values()]
        theirs = [
            (t.name, tuple(reversed(t.shape.tolist())), int(t.tensor_type), t.data_offset)
            for t in oracle.tensors
        ]
        assert ours == theirs
        compared += 1
    assert compared >= 5
