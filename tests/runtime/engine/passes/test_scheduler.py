"""Many sessions on one engine: they share passes and wait for each other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from helpers.alone import decode_alone
from helpers.threads import together

from triplepoint import Agent, tool
from triplepoint.errors import ModelError
from triplepoint.runtime.engine.drafting.config import VERIFY_TOKENS, SpeculativeConfig
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.pending import PendingRequest
from triplepoint.runtime.engine.passes.request import Batch, Request, StepResult
from triplepoint.runtime.engine.passes.runner import Runner
from triplepoint.runtime.engine.passes.scheduler import Scheduler
from triplepoint.runtime.engine.passes.sequence import TokenSequence
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.physics.costs import Part

if TYPE_CHECKING:
    from triplepoint.runtime.agent.local_conversation import LocalConversation

pytestmark = pytest.mark.usefixtures("often")
CHANCE = np.random.default_rng(11)
PROMPTS = [CHANCE.integers(0, 2000, size).tolist() for size in (5, 40, 300, 90, 700, 33, 12, 150)]
STEPS = 40
SAMPLED = Sampling(temperature=0.9, top_k=40, seed=7)
RECALLING = Sampling(temperature=0.9, dry_multiplier=0.5, xtc_probability=0.3, seed=7)
MIROSTAT = Sampling(temperature=1.5, mirostat=2, mirostat_tau=3.0, mirostat_eta=0.3, seed=7)


class Passes:
    """The passes of several sessions that an engine ran, as (sessions, rows)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[list[tuple[TokenSequence, int]]] = []
        run = Runner.run

        def watched(runner: Runner, batch: Batch, plan: Any = None) -> list[StepResult]:
            if len(batch.parts) > 1:
                self.seen.append([(one.sequence, count) for one, count in batch.parts])
            return run(runner, batch, plan)

        monkeypatch.setattr(Runner, "run", watched)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0.0), SAMPLED, RECALLING, MIROSTAT],
    ids=["greedy", "drawn", "recalling", "mirostat"],
)
def test_the_same_texts_together(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, sampling: Sampling
) -> None:
    """Eight sessions in eight threads write what each writes alone, and share passes."""
    want = [decode_alone(engine, prompt, STEPS, sampling=sampling) for prompt in PROMPTS]
    passes = Passes(monkeypatch)
    got = together(
        lambda n: decode_alone(engine, PROMPTS[n], STEPS, sampling=sampling), len(PROMPTS)
    )

    assert got == want
    assert max(len(batch) for batch in passes.seen) > 2, "nobody shared"


def test_drafts_together(engine: Engine) -> None:
    """Sessions that verify drafts share passes with others; nothing changes what they write."""
    text = [5, 6, 7, 8, 9] * 8
    want = [decode_alone(engine, [*text, n], STEPS) for n in range(6)]
    before = engine.core.scheduler.shared

    def work(n: int) -> tuple[list[int], int]:
        session = engine.session()
        session.phases.drafting.settings = SpeculativeConfig(draft_tokens=4 if n % 2 else 0)
        session.prefill([*text, n])
        ids = list(session.decode(max_tokens=STEPS))
        assert session.last_phase is not None
        return ids, session.last_phase.drafted_tokens

    got = together(work, 6)
    assert [ids for ids, _ in got] == want
    assert sum(drafted for _, drafted in got) > 0
    assert engine.core.scheduler.shared > before


@pytest.mark.slow
def test_a_long_prompt_beside_a_decode(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one decodes, another's prompt is computed beside it in parts that keep the deadline."""
    prompt = CHANCE.integers(0, 2000, 3000).tolist()
    want = decode_alone(engine, prompt, 4)
    passes = Passes(monkeypatch)
    monkeypatch.setattr(engine.core.scheduler, "deadline_s", 0.004)
    decoder = engine.session()
    decoder.prefill(PROMPTS[0])
    done = threading.Event()

    def decode() -> int:
        count = 0
        while not done.is_set():
            count += sum(1 for _ in decoder.decode(max_tokens=50))
            decoder.truncate(len(PROMPTS[0]))
        return count

    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(decode)
        try:
            got = decode_alone(engine, prompt, 4)
        finally:
            done.set()
        assert written.result() > 0
    assert got == want
    shared = [dict(batch) for batch in passes.seen if decoder.sequence in dict(batch)]
    beside = [
        rows
        for batch in shared
        for session, rows in batch.items()
        if session is not decoder.sequence
    ]
    assert beside, "the prompt never shared a pass with the decode"
    assert max(beside) < engine.loaded.tuning.chunk


def test_the_rest_of_a_prompt_is_no_decode(engine: Engine) -> None:
    """A token or a draft goes whole into a pass; of a few rows of a prompt the deadline decides."""
    session = engine.session()
    ids = [1] * VERIFY_TOKENS
    assert PendingRequest(Request(session.sequence, 0, [1])).decodes
    assert PendingRequest(Request(session.sequence, 0, ids, len(ids))).decodes
    assert not PendingRequest(Request(session.sequence, 0, ids, 1)).decodes


def test_a_choice_does_not_wait_for_a_pass(engine: Engine) -> None:
    """Tokens under a mask that was not known before are chosen beside another session's pass."""
    session = engine.session()
    session.prefill(PROMPTS[1])
    logits = session.sequence.last_logits
    mask = np.full(engine.loaded.outputs.masks.shape[1], 0x55555555, np.uint32)
    want = engine.core.runner.choose(logits, 0, mask)
    passing, go_on = threading.Event(), threading.Event()

    def a_pass() -> None:
        with engine.loaded.lock:
            engine.core.runner._make_room()
            passing.set()
            assert go_on.wait(60)

    with ThreadPoolExecutor(2) as threads:
        other = threads.submit(a_pass)
        try:
            assert passing.wait(60)
            assert threads.submit(engine.core.runner.choose, logits, 0, mask).result(60) == want
        finally:
            go_on.set()
        other.result(60)


@pytest.mark.slow
@pytest.mark.parametrize("where", ["mask", "advance", "tool", "text"])
def test_nobody_waits_for_a_neighbor_that_thinks(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """While one of four agents is in its grammar, its tokenizer or a tool, the others get on.

    It goes on only when the three others are done: were a pass to wait for it, none would end.
    """
    (tmp_path / "app.log").write_text("10:00 start\n10:05 ERROR disk full\n")
    others = threading.Semaphore(0)
    thought = threading.Event()

    def think() -> None:
        for _ in range(3):
            assert others.acquire(timeout=60)

    @tool
    def read_file(path: str) -> str:
        """Read a file."""
        if where == "tool" and not thought.is_set():
            thought.set()
            think()
        return (tmp_path / path).read_text()

    agents = [Agent(engine, workspace=tmp_path, trace=False) for _ in range(3)]
    slow = Agent(engine, tools=[read_file], trace=False)
    conversation = cast("LocalConversation", slow.setup.conversation)

    def once(work: Callable[..., Any]) -> Callable[..., Any]:
        def first(*args: Any, **named: Any) -> Any:
            if not thought.is_set():
                thought.set()
                think()
            return work(*args, **named)

        return first

    if where == "text":
        monkeypatch.setattr(conversation.chat, "encode", once(conversation.chat.encode))
    elif where != "tool":
        make = conversation.grammar.constraint

        def constraint(**named: Any) -> Any:
            made = make(**named)
            setattr(made, where, once(getattr(made, where)))
            return made

        monkeypatch.setattr(conversation.grammar, "constraint", constraint)

    def work(n: int) -> str:
        if n == 3:
            return slow.run("What's the error in app.log?").status
        try:
            return agents[n].run("What's the error in app.log?").status
        finally:
            others.release()

    assert together(work, 4) == ["answered"] * 4
    assert thought.is_set()


def test_a_failed_pass_is_told_to_all_in_it(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a pass fails, everybody in it hears why, and nobody waits for ever."""
    real = engine.core.runner._check_files
    broken = threading.Event()

    def check() -> None:
        if broken.is_set():
            raise ModelError("the file is gone")
        real()

    monkeypatch.setattr(engine.core.runner, "_check_files", check)

    def work(n: int) -> str:
        try:
            for count, _ in enumerate(engine_session(n).decode(max_tokens=400)):
                if n == 0 and count == 20:
                    broken.set()
        except ModelError as error:
            return str(error)
        return "never"

    def engine_session(n: int) -> Session:
        session = engine.session()
        session.prefill(PROMPTS[n])
        return session

    started = time.monotonic()
    assert set(together(work, 4)) == {"the file is gone"}
    assert time.monotonic() - started < 60
    broken.clear()
    assert len(decode_alone(engine, PROMPTS[0], 5)) == 5


def test_a_closed_iterator_frees_its_place(engine: Engine) -> None:
    """A decode that is given up in the midst leaves the scheduler as it was."""
    for _ in range(3):
        session = engine.session()
        session.prefill(PROMPTS[0])
        decoding = session.decode(max_tokens=50)
        next(decoding)
        cast("Generator[int]", decoding).close()

    assert not engine.core.scheduler._active
    assert not engine.core.scheduler._left
    assert not engine.core.scheduler._waiting
    assert not engine.core.scheduler._leading


def test_logits_stay_with_their_session(engine: Engine) -> None:
    """Logits of a prefill outlive other sessions' passes, also shared ones."""
    session = engine.session()
    session.prefill(PROMPTS[3])
    want = session.logits.copy()
    together(lambda n: decode_alone(engine, PROMPTS[n], 10), 4)

    assert np.array_equal(session.logits, want)
    assert list(session.decode(max_tokens=10)) == decode_alone(engine, PROMPTS[3], 10)


def test_everybody_gets_on(engine: Engine) -> None:
    """Long prompts, short ones and decodes at once, more than a pass has rows: all end."""

    def work(n: int) -> int:
        prompt = CHANCE.integers(0, 2000, 1500 if n % 5 == 0 else 20 + n).tolist()
        return len(decode_alone(engine, prompt, 30))

    assert together(work, 24) == [30] * 24


def test_a_prompt_gets_on_beside_a_decode_that_rests(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part of a pass holds where one row takes longer than the deadline, whoever is away."""
    scheduler = engine.core.scheduler
    seconds = lambda parts: 0.3 + 0.004 * sum(part.tokens for part in parts)  # noqa: E731
    monkeypatch.setattr(scheduler, "_expecting", lambda picked: seconds)
    monkeypatch.setattr(scheduler, "_any_decodes", lambda: True)
    prompt: Any = SimpleNamespace(request=SimpleNamespace(start=0))

    rows, why = scheduler._room([], [prompt], 512)

    assert why == "deadline"
    assert 0.4 < seconds([Part(rows, 0, 1)]) < 0.6


def test_logits_are_there_after_each_token(engine: Engine) -> None:
    """Who is told of a token can look at them, also after pages were taken back."""

    class Watch:
        seen: list[bool] = []  # noqa: RUF012

        def mask(self) -> None:
            return None

        def advance(self, token: int) -> None:
            self.seen.append(session.sequence.has_logits)

    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=0)
    session.prefill(PROMPTS[1])
    tokens = session.decode(max_tokens=8, constraint=Watch())
    for number, _ in enumerate(tokens):
        if number == 3:
            session.sequence.keep_cached(session.n_cached - 4)

    assert Watch.seen == [True] * 8


def test_phases_of_shared_passes_add_up(engine: Engine) -> None:
    """A session's phase counts its own rows, and its part of what passes read for all."""

    def work(n: int) -> Any:
        session = engine.session()
        session.phases.drafting.settings = SpeculativeConfig(draft_tokens=0)  # drafts are rows, too
        session.prefill(PROMPTS[n])
        list(session.decode(max_tokens=STEPS))
        return session.last_phase

    alone = work(1)
    phases = together(work, 6)
    for n, phase in enumerate(phases):
        assert phase.tokens == STEPS
        assert phase.kv_after == len(PROMPTS[n]) + STEPS - 1
        assert phase.bytes > 0
        assert 0 <= phase.dispatch_share <= 1
        assert phase.shared is None or phase.shared.sequences >= 2
    assert alone.shared is None
    assert any(phase.shared for phase in phases)
    assert phases[1].flops == pytest.approx(alone.flops, rel=0.05)
    assert phases[1].bytes < alone.bytes


def test_phases_of_shared_passes_teach_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a session waited for passes of others is not taken for what one of its own takes."""
    taught: list[float] = []
    phase = engine.loaded.tuning.phase

    def watched(decode: bool, tokens: int, start: int, passes: int, wall_s: float) -> list[str]:
        if decode:
            taught.append(wall_s)
        return phase(decode, tokens, start, passes, wall_s)

    monkeypatch.setattr(engine.loaded.tuning, "phase", watched)

    def work(n: int) -> Any:
        session = engine.session()
        session.prefill(PROMPTS[n])
        list(session.decode(max_tokens=STEPS))
        return session.last_phase

    shared = [bool(one.shared) for one in together(work, 6)]
    assert any(shared)
    assert sum(not seconds for seconds in taught) == sum(shared)


@pytest.mark.slow
def test_a_prompt_in_common_is_computed_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that share and begin with the same 3,000 tokens at once: each row once."""
    common = CHANCE.integers(0, 2000, 3000).tolist()
    own = [CHANCE.integers(0, 2000, 30 + n).tolist() for n in range(4)]
    want = [decode_alone(engine, common + mine, 5) for mine in own]
    computed: list[int] = []
    run = Runner.run

    def watched(runner: Runner, batch: Batch, plan: Any = None) -> list[StepResult]:
        computed.extend(count for _, count in batch.parts)
        return run(runner, batch, plan)

    monkeypatch.setattr(Runner, "run", watched)

    def work(n: int) -> tuple[list[int], int]:
        session = engine.session()
        session.sequence.shares = True
        phase = session.prefill(common + own[n])
        return list(session.decode(max_tokens=5)), phase.shared_tokens

    try:
        got = together(work, 4)
    finally:
        engine.core.prefix_cache.clear()
    assert [ids for ids, _ in got] == want
    assert sum(found for _, found in got) >= 3 * 2900
    assert sum(computed) < 3000 + 4 * 150


def test_accepted_drafts_are_not_computed_again(engine: Engine) -> None:
    """Positions of a draft that was accepted are cached: a pass begins behind all of them."""
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=8)
    text = [5, 6, 7, 8] * 10
    session.prefill(text)
    for count, _ in enumerate(session.decode(max_tokens=60), 1):
        assert session.n_cached == len(text) + count - 1
    phase = session.last_phase
    assert phase is not None
    assert phase.accepted_tokens > 10, "else nothing was drafted that could show it"
    assert phase.kv_after == len(text) + 59


def test_the_first_sessions_may_come_at_once() -> None:
    """Threads that get an engine's first sessions at the same time share its plans, built once."""
    alone = Engine.load("nano", threads=2)
    with alone:
        want = [decode_alone(alone, prompt, 5) for prompt in PROMPTS[:4]]
    built: list[str] = []
    with Engine.load("nano", threads=2) as engine:
        forward = engine.loaded.network.forward

        def slowly(g: Any, out: np.ndarray) -> None:
            built.append(g.tape.name)
            time.sleep(0.05)  # the others come while it is being built
            forward(g, out)

        engine.loaded.network.forward = slowly
        got = together(lambda n: decode_alone(engine, PROMPTS[n], 5), 4)

    assert got == want
    assert len(built) == len(set(built))


def test_a_decode_that_starts_over_takes_over(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose pages were taken back beside others has what is known of its text, and goes on."""
    want, step, steps = decode_alone(engine, PROMPTS[2], STEPS), Scheduler.step, 0

    def counted(scheduler: Scheduler) -> None:
        nonlocal steps
        steps += 1
        assert steps < 10 * STEPS, "nobody gets on"
        step(scheduler)

    sessions = [engine.session() for _ in range(2)]
    for session in sessions:
        session.sequence.shares = True
        session.prefill(PROMPTS[2])
    decode, beside = (session.decode(max_tokens=STEPS) for session in sessions)
    got = [next(decode), next(decode)]
    next(beside)
    monkeypatch.setattr(Scheduler, "step", counted)
    with engine.core.scheduler.mutex:
        sessions[0].sequence.evict()

    assert [*got, *decode] == want


def test_who_came_first_alone_is_first(engine: Engine) -> None:
    """Pages that a session got while nobody else was there count for its seniority too."""
    session = engine.session()
    session.prefill(PROMPTS[1])

    assert 0 < session.sequence.admitted <= time.monotonic()
