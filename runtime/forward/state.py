"""The recurrent state of a sequence, which every token changes, and its checkpoints.

A state cannot be cut by position as a KV cache can. So copies of it are kept at positions where a
text is likely to be resumed, and a sequence that rolls back computes again what follows the nearest
of them. A copy is never written to: forks share it, and a pass that resumes from it reads it and
writes the new state elsewhere. So does a pass of which some tokens may be rolled back, drafts that
are to be verified: the state before it stays until the next one, at no more traffic.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ...errors import EngineError
from ...jit.kernels.batch import STATE_ENTRIES, STATE_FROM, STATE_TO
from ..memory import Arena

ALIGN = 16  # float32 values: a layer's part begins on a cache line
EVERY = 2048  # tokens of a prompt, after which another copy is kept
LATEST = 4  # copies that stay whatever the distance between them
MAX_COPIES = 16  # of one sequence
BUDGET = 512 << 20  # bytes of all copies of an engine
NOWHERE = -1  # the position of a state that a pass was changing when it was ended

# Of all counts of memory. What takes it is let go of by the garbage collector, which may run in any
# thread and in the midst of another change of a count: hence reentrant. The count is then too high
# by one, which costs a copy, and never too low.
COUNTING = threading.RLock()


class Used(Protocol):
    """The interface of a counter of bytes in use."""

    used: int


@dataclass(slots=True)
class CopyMemory:
    """Memory of all checkpoints of an engine: bytes `used`, and `budget`, their limit."""

    used: int = 0
    budget: int = BUDGET


@dataclass(frozen=True, slots=True)
class StateLayout:
    """The layout of a recurrent state: the offset of each layer's part."""

    offsets: dict[int, int]
    """Offset of each layer's part, in float32 values, by the number of the layer."""
    floats: int
    """Number of float32 values of a whole state."""
    empty: Checkpoint
    """The state before the first token: zeros."""
    copies: CopyMemory = field(default_factory=CopyMemory)
    """Memory of checkpoints."""

    @classmethod
    def of(cls, sizes: Iterable[tuple[int, int]]) -> StateLayout:
        """Lay out a state; sizes: layers that have a part, and its float32 values."""
        offsets, at = dict[int, int](), 0
        for layer, size in sizes:
            offsets[layer] = at
            at += -(-size // ALIGN) * ALIGN
        arena = Arena(4 * at, huge_pages=False)  # zeros that are never written take no memory
        return cls(offsets, at, Checkpoint(0, arena.take(4 * at).view(np.float32)))

    @property
    def nbytes(self) -> int:
        return 4 * self.floats


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A copy of a state after `position` tokens: float32, read-only."""

    position: int
    data: np.ndarray

    @classmethod
    def of(cls, position: int, data: np.ndarray, memory: CopyMemory) -> Checkpoint:
        """Return a copy of `data`, counted in `memory` while it is referenced."""
        made = cls(position, _room(len(data)))
        made.data[:] = data
        _count(memory, data.nbytes)
        weakref.finalize(made, _count, memory, -data.nbytes).atexit = False
        return made


class SequenceState:
    """The state of one sequence, and the checkpoints it can roll back to."""

    def __init__(self, layout: StateLayout, table: np.ndarray, memory: Used) -> None:
        """Create the state; table: the page table, int64, whose preceding entries passes read."""
        self.layout, self._memory = layout, memory
        self.position = 0
        """Number of tokens that the state includes; NOWHERE while a pass changes it."""
        self.checkpoints: list[Checkpoint] = []
        """Checkpoints, in the order of their positions."""
        self._table = table
        self._source = layout.empty  # what the next pass reads, if it is not `_own`
        self._current = False  # whether `_own` is what the next pass reads
        self._own: np.ndarray | None = None
        self._spare: np.ndarray | None = None  # takes turns with it
        self._before = NOWHERE  # of which position the state in `_spare` is
        self._undo = False  # whether the pass that runs leaves what it reads as it is
        self._size = [0]  # bytes of both
        weakref.finalize(self, _give_back, memory, self._size).atexit = False

    # --- passes

    def begin(self, start: int, *, undo: bool = False) -> None:
        """Prepare for a pass from position `start` that changes the state.

        undo: keep the state at `start`, so that `seek` can roll back to it.

        Raises:
            EngineError: the state does not include `start` tokens.
        """
        if start != self.position:
            raise EngineError(
                f"the recurrent state is at position {self.position}; cannot continue at {start}"
            )
        if self._own is None:
            self._own = self._take()
        self._undo = undo and self._current
        if self._undo and self._spare is None:
            self._spare = self._take()
        source = self._own if self._current else self._source.data
        target = self._spare if self._undo and self._spare is not None else self._own
        self._table[STATE_ENTRIES + STATE_FROM] = source.ctypes.data
        self._table[STATE_ENTRIES + STATE_TO] = target.ctypes.data
        self._before = NOWHERE
        if source is target:
            self.position = NOWHERE

    def done(self, position: int) -> None:
        """Record the end of a pass: the state includes `position` tokens."""
        if self._undo:
            self._own, self._spare = self._spare, self._own
            self._before = self.position
        self.position, self._current = position, True

    def _take(self) -> np.ndarray:
        room = _room(self.layout.floats)
        self._size[0] += room.nbytes
        _count(self._memory, room.nbytes)
        return room

    def wants(self, *, undo: bool = False) -> int:
        """Return the bytes that the next pass allocates; undo: as in `begin`."""
        lacks_spare = undo and self._current and self._spare is None
        return self.layout.nbytes if self._own is None or lacks_spare else 0

    def give_up_spare(self) -> None:
        """Release the second state; the last pass can no longer be rolled back."""
        if self._spare is not None:
            nbytes, self._spare, self._before = self._spare.nbytes, None, NOWHERE
            self._size[0] -= nbytes
            _count(self._memory, -nbytes)

    # --- going back

    def seek(self, n: int) -> int:
        """Roll back to the last known state of at most `n` tokens; return its position.

        Later checkpoints are dropped.
        """
        self.checkpoints = [one for one in self.checkpoints if one.position <= n]
        if self.position == NOWHERE or self.position > n:
            last = self.checkpoints[-1] if self.checkpoints else self.layout.empty
            if last.position <= self._before <= n:
                self._own, self._spare = self._spare, self._own
                self.position, self._current = self._before, True
            else:
                self._go_on_from(last)
        self._before = NOWHERE
        return self.position

    def known(self, n: int) -> tuple[Checkpoint, list[Checkpoint]]:
        """Return the last checkpoint of `n` tokens at most, for another sequence, and earlier ones.

        If the state itself includes `n` tokens, a checkpoint of it is made.
        """
        last = self.keep() if self.position == n else None
        before = [one for one in self.checkpoints if one.position <= n and one is not last]
        if last is None:
            last = before.pop() if before else self.layout.empty
        return last, before

    def adopt(self, known: Checkpoint, others: Sequence[Checkpoint] = ()) -> None:
        """Continue from another sequence's checkpoint; others: earlier ones."""
        self.checkpoints = sorted((*others, known), key=lambda one: one.position)
        self._go_on_from(known)

    def clear(self) -> None:
        """Reset to the empty state, and release the memory."""
        self.seek(0)
        _give_back(self._memory, self._size)
        self._own = self._spare = None
        self._current = False

    def keep(self) -> Checkpoint:
        """Save the current state as a checkpoint."""
        assert self.position != NOWHERE, "a pass has it"
        if not self._current:
            return self._source
        assert self._own is not None, "a pass has made it"
        last = self.checkpoints[-1] if self.checkpoints else None
        if last is not None and last.position == self.position:
            return last
        memory = self.layout.copies
        made = Checkpoint.of(self.position, self._own, memory)
        self.checkpoints.append(made)
        while len(self.checkpoints) > 1 and (
            len(self.checkpoints) > MAX_COPIES or memory.used > memory.budget
        ):
            del self.checkpoints[_useless(self.checkpoints)]
        return made

    def _go_on_from(self, known: Checkpoint) -> None:
        self._source, self.position, self._current = known, known.position, False


def _useless(copies: Sequence[Checkpoint]) -> int:
    """Return the checkpoint that is least useful: past ones should lie at doubling distances."""
    end = copies[-1].position
    inner = range(1, max(1, len(copies) - LATEST))
    if not inner:
        return min(1, len(copies) - 2)

    def worth(n: int) -> float:
        gap = copies[n + 1].position - copies[n - 1].position
        return gap / (1 + end - copies[n].position)

    return min(inner, key=worth)


def _room(floats: int) -> np.ndarray:
    return Arena(4 * floats).take(4 * floats).view(np.float32)


def _count(memory: Used, nbytes: int) -> None:
    with COUNTING:
        memory.used += nbytes


def _give_back(memory: Used, size: list[int]) -> None:
    _count(memory, -size[0])
    size[0] = 0
