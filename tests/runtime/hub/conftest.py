"""A Hub on this machine and an empty cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.fake_hub import FILE, HURRIED, ONE, FakeHub, FakeRepo, serving

from triplepoint.runtime.hub.names import ModelName
from triplepoint.runtime.hub.progress import ProgressReporter
from triplepoint.runtime.hub.pull import Pulled, pull
from triplepoint.runtime.hub.settings import HubSettings

DATA = np.random.default_rng(1).bytes(300_000)


class Recorder(ProgressReporter):
    """A watcher that keeps what it hears."""

    def __init__(self) -> None:
        self.files: list[tuple[str, int]] = []
        self.done: list[int] = []
        self.notes: list[str] = []

    def begin(self, label: str, total: int) -> None:
        self.files.append((label, total))

    def at(self, done: int) -> None:
        self.done.append(done)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="session")
def server() -> Iterator[FakeHub]:
    with serving(FakeHub()) as hub:
        yield hub


@pytest.fixture
def hub(server: FakeHub) -> FakeHub:
    """A Hub that has `org/one` with a single file, and does nothing wrong yet."""
    server.repos.clear()
    server.faults.clear()
    server.api_faults.clear()
    server.asked.clear()
    server.always, server.pause_s = "", 0.0
    server.repos["org/one"] = FakeRepo({"One-Q4_K_M.gguf": DATA})
    return server


@pytest.fixture(autouse=True)
def own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remembered hashes are the test's own, and nothing of the user's account is used."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_OFFLINE", "HF_ENDPOINT", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def settings(hub: FakeHub, tmp_path: Path) -> HubSettings:
    return HubSettings(endpoint=hub.url, cache=tmp_path / "hub")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def data(hub: FakeHub) -> bytes:
    return hub.repos["org/one"].files[FILE]


@pytest.fixture
def get(settings: HubSettings, recorder: Any) -> Callable[..., Pulled]:
    """Pull with little patience."""

    def run(name: ModelName = ONE, **options: Any) -> Pulled:
        return pull(name, settings, recorder, patience=HURRIED, **options)

    return run
