"""Settings of passes: what is given, what is corrected, and that no bit changes."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import pytest

from triplepoint.errors import EngineError
from triplepoint.jit.pool import Pool
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.policy import autotune as tuning_module
from triplepoint.runtime.engine.policy.autotune import Autotuner, Overrides
from triplepoint.runtime.engine.policy.choices import Decision, TuningInputs
from triplepoint.runtime.engine.policy.pass_correction import PassCorrection, kind_of
from triplepoint.runtime.forward.shared_prefix import ALONE, Reading, Together
from triplepoint.runtime.forward.split_kv import SplitKVGraph
from triplepoint.runtime.physics.costs import Part

IDS = [int(i) for i in np.random.default_rng(5).integers(0, 500, 700)]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    # Accepted drafts, which a slow machine tries, make passes of other sizes.
    with Engine.load("nano", threads=2, context=1024, draft_tokens=0) as engine:
        engine.loaded.contention.on = False
        yield engine


def made(engine: Engine, **given: object) -> Autotuner:
    """Another tuning of the same engine, as if nothing but `given` had been given."""
    old = engine.loaded.tuning
    fixed, pages = Overrides.of(given), old._pages
    return Autotuner(
        engine.loaded.pool,
        engine.loaded.active_threads,
        engine.loaded.contention,
        old.known,
        fixed,
        pages,
    )


def test_given_settings_are_understood() -> None:
    """Texts from a command line, and values from Python."""
    assert Overrides.of(None) == Overrides()
    texts = {"chunk": "256", "spin": "300us", "pages": "off", "adaptive": "off", "kv_split": "on"}
    fixed = Overrides(chunk=256, spin=300e-6, pages=False, adaptive=False, kv_split=True)
    assert Overrides.of(texts) == fixed
    assert Overrides.of({"spin": "2ms", "pages": True}) == Overrides(spin=0.002, pages=True)
    assert Overrides.of({"spin": 0, "threads": 3}) == Overrides(spin=0.0, threads=3)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tiles": "3"}, "known: threads, chunk"),
        ({"tile": "0"}, "from 1 to 16"),
        ({"max_single_tile": "17"}, "from 1 to 16"),
        ({"chunk": "0"}, "from 1 to 8192"),
        ({"chunk": "²"}, "from 1 to 8192"),
        ({"spin": "-1us"}, "such as 300us"),
        ({"spin": "soon"}, "such as 300us"),
        ({"spin": "nan"}, "such as 300us"),
        ({"pages": "maybe"}, "on or off"),
        ({"kv_split": "4"}, "on or off"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, str], says: str) -> None:
    """The error names the setting and what it can be."""
    with pytest.raises(EngineError, match=says):
        Overrides.of(given)


def test_what_is_given_holds(engine: Engine) -> None:
    """A given setting is used as it is, and told as given; the others are chosen."""
    tuning = made(
        engine, threads=1, chunk=96, spin="50us", pages="off", tile=5, max_single_tile="11"
    )
    told = tuning.describe()
    values = [told[name]["value"] for name in ("decode threads", "prefill chunk", "spin_s")]
    assert values == pytest.approx([1, 96, 50e-6])
    assert told["large pages"] == {"value": False, "why": "given"}
    assert told["tile"] == {"value": 5, "why": "given"}
    assert told["max single tile"] == {"value": 11, "why": "given"}
    assert tuning.tiles == {"tile": 5, "max_single_tile": 11}  # usual on no target
    assert told["adaptive"]["value"] is True
    tuning.before(1, 0)
    assert engine.loaded.pool.active == 1
    assert tuning.next_chunk(100, 512) == 64


@pytest.mark.slow
def test_no_setting_changes_a_bit() -> None:
    """Logits after a prompt and a decode: the same for any setting."""
    want = None
    for tune in (
        {},
        {"chunk": 33},
        {"chunk": 512, "spin": "0us"},
        {"threads": "1", "pages": "off"},
        {"kv_split": "on"},
        {"tile": "4", "max_single_tile": "9"},
    ):
        with Engine.load("nano", threads=2, context=1024, tune=tune) as engine:
            session = engine.session()
            session.prefill(IDS[:-8])
            session.prefill(IDS[-8:])
            tokens = list(session.decode(max_tokens=20))
            session.prefill([])
            found = tokens, session.logits.copy()
            if want is None:
                want = found
            assert found[0] == want[0]
            assert np.array_equal(found[1], want[1])


def test_split_changes_within_a_decode(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """From some KV length on decode's attention is split: the tokens stay the same, and the phase
    in which it changed says so once, with the barriers of both plans."""
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=0)
    session.prefill(IDS[:250])
    want, plain = list(session.decode(max_tokens=20)), session.last_phase
    monkeypatch.setattr(tuning_module, "choose_split", lambda k, tokens, start, n, tiles: Decision(
        start >= 256 and n > 1, "as the test wants it"))  # fmt: skip
    old, engine.loaded.tuning = engine.loaded.tuning, made(engine)
    engine.loaded.tuning.known = dataclasses.replace(
        engine.loaded.tuning.known, model=dataclasses.replace(engine.loaded.cost, kv_heads=1)
    )
    try:
        session.truncate(0)
        session.prefill(IDS[:250])
        splits = [
            plan for plan in session.sequence.measured if isinstance(plan.graph, SplitKVGraph)
        ]
        assert not any(session.sequence.measured[plan].passes for plan in splits)
        assert list(session.decode(max_tokens=20)) == want
    finally:
        engine.loaded.tuning = old
        old.apply()
    (split,) = (plan for plan in session.sequence.measured if isinstance(plan.graph, SplitKVGraph))
    phase = session.last_phase
    assert split.name == "decode"
    assert phase is not None
    assert plain is not None
    told = [one for one in phase.tuning if not one.startswith("spin: ")]  # a busy machine's
    assert told == ["kv_split of decode: on, as the test wants it"]
    assert (session.sequence.measured[split].passes, phase.passes) == (13, 19)
    assert (
        split.tape.barriers
        == engine.core.plans.decode.tape.barriers + 2 * engine.loaded.cost.layers
    )
    assert phase.tokens == plain.tokens


def test_threads_change_within_a_decode(engine: Engine) -> None:
    """A trial runs other numbers of threads in the midst of a text; the tokens stay the same."""
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=0)  # so many passes as tokens
    session.prefill(IDS[:50])
    want = list(session.decode(max_tokens=300))
    old, engine.loaded.tuning = engine.loaded.tuning, made(engine)
    try:
        trials = engine.loaded.tuning._trials(0)
        trials.todo, trials._waiting = [[1]], 3
        engine.loaded.tuning._decode = {0: trials}
        session.truncate(0)
        session.prefill(IDS[:50])
        assert list(session.decode(max_tokens=300)) == want
    finally:
        engine.loaded.tuning = old
        old.apply()
    assert session.last_phase is not None
    assert not trials.todo or trials.threads == 1
    assert session.last_phase.passes == 299


def test_few_threads_that_meet_often_share_a_cache(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes of fewer threads fill a CCD if dispatch bounds them; on one CCD nothing is moved."""
    tuning = made(engine)
    pool, moved = engine.loaded.pool, []
    monkeypatch.setattr(pool, "arrange", lambda *, fill: moved.append(fill))
    monkeypatch.setattr(tuning, "_decode_always", 1)
    monkeypatch.setattr(pool, "arranges", False)
    tuning.before(1, 0)
    assert moved == []

    monkeypatch.setattr(pool, "arranges", True)
    for bound in (True, False):
        tuning._filled.clear()
        monkeypatch.setattr(TuningInputs, "dispatch_bound", lambda *_, bound=bound: bound)
        tuning.before(1, 0)
    monkeypatch.setattr(tuning, "_decode_always", 2)
    tuning._filled.clear()
    monkeypatch.setattr(TuningInputs, "dispatch_bound", lambda *_: True)
    tuning.before(1, 0)
    assert moved == [True, False, False], "all threads: nothing to choose"


def test_spinning_is_corrected_a_few_times_at_most(engine: Engine) -> None:
    """Raised while threads park within a decode, given up if that does not help; then it rests."""
    tuning, base = made(engine), made(engine).spin
    lines: list[str] = []

    def phases(count: int, parks: int) -> None:
        for _ in range(count):
            tuning._parks = tuning.pool.parks - parks  # as if so many had been counted
            lines.extend(tuning.phase(True, 101, 0, 100, 0.01))

    tuning.before(1, 0)
    tuning.pool.set_active(2)
    phases(5, 10)
    assert (lines, tuning.spin) == ([], base), "now and then is not often"
    phases(1, 99)
    assert tuning.spin > base
    assert "parked 99 times in 100 passes" in lines[0]
    phases(50, 99)
    assert tuning.spin == base
    assert 2 <= len(lines) <= 3
    chance = random.Random(1)
    for _ in range(200):
        phases(1, chance.choice((0, 99)))
    assert len(lines) <= 3, "it does not swing"


def test_spinning_that_was_given_is_not_corrected(engine: Engine) -> None:
    """Nor is anything, when that was asked for."""
    for given in ({"spin": "10us"}, {"adaptive": "off"}):
        tuning = made(engine, **given)
        spin = tuning.spin
        for _ in range(20):
            tuning._parks = tuning.pool.parks - 99
            assert tuning.phase(True, 101, 0, 100, 0.01) == []
        assert tuning.spin == spin


def test_the_time_of_a_pass_is_learned(engine: Engine) -> None:
    """The model's word at first; then times what such passes took, within bounds."""
    tuning = made(engine)
    first = tuning.pass_s(4, 300)
    assert first > 0
    for _ in range(9):
        tuning.observe(4, 300, 2 * first)
    assert tuning.pass_s(4, 300) == pytest.approx(2 * first)
    nearest = tuning.pass_s(6, 300) / tuning.known.seconds(6, 256)
    assert nearest == pytest.approx(2.0), "six tokens were never seen: as it was for four"
    tuning.observe(4, 300, 1000 * first)
    assert tuning.pass_s(4, 300) == pytest.approx(2 * first), "one long pass is no rule"
    for _ in range(9):
        tuning.observe(1, 0, 1e3)
    assert tuning.pass_s(1, 0) <= 4 * tuning.known.seconds(1, 0) * 1.001


def test_phases_teach_it(engine: Engine) -> None:
    """After a prefill of some tokens and a decode, both kinds of passes are known."""
    engine.loaded.tuning.correction = PassCorrection()
    session = engine.session()
    session.prefill(IDS[:40])
    list(session.decode(max_tokens=10))
    assert engine.loaded.tuning.correction.kinds == {kind_of(40), kind_of(1)}


def test_crowding_is_told_with_the_phase(engine: Engine) -> None:
    """A change of the threads that have a core is a line of the phase in which it was made."""
    engine.loaded.contention._change(0.0, 1, 0.43)
    session = engine.session()
    phase = session.prefill(IDS[:10])
    assert phase.tuning == ["threads: 1, 43% of the time without a core"]
    assert phase.threads == 1
    engine.loaded.contention._change(0.0, 2, 0.0)
    assert session.prefill(IDS[:10]).tuning == ["threads: 2, again"]
    assert session.prefill(IDS[:10]).tuning == []


def test_a_short_pass_does_not_wait_for_a_thread_that_has_no_core(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller runs it alone, with the same bits, and says so; a long one waits."""
    session, other = engine.session(), engine.session()
    session.prefill(IDS[:20])
    want = session.logits.copy()
    monkeypatch.setattr(engine.loaded, "tuning", made(engine))
    monkeypatch.setattr(engine.loaded.contention, "on", True)
    monkeypatch.setattr(engine.loaded.contention, "look", lambda: None)
    tuning, active_threads = engine.loaded.tuning, []
    monkeypatch.setattr(Pool, "parked", True)
    monkeypatch.setattr(Pool, "await_workers", lambda *_: False)
    check = lambda: active_threads.append(engine.loaded.pool.active)  # noqa: E731
    monkeypatch.setattr(engine.core.runner, "_check_files", check)
    monkeypatch.setattr(tuning, "pass_s", lambda tokens, start: tokens * 40e-6)
    monkeypatch.setattr(tuning, "_always", 2)
    phase = other.prefill(IDS[:20])
    assert active_threads == [1]
    assert np.array_equal(other.logits, want)
    assert any("1 in a pass" in line for line in phase.tuning)
    phase = other.prefill(IDS[20:60])
    assert active_threads == [1, 2]
    assert not phase.tuning


@pytest.mark.parametrize("given", [{"threads": 2}, {"adaptive": "off"}])
def test_threads_that_were_given_are_waited_for(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    """Where nothing may be corrected, all threads run whether they are late or not."""
    monkeypatch.setattr(engine.loaded.contention, "on", True)
    monkeypatch.setattr(engine.loaded.contention, "look", lambda: None)
    tuning = made(engine, **given)
    monkeypatch.setattr(tuning, "_always", 2)
    monkeypatch.setattr(Pool, "parked", True)
    monkeypatch.setattr(Pool, "await_workers", lambda *_: False)
    tuning.before(8, 0)
    assert engine.loaded.pool.active == 2


def test_prepared_choices_are_those_of_passes(engine: Engine) -> None:
    """What was chosen beforehand is what a pass would have chosen, and is not chosen again."""
    prepared, plain = made(engine), made(engine)
    for tuning in (prepared, plain):
        tuning._always = tuning._decode_always = None
    prepared.prepare()
    chosen = dict(prepared._prefill)
    assert {bits for bits, _ in chosen} == set(range(2, prepared.chunk.bit_length() + 1))
    for tokens in (3, 6, 12, 48, 192):
        assert prepared._prefill_threads(tokens, 0) == plain._prefill_threads(tokens, 0)
    assert prepared._decode_threads(0) == plain._decode_threads(0)
    assert prepared._prefill == chosen


def test_what_sequences_share_is_expected_to_be_read_once(engine: Engine) -> None:
    """Decodes that read together are predicted faster, for averages of what they have in common."""
    tuning, together = made(engine), Together(2816, 8.0)
    eight, four = (Reading([together] * n, (n, together)) for n in (8, 4))
    parts = [Part(1, 3000, 1)] * 8
    apart = tuning.expect_mixed(parts)[0]
    joined = tuning.expect_mixed(parts, eight)[0]

    assert joined.attention_s < tuning.expect_mixed(parts, four)[0].attention_s < apart.attention_s
    near = [Part(1, 3001 + n, 1) for n in range(8)]
    assert tuning.expect_mixed(near, eight)[0] is joined, "what is nearly alike is known"
    drafts = [Part(3, 3000, 3)] * 8
    alone = tuning.expect_mixed(drafts)[0]
    # Where arithmetic bounds this many rows, reading less saves nothing.
    assert tuning.expect_mixed(drafts, eight._replace(ones=(0, ALONE)))[0].attention_s < (
        1.05 * alone.attention_s
    )
    beside = [*parts, Part(40, 5, 1)]
    assert tuning.expect_mixed(beside, eight)[0].attention_s < (
        tuning.expect_mixed(beside)[0].attention_s
    )
