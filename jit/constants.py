"""Constants of the IR, each made once: their text is, too, and was a third of building a kernel."""

from __future__ import annotations

import functools
import math

from llvmlite import ir

_i32 = ir.IntType(32)


def constant(value: float, type_: ir.Type) -> ir.Constant:
    """`value` as this type, in every lane of a vector."""
    return _constant(value, math.copysign(1.0, value), type_)


@functools.lru_cache(maxsize=4096)
def _constant(value: float, sign: float, type_: ir.Type) -> ir.Constant:
    """`sign` tells 0.0 from -0.0, which are equal."""
    if isinstance(type_, ir.VectorType):
        return ir.Constant(type_, [_constant(value, sign, type_.element)] * type_.count)
    return ir.Constant(type_, int(value) if isinstance(type_, ir.IntType) else float(value))


@functools.cache
def null(type_: ir.Type) -> ir.Constant:
    """All bits 0."""
    return ir.Constant(type_, None)


@functools.lru_cache(maxsize=4096)
def numbers(values: tuple[int, ...]) -> ir.Constant:
    """These int32, one a lane."""
    return ir.Constant(ir.VectorType(_i32, len(values)), [_i32(n) for n in values])
