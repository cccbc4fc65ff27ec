"""A draft source is a file and a row of `SOURCES`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

import pytest

from triplepoint.runtime.cli.load_engine import draft
from triplepoint.runtime.engine import drafting
from triplepoint.runtime.engine.drafting.config import SOURCES, SpeculativeConfig
from triplepoint.runtime.engine.drafting.source import FIXED, NOTHING, Ask, DraftSource
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.engine.session import Session


class Oracle(DraftSource):
    """Drafts what it was told, and counts what it learns."""

    text: tuple[int, ...] = ()
    seen: tuple[int, ...] = ()

    def offer(self, ask: Ask) -> float:
        """Offer the rest of the text, if the tokens so far begin it."""
        begun = tuple(self.tokens) == self.text[: len(self.tokens)]
        return FIXED if begun and len(self.tokens) < len(self.text) else NOTHING

    def draft(self, ask: Ask) -> tuple[list[int], float]:
        """Draft the next tokens."""
        done = len(self.tokens)
        return list(self.text[done : done + ask.room]), 0.0

    def compare(self, right: Sequence[bool]) -> None:
        """Count."""
        Oracle.seen = (*Oracle.seen, sum(right))


def _decode(session: Session, prompt: list[int], count: int) -> list[int]:
    session.prefill(prompt)
    return list(session.decode(max_tokens=count))


def test_a_file_and_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings, command line, choice, learning and the trace's counts have a new source."""
    module = ModuleType(f"{drafting.__name__}.oracle")
    module.__dict__["Oracle"] = Oracle
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(SOURCES, "oracle", "Oracle")
    assert draft("oracle:3") == ("oracle", 3)
    with Engine.load("nano", threads=1, draft_tokens=0) as engine:
        prompt = engine.tokenizer.encode("The port is")
        said = _decode(engine.session(), prompt, 12)
        monkeypatch.setattr(Oracle, "text", (*prompt, *said))
        monkeypatch.setattr(Oracle, "seen", ())
        session = engine.session()
        session.phases.drafting.settings = SpeculativeConfig(draft_tokens=3, draft_source="oracle")
        assert _decode(session, prompt, 12) == said
    assert session.last_phase is not None
    (record,) = session.last_phase.drafts
    assert record.source == "oracle"
    assert record.accepted == record.drafted == sum(Oracle.seen) > 6
    assert session.last_phase.passes < 12
