"""Vector values over LLVM's instructions, so that kernels read as arithmetic.

A kernel is a Python function over `Kernel`, `Ptr` and `Value`, decorated with `@kernel`. Its
signature is its ABI: every native kernel is

    void kernel(args, begin, end, tid)

where `args` is a block of 8-byte slots, one for each parameter in order, and [begin, end) is the
range of work units that the calling thread has to do. Keyword-only parameters are compile-time
constants; those with a default may be left out.

Float freedoms are explicit: nothing is reassociated; `fma` is `llvm.fmuladd`, one instruction where
the CPU has it. So the same inputs give the same bits whatever the tile a value was computed in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from . import ir
from .ir import constant, constants, f32, i8, i16, i32, i64, ptr, vec, void
from .targets import CpuTarget


def _operator(
    int_op: str, float_op: str | None = None, swap: bool = False
) -> Callable[[Value, Value | float], Value]:
    """Return the operator method of two values of one type, from LLVM's names for it."""
    return lambda self, other: self._op(int_op, float_op, other, swap)


def _comparison(op: str) -> Callable[[Value, Value | float], Value]:
    return lambda self, other: self._compare(op, other)


class Value:
    """A value in registers: a scalar, or a vector with one element for each lane."""

    __slots__ = ("k", "type", "value")

    def __init__(self, k: Kernel, value: ir.Value) -> None:
        self.k = k
        self.value = value
        self.type = value.type

    @property
    def lanes(self) -> int:
        return self.type.count

    @property
    def element(self) -> ir.Type:
        return self.type.element

    def _like(self, other: Value | float) -> ir.Value:
        return other.value if isinstance(other, Value) else constant(other, self.type)

    def _op(
        self, int_op: str, float_op: str | None, other: Value | float, swap: bool = False
    ) -> Value:
        a, b = self.value, self._like(other)
        if swap:
            a, b = b, a
        name = float_op if self.type.is_float else int_op
        assert name, f"{int_op} is not defined for {self.type}"
        return Value(self.k, self.k.b.op(name, a, b))

    __add__ = __radd__ = _operator("add", "fadd")
    __sub__, __rsub__ = _operator("sub", "fsub"), _operator("sub", "fsub", swap=True)
    __mul__ = __rmul__ = _operator("mul", "fmul")
    __truediv__, __rtruediv__ = _operator("sdiv", "fdiv"), _operator("sdiv", "fdiv", swap=True)
    __floordiv__, __mod__ = _operator("sdiv"), _operator("srem")
    __and__, __or__, __xor__ = _operator("and"), _operator("or"), _operator("xor")
    __lshift__, __rshift__, sar = _operator("shl"), _operator("lshr"), _operator("ashr")
    """`sar` is the arithmetic shift right, `>>` the logical one."""

    def _compare(self, op: str, other: Value | float) -> Value:
        b = self.k.b
        compare = b.fcmp_ordered if self.type.is_float else b.icmp_signed
        return Value(self.k, compare(op, self.value, self._like(other)))

    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    eq, ne = map(_comparison, ("==", "!="))

    def select(self, yes: Value, no: Value | float) -> Value:
        """Select `yes` in the lanes where this comparison holds, `no` elsewhere."""
        return Value(self.k, self.k.b.select(self.value, yes.value, yes._like(no)))

    def splat(self, lanes: int) -> Value:
        """Broadcast this scalar to every lane."""
        if lanes == 1:
            return self
        none = ir.null(vec(self.type, lanes))
        one = self.k.b.insert_element(none, self.value, i32(0))
        return Value(self.k, self.k.b.shuffle_vector(one, none, ir.null(vec(i32, lanes))))

    def bitcast(self, element: ir.Type) -> Value:
        """Reinterpret the bits as another element type."""
        old = self.type.bits * self.lanes
        return Value(self.k, self.k.b.bitcast(self.value, vec(element, old // element.bits)))

    def to(self, element: ir.Type, signed: bool = True) -> Value:
        """Convert by value; integers are sign-extended unless `signed` is False."""
        want = vec(element, self.lanes)
        if self.type is want:
            return self
        if self.type.is_float and want.is_float:
            name = "fpext" if want.bits > self.type.bits else "fptrunc"
        elif self.type.is_float:
            name = "fptosi"
        elif want.is_float:
            name = "sitofp" if signed else "uitofp"
        elif want.bits < self.type.bits:
            name = "trunc"
        else:
            name = "sext" if signed else "zext"
        return Value(self.k, self.k.b.convert(name, self.value, want))

    def shuffle(self, order: Sequence[int], other: Value | None = None) -> Value:
        """Pick lanes by `order` from this value and then `other`, numbered consecutively."""
        second = other.value if other else ir.null(self.type)
        return Value(self.k, self.k.b.shuffle_vector(self.value, second, constants(tuple(order))))

    def at(self, lane: int) -> Value:
        """Return one lane as a scalar."""
        return Value(self.k, self.k.b.extract_element(self.value, i32(lane)))

    def halves(self) -> tuple[Value, Value]:
        half = self.lanes // 2
        return self.shuffle(range(half)), self.shuffle(range(half, self.lanes))

    def fold(self, combine: Callable[[Value, Value], Value]) -> Value:
        """Combine all lanes in one fixed order: halves, quarters, …."""
        value = self
        while value.lanes > 1:
            value = (
                combine(*value.halves()) if value.lanes > 2 else combine(value.at(0), value.at(1))
            )
        return value

    def hsum(self) -> Value:
        return self.fold(lambda a, b: a + b)

    def hmax(self) -> Value:
        return self.fold(lambda a, b: a.max(b))

    def max(self, other: Value | float) -> Value:
        """Return the larger of the two values; not a NaN if one of them is a number."""
        return self.k.intrinsic("llvm.maxnum" if self.type.is_float else "llvm.smax", self, other)

    def min(self, other: Value | float) -> Value:
        return self.k.intrinsic("llvm.minnum" if self.type.is_float else "llvm.smin", self, other)

    def abs(self) -> Value:
        if self.type.is_float:
            return self.k.intrinsic("llvm.fabs", self)
        return self.max(0 - self)

    def sqrt(self) -> Value:
        return self.k.intrinsic("llvm.sqrt", self)


class Ptr:
    """An address with the element type it is read and written as."""

    __slots__ = ("element", "k", "value")

    def __init__(self, k: Kernel, value: ir.Value, element: ir.Type) -> None:
        self.k = k
        self.value = value
        self.element = element

    def at(self, index: Value | int) -> Ptr:
        """Return the address `index` elements after this one."""
        k, element = self.k, self.element
        return Ptr(k, k.b.gep(self.value, k.index(index), element), element)

    def load(self, index: Value | int = 0, lanes: int = 1) -> Value:
        """Load `lanes` elements from `index` on; unaligned is fine."""
        k, element = self.k, self.element
        where = k.b.gep(self.value, k.index(index), element)
        return Value(k, k.b.load(where, vec(element, lanes), element.bits // 8))

    def splat(self, index: Value | int, lanes: int) -> Value:
        """Load one element into every lane: an embedded or explicit broadcast."""
        return self.load(index).splat(lanes)

    def store(self, index: Value | int, value: Value) -> None:
        self.k.b.store(value.value, self.at(index).value, self.element.bits // 8)

    def store_where(self, index: Value | int, value: Value, mask: Value) -> None:
        """Store the lanes where the comparison `mask` holds; leave the others unchanged."""
        k = self.k
        name = f"llvm.masked.store.{value.type.suffix}.p0"
        fn = k.declare(name, void, [value.type, ptr, i32, mask.type])
        align = i32(self.element.bits // 8)
        k.b.call(fn, [value.value, self.at(index).value, align, mask.value])

    def cast(self, element: ir.Type) -> Ptr:
        return Ptr(self.k, self.value, element)

    def prefetch(self, index: Value | int, locality: int = 3) -> None:
        """Prefetch the cache line that holds element `index` (3: all levels … 0: streaming)."""
        fn = self.k.declare("llvm.prefetch.p0", void, [ptr, i32, i32, i32])
        self.k.b.call(fn, [self.at(index).value, i32(0), i32(locality), i32(1)])


class Var:
    """A loop-carried value: an entry alloca that LLVM turns into registers."""

    __slots__ = ("k", "slot", "type")

    def __init__(self, k: Kernel, init: Value) -> None:
        self.k = k
        self.type = init.type
        self.slot = k.b.alloca(init.type.text)
        self.set(init)

    @property
    def value(self) -> Value:
        return Value(self.k, self.k.b.load(self.slot, self.type))

    def set(self, value: Value) -> None:
        self.k.b.store(value.value, self.slot)


class Kernel:
    """The builder of a kernel's body: constants, loops, branches, intrinsics, its work range."""

    def __init__(self, target: CpuTarget, module: ir.Module, function: ir.Function) -> None:
        self.target = target
        self.module = module
        self.function = function
        self.b = ir.Builder(function, function.append_basic_block("entry"))
        self.args, begin, end, tid = function.args
        self.begin, self.end, self.tid = Value(self, begin), Value(self, end), Value(self, tid)

    @property
    def lanes(self) -> int:
        """Number of float32 values in one vector register."""
        return self.target.lanes

    # values

    def const(self, value: float, type_: Any) -> Value:
        return Value(self, constant(value, type_))

    def i64(self, value: int) -> Value:
        return self.const(value, i64)

    def f32(self, value: float, lanes: int = 1) -> Value:
        return self.const(value, vec(f32, lanes))

    def zeros(self, element: ir.Type, lanes: int) -> Value:
        return self.const(0, vec(element, lanes))

    def iota(self, lanes: int) -> Value:
        """Return the vector 0, 1, 2, … of int32."""
        return Value(self, constants(tuple(range(lanes))))

    def var(self, init: Value) -> Var:
        return Var(self, init)

    def index(self, value: Value | int) -> ir.Value:
        return i64(value) if isinstance(value, int) else value.to(i64).value

    def pointer(self, address: Value, element: ir.Type) -> Ptr:
        """Convert an int64 address to a pointer."""
        return Ptr(self, self.b.inttoptr(address.value, ptr), element)

    def scratch(self, element: ir.Type, count: int) -> Ptr:
        """Allocate a small array on the stack, aligned to 64 bytes."""
        return Ptr(self, self.b.alloca(f"[{count} x {element.text}]", align=64), element)

    def choose(self, condition: Value, yes: Ptr, no: Ptr) -> Ptr:
        """Return the pointer `yes` if the condition holds, else `no`."""
        return Ptr(self, self.b.select(condition.value, yes.value, no.value), yes.element)

    # arithmetic

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Compute a * b + c; one rounding where the CPU has FMA, two elsewhere."""
        return self.intrinsic("llvm.fmuladd", a, b, c)

    def intrinsic(self, name: str, first: Value, *rest: Value | float) -> Value:
        """Call an overloaded LLVM intrinsic whose operands and result have one type."""
        args = [first.value, *(first._like(other) for other in rest)]
        fn = self.declare(f"{name}.{first.type.suffix}", first.type, [first.type] * len(args))
        return Value(self, self.b.call(fn, args))

    def call(self, name: str, result: ir.Type, args: Sequence[Value]) -> Value:
        """Call a target-specific intrinsic by its full name."""
        fn = self.declare(name, result, [arg.type for arg in args])
        return Value(self, self.b.call(fn, [arg.value for arg in args]))

    def declare(self, name: str, result: ir.Type, args: Sequence[ir.Type]) -> ir.Callee:
        return self.module.declare(name, result, args)

    # control

    @contextlib.contextmanager
    def range(
        self, start: Value | int, end: Value | int, step: int | Value = 1, name: str = "i"
    ) -> Iterator[Value]:
        """Emit for i in range(start, end, step), with `i` as int64."""
        index = self.var(Value(self, self.index(start)))
        stop, stride = self.index(end), self.index(step)
        head = self.function.append_basic_block(f"{name}.head")
        body = self.function.append_basic_block(f"{name}.body")
        done = self.function.append_basic_block(f"{name}.done")
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.b.icmp_signed("<", index.value.value, stop), body, done)
        self.b.position_at_end(body)
        now = index.value
        yield now
        index.set(now + Value(self, stride))
        self.b.branch(head)
        self.b.position_at_end(done)

    def units(self, name: str = "unit"):
        """Emit a loop over the work units of this call: for unit in range(begin, end)."""
        return self.range(self.begin, self.end, name=name)

    @contextlib.contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        with self.b.if_then(condition.value):
            yield


@dataclass(frozen=True)
class KernelSource:
    """A decorated kernel: its body and the types of its argument block."""

    name: str
    body: Callable[..., None]
    params: dict[str, ir.Type]
    module: str
    constants: tuple[str, ...] = field(default=())
    optional: frozenset[str] = frozenset()  # those of them that have a default
    calls: ClassVar[bool] = False  # functions of its own, which LLVM is to inline

    def build(self, target: CpuTarget, **constants: Any) -> ir.Module:
        """Build the LLVM module of this kernel for `target`."""
        missing = (set(self.constants) ^ set(constants)) - (self.optional - set(constants))
        assert not missing, f"{self.name}: constants {sorted(missing)} missing or unknown"
        module = ir.Module(target.triple)
        signature = ir.FunctionType(void, [ptr, i64, i64, i64])
        function = ir.Function(module, signature, self.name)
        k = Kernel(target, module, function)
        block = Ptr(k, k.args, i64)
        values: list[Ptr | Value] = []
        for slot, type_ in enumerate(self.params.values()):
            if isinstance(type_, _Pointer):
                values.append(Ptr(k, block.cast(ptr).load(slot).value, type_.pointee))
            else:
                # A slot is 8 bytes whatever the type; the low bytes hold the value.
                values.append(block.at(slot).cast(type_).load(0))
        self.body(k, *values, **constants)
        k.b.ret_void()
        return module


class _Pointer(ir.Type):
    """Marks a parameter as an address of `pointee` elements."""

    def __init__(self, pointee: ir.Type) -> None:
        super().__init__(f"{pointee}*")
        self.pointee = pointee


I64 = Annotated[Value, i64]
F32 = Annotated[Value, f32]
F32s = Annotated[Ptr, _Pointer(f32)]
I8s = Annotated[Ptr, _Pointer(i8)]
I16s = Annotated[Ptr, _Pointer(i16)]
I32s = Annotated[Ptr, _Pointer(i32)]
I64s = Annotated[Ptr, _Pointer(i64)]


def kernel(body: Callable[..., None]) -> KernelSource:
    """Turn a function into a kernel; annotations of its parameters after `k` are argument types."""
    # Read here and not by `inspect` and `typing`, which take ten times as long for every start.
    code, space = body.__code__, body.__globals__
    names = code.co_varnames[1 : code.co_argcount]
    constants = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    types = {name: eval(body.__annotations__[name], space) for name in names}
    params = {name: type_.__metadata__[0] for name, type_ in types.items()}
    optional = frozenset(body.__kwdefaults__ or ())
    return KernelSource(body.__name__, body, params, body.__module__, constants, optional)
