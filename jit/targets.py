"""CPU feature sets that kernels are generated for.

A `CpuTarget` is all that a kernel may depend on: vector width, the integer dot instruction, and
which conversions are native. The best one for this machine is detected through LLVM (which checks
that the operating system saves the wide registers) and cross-checked against the kernel's own list;
`TRIPLEPOINT_TARGET` or `--target` pick a lesser one. `TRIPLEPOINT_CPU` hides the features that a
lesser CPU lacks from all that looks at this machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import TargetError

Dot = Literal["portable", "maddubs", "vpdpbusd", "mlal", "sdot", "usdot"]
"""How four int8 products are summed into one int32 lane."""
Bf16 = Literal["none", "dot", "tiles"]
"""How products of bf16 pairs are summed into a float32: ``vdpbf16ps``, or AMX tiles."""


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A CPU feature set, as kernels depend on it."""

    name: str
    """Name in options and variables, e.g. ``avx512-bf16``."""
    arch: str
    """``x86_64``, ``aarch64`` or ``any`` (whatever LLVM's host is)."""
    lanes: int
    """Number of float32 values in one vector register."""
    registers: int
    """Number of vector registers, which bounds the register tile."""
    dot: Dot
    """Lowering of the int8 dot product."""
    has_fma: bool
    """Whether a*b+c is one instruction."""
    has_f16: bool
    """Whether conversion of float16 to float32 is one instruction."""
    bf16: Bf16
    """Instruction for products of bf16 pairs; unless "none", one instruction rounds float32 to such
    pairs."""
    needs: tuple[str, ...]
    """LLVM feature names that the CPU must have."""
    cpu: str
    """LLVM CPU name whose scheduling model is used."""
    has_amx: bool = False
    """Whether it has AMX tile registers, for products of int8 and of bf16 pairs."""
    intel: bool = False
    """Whether this machine's CPU is Intel's, whose hardware prefetchers differ."""

    def __str__(self) -> str:
        return self.name

    @property
    def bits(self) -> int:
        """Vector width in bits."""
        return self.lanes * 32

    @property
    def vnni_alone(self) -> bool:
        """Whether it is AVX-512 VNNI without bf16: best on Intel CPUs only (see `slower_than`)."""
        return self.dot == "vpdpbusd" and self.registers >= 32 and self.bf16 == "none"

    @property
    def signed_bytes(self) -> bool:
        """Whether 8-bit weights are stored signed (else with 128 added)."""
        return self.dot not in ("vpdpbusd", "usdot")

    @property
    def triple(self) -> str:
        """LLVM target triple."""
        if self.arch == "any":
            return llvm_binding().get_default_triple()
        host = llvm_binding().get_default_triple()
        if host.startswith(self.arch) or (self.arch == "aarch64" and host.startswith("arm64")):
            return host  # the second is Apple's name
        return f"{self.arch}-unknown-linux-gnu"

    @property
    def features(self) -> str:
        """LLVM feature string: the features needed, so that no other is emitted, and tuning."""
        # Else LLVM splits products of int16 pairs, for a latency that only a lone sum would feel.
        tuning = ("fast-dpwssd",) if self.dot == "vpdpbusd" else ()
        return ",".join(f"+{feature}" for feature in (*self.needs, *tuning))


def host_arch() -> str:
    """Return this machine's architecture: ``x86_64``, ``aarch64`` or the system's name of it."""
    machine = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def cpuinfo(*keys: str) -> str | None:
    """Return the first value in Linux's /proc/cpuinfo that has one of `keys`."""
    try:
        with Path("/proc/cpuinfo").open(errors="replace") as file:  # as long as there are CPUs
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in keys:
                    return value.strip()
    except OSError:
        pass
    return None


@functools.cache
def is_intel() -> bool:
    """Return whether this CPU is from Intel; False where the system does not report it."""
    if host_arch() != "x86_64":
        return False
    if platform.system() == "Windows":
        return platform.processor().endswith("GenuineIntel")
    return platform.system() == "Darwin" or cpuinfo("vendor_id") == "GenuineIntel"


VARIABLE = "TRIPLEPOINT_TARGET"
"""Environment variable that names the target where no option does."""
MASK = "TRIPLEPOINT_CPU"
"""Environment variable that names a target: other features are hidden from this process."""

_V2 = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "cx16")
_V3 = (*_V2, "avx", "avx2", "fma", "f16c", "bmi", "bmi2", "lzcnt", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

_V4_VNNI = (*_V4, "avx512vnni")
_AMX = ("amx-tile", "amx-int8", "amx-bf16")


def _x86(
    name: str, lanes: int, registers: int, dot: Dot, needs: tuple[str, ...], cpu: str
) -> CpuTarget:
    modern, tiles = "fma" in needs, "amx-tile" in needs
    bf16: Bf16 = "tiles" if tiles else "dot" if "avx512bf16" in needs else "none"
    return CpuTarget(
        name, "x86_64", lanes, registers, dot, modern, modern, bf16, needs, cpu, tiles, is_intel()
    )


def _arm(name: str, dot: Dot, needs: tuple[str, ...]) -> CpuTarget:
    return CpuTarget(name, "aarch64", 4, 32, dot, True, True, "none", needs, "generic")


# From the least to the most capable of each architecture.
TARGETS: dict[str, CpuTarget] = {
    t.name: t
    for t in (
        CpuTarget("generic", "any", 4, 16, "portable", False, False, "none", (), ""),
        _x86("x86-64-v2", 4, 16, "maddubs", _V2, "x86-64-v2"),
        _x86("avx2", 8, 16, "maddubs", _V3, "x86-64-v3"),
        _x86("avx-vnni", 8, 16, "vpdpbusd", (*_V3, "avxvnni"), "x86-64-v3"),
        _x86("avx512", 16, 32, "maddubs", _V4, "x86-64-v4"),
        _x86("avx512-vnni", 16, 32, "vpdpbusd", _V4_VNNI, "x86-64-v4"),
        _x86("avx512-bf16", 16, 32, "vpdpbusd", (*_V4_VNNI, "avx512bf16"), "x86-64-v4"),
        _x86("amx-bf16", 16, 32, "vpdpbusd", (*_V4_VNNI, "avx512bf16", *_AMX), "x86-64-v4"),
        _arm("neon", "mlal", ("neon",)),
        _arm("neon-dotprod", "sdot", ("neon", "dotprod")),
        _arm("neon-i8mm", "usdot", ("neon", "dotprod", "i8mm")),
    )
}

# LLVM feature -> flag of /proc/cpuinfo, where the spelling differs.
_CPUINFO = {
    "sse3": "pni",
    "sse4.1": "sse4_1",
    "sse4.2": "sse4_2",
    "bmi": "bmi1",
    "lzcnt": "abm",
    "avxvnni": "avx_vnni",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
    "neon": "asimd",
    "dotprod": "asimddp",
}


@functools.cache
def llvm_binding():
    """Return llvmlite's binding with every back end initialized; imported late: it takes 0.1 s."""
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def host_features() -> frozenset[str]:
    """Return the LLVM feature names that this CPU has and this operating system enables.

    Raises:
        TargetError: `MASK` names no target of this architecture.
    """
    mask = masked_to()
    return _host_features() if mask is None else _host_features() & set(mask.needs)


def masked_to() -> CpuTarget | None:
    """Return the target that `MASK` names; None where nothing is hidden."""
    if not (name := os.environ.get(MASK)):
        return None
    target = TARGETS.get(name)
    if target is None or target.arch not in ("any", host_arch()):
        known = ", ".join(t.name for t in TARGETS.values() if t.arch in ("any", host_arch()))
        raise TargetError(f"{MASK} is {name!r}, which is no target of this CPU; known: {known}")
    return target


@functools.cache
def _host_features() -> frozenset[str]:
    found = {name for name, on in llvm_binding().get_host_cpu_features().items() if on}
    listed = _cpuinfo_flags()
    if host_arch() == "aarch64":  # LLVM does not look for all of them there
        flags = _apple_flags() if listed is None else listed
        found |= {f for f in _known_features() if _CPUINFO.get(f, f) in flags}
    if listed is None:
        return frozenset(found)
    # A virtual machine may report what its kernel does not enable: believe the lesser.
    return frozenset(f for f in found if _CPUINFO.get(f, f) in listed or f not in _known_features())


def _known_features() -> set[str]:
    return {feature for target in TARGETS.values() for feature in target.needs}


def _apple_flags() -> set[str]:
    """Return an Apple CPU's flags under Linux's names; empty on other systems."""
    if platform.system() != "Darwin":
        return set()
    flags, on = {"asimd"}, ctypes.c_int(0)
    for flag, name in (("asimddp", b"FEAT_DotProd"), ("i8mm", b"FEAT_I8MM")):
        size = ctypes.c_size_t(ctypes.sizeof(on))
        args = (b"hw.optional.arm." + name, ctypes.byref(on), ctypes.byref(size), None, 0)
        if ctypes.CDLL(None).sysctlbyname(*args) == 0 and on.value:
            flags.add(flag)
    return flags


def _cpuinfo_flags() -> set[str] | None:
    listed = cpuinfo("flags", "Features")
    return None if listed is None else set(listed.split())


def missing(target: CpuTarget) -> list[str]:
    """Return the features that this machine lacks to run `target`; empty if it can."""
    if target.arch not in ("any", host_arch()):
        return [f"an {target.arch} CPU"]
    have = host_features()
    lacks = [feature for feature in target.needs if feature not in have]
    return lacks or (
        ["permission from the kernel to use AMX (arch_prctl)"]
        if target.has_amx and not _amx()
        else []
    )


@functools.cache
def _amx() -> bool:
    """Request the tile registers from Linux, which grants them for the process's lifetime."""
    if platform.system() != "Linux":
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request, tile_data) == 0


def runnable() -> list[CpuTarget]:
    """List the targets that this machine can run, least capable first."""
    return [target for target in TARGETS.values() if not missing(target)]


def slower_than(target: CpuTarget) -> str | None:
    """Return the target that is faster here although it needs less; None if there is none.

    ``vdpbf16ps`` does half as many operations per second as fp32 FMA on the Xeons that were tried
    (family 6, models 167 and 207: 172 against 353 GFLOP/s), twice as many on Zen 4 and 5.
    """
    return "avx512-vnni" if target.bf16 == "dot" and is_intel() else None


def detect() -> CpuTarget:
    """Return the fastest target of this machine: the most capable one, except for `slower_than`."""
    best = runnable()[-1]
    return TARGETS[slower_than(best) or best.name]


def chosen(name: str | None = None) -> CpuTarget:
    """Return the target called `name`, else that of TRIPLEPOINT_TARGET, else the best one.

    Raises:
        TargetError: unknown name, or this machine cannot run it; says so if the variable has it.
    """
    named = None if name else os.environ.get(VARIABLE)
    try:
        return resolve(name or named)
    except TargetError as error:
        raise TargetError(f"{error} (from {VARIABLE})" if named else str(error)) from None


def named(name: str | None) -> CpuTarget:
    """Return the target called `name`, which this machine need not be able to run.

    None, "" and "auto" are the best one of this machine.

    Raises:
        TargetError: unknown name.
    """
    if not name or name == "auto":
        return detect()
    target = TARGETS.get(name) if isinstance(name, str) else None
    if target is None:
        raise TargetError(f"unknown CPU target {name!r}; known: {', '.join(TARGETS)}")
    return target


def resolve(name: str | None) -> CpuTarget:
    """Return the target as `named` does, if this machine can run it.

    Raises:
        TargetError: unknown name, or this machine cannot run it.
    """
    target = named(name)
    lacks = missing(target)
    if lacks:
        can = ", ".join(t.name for t in runnable())
        raise TargetError(
            f"this machine cannot run target {name!r}: it lacks {', '.join(lacks)}; "
            f"it can run {can}"
        )
    return target
