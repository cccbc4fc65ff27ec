"""Drafts of a model's own layer: what it computes, and the same text to the last token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import tiny_models as tiny
from helpers import tiny_mtp
from helpers.few_tokens import FewTokens
from helpers.tiers import quick

from triplepoint.errors import GGUFError, PassCancelledError, SettingError
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.engine.drafting.drafter import Drafter
from triplepoint.runtime.engine.drafting.head import DraftHead
from triplepoint.runtime.engine.drafting.length import DraftLengthPolicy, HeadLengthPolicy
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.passes.sequence import TokenSequence
from triplepoint.runtime.engine.sampling.settings import GREEDY, Sampling
from triplepoint.runtime.engine.session import Session

IDS = np.random.default_rng(3).integers(0, 256, 300).tolist()
OTHER = np.random.default_rng(4).integers(0, 256, 40).tolist()
STEPS = 64
EXACT = 3e-5  # of the range of the logits: see test_architectures.py
ROUNDED = 1e-3  # where hidden states are kept as bf16: some round the other way there
MakeModel = Callable[..., Path]
NAMES = quick(tiny_mtp.NAMES, "qwen35", "glm4-flash")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> MakeModel:
    """Writes each model once."""
    folder = tmp_path_factory.mktemp("mtp")

    def make(name: str, kind: str = "f32") -> Path:
        path = folder / f"{name}-{kind}.gguf"
        if not path.exists():
            tiny_mtp.write_model(path, name, kind)
        return path

    return make


@pytest.fixture(scope="module", params=NAMES)
def engine(request: pytest.FixtureRequest, model: MakeModel) -> Iterator[Engine]:
    with Engine.load(model(request.param), threads=2) as engine:
        yield engine


@pytest.fixture(autouse=True)
def ready_to_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drafts are made whatever they cost here."""
    monkeypatch.setattr(Drafter, "_cheap", False)


Drafted = tuple[list[int], np.ndarray]


def _drafted(session: Session, count: int = 4) -> Drafted:
    """What the layer drafts behind the greedy choice, and the bits of its last logits."""
    core = session.phases.core
    head = core.drafting.head(0)
    assert head is not None, "the file has the layer"
    hidden = core.runner.hidden(session.sequence.last_logits, -1)
    session.tokens.append(int(session.logits.argmax()))
    found, _ = head.draft(session.sequence, hidden, count)
    session.tokens.pop()
    return found, head.last_logits.copy()


def _same(one: Drafted, other: Drafted) -> bool:
    return one[0] == other[0] and np.array_equal(one[1], other[1])


# --- what it computes


@pytest.mark.slow
@pytest.mark.parametrize("name", tiny_mtp.NAMES)
def test_drafts_are_those_of_the_formulas(model: MakeModel, name: str) -> None:
    """Each of four drafts, each from the one before, and the logits that it was chosen from."""
    pytest.importorskip("torch", reason="the oracle is torch: pip install '.[oracle]'")
    pytest.importorskip(
        "transformers", reason="the oracle is transformers: pip install '.[oracle]'"
    )
    with Engine.load(model(name), threads=2, kv="f32") as engine:
        session = engine.session()
        session.prefill(IDS[:70])
        chosen = int(session.logits.argmax())
        want, logits = tiny_mtp.Reference(name).drafts([*IDS[:70], chosen], 4)
        for count, wanted in enumerate(logits, 1):
            found, got = _drafted(session, count)
            assert found == want[:count]
            near = ROUNDED if name == "glm4-flash" else EXACT
            assert np.abs(got - wanted).max() / np.ptp(wanted) <= near


@pytest.mark.slow
def test_drafts_depend_on_the_tokens_alone(model: MakeModel, tmp_path: Path) -> None:
    """The same bits in any chunks, on any threads, after a fork, a cut, a save, or other drafts."""
    for name in ("qwen35", "glm4-flash"):
        with Engine.load(model(name), threads=1) as engine:
            alone = engine.session()
            alone.prefill(IDS)
            want = _drafted(alone)
        with Engine.load(model(name), threads=2) as engine:
            for size in (1, 7, 64, 257):
                session = engine.session()
                for at in range(0, len(IDS), size):
                    session.prefill(IDS[at : at + size])
                assert _same(_drafted(session), want), (name, size)
            assert _same(_drafted(session), want), "drafts leave nothing behind"
            session.prefill(OTHER)
            session.truncate(290)
            session.prefill(IDS[290:])
            assert _same(_drafted(session), want), (name, "cut")
            fork = session.fork(256)
            session.prefill(OTHER)
            fork.prefill(IDS[256:])
            assert _same(_drafted(fork), want), (name, "fork")
            fork.save(tmp_path / name)
            back = engine.load_session(tmp_path / name)
            assert back.restore_error == ""
            back.prefill([])
            assert _same(_drafted(back), want), (name, "save")


@pytest.mark.slow
def test_what_was_decoded_is_what_is_read(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind drafts that were right, or wrong, the layer has the bits of a prompt that was read."""
    for good in (0, 2):
        said, _, session = _decode(engine, 4, IDS[:50], good=good, monkeypatch=monkeypatch)
        session.prefill([])
        other = engine.session()
        other.prefill([*IDS[:50], *said])
        assert _same(_drafted(session), _drafted(other)), good


# --- the same text


def _decode(
    engine: Engine,
    most: int,
    ids: list[int],
    sampling: Sampling = GREEDY,
    good: int = -1,
    monkeypatch: pytest.MonkeyPatch | None = None,
    steps: int = STEPS,
):
    """What is said; with `good`, so many of the drafts of a pass are what is said without."""
    real = DraftHead.draft
    if good >= 0 and monkeypatch is not None:
        without, _, _ = _decode(engine, 0, ids, sampling, steps=steps)

        def draft(self: DraftHead, sequence: TokenSequence, hidden: np.ndarray, count: int):
            found, seconds = real(self, sequence, hidden, count)
            done = len(sequence.tokens) - len(ids)
            right = without[done : done + min(good, len(found))]
            wrong = [(token + 1) % tiny.VOCAB for token in without[done + len(right) :]]
            return [*right, *wrong][: len(found)], seconds

        monkeypatch.setattr(DraftHead, "draft", draft)
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=most, draft_source="mtp")
    session.prefill(ids)
    said = list(session.decode(max_tokens=steps, sampling=sampling))
    if monkeypatch is not None:
        monkeypatch.setattr(DraftHead, "draft", real)
    assert session.last_phase is not None
    return said, session.last_phase, session


def test_pages_stay_while_the_layer_drafts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is closed meanwhile lets go of them when that has ended."""
    stayed: list[bool] = []

    def draft(self: DraftHead, sequence: TokenSequence, hidden: np.ndarray, count: int):
        pages = [*sequence.cache.held]
        session.close()
        stayed.append(bool(pages) and [*sequence.cache.held] == pages)
        return [], 0.0

    monkeypatch.setattr(DraftHead, "draft", draft)
    session = engine.session()
    session.phases.drafting.settings = SpeculativeConfig(draft_tokens=3, draft_source="mtp")
    session.prefill(IDS[:50])
    with pytest.raises(PassCancelledError):
        list(session.decode(max_tokens=9))

    assert stayed == [True]
    assert not [*session.sequence.cache.held]


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_text_is_the_same(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, temperature: float
) -> None:
    """With drafts that are all right, right at first, or wrong, greedy or by chance."""
    sampling = Sampling(temperature, seed=7) if temperature else GREEDY
    without, slow, _ = _decode(engine, 0, IDS[:50], sampling)
    assert len(without) == STEPS
    for most, good in ((1, 1), (3, 1), (8, 8), (8, 3), (4, 0), (4, -1)):
        said, phase, session = _decode(engine, most, IDS[:50], sampling, good, monkeypatch)
        assert said == without, (most, good)
        assert session.tokens == IDS[:50] + without
        (record,) = phase.drafts
        assert record.source == "mtp"
        assert (record.drafted, record.accepted) == (phase.drafted_tokens, phase.accepted_tokens)
        if good >= 0:
            assert (record.accepted > 0) == (good > 0)
        if good == 8:
            assert phase.passes < slow.passes / 3
    assert not slow.drafts


def test_it_goes_on_over_pages(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft ends where its page does; text behind the border is the same, too."""
    without, _, _ = _decode(engine, 0, IDS[:230], steps=60)
    said, phase, _ = _decode(engine, 8, IDS[:230], GREEDY, 8, monkeypatch, steps=60)

    assert said == without
    assert phase.accepted_tokens > 40


@pytest.mark.slow
def test_company(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that share passes say what each says alone."""
    texts = [IDS[n : n + 40] for n in (0, 30, 60)]
    want = [_decode(engine, 0, ids)[0] for ids in texts]
    found: dict[int, list[int]] = {}

    def run(number: int) -> None:
        found[number] = _decode(engine, 3, texts[number])[0]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(3)] == want


def test_both_sources(model: MakeModel) -> None:
    """Where the context says nothing the layer drafts, and what each did is told apart."""
    with Engine.load(model("qwen35"), threads=2, draft_tokens=4) as engine:
        seen = []
        for source in ("lookup", "mtp", "auto"):
            session = engine.session()
            session.phases.drafting.settings = replace(
                engine.core.drafting.settings, draft_source=source
            )
            session.prefill(IDS[:9])
            said = list(session.decode(max_tokens=100, constraint=FewTokens()))
            assert session.last_phase is not None
            seen.append((said, {one.source: one for one in session.last_phase.drafts}))
    (first, lookup), (second, mtp), (third, both) = seen

    assert first == second == third
    assert (set(lookup), set(mtp), set(both)) == ({"lookup"}, {"mtp"}, {"lookup", "mtp"})
    assert lookup["lookup"].accepted > 0


# --- settings


def test_part_of_the_vocabulary(engine: Engine) -> None:
    """Drafts are tokens of the first panels, or such as have a role: end of text and the like."""
    session = engine.session()
    session.prefill(IDS)
    whole, logits = _drafted(session, 1)
    few = engine.core.drafting.head(64)
    assert few is not None
    named = set(engine.tokenizer.control_ids)
    hidden = engine.core.runner.hidden(session.sequence.last_logits, -1)
    session.tokens.append(int(session.logits.argmax()))
    (token,), _ = few.draft(session.sequence, hidden, 1)
    session.tokens.pop()
    allowed = few.tokens

    assert whole[0] == int(logits.argmax())
    assert allowed.sum() <= few.vocabulary < tiny.VOCAB
    assert allowed[:64].all()
    assert allowed[sorted(named)].all()
    assert token == int(np.where(allowed, logits, -np.inf).argmax())
    assert few.read_bytes < engine.core.drafting.head(0).read_bytes  # pyright: ignore


def test_lookup_alone_leaves_it_out(model: MakeModel) -> None:
    """An engine that may not draft so has no weights and no keys of it."""
    sizes = {}
    for source in ("auto", "lookup"):
        with Engine.load(model("qwen35"), threads=1, draft_source=source) as engine:
            assert (engine.loaded.network.mtp is not None) == (source == "auto")
            sizes[source] = engine.loaded.layout.page_bytes
    with Engine.load(model("qwen35"), threads=1, draft_tokens=0) as engine:
        assert engine.core.drafting.head(0) is None
    assert sizes["auto"] > sizes["lookup"]


def test_a_model_without_the_layer_cannot_draft_with_it() -> None:
    """It is said so, unless there are no drafts at all."""
    with pytest.raises(SettingError, match="MTP head"):
        Engine.load("nano", threads=1, draft_source="mtp")
    with Engine.load("nano", threads=1, draft_source="mtp", draft_tokens=0) as engine:
        assert engine.core.drafting.head(0) is None


@pytest.mark.parametrize("given", [{"draft_source": "none"}, {"draft_vocabulary": -1}])
def test_settings_that_make_no_sense(given: dict) -> None:
    """They are refused by name."""
    with pytest.raises(SettingError, match=next(iter(given))):
        SpeculativeConfig(**given)


def test_a_layer_in_part_is_refused(tmp_path: Path) -> None:
    """A file whose block lacks a tensor is damaged; one without the block is as any other."""
    path = tmp_path / "part.gguf"
    tiny_mtp.write_model(path, "qwen35", drop="blk.5.attn_k.")
    with pytest.raises(GGUFError, match=r"blk\.5\.attn_k\.weight"):
        Engine.load(path, threads=1)
    tiny_mtp.write_model(path, "qwen35", drop="blk.5.")
    with Engine.load(path, threads=1) as engine:
        assert engine.loaded.network.mtp is None


# --- how many


def _policy(engine: Engine, ratio: float) -> HeadLengthPolicy:
    times = engine.core.drafting.latency
    for _ in range(20):
        times.step(0.010)
        for rows in range(2, 20):
            times.several(rows, 0.010 * (1 + ratio * (rows - 1)))
    return HeadLengthPolicy(engine.core.drafting, DraftLengthPolicy(engine.core.drafting, []))


def test_as_many_as_pay(model: MakeModel) -> None:
    """More where passes are flat and drafts right, none where either is not, and again later."""
    with Engine.load(model("qwen35"), threads=1) as engine:
        policy = _policy(engine, 0.02)
        first = policy.count(1, 8, 0.001, 0.0)
        assert 1 <= first < 8
        assert policy.count(1, 8, 0.009, 0.0) == 0, "each costs as much as a pass"
        for _ in range(300):
            policy.compare([True] * 8)
        assert policy.count(1, 8, 0.0005, 0.0) == 8
        for _ in range(300):
            policy.compare([False])
        assert policy.count(1, 8, 0.0005, 0.0) == 0
        assert any(policy.count(1, 8, 0.0005, 0.0) for _ in range(600)), "it is tried again"


def test_what_is_worth_more_is_taken(model: MakeModel) -> None:
    """A place that is nearly sure is copied; the layer drafts where that is doubtful."""
    with Engine.load(model("qwen35"), threads=1) as engine:
        policy = _policy(engine, 0.02)
        lookup = policy._lookup
        lookup.count(32, 1, 16)
        sure = lookup.worth
        lookup.count(3, 1, 16)
        doubtful = lookup.worth
        policy.count(1, 8, 0.0005, 0.0)
        assert doubtful < policy.worth < sure
