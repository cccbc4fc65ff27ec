"""Compile a kernel's source to a native function: build, optimize, cache on disk, load.

Objects are kept under the user's cache folder, each under the hash of what LLVM was given: the IR,
the target, the passes and the LLVM version. A small key beside them says which object the sources
of `jit/` as they stand make of a kernel, so that a warm start builds no IR; when sources change, IR
is built again and only what is new is compiled. Each file starts with the SHA-256 of its name and
of what follows; it is verified before a byte of it is mapped executable, and an entry that is
damaged, or lies under another's name, is rebuilt, never run."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import logging
import os
import stat
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .. import interrupts
from ..arguments import ProcessBound, read_own, user_folder
from ..errors import CompileError
from .targets import CpuTarget, llvm_binding, missing

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from .simd import KernelSource

MAGIC = b"tpk3"
# Kernels are vectorized, unrolled and scheduled by hand. What is left to LLVM is to tidy up. Ten
# passes, with value numbering among them, gave the same speed (179 kernels with AVX2, in turns) and
# loops as long (AVX2, AVX-512); O3 took the same time a pass of a model, too, on AVX-512 BF16.
PASSES = ("sroa", "instruction_combine", "simplify_cfg", "lcssa", "loop_rotate", "sinking")
_SOURCES = Path(__file__).parent
log = logging.getLogger("triplepoint.machine")
MANY = 3  # kernels that were not kept: the rest is probably missing, too, and takes seconds


_READ = {
    path: path.read_bytes()
    for path in sorted(_SOURCES.rglob("*"))
    if path.suffix in (".py", ".npz")
}
"""Source bytes by path, read at import: an upgrade may replace files while this process runs."""


def source_hash(*modules: ModuleType) -> str:
    """Return the SHA-256 of the sources of `modules`, or of this whole package if none are given.

    Any change of a source makes new objects. A module's data lies beside it, under its name.
    """
    return _hash_of(tuple(Path(module.__file__ or "").with_suffix("") for module in modules))


@functools.cache
def _hash_of(modules: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for path, data in _READ.items():
        if not modules or path.with_suffix("") in modules:
            digest.update(path.relative_to(_SOURCES).as_posix().encode())
            digest.update(data)
    return digest.hexdigest()


@functools.cache
def _elsewhere(module: str) -> str:
    """Return the source of a kernel outside this package, such as a benchmark's own."""
    path = Path(getattr(sys.modules.get(module), "__file__", None) or __file__)
    return "" if path in _READ else path.read_text()


@dataclass(frozen=True)
class Spec:
    """A kernel with values of its compile-time constants: the unit of compilation."""

    source: KernelSource
    constants: tuple[tuple[str, Any], ...] = ()

    @property
    def label(self) -> str:
        values = ",".join(f"{name}={value}" for name, value in self.constants)
        return f"{self.source.name}({values})"

    def symbol(self, target: CpuTarget) -> str:
        """Return the symbol name, the same for the same kernel, constants and target."""
        text = f"{self.source.module}|{self.label}|{target}"
        return f"tp_{self.source.name}_{_digest(text)[:16]}"


@functools.lru_cache(maxsize=4096)  # every session asks for the same few, twice for each op
def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def spec(source: KernelSource, **constants: Any) -> Spec:
    return Spec(source, tuple(sorted(constants.items())))


def _machine(target: CpuTarget):
    """Return LLVM's code generator for `target`, which is not thread-safe.

    LLVM gets the features, not the CPU: on a Zen 4 the scheduling model of znver4 ("tune-cpu")
    makes prefill 0.99 to 1.02 times as fast, decode 1.00 to 1.02, which is within the noise.
    """
    kind = llvm_binding().Target.from_triple(target.triple)
    # The small code model keeps constants one instruction away; kernels call nothing outside.
    return kind.create_target_machine(
        cpu=target.cpu, features=target.features, opt=3, reloc="pic", codemodel="small"
    )


def build_object(spec: Spec, target: CpuTarget) -> bytes:
    """Compile `spec` to an object file.

    Raises:
        CompileError: LLVM refused the kernel.
    """
    return _compile(spec, target, build_ir(spec, target))


def build_assembly(spec: Spec, target: CpuTarget) -> str:
    """Compile `spec` to assembly text, for inspection and tests."""
    machine = _machine(target)
    module = _optimized(spec, target, build_ir(spec, target), machine)
    with _switches.of(target):
        return machine.emit_assembly(module)


def build_ir(spec: Spec, target: CpuTarget) -> str:
    """Build the LLVM IR of `spec` before optimization."""
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
    """Disable garbage collection: kernel IR is many live objects, slower to scan than to make."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _compile(spec: Spec, target: CpuTarget, text: str) -> bytes:
    from llvmlite.binding import ffi

    machine = _machine(target)
    module = _optimized(spec, target, text, machine)
    lib = ffi.lib
    with ffi.OutputString() as problem, _switches.of(target):
        buffer = _unlocked(lib.LLVMPY_TargetMachineEmitToMemory)(machine, module, 1, problem)
        if not buffer:
            raise CompileError(f"LLVM refused kernel {spec.label} for {target}: {problem}")
    try:
        start, size = lib.LLVMPY_GetBufferStart(buffer), lib.LLVMPY_GetBufferSize(buffer)
        return ctypes.string_at(start, size)
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(buffer)


def _optimized(spec: Spec, target: CpuTarget, text: str, machine: Any):
    from llvmlite.binding import ffi

    llvm = llvm_binding()
    try:
        # What no two kernels share, two threads may work on at once.
        module = llvm.parse_assembly(text, llvm.create_context())
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused kernel {spec.label} for {target}: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    if spec.source.calls:
        manager = builder.getModulePassManager()
    else:
        manager = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(manager, f"add_{name}_pass")()
    _unlocked(ffi.lib.LLVMPY_RunNewModulePassManager)(manager, module, builder)
    return module


def _unlocked(function: Any) -> Any:
    """Return an LLVM function that releases llvmlite's global lock.

    Only for the two that take nearly all of the time, and only on a kernel's own context and
    machine: LLVM itself asks for no more.
    """
    if not hasattr(function, "_cfn"):
        _warn_of_lock()
    return getattr(function, "_cfn", function)


@functools.cache
def _warn_of_lock() -> None:
    from llvmlite import __version__

    warnings.warn(
        f"llvmlite {__version__} keeps its lock, so kernels are compiled one at a time: use 0.45 "
        "to 0.50 for compilation on all cores",
        RuntimeWarning,
        stacklevel=2,
    )


def switches(target: CpuTarget) -> dict[str, bool]:
    """Return the LLVM command-line switches that a target changes from their defaults.

    Loop strength reduction takes a fifth to a third of the code generator's time. With AVX2 it
    gains nothing (17 types of weights: 1.000 of the time without it); elsewhere its loops are a
    little shorter, or nobody measured.

    Tried with AVX2: without the machine scheduler and combiner a third of the spills goes. On a Zen
    3 products of 252 tokens took 0.87 to 1.04 of the time, but prefill of Q4_K_M gained 2 %, decode
    lost 2 to 5 %, and the loop that measures the int8 peak fell behind its instructions.
    """
    return {"disable-lsr": True} if target.bits == 256 else {}


class _Switches:
    """LLVM's process-wide switches, set while kernels are compiled that need the same ones.

    A kernel that needs others waits until they are restored.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._set: dict[str, bool] = {}
        self._users = 0

    @contextlib.contextmanager
    def of(self, target: CpuTarget) -> Iterator[None]:
        """Apply a target's switches while the context is open."""
        wanted = switches(target)
        with self._changed:
            self._changed.wait_for(lambda: not self._users or self._set == wanted)
            if not self._users:
                self._set = wanted
                self._set_options(wanted)
            self._users += 1
        try:
            yield
        finally:
            with self._changed:
                self._users -= 1
                if not self._users:
                    self._set_options({name: not on for name, on in self._set.items()})
                    self._changed.notify_all()

    @staticmethod
    def _set_options(values: dict[str, bool]) -> None:
        for name, on in values.items():
            llvm_binding().set_option("", f"-{name}={'true' if on else 'false'}")


_switches = _Switches()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ObjectCache:
    """A cache on disk of compiled kernel objects."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder if folder is not None and _private(folder) else None
        self.hits = self.builds = self.damaged = self._missing = 0
        """Counts of objects found on disk, compiled, damaged, and missing by source key."""
        self.compile_seconds = 0.0
        """Wall time spent compiling kernels, in seconds."""

    def get(self, spec: Spec, target: CpuTarget) -> bytes:
        """Return the object of `spec`, from disk if it is there and intact, else newly compiled."""
        return self.get_all([spec], target)[0]

    def get_all(self, specs: Sequence[Spec], target: CpuTarget) -> list[bytes]:
        """Return the objects of `specs`; compile those not on disk on all cores."""
        started, builds = time.perf_counter(), self.builds
        with contextlib.ExitStack() as stack:

            @functools.cache
            def threads() -> ThreadPoolExecutor:
                from concurrent.futures import ThreadPoolExecutor  # a warm start needs none

                made = ThreadPoolExecutor(_cores(), "compile")
                stack.callback(made.shutdown, cancel_futures=True)
                return made

            found = [self._get(spec, target, threads) for spec in specs]
            objects = [get() for get in found]
        if self.builds > builds:
            self.compile_seconds += time.perf_counter() - started
        return objects

    def _get(
        self, spec: Spec, target: CpuTarget, threads: Callable[[], ThreadPoolExecutor]
    ) -> Callable[[], bytes]:
        """Return a function that waits for the object of `spec`; `threads`: those that compile."""
        key = self.folder and self._key(self.folder, spec, target)
        named = self._read(key) if key else None
        data = self._read(key.with_name(f"{named.decode()}.o")) if key and named else None
        if data is not None:
            self.hits += 1
            return lambda: data
        self._missing += 1
        if self._missing == MANY:
            log.info("compiling kernels for %s (kept for later runs, some seconds) …", target)
        text = build_ir(spec, target)
        name = _object_name(target, text)
        path = key and key.with_name(f"{name}.o")
        # One that is damaged was read above already.
        stored = self._read(path) if path and name.encode() != named else None
        if stored is None:
            self.builds += 1
            with interrupts.held():
                compiled = threads().submit(_compile, spec, target, text)
            wait = functools.partial(interrupts.result, compiled)
        else:
            self.hits += 1
            wait = functools.partial(bytes, stored)

        def finish() -> bytes:
            data = wait()
            if path and stored is None:
                _write(path, data)
            if key:
                _write(key, name.encode())
            return data

        return finish

    @staticmethod
    def _key(folder: Path, spec: Spec, target: CpuTarget) -> Path:
        """Return the file that maps the current sources of `spec` to an object."""
        made_by = (
            f"{source_hash()}|{llvm_binding().llvm_version_info}|{target.triple}|{target.intel}"
            f"{_elsewhere(spec.source.module)}"
        )
        sources = _digest(made_by)[:16]
        return folder / f"{spec.symbol(target)}-{target}-{sources}.key"

    def _read(self, path: Path) -> bytes | None:
        try:
            blob = read_own(path, ours=True)  # another user may have exchanged the folder
        except OSError:
            return None
        head = len(MAGIC) + 32
        data = blob[head:]
        if blob[:head] == MAGIC + _checksum(path, data):
            return data
        self.damaged += 1
        return None


def _object_name(target: CpuTarget, text: str) -> str:
    """Return the file name of the object that LLVM makes of this IR."""
    how = (llvm_binding().llvm_version_info, PASSES, sorted(switches(target).items()))
    given = (*how, target.triple, target.cpu, target.features, text)
    return hashlib.sha256(repr(given).encode()).hexdigest()


def _checksum(path: Path, data: bytes) -> bytes:
    """Return an entry's checksum, which covers its name: another kernel's object does not match."""
    return hashlib.sha256(path.name.encode() + b"\0" + data).digest()


def _private(folder: Path) -> bool:
    """Create `folder`; return False if another user could place an object there."""
    try:
        for above in reversed(folder.parents):  # `mkdir` gives its mode to the last one only
            if not above.exists():
                above.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        info = folder.stat()
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or info.st_uid == os.getuid()
    return ours and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


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
    """Return the default folder of the object cache."""
    return user_folder("cache") / "kernels"


class Library(ProcessBound):
    """Kernels loaded into this process for one target; thread-safe.

    The target may be one that this machine cannot run, for what needs its facts alone; kernels of
    such a target are not loaded.
    """

    def __init__(self, target: CpuTarget, cache: ObjectCache | None = None) -> None:
        self.target = target
        self.cache = cache if cache is not None else ObjectCache(default_folder())
        self._addresses: dict[str, int] = {}
        self._engines: dict[str, Any] = {}
        # Were a kernel loaded twice, the first engine, and with it code that runs, would be freed.
        self._loading = threading.Lock()

    def load(self, specs: list[Spec]) -> None:
        """Load every one of `specs` with one pass through the loader.

        Raises:
            CompileError: this machine cannot run the target, or LLVM refused a kernel.
        """
        with self._loading:
            llvm = llvm_binding()
            fresh = {s.symbol(self.target): s for s in specs}
            fresh = {name: s for name, s in fresh.items() if name not in self._addresses}
            if not fresh:
                return
            if lacks := missing(self.target):
                raise CompileError(
                    f"cannot load kernels for {self.target}: this machine lacks {', '.join(lacks)}"
                )
            kind = llvm.Target.from_triple(self.target.triple)
            machine = kind.create_target_machine(codemodel="small", reloc="pic", jit=True)
            # One stretch of memory for all sections: code that refers to its constants by 32 bits
            # must not lie further from them, which in a process with many mappings it else may.
            engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine, use_lmm=True)
            for data in self.cache.get_all(list(fresh.values()), self.target):
                engine.add_object_file(llvm.ObjectFileRef.from_data(data))
            engine.finalize_object()
            for name, item in fresh.items():
                address = engine.get_function_address(name)
                if not address:
                    raise CompileError(f"kernel {item.label} is not in its own object")
                self._addresses[name] = address
                self._engines[name] = engine

    def address(self, item: Spec) -> int:
        """Return a kernel's native address; load it if necessary."""
        name = item.symbol(self.target)
        if name not in self._addresses:
            self.load([item])
        return self._addresses[name]

    def symbol_address(self, item: Spec, name: str) -> int:
        """Return the native address of another public function in a loaded kernel's object."""
        return self._engines[item.symbol(self.target)].get_function_address(name)
