"""A thin vocabulary of vector values over llvmlite's IR builder: kernels read as arithmetic.

A kernel is a Python function over `Kernel`, `Ptr` and `V`, decorated with `@kernel`. Its signature
is its ABI: every native kernel is

    void kernel(args, begin, end, tid)

where `args` is a block of 8-byte slots, one for each parameter in order, and [begin, end) is the
range of work units that the calling thread has to do. Keyword-only parameters are compile-time
constants; those with a default may be left out.

Float freedoms are explicit: nothing is reassociated; `fma` is `llvm.fmuladd`, one instruction where
the CPU has it. So the same inputs give the same bits whatever the tile a value was computed in.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from llvmlite import ir

from .constants import constant, null, numbers
from .targets import CpuTarget

i1 = ir.IntType(1)
i8 = ir.IntType(8)
i16 = ir.IntType(16)
i32 = ir.IntType(32)
i64 = ir.IntType(64)
f16 = ir.HalfType()
f32 = ir.FloatType()
ptr = ir.PointerType()


class _BFloat(ir.Type):
    """bfloat, which llvmlite does not name; only `vdpbf16ps` wants it."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat)

    def __hash__(self) -> int:
        return hash(_BFloat)


bf16 = _BFloat()


@functools.cache
def vec(element: ir.Type, lanes: int) -> ir.Type:
    """The vector type, or the element itself for one lane."""
    return element if lanes == 1 else ir.VectorType(element, lanes)


class Value:
    """A value in registers: a scalar, or a vector with one element for each lane."""

    __slots__ = ("k", "value")

    def __init__(self, k: Kernel, value: ir.Value) -> None:
        self.k = k
        self.value = value

    @property
    def type(self) -> Any:
        return self.value.type  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def lanes(self) -> int:
        return self.type.count if isinstance(self.type, ir.VectorType) else 1

    @property
    def element(self) -> ir.Type:
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    @property
    def is_float(self) -> bool:
        return isinstance(self.element, (ir.FloatType, ir.HalfType))

    def _like(self, other: Value | float) -> ir.Value:
        return other.value if isinstance(other, Value) else self.k.const(other, self.type).value

    def _op(
        self, int_op: str, float_op: str | None, other: Value | float, swap: bool = False
    ) -> Value:
        a, b = self.value, self._like(other)
        if swap:
            a, b = b, a
        name = float_op if self.is_float else int_op
        assert name, f"{int_op} is not defined for {self.type}"
        return Value(self.k, getattr(self.k.b, name)(a, b))

    def __add__(self, other: Value | float) -> Value:
        return self._op("add", "fadd", other)

    def __sub__(self, other: Value | float) -> Value:
        return self._op("sub", "fsub", other)

    def __rsub__(self, other: Value | float) -> Value:
        return self._op("sub", "fsub", other, swap=True)

    def __mul__(self, other: Value | float) -> Value:
        return self._op("mul", "fmul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self._op("sdiv", "fdiv", other)

    def __rtruediv__(self, other: Value | float) -> Value:
        return self._op("sdiv", "fdiv", other, swap=True)

    def __floordiv__(self, other: Value | float) -> Value:
        return self._op("sdiv", None, other)

    def __mod__(self, other: Value | float) -> Value:
        return self._op("srem", None, other)

    def __and__(self, other: Value | float) -> Value:
        return self._op("and_", None, other)

    def __or__(self, other: Value | float) -> Value:
        return self._op("or_", None, other)

    def __xor__(self, other: Value | float) -> Value:
        return self._op("xor", None, other)

    def __lshift__(self, other: Value | float) -> Value:
        return self._op("shl", None, other)

    def __rshift__(self, other: Value | float) -> Value:
        """Logical shift right; `sar` is the arithmetic one."""
        return self._op("lshr", None, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def sar(self, other: Value | float) -> Value:
        """Arithmetic shift right."""
        return self._op("ashr", None, other)

    def _compare(self, op: str, other: Value | float) -> Value:
        b = self.k.b
        compare = b.fcmp_ordered if self.is_float else b.icmp_signed
        return Value(self.k, compare(op, self.value, self._like(other)))

    def __lt__(self, other: Value | float) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Value | float) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Value | float) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Value | float) -> Value:
        return self._compare(">=", other)

    def eq(self, other: Value | float) -> Value:
        return self._compare("==", other)

    def ne(self, other: Value | float) -> Value:
        return self._compare("!=", other)

    def select(self, yes: Value, no: Value | float) -> Value:
        """`yes` in the lanes where this comparison holds, `no` elsewhere."""
        return Value(self.k, self.k.b.select(self.value, yes.value, yes._like(no)))

    def splat(self, lanes: int) -> Value:
        """This scalar in every lane."""
        if lanes == 1:
            return self
        none = null(vec(self.type, lanes))
        one = self.k.b.insert_element(none, self.value, i32(0))
        return Value(self.k, self.k.b.shuffle_vector(one, none, null(vec(i32, lanes))))

    def bitcast(self, element: ir.Type) -> Value:
        """The same bits seen as another element type."""
        old = _bits(self.element) * self.lanes
        return Value(self.k, self.k.b.bitcast(self.value, vec(element, old // _bits(element))))

    def to(self, element: ir.Type, signed: bool = True) -> Value:
        """Converted by value; integers are extended by sign unless `signed` is False."""
        b, want = self.k.b, vec(element, self.lanes)
        if self.type == want:
            return self
        if self.is_float:
            if isinstance(element, ir.IntType):
                return Value(self.k, b.fptosi(self.value, want))
            widen = _bits(element) > _bits(self.element)
            return Value(
                self.k, b.fpext(self.value, want) if widen else b.fptrunc(self.value, want)
            )
        if not isinstance(element, ir.IntType):
            convert = b.sitofp if signed else b.uitofp
            return Value(self.k, convert(self.value, want))
        if _bits(element) < _bits(self.element):
            return Value(self.k, b.trunc(self.value, want))
        return Value(self.k, b.sext(self.value, want) if signed else b.zext(self.value, want))

    def shuffle(self, order: Sequence[int], other: Value | None = None) -> Value:
        """Lanes picked by `order` from this value and, numbered on, from `other`."""
        second = other.value if other else null(self.type)
        return Value(self.k, self.k.b.shuffle_vector(self.value, second, numbers(tuple(order))))

    def at(self, lane: int) -> Value:
        """One lane as a scalar."""
        return Value(self.k, self.k.b.extract_element(self.value, i32(lane)))

    def halves(self) -> tuple[Value, Value]:
        half = self.lanes // 2
        return self.shuffle(range(half)), self.shuffle(range(half, self.lanes))

    def fold(self, combine: Callable[[Value, Value], Value]) -> Value:
        """All lanes combined in one fixed order: halves, quarters, …"""
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
        """Larger of the two; not a NaN if one of them is a number."""
        return self.k.intrinsic("llvm.maxnum" if self.is_float else "llvm.smax", self, other)

    def min(self, other: Value | float) -> Value:
        return self.k.intrinsic("llvm.minnum" if self.is_float else "llvm.smin", self, other)

    def abs(self) -> Value:
        if self.is_float:
            return self.k.intrinsic("llvm.fabs", self)
        return self.max(0 - self)

    def sqrt(self) -> Value:
        return self.k.intrinsic("llvm.sqrt", self)


@dataclass(frozen=True, slots=True)
class Ptr:
    """An address with the element type it is read and written as."""

    k: Kernel
    value: ir.Value
    element: ir.Type

    def at(self, index: Value | int) -> Ptr:
        """The address `index` elements on."""
        where = self.k.index(index)
        return Ptr(
            self.k, self.k.b.gep(self.value, [where], source_etype=self.element), self.element
        )

    def load(self, index: Value | int = 0, lanes: int = 1) -> Value:
        """`lanes` elements from `index` on; unaligned is fine."""
        align = _bits(self.element) // 8
        value = self.k.b.load(self.at(index).value, align=align, typ=vec(self.element, lanes))
        return Value(self.k, value)

    def splat(self, index: Value | int, lanes: int) -> Value:
        """One element in every lane: an embedded or explicit broadcast."""
        return self.load(index).splat(lanes)

    def store(self, index: Value | int, value: Value) -> None:
        align = _bits(self.element) // 8
        self.k.b.store(value.value, self.at(index).value, align=align)

    def cast(self, element: ir.Type) -> Ptr:
        return Ptr(self.k, self.value, element)

    def prefetch(self, index: Value | int, locality: int = 3) -> None:
        """Ask for the cache line that holds element `index` (3: all levels … 0: streaming)."""
        fn = self.k.declare("llvm.prefetch.p0", ir.VoidType(), [ptr, i32, i32, i32])
        self.k.b.call(fn, [self.at(index).value, i32(0), i32(locality), i32(1)])


class Var:
    """A loop-carried value: an entry alloca that LLVM turns into registers."""

    __slots__ = ("k", "slot", "type")

    def __init__(self, k: Kernel, init: Value) -> None:
        self.k = k
        self.type = init.type
        with k.b.goto_entry_block():
            self.slot = k.b.alloca(init.type)
        self.set(init)

    @property
    def value(self) -> Value:
        return Value(self.k, self.k.b.load(self.slot, typ=self.type))

    def set(self, value: Value) -> None:
        self.k.b.store(value.value, self.slot)


class Kernel:
    """What a kernel's body builds with: constants, loops, branches, intrinsics, its work range."""

    def __init__(self, target: CpuTarget, module: ir.Module, function: ir.Function) -> None:
        self.target = target
        self.module = module
        self.function = function
        # llvmlite has no type stubs, and what a checker infers for its builder is wrong.
        self.b: Any = ir.IRBuilder(function.append_basic_block("entry"))
        self.args, begin, end, tid = function.args
        self.begin, self.end, self.tid = Value(self, begin), Value(self, end), Value(self, tid)

    @property
    def lanes(self) -> int:
        """float32 values in one vector register."""
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
        """0, 1, 2, … as int32."""
        return Value(self, numbers(tuple(range(lanes))))

    def var(self, init: Value) -> Var:
        return Var(self, init)

    def index(self, value: Value | int) -> ir.Value:
        return i64(value) if isinstance(value, int) else value.to(i64).value

    def pointer(self, address: Value, element: ir.Type) -> Ptr:
        """An int64 address as a pointer."""
        return Ptr(self, self.b.inttoptr(address.value, ptr), element)

    def scratch(self, element: ir.Type, count: int) -> Ptr:
        """A small array on the stack, aligned to 64 bytes."""
        with self.b.goto_entry_block():
            slot = self.b.alloca(ir.ArrayType(element, count))
            slot.align = 64
            # llvmlite takes it for an address of whole arrays, to which no element could be stored.
            slot.type = ptr
        return Ptr(self, slot, element)

    def choose(self, condition: Value, yes: Ptr, no: Ptr) -> Ptr:
        """`yes` where the condition holds, else `no`."""
        return Ptr(self, self.b.select(condition.value, yes.value, no.value), yes.element)

    # arithmetic

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c; one rounding where the CPU has FMA, two elsewhere."""
        return self.intrinsic("llvm.fmuladd", a, b, c)

    def intrinsic(self, name: str, first: Value, *rest: Value | float) -> Value:
        """An overloaded LLVM intrinsic whose operands and result have one type."""
        args = [first.value, *(first._like(other) for other in rest)]
        fn = self.declare(f"{name}.{_suffix(first.type)}", first.type, [first.type] * len(args))
        return Value(self, self.b.call(fn, args))

    def call(self, name: str, result: ir.Type, args: Sequence[Value]) -> Value:
        """A target's own intrinsic, by its full name."""
        fn = self.declare(name, result, [arg.type for arg in args])
        return Value(self, self.b.call(fn, [arg.value for arg in args]))

    def declare(self, name: str, result: ir.Type, args: Sequence[ir.Type]) -> ir.Function:
        found = self.module.globals.get(name)
        if found is not None:
            return found  # pyright: ignore[reportReturnType]
        return ir.Function(self.module, ir.FunctionType(result, args), name)

    # control

    @contextlib.contextmanager
    def range(
        self, start: Value | int, end: Value | int, step: int | Value = 1, name: str = "i"
    ) -> Iterator[Value]:
        """for i in range(start, end, step), with `i` as int64."""
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
        """The work units of this call: for unit in range(begin, end)."""
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
        """The LLVM module that holds this one kernel for `target`."""
        missing = (set(self.constants) ^ set(constants)) - (self.optional - set(constants))
        assert not missing, f"{self.name}: constants {sorted(missing)} missing or unknown"
        module = ir.Module(name=self.name)
        module.triple = target.triple
        signature = ir.FunctionType(ir.VoidType(), [ptr, i64, i64, i64])
        function = ir.Function(module, signature, self.name)
        for arg, name in zip(function.args, ("args", "begin", "end", "tid"), strict=True):
            arg.name = name
        function.attributes.add("nounwind")
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
        self.pointee = pointee


I64 = Annotated[Value, i64]
F32 = Annotated[Value, f32]
F32s = Annotated[Ptr, _Pointer(f32)]
I8s = Annotated[Ptr, _Pointer(i8)]
I16s = Annotated[Ptr, _Pointer(i16)]
I32s = Annotated[Ptr, _Pointer(i32)]
I64s = Annotated[Ptr, _Pointer(i64)]


def kernel(body: Callable[..., None]) -> KernelSource:
    """Decorate a kernel; every parameter after `k` carries its type of the argument block."""
    # Read here and not by `inspect` and `typing`, which take ten times as long for every start.
    code, space = body.__code__, body.__globals__
    names = code.co_varnames[1 : code.co_argcount]
    constants = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    types = {name: eval(body.__annotations__[name], space) for name in names}
    params = {name: type_.__metadata__[0] for name, type_ in types.items()}
    optional = frozenset(body.__kwdefaults__ or ())
    return KernelSource(body.__name__, body, params, body.__module__, constants, optional)


def _bits(type_: ir.Type) -> int:
    if isinstance(type_, ir.IntType):
        return type_.width
    return {"half": 16, "bfloat": 16, "float": 32, "ptr": 64}[str(type_)]


def _suffix(type_: Any) -> str:
    """How LLVM mangles a type in an intrinsic's name, e.g. v16f32."""
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{_suffix(type_.element)}"
    if isinstance(type_, ir.IntType):
        return f"i{type_.width}"
    return {"half": "f16", "float": "f32"}[str(type_)]
