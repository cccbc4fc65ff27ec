"""A session whose conversation fits on the disk, and whose KV cache does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from triplepoint import Agent, Engine, open_conversation
from triplepoint.errors import AgentError


def test_a_disk_that_is_full_after_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that only the KV cache is missing; the session continues."""
    replace = os.replace

    def full(place: Path, target: Path) -> None:
        if not str(target).endswith(".json"):
            raise OSError(28, "No space left on device")
        replace(place, target)

    with Engine.load("nano", context=2048) as engine:
        agent = Agent(engine, workspace=tmp_path, trace=False)
        agent.run("Which files are here?")
        with (
            open_conversation("it", tmp_path / "sessions") as kept,
            monkeypatch.context() as patched,
        ):
            patched.setattr(os, "replace", full)
            with pytest.raises(AgentError, match=r"it is saved without the KV cache of this turn"):
                kept.save(agent)
        again = Agent(engine, workspace=tmp_path, trace=False)
        with open_conversation("it", tmp_path / "sessions") as kept:
            kept.resume(again)
        assert again.messages == agent.messages
