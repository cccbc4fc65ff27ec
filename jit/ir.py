"""LLVM IR as text: each builder call writes one line.

An object for each instruction, made into text when all are there, takes four times as long, and was
half of what a kernel's first start cost. LLVM checks types and uses when it parses the text.
"""

from __future__ import annotations

import contextlib
import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence


class Type:
    """An LLVM type; one object of each, so that types compare by identity."""

    __slots__ = ("bits", "count", "element", "is_float", "suffix", "text")

    def __init__(self, text: str, bits: int = 0) -> None:
        """Create a type; bits: of an element in memory."""
        self.text, self.bits = text, bits
        self.suffix = text  # in the names of intrinsics
        self.element: Type = self
        self.count = 1
        self.is_float = False

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__

    def __call__(self, value: float) -> Value:
        """Return `value` as a constant of this type."""
        return Value(self, self.literal(value))

    def literal(self, value: float) -> str:
        """Format `value` as a constant of this type."""
        raise TypeError(f"{self} has no constants")


class IntType(Type):
    __slots__ = ()

    def literal(self, value: float) -> str:
        return str(int(value))


class FloatType(Type):
    """LLVM's float or half, whose constants are written as the bits of the equal double."""

    __slots__ = ()

    def __init__(self, text: str, bits: int) -> None:
        super().__init__(text, bits)
        self.is_float, self.suffix = True, f"f{bits}"

    def literal(self, value: float) -> str:
        kind = "e" if self.bits == 16 else "f"
        (rounded,) = struct.unpack(kind, struct.pack(kind, value))
        return f"0x{struct.pack('>d', rounded).hex()}"


class VectorType(Type):
    __slots__ = ()

    def __init__(self, element: Type, count: int) -> None:
        super().__init__(f"<{count} x {element.text}>", element.bits)
        self.element, self.count, self.is_float = element, count, element.is_float
        self.suffix = f"v{count}{element.suffix}"

    def literal(self, value: float) -> str:
        one = self.element.literal(value)
        zero = one in ("0", "0x0000000000000000")
        return "zeroinitializer" if zero else f"splat ({self.element.text} {one})"


class FunctionType:
    __slots__ = ("args", "result")

    def __init__(self, result: Type, args: Sequence[Type]) -> None:
        self.result, self.args = result, args


void, ptr, _node = Type("void"), Type("ptr", 64), Type("metadata")
i1, i8, i16, i32, i64 = (IntType(f"i{bits}", bits) for bits in (1, 8, 16, 32, 64))
f16, bf16, f32 = FloatType("half", 16), Type("bfloat", 16), FloatType("float", 32)


@functools.cache
def vec(element: Type, lanes: int) -> Type:
    """Return the vector type, or the element itself for one lane."""
    return element if lanes == 1 else VectorType(element, lanes)


class Value:
    """An operand: a type, and the name or constant as written."""

    __slots__ = ("ref", "type")

    def __init__(self, type_: Type, ref: str) -> None:
        self.type, self.ref = type_, ref

    def __str__(self) -> str:
        return f"{self.type.text} {self.ref}"


def listed(values: Sequence[float], element: Type) -> str:
    """Format the elements of a constant vector or array."""
    return ", ".join(f"{element.text} {element.literal(value)}" for value in values)


def constant(value: float, type_: Type) -> Value:
    """Return the constant `value` of this type, in every lane of a vector."""
    return _constant(value, math.copysign(1.0, value), type_)


@functools.lru_cache(maxsize=4096)
def _constant(value: float, sign: float, type_: Type) -> Value:
    """Return the constant; `sign` distinguishes 0.0 from -0.0, which are equal."""
    return Value(type_, type_.literal(value))


@functools.lru_cache(maxsize=4096)
def constants(values: tuple[int, ...], element: Type = i32) -> Value:
    """Return a vector constant of these integers, one a lane."""
    return Value(vec(element, len(values)), f"<{listed(values, element)}>")


@functools.cache
def null(type_: Type) -> Value:
    """Return the constant with all bits 0."""
    return Value(type_, "null" if type_ is ptr else "zeroinitializer")


class Module:
    """An LLVM module: the functions and tables of one object file."""

    def __init__(self, triple: str) -> None:
        self.triple = triple
        self.functions: list[Function] = []
        self.globals: dict[str, Value] = {}
        self._nodes: dict[str, Value] = {}
        self._lines: list[str] = []  # globals, declarations and metadata

    def table(self, name: str, length: int, element: Type, values: Sequence[float] = ()) -> Value:
        """Add an internal array: constant `values`, or a variable of zeros."""
        kind = f"[{length} x {element.text}]"
        if values:
            text = f"constant {kind} [{listed(values, element)}]"
        else:
            text = f"global {kind} zeroinitializer, align 64"
        self._lines.append(f'@"{name}" = internal {text}')
        found = self.globals[name] = Value(ptr, f'@"{name}"')
        return found

    def declare(self, name: str, result: Type, args: Sequence[Type]) -> Callee:
        """Declare an external function, once for each name."""
        found = self.globals.get(name)
        if found is None:
            types = ", ".join(arg.text for arg in args)
            self._lines.append(f'declare {result.text} @"{name}"({types})')
            found = self.globals[name] = Callee(f'@"{name}"', FunctionType(result, args))
        assert isinstance(found, Callee)
        return found

    def metadata(self, text: str) -> Value:
        """Add a metadata node of one string, once for each text."""
        found = self._nodes.get(text)
        if found is None:
            found = self._nodes[text] = Value(_node, f"!{len(self._nodes)}")
            self._lines.append(f'{found.ref} = !{{ !"{text}" }}')
        return found

    def __str__(self) -> str:
        head = f'target triple = "{self.triple}"\n'
        return head + "\n".join([*self._lines, *map(str, self.functions)]) + "\n"


class Callee(Value):
    """An address and the type of the function there."""

    __slots__ = ("function_type",)

    def __init__(self, ref: str, kind: FunctionType) -> None:
        super().__init__(ptr, ref)
        self.function_type = kind


class Block:
    __slots__ = ("lines", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []

    @property
    def label(self) -> str:
        return f"label %{self.name}"


class Function(Callee):
    """A function with a body: basic blocks in the order in which they were appended."""

    __slots__ = ("args", "blocks", "internal", "named")

    def __init__(
        self, module: Module, kind: FunctionType, name: str, *, internal: bool = False
    ) -> None:
        super().__init__(f'@"{name}"', kind)
        module.functions.append(self)
        self.args = [Value(type_, f"%a{n}") for n, type_ in enumerate(kind.args)]
        self.blocks: list[Block] = []
        self.internal = internal
        self.named = 0  # values so far: each has a number for a name

    def append_basic_block(self, name: str) -> Block:
        block = Block(f"{name}.{len(self.blocks)}")
        self.blocks.append(block)
        return block

    def __str__(self) -> str:
        kind = self.function_type
        head = f"define {'internal ' * self.internal}{kind.result.text} {self.ref}"
        lines = [f"{head}({', '.join(map(str, self.args))}) nounwind {{"]
        for block in self.blocks:
            lines += [f"{block.name}:", *block.lines]
        lines.append("}\n")
        return "\n".join(lines)


_COMPARED = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_EQUAL = {"==": "eq", "!=": "ne"}


def _binary(name: str) -> Callable[[Builder, Value, Value], Value]:
    return lambda self, a, b: self.op(name, a, b)


def _conversion(name: str) -> Callable[[Builder, Value, Type], Value]:
    return lambda self, value, want: self.convert(name, value, want)


class Builder:
    """An appender of instructions to a basic block; methods have LLVM's names."""

    def __init__(self, function: Function, block: Block) -> None:
        self.function = function
        self.position_at_end(block)

    def position_at_end(self, block: Block) -> None:
        self.block = block
        self._write = block.lines.append

    def _value(self, type_: Type, text: str) -> Value:
        function = self.function
        function.named = number = function.named + 1
        ref = f"%v{number}"
        self._write(f"{ref} = {text}")
        return Value(type_, ref)

    # values

    def op(self, name: str, a: Value, b: Value) -> Value:
        """Emit an operation whose operands and result have one type."""
        kind = a.type
        return self._value(kind, f"{name} {kind.text} {a.ref}, {b.ref}")

    add, sub, mul, sdiv = map(_binary, ("add", "sub", "mul", "sdiv"))
    and_, or_, lshr = map(_binary, ("and", "or", "lshr"))

    def not_(self, a: Value) -> Value:
        return self.op("xor", a, a.type(-1))

    def _compare(self, how: str, a: Value, b: Value) -> Value:
        kind = a.type
        result = vec(i1, kind.count)
        return self._value(result, f"{how} {kind.text} {a.ref}, {b.ref}")

    def icmp_signed(self, op: str, a: Value, b: Value) -> Value:
        return self._compare(f"icmp {_EQUAL.get(op) or 's' + _COMPARED[op]}", a, b)

    def icmp_unsigned(self, op: str, a: Value, b: Value) -> Value:
        return self._compare(f"icmp {_EQUAL.get(op) or 'u' + _COMPARED[op]}", a, b)

    def fcmp_ordered(self, op: str, a: Value, b: Value) -> Value:
        return self._compare(f"fcmp o{_EQUAL.get(op) or _COMPARED[op]}", a, b)

    def select(self, which: Value, yes: Value, no: Value) -> Value:
        return self._value(yes.type, f"select {which}, {yes}, {no}")

    def convert(self, name: str, value: Value, want: Type) -> Value:
        """Emit bitcast, trunc, zext, sext, fpext, fptrunc, fptosi, sitofp, uitofp or the like."""
        if value.type is want:
            return value
        return self._value(want, f"{name} {value} to {want.text}")

    zext, bitcast = map(_conversion, ("zext", "bitcast"))
    ptrtoint, inttoptr = map(_conversion, ("ptrtoint", "inttoptr"))

    def extract_element(self, of: Value, lane: Value) -> Value:
        return self._value(of.type.element, f"extractelement {of}, {lane}")

    def insert_element(self, into: Value, value: Value, lane: Value) -> Value:
        return self._value(into.type, f"insertelement {into}, {value}, {lane}")

    def shuffle_vector(self, a: Value, b: Value, order: Value) -> Value:
        kind = vec(a.type.element, order.type.count)
        return self._value(kind, f"shufflevector {a}, {b}, {order}")

    def call(self, callee: Callee, args: Sequence[Value]) -> Value:
        kind = callee.function_type.result
        text = f"call {kind.text} {callee.ref}({', '.join(map(str, args))})"
        if kind is not void:
            return self._value(kind, text)
        self._write(text)
        return Value(void, "")

    # memory

    def alloca(self, kind: str, align: int = 0) -> Value:
        """Emit an alloca of a type, written as `kind`."""
        function = self.function
        function.named = number = function.named + 1
        line = f"%v{number} = alloca {kind}{f', align {align}' if align else ''}"
        entry = function.blocks[0]
        # In the first block, before the jump out of it, LLVM takes it for a part of the frame.
        entry.lines.insert(len(entry.lines) - (self.block is not entry), line)
        return Value(ptr, f"%v{number}")

    def gep(self, base: Value, index: Value, element: Type) -> Value:
        """Return the address `index` elements after `base`."""
        return self._value(ptr, f"getelementptr {element.text}, ptr {base.ref}, {index}")

    def load(self, where: Value, kind: Type, align: int = 0) -> Value:
        end = f", align {align}" if align else ""
        return self._value(kind, f"load {kind.text}, ptr {where.ref}{end}")

    def store(self, value: Value, where: Value, align: int = 0) -> None:
        end = f", align {align}" if align else ""
        self._write(f"store {value}, ptr {where.ref}{end}")

    def load_atomic(self, where: Value, order: str) -> Value:
        """Emit an atomic load of an int64."""
        return self._value(i64, f"load atomic i64, ptr {where.ref} {order}, align 8")

    def atomic_rmw(self, op: str, where: Value, value: Value, order: str) -> Value:
        """Emit atomicrmw; return the previous int64."""
        return self._value(i64, f"atomicrmw {op} ptr {where.ref}, {value} {order}")

    def compare_exchange(self, where: Value, old: Value, new: Value) -> Value:
        """Store the int64 `new` if `old` is there; return whether it was, as i1."""
        function = self.function
        function.named = number = function.named + 1
        exchange = f"cmpxchg ptr {where.ref}, {old}, {new} seq_cst seq_cst"
        self._write(f"%v{number} = {exchange}")
        return self._value(i1, f"extractvalue {{ i64, i1 }} %v{number}, 1")

    # control

    def branch(self, to: Block) -> None:
        self._write(f"br {to.label}")

    def cbranch(self, which: Value, yes: Block, no: Block) -> None:
        self._write(f"br {which}, {yes.label}, {no.label}")

    def ret(self, value: Value) -> None:
        self._write(f"ret {value}")

    def ret_void(self) -> None:
        self._write("ret void")

    def phi(self, *incoming: tuple[Value, Block]) -> Phi:
        """Emit an int64 phi at the start of a block."""
        lines = self.block.lines
        found = Phi(self._value(i64, "phi").ref, lines)
        for value, block in incoming:
            found.add_incoming(value, block)
        return found

    @contextlib.contextmanager
    def if_then(self, condition: Value) -> Iterator[None]:
        yes, done = map(self.function.append_basic_block, ("if", "endif"))
        self.cbranch(condition, yes, done)
        self.position_at_end(yes)
        yield
        self.branch(done)
        self.position_at_end(done)

    @contextlib.contextmanager
    def count(self, first: Value, end: Value) -> Iterator[Value]:
        """Emit a loop over the int64 from `first` up to, but not including, `end`."""
        head, body, done = map(self.function.append_basic_block, ("head", "body", "done"))
        entry = self.block
        self.branch(head)
        self.position_at_end(head)
        number = self.phi((first, entry))
        self.cbranch(self.icmp_signed("<", number, end), body, done)
        self.position_at_end(body)
        yield number
        number.add_incoming(self.add(number, i64(1)), self.block)
        self.branch(head)
        self.position_at_end(done)


class Phi(Value):
    """A phi node, one value for each preceding block."""

    __slots__ = ("_at", "_incoming", "_lines")

    def __init__(self, ref: str, lines: list[str]) -> None:
        super().__init__(i64, ref)
        self._lines, self._at = lines, len(lines) - 1
        self._incoming: list[str] = []

    def add_incoming(self, value: Value, block: Block) -> None:
        self._incoming.append(f"[{value.ref}, %{block.name}]")
        self._lines[self._at] = f"{self.ref} = phi i64 {', '.join(self._incoming)}"
