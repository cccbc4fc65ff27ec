"""From a kernel's source to a native function: build, optimize, cache on disk, load.

Objects are kept under the user's cache folder, each under the hash of what LLVM was given: the IR,
the target, the passes and the LLVM version. A small key beside them says which object the sources
of `jit/` as they stand make of a kernel, so that a warm start builds no IR; when sources change, IR
is built again and only what is new is compiled. Each file starts with the SHA-256 of its name and
of what follows; it is verified before a byte of it is mapped executable, and an entry that is
damaged, or lies under another's name, is rebuilt, never run."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CompileError
from .targets import CpuTarget, _llvm, host_arch, missing

if TYPE_CHECKING:
    from .simd import KernelSource

MAGIC = b"tpk3"
# Kernels are vectorized, unrolled and scheduled by hand. What is left to LLVM is to tidy up. The O3
# pipeline takes 2.9 times as long (26 kernels of two models on AVX-512 BF16: 4.1 s of CPU for 1.4),
# and whole passes took the same within the noise there; other feature sets were not compared.
PASSES = (
    "sroa",
    "instruction_combine",
    "simplify_cfg",
    "new_gvn",
    "instruction_combine",
    "loop_simplify",
    "lcssa",
    "loop_rotate",
    "sinking",
    "simplify_cfg",
)
_SOURCES = Path(__file__).parent


@functools.cache
def source_hash() -> str:
    """SHA-256 over every source file of this room: any change makes new objects."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCES.rglob("*.py")):
        digest.update(path.relative_to(_SOURCES).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class Spec:
    """One kernel for one set of constants."""

    source: KernelSource
    constants: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        values = ",".join(f"{name}={value}" for name, value in self.constants)
        return f"{self.source.name}({values})"

    def symbol(self, target: CpuTarget) -> str:
        """The native name: the same kernel, constants and target give the same one."""
        text = f"{self.source.module}|{self.label}|{target}"
        return f"tp_{self.source.name}_{_digest(text)[:16]}"


@functools.lru_cache(maxsize=4096)  # every session asks for the same few, twice for each op
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def spec(source: KernelSource, **constants: Any) -> Spec:
    return Spec(source, tuple(sorted(constants.items())))


@functools.cache
def _machine(target: CpuTarget):
    """LLVM's code generator for `target`, tuned for this very CPU where it is the host's best."""
    llvm = _llvm()
    native = target.arch == host_arch() and not missing(target)
    cpu = _tuning(target) if native else target.cpu
    kind = llvm.Target.from_triple(target.triple)
    # The small code model keeps constants one instruction away; kernels call nothing outside.
    return kind.create_target_machine(
        cpu=cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


def _tuning(target: CpuTarget) -> str:
    # A CPU name brings its features along; only a base name keeps a lesser target honest.
    return target.cpu


def build_object(spec: Spec, target: CpuTarget) -> bytes:
    """Compile `spec`: the object file.

    Raises:
        CompileError: LLVM refused the kernel.
    """
    return _compile(spec, target, build_ir(spec, target))


def build_assembly(spec: Spec, target: CpuTarget) -> str:
    """The assembly of `spec`, for reading and for tests."""
    return _machine(target).emit_assembly(_optimized(spec, target, build_ir(spec, target)))


def build_ir(spec: Spec, target: CpuTarget) -> str:
    """The LLVM IR of `spec`, as it is given to LLVM."""
    with _without_collections():
        text = str(spec.source.build(target, **dict(spec.constants)))
    text = text.replace(f'@"{spec.source.name}"', f'@"{spec.symbol(target)}"')
    # Objects call nothing outside: LLVM must not make a call of memset from a loop of stores.
    attributes = ' nounwind "no-builtins"'
    if target.bits > 128:
        # A thread's stack is aligned to 16 bytes only: what a wider register is spilled to would
        # lie across two cache lines (GEMM on a Zen 4 with 512 bits: a sixth of the time).
        attributes += ' "stackrealign"'
    return text.replace(" nounwind", attributes)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """A kernel's IR is hundreds of thousands of objects that all live: looking for garbage in them
    takes longer than making them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _compile(spec: Spec, target: CpuTarget, text: str) -> bytes:
    return bytes(_machine(target).emit_object(_optimized(spec, target, text)))


def _optimized(spec: Spec, target: CpuTarget, text: str):
    llvm = _llvm()
    machine = _machine(target)
    try:
        module = llvm.parse_assembly(text)
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused kernel {spec.label} for {target}: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    if spec.source.calls:
        builder.getModulePassManager().run(module, builder)
        return module
    manager = llvm.create_new_module_pass_manager()
    for name in PASSES:
        getattr(manager, f"add_{name}_pass")()
    manager.run(module, builder)
    return module


class ObjectCache:
    """Compiled kernels on disk.

    Attributes:
        hits, builds, damaged: what happened since this object was made.
        compile_seconds: time spent building them.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder if folder is not None and _private(folder) else None
        self.hits = self.builds = self.damaged = 0
        self.compile_seconds = 0.0

    def get(self, spec: Spec, target: CpuTarget) -> bytes:
        """The object of `spec`, from disk if it is there and whole, else compiled and kept."""
        key = self.folder and self._key(self.folder, spec, target)
        named = self._read(key) if key else None
        data = self._read(key.with_name(f"{named.decode()}.o")) if key and named else None
        if data is not None:
            self.hits += 1
            return data
        started = time.perf_counter()
        text = build_ir(spec, target)
        name = _object_name(target, text)
        path = key and key.with_name(f"{name}.o")
        # One that is damaged was read above already.
        data = self._read(path) if path and name.encode() != named else None
        if data is not None:
            self.hits += 1
        else:
            data = _compile(spec, target, text)
            self.compile_seconds += time.perf_counter() - started
            self.builds += 1
            if path:
                _write(path, data)
        if key:
            _write(key, name.encode())
        return data

    @staticmethod
    def _key(folder: Path, spec: Spec, target: CpuTarget) -> Path:
        """Where it stands which object the sources as they are make of `spec`."""
        sources = _digest(f"{source_hash()}|{_llvm().llvm_version_info}")[:16]
        return folder / f"{spec.symbol(target)}-{target}-{sources}.key"

    def _read(self, path: Path) -> bytes | None:
        try:
            blob = path.read_bytes()
        except OSError:
            return None
        head = len(MAGIC) + 32
        data = blob[head:]
        if blob[:head] == MAGIC + _checksum(path, data):
            return data
        self.damaged += 1
        return None


def _object_name(target: CpuTarget, text: str) -> str:
    """Of the object that LLVM makes of this IR."""
    given = (_llvm().llvm_version_info, PASSES, target.triple, target.cpu, target.features, text)
    return hashlib.sha256(repr(given).encode()).hexdigest()


def _checksum(path: Path, data: bytes) -> bytes:
    """Of an entry: with its name, so that a whole object of another kernel does not pass."""
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()


def _private(folder: Path) -> bool:
    """Make `folder`; False if another user could put an object there for us to run."""
    try:
        for above in reversed(folder.parents):  # `mkdir` gives its mode to the last one only
            if not above.exists():
                above.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.stat()
    except OSError:
        return False
    owned = not hasattr(os, "getuid") or info.st_uid == os.getuid()
    return owned and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, data: bytes) -> None:
    # A reader never sees half a file: it is written beside, then renamed. A full disk costs speed.
    with contextlib.suppress(OSError):
        fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(MAGIC + _checksum(path, data) + data)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def default_folder() -> Path:
    """Where objects are kept unless told otherwise."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("triplepoint")) / "kernels"


class Library:
    """Kernels loaded into this process for one target."""

    def __init__(self, target: CpuTarget, cache: ObjectCache | None = None) -> None:
        lacks = missing(target)
        if lacks:
            raise CompileError(f"cannot load kernels for {target}: this machine lacks {lacks}")
        self.target = target
        self.cache = cache if cache is not None else ObjectCache(default_folder())
        self._addresses: dict[str, int] = {}
        self._engines: dict[str, Any] = {}

    def load(self, specs: list[Spec]) -> None:
        """Make every one of `specs` callable: one trip through the loader for all of them."""
        llvm = _llvm()
        fresh = {s.symbol(self.target): s for s in specs}
        fresh = {name: s for name, s in fresh.items() if name not in self._addresses}
        if not fresh:
            return
        kind = llvm.Target.from_triple(self.target.triple)
        machine = kind.create_target_machine(codemodel="small", reloc="pic", jit=True)
        # One stretch of memory for all sections: code that refers to its constants by 32 bits must
        # not lie further from them, which in a process with many mappings it else may.
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=True)
        for item in fresh.values():
            data = self.cache.get(item, self.target)
            engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        engine.finalize_object()
        for name, item in fresh.items():
            address = engine.get_function_address(name)
            if not address:
                raise CompileError(f"kernel {item.label} is not in its own object")
            self._addresses[name] = address
            self._engines[name] = engine

    def address(self, item: Spec) -> int:
        """Native address of a kernel, loading it if need be."""
        name = item.symbol(self.target)
        if name not in self._addresses:
            self.load([item])
        return self._addresses[name]

    def symbol_address(self, item: Spec, name: str) -> int:
        """Native address of another public function of a loaded kernel's object."""
        return self._engines[item.symbol(self.target)].get_function_address(name)
