"""Each kernel alone, at the shapes of a real model, with the peaks of the same feature set.

The ops are built by the same `GraphBuilder` that builds a model's pass, and run by the same
threads; the ones that are not measured are dropped. Few tokens read their weights or their KV cache
from DRAM, as a pass does: the tape goes through copies that no cache holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

from triplepoint.errors import SettingError
from triplepoint.jit.compile import Library
from triplepoint.jit.kernels.kvcache import PAGE, KVFormat, value_format
from triplepoint.jit.kernels.microbench import Peak
from triplepoint.jit.kernels.panels import FORMATS, Format
from triplepoint.jit.kernels.rope import tables
from triplepoint.jit.kernels.sign_magnitude import EIGHT_BITS
from triplepoint.jit.pool import Pool
from triplepoint.jit.tape import CompiledTape, Op, Tape
from triplepoint.jit.targets import CpuTarget
from triplepoint.runtime.forward import experts
from triplepoint.runtime.forward.batch import Span
from triplepoint.runtime.forward.graph import GraphBuilder
from triplepoint.runtime.forward.kv import KVCache, KVLayout
from triplepoint.runtime.forward.logits import OutputBuffers, argmax_ops
from triplepoint.runtime.forward.tensors import (
    Activation,
    AttentionSpec,
    HeadShape,
    Workspace,
    padded,
)
from triplepoint.runtime.memory import Arena
from triplepoint.runtime.physics.machine import (
    MachineProfile,
    RooflineProbe,
    beyond_caches,
    pool_size,
    run_tape,
)
from triplepoint.runtime.weights.matrix import Matrix

KERNELS = ("gemm", "experts", "attention", "prepare", "rope", "argmax")
SHAPES = ((3072, 1024), (1024, 3072), (9728, 2560))  # rows, depth: two of Qwen3-0.6B, one of 4B
TOKENS = (1, 13, 252)
EXPERTS, USED, EXPERT_ROWS, EXPERT_DEPTH = 128, 8, 768, 2048  # Qwen3-30B-A3B
EXPERT_FORMATS = ("q4_0", "q4_k")
HEADS = HeadShape(16, 8, 128)
POSITIONS = ((1, 1024), (1, 4096), (252, 0), (252, 4096))  # tokens, positions before them
VOCABULARY = 151936
WIDTH = 1024
STREAM = 16  # up to so many tokens the weights come from DRAM
STREAM_BYTES = 128 << 20  # what is streamed at least; more where L3 is large
TIMES = 32  # ops of one run, for kernels that work in the caches
RUN_S = 0.02  # about how long one run of a tape that works in the caches should take
EPS = 1e-6


@dataclass(frozen=True)
class KernelCase:
    """The work of one op.

    Attributes:
        kernel, variant, shape: what it is, how its data are stored, how large they are.
        tokens, depth: tokens of the pass, positions in the KV cache before them.
        operations, nbytes: of one op; peak: which arithmetic peak it draws on.
    """

    kernel: str
    variant: str
    shape: str
    tokens: int
    depth: int
    operations: float
    nbytes: float
    peak: str


@dataclass(frozen=True)
class KernelResult:
    """The times of one kernel, in seconds an op, one for each repetition.

    Attributes:
        level: where its data come from; limits: the limits around each repetition.
    """

    target: str
    threads: int
    work: KernelCase
    level: str
    seconds: tuple[float, ...]
    limits: tuple[MachineProfile, ...]

    @property
    def median(self) -> float:
        """Median seconds of one op."""
        return statistics.median(self.seconds)

    @property
    def gops(self) -> float:
        """10^9 operations per second."""
        return self.work.operations / self.median / 1e9

    @property
    def gbps(self) -> float:
        """10^9 bytes per second."""
        return self.work.nbytes / self.median / 1e9

    @property
    def bound(self) -> str:
        """The limit that takes longest: a peak, or the level that is read."""
        return statistics.mode(max(self._minimum(limits))[1] for limits in self.limits)

    @property
    def shares(self) -> list[float]:
        """Share of that limit that each repetition reached."""
        pairs = zip(self.limits, self.seconds, strict=True)
        return [max(self._minimum(limits))[0] / s for limits, s in pairs]

    @property
    def share(self) -> float:
        """Median of these."""
        return statistics.median(self.shares)

    def _minimum(self, limits: MachineProfile) -> list[tuple[float, str]]:
        """Return the minimum seconds of the arithmetic and the bytes."""
        return [
            (self.work.operations / peak_rate(limits, self.work.peak), self.work.peak),
            (self.work.nbytes / limits.bandwidth(self.level), self.level),
        ]


def peak_rate(limits: MachineProfile, peak: str) -> float:
    """Return the operations per second of a named arithmetic peak."""
    gops = {
        "int8": limits.int8_gops,
        "w8a8": limits.w8a8_gops,
        "bf16": limits.bf16_gflops,
        "fp32": limits.fp32_gflops,
    }
    return gops[peak] * 1e9


def run(
    target: CpuTarget,
    *,
    threads: int | None = None,
    kernels: Sequence[str] = (),
    repeat: int = 5,
) -> Iterator[KernelResult]:
    """Measure the kernels of one feature set, each after a warm-up.

    Args:
        kernels: some of `KERNELS`; none of them: all.

    Raises:
        SettingError: there is no such kernel.
    """
    unknown = [name for name in kernels if name not in KERNELS]
    if unknown:
        raise SettingError(f"unknown kernel {unknown[0]!r}; known: {', '.join(KERNELS)}")
    library = Library(target)
    with Pool(library, pool_size(threads)) as pool:
        bench = _Bench(library, pool)
        for name in kernels or KERNELS:
            for built in getattr(bench, name)():
                yield bench.measure(built, repeat)


@dataclass(frozen=True, slots=True)
class _Built:
    """Ops that do `work` so many times; `own_data`: each time on data of its own.

    `cache` is kept because its pages are known to the kernels by address only.
    """

    work: KernelCase
    ops: list[Op]
    times: int
    own_data: bool
    cache: KVCache | None = None


class _Bench:
    """The builder of each kernel's ops."""

    def __init__(self, library: Library, pool: Pool) -> None:
        self.library, self.pool, self.target = library, pool, library.target
        self.limits = RooflineProbe(library, pool)
        self.first = self.limits.sample()
        self.random = np.random.default_rng(1)
        self.stream_bytes = beyond_caches(STREAM_BYTES)
        self.buffers = Workspace()
        self._bytes: np.ndarray | None = None

    def measure(self, built: _Built, repeat: int) -> KernelResult:
        """Run the ops between samples of the limits."""
        work, tape = built.work, self._tape(built.ops)
        level = self.first.level_of(work.nbytes * (built.times if built.own_data else 1))
        run_tape(tape)
        seconds, limits, before = [], [], self.limits.sample()
        for _ in range(repeat):
            if level != "DRAM":
                run_tape(tape)  # the limits' probes have had the caches
            seconds.append(run_tape(tape) / built.times)
            after = self.limits.sample()
            limits.append(before.merged(after))
            before = after
        name = str(self.target)
        return KernelResult(name, self.pool.threads, work, level, tuple(seconds), tuple(limits))

    # --- the kernels

    def gemm(self) -> Iterator[_Built]:
        """Measure products with weights of every format."""
        for form in FORMATS.values():
            for rows, depth in SHAPES:
                for tokens in TOKENS:
                    yield self._gemm(form, rows, depth, tokens)

    def _gemm(self, form: Format, rows: int, depth: int, tokens: int) -> _Built:
        size = rows // (2 * self.target.lanes)
        size *= form.panel_bytes(depth // form.block, self.target.lanes)
        peak = ("w8a8" if form.name in EIGHT_BITS else "int8") if form.quantized else "fp32"
        work = KernelCase(
            "gemm", form.name, f"{rows}x{depth}", tokens, 0, 2.0 * rows * depth * tokens,
            float(size + 4 * tokens * (rows + depth)), peak,
        )  # fmt: skip
        graph = self._graph(tokens)
        x = Activation(self._activations(tokens, padded(depth)), depth)
        matrices = [
            self._matrix(form, rows, depth, size, n) for n in range(self._copies(work, size))
        ]
        ready = graph.norm(x, np.ones(x.stride, np.float32), EPS, matrices[:1], "norm")
        for matrix in matrices:
            graph.matmul(matrix, ready, "gemm")
        return _Built(work, self._keep(graph, "gemm"), len(matrices), own_data=True)

    def experts(self) -> Iterator[_Built]:
        """Measure routing, and the fused gate and up products of the chosen experts."""
        for name in EXPERT_FORMATS:
            for tokens in TOKENS:
                yield self._experts(FORMATS[name], tokens)

    def _experts(self, form: Format, tokens: int) -> _Built:
        units = EXPERT_ROWS // self.target.lanes
        blocks = EXPERT_DEPTH // form.block
        size = units * form.panel_bytes(blocks, self.target.lanes)
        touched = EXPERTS * (1 - (1 - USED / EXPERTS) ** tokens)
        work = KernelCase(
            "experts", form.name, f"{USED}/{EXPERTS}x{2 * EXPERT_ROWS}x{EXPERT_DEPTH}", tokens, 0,
            4.0 * EXPERT_ROWS * EXPERT_DEPTH * tokens * USED,
            touched * size + 4.0 * tokens * (EXPERT_DEPTH + USED * EXPERT_ROWS), "int8",
        )  # fmt: skip
        panels = self._data(EXPERTS * size)[: EXPERTS * size]
        matrix = Matrix(form, EXPERT_ROWS, EXPERT_DEPTH, units, True, (), panels, EXPERTS)
        graph = self._graph(tokens)
        x = Activation(self._activations(tokens, EXPERT_DEPTH), EXPERT_DEPTH)
        ready = graph.norm(x, np.ones(EXPERT_DEPTH, np.float32), EPS, [matrix], "norm")
        times = max(1, int(self.stream_bytes / work.nbytes))
        for n in range(times):
            # Each time other experts: those of the last time are in the caches.
            scores = self.random.standard_normal((tokens, padded(EXPERTS)), np.float32)
            how = experts.RoutingSpec(USED)
            to = experts.route(graph, Activation(scores, EXPERTS), how, matrix, matrix)
            experts.gated(graph, matrix, ready, to, "silu", f"experts.{n}")
        return _Built(work, self._keep(graph, "experts", "route", "group"), times, own_data=True)

    def attention(self) -> Iterator[_Built]:
        """Measure attention over a KV cache of every format."""
        for kv in get_args(KVFormat):
            for tokens, before in POSITIONS:
                size = self._cache_bytes(kv, before + tokens)
                seen = tokens * (before + (tokens + 1) / 2)
                work = KernelCase(
                    "attention", kv, _heads(), tokens, before,
                    4.0 * HEADS.heads * HEADS.head_dim * seen,
                    size + 8.0 * tokens * HEADS.heads * HEADS.head_dim,
                    self._attention_peak(kv),
                )  # fmt: skip
                yield self._attend(work, self._copies(work, size), own_data=True)

    def _attention_peak(self, kv: KVFormat) -> Peak:
        if value_format(kv) == "q8":
            return "int8"
        return "bf16" if kv == "bf16" and self.target.bf16 != "none" else "fp32"

    def rope(self) -> Iterator[_Built]:
        """Measure rotation and the write to the cache."""
        for kv in get_args(KVFormat):
            for tokens in (1, 252):
                values = (HEADS.heads * 2 + HEADS.kv_heads * 2) * HEADS.head_dim * 4
                nbytes = tokens * float(values) + self._cache_bytes(kv, tokens)
                work = KernelCase("rope", kv, _heads(), tokens, 0, 0.0, nbytes, "fp32")
                yield self._attend(work, TIMES, own_data=False)

    def prepare(self) -> Iterator[_Built]:
        """Measure RMSNorm and quantization."""
        for form in _preparations(self.target):
            for tokens in (1, 252):
                graph = self._graph(tokens)
                x = Activation(self._activations(tokens, WIDTH), WIDTH)
                matrix = Matrix(form, 32, WIDTH, 1, False, (), np.empty(0, np.uint8))
                for _ in range(TIMES):
                    graph.norm(x, np.ones(WIDTH, np.float32), EPS, [matrix], "prepare")
                nbytes = tokens * WIDTH * (4.0 + (40 / 32 if form.quantized else 4.0))
                work = KernelCase("prepare", form.name, str(WIDTH), tokens, 0, 0.0, nbytes, "fp32")
                yield _Built(work, self._keep(graph, "prepare"), TIMES, own_data=False)

    def argmax(self) -> Iterator[_Built]:
        """Measure the greedy choice, its final stage included."""
        graph, choice = self._graph(1), OutputBuffers(VOCABULARY)
        choice.logits[:] = self.random.standard_normal(choice.logits.shape, np.float32)
        for _ in range(TIMES):
            argmax_ops(graph.tape, choice)
        work = KernelCase("argmax", "f32", str(VOCABULARY), 1, 0, 0.0, 4.0 * VOCABULARY, "fp32")
        yield _Built(work, self._keep(graph, "argmax"), TIMES, own_data=False)

    # --- how it is done

    def _graph(self, tokens: int, cache: KVCache | None = None) -> GraphBuilder:
        cache = cache or KVCache(_layout("bf16", 1, 1), 1)
        threads = self.pool.threads
        graph = GraphBuilder(
            "bench", self.target, threads, tokens, self.buffers, HEADS, cache.layout
        )
        graph.set_pass([Span(cache.table, 0, [0] * tokens)])
        return graph

    def _keep(self, graph: GraphBuilder, *names: str) -> list[Op]:
        """Return the ops of that name; the others are run once, to produce their inputs."""

        def wanted(op: Op) -> bool:
            return op.name.rpartition(".")[2] in names or op.name.startswith(names)

        rest = [op for op in graph.tape.ops if not wanted(op)]
        if rest:
            run_tape(self._tape(rest))
        return [op for op in graph.tape.ops if wanted(op)]

    def _tape(self, ops: list[Op]) -> CompiledTape:
        tape = Tape("bench", self.pool.threads)
        tape.ops = ops
        return tape.finish(self.library, self.pool)

    def _copies(self, work: KernelCase, size: int) -> int:
        """Return the ops of one run, each on data of its own."""
        if work.tokens <= STREAM:
            return max(1, self.stream_bytes // size)
        at_half_peak = work.operations / (0.5 * peak_rate(self.first, work.peak))
        return max(1, min(self.stream_bytes // size, int(RUN_S / at_half_peak)))

    def _attend(self, work: KernelCase, layers: int, *, own_data: bool) -> _Built:
        """Run attention in so many layers; return the ops of the work's kernel."""
        tokens, end = work.tokens, work.depth + work.tokens
        kv: KVFormat = work.variant  # pyright: ignore[reportAssignmentType]
        cache = KVCache(_layout(kv, layers, end), end)
        cache.reserve(end)
        # Keys and values as a model stores them, in every position: other bytes make scores so far
        # apart that probabilities become denormals, which a Xeon takes many times as long for.
        self._keep(self._layers(cache, layers, 0, end), "attention")
        graph = self._layers(cache, layers, work.depth, tokens)
        return _Built(work, self._keep(graph, work.kernel), layers, own_data, cache)

    def _layers(self, cache: KVCache, layers: int, start: int, tokens: int) -> GraphBuilder:
        """Run attention of so many tokens from position `start` on, in so many layers."""
        graph = self._graph(tokens, cache)
        graph.set_pass([Span(cache.table, start, [0] * tokens)])
        ones = np.ones(HEADS.head_dim, np.float32)
        rule = AttentionSpec(HEADS.head_dim**-0.5)
        q = Activation(self._activations(tokens, HEADS.heads * HEADS.head_dim), 0)
        k = Activation(self._activations(tokens, HEADS.kv_heads * HEADS.head_dim), 0)
        for layer in range(layers):
            with graph.layer(layer):
                graph.attend(q, k, k, rule, norms=(ones, ones), eps=EPS)
        return graph

    def _activations(self, tokens: int, width: int) -> np.ndarray:
        x = self.buffers.get(f"x{width}", tokens, width)[:tokens]
        x[:] = self.random.standard_normal(x.shape, np.float32)
        return x

    def _matrix(self, form: Format, rows: int, depth: int, size: int, number: int) -> Matrix:
        at = number * size
        panels = self._data(at + size)[at : at + size]
        return Matrix(form, rows, depth, rows // (2 * self.target.lanes), False, (), panels)

    def _data(self, size: int) -> np.ndarray:
        """Return at least `size` bytes that are small normal numbers in every float format."""
        if self._bytes is None or len(self._bytes) < size:
            size = max(size, self.stream_bytes)
            self._bytes = Arena(size).take(size)
            some = self.random.integers(0x20, 0x40, 1 << 20, np.uint8)
            self._bytes[:] = np.resize(some, size)
        return self._bytes

    def _cache_bytes(self, kv: KVFormat, positions: int) -> int:
        return int(_layout(kv, 1, 1).page_bytes / PAGE * positions)


def _layout(kv: KVFormat, layers: int, positions: int) -> KVLayout:
    capacity = -(-positions // PAGE) * PAGE
    rotary = [tables(capacity, HEADS.head_dim, 1e6)]
    return KVLayout(kv, [HEADS] * layers, capacity, rotary)


def _heads() -> str:
    return f"{HEADS.heads}/{HEADS.kv_heads}x{HEADS.head_dim}"


def _preparations(target: CpuTarget) -> list[Format]:
    """Return one format for each form of prepared activations."""
    ways: dict[Any, Format] = {}
    for form in FORMATS.values():
        ways.setdefault(form.activation(target, WIDTH).kind, form)
    return list(ways.values())
