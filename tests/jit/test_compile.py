"""Kernels from source to memory: names, the object cache, loading."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.elf import undefined_symbols

from triplepoint.errors import CompileError
from triplepoint.jit import compile as module
from triplepoint.jit.compile import (
    MAGIC,
    Library,
    ObjectCache,
    build_assembly,
    build_ir,
    build_object,
    default_folder,
    spec,
)
from triplepoint.jit.dot import KEY_INSTRUCTION
from triplepoint.jit.kernels.argmax import argmax_final, argmax_part
from triplepoint.jit.kernels.embed import embed
from triplepoint.jit.kernels.gemm import gemm_float
from triplepoint.jit.simd import F32s, I32s, Kernel, Value, f32, kernel
from triplepoint.jit.targets import TARGETS, detect, runnable

SMALL = spec(argmax_final)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "kernels"


# --- names


def test_another_makers_cpu_has_its_own_objects(folder: Path) -> None:
    """A cache that machines share tells the code for one maker's CPU from that for another's."""
    here = detect()
    keys = {ObjectCache._key(folder, SMALL, replace(here, intel=intel)) for intel in (True, False)}
    assert len(keys) == 2


def test_symbols_tell_kernels_apart() -> None:
    """Another kernel, constant or target is another symbol; the same three are the same."""
    target = detect()
    f16, bf16 = spec(embed, fmt="f16"), spec(embed, fmt="bf16")

    assert f16.symbol(target) == spec(embed, fmt="f16").symbol(target)
    others = [bf16.symbol(target), SMALL.symbol(target), f16.symbol(TARGETS["neon"])]
    assert len({f16.symbol(target), *others}) == 4
    assert f16.label == "embed(fmt=f16)"


def test_constants_in_any_order_are_one_kernel() -> None:
    """The order in which constants are given does not matter."""
    assert spec(embed, a=1, b=2) == spec(embed, b=2, a=1)


# --- the cache


def test_second_load_is_a_hit(folder: Path) -> None:
    """An object is built once; another process finds it and its bytes."""
    first, second = ObjectCache(folder), ObjectCache(folder)
    data = first.get(SMALL, detect())

    assert second.get(SMALL, detect()) == data
    assert (first.builds, first.hits) == (1, 0)
    assert (second.builds, second.hits, second.damaged) == (0, 1, 0)
    assert first.compile_seconds > 0


def test_compilation_that_takes_seconds_is_reported(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, when the kernels of a model are missing; not for one or two, and not for kept ones."""
    caplog.set_level("INFO", "triplepoint.machine")
    specs = [spec(argmax_part), SMALL, spec(embed, fmt="f32"), spec(embed, fmt="f16")]
    ObjectCache(folder).get_all(specs[:2], detect())
    assert caplog.messages == []
    for _ in range(2):
        ObjectCache(folder / "whole").get_all(specs, detect())
    assert caplog.messages == [
        f"compiling kernels for {detect()} (kept for later runs, some seconds) …"
    ]


def test_changed_sources_that_make_the_same_kernel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited comment recompiles nothing: the IR is built, and its object is there already."""
    data = ObjectCache(folder).get(SMALL, detect())
    monkeypatch.setattr(module, "source_hash", lambda: "another")
    changed, again = ObjectCache(folder), ObjectCache(folder)

    assert changed.get(SMALL, detect()) == data
    assert (changed.builds, changed.hits) == (0, 1)
    monkeypatch.setattr(module, "build_ir", None)  # the next start needs no IR
    assert again.get(SMALL, detect()) == data


@pytest.mark.parametrize("what", ["build_ir", "PASSES"])
def test_changed_kernels_are_compiled_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Other sources that make other IR, or other passes over it, never meet a stale object."""
    ObjectCache(folder).get(SMALL, detect())
    monkeypatch.setattr(module, "source_hash", lambda: "another")
    if what == "PASSES":
        monkeypatch.setattr(module, what, module.PASSES[:-1])
    else:
        monkeypatch.setattr(module, what, lambda *of: build_ir(*of) + "\n; changed\n")
    cache = ObjectCache(folder)

    assert cache.get(SMALL, detect())
    assert (cache.builds, cache.hits) == (1, 0)


def test_kernels_are_compiled_side_by_side(folder: Path) -> None:
    """Many at once are the same objects as one after another, in the order they were asked for, and
    kept; what was there already is read."""
    specs = [spec(embed, fmt=fmt) for fmt in ("f32", "f16", "bf16", "q8_0")]
    one, cache = ObjectCache(None), ObjectCache(folder)
    want = [one.get(each, detect()) for each in specs]
    cache.get(specs[2], detect())

    assert cache.get_all(specs, detect()) == want
    assert (cache.builds, cache.hits) == (4, 1)
    again = ObjectCache(folder)
    assert again.get_all(specs, detect()) == want
    assert (again.builds, again.hits) == (0, 4)


def test_a_library_that_keeps_its_lock_is_named() -> None:
    """Compilation on one core is no secret; kernels are the same."""
    module._warn_of_lock.cache_clear()
    with pytest.warns(RuntimeWarning, match="compiled one at a time"):
        assert module._unlocked(len) is len


def test_one_refused_kernel_among_many(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What LLVM says of one is raised, those before it are kept, and no thread is left."""
    specs = [spec(embed, fmt=fmt) for fmt in ("f32", "f16")]
    build = module.build_ir
    monkeypatch.setattr(
        module, "build_ir", lambda s, t: "nonsense" if s == specs[1] else build(s, t)
    )
    with pytest.raises(CompileError, match=r"LLVM refused kernel embed\(fmt=f16\)"):
        ObjectCache(folder).get_all(specs, detect())

    assert not [t.name for t in threading.enumerate() if t.name.startswith("compile")]
    again = ObjectCache(folder)
    again.get(specs[0], detect())
    assert again.hits == 1


def test_building_looks_for_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector rests while IR is built, and is as it was afterwards, after an error too."""
    seen: list[bool] = []
    source = SMALL.source
    build = type(source).build

    def watched(*args: Any, **constants: Any) -> Any:
        seen.append(gc.isenabled())
        if len(seen) == 2:
            raise KeyError(source.name)
        return build(*args, **constants)

    monkeypatch.setattr(type(source), "build", watched)
    build_ir(SMALL, detect())
    assert gc.isenabled()
    with pytest.raises(KeyError, match=source.name):
        build_ir(SMALL, detect())
    assert gc.isenabled()
    assert seen == [False, False]


def test_targets_do_not_share_objects(folder: Path) -> None:
    """The same kernel for two targets is two files."""
    cache = ObjectCache(folder)
    for target in runnable()[:2]:
        cache.get(SMALL, target)
    assert len(list(folder.glob("*.o"))) == min(2, len(runnable()))


def test_any_flipped_byte_is_seen(folder: Path) -> None:
    """Whichever byte of a kept object is wrong, the entry does not count as whole."""
    cache = ObjectCache(folder)
    cache.get(SMALL, detect())
    (path,) = folder.glob("*.o")
    whole = path.read_bytes()
    assert cache._read(path) is not None
    with path.open("r+b", buffering=0) as file:
        for at, byte in enumerate(whole):
            os.pwrite(file.fileno(), bytes([byte ^ 1]), at)
            assert cache._read(path) is None, at
            os.pwrite(file.fileno(), bytes([byte]), at)
    assert cache.damaged == len(whole)


def test_a_cut_or_grown_file_is_seen(folder: Path) -> None:
    """Every shorter file, the empty one too, and a longer one are damaged."""
    cache = ObjectCache(folder)
    cache.get(SMALL, detect())
    (path,) = folder.glob("*.o")
    whole = path.read_bytes()
    for length in [*range(0, 64), *range(64, len(whole), 37), len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert cache._read(path) is None, length
    path.write_bytes(whole + b"\0")
    assert cache._read(path) is None


@pytest.mark.parametrize("at", [0, len(MAGIC), len(MAGIC) + 32, -1])
def test_a_damaged_entry_is_rebuilt(folder: Path, at: int) -> None:
    """What is loaded is a fresh build, and the file is whole again."""
    data = ObjectCache(folder).get(SMALL, detect())
    (path,) = folder.glob("*.o")
    whole = bytearray(path.read_bytes())
    whole[at] ^= 0x40
    path.write_bytes(whole)
    cache = ObjectCache(folder)
    library = Library(detect(), cache)

    assert library.address(SMALL)
    assert (cache.damaged, cache.builds, cache.hits) == (1, 1, 0)
    assert ObjectCache(folder).get(SMALL, detect()) == data


def test_entries_under_each_others_names_are_rebuilt(folder: Path) -> None:
    """A whole object of another kernel is not the one that its name says: it is built again."""
    specs = [SMALL, spec(argmax_part), spec(embed, fmt="f16")]
    first = ObjectCache(folder)
    whole = [first.get(one, detect()) for one in specs]
    paths = sorted(folder.glob("*.o"))
    blobs = [path.read_bytes() for path in paths]
    for path, other in zip(paths, [*blobs[1:], blobs[0]], strict=True):
        path.write_bytes(other)

    cache = ObjectCache(folder)
    library = Library(detect(), cache)
    library.load(specs)
    assert all(library.address(one) for one in specs)
    assert (cache.damaged, cache.builds, cache.hits) == (3, 3, 0)
    again = ObjectCache(folder)
    assert [again.get(one, detect()) for one in specs] == whole
    assert again.hits == 3


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to_is_not_used(folder: Path, mode: int) -> None:
    """Whoever could put an object there could have us run it: kernels are built afresh instead."""
    folder.mkdir()
    folder.chmod(mode)
    cache = ObjectCache(folder)
    cache.get(SMALL, detect())

    assert cache.folder is None
    assert not list(folder.iterdir())


def test_a_folder_of_another_user_is_not_used(folder: Path) -> None:
    """The same for a folder that belongs to somebody else."""
    if not hasattr(os, "getuid") or os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    folder.mkdir()
    os.chown(folder, 12345, -1)
    assert ObjectCache(folder).folder is None


def test_an_object_of_another_user_is_not_used(folder: Path) -> None:
    """Nor one in a folder that was exchanged once it had been looked at."""
    if not hasattr(os, "getuid") or os.getuid() != 0:
        pytest.skip("only root can give a file away")
    cache = ObjectCache(folder)
    data = cache.get(SMALL, detect())
    for path in folder.iterdir():
        os.chown(path, 12345, -1)

    assert cache.get(SMALL, detect()) == data
    assert (cache.hits, cache.builds) == (0, 2)


def test_no_place_for_a_folder(tmp_path: Path) -> None:
    """Where the folder cannot be made, kernels are compiled and not kept."""
    (tmp_path / "file").write_text("")
    cache = ObjectCache(tmp_path / "file" / "kernels")

    assert cache.folder is None
    assert cache.get(SMALL, detect())


def test_a_folder_that_goes_away(folder: Path) -> None:
    """A failed write costs the next start some time, and nothing else."""
    cache = ObjectCache(folder)
    folder.rmdir()
    assert cache.get(SMALL, detect()) == cache.get(SMALL, detect())
    assert cache.builds == 2


def test_new_folders_are_private(folder: Path) -> None:
    """The folder is made for its owner alone."""
    ObjectCache(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_two_processes_at_once(folder: Path) -> None:
    """Processes that build the same kernels into one folder do not disturb each other."""
    code = """
import sys
import threading
from pathlib import Path
from triplepoint.jit.compile import Library, ObjectCache, spec
from triplepoint.jit.kernels.embed import embed
from triplepoint.jit.kernels.gemm import gemm_float
from triplepoint.jit.targets import detect
for _ in range(3):
    cache = ObjectCache(Path(sys.argv[1]))
    Library(detect(), cache).load([spec(embed, fmt=f) for f in ("f32", "f16", "bf16", "q8_0")])
    assert cache.damaged == 0
    for path in Path(sys.argv[1]).glob("*.o"):
        path.unlink(missing_ok=True)
"""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(folder)], stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert not [path for path in folder.iterdir() if path.name.startswith(".new-")]


def test_default_folder_is_the_users_cache() -> None:
    """Objects go to the user's cache, in a folder of their own."""
    assert default_folder().parts[-2:] == ("triplepoint", "kernels")


# --- objects


@kernel
def calls_out(k: Kernel, x: F32s) -> None:
    """Wants expf from the C library."""
    with k.units():
        x.store(0, k.intrinsic("llvm.exp", x.load(0)))


def test_undefined_symbols_are_found() -> None:
    """What every kernel test looks for is seen where it is: here a call of expf."""
    for target in (detect(), TARGETS["avx2"], TARGETS["neon"]):
        assert undefined_symbols(build_object(spec(calls_out), target)) == ["expf"]


def test_assembly_is_what_the_object_holds() -> None:
    """Assembly and object come from the same code, for targets of other hosts too."""
    for target in (TARGETS["neon-dotprod"], TARGETS["avx512-vnni"]):
        data = build_object(SMALL, target)
        assert data[:4] == b"\x7fELF"
        assert SMALL.symbol(target) in build_ir(SMALL, target)
        assert SMALL.symbol(target) in build_assembly(SMALL, target)
        assert target.dot in KEY_INSTRUCTION


@kernel
def refused(k: Kernel, x: I32s) -> None:
    """An intrinsic with operands of the wrong type."""
    k.call("llvm.sqrt.f32", f32, [x.load(0)])


@pytest.mark.parametrize("name", ["avx2", "avx512"])
def test_wide_registers_are_spilled_to_whole_cache_lines(name: str) -> None:
    """A register on the stack lies at a multiple of its size: else it would be in two lines."""
    target = TARGETS[name]

    @kernel
    def crowded(k: Kernel, x: F32s) -> None:
        with k.units() as unit:
            values = [x.load(unit + n, k.lanes) for n in range(2 * target.registers)]
            for n, value in enumerate(values):
                x.store(n * k.lanes, value)

    lines = build_assembly(spec(crowded), target).splitlines()
    spills = [line for line in lines if "mm" in line and "(%rsp)" in line]

    assert spills
    assert all(line.split()[0].startswith("vmova") for line in spills), spills[:2]
    assert any(line.split() == ["andq", f"$-{target.bits // 8},", "%rsp"] for line in lines)


def test_switches_are_for_some_targets_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's switches are the process's: they are as before when a kernel that sets one is done."""
    product = spec(gemm_float, fmt="f32", epilogue="store")
    other = build_object(product, TARGETS["avx512"])
    set_so = build_object(product, TARGETS["avx2"])
    again = build_object(product, TARGETS["avx512"])
    monkeypatch.setattr(module, "switches", lambda _: {})
    without = build_object(product, TARGETS["avx2"])

    assert other == again
    assert set_so != without


def test_kernels_of_two_targets_at_once() -> None:
    """Each is compiled with its own switches, whatever the others set."""
    product = spec(gemm_float, fmt="f32", epilogue="store")
    targets = [TARGETS[name] for name in ("avx2", "avx512", "x86-64-v2", "avx2", "avx512")]
    want = [build_object(product, target) for target in targets]

    with ThreadPoolExecutor(5) as threads:
        assert list(threads.map(lambda target: build_object(product, target), targets)) == want


def test_a_kernel_that_llvm_refuses() -> None:
    """The error names the kernel and the target."""
    with pytest.raises(CompileError, match=rf"LLVM refused kernel refused\(\) for {detect()}"):
        build_object(spec(refused), detect())


def test_two_threads_load_the_same_kernel(folder: Path) -> None:
    """It is built and loaded once: code that one thread runs is not freed by the other."""
    library, together = Library(detect(), ObjectCache(folder)), threading.Barrier(2)

    def load(_: int) -> int:
        together.wait(30)
        return library.address(SMALL)

    with ThreadPoolExecutor(2) as threads:
        addresses = list(threads.map(load, range(2)))

    assert addresses[0] == addresses[1]
    assert (library.cache.builds, library.cache.hits) == (1, 0)


def test_a_target_of_another_machine_is_not_loaded() -> None:
    """Its facts are at hand and compiling for it is fine; loading is refused."""
    foreign = next(t for t in TARGETS.values() if t not in runnable())
    library = Library(foreign, ObjectCache(None))
    with pytest.raises(
        CompileError, match=f"cannot load kernels for {foreign}: this machine lacks"
    ):
        library.load([SMALL])
    assert library.cache.builds == 0


# --- memory


def _mappings() -> dict[str, str]:
    """Address range to permissions, from /proc/self/maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[0]: line.split()[1] for line in lines}


@kernel
def with_constants(k: Kernel, x: F32s) -> None:
    """Has constants of its own, so that its object has data beside its code."""
    with k.units():
        value: Value = x.load(0, 4) * k.f32(3.25, 4)
        x.store(0, value.shuffle([2, 0, 3, 1]))


@pytest.mark.slow
def test_no_page_is_writable_and_executable() -> None:
    """Loaded kernels are executable and read-only; nothing new is writable and executable."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("this system has no /proc/self/maps")
    before = _mappings()
    library = Library(detect(), ObjectCache(None))
    library.load([spec(with_constants), SMALL, spec(embed, fmt="q4_0")])
    gc.collect()
    after = _mappings()
    fresh = {where: how for where, how in after.items() if before.get(where) != how}

    assert not [where for where, how in fresh.items() if "w" in how and "x" in how]
    address = library.address(SMALL)
    ranges = {tuple(int(n, 16) for n in where.split("-")): how for where, how in after.items()}
    (how,) = [how for (start, end), how in ranges.items() if start <= address < end]
    assert how.startswith("r-x")
