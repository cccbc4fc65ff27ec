"""Random schedules: which sequences have how many rows in which pass, and what happens between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.request import Batch, Request
from triplepoint.runtime.engine.passes.shared_pass import SharedPass
from triplepoint.runtime.engine.session import Session

SEQUENCES = 5
LENGTH = 330  # positions of a sequence: past the end of a page
MOST_ROWS, MOST_OUTPUTS = 70, 5


@dataclass(frozen=True)
class Go:
    """Compute the next rows, logits for the last ones."""

    rows: int
    outputs: int


@dataclass(frozen=True)
class Back:
    """Forget all but a share of what was computed."""

    keep: float


@dataclass(frozen=True)
class Fork:
    """Go on with a fork of what was computed, up to a share of it; the original is let go of."""

    keep: float


@dataclass(frozen=True)
class Anew:
    """Begin anew, behind what the engine's prefix cache knows of the text; see `Family`."""


Move = Go | Back | Fork | Anew
Pass = dict[int, Move]  # by sequence; those that go share a pass

_rows = st.one_of(st.just(1), st.integers(1, 20), st.integers(1, MOST_ROWS))
_go = st.builds(Go, _rows, st.integers(0, MOST_OUTPUTS))
_share = st.floats(0, 1)
_move: st.SearchStrategy[Move] = st.one_of(
    _go, _go, _go, st.builds(Back, _share), st.builds(Fork, _share)
)
_pass: st.SearchStrategy[Pass] = st.dictionaries(
    st.integers(0, SEQUENCES - 1), _move, min_size=1, max_size=SEQUENCES
)
schedules: st.SearchStrategy[list[Pass]] = st.lists(_pass, min_size=2, max_size=14)
# Mostly decodes, of most sequences at once.
_step = st.builds(Go, st.one_of(st.just(1), st.just(1), st.integers(1, 9)), st.integers(0, 2))
_member: st.SearchStrategy[Move] = st.one_of(
    _step, _step, _step, _step, _step, _move, st.just(Anew())
)
_together: st.SearchStrategy[Pass] = st.dictionaries(
    st.integers(0, SEQUENCES - 1), _member, min_size=2, max_size=SEQUENCES
)
family_schedules: st.SearchStrategy[list[Pass]] = st.lists(_together, min_size=2, max_size=14)
EVERYONE: list[Pass] = [{n: Go(1, 1) for n in range(SEQUENCES)} for _ in range(4)]
"""All decode at once: what a few examples by chance need not have."""


class Company:
    """Sequences on one engine, and the logits that each of them has alone."""

    def __init__(self, engine: Engine, seed: int = 5) -> None:
        self.engine = engine
        self.ids = self.texts(np.random.default_rng(seed), engine.loaded.outputs.n_vocab)
        self.want = [engine.session().logits_for(ids) for ids in self.ids]

    def texts(self, rng: np.random.Generator, n_vocab: int) -> list[list[int]]:
        """Token ids of each sequence."""
        return rng.integers(0, n_vocab, (SEQUENCES, LENGTH)).tolist()

    def begin(self, n: int) -> Session:
        """A session for a sequence."""
        return self.engine.session()

    def run(self, schedule: list[Pass]) -> int:
        """Follow the schedule; rows of logits that were compared, bit for bit.

        Raises AssertionError with the pass, the sequence and the position that differ.
        """
        sessions = [self.begin(n) for n in range(len(self.ids))]
        compared = 0
        for number, moves in enumerate(schedule):
            batch: list[tuple[int, Request]] = []
            left = self.engine.core.plans.prefill.max_tokens  # as the scheduler keeps to it
            for n, move in moves.items():
                session = sessions[n]
                if isinstance(move, Back):
                    session.truncate(int(move.keep * session.n_cached))
                elif isinstance(move, Fork):
                    sessions[n] = session.fork(int(move.keep * session.n_cached))
                elif isinstance(move, Anew):
                    sessions[n] = self.begin(n)
                else:
                    rows = _rows_of(session, self.ids[n], Go(min(move.rows, left), move.outputs))
                    if rows is not None:
                        batch.append((n, rows))
                        left -= len(rows.ids)
            compared += self._pass(number, batch)
        return compared

    def _pass(self, number: int, batch: list[tuple[int, Request]]) -> int:
        if not batch:
            return 0
        with self.engine.loaded.lock:
            results = self.engine.core.scheduler.run(Batch.whole(*(one for _, one in batch)))
        compared = 0
        for (n, request), result in zip(batch, results, strict=True):
            session = request.sequence
            assert session.n_cached == len(session.tokens)
            if result.logits is None:
                continue
            first = session.n_cached - request.outputs
            want = self.want[n][first : session.n_cached]
            for at, (got, row) in enumerate(zip(result.logits.rows, want, strict=True), first):
                assert np.array_equal(got, row), f"pass {number}, sequence {n}, position {at}"
                compared += 1
            greedy = want.argmax(axis=1).tolist()
            assert result.logits.tokens == greedy, f"pass {number}, sequence {n}: the choice"
        return compared


class Family(Company):
    """Sequences that begin alike, some of them further than others, on the same pages.

    Half of them are forks, the others begin behind what the prefix cache knows of their texts.

    Attributes:
        joined: passes in which sequences read pages together.
    """

    def __init__(self, engine: Engine, seed: int = 5) -> None:
        # First tokens that a sequence has of the text of all: one page of it or two.
        long = engine.context > 600
        self.alike = (560, 560, 530, 300, 270) if long else (430, 430, 400, 300, 270)
        super().__init__(engine, seed)
        self.joined = 0
        self.first = engine.session()
        self.first.sequence.shares = True
        self.first.prefill(self.ids[0][: self.alike[0]])

    def texts(self, rng: np.random.Generator, n_vocab: int) -> list[list[int]]:
        first = rng.integers(0, n_vocab, self.alike[0]).tolist()
        return [first[:alike] + rng.integers(0, n_vocab, 60).tolist() for alike in self.alike]

    def begin(self, n: int) -> Session:
        session = self.first.fork(self.alike[n])
        if n % 2 or not session.n_cached:
            session = self.engine.session()
            session.sequence.shares = True
            session.sequence.tokens = self.ids[n][: self.alike[n] + 30]
            session.sequence.adopt_prefix(len(session.tokens))
            del session.tokens[session.n_cached :]
        return session

    def run(self, schedule: list[Pass]) -> int:
        with self.engine.core.runner.observe_shared(self._saw):
            return super().run(schedule)

    def _saw(self, done: SharedPass) -> None:
        self.joined += any(one.positions for one in done.together)


def _rows_of(session: Session, ids: list[int], move: Go) -> Request | None:
    at = session.n_cached
    part = ids[at : at + move.rows]
    if not part:
        return None
    session.sequence.tokens = ids[: at + len(part)]
    outputs = min(move.outputs, len(part))
    return Request(session.sequence, at, part, outputs, [None] * outputs)
