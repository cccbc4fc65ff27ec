"""Greedy passes that read a part of the output head: the tokens are those of passes that read it
all, and who needs logits gets them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from helpers.own_cache import own_cache
from helpers.tiny_models import write_model

from triplepoint.errors import SettingError
from triplepoint.jit.kernels.head_bound import COPY, HEAD
from triplepoint.jit.targets import detect
from triplepoint.runtime.conversation.logprobs import LogprobRecorder
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.model.model_cost import size_up
from triplepoint.runtime.engine.sampling.settings import Sampling
from triplepoint.runtime.engine.session import Session
from triplepoint.runtime.forward.head_bound import PAUSE, HeadBound
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.weights import loader
from triplepoint.runtime.weights.matrix import Matrix

Load = Callable[..., Engine]
PROMPTS = [[1, 2, 3], [250] * 7, list(range(40, 90))]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tiny_model: Callable[[str], Path]) -> Iterator[Load]:
    """Loads a tiny model whose head counts as large; `head_bound` is on unless given."""
    monkeypatch.setattr(loader, "COPIED_BYTES", 0)
    monkeypatch.setattr(loader, "COPIED_SHARE", 0.0)
    opened: list[Engine] = []

    def make(kind: str = "q8_0", head_bound: str = "on", **settings: object) -> Engine:
        given = {"draft_tokens": 0, "threads": 2, "tune": {"head_bound": head_bound}, **settings}
        opened.append(Engine.load(tiny_model(kind), **given))  # pyright: ignore[reportArgumentType]
        return opened[-1]

    yield make
    for engine in opened:
        engine.close()


class Half:
    """A constraint with lookahead that allows other halves of the vocabulary by turns."""

    def __init__(self, n_vocab: int) -> None:
        bits = np.zeros(-(-n_vocab // 32) * 32, bool)
        bits[:n_vocab:2] = True
        self._masks = [np.packbits(b, bitorder="little").view(np.uint32) for b in (bits, ~bits)]

    def mask(self) -> np.ndarray:
        return self._masks[0]

    def advance(self, token: int) -> None:
        self._masks.reverse()

    def forced(self) -> int | None:
        return None

    def allows(self, tokens: Sequence[int]) -> int:
        return 0


def _bound(engine: Engine) -> HeadBound:
    found = engine.core.plans.decode.graph.head_bound
    assert found is not None
    return found


def _counted(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each bounded pass read of the head; none of them makes a pause."""
    bound, found = _bound(engine), list[float]()
    real = bound.observe

    def observe() -> float:
        found.append(real())
        bound._left = 0
        return found[-1]

    monkeypatch.setattr(bound, "observe", observe)
    return found


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("grammar", [False, True], ids=["free", "grammar"])
def test_tokens_are_the_same(
    load: Load, monkeypatch: pytest.MonkeyPatch, threads: int, grammar: bool
) -> None:
    """Of any prompt, under a grammar too; and passes did read a part of the head alone."""
    on, off = load(threads=threads), load(threads=threads, head_bound="off")
    shares = _counted(on, monkeypatch)
    for prompt in PROMPTS:
        texts = []
        for engine in (on, off):
            session = engine.session()
            session.prefill(prompt)
            constraint = Half(engine.loaded.outputs.n_vocab) if grammar else None
            texts.append(list(session.decode(max_tokens=40, constraint=constraint)))
        assert texts[0] == texts[1]
    assert len(shares) == 39 * len(PROMPTS)
    assert min(shares) < 1.0
    assert off.core.plans.decode.graph.head_bound is None


def test_tokens_are_the_same_in_elastic_passes(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """What threads do for one without a core is the same."""
    on, off = load(), load(head_bound="off")
    shares = _counted(on, monkeypatch)
    texts = []
    for engine in (on, off):
        engine.loaded.contention.on = False
        engine.loaded.pool.set_elastic(True)
        session = engine.session()
        session.prefill(PROMPTS[2])
        texts.append(list(session.decode(max_tokens=40)))
    assert texts[0] == texts[1]
    assert len(shares) == 39


def test_tokens_are_the_same_in_company(load: Load) -> None:
    """Passes that several sequences share read all of the head."""
    on, off = load(), load(head_bound="off")

    def text(session: Session) -> list[int]:
        return list(session.decode(max_tokens=60))

    texts = []
    for engine in (on, off):
        sessions = [engine.session() for _ in PROMPTS]
        for session, prompt in zip(sessions, PROMPTS, strict=True):
            session.prefill(prompt)
        with ThreadPoolExecutor(len(PROMPTS)) as threads:
            texts.append(list(threads.map(text, sessions)))
    assert texts[0] == texts[1]


def test_logits_are_whole_for_who_reads_them(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samplers, recorders of log-probabilities, and sessions after a decode."""
    on, off = load(), load(head_bound="off")
    shares = _counted(on, monkeypatch)
    seen = []
    for engine in (on, off):
        session = engine.session()
        session.prefill(PROMPTS[0])
        drawn = list(session.decode(max_tokens=9, sampling=Sampling(temperature=1.0, seed=7)))
        recorder = LogprobRecorder(session, None, 3)
        list(session.decode(max_tokens=9, constraint=recorder))
        assert not shares or engine is off
        ids = list(session.decode(max_tokens=9))
        session.prefill([])
        seen.append((drawn, recorder.take(), ids, session.logits.tolist()))
    assert len(shares) >= 8
    assert seen[0] == seen[1]


def test_bytes_are_those_that_were_read(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A phase counts the copy, and the share of the head that its passes took."""
    on, off = load(), load(head_bound="off")
    shares, phases = _counted(on, monkeypatch), []
    for engine in (on, off):
        session = engine.session()
        session.prefill(PROMPTS[0])
        list(session.decode(max_tokens=20))
        assert session.last_phase is not None
        phases.append(session.last_phase)
    spared = sum(1.0 - share for share in shares)
    assert phases[1].bytes - phases[0].bytes == pytest.approx(spared * on.loaded.cost.head_bytes)
    copy = _bound(on).copy.nbytes / _bound(on).head.nbytes
    assert 0.5 < copy < 0.6
    assert all(copy < share <= 1 + copy for share in shares)


def test_what_does_not_pay_is_paused() -> None:
    """Passes without double after each one that read more than the head, and end at one that did
    not."""
    head = Matrix(HEAD, 320, 64, 10, False, ("output.weight",), np.empty(10 * 34 * 64, np.uint8))
    copy = Matrix(COPY, 320, 64, 10, False, head.sources, np.empty(10 * 18 * 64, np.uint8))
    bound = HeadBound(head, copy)

    def passes(found: int, count: int) -> list[int]:
        """How many passes lie before each of `count` bounded ones."""
        gaps = []
        for _ in range(count):
            gaps.append(0)
            while not bound.pays():
                gaps[-1] += 1
            bound.found[0] = found
            assert bound.observe() == pytest.approx(18 / 34 + found / 10)
        return gaps

    assert passes(4, 3) == [0, 0, 0]
    assert passes(10, 7) == [0, 1, 2, 4, 8, PAUSE, PAUSE]
    assert passes(4, 3) == [PAUSE, 0, 0]


def test_which_heads_have_a_copy(
    load: Load, tiny_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large ones of Q8_0 without a cap; the copy counts as weights, in forecasts too."""
    on, off = load(), load(head_bound="off")
    copy = on.loaded.network.output.copy
    assert copy is not None
    more = len(on.loaded.weights.bytes) - len(off.loaded.weights.bytes)
    assert 0 <= more - copy.nbytes < 64  # matrices begin at cache lines
    sized = size_up(open_gguf(tiny_model("q8_0")), detect())
    assert sized.packed == sum(m.nbytes for m in (*on.loaded.network.matrices, copy))
    for other in (load("q4_0"), load("f16"), off):
        assert other.loaded.network.output.copy is None
    with pytest.raises(SettingError, match="head_bound must be on or off"):
        load(head_bound="half")

    def copied(path: Path) -> bool:
        return size_up(open_gguf(path), detect()).network.output.copy is not None

    capped = tmp_path / "gemma2.gguf"
    write_model(capped, "gemma2", "q8_0")
    assert not copied(capped)
    monkeypatch.setattr(loader, "COPIED_SHARE", 0.5)
    assert not copied(tiny_model("q8_0"))
    monkeypatch.undo()
    assert not copied(tiny_model("q8_0"))


def test_copies_are_kept_with_packed_weights(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A mapped copy has the bytes of one that was just made."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache(tmp_path).parent))
    panels = []
    for mapped in (False, True):
        engine = load(cache_packed_weights=True)
        kept = engine.loaded.packed_cache
        assert kept is not None
        assert kept.mapped is mapped
        panels.append(_bound(engine).copy.panels.tobytes())
    assert panels[0] == panels[1]
