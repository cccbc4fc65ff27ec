"""``triplepoint bench``: a model's speed, its speed beside llama.cpp's, and each kernel's."""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import SettingError
from ...traces.sanitize import printable
from .load_engine import choose_model, load_engine
from .output import Output
from .tables import Column, Form, Row, between, percent, rate, show

if TYPE_CHECKING:
    from ..bench.compare import Pair
    from ..bench.kernels import KernelResult
    from ..bench.runner import Case, Result
    from ..inference.engine import Engine
    from ..physics.machine import MachineProfile


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print; a row is printed as soon as it is known."""
    form: Form = "json" if args.json else args.output
    if args.trace is not None:
        from . import bench_trace

        return bench_trace.run(args, output, form)
    choose_model(args)
    if args.kernels is not None:
        return _kernels(args, output, form)
    if args.predict is not None:
        from . import bench_predict

        return bench_predict.run(args, output, form)
    if args.ablate is not None:
        from . import bench_ablation

        return bench_ablation.run(args, output, form)
    if args.causal is not None:
        from . import bench_causal

        return bench_causal.run(args, output, form)
    if args.batch is not None:
        from . import bench_batch

        return bench_batch.run(args, output, form)
    if args.agents is not None:
        from . import bench_agents

        return bench_agents.run(args, output, form)
    if args.beside is not None:
        from . import bench_beside

        return bench_beside.run(args, output, form)
    if args.sweep is not None:
        from . import bench_sweep

        return bench_sweep.run(args, output, form)
    from ..bench.runner import cases

    if args.workload and args.ablate is None:
        raise SettingError(
            "--workload is for --ablate: it names a trace whose phases are run as well"
        )
    todo = args.tests or cases(args.n_prompt, args.n_gen, args.n_depth)
    if not todo:
        raise SettingError("nothing to measure: every length is 0")
    engine = load_engine(args, output)
    try:
        if args.speculation:
            _speculation(args, output, engine)
        elif args.scenario:
            _scenario(args, output, engine)
        elif args.compare or args.baseline_python:
            _against(args, output, form, engine, todo)
        else:
            _speed(args, output, form, engine, todo)
    finally:
        engine.close()
    return 0


def _scenario(args: argparse.Namespace, output: Output, engine: Engine) -> None:
    from ..bench.scenario import lines, measure

    found = measure(engine, args.repetitions)
    if args.json or args.output == "json":
        output.json({"steps": [one.as_dict() for one in found]})
        return
    for line in lines(found):
        output.line(line)


def _speculation(args: argparse.Namespace, output: Output, engine: Engine) -> None:
    from ..bench.speculation import measure

    report = measure(engine, args.repetitions)
    if args.json or args.output == "json":
        output.json(report.as_dict())
        return
    for line in report.lines():
        output.line(line)


# --- a model's speed


def _speed(
    args: argparse.Namespace, output: Output, form: Form, engine: Engine, todo: Sequence[Case]
) -> None:
    from ..bench import runner as bench
    from ..physics.roofline_probe import RooflineProbe

    limits = RooflineProbe(engine.library, engine.pool)
    results = bench.run(engine, todo, repeat=args.repetitions, limits=limits)
    columns = [
        Column("model", max(len(_model(engine)), 24), is_text=True),
        Column("size", 10),
        Column("params", 9),
        Column("backend", max(len(str(engine.target)), 10), is_text=True),
        Column("threads", 7),
        Column("test", 15),
        Column("t/s", 20),
        Column("min … max", 20),
        Column("of limit", 12),
    ]
    found = []

    def rows() -> Iterator[Row]:
        for result in results:
            found.append(result)
            yield _speed_row(engine, result)

    show(output, form, columns, rows())
    if form == "md":
        _breakdown(output, found)
        notes(output, engine.kv, args.repetitions, limits.samples)


def _speed_row(engine: Engine, result: Result) -> Row:
    model, case = engine.model, result.case
    cells = (
        _model(engine),
        _size(model.path),
        _count(model.parameters),
        str(engine.target),
        str(engine.threads),
        case.name,
        f"{result.median:.2f} ± {result.spread:.2f}",
        between(result.rates),
        f"{percent(result.share)} {result.bound}",
    )
    ns = [seconds * 1e9 for seconds in result.seconds]
    fields = {
        **_about(engine, case),
        "avg_ns": round(statistics.mean(ns)),
        "stddev_ns": round(statistics.stdev(ns)) if len(ns) > 1 else 0,
        "avg_ts": statistics.mean(result.rates),
        "stddev_ts": result.spread,
        "median_ts": result.median,
        "min_ts": min(result.rates),
        "max_ts": max(result.rates),
        "limit": result.bound,
        "limit_share": result.share,
        **_spent(result),
        **_limits(result.limits),
    }
    return Row(cells, fields, _samples(result))


def _breakdown(output: Output, results: Sequence[Result]) -> None:
    """A second table: what the threads' time of each row went into."""
    from ..bench.runner import PARTS

    columns = [Column("test", 15), *(Column(part, 9) for part in PARTS)]
    rows = [Row((r.case.name, *(f"{r.spent[part]:.1%}" for part in PARTS)), {}) for r in results]
    output.line()
    show(output, "md", columns, rows)


# --- ours beside llama.cpp's


def _against(
    args: argparse.Namespace, output: Output, form: Form, engine: Engine, todo: Sequence[Case]
) -> None:
    from ..bench.compare import Baseline, PairedBenchmark
    from ..physics.roofline_probe import RooflineProbe

    limits = RooflineProbe(engine.library, engine.pool)
    with Baseline(args.baseline_python or sys.executable) as peer:
        contest = PairedBenchmark(engine, peer, todo, repeat=args.repetitions, limits=limits)
        columns = [
            Column("test", 15),
            Column("triplepoint t/s", 20),
            Column("llama.cpp t/s", 20),
            Column("its best setting", 18, is_text=True),
            Column("ratio", 12),
            Column("min … max", 13),
            Column("of limit", 12),
            Column("theirs", 6),
        ]
        found = []

        def rows() -> Iterator[Row]:
            for match in contest.run():
                found.append(match.ours)
                yield _match_row(engine, peer.name, match)

        show(output, form, columns, rows())
        if form == "md":
            _breakdown(output, found)
            output.line()
            name = (
                f"{_model(engine)}, {_size(engine.model.path)}, {_count(engine.model.parameters)}"
            )
            output.line(f"{name}; {engine.target} against {peer.name}")
            output.line(f"its build: {printable(peer.system)}")
            notes(output, engine.kv, args.repetitions, limits.samples)
        if peer.idle_cpu_s > 0.1:
            output.error(f"the peer used {peer.idle_cpu_s:.1f} s of CPU while it was our turn")


def _match_row(engine: Engine, peer: str, match: Pair) -> Row:
    ours, best = match.ours, match.best
    cells = (
        match.case.name,
        f"{ours.median:.2f} ± {ours.spread:.2f}",
        f"{best.median:.2f} ± {best.spread:.2f}",
        match.setting,
        f"{match.ratio:.2f} ± {match.ratio_spread:.2f}",
        between(match.ratios),
        f"{percent(ours.share)} {ours.bound}",
        percent(best.share),
    )
    fields = {
        **_about(engine, match.case),
        "peer": peer,
        "peer_setting": match.setting,
        "median_ts": ours.median,
        "peer_median_ts": best.median,
        "ratio": match.ratio,
        "ratio_stddev": match.ratio_spread,
        "ratio_min": min(match.ratios),
        "ratio_max": max(match.ratios),
        "limit": ours.bound,
        "limit_share": ours.share,
        "peer_limit_share": best.share,
        **_spent(ours),
        **_limits(ours.limits),
    }
    theirs = {name: _samples(result) for name, result in match.theirs.items()}
    return Row(cells, fields, {**_samples(ours), "samples_ratio": match.ratios, "theirs": theirs})


# --- each kernel alone


def _kernels(args: argparse.Namespace, output: Output, form: Form) -> int:
    from ...jit import targets
    from ..bench import kernels as bench_kernels

    name = args.target or os.environ.get("TRIPLEPOINT_TARGET")
    chosen = targets.runnable() if name == "all" else [targets.resolve(name)]
    found: list[KernelResult] = []

    def results() -> Iterator[KernelResult]:
        for target in reversed(chosen):
            for result in bench_kernels.run(
                target, threads=args.threads, kernels=args.kernels, repeat=args.repetitions
            ):
                found.append(result)
                yield result

    columns = [
        Column("backend", max(len(str(target)) for target in chosen), is_text=True),
        Column("kernel", 9, is_text=True),
        Column("data", 5, is_text=True),
        Column("shape", 15, is_text=True),
        Column("tokens", 6),
        Column("depth", 5),
        Column("µs", 10),
        Column("GOP/s", 6),
        Column("GB/s", 6),
        Column("of limit", 11),
        Column("min … max", 13),
    ]
    show(output, form, columns, (_kernel_row(result) for result in results()))
    if form == "md":
        for target in reversed(chosen):
            samples = [p for r in found if r.target == str(target) for p in r.limits]
            notes(output, "", args.repetitions, samples)
    return 0


def _kernel_row(result: KernelResult) -> Row:
    work, shares = result.work, result.shares
    cells = (
        result.target,
        work.kernel,
        work.variant,
        work.shape,
        str(work.tokens),
        str(work.depth),
        rate(result.median * 1e6),
        rate(result.gops) if work.operations else "",
        rate(result.gbps),
        f"{percent(result.share)} {result.bound}",
        f"{percent(min(shares))} … {percent(max(shares))}",
    )
    fields = {
        "backends": result.target,
        "n_threads": result.threads,
        "kernel": work.kernel,
        "data": work.variant,
        "shape": work.shape,
        "n_tokens": work.tokens,
        "n_depth": work.depth,
        "median_ns": result.median * 1e9,
        "gops": result.gops,
        "gbps": result.gbps,
        "limit": result.bound,
        "limit_share": result.share,
        "limit_share_min": min(shares),
        "limit_share_max": max(shares),
        **_limits(result.limits),
    }
    samples = {"samples_ns": [s * 1e9 for s in result.seconds], "samples_limit_share": shares}
    return Row(cells, fields, samples)


# --- what all have in common


def _about(engine: Engine, case: Case) -> dict[str, Any]:
    """What was measured, under llama-bench's names."""
    model = engine.model
    return {
        "model_filename": str(model.path),
        "model_type": _model(engine),
        "model_size": _bytes(model.path),
        "model_n_params": model.parameters,
        "cpu_info": engine.machine.cpu,
        "backends": str(engine.target),
        "n_threads": engine.threads,
        "type_k": engine.kv,
        "type_v": engine.kv,
        "n_prompt": case.prompt,
        "n_gen": case.generate,
        "n_depth": case.depth,
        "test_time": _now(),
    }


def _samples(result: Result) -> dict[str, Any]:
    """What only JSON has: every repetition."""
    return {
        "samples_ns": [round(seconds * 1e9) for seconds in result.seconds],
        "samples_ts": result.rates,
        "samples_limit_share": result.shares,
    }


def _spent(result: Result) -> dict[str, float]:
    """The shares of our threads' time."""
    return {f"share_{part}": share for part, share in result.spent.items()}


def _limits(profiles: Iterable[MachineProfile]) -> dict[str, float]:
    """The medians of what was measured beside a row."""
    return {name: statistics.median(values) for name, values in _columns(profiles).items()}


def _columns(profiles: Iterable[MachineProfile]) -> dict[str, list[float]]:
    profiles = list(profiles)
    return {
        "int8_gops": [p.int8_gops for p in profiles],
        "bf16_gflops": [p.bf16_gflops for p in profiles],
        "fp32_gflops": [p.fp32_gflops for p in profiles],
        "dram_gbps": [p.read_gbps["DRAM"] for p in profiles],
    }


def notes(output: Output, kv: str, repeat: int, profiles: Sequence[MachineProfile]) -> None:
    """Under a Markdown table: where, when and how it was measured, and the limits then."""
    first, found = profiles[0], _columns(profiles)
    form = f", {kv} KV" if kv else ""
    output.line()
    output.line(
        f"{printable(first.cpu)}, {_plural(first.cores, 'core')}, "
        f"{_plural(first.threads, 'thread')}, {first.target}"
        f"{form}; {_now()}; medians of {repeat}"
    )
    shown = ("int8_gops", "int8", "GOP/s"), ("bf16_gflops", "bf16", "GFLOP/s")
    shown += ("fp32_gflops", "fp32", "GFLOP/s"), ("dram_gbps", "DRAM read", "GB/s")
    texts = [
        f"{name} {rate(statistics.median(found[key]))} {unit} ({between(found[key])})"
        for key, name, unit in shown
    ]
    output.line("limits in this run, median (min … max): " + ", ".join(texts))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _model(engine: Engine) -> str:
    model = engine.model
    return printable(f"{model.architecture} {model.name} {model.quant}".strip())


def _bytes(path: str | Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:  # a model without a file of its own
        return 0


def _size(path: str | Path) -> str:
    size = _bytes(path)
    return f"{size / 2**30:.2f} GiB" if size >= 2**30 else f"{size / 2**20:.2f} MiB"


def _count(parameters: int) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.2f} B"
    return f"{parameters / 1e6:.2f} M"
