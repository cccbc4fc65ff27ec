"""The memory block that Python and the pool's threads share, and builders of native code for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ir
from .ir import i8, i32, i64, ptr, void
from .targets import CpuTarget, host_arch

# Slots (int64) of the pool's block; each that threads write while others read has its own line.
THREADS, ACTIVE, OPS, N_OPS, START_OP, DEADLINE, SPIN_BARRIER, SPIN_IDLE = range(8)
# A word that threads wait for is followed by the number of those that have parked meanwhile.
START_GEN, START_PARKED = 8, 9
COUNT = 16
GEN, GEN_PARKED = 24, 25
STATS, STATS_STRIDE = 32, 33
STOP = 40
SHUTDOWN, PARKS = 48, 49  # PARKS: times that a worker has parked between two passes
LOCK_FN, UNLOCK_FN, WAIT_FN, BROADCAST_FN, YIELD_FN, MUTEX, COND = range(56, 63)
# ACTIVE_EPOCH changes when more threads run than in the pass before.
ACTIVE_EPOCH, ACTIVE_EPOCH_PARKED, LAST_ACTIVE = 64, 65, 66
# Of elastic passes, see `elastic_executor.py`: the section's word, the groups, how long a thread
# runs before it offers its core to others, the passes so far, when the caller last offered its own.
SECTION, SECTION_PARKED = 72, 73
GROUPS, N_GROUPS, YIELD_AFTER, ELASTIC_PASSES, CALLER_SINCE = range(80, 85)
READ_AHEAD = 85  # bytes that a thread at a barrier asks for of what it will read next, at most
POOL_SLOTS = 88

# An op: 8 slots, one cache line.
OP_FN, OP_ARGS, OP_ARGS_STRIDE, OP_UNITS, OP_MODE, OP_CHUNK, OP_BARRIER, OP_COUNTER = range(8)
OP_BYTES = 64
COUNTER_SLOTS = 8  # a shared op has a counter for each thread's range, each on a line of its own
STATIC, DYNAMIC, REPLICATED = range(3)
# START_GEN counts passes in steps of this; below are the active threads, and of which kind it is.
PASS_STEP, ELASTIC = 1 << 16, 1 << 15

# A group of an elastic pass: ops that one thread runs one after the other on a share of their
# units. 8 slots, one cache line. G_WHOLE: one thread does all.
G_FIRST, G_COUNT, G_WHOLE, G_CHUNK, G_BARRIER, G_COUNTERS = range(6)
GROUP_BYTES = 64

# What the threads will read after a barrier, where OP_BARRIER is an address and not 0 or 1.
A_DATA, A_UNIT_BYTES, A_UNITS = range(3)
AHEAD_SLOTS = 4


class NativeBuilder:
    """The base class of builders that emit native functions into one module."""

    def __init__(self, target: CpuTarget) -> None:
        self.module = ir.Module(target.triple)
        self.arch = target.arch if target.arch != "any" else host_arch()

    def function(
        self, name: str, result: ir.Type, args: list[ir.Type], public: bool = False
    ) -> tuple[ir.Function, ir.Builder]:
        kind = ir.FunctionType(result, args)
        fn = ir.Function(self.module, kind, name, internal=not public)
        return fn, ir.Builder(fn, fn.append_basic_block("entry"))

    def slot(self, b: ir.Builder, base: ir.Value, index: int) -> ir.Value:
        return b.gep(base, i64(index), i64)

    def get(self, b: ir.Builder, base: ir.Value, index: int, type_: ir.Type = i64) -> ir.Value:
        return b.load(self.slot(b, base, index), type_)

    def atomic_load(self, b: ir.Builder, where: ir.Value) -> ir.Value:
        return b.load_atomic(where, "seq_cst")

    def cycles(self, b: ir.Builder) -> ir.Value:
        """Emit a read of the constant-rate counter: TSC on x86, the generic timer on aarch64."""
        if self.arch == "aarch64":
            # readcyclecounter would read PMCCNTR, which traps in user space.
            register = self.module.metadata("cntvct_el0")
            name = "llvm.read_volatile_register.i64"
            return b.call(self.module.declare(name, i64, [register.type]), [register])
        return b.call(self.module.declare("llvm.readcyclecounter", i64, []), [])

    def pause(self, b: ir.Builder) -> None:
        """Emit the spin-loop hint: pause on x86, yield on aarch64."""
        if self.arch == "x86_64":
            b.call(self.module.declare("llvm.x86.sse2.pause", void, []), [])
        elif self.arch == "aarch64":
            b.call(self.module.declare("llvm.aarch64.hint", void, [i32]), [i32(1)])  # yield

    def prefetch(self, b: ir.Builder, address: ir.Value) -> None:
        """Emit a prefetch into L2 of the cache line at an int64 address."""
        kinds = [ptr, i32, i32, i32]
        callee = self.module.declare("llvm.prefetch.p0", void, kinds)
        b.call(callee, [b.inttoptr(address, ptr), i32(0), i32(2), i32(1)])

    def call_slot(self, b: ir.Builder, pool: ir.Value, slot: int, args: list[ir.Value]) -> ir.Value:
        """Emit a call of the C library function whose address is in a slot of the pool."""
        address = self.get(b, pool, slot, ptr)
        kind = ir.FunctionType(i32, [ptr] * len(args))
        return call_address(b, address, kind, args)

    def caller(
        self, b: ir.Builder, op: ir.Value, tid: ir.Value
    ) -> Callable[[ir.Value, ir.Value], object]:
        """Return a function that calls an op's kernel for its units [begin, end) as this thread."""
        kernel, kind = self.get(b, op, OP_FN, ptr), ir.FunctionType(void, [ptr, i64, i64, i64])
        shift = b.mul(tid, self.get(b, op, OP_ARGS_STRIDE))
        args = b.gep(self.get(b, op, OP_ARGS, ptr), shift, i8)
        return lambda begin, end: call_address(b, kernel, kind, [args, begin, end, tid])

    def thread_range(
        self, b: ir.Builder, units: ir.Value, tid: ir.Value, active: ir.Value
    ) -> tuple[Any, Any]:
        """Return the contiguous range of units [begin, end) of one thread."""
        begin = b.sdiv(b.mul(units, tid), active)
        return begin, b.sdiv(b.mul(units, b.add(tid, i64(1))), active)

    def accumulate(self, b: ir.Builder, where: ir.Value, slot: int, amount: Any) -> None:
        address = self.slot(b, where, slot)
        b.store(b.add(b.load(address, i64), amount), address)

    def clear_counters(self, b: ir.Builder, counters: ir.Value, active: ir.Value) -> None:
        with b.count(i64(0), active) as tid:
            b.store(i64(0), b.gep(counters, b.mul(tid, i64(COUNTER_SLOTS)), i64))

    def range_of(
        self,
        b: ir.Builder,
        who: tuple[ir.Value, ir.Value, ir.Value],
        units: ir.Value,
        counters: ir.Value,
    ) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
        """Return the range [begin, end) to take from, its counter, and whether the thread owns it.

        A range's counter holds the pieces taken from the front in its low half, which its own
        thread takes, and those from the back in its high half. Whoever adds to it owns the piece
        that it then counts, unless the halves had already met.

        who: the thread, the offset from it to the range's own thread, the active threads.
        """
        tid, offset, active = who
        sum_ = b.add(tid, offset)
        over = b.icmp_signed(">=", sum_, active)
        whose = b.select(over, b.sub(sum_, active), sum_)
        begin, end = self.thread_range(b, units, whose, active)
        counter = b.gep(counters, b.mul(whose, i64(COUNTER_SLOTS)), i64)
        return begin, end, counter, b.icmp_signed("==", offset, i64(0))

    def take(self, b: ir.Builder, counter: ir.Value, own: ir.Value) -> ir.Value:
        """Count a piece as taken, at the front if `own`, else the back; return the old count."""
        step = b.select(own, i64(1), i64(1 << 32))
        return b.atomic_rmw("add", counter, step, "monotonic")

    def left(
        self, b: ir.Builder, taken: ir.Value, count: ir.Value
    ) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return whether a range has pieces left, and the numbers taken from its front and back."""
        front, back = b.and_(taken, i64((1 << 32) - 1)), b.lshr(taken, i64(32))
        return b.icmp_signed("<", b.add(front, back), count), front, back

    def piece(
        self, b: ir.Builder, count: ir.Value, own: ir.Value, front: ir.Value, back: ir.Value
    ) -> ir.Value:
        """Return the index in its range of the piece that was taken."""
        return b.select(own, front, b.sub(b.sub(count, i64(1)), back))


def blocks(fn: ir.Function, names: str) -> list[Any]:
    return [fn.append_basic_block(name) for name in names.split()]


def call_address(
    b: ir.Builder, address: ir.Value, kind: ir.FunctionType, args: list[ir.Value]
) -> ir.Value:
    return b.call(ir.Callee(address.ref, kind), args)
