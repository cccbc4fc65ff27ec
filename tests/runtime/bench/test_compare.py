"""The peer behind a pipe: what it is asked, what it then runs, and how its failures are told."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import triplepoint as package
from triplepoint.errors import EngineError
from triplepoint.runtime.bench.compare import SCRIPT, Baseline, Pair, PairedBenchmark
from triplepoint.runtime.bench.runner import Result
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.physics.timed_passes import Case

NANO = Path(package.__file__).parent / "runtime" / "nano" / "nano.gguf"
FAKE = Path(__file__).parents[2] / "helpers" / "fake_llama"
Log = Callable[[], list[list[Any]]]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Log:
    """Gives a child interpreter a llama_cpp that only notes what it is told; reads the notes."""
    log = tmp_path / "log"
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    monkeypatch.setenv("FAKE_LLAMA_LOG", str(log))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A file that is there; what is in it does not matter to the fake."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.fixture
def peer(fake: Log, model: Path) -> Iterator[Baseline]:
    """A peer that has loaded the model."""
    with Baseline(sys.executable) as peer:
        peer.load(model, context=2048, threads=3)
        yield peer


def decoded(log: list[list[Any]]) -> list[tuple[int, list[int]]]:
    """The passes: tokens that were cached before, and tokens of the pass."""
    return [(line[2], line[3]) for line in log if line[0] == "decode"]


def test_the_peer_says_who_it_is(peer: Baseline) -> None:
    """Its name, its build and both settings; noise on its stdout is no answer."""
    assert peer.name == "llama.cpp (llama-cpp-python 0.0-fake)"
    assert peer.system == "CPU : FAKE = 1 |"
    assert peer.settings == ["flash attention", "no flash attention"]


def test_a_prefill_is_one_untimed_token_and_then_the_prompt(peer: Baseline, fake: Log) -> None:
    """The prompt runs on an empty cache, in batches of at most 512."""
    seconds = peer.measure("flash attention", Case(prompt=700), range(1000))

    assert seconds > 0
    assert fake()[0] == ["open", 1, 2048, 3, 3]
    prompt = [(0, list(range(512))), (512, list(range(512, 700)))]
    assert decoded(fake()) == [(0, [0]), *prompt]


def test_a_decode_is_single_tokens_after_the_depth(peer: Baseline, fake: Log) -> None:
    """One pass for each token, behind as many as the case says."""
    peer.measure("no flash attention", Case(generate=3, depth=5), range(100, 200))

    assert fake()[0][:2] == ["open", 0]
    warm = [(0, [100, 101, 102, 103]), (4, [104])]
    assert decoded(fake()) == [*warm, (5, [105]), (6, [106]), (7, [107])]


def test_depth_is_kept_between_repetitions(peer: Baseline, fake: Log) -> None:
    """What is in the cache already is not computed again, also for a greater depth."""
    case = Case(generate=2, depth=600)
    for _ in range(2):
        peer.measure("flash attention", case, range(1000))
    peer.measure("flash attention", Case(prompt=7, depth=610), range(1000))

    passes = [(before, len(ids)) for before, ids in decoded(fake())]
    once = [(0, 512), (512, 87)]
    each = [(599, 1), (600, 1), (601, 1)]
    # Tokens 600 and 601 are the first of those that follow: they need not be forgotten.
    assert passes == [*once, *each, *each, (602, 7), (609, 1), (610, 7)]


def test_a_memory_that_cannot_forget_is_set_back_to_a_copy(
    fake: Log, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the end of the cache cannot be dropped, the depth is computed once all the same."""
    monkeypatch.setenv("FAKE_LLAMA_FORGETS", "0")
    with Baseline(sys.executable) as peer:
        peer.load(model, context=64, threads=1)
        for case in (Case(generate=1, depth=3), Case(generate=1, depth=3), Case(prompt=2, depth=5)):
            peer.measure("flash attention", case, range(10))
        peer.measure("flash attention", Case(generate=1, depth=3), range(10))

    passes = decoded(fake())
    each = [(2, [2]), (3, [3])]
    deeper = [(4, [4]), (5, [5, 6])]
    assert passes == [(0, [0, 1]), *each, *each, *deeper, *each]
    assert [line[2] for line in fake() if line[0] == "restore"] == [2, 2]


def test_both_settings_have_a_cache_of_their_own(peer: Baseline, fake: Log) -> None:
    """A row with one setting leaves the other one's cache alone."""
    for setting in peer.settings * 2:
        peer.measure(setting, Case(generate=1, depth=2), range(10))

    assert [line[1] for line in fake() if line[0] == "open"] == [1, 0]
    assert [line[2] for line in fake() if line[0] == "decode"] == [0, 1, 2, 0, 1, 2, 1, 2, 1, 2]


@pytest.mark.slow
def test_an_answer_comes_when_the_peer_rests(
    fake: Log, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that spin on after their work have ended before it is our turn."""
    monkeypatch.setenv("FAKE_LLAMA_SPIN_S", "0.4")
    with Baseline(sys.executable) as peer:
        peer.load(model, context=64, threads=1)
        for _ in range(2):
            peer.measure("flash attention", Case(prompt=4), range(10))
            time.sleep(0.3)  # our turn
        idle = peer.idle_cpu_s

    assert idle < 0.1


# --- failures


def test_a_failure_of_the_peer_is_told(peer: Baseline) -> None:
    """An error message of the other side is ours, and the peer can go on."""
    with pytest.raises(EngineError, match="llama_decode failed with 1 on 512 tokens"):
        peer.measure("flash attention", Case(prompt=4000), range(4000))

    assert peer.measure("flash attention", Case(prompt=4), range(10)) > 0


def test_a_model_that_cannot_be_loaded(fake: Log, tmp_path: Path) -> None:
    """The file is named."""
    with (
        Baseline(sys.executable) as peer,
        pytest.raises(EngineError, match=r"cannot load .*gone\.gguf"),
    ):
        peer.load(tmp_path / "gone.gguf", context=64, threads=1)


def test_an_interpreter_without_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says which interpreter lacks it, and what to do."""
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('no libllama here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    with Baseline(sys.executable) as peer, pytest.raises(EngineError) as caught:
        peer.load(tmp_path, context=64, threads=1)

    assert sys.executable in str(caught.value)
    assert "no libllama here" in str(caught.value)
    assert "--baseline-python" in str(caught.value)


def test_no_such_interpreter() -> None:
    """It is named."""
    with pytest.raises(EngineError, match=r"cannot start /no/such/python: No such file"):
        Baseline("/no/such/python")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import sys; print('bad luck', file=sys.stderr); sys.exit(7)", "status 7, bad luck"),
        ("import os; os.kill(os.getpid(), 9)", "status -9, no message"),
        ("input(); print('Hello!')", "no JSON: 'Hello!"),
    ],
    ids=["exits", "killed", "babbles"],
)
def test_a_peer_that_breaks_the_protocol(script: str, message: str, tmp_path: Path) -> None:
    """A child that ends, dies or says something else is an error, not a hang."""
    path = tmp_path / "baseline_worker.py"
    path.write_text(script)

    with Baseline(sys.executable, path) as peer, pytest.raises(EngineError) as caught:
        peer.load(tmp_path, context=64, threads=1)

    assert message in str(caught.value)


def test_no_module_beside_the_worker_hides_one_of_pythons() -> None:
    """It runs as a script, so what its folder has is imported first."""
    assert not {path.stem for path in SCRIPT.parent.glob("*.py")} & sys.stdlib_module_names


# --- a contest


def test_a_match_compares_neighbors() -> None:
    """The best setting by median; the ratio is of medians, its spread of neighbors."""
    case = Case(prompt=10)
    ours = Result(case, (1.0, 2.0, 4.0))
    slow, fast = Result(case, (9.0, 9.0, 9.0)), Result(case, (2.0, 8.0, 4.0))
    match = Pair(case, ours, {"a": slow, "b": fast})

    assert match.setting == "b"
    assert match.ratio == pytest.approx(2.0)
    assert match.ratios == [2.0, 4.0, 1.0]
    assert match.ratio_spread == pytest.approx(1.5275, abs=1e-4)


@pytest.mark.slow
def test_a_contest_gives_both_the_same_tokens(fake: Log) -> None:
    """Every repetition is ours and then theirs with each setting, on the tokens that ours had."""
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    with Engine.load("nano") as engine, Baseline(sys.executable) as peer:
        contest = PairedBenchmark(
            engine, peer, [Case(prompt=9), Case(generate=2, depth=4)], repeat=2
        )
        prefill, decode = contest.run()
        ids = contest._timer.ids

    for match in (prefill, decode):
        assert list(match.theirs) == ["flash attention", "no flash attention"]
        assert [len(r.seconds) for r in (match.ours, *match.theirs.values())] == [2, 2, 2]
        assert match.ours.limits == match.best.limits
        assert match.ours.share > 0
        assert match.ratio == pytest.approx(match.ours.median / match.best.median)
    log = [line for line in fake() if line[0] == "decode"]
    prompts = [(line[1], line[3]) for line in log if len(line[3]) == 9]
    assert prompts == [(1, ids[:9]), (0, ids[:9])] * 3
    assert [line[3] for line in log][-2:] == [[ids[4]], [ids[5]]]
    assert next(line for line in fake() if line[0] == "open")[3] == engine.threads


def test_the_real_llama_cpp() -> None:
    """With llama-cpp-python installed, it loads the embedded model and runs both kinds of row."""
    if importlib.util.find_spec("llama_cpp") is None:
        pytest.skip("llama-cpp-python is not installed")
    if not NANO.exists():
        pytest.skip("the embedded model is not in this checkout")
    with Baseline(sys.executable) as peer:
        peer.load(NANO, context=256, threads=1)
        for setting in peer.settings:
            assert peer.measure(setting, Case(prompt=20), range(200)) > 0
            assert peer.measure(setting, Case(generate=3, depth=30), range(200)) > 0

        assert "fake" not in peer.name
        assert peer.idle_cpu_s < 1.0
