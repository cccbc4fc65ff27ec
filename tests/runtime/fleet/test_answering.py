"""One row asked of one agent."""

from __future__ import annotations

from pathlib import Path

from triplepoint import Engine
from triplepoint.runtime.fleet import answering
from triplepoint.runtime.fleet.answering import Recipe
from triplepoint.runtime.fleet.rows import make_rows


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
        assert (told.status, told.error) == ("answered", "")
        assert told.answer
        stopper.stop()
        assert answering.answer(engine, row, Recipe(), None, stopper).status == "cancelled"
