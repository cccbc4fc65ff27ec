"""A tile of a recurrent state, held in registers over the tokens of a pass.

    S = a S + k d^T,   o = S^T q

S is float32 [depth, width] of one head, of which the tile is WIDTH columns, one after the other in
memory: [width / WIDTH][depth][WIDTH]. Columns do not know of each other, so a tile stays in L1
while all tokens pass, and heads and tiles may be computed by any thread in any order. A token's
sums run over the rows in a fixed order: a sequence gets the same bits in one pass or cut into many.

What is added may follow from what S remembers of the key: m = (a S)^T k, asked for with `recalls`.
Its sum for the next token is made in the same loop that makes this token's state.
"""

from __future__ import annotations

from collections.abc import Callable

from ..simd import Kernel, Ptr, Value, Var, f32
from .mathlib import exp

WIDTH = 16  # columns of a tile: 8 KiB at a depth of 128
TOKENS = 16  # that go through a tile before the next tile: their keys and queries stay in L1
_CHAINS = 4  # independent sums at least, so that one FMA need not wait for the last

Row = Callable[[Value], Ptr]


def lanes_of(k: Kernel) -> int:
    """Return the number of columns in a vector register."""
    return min(k.lanes, WIDTH)


def columns(k: Kernel) -> range:
    """Return the first column of each register of a tile."""
    return range(0, WIDTH, lanes_of(k))


def decay(k: Kernel, exponent: Value) -> Value:
    """Compute a state's decay e^exponent, flushed to 0 below 1e-30.

    A state of denormals takes a Xeon 35 to 115 times as long: `exp` gives no less than the least
    normal float32, and what that multiplies is denormal.
    """
    left = exp(k, exponent)
    return (left > 1e-30).select(left, 0.0)


class StateTile:
    """A tile of a recurrent state, and the loop that updates it token by token."""

    def __init__(self, k: Kernel, depth: int, source: Value, target: Value) -> None:
        self.k, self.depth = k, depth
        self.source, self.target = source, target
        """int64 addresses that the tile is read from and written to."""
        self._lanes = lanes_of(k)
        self._chains = max(1, _CHAINS // len(columns(k)))
        assert depth % self._chains == 0, depth

    def run(
        self,
        tokens: Value,
        decay: Callable[[Value], Value],
        key: Row,
        query: Row,
        added: Callable[[Value, list[Value]], list[Value]],
        write: Callable[[Value, list[Value]], None],
        *,
        recalls: bool,
    ) -> None:
        """Update the tile by `tokens` tokens, at least one, and write each token's output.

        decay: a of a token; key, query: its k and q [depth]; added: d of a token by its m, a vector
        for each of `columns`; write: takes the token and its o.
        """
        k, lanes = self.k, self._lanes
        memory = self._sums()
        if recalls:
            now, before = key(k.i64(0)), k.pointer(self.source, f32)
            with k.range(0, self.depth, step=self._chains, name="recall") as i:
                for c in range(self._chains):
                    for n, column in enumerate(columns(k)):
                        row, at = i + c, (i + c) * WIDTH + column
                        self._add(memory[n][c], now.splat(row, lanes), before.load(at, lanes))
        with k.range(0, tokens, name="token") as t:
            a = decay(t).splat(lanes)
            d = added(t, [total * a for total in self._totals(memory)] if recalls else [])
            state = k.pointer(t.eq(0).select(self.source, self.target), f32)
            target = k.pointer(self.target, f32)
            now, following, q = key(t), key((t + 1).min(tokens - 1)), query(t)
            out = self._sums()
            for sums in memory if recalls else ():
                for total in sums:
                    total.set(k.zeros(f32, lanes))
            with k.range(0, self.depth, step=self._chains, name="state") as i:
                for c in range(self._chains):
                    k_row, q_row = now.splat(i + c, lanes), q.splat(i + c, lanes)
                    next_row = following.splat(i + c, lanes) if recalls else None
                    for n, column in enumerate(columns(k)):
                        at = (i + c) * WIDTH + column
                        s = k.fma(k_row, d[n], state.load(at, lanes) * a)
                        target.store(at, s)
                        self._add(out[n][c], q_row, s)
                        if next_row is not None:
                            self._add(memory[n][c], next_row, s)
            write(t, self._totals(out))

    def _add(self, total: Var, a: Value, b: Value) -> None:
        total.set(self.k.fma(a, b, total.value))

    def _sums(self) -> list[list[Var]]:
        """Return zeros: one sum for each register and chain."""
        zero = self.k.zeros(f32, self._lanes)
        return [[self.k.var(zero) for _ in range(self._chains)] for _ in columns(self.k)]

    def _totals(self, sums: list[list[Var]]) -> list[Value]:
        out = []
        for chains in sums:
            values = [total.value for total in chains]
            while len(values) > 1:
                values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
            out.append(values[0])
        return out
