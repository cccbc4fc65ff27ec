"""One row asked of one agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from triplepoint import Engine, TraceError
from triplepoint.runtime.fleet import answering
from triplepoint.runtime.fleet.answering import Recipe
from triplepoint.runtime.fleet.rows import make_rows
from triplepoint.traces.writer import TraceWriter


def test_a_row_whose_trace_cannot_be_written_is_answered(
    tmp_path: Path,
) -> None:
    """A full disk, or a folder that is none, is no fault of the row's; once stopped none begins."""
    (tmp_path / "f").mkdir()
    (row,) = make_rows([("row 1", {"question": "Which files?", "dir": str(tmp_path / "f")})])
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "t.jsonl"
    with Engine.load("nano", context=1024) as engine:
        stopper = answering.Stopper()
        told = answering.answer(engine, row, Recipe(), nowhere, stopper)
        assert (told.status, told.error, told.traced) == ("answered", "", False)
        assert told.answer
        stopper.stop()
        assert answering.answer(engine, row, Recipe(), None, stopper).status == "cancelled"


def test_a_trace_that_is_cut_off_is_of_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written of it before the disk was full goes away, and the outcome says so."""
    (row,) = make_rows([("row 1", {"question": "Hello"})])
    trace = tmp_path / "t.jsonl"
    written = TraceWriter.write

    def full(self: TraceWriter, event: Any) -> Any:
        if trace.exists() and trace.stat().st_size:
            raise TraceError("cannot write: No space left on device")
        return written(self, event)

    with Engine.load("nano", context=1024) as engine:
        whole = answering.answer(engine, row, Recipe(), trace, answering.Stopper())
        assert whole.traced
        assert trace.exists()
        monkeypatch.setattr(TraceWriter, "write", full)
        told = answering.answer(engine, row, Recipe(), trace, answering.Stopper())
    assert (told.status, told.answer, told.traced) == ("answered", whole.answer, False)
    assert not trace.exists()
