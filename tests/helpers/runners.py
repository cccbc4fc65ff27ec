"""Call one kernel on numpy arrays: natively, or compiled for aarch64 under qemu-user.

Every array is copied into memory that ends where a page begins that may not be touched, and copied
back after the call. So a kernel that reads or writes past the end of any of its arguments dies in
whichever test runs it.
"""

from __future__ import annotations

import ctypes
import mmap
import shutil
import struct
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from helpers.elf import undefined_symbols
from helpers.fence import guarded

from triplepoint.jit.compile import Library, ObjectCache, Spec
from triplepoint.jit.targets import CpuTarget

PAGE = mmap.PAGESIZE
QEMU, GCC = "qemu-aarch64-static", "aarch64-linux-gnu-gcc"


@dataclass(frozen=True)
class Table:
    """An argument that points to an array of addresses, one of each of these arrays."""

    arrays: Sequence[np.ndarray]


Argument = np.ndarray | Table | int | float


class CheckedCache(ObjectCache):
    """A cache whose objects are all looked into: a kernel may call nothing outside itself."""

    def get_all(self, specs: Sequence[Spec], target: CpuTarget) -> list[bytes]:
        objects = super().get_all(specs, target)
        for spec, data in zip(specs, objects, strict=True):
            assert not undefined_symbols(data), f"{spec.label} for {target}"
        return objects


class Runner:
    """Calls kernels of one target.

    Attributes:
        target: the feature set; emulated: whether each call costs a process of its own.
    """

    target: CpuTarget
    emulated: bool

    def call(self, kernel: Spec, args: Sequence[Argument], begin: int, end: int) -> None:
        """Do the units [begin, end); writeable arrays among `args` get what was written."""
        raise NotImplementedError


class _GuardedMemory:
    """Blocks of memory that end at a page without access, used again and again."""

    def __init__(self) -> None:
        self._free: dict[int, list[np.ndarray]] = defaultdict(list)

    def take(self, nbytes: int) -> tuple[int, np.ndarray]:
        """The address of `nbytes` bytes, and the block to give back."""
        size = -(-max(nbytes, 1) // PAGE) * PAGE
        block = self._free[size].pop() if self._free[size] else guarded(size)
        return block.ctypes.data + size - nbytes, block

    def give_back(self, block: np.ndarray) -> None:
        self._free[len(block)].append(block)


_memory = _GuardedMemory()


class Native(Runner):
    """Calls kernels in this process."""

    emulated = False

    def __init__(self, target: CpuTarget, cache: CheckedCache) -> None:
        self.target = target
        self.library = Library(target, cache)

    def call(self, kernel: Spec, args: Sequence[Argument], begin: int, end: int) -> None:
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(
            self.library.address(kernel)
        )
        taken: list[np.ndarray] = []
        inside: list[tuple[np.ndarray, int]] = []

        def place(array: np.ndarray) -> int:
            assert array.flags.c_contiguous
            address, block = _memory.take(array.nbytes)
            taken.append(block)
            if array.nbytes:
                ctypes.memmove(address, array.ctypes.data, array.nbytes)
            inside.append((array, address))
            return address

        slots = np.zeros(len(args), np.int64)
        for n, arg in enumerate(args):
            if isinstance(arg, Table):
                slots[n] = place(np.array([place(a) for a in arg.arrays], np.int64))
            else:
                slots[n : n + 1] = place(arg) if isinstance(arg, np.ndarray) else _scalar(arg)
        function(place(slots), begin, end, 0)
        for array, address in inside:
            if array.flags.writeable and array.nbytes:
                ctypes.memmove(array.ctypes.data, address, array.nbytes)
        for block in taken:
            _memory.give_back(block)


def _scalar(value: int | float) -> int:
    """The 8-byte slot that holds `value`: a float is float32 in its low half."""
    if isinstance(value, float):
        return struct.unpack("<q", struct.pack("<f4x", value))[0]
    return value


# Reads a file of int64: begin, end, slots, buffers; then for each slot 1 and the number of a
# buffer, or 0 and a value; then for each buffer its size and whether it holds numbers of buffers
# whose addresses it is to have; then the bytes of all buffers. Writes those bytes back.
DRIVER = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

extern void tp_kernel(void *args, int64_t begin, int64_t end, int64_t tid);

static int64_t number(FILE *file) {
    int64_t value;
    if (fread(&value, 8, 1, file) != 1) exit(2);
    return value;
}

static char *guarded(int64_t size) {
    int64_t page = 65536, room = (size + page) / page * page;
    char *start = mmap(0, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + room, page, PROT_NONE)) exit(3);
    return start + room - size;
}

int main(int argc, char **argv) {
    FILE *in = fopen(argv[1], "rb"), *out = fopen(argv[2], "wb");
    if (!in || !out) return 4;
    int64_t begin = number(in), end = number(in), n_slots = number(in), n_buffers = number(in);
    int64_t *slots = (int64_t *)guarded(8 * n_slots), *kinds = calloc(n_slots, 8);
    for (int64_t i = 0; i < n_slots; i++) { kinds[i] = number(in); slots[i] = number(in); }
    int64_t *sizes = calloc(n_buffers, 8), *tables = calloc(n_buffers, 8);
    char **buffers = calloc(n_buffers, 8);
    for (int64_t i = 0; i < n_buffers; i++) { sizes[i] = number(in); tables[i] = number(in); }
    for (int64_t i = 0; i < n_buffers; i++) {
        buffers[i] = guarded(sizes[i]);
        if (sizes[i] && fread(buffers[i], sizes[i], 1, in) != 1) return 5;
    }
    for (int64_t i = 0; i < n_buffers; i++)
        if (tables[i]) for (int64_t j = 0; j < sizes[i] / 8; j++) {
            int64_t *entry = (int64_t *)buffers[i] + j;
            *entry = (int64_t)buffers[*entry];
        }
    for (int64_t i = 0; i < n_slots; i++) if (kinds[i]) slots[i] = (int64_t)buffers[slots[i]];
    tp_kernel(slots, begin, end, 0);
    for (int64_t i = 0; i < n_buffers; i++)
        if (sizes[i] && fwrite(buffers[i], sizes[i], 1, out) != 1) return 6;
    return fclose(out) ? 7 : 0;
}
"""


def emulation_lacks() -> str | None:
    """Why aarch64 objects cannot be run here; None if they can."""
    absent = [tool for tool in (QEMU, GCC) if shutil.which(tool) is None]
    if absent:
        return f"{' and '.join(absent)} not found (Debian: qemu-user-static, gcc-aarch64-linux-gnu)"
    return None


class Emulated(Runner):
    """Calls kernels of an aarch64 target under qemu-user, one process for each call."""

    emulated = True

    def __init__(self, target: CpuTarget, cache: CheckedCache, folder: Path) -> None:
        self.target = target
        self.cache = cache
        self.folder = folder

    def call(self, kernel: Spec, args: Sequence[Argument], begin: int, end: int) -> None:
        arrays: list[np.ndarray] = []
        tables: list[int] = []

        def place(array: np.ndarray, table: bool = False) -> int:
            arrays.append(np.ascontiguousarray(array))
            tables.append(int(table))
            return len(arrays) - 1

        slots: list[int] = []
        for arg in args:
            if isinstance(arg, Table):
                entries = np.array([place(a) for a in arg.arrays], np.int64)
                slots += [1, place(entries, table=True)]
            elif isinstance(arg, np.ndarray):
                slots += [1, place(arg)]
            else:
                slots += [0, _scalar(arg)]
        head = [begin, end, len(args), len(arrays), *slots]
        for array, table in zip(arrays, tables, strict=True):
            head += [array.nbytes, table]
        given, got = self.folder / "in", self.folder / "out"
        with given.open("wb") as file:
            file.write(np.array(head, np.int64).tobytes())
            for array in arrays:
                file.write(array.tobytes())
        command = [QEMU, "-cpu", "max", str(self._program(kernel)), str(given), str(got)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, f"{kernel.label} on {self.target}: {ran}"
        data, at = got.read_bytes(), 0
        for array, table in zip(arrays, tables, strict=True):
            if array.flags.writeable and not table:
                array.reshape(-1).view(np.uint8)[:] = np.frombuffer(
                    data, np.uint8, array.nbytes, at
                )
            at += array.nbytes

    def _program(self, kernel: Spec) -> Path:
        """A static program of the driver and this kernel's object."""
        symbol = kernel.symbol(self.target)
        program = self.folder / symbol
        if not program.exists():
            source, driver = self.folder / "driver.c", self.folder / "driver.o"
            if not driver.exists():
                source.write_text(DRIVER)
                _run(GCC, "-O1", "-Wall", "-Werror", "-c", source, "-o", driver)
            kernel_object = program.with_suffix(".o")
            kernel_object.write_bytes(self.cache.get(kernel, self.target))
            named = f"-Wl,--defsym,tp_kernel={symbol}"
            _run(GCC, "-static", driver, kernel_object, named, "-o", program)
        return program


def _run(*command: str | Path) -> None:
    ran = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
