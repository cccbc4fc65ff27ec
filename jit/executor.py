"""The native side of the pool: run a tape of kernels on several threads.

One call from Python runs a whole forward pass. Every thread walks the tape, does its share of each
op and meets the others at a barrier; no Python runs in between. Threads spin for a while,
then park in the C library's condition variable, so that waiting never eats a core for long. Each
thread adds up the cycles that it worked and waited, op by op.

A pass ends early, at a barrier, when its time budget is over (so that Python can look at signals,
and then run on) or when another thread sets `STOP`. The thread that arrives last decides, and
tells the others by the lowest bit of the barrier's generation, so all leave at the same op."""

from __future__ import annotations

from collections.abc import Callable

from . import ir
from .elastic_executor import ElasticBuilder
from .ir import i8, i64, ptr, void
from .pool_block import (
    ACTIVE,
    ACTIVE_EPOCH,
    BROADCAST_FN,
    COND,
    COUNT,
    DEADLINE,
    DYNAMIC,
    ELASTIC,
    GEN,
    LAST_ACTIVE,
    LOCK_FN,
    MUTEX,
    N_OPS,
    OP_BARRIER,
    OP_BYTES,
    OP_CHUNK,
    OP_COUNTER,
    OP_MODE,
    OP_UNITS,
    OPS,
    PARKS,
    PASS_STEP,
    REPLICATED,
    SHUTDOWN,
    SPIN_BARRIER,
    SPIN_IDLE,
    START_GEN,
    START_OP,
    STATS,
    STATS_STRIDE,
    STOP,
    UNLOCK_FN,
    WAIT_FN,
    NativeBuilder,
    blocks,
)
from .read_ahead import prefetch_ahead, read_next
from .simd import KernelSource
from .targets import CpuTarget


class _Builder(NativeBuilder):
    """A builder of the executor's native functions, in one module."""

    # --- waiting

    def await_change(self):
        """Emit i64 await_change(pool, address, old, spin): wait until a value is not `old`."""
        fn, b = self.function("await_change", i64, [ptr, ptr, i64, i64])
        pool, address, old, spin = fn.args
        began = self.cycles(b)
        look, wait, park, done = blocks(fn, "look wait park done")
        b.branch(look)

        b.position_at_end(look)
        now = self.atomic_load(b, address)
        b.cbranch(b.icmp_signed("!=", now, old), done, wait)

        b.position_at_end(wait)
        self.pause(b)
        passed = b.sub(self.cycles(b), began)
        b.cbranch(b.icmp_signed("<", passed, spin), look, park)

        b.position_at_end(park)
        mutex, cond = self.get(b, pool, MUTEX, ptr), self.get(b, pool, COND, ptr)
        self.call_slot(b, pool, LOCK_FN, [mutex])
        parked = b.gep(address, i64(1), i64)
        b.atomic_rmw("add", parked, i64(1), "seq_cst")
        between = b.icmp_unsigned("==", address, self.slot(b, pool, START_GEN))
        b.atomic_rmw("add", self.slot(b, pool, PARKS), b.zext(between, i64), "monotonic")
        sleep, count_park, wake = blocks(fn, "sleep count_park wake")
        b.branch(sleep)
        b.position_at_end(sleep)
        slept = self.atomic_load(b, address)
        b.cbranch(b.icmp_signed("!=", slept, old), wake, count_park)
        b.position_at_end(count_park)
        self.call_slot(b, pool, WAIT_FN, [cond, mutex])
        b.branch(sleep)
        b.position_at_end(wake)
        b.atomic_rmw("sub", parked, i64(1), "seq_cst")
        self.call_slot(b, pool, UNLOCK_FN, [mutex])
        b.branch(done)

        b.position_at_end(done)
        b.ret(b.phi((now, look), (slept, wake)))
        return fn

    def release(self, wake_parked: ir.Function):
        """Emit void release(pool, address, value): store it, and wake threads parked at `address`.

        Only those: a thread without a part in a pass must not cost a system call at every barrier.
        """
        fn, b = self.function("release", void, [ptr, ptr, i64])
        pool, address, value = fn.args
        # An exchange is a full fence: the store is seen before the count is read.
        b.atomic_rmw("xchg", address, value, "seq_cst")
        b.call(wake_parked, [pool, address])
        b.ret_void()
        return fn

    def wake_parked(self):
        """Emit void wake_parked(pool, address): wake threads parked at it, after a full fence."""
        fn, b = self.function("wake_parked", void, [ptr, ptr])
        pool, address = fn.args
        parked = self.atomic_load(b, b.gep(address, i64(1), i64))
        with b.if_then(b.icmp_signed(">", parked, i64(0))):
            mutex, cond = self.get(b, pool, MUTEX, ptr), self.get(b, pool, COND, ptr)
            self.call_slot(b, pool, LOCK_FN, [mutex])
            self.call_slot(b, pool, BROADCAST_FN, [cond])
            self.call_slot(b, pool, UNLOCK_FN, [mutex])
        b.ret_void()
        return fn

    def barrier(self, await_change: ir.Function, release: ir.Function):
        """Emit i64 barrier(pool, tid, ahead): wait for all; 1 if they must leave the tape here.

        ahead: what is read next, as an int64: see `read_ahead.py`.
        """
        fn, b = self.function("barrier", i64, [ptr, i64, i64])
        pool, tid, ahead = fn.args
        gen = self.slot(b, pool, GEN)
        address, end = read_next(self, b, pool, tid, ahead)
        # Before it arrives: from then on the pass may end, and the next one have fewer threads.
        old, others = self.atomic_load(b, gen), b.sub(self.get(b, pool, ACTIVE), i64(1))
        arrived = b.atomic_rmw("add", self.slot(b, pool, COUNT), i64(1), "seq_cst")
        last = b.icmp_signed("==", arrived, others)
        then, otherwise, done = blocks(fn, "last waits passed")
        b.cbranch(last, then, otherwise)

        b.position_at_end(then)
        b.store(i64(0), self.slot(b, pool, COUNT))
        stop = b.icmp_signed("!=", self.atomic_load(b, self.slot(b, pool, STOP)), i64(0))
        late = b.icmp_signed(">", self.cycles(b), self.get(b, pool, DEADLINE))
        leave = b.zext(b.or_(stop, late), i64)
        following = b.or_(b.add(b.and_(old, i64(-2)), i64(2)), leave)
        b.call(release, [pool, gen, following])
        b.branch(done)

        b.position_at_end(otherwise)
        prefetch_ahead(self, b, gen, old, address, end)
        seen = b.call(await_change, [pool, gen, old, self.get(b, pool, SPIN_BARRIER)])
        # Another generation than the next one is of a later pass without this thread, whose own
        # ended here before it looked: the tape may be freed by now.
        following = b.add(b.and_(old, i64(-2)), i64(2))
        later = b.icmp_signed("!=", b.and_(seen, i64(-2)), following)
        must_leave = b.or_(b.and_(seen, i64(1)), b.zext(later, i64))
        otherwise = b.block
        b.branch(done)

        b.position_at_end(done)
        result = b.phi((leave, then), (must_leave, otherwise))
        b.ret(result)
        return fn

    # --- running

    def thread_run(self, barrier: ir.Function):
        """Emit i64 run(pool, tid): run ops from START_OP; return the next op."""
        fn, b = self.function("run", i64, [ptr, i64])
        pool, tid = fn.args
        # Taken once: after the last barrier the pool's block may already describe the next pass.
        ops, count = self.get(b, pool, OPS, ptr), self.get(b, pool, N_OPS)
        active = self.get(b, pool, ACTIVE)
        offset = b.mul(tid, self.get(b, pool, STATS_STRIDE))
        stats = b.gep(self.get(b, pool, STATS, ptr), offset, i8)
        with b.count(self.get(b, pool, START_OP), count) as index:
            op = b.gep(ops, b.mul(index, i64(OP_BYTES)), i8)
            mine = b.gep(stats, b.mul(index, i64(16)), i8)
            t0 = self.cycles(b)
            self._do_op(fn, b, op, tid, active)
            t1 = self.cycles(b)
            self.accumulate(b, mine, 0, b.sub(t1, t0))
            following = b.add(index, i64(1))
            meet, out, on = blocks(fn, "meet out on")
            b.cbranch(b.icmp_signed("!=", self.get(b, op, OP_BARRIER), i64(0)), meet, on)
            b.position_at_end(meet)
            leave = b.call(barrier, [pool, tid, self.get(b, op, OP_BARRIER)])
            # Once the others know that the pass is over, the caller may free the tape: only its own
            # thread may still touch it.
            leaves = b.icmp_signed("!=", leave, i64(0))
            over = b.or_(leaves, b.icmp_signed("==", following, count))
            with b.if_then(b.or_(b.icmp_signed("==", tid, i64(0)), b.not_(over))):
                self.accumulate(b, mine, 1, b.sub(self.cycles(b), t1))
            b.cbranch(leaves, out, on)
            b.position_at_end(out)
            b.ret(following)
            b.position_at_end(on)
        b.ret(count)
        return fn

    def _do_op(
        self, fn: ir.Function, b: ir.Builder, op: ir.Value, tid: ir.Value, active: ir.Value
    ) -> None:
        units = b.load(self.get(b, op, OP_UNITS, ptr), i64)
        mode, run_units = self.get(b, op, OP_MODE), self.caller(b, op, tid)
        dynamic, fixed, done = blocks(fn, "dynamic fixed op_done")
        b.cbranch(b.icmp_signed("==", mode, i64(DYNAMIC)), dynamic, fixed)

        b.position_at_end(fixed)
        each = b.icmp_signed("==", mode, i64(REPLICATED))
        own_begin, own_end = self.thread_range(b, units, tid, active)
        begin, end = b.select(each, i64(0), own_begin), b.select(each, units, own_end)
        with b.if_then(b.icmp_signed("<", begin, end)):
            run_units(begin, end)
        b.branch(done)

        b.position_at_end(dynamic)
        self._share(fn, b, op, (units, tid, active), run_units)
        b.branch(done)
        b.position_at_end(done)

    def _share(
        self,
        fn: ir.Function,
        b: ir.Builder,
        op: ir.Value,
        who: tuple[ir.Value, ir.Value, ir.Value],
        run_units: Callable[[ir.Value, ir.Value], object],
    ) -> None:
        """Run a thread's own range in chunks from its front, then the others' from their backs."""
        units, tid, active = who
        counters, chunk = self.get(b, op, OP_COUNTER, ptr), self.get(b, op, OP_CHUNK)
        with b.count(i64(0), active) as offset:
            begin, end, counter, ours = self.range_of(b, (tid, offset, active), units, counters)
            count = b.sdiv(b.add(b.sub(end, begin), b.sub(chunk, i64(1))), chunk)
            take, work, following = blocks(fn, "take work next")
            b.branch(take)
            b.position_at_end(take)
            some, *taken = self.left(b, self.take(b, counter, ours), count)
            b.cbranch(some, work, following)
            b.position_at_end(work)
            at = b.add(begin, b.mul(self.piece(b, count, ours, *taken), chunk))
            upto = b.add(at, chunk)
            run_units(at, b.select(b.icmp_signed("<", upto, end), upto, end))
            b.branch(take)
            b.position_at_end(following)

    def pool_run(self, run: ir.Function, release: ir.Function) -> None:
        """Emit tp_run, which runs a tape from op `start` on and returns the next op.

        i64 tp_run(pool, ops, n_ops, start, budget, stats, stats_stride).
        """
        fn, b = self.function("tp_run", i64, [ptr, ptr, i64, i64, i64, ptr, i64], public=True)
        pool, ops, count, start, budget, stats, stride = fn.args
        for slot, value in ((N_OPS, count), (START_OP, start), (STATS_STRIDE, stride),
                            (OPS, ops), (STATS, stats)):  # fmt: skip
            b.store(value, self.slot(b, pool, slot))
        b.store(b.add(self.cycles(b), budget), self.slot(b, pool, DEADLINE))
        active = self.get(b, pool, ACTIVE)
        with b.count(start, count) as index:
            op = b.gep(ops, b.mul(index, i64(OP_BYTES)), i8)
            with b.if_then(b.icmp_signed("==", self.get(b, op, OP_MODE), i64(DYNAMIC))):
                self.clear_counters(b, self.get(b, op, OP_COUNTER, ptr), active)
        with b.if_then(b.icmp_signed(">", active, i64(1))):
            self._start_workers(b, pool, active, active, release)
        b.ret(b.call(run, [pool, i64(0)]))

    def _start_workers(
        self,
        b: ir.Builder,
        pool: ir.Value,
        active: ir.Value,
        kind: ir.Value,
        release: ir.Function,
    ) -> None:
        """Start a pass of `active` threads; `kind` is `active` with the flag of the pass's kind."""
        # The number of active threads is part of the word that starts the pass: a thread that
        # wakes late must judge by the pass it woke for, not by one that is about to start.
        self._start(b, pool, kind, release)
        # After the start, and not before: who has seen this word change will find that pass.
        # A pass of the caller alone concerns no worker, so the epoch stays.
        with b.if_then(b.icmp_signed(">", active, self.get(b, pool, LAST_ACTIVE))):
            self._bump(b, pool, ACTIVE_EPOCH, release)
        b.store(active, self.slot(b, pool, LAST_ACTIVE))

    def _start(self, b: ir.Builder, pool: ir.Value, active: ir.Value, release: ir.Function) -> None:
        """Start the next pass, of `active` threads."""
        gen = self.slot(b, pool, START_GEN)
        following = b.add(b.and_(self.atomic_load(b, gen), i64(-PASS_STEP)), i64(PASS_STEP))
        b.call(release, [pool, gen, b.or_(following, active)])

    def _bump(self, b: ir.Builder, pool: ir.Value, slot: int, release: ir.Function) -> None:
        """Increment a word that only the calling thread writes, and wake its waiters."""
        word = self.slot(b, pool, slot)
        b.call(release, [pool, word, b.add(self.atomic_load(b, word), i64(PASS_STEP))])

    def worker(self, run: ir.Function, elastic_run: ir.Function, await_change: ir.Function) -> None:
        """Emit void tp_worker(pool, tid): serve passes until SHUTDOWN.

        A thread that has no part in a pass sleeps until more threads run; a pass of no threads only
        wakes.
        """
        fn, b = self.function("tp_worker", void, [ptr, i64], public=True)
        pool, tid = fn.args
        since = b.alloca("i64")
        b.store(self.cycles(b), since)
        entry = b.block
        head, awake, out, rest, serve, done = blocks(fn, "head awake out rest serve done")
        b.branch(head)
        b.position_at_end(head)
        seen = b.phi((i64(0), entry))
        idle = self.get(b, pool, SPIN_IDLE)
        epoch = self.atomic_load(b, self.slot(b, pool, ACTIVE_EPOCH))
        now = b.call(await_change, [pool, self.slot(b, pool, START_GEN), seen, idle])
        over = self.atomic_load(b, self.slot(b, pool, SHUTDOWN))
        b.cbranch(b.icmp_signed("!=", over, i64(0)), done, awake)
        b.position_at_end(awake)
        active = b.and_(now, i64(ELASTIC - 1))
        b.cbranch(b.icmp_signed("<", tid, active), serve, out)
        b.position_at_end(out)
        seen.add_incoming(now, out)
        b.cbranch(b.icmp_signed("!=", active, i64(0)), rest, head)
        b.position_at_end(rest)
        b.call(await_change, [pool, self.slot(b, pool, ACTIVE_EPOCH), epoch, i64(0)])
        seen.add_incoming(now, rest)
        b.branch(head)
        b.position_at_end(serve)
        usual, elastic = blocks(fn, "usual elastic")
        is_elastic = b.icmp_signed("!=", b.and_(now, i64(ELASTIC)), i64(0))
        b.cbranch(is_elastic, elastic, usual)
        for way, runs, more in ((usual, run, []), (elastic, elastic_run, [since])):
            b.position_at_end(way)
            b.call(runs, [pool, tid, *more])
            seen.add_incoming(now, way)
            b.branch(head)
        b.position_at_end(done)
        b.ret_void()

    def shutdown(self, release: ir.Function) -> None:
        """Emit void tp_shutdown(pool): wake all workers, which read SHUTDOWN and exit."""
        fn, b = self.function("tp_shutdown", void, [ptr], public=True)
        (pool,) = fn.args
        self._bump(b, pool, START_GEN, release)
        self._bump(b, pool, ACTIVE_EPOCH, release)
        b.ret_void()

    def wake(self, release: ir.Function) -> None:
        """Emit void tp_wake(pool): a pass of no threads, so that parked workers wake and spin."""
        fn, b = self.function("tp_wake", void, [ptr], public=True)
        (pool,) = fn.args
        self._start(b, pool, i64(0), release)
        b.ret_void()

    def clock(self) -> None:
        """Emit i64 tp_cycles(): read the cycle counter."""
        _, b = self.function("tp_cycles", i64, [], public=True)
        b.ret(self.cycles(b))


class _ExecutorSource(KernelSource):
    """The executor as a source that the object cache accepts."""

    calls = True

    def build(self, target: CpuTarget, **constants: object) -> ir.Module:
        builder = _Builder(target)
        await_change, wake_parked = builder.await_change(), builder.wake_parked()
        release = builder.release(wake_parked)
        run = builder.thread_run(builder.barrier(await_change, release))
        builder.pool_run(run, release)
        elastic = ElasticBuilder(builder, await_change, wake_parked)
        elastic_run = elastic.elastic_run(elastic.section(elastic.run_group()))

        def start_elastic(b: ir.Builder, pool: ir.Value, active: ir.Value) -> None:
            builder._start_workers(b, pool, active, b.or_(active, i64(ELASTIC)), release)

        elastic.pool_run(elastic_run, start_elastic)
        builder.worker(run, elastic_run, await_change)
        builder.shutdown(release)
        builder.wake(release)
        builder.clock()
        return builder.module


EXECUTOR = _ExecutorSource("tp_run", lambda: None, {}, __name__)
FUNCTIONS = ("tp_run", "tp_run_elastic", "tp_worker", "tp_shutdown", "tp_wake", "tp_cycles")
