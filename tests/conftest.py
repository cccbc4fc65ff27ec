"""What all tests share: the path to `helpers`, a cache folder of their own, a seeded generator."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from helpers.chromium import Chromium

    from triplepoint import Engine
    from triplepoint.runtime.tokens.tokenizer import Tokenizer

# With --import-mode=importlib no folder of tests is on the path; `helpers` is imported by many.
sys.path.insert(0, str(Path(__file__).parent))
# `labs` lies beside the package, in the checkout alone. Last: the names of our rooms are common.
sys.path.append(str(Path(__file__).parents[1]))


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled kernels and machine profiles between runs, but out of the user's own cache."""
    # A shell without job control has its background jobs ignore Ctrl-C, and so their children.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from helpers import fence

    fence.install()
    # Copies of large models would fill the disk; tests of them say so.
    os.environ.setdefault("TRIPLEPOINT_CACHE_PACKED_WEIGHTS", "off")
    cache = getattr(config, "cache", None)  # absent under -p no:cacheprovider
    if cache is None:
        return
    folder = cache.mkdir("triplepoint")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    os.environ["XDG_CONFIG_HOME"] = str(folder / "config")  # with no default model
    # A change of jit/ makes new objects: drop those of last week.
    for path in folder.glob("triplepoint/kernels/*"):
        if path.stat().st_mtime < time.time() - 7 * 86400:
            path.unlink(missing_ok=True)


# Few tests, or one, that take long: begun last they would keep one process busy while the other has
# nothing left. From a run of CI, the longest first.
LONG = (
    "runtime/serve/test_clients.py",
    "runtime/cli/test_documented_commands.py",
    "runtime/cli/test_hostile.py",
    "labs/recording/test_record_examples.py",
    "runtime/replay/test_examples.py",
    "runtime/fleet/test_ray_cluster.py",
    "runtime/models/test_trained_small.py",
    "runtime/models/test_trained.py",
    "runtime/models/test_exactness.py",
    "runtime/nano/test_accuracy.py",
    "runtime/serve/app/test_openapi.py",
    "runtime/cli/test_regimes.py",
    "labs/bench/test_commands.py",
    "runtime/cli/bench/test_speed.py",
    "labs/nano/test_suite.py",
    "runtime/physics/test_calibrate.py",
    "runtime/serve/test_agent_clients.py",
    "runtime/cli/test_serve.py",
)


# Rooms whose plain tests ask nothing of the CPU, and the files among them that load an engine.
CPU_BLIND = (
    *("tools", "traces", "test_docs_reference.py", "test_packaging.py", "test_public_api.py"),
    *("test_words.py", "runtime/conversation", "runtime/evidence", "runtime/gguf", "runtime/hub"),
    *("runtime/planning", "runtime/regimes", "runtime/remote", "runtime/tokens"),
)
CPU_SEEING = (
    "runtime/conversation/formats/test_formats_nano.py",
    "runtime/conversation/test_reasoning_tags.py",
    "runtime/gguf/test_split.py",
    "runtime/hub/test_cache.py",
)


def _longest_first(items: list[pytest.Item]) -> None:
    """Whole files, in the order in which the processes are to take them."""
    folder = Path(__file__).parent
    long = {folder / name: place - len(LONG) for place, name in enumerate(LONG)}
    tests = Counter(item.path for item in items)
    items.sort(key=lambda item: (long.get(item.path, 0), -tests[item.path], str(item.path)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Plain `pytest` tests the kernels that this machine runs; those of all other feature sets are
    slow, and CI's. What is exhaustive is not slow, whatever it is about: `-m slow` leaves it out.
    Plain tests that need not run again for another CPU are `cpu_blind`.
    """
    from triplepoint.jit.targets import TARGETS, CpuTarget, detect

    _longest_first(items)
    others = {*TARGETS, *TARGETS.values()} - {detect().name, detect()}
    here = Path(__file__).parent
    blind, seeing = ([here / name for name in names] for names in (CPU_BLIND, CPU_SEEING))
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "slow"]
            continue
        values = getattr(item, "callspec", None)
        given = values.params.values() if values is not None else ()
        if any(isinstance(value, str | CpuTarget) and value in others for value in given):
            item.add_marker("slow")
        in_blind = item.path not in seeing and any(map(item.path.is_relative_to, blind))
        if in_blind and not item.get_closest_marker("slow"):
            item.add_marker("cpu_blind")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Hide the CPU from the tests marked `cpu_blind`: in them and in the processes that they start,
    a look at its features is an error. So they need not run again for each CPU, as CI leaves them
    out, and give the same whatever CPU a user says that this is.
    """
    if not item.get_closest_marker("cpu_blind"):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIPLEPOINT_CPU", "hidden from this test")
        return (yield)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with a fixed seed: the same data in every run."""
    return np.random.default_rng(7)


@pytest.fixture(scope="session", autouse=True)
def quick_profiles() -> None:
    """Measure a machine once and not three times: the tests load engines of many kinds."""
    from triplepoint.runtime.physics import machine

    machine.SAMPLES = 1


@pytest.fixture(scope="session", autouse=True)
def no_spill() -> None:
    """Leave the user's disk alone: only the tests of it spill pages, to folders of their own."""
    from triplepoint.runtime.engine.kv import spill

    spill.MOST_BYTES = 0


@pytest.fixture(scope="session")
def peer() -> str:
    """A Python that has llama-cpp-python, be it this one or not."""
    from helpers import peer_logits

    python = peer_logits.peer_python()
    if python is None:
        pytest.skip(
            f"llama-cpp-python is not installed; {peer_logits.VARIABLE} may name an interpreter "
            "that has it"
        )
    return python


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """The embedded model, loaded once for a module; some modules have an engine of their own."""
    from triplepoint import Engine

    with Engine.load("nano") as engine:
        yield engine


@pytest.fixture(scope="session")
def nano_tokenizer() -> Tokenizer:
    """The embedded model's, without an engine."""
    from triplepoint.runtime.engine.engine import NANO
    from triplepoint.runtime.gguf.open import open_gguf
    from triplepoint.runtime.tokens.tokenizer import Tokenizer

    with open_gguf(NANO) as file:
        return Tokenizer.from_gguf(file)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Writes `helpers.tiny_qwen3` once for each type of its matrices."""
    folder = tmp_path_factory.mktemp("tiny")

    def make(kind: str) -> Path:
        from helpers.tiny_qwen3 import write_tiny

        path = folder / f"{kind}.gguf"
        if not path.exists():
            write_tiny(path, kind)
        return path

    return make


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """A headless Chromium for the tests of a module."""
    from helpers import chromium

    binary = chromium.find()
    if binary is None:
        pytest.skip("no Chromium is installed")
    started = chromium.Chromium(binary, tmp_path_factory.mktemp("profile"))
    yield started
    started.close()
