"""The table of what drafts give on real runs."""

from __future__ import annotations

from labs.bench.draft_gain import row, table
from triplepoint.traces.events import PhaseEvent
from triplepoint.traces.records import DraftRecord


def _decode(ids: list[int], wall_s: float, *drafts: DraftRecord) -> PhaseEvent:
    return PhaseEvent(
        phase="decode", predicted="memory", observed="memory", tokens=len(ids), kv_before=9,
        kv_after=9 + len(ids), wall_s=wall_s, token_ids=ids, passes=2, drafts=[*drafts],
    )  # fmt: skip


def test_counts_and_ratios_are_of_sums() -> None:
    """Two texts in three ways: drafts by source, and times over times of the same texts."""
    found = DraftRecord(source="lookup", passes=1, drafted=4, accepted=3)
    rows = []
    for name, slow in (("a", 3.0), ("b", 1.0)):
        for way, wall_s, drafts in (("off", slow, ()), ("forced", 1.0, ()), ("all", 0.5, (found,))):
            rows.append(row("edits", name, way, [_decode([1, 2, 3], wall_s, *drafts)]))
    line = table(rows)[2]
    assert line == (
        "| edits | 2 | 6 | 4 | 0 | 2.00 (1.00 … 2.00 … 3.00) | lookup 6 of 8 | "
        "2.00 (2.00 … 2.00 … 2.00) |"
    )


def test_a_text_that_differs_is_named() -> None:
    """Greedy decodes of a text are equal, or the times say nothing."""
    rows = [row("edits", "a", way, [_decode(ids, 1.0)])
            for way, ids in (("off", [1]), ("forced", [1]), ("all", [2]))]  # fmt: skip
    assert "the text differs: a" in table(rows)
