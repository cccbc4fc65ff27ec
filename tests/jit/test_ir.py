"""The text of LLVM's IR: what is written is what LLVM reads."""

from __future__ import annotations

import numpy as np
import pytest

from triplepoint.jit import ir
from triplepoint.jit.targets import detect, llvm_binding


def read_back(module: ir.Module) -> str:
    """`module` as LLVM prints what it read."""
    llvm = llvm_binding()
    found = llvm.parse_assembly(str(module), llvm.create_context())
    found.verify()
    return str(found)


def returned(value: ir.Value) -> str:
    """How LLVM writes the constant that a function returns."""
    module = ir.Module(detect().triple)
    fn = ir.Function(module, ir.FunctionType(value.type, []), "f")
    ir.Builder(fn, fn.append_basic_block("entry")).ret(value)
    (line,) = [line for line in read_back(module).splitlines() if line.strip().startswith("ret")]
    return line.split(str(value.type), 1)[1].strip()


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.0, -1.5, 0.1, 1e-45, 3.4e38, float("inf"), float("-inf")]
)
def test_floats_keep_their_bits(value: float) -> None:
    """A float32 is written so that LLVM reads the nearest float, denormals and both zeros too."""
    text = returned(ir.f32(value))
    got = np.array(int(text, 16), np.uint64).view(np.float64) if "0x" in text else float(text)

    with np.errstate(over="ignore"):
        assert np.float32(got).view(np.uint32) == np.float32(value).view(np.uint32)


def test_a_nan_is_a_nan() -> None:
    """It has no payload of its own."""
    assert returned(ir.f32(float("nan"))) == "0x7FF8000000000000"


@pytest.mark.parametrize("value", [0.0, -0.0, 0.5, -65504.0, 6e-8])
def test_halves_are_rounded(value: float) -> None:
    """A float16 is the nearest one, which LLVM writes as its 16 bits."""
    text = returned(ir.f16(value)).removeprefix("0xH")

    assert np.array(int(text, 16), np.uint16).view(np.float16) == np.float16(value)


def test_constant_vectors() -> None:
    """One value in every lane, a list of them, and nothing but zeros."""
    four = ir.vec(ir.i32, 4)

    assert returned(ir.constant(7, four)) == "splat (i32 7)"
    assert returned(ir.constant(-0.0, ir.vec(ir.f32, 2))) == "splat (float -0.000000e+00)"
    assert returned(ir.constant(0, four)) == "zeroinitializer"
    assert returned(ir.constants((1, -2, 3))) == "<i32 1, i32 -2, i32 3>"
    assert returned(ir.constants((255, 1), ir.i8)) == "<i8 -1, i8 1>"
    assert returned(ir.null(four)) == "zeroinitializer"
    assert returned(ir.null(ir.ptr)) == "null"


def test_a_constant_is_made_once() -> None:
    """0.0 and -0.0 are equal, but two constants."""
    assert ir.constant(2.0, ir.f32) is ir.constant(2.0, ir.f32)
    assert ir.constant(0.0, ir.f32).ref != ir.constant(-0.0, ir.f32).ref


def test_types_are_one_object_each() -> None:
    """A vector of one lane is its element; others are made once, and know how intrinsics name
    them."""
    assert ir.vec(ir.f32, 1) is ir.f32
    assert ir.vec(ir.f32, 8) is ir.vec(ir.f32, 8)
    assert [ir.vec(t, 8).suffix for t in (ir.i16, ir.f16, ir.f32)] == ["v8i16", "v8f16", "v8f32"]
    with pytest.raises(TypeError, match="void has no constants"):
        ir.void(1)


def test_tables_and_nodes() -> None:
    """Arrays of an object's own, constant or not; a declaration and a node are there once."""
    module = ir.Module(detect().triple)
    module.table("words", 3, ir.i32, [1, 2, 3])
    module.table("room", 4, ir.i64)
    first = module.declare("llvm.readcyclecounter", ir.i64, [])

    assert module.declare("llvm.readcyclecounter", ir.i64, []) is first
    assert module.metadata("a") is module.metadata("a")
    assert module.metadata("b").ref == "!1"
    text = read_back(module)
    assert "@words = internal constant [3 x i32] [i32 1, i32 2, i32 3]" in text
    assert "@room = internal global [4 x i64] zeroinitializer, align 64" in text


def test_control_flow() -> None:
    """A loop with a phi, a branch inside it, and slots, which are all in the first block."""
    module = ir.Module(detect().triple)
    fn = ir.Function(module, ir.FunctionType(ir.i64, [ir.i64]), "sum_of_odd")
    entry, head, body, done = map(fn.append_basic_block, ("entry", "head", "body", "done"))
    b = ir.Builder(fn, entry)
    total = b.alloca("i64")
    b.store(ir.i64(0), total)
    b.branch(head)
    b.position_at_end(head)
    n = b.phi((ir.i64(0), entry))
    b.cbranch(b.icmp_unsigned("<", n, fn.args[0]), body, done)
    b.position_at_end(body)
    with b.if_then(b.icmp_signed("!=", b.and_(n, ir.i64(1)), ir.i64(0))):
        b.store(n, (late := b.alloca("[2 x i64]", align=64)))
        b.store(b.add(b.load(total, ir.i64), b.load(late, ir.i64)), total)
    n.add_incoming(b.add(n, ir.i64(1)), b.block)
    b.branch(head)
    b.position_at_end(done)
    b.ret(b.load(total, ir.i64))

    text = read_back(module)
    first, second = text.index("alloca i64"), text.index("alloca [2 x i64], align 64")
    assert first < second < text.index("br label")
    assert "phi i64 [ 0, %entry.0 ]" in text
