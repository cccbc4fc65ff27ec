"""What an agent leaves in its trace file: it grows by what is new, and keeps secrets if asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers.agents import END, MakeEngine

from triplepoint.errors import ReplayError
from triplepoint.runtime.agent.agent import Agent
from triplepoint.runtime.replay.replay import verify
from triplepoint.traces import Trace

CALL = '<tool_call>\n{"name": "read_file", "arguments": {"path": "app.log"}}\n</tool_call>' + END
LOG = "".join(f"10:{n:02} ERROR disk full on /dev/sda{n}\n" for n in range(12))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A workspace with a log of some length."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "app.log").write_text(LOG)
    return tmp_path / "work"


@pytest.mark.slow
@pytest.mark.parametrize("turns", [30, 200])
def test_a_turn_costs_as_much_late_as_early(
    scripted: MakeEngine, folder: Path, tmp_path: Path, turns: int
) -> None:
    """Over many turns that read a file, turn n's lines are as long as turn 2's but for digits."""
    engine = scripted(*[CALL, f"It is full.{END}"] * turns, context=1 << 20)
    path = tmp_path / "t.jsonl"
    sizes = []
    with Agent(engine, workspace=folder, harness=False, trace=path) as agent:
        for _ in range(turns):
            before = path.stat().st_size if path.exists() else 0
            agent.run("What's the error?")
            sizes.append(path.stat().st_size - before)

    assert max(sizes[1:]) - min(sizes[1:]) < 300, sizes
    tool_lines = [line for line in path.read_text().splitlines() if '"event":"tool"' in line]
    assert sum(len(json.loads(line)["result"]) > 0 for line in tool_lines) == 1
    trace = Trace.load(path)
    assert len(trace.turns) == turns
    assert {tool.result for tool in trace.tools} == {trace.tools[0].result}
    assert trace.tools[0].result.endswith("10:11 ERROR disk full on /dev/sda11")


def test_a_redacted_run_has_no_text_and_cannot_be_verified(
    scripted: MakeEngine, folder: Path, tmp_path: Path
) -> None:
    """The agent answers as ever; its file has counts and times, no words and no token ids."""
    engine = scripted(CALL, f"It is full.{END}")
    path = tmp_path / "t.jsonl"
    with Agent(engine, workspace=folder, harness=False, trace=path, redact=True) as agent:
        assert agent.run("What's the error?").answer == "It is full."

    text = path.read_text()
    for word in ("disk", "full", "app.log", "error?", str(folder), "You answer"):
        assert word not in text, word
    trace = Trace.load(path)
    assert trace.redacted
    assert [p.token_ids for p in trace.phases] == [[]] * 4
    assert [p.tokens for p in trace.phases] == [p.tokens for p in agent.trace.phases]
    assert [t.name for t in trace.tools] == ["read_file"]
    with pytest.raises(ReplayError, match=r"redacted.*no token ids"):
        verify(trace, engine)
