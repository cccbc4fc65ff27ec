"""SIGBUS of a mapped file that was truncated: zero-fill the page and set a flag.

Who touches a page of a mapping that its file no longer reaches gets SIGBUS, and no Python can run
between that signal and the read that goes on. So the handler is native: if the address lies in a
mapping that is guarded, the whole mapping becomes zeros and its slot is marked, and the read goes
on; whoever owns the mapping looks at the mark before it believes what was read. Any other SIGBUS
goes to the handler that was there before, or ends the process where there was none.

A handler may only call what is safe in one: `mmap`, `sigaction` and `raise` are.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import signal
import sys
import weakref
from typing import Any

import numpy as np

from ..errors import CompileError, TriplepointError
from . import ir
from .compile import Library, spec
from .ir import i32, i64, ptr, void
from .pool_block import blocks, call_address
from .simd import KernelSource
from .targets import CpuTarget, detect

SLOTS = 1024  # mappings that can be guarded at a time; more are not

# The table (int64): addresses of functions, the action that was there before, a count, slots.
MMAP, SIGACTION, RAISE, BEFORE, FAULTS = range(5)
FIRST_SLOT, SLOT_WORDS = 8, 4
START, END, LOST = range(3)  # of a slot
WORDS = FIRST_SLOT + SLOTS * SLOT_WORDS

_SI_CODE, _SI_ADDR = 8, 16  # byte offsets in siginfo_t on 64-bit Linux
_MAP_FIXED = 0x10
_SA_FLAGS = 0x4 | 0x08000000 | 0x10000000  # SA_SIGINFO, SA_ONSTACK, SA_RESTART


class _Action(ctypes.Structure):
    """struct sigaction of glibc and musl on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_uint8 * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


faults = np.zeros(1, np.int64)
"""int64 [1]: number of faults in guarded mappings; another array once the handler is installed."""


def guard(mapped: mmap.mmap) -> np.ndarray | None:
    """Guard a read-only mapping of a file for as long as it lives.

    Returns:
        int64 [1]: 1 once a page of it was touched that its file no longer has: it reads as zeros.
        None where it cannot be guarded.
    """
    try:
        handler = _installed()
    except TriplepointError:  # a CPU that nothing can be compiled for now runs no pass either
        return None
    return None if handler is None else handler.guard(mapped)


class _Handler:
    """The installed handler and its table."""

    def __init__(self) -> None:
        # Never freed: the system may call it at any time.
        library = Library(detect())
        address = library.address(spec(HANDLER))
        where = ctypes.CFUNCTYPE(ctypes.c_int64)(library.symbol_address(spec(HANDLER), TABLE))()
        self.table = np.ctypeslib.as_array((ctypes.c_int64 * WORDS).from_address(where))
        self._keep = library, ctypes.CDLL(None), _Action()
        self._free = list(range(FIRST_SLOT, WORDS, SLOT_WORDS))
        _, c, before = self._keep
        for word, name in ((MMAP, "mmap"), (SIGACTION, "sigaction"), (RAISE, "raise")):
            self.table[word] = ctypes.cast(getattr(c, name), ctypes.c_void_p).value or 0
        self.table[BEFORE] = ctypes.addressof(before)
        action = _Action(handler=address, flags=_SA_FLAGS)
        if c.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(before)):
            raise CompileError("sigaction refused a handler for SIGBUS")

    def guard(self, mapped: mmap.mmap) -> np.ndarray | None:
        try:
            slot = self._free.pop()
        except IndexError:
            return None
        start = np.frombuffer(mapped, np.uint8).ctypes.data
        table = self.table
        table[slot + LOST] = 0
        table[slot + START] = start
        # Last: until now no address lies in it.
        table[slot + END] = start + -(-len(mapped) // mmap.PAGESIZE) * mmap.PAGESIZE
        weakref.finalize(mapped, self._release, slot).atexit = False
        return table[slot + LOST : slot + LOST + 1]

    def _release(self, slot: int) -> None:
        # No lock: the collector may call this at any time, in the midst of `guard` too.
        self.table[slot + END] = 0
        self._free.append(slot)


@functools.cache
def _installed() -> _Handler | None:
    global faults
    if sys.platform != "linux" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return None
    handler = _Handler()
    faults = handler.table[FAULTS : FAULTS + 1]
    return handler


def _handle(fn: ir.Function, table: ir.Value) -> None:
    """Emit void tp_sigbus(int signal, siginfo_t *info, void *context)."""
    number, info, context = fn.args
    names = "entry slot next found marked foreign chained alone sent done"
    entry, slot, following, found, marked, foreign, chained, alone, sent, done = blocks(fn, names)
    b = ir.Builder(fn, entry)
    base = b.ptrtoint(table, i64)

    def word(index: ir.Value | int) -> ir.Value:
        at = i64(8 * index) if isinstance(index, int) else b.mul(index, i64(8))
        return b.inttoptr(b.add(base, at), ptr)

    def load(index: ir.Value | int) -> ir.Value:
        return b.load_atomic(word(index), "monotonic")

    def call(function: int, result: ir.Type, args: list[Any]) -> ir.Value:
        address = b.inttoptr(load(function), ptr)
        return call_address(b, address, ir.FunctionType(result, [a.type for a in args]), args)

    at = b.ptrtoint(info, i64)
    code = b.load(b.inttoptr(b.add(at, i64(_SI_CODE)), ptr), i32)
    address = b.load(b.inttoptr(b.add(at, i64(_SI_ADDR)), ptr), i64)
    # One that a process sent has no address.
    is_fault = b.icmp_signed(">", code, i32(0))
    b.cbranch(is_fault, slot, foreign)

    b.position_at_end(slot)
    n = b.phi((i64(FIRST_SLOT), entry))
    start, end = load(b.add(n, i64(START))), load(b.add(n, i64(END)))
    inside = b.and_(b.icmp_unsigned("<=", start, address), b.icmp_unsigned("<", address, end))
    b.cbranch(inside, found, following)
    b.position_at_end(following)
    after = b.add(n, i64(SLOT_WORDS))
    n.add_incoming(after, following)
    b.cbranch(b.icmp_signed("<", after, i64(WORDS)), slot, foreign)

    b.position_at_end(found)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    length = b.sub(end, start)
    args = [start, length, i32(mmap.PROT_READ), i32(flags), i32(-1), i64(0)]
    b.atomic_rmw("xchg", word(b.add(n, i64(LOST))), i64(1), "seq_cst")
    mapped = call(MMAP, i64, args)
    b.cbranch(b.icmp_unsigned("==", mapped, start), marked, foreign)
    b.position_at_end(marked)
    b.atomic_rmw("add", word(FAULTS), i64(1), "seq_cst")
    b.ret_void()

    # The first field of the action before is a function, or says that there was none.
    b.position_at_end(foreign)
    before = b.load(b.inttoptr(load(BEFORE), ptr), i64)
    b.cbranch(b.icmp_unsigned(">", before, i64(signal.SIG_IGN)), chained, alone)
    b.position_at_end(chained)
    kind = ir.FunctionType(void, [i32, ptr, ptr])
    call_address(b, b.inttoptr(before, ptr), kind, [number, info, context])
    b.branch(done)

    # The read is done again, and meets no handler.
    b.position_at_end(alone)
    call(SIGACTION, i32, [number, b.inttoptr(load(BEFORE), ptr), ir.null(ptr)])
    b.cbranch(is_fault, done, sent)
    b.position_at_end(sent)
    call(RAISE, i32, [number])
    b.branch(done)
    b.position_at_end(done)
    b.ret_void()


class _HandlerSource(KernelSource):
    """The handler as a source that the object cache accepts."""

    def build(self, target: CpuTarget, **constants: Any) -> ir.Module:
        module = ir.Module(target.triple)
        table = module.table("tp_sigbus_words", WORDS, i64)
        accessor = ir.Function(module, ir.FunctionType(i64, []), TABLE)
        b = ir.Builder(accessor, accessor.append_basic_block("entry"))
        b.ret(b.ptrtoint(table, i64))
        _handle(ir.Function(module, ir.FunctionType(void, [i32, ptr, ptr]), "tp_sigbus"), table)
        return module


TABLE = "tp_sigbus_table"
HANDLER = _HandlerSource("tp_sigbus", lambda: None, {}, __name__)
