"""Batch benchmark: speed of concurrent prompts and decodes in shared passes.

The rows have llama-batched-bench's columns: B sequences, each with a prompt of PP tokens of its own
and then TG tokens of decode, one row of each sequence in every pass. Rounds of all batch sizes come
in turns, so that a machine that changes its speed changes it for all of them.

With a shared prompt the first tokens of all prompts are the same, as behind one system prompt. They
are computed once, before the rounds. Each round then decodes twice: as usual, where a pass reads
what its sequences share once for all of them, and so that each reads it by itself.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import SettingError
from ...jit.kernels.kvcache import PAGE
from ..engine.passes.request import Batch, Request, StepResult
from ..engine.passes.shared_pass import Forecasts
from ..engine.policy.pass_correction import PassCorrection
from ..forward.logits import ROWS

if TYPE_CHECKING:
    from ..engine.engine import Engine
    from ..engine.passes.sequence import TokenSequence
    from ..engine.session import Session
    from .compare import Baseline


@dataclass
class Batched:
    """The measurements of one batch size."""

    batch: int
    prompt: int
    generate: int
    """Number of sequences, and tokens of each: of the prompt, and of the decode."""
    shared: int = 0
    """Tokens of the prompt that are the same in all sequences; these are not timed."""
    prompt_s: list[float] = field(default_factory=list)
    decode_s: list[float] = field(default_factory=list)
    """Seconds of the prompts, and of the decodes, of each round."""
    apart_s: list[float] = field(default_factory=list)
    """Seconds of decodes in which every sequence reads the shared prefix by itself."""
    forecasts: Forecasts = field(default_factory=Forecasts)
    """Prediction errors of the shared passes."""
    theirs: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Seconds of prompts and decodes of each round of another engine, by its settings."""

    @property
    def their_rates(self) -> tuple[float, float]:
        """The baseline's tokens/s of prompts and of decodes: median rounds, faster setting."""
        count = self.batch * self.prompt, self.batch * self.generate
        medians = [
            [statistics.median(times) for times in zip(*rounds, strict=True)]
            for rounds in self.theirs.values()
        ]
        prompt_s, decode_s = map(min, zip(*medians, strict=True))
        return count[0] / prompt_s, count[1] / decode_s

    @property
    def positions(self) -> int:
        """Tokens in the KV caches at the end."""
        return self.batch * (self.prompt + self.generate)

    @property
    def prompt_rate(self) -> float:
        """Tokens/s of all prompts together, from the median round."""
        return self.batch * (self.prompt - self.shared) / statistics.median(self.prompt_s)

    @property
    def decode_rates(self) -> list[float]:
        """Tokens/s of all decodes together, by round."""
        return [self.batch * self.generate / seconds for seconds in self.decode_s]

    @property
    def decode_rate(self) -> float:
        """Tokens/s of all decodes together, from the median round."""
        return statistics.median(self.decode_rates)

    @property
    def apart_rates(self) -> list[float]:
        """Tokens/s of all decodes together without shared reads, by round."""
        return [self.batch * self.generate / seconds for seconds in self.apart_s]


def measure(
    engine: Engine,
    batches: Sequence[int],
    prompt: int,
    generate: int,
    repeat: int = 3,
    baseline: Baseline | None = None,
    shared: int = 0,
) -> Iterator[Batched]:
    """Measure all batch sizes in turns, `repeat` rounds after a warm-up.

    baseline: another engine that has the model loaded; it has its turn after each of ours.
    shared: tokens that all prompts begin with.

    Raises:
        SettingError: a size is out of range, or does not fit the context or the KV memory.
    """
    if bad := [batch for batch in batches if not 1 <= batch <= ROWS]:
        raise SettingError(f"a batch has 1 to {ROWS} sequences, not {bad[0]}")
    if prompt + generate > engine.context:
        raise SettingError(
            f"{prompt} + {generate} tokens do not fit a context of {engine.context}; ask for less"
        )
    if prompt < 1 or generate < 1:
        raise SettingError("a batch needs a prompt and a decode of at least one token")
    if not 0 <= shared < prompt:
        raise SettingError(
            f"prompts of {prompt} tokens cannot have {shared} in common: each has one of its own"
        )
    sessions = [engine.session(prompt + generate) for _ in range(max(batches))]
    memory = engine.loaded.layout.memory
    own = shared // PAGE * PAGE  # from here on each has pages of its own
    needed = sum(session.sequence.cache.wants(own, prompt + generate) for session in sessions)
    needed += sessions[0].sequence.cache.wants(0, shared) if shared else 0
    if memory.lacks(needed):
        raise SettingError(
            f"{max(batches)} sequences of {prompt + generate} tokens need {needed:,} bytes of KV "
            f"cache, and there are {memory.budget:,}; ask for a smaller batch, or more kv_memory"
        )
    chance = random.Random(1)
    n_vocab = engine.loaded.outputs.n_vocab
    common = [chance.randrange(n_vocab) for _ in range(shared)]
    prompts = [[chance.randrange(n_vocab) for _ in range(prompt - shared)] for _ in sessions]
    if shared:
        sessions[1:] = []
        sessions[0].prefill(common)
    found = [Batched(batch, prompt, generate, shared) for batch in batches]
    for round_ in range(repeat + 1):
        for one in found:
            part = sessions[: one.batch]
            if shared:
                part = [sessions[0].fork() for _ in range(one.batch)]
            _ = [session.truncate(shared) for session in part]
            duplicates: list[Session] = []
            with engine.core.runner.observe_shared((one.forecasts if round_ else Forecasts()).add):
                began = time.perf_counter()
                tokens = _prefill(engine, part, prompts)
                prompt_s = time.perf_counter() - began
                if shared:
                    duplicates = [session.fork() for session in part]
                decode_s = _timed(engine, part, tokens, generate)
            part = []
            apart_s = _apart(engine, duplicates, tokens, generate) if shared else 0.0
            if round_:
                one.prompt_s.append(prompt_s)
                one.decode_s.append(decode_s)
                one.apart_s += [apart_s] if shared else []
            for setting in baseline.settings if baseline is not None else ():
                assert baseline is not None
                took = baseline.batch(setting, prompts[: one.batch], generate, max(batches))
                if round_:
                    one.theirs.setdefault(setting, []).append(took)
    yield from found


def _prefill(engine: Engine, sessions: Sequence[Session], prompts: list[list[int]]) -> list[int]:
    """Compute the prompts in chunks; return the first token of each decode."""
    left: dict[TokenSequence, list[int]] = {
        session.sequence: list(ids) for session, ids in zip(sessions, prompts, strict=False)
    }
    first: dict[TokenSequence, int] = {}
    while left:
        batch: list[tuple[Request, int]] = []
        room = engine.loaded.tuning.chunk
        for sequence, ids in left.items():
            count = min(room, len(ids))
            if not count:
                break
            sequence.tokens += ids[:count]
            batch.append((Request(sequence, sequence.n_cached, ids, 1, (None,)), count))
            room -= count
        for (request, count), result in zip(batch, _run(engine, batch), strict=True):
            del left[request.sequence][:count]
            if result.logits is not None:
                first[request.sequence] = result.logits.tokens[0]
                del left[request.sequence]
    return [first[session.sequence] for session in sessions]


def _decode(
    engine: Engine, sessions: Sequence[Session], tokens: list[int], generate: int
) -> list[int]:
    """Decode all sequences greedily, a row of each in every pass."""
    for _ in range(generate):
        batch = list[tuple[Request, int]]()
        for session, token in zip(sessions, tokens, strict=True):
            session.tokens.append(token)
            batch.append((Request(session.sequence, session.n_cached, [token], 1, (None,)), 1))
        results = _run(engine, batch)
        tokens = [result.logits.tokens[0] for result in results if result.logits is not None]
    return tokens


def _timed(engine: Engine, sessions: Sequence[Session], tokens: list[int], generate: int) -> float:
    """Return the seconds of a decode."""
    began = time.perf_counter()
    _decode(engine, sessions, tokens, generate)
    return time.perf_counter() - began


def _apart(engine: Engine, sessions: Sequence[Session], tokens: list[int], generate: int) -> float:
    """Return the seconds of a decode without shared reads."""
    engine.core.runner.joins = False
    # What such passes take is no matter of those whose predictions are told.
    learned, engine.loaded.tuning.correction = engine.loaded.tuning.correction, PassCorrection()
    try:
        return _timed(engine, sessions, tokens, generate)
    finally:
        engine.core.runner.joins, engine.loaded.tuning.correction = True, learned


def _run(engine: Engine, batch: list[tuple[Request, int]]) -> list[StepResult]:
    with engine.loaded.lock:
        results = engine.core.scheduler.run(Batch(tuple(batch)))
    for result in results:
        if result.logits is not None:
            result.logits.released = True
    return results
