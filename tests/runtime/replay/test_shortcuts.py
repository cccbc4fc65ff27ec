"""A run recorded with forced and drafted tokens verifies without them, and the other way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from triplepoint import Agent, Engine, Trace
from triplepoint.runtime.engine.drafting.config import SpeculativeConfig
from triplepoint.runtime.replay.replay import verify
from triplepoint.traces import timeline

OFF, ON = (
    SpeculativeConfig(jump_forward=False, draft_tokens=0),
    SpeculativeConfig(jump_forward=True, draft_tokens=8),
)


def _record(engine: Engine, speculative: SpeculativeConfig, path: Path) -> Trace:
    engine.core.drafting.settings = speculative
    folder = path.parent / "work"
    folder.mkdir(exist_ok=True)
    (folder / "app.log").write_text("10:01 INFO up\n10:02 ERROR disk full on /data\n")
    with Agent(engine, workspace=folder, trace=path, max_tokens=200) as agent:
        for question in ("What's the error in app.log?", "What is on line 2 of app.log?"):
            for _ in agent.stream(question):
                pass
    return Trace.load(path)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), [(ON, OFF), (OFF, ON)])
def test_either_verifies_the_other(
    engine: Engine, tmp_path: Path, first: SpeculativeConfig, second: SpeculativeConfig
) -> None:
    """The tokens are those of the other setting, and the header says which it was."""
    trace = _record(engine, first, tmp_path / "run.jsonl")
    engine.core.drafting.settings = second
    report = verify(trace, engine)

    assert report.ok, report.first_difference
    assert trace.header is not None
    assert trace.header.config["jump_forward"] == first.jump_forward
    assert trace.header.config["draft_tokens"] == first.draft_tokens


def test_the_summary_says_what_was_spared(engine: Engine, tmp_path: Path) -> None:
    """One line below the table of phases, and none where every token had its pass."""
    lines = timeline.summary(_record(engine, ON, tmp_path / "on.jsonl"))
    (line,) = [line for line in lines if line.startswith("decoded ")]
    assert "tokens forced by the grammar" in line
    assert "drafted tokens accepted" in line
    lines = timeline.summary(_record(engine, OFF, tmp_path / "off.jsonl"))
    assert not any(line.startswith("decoded ") for line in lines)
