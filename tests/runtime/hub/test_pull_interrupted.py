"""A pull that is interrupted leaves nothing that cannot be seen and removed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helpers.fake_hub import FakeHub

from triplepoint.runtime.hub import pull as pull_module
from triplepoint.runtime.hub.cache import CachedRepo
from triplepoint.runtime.hub.find import models_of
from triplepoint.runtime.hub.names import ModelName
from triplepoint.runtime.hub.pull import Pulled
from triplepoint.runtime.hub.remove import remove
from triplepoint.runtime.hub.settings import HubSettings


def test_shards_of_an_interrupted_pull_can_be_removed(
    hub: FakeHub,
    get: Callable[..., Pulled],
    settings: HubSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are whole are listed with their model, so that nothing is left behind."""
    shards = {f"One-Q8_0-{n:05}-of-00003.gguf": bytes([n]) * 1000 for n in (1, 2, 3)}
    hub.repos["org/one"].files = shards
    fetch = pull_module._fetch

    def interrupted(*args: Any) -> int:
        if args[4].path.endswith("00003-of-00003.gguf"):
            raise KeyboardInterrupt
        return fetch(*args)

    monkeypatch.setattr(pull_module, "_fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        get(ModelName("org/one", selector="q8_0"))

    repo = CachedRepo(settings.cache, "org/one")
    (found,) = models_of(repo)
    assert not found.variant.complete
    assert len(found.paths) == 2
    assert remove(repo, [found], unfinished=True) == 2000
    assert not models_of(repo)
