"""``triplepoint doctor``: this CPU, the target chosen for it and why, limits, caches, versions."""

from __future__ import annotations

import argparse
import platform
from dataclasses import asdict
from importlib import metadata
from typing import Any

import llvmlite.binding as llvm

from ....errors import SettingError
from ....jit import targets
from ....jit.compile import Library
from ....jit.pool import Pool
from ....jit.targets import resolve
from ....traces.timeline import duration
from ...engine.policy.choices import choose_pages
from ...hub.progress import size_text
from ...physics import machine, register_tiles, thread_sweep
from ...physics.energy import EnergyMeter
from ...physics.huge_pages import page_gain
from ...physics.machine import DOUBT, DOUBTFUL_SAMPLES, log, physical_cores, pool_size
from ...physics.thread_sweep import ThreadSweep
from ..output import Output
from ..tables import block
from .disk_usage import disk_usage

LEVELS = ("L1", "L2", "L3", "DRAM")
_PACKAGES = (
    "triplepoint",
    "numpy",
    "llvmlite",
    "tokenizers",
    "llguidance",
    "jinja2",
    "pydantic",
    "structlog",
    "httpx",
    "huggingface_hub",
    "rich",
)


def run(args: argparse.Namespace, output: Output) -> None:
    """Print the reports on CPU target, machine limits, tuning, caches and versions."""
    if args.agent:
        from .tune import run as tune

        return tune(args, output)
    if args.model:
        raise SettingError("-m is for doctor --agent; without it doctor is about this machine")
    count = None if args.threads is None else pool_size(args.threads)
    target, versions = target_report(), version_report()
    library = Library(resolve(target["name"]))
    _show_target(output, target)
    machine = machine_report(library, count, remeasure=args.measure)
    _show_machine(output, machine)
    swept = sweep_report(library, count, remeasure=args.measure)
    if swept is not None:
        _show_sweep(output, swept)
    tuning = tuning_report(library, count)
    _show_tuning(output, tuning)
    caches = cache_report()
    _show_caches(output, caches)
    block(output, "versions", list(versions.items()))
    threads = None if swept is None else asdict(swept)
    report = {"target": target, "machine": machine, "threads": threads, "tuning": tuning}
    output.json({**report, "caches": caches, "versions": versions})


def target_report() -> dict[str, Any]:
    """Return the CPU target in use, and the features that each other target lacks here."""
    chosen = targets.chosen()
    arch = targets.host_arch()
    lacks = {
        target.name: targets.missing(target)
        for target in targets.TARGETS.values()
        if target.arch in ("any", arch)
    }
    return {
        "name": chosen.name,
        "best": targets.detect().name,
        "arch": arch,
        "vector_bits": chosen.bits,
        "integer_dot": chosen.dot,
        "uses": list(chosen.needs),
        "lacks": lacks,
        "slower_than": {t.name: targets.slower_than(t) for t in targets.runnable()},
    }


def machine_report(library: Library, threads: int | None, *, remeasure: bool) -> dict[str, Any]:
    """Return the CPU and its limits; measure them, in half a second, if they are not cached."""
    with _pool(library, threads) as pool:
        if remeasure:
            of_pool = f"{library.target.name}-{pool.threads}t-*.json"
            for old in machine.profile_folder().glob(of_pool):
                old.unlink(missing_ok=True)
        profile = machine.profile(library, pool)
    cores = machine.physical_cores()
    more = {"doubtful": profile.doubtful, "joules": EnergyMeter().joules() is not None}
    return {"physical_cores": cores, **profile.as_dict(), **more}


def sweep_report(library: Library, threads: int | None, *, remeasure: bool) -> ThreadSweep | None:
    """Return the limits by number of threads: measured on request, else from the cache, if any.

    A measurement also finds the fastest register tiles, for engines that are loaded later.
    """
    if not remeasure:
        return thread_sweep.load(library)
    log.info("measuring by number of threads (20 s at most) …")
    with _pool(library, threads) as pool:
        register_tiles.save(register_tiles.measure(library, pool), library)
    found = thread_sweep.sweep(library, None if threads is None else [threads])
    if threads is None:
        thread_sweep.save(found)
    return found


def tuning_report(library: Library, threads: int | None) -> dict[str, Any]:
    """Return the execution policy that depends on the machine alone, and the reasons for it."""
    with _pool(library, threads) as pool:
        pages = choose_pages(page_gain(library, pool))
        return {"threads_most": pool.threads, "pages": bool(pages.value), "pages_why": pages.why}


def _pool(library: Library, threads: int | None) -> Pool:
    """Start this many threads, or one for each physical core."""
    return Pool(library, threads or physical_cores())


def cache_report() -> list[dict[str, Any]]:
    """Return path, number and size of our files on disk, by kind."""
    return [
        {"path": str(k.path), "what": k.what, "files": k.files, "bytes": k.nbytes}
        for k in disk_usage()
    ]


def version_report() -> dict[str, str]:
    """Return the versions of Python, the system and the packages that the engine uses."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    found["llvm"] = ".".join(map(str, llvm.llvm_version_info))
    return found


def _show_target(output: Output, target: dict[str, Any]) -> None:
    why = "the best that this CPU can run"
    if target["name"] != target["best"]:
        why = f"set by TRIPLEPOINT_TARGET; the best would be {target['best']}"
    rows = [
        ("name", f"{target['name']}, {why}"),
        ("vectors", f"{target['vector_bits']} bits, integer dot by {target['integer_dot']}"),
        ("uses", " ".join(target["uses"]) or "nothing special"),
    ]
    rows += [
        (name, f"lacks {', '.join(lacks)}") for name, lacks in target["lacks"].items() if lacks
    ]
    rows += [
        (name, f"runs, but {better} is faster on this CPU")
        for name, better in target["slower_than"].items()
        if better
    ]
    block(output, "target", rows)


def _show_machine(output: Output, machine: dict[str, Any]) -> None:
    cores, physical = machine["cores"], machine["physical_cores"]
    siblings = "" if physical == cores else f", {physical} without their SMT siblings"
    sizes = ", ".join(f"{level} {_size(size)}" for level, size in machine["caches"].items())
    rows = [("name", machine["cpu"]), ("cores", f"{cores} usable{siblings}"), ("caches", sizes)]
    why = "" if machine["joules"] else "not: no counters that this user may read in "
    rows.append(("joules", f"{why}/sys/class/powercap"))
    block(output, "cpu", rows)
    rows = [(f"read {level}", f"{gb:,.1f} GB/s") for level, gb in machine["read_gbps"].items()]
    rows += [
        ("int8", f"{machine['int8_gops']:,.0f} GOP/s"),
        ("bf16", f"{machine['bf16_gflops']:,.0f} GFLOP/s"),
        ("fp32", f"{machine['fp32_gflops']:,.0f} GFLOP/s"),
        ("barrier", duration(machine["barrier_s"])),
    ]
    if machine["doubtful"]:
        rows.append(("doubtful", _doubt(machine)))
    threads = f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}"
    block(output, f"limits with {threads}, measured {machine['date']}", rows)


def _doubt(machine: dict[str, Any]) -> str:
    """Describe how far the limits were disturbed, and when they are measured again."""
    spread, waited = (max(machine[name].values()) for name in ("spread", "run_delay"))
    left = DOUBTFUL_SAMPLES - machine["samples"]
    again = "`doctor --measure` measures again"
    if left > 0:
        again = f"the next {left} run{'s' * (left > 1)} measure again, until the machine is quiet"
    return f"{DOUBT} (repeats up to {1 + spread:.1f}× apart, {waited:.0%} without a core); {again}"


def _show_sweep(output: Output, found: ThreadSweep) -> None:
    """Print a row of limits for each number of threads, with the max spread of the repeats."""
    seen = found.topology
    shared = f"; {seen.domains} shared caches, {seen.nodes} NUMA nodes" * (seen.domains > 1)
    siblings, (low, high) = seen.usable - seen.physical, seen.mhz
    huge = ", ".join(_size(size) for size in seen.huge_page_bytes) or "none"
    rows = [
        ("cores", f"{seen.physical} physical, {siblings} SMT, {seen.slow} slow{shared}"),
        (
            "clock",
            f"{low:,.0f} to {high:,.0f} MHz, as reported by the system" if high else "unknown",
        ),
        ("pages", f"{_size(seen.page_bytes)}; large {huge}; {seen.transparent or 'unknown'}"),
    ]
    heads = [*(f"read {level}" for level in LEVELS), "int8", "bf16", "fp32", "barrier", "spread"]
    rows.append(("threads", "".join(f"{head:>10}" for head in heads)))
    for p in found.profiles:
        cells = [f"{p.read_gbps[level]:,.1f}" for level in LEVELS]
        cells += [f"{rate:,.0f}" for rate in (p.int8_gops, p.bf16_gflops, p.fp32_gflops)]
        cells += [f"{p.barrier_s * 1e9:,.0f} ns", f"{max(p.spread.values(), default=0):.0%}"]
        doubt = "  doubtful" * p.doubtful
        rows.append((str(p.threads), "".join(f"{cell:>10}" for cell in cells) + doubt))
    if found.left_out:
        rows.append(("left out", f"{', '.join(map(str, found.left_out))}: no time was left"))
    block(output, f"by threads, in GB/s and GOP/s, measured {found.date}", rows)


def _show_tuning(output: Output, found: dict[str, Any]) -> None:
    most = found["threads_most"]
    each = "1" if most == 1 else f"1 to {most}, chosen automatically for each pass"
    rows = [
        ("threads", each),
        ("large pages", f"{'on' if found['pages'] else 'off'}: {found['pages_why']}"),
        ("the rest", "prefill chunk, KV split, spin time: chosen when a model is loaded"),
    ]
    block(output, "execution policy of this machine", rows)


def _show_caches(output: Output, caches: list[dict[str, Any]]) -> None:
    rows = [
        (
            c["path"],
            f"{c['files']} file{'s' * (c['files'] != 1)}, {size_text(c['bytes'])}, {c['what']}",
        )
        for c in caches
    ]
    block(output, "files on disk", rows)


def _size(count: float) -> str:
    """Format a hardware size in powers of two; `size_text` formats sizes of files."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
