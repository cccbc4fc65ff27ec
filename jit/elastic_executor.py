"""Elastic passes, which continue without descheduled threads.

In a usual pass all threads meet at every barrier, so one whose core another process has for a slice
of some milliseconds stops the others for as long. An elastic pass is cut into sections, which are
what lies between two barriers, and a section waits for those threads only that have entered it:

    a thread enters the section at hand, takes pieces of its groups until none is left, and leaves;
    the last one to leave opens the next section. Who has no core is in none, and holds up nobody.

A group is a run of ops that one thread has to do one after the other on the same share of their
units. What every thread would do for itself in a usual pass is done once here, into the memory of
the first one, since who enters late has missed it.

A thread that is preempted within a piece does hold up the others. So each offers its core, with
`sched_yield`, when it has run for `YIELD_AFTER` and has left the section.

The word `SECTION` says all that must change at once: the section's number, its first group, whether
the pass is over, and how many threads are in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import ir
from .ir import i8, i64, ptr
from .pool_block import (
    ACTIVE,
    CALLER_SINCE,
    DEADLINE,
    ELASTIC_PASSES,
    G_BARRIER,
    G_CHUNK,
    G_COUNT,
    G_COUNTERS,
    G_FIRST,
    G_WHOLE,
    GROUP_BYTES,
    GROUPS,
    N_GROUPS,
    OP_BYTES,
    OP_UNITS,
    OPS,
    SECTION,
    SPIN_BARRIER,
    STATS,
    STATS_STRIDE,
    STOP,
    YIELD_AFTER,
    YIELD_FN,
    NativeBuilder,
    blocks,
)

PIECES = 16  # of a group for each thread, where its units can be cut so
_NUMBER, _GROUP, _OVER = 32, 12, 1 << 11  # in the word: two shifts and a bit
MAX_GROUPS, MAX_THREADS = 1 << (_NUMBER - _GROUP), _OVER - 1


class ElasticBuilder:
    """A builder of the native functions of elastic passes, in the executor's module."""

    def __init__(
        self, native: NativeBuilder, await_change: ir.Function, wake_parked: ir.Function
    ) -> None:
        self.n, self.await_change, self.wake_parked = native, await_change, wake_parked

    def elastic_run(self, section: ir.Function) -> ir.Function:
        """Emit i64 elastic_run(pool, tid, since): run sections of a pass; return the next group.

        since: where the thread keeps the time when it last offered its core.
        """
        n = self.n
        fn, b = n.function("elastic_run", i64, [ptr, i64, ptr])
        pool, tid, since = fn.args
        word, none = n.slot(b, pool, SECTION), i64(-1)
        began, entry = n.cycles(b), b.block
        head, look, wait, enter, inside, leave, give_way, over = blocks(
            fn, "head look wait enter inside leave give_way over"
        )
        b.branch(head)

        b.position_at_end(head)
        # The section that this thread is done with; since when it waits, and in which pass.
        done, idle, last_pass = (b.phi((value, entry)) for value in (none, began, none))

        def again(*values: Any) -> None:
            for phi, value in zip((done, idle, last_pass), values, strict=True):
                phi.add_incoming(value, b.block)
            b.branch(head)

        now = n.atomic_load(b, word)
        ended = b.icmp_signed("!=", b.and_(now, i64(_OVER)), i64(0))
        b.cbranch(ended, over, look)
        b.position_at_end(over)
        b.ret(self._group(b, now))

        b.position_at_end(look)
        number = b.lshr(now, i64(_NUMBER))
        b.cbranch(b.icmp_signed("==", number, done), wait, enter)
        b.position_at_end(wait)
        b.call(self.await_change, [pool, word, now, n.get(b, pool, SPIN_BARRIER)])
        again(done, idle, last_pass)

        b.position_at_end(enter)
        # One that has no part in this pass has come late from another one. If the word is still the
        # same below, so is the pass.
        member = b.icmp_signed("<", tid, n.get(b, pool, ACTIVE))
        joins = fn.append_basic_block("joins")
        b.cbranch(member, joins, over)
        b.position_at_end(joins)
        entered = b.compare_exchange(word, now, b.add(now, i64(1)))
        missed = fn.append_basic_block("missed")
        b.cbranch(entered, inside, missed)
        b.position_at_end(missed)
        again(done, idle, last_pass)

        b.position_at_end(inside)
        group = self._group(b, now)
        this_pass = n.get(b, pool, ELASTIC_PASSES)
        with b.if_then(b.icmp_signed("==", this_pass, last_pass)):
            self._account_waiting(b, pool, tid, group, idle)
        following = b.call(section, [pool, tid, group, b.load(since, i64)])
        finished = n.cycles(b)
        b.cbranch(b.icmp_signed("<", following, i64(0)), give_way, leave)

        # Work is left, but this thread lets others have its core first.
        b.position_at_end(give_way)
        here = n.atomic_load(b, word)
        left = b.compare_exchange(word, here, b.sub(here, i64(1)))
        gave = fn.append_basic_block("gave")
        b.cbranch(left, gave, give_way)
        b.position_at_end(gave)
        self._offer_core(b, pool, since)
        again(done, finished, this_pass)

        b.position_at_end(leave)
        here = n.atomic_load(b, word)
        last = b.icmp_signed("==", b.and_(here, i64(_OVER - 1)), i64(1))
        opened = self._next_word(b, pool, number, following)
        left = b.compare_exchange(word, here, b.select(last, opened, b.sub(here, i64(1))))
        gone = fn.append_basic_block("gone")
        b.cbranch(left, gone, leave)
        b.position_at_end(gone)
        with b.if_then(last):
            b.call(self.wake_parked, [pool, word])
        due = b.add(b.load(since, i64), n.get(b, pool, YIELD_AFTER))
        with b.if_then(b.icmp_signed(">", n.cycles(b), due)):
            self._offer_core(b, pool, since)
        again(number, finished, this_pass)
        return fn

    def _offer_core(self, b: ir.Builder, pool: ir.Value, since: ir.Value) -> None:
        self.n.call_slot(b, pool, YIELD_FN, [])
        b.store(self.n.cycles(b), since)

    def _group(self, b: ir.Builder, word: ir.Value) -> ir.Value:
        return b.and_(b.lshr(word, i64(_GROUP)), i64(MAX_GROUPS - 1))

    def _next_word(
        self, b: ir.Builder, pool: ir.Value, number: ir.Value, group: ir.Value
    ) -> ir.Value:
        """Return the word that opens the next section, or ends the pass or its time slice."""
        n = self.n
        ended = b.icmp_signed("==", group, n.get(b, pool, N_GROUPS))
        stop = b.icmp_signed("!=", n.atomic_load(b, n.slot(b, pool, STOP)), i64(0))
        late = b.icmp_signed(">", n.cycles(b), n.get(b, pool, DEADLINE))
        over = b.select(b.or_(ended, b.or_(stop, late)), i64(_OVER), i64(0))
        return b.or_(_word(b, b.add(number, i64(1)), group), over)

    def _account_waiting(
        self, b: ir.Builder, pool: ir.Value, tid: ir.Value, group: ir.Value, since: ir.Value
    ) -> None:
        """Charge the time since this thread's last section to the preceding op as waiting."""
        n = self.n
        first = n.get(b, self._group_at(b, pool, group), G_FIRST)
        with b.if_then(b.icmp_signed(">", first, i64(0))):
            where = self._stats(b, pool, tid, b.sub(first, i64(1)))
            n.accumulate(b, where, 1, b.sub(n.cycles(b), since))

    def _group_at(self, b: ir.Builder, pool: ir.Value, group: ir.Value) -> ir.Value:
        return b.gep(self.n.get(b, pool, GROUPS, ptr), b.mul(group, i64(GROUP_BYTES)), i8)

    def _stats(self, b: ir.Builder, pool: ir.Value, tid: ir.Value, op: ir.Value) -> ir.Value:
        offset = b.add(b.mul(tid, self.n.get(b, pool, STATS_STRIDE)), b.mul(op, i64(16)))
        return b.gep(self.n.get(b, pool, STATS, ptr), offset, i8)

    def section(self, run_group: ir.Function) -> ir.Function:
        """Emit i64 section(pool, tid, group, since): run pieces of its groups until none is left.

        Returns the group after the section, or -1 if the thread's time is up and pieces are left.
        """
        n = self.n
        fn, b = n.function("section", i64, [ptr, i64, i64, i64])
        pool, tid, group, since = fn.args
        entry = b.block
        head, whole, on, tired, done = blocks(fn, "head whole on tired done")
        b.branch(head)
        b.position_at_end(head)
        at = b.phi((group, entry))
        record = self._group_at(b, pool, at)
        left = b.call(run_group, [pool, tid, record, since])
        b.cbranch(b.icmp_signed("!=", left, i64(0)), tired, whole)
        b.position_at_end(whole)
        following = b.add(at, i64(1))
        b.cbranch(b.icmp_signed("!=", n.get(b, record, G_BARRIER), i64(0)), done, on)
        b.position_at_end(on)
        at.add_incoming(following, on)
        b.branch(head)
        b.position_at_end(tired)
        b.ret(i64(-1))
        b.position_at_end(done)
        b.ret(following)
        return fn

    def run_group(self) -> ir.Function:
        """Emit i64 run_group(pool, tid, record, since): run the group's pieces, its own first.

        Returns 1 if the thread's time is up and pieces are left, else 0. A thread takes those of
        its own range from the front and others' from the back, as the executor's `_share` does.
        """
        n = self.n
        fn, b = n.function("run_group", i64, [ptr, i64, ptr, i64])
        pool, tid, record, since = fn.args
        active, counters = n.get(b, pool, ACTIVE), n.get(b, record, G_COUNTERS, ptr)
        due = b.add(since, n.get(b, pool, YIELD_AFTER))
        pieces = self._pieces(fn, b, pool, record, active)
        entry = b.block
        turn, range_, take, fresh, claim, work, following, tired, done = blocks(
            fn, "turn range take fresh claim work next tired shared"
        )
        b.branch(turn)
        b.position_at_end(turn)
        offset = b.phi((i64(0), entry))  # 0: our own range
        before = b.phi((i64(0), entry))  # whether this thread has done a piece by now
        b.cbranch(b.icmp_signed("<", offset, active), range_, done)
        b.position_at_end(range_)
        begin, end, counter, ours = n.range_of(b, (tid, offset, active), pieces, counters)
        count = b.sub(end, begin)
        b.branch(take)

        b.position_at_end(take)
        worked = b.phi((before, range_))
        # A look first: a thread that is about to rest must not take what it will not do.
        b.cbranch(n.left(b, n.atomic_load(b, counter), count)[0], fresh, following)
        b.position_at_end(fresh)
        # At least one each time, so that there is an end to it.
        enough = b.icmp_signed(">", b.mul(worked, n.cycles(b)), due)
        b.cbranch(enough, tired, claim)
        b.position_at_end(claim)
        some, *taken = n.left(b, n.take(b, counter, ours), count)
        b.cbranch(some, work, following)
        b.position_at_end(work)
        piece = b.add(begin, n.piece(b, count, ours, *taken))
        self._run_piece(b, (pool, tid, record), piece, pieces)
        worked.add_incoming(i64(1), b.block)
        b.branch(take)
        b.position_at_end(following)
        offset.add_incoming(b.add(offset, i64(1)), following)
        before.add_incoming(worked, following)
        b.branch(turn)
        b.position_at_end(tired)
        b.ret(i64(1))
        b.position_at_end(done)
        b.ret(i64(0))
        return fn

    def _pieces(
        self, fn: ir.Function, b: ir.Builder, pool: ir.Value, record: ir.Value, active: ir.Value
    ) -> ir.Value:
        """Return into how many pieces to split a group.

        One, if it is to be done as a whole; a shared op's chunks; else so many for each thread that
        all its ops are cut at the same places: one op may need what the one before it has made.
        """
        n = self.n
        chunk = n.get(b, record, G_CHUNK)
        entry = b.block
        shared, ranges, half, check, fits, more, found = blocks(
            fn, "chunked ranges half check fits more pieces"
        )
        op = self._op_at(b, pool, n.get(b, record, G_FIRST))
        first = b.load(n.get(b, op, OP_UNITS, ptr), i64)
        whole = b.icmp_signed("!=", n.get(b, record, G_WHOLE), i64(0))
        parted = fn.append_basic_block("parted")
        b.cbranch(whole, found, parted)
        b.position_at_end(parted)
        b.cbranch(b.icmp_signed("!=", chunk, i64(0)), shared, ranges)
        b.position_at_end(shared)
        by_chunk = b.sdiv(b.add(first, b.sub(chunk, i64(1))), chunk)
        b.branch(found)
        b.position_at_end(ranges)
        start, end = n.get(b, record, G_FIRST), n.get(b, record, G_COUNT)
        end = b.add(start, end)
        max_pieces = b.mul(active, i64(PIECES))
        b.branch(half)
        b.position_at_end(half)
        tried = b.phi((max_pieces, ranges))
        b.cbranch(b.icmp_signed("<=", tried, active), found, check)
        b.position_at_end(check)
        at = b.phi((start, half))
        b.cbranch(b.icmp_signed("<", at, end), fits, found)
        b.position_at_end(fits)
        units = b.load(n.get(b, self._op_at(b, pool, at), OP_UNITS, ptr), i64)
        rests = b.or_(b.op("srem", units, tried), b.op("srem", first, tried))
        even, same = b.icmp_signed("==", rests, i64(0)), b.icmp_signed("==", units, first)
        at.add_incoming(b.add(at, i64(1)), fits)
        b.cbranch(b.or_(even, same), check, more)
        b.position_at_end(more)
        tried.add_incoming(b.lshr(tried, i64(1)), more)
        b.branch(half)
        b.position_at_end(found)
        return b.phi((i64(1), entry), (by_chunk, shared), (active, half), (tried, check))

    def _op_at(self, b: ir.Builder, pool: ir.Value, op: ir.Value) -> ir.Value:
        return b.gep(self.n.get(b, pool, OPS, ptr), b.mul(op, i64(OP_BYTES)), i8)

    def _run_piece(
        self,
        b: ir.Builder,
        who: tuple[ir.Value, ir.Value, ir.Value],
        piece: ir.Value,
        pieces: ir.Value,
    ) -> None:
        """Run each of the group's ops on this piece's share of its units."""
        n, (pool, tid, record) = self.n, who
        first = n.get(b, record, G_FIRST)
        end = b.add(first, n.get(b, record, G_COUNT))
        with b.count(first, end) as at:
            op = self._op_at(b, pool, at)
            units = b.load(n.get(b, op, OP_UNITS, ptr), i64)
            lower, upper = n.thread_range(b, units, piece, pieces)
            with b.if_then(b.icmp_signed("<", lower, upper)):
                before = n.cycles(b)
                n.caller(b, op, tid)(lower, upper)
                where = self._stats(b, pool, tid, at)
                n.accumulate(b, where, 0, b.sub(n.cycles(b), before))

    def pool_run(
        self, run: ir.Function, start_pass: Callable[[ir.Builder, ir.Value, ir.Value], None]
    ) -> None:
        """Emit tp_run_elastic, which runs an elastic pass from group `start` and returns the next.

        i64 tp_run_elastic(pool, ops, groups, n_groups, start, budget, stats, stats_stride).
        start_pass: (builder, pool, active): emits the code that starts the workers.
        """
        n = self.n
        kinds = [ptr, ptr, ptr, i64, i64, i64, ptr, i64]
        fn, b = n.function("tp_run_elastic", i64, kinds, public=True)
        pool, ops, groups, count, start, budget, stats, stride = fn.args
        for slot, value in ((N_GROUPS, count), (GROUPS, groups), (STATS_STRIDE, stride),
                            (OPS, ops), (STATS, stats)):  # fmt: skip
            b.store(value, n.slot(b, pool, slot))
        b.store(b.add(n.cycles(b), budget), n.slot(b, pool, DEADLINE))
        n.accumulate(b, pool, ELASTIC_PASSES, i64(1))
        active = n.get(b, pool, ACTIVE)
        with b.count(start, count) as at:
            n.clear_counters(b, n.get(b, self._group_at(b, pool, at), G_COUNTERS, ptr), active)
        word = n.slot(b, pool, SECTION)
        number = b.lshr(n.atomic_load(b, word), i64(_NUMBER))
        opened = _word(b, b.add(number, i64(1)), start)
        b.atomic_rmw("xchg", word, opened, "seq_cst")
        start_pass(b, pool, active)
        b.ret(b.call(run, [pool, i64(0), n.slot(b, pool, CALLER_SINCE)]))


def _word(b: ir.Builder, number: ir.Value, group: ir.Value) -> ir.Value:
    """Return the word of a section that no thread has entered."""
    return b.or_(b.op("shl", number, i64(_NUMBER)), b.op("shl", group, i64(_GROUP)))
