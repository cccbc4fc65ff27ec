"""The example for Inspect: our agent as a solver, our engine as a model with Inspect's tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "eval" / "inspect_triplepoint.py"
# In a process of its own: Inspect patches the event loop, and warns of its own imports.
SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import inspect_triplepoint as ours
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, GenerateConfig
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolFunction

sample = [Sample("What is 12 + 30?", target="42")]
solvers = [use_tools(ours.add(), tool_choice=ToolFunction("add")), generate(tool_calls="single")]
forced = Task(sample, solver=solvers, scorer=includes(), config=GenerateConfig(max_tokens=200))
logs = eval([ours.incident(), ours.arithmetic(), forced], model="triplepoint/nano", display="none")
found = []
for log in logs:
    messages = [message for one in log.samples for message in one.messages]
    found.append({
        "status": log.status,
        "scores": [s.value for one in log.samples for s in one.scores.values()],
        "calls": [c.function for m in messages for c in getattr(m, "tool_calls", None) or ()],
        "results": [m.text for m in messages if isinstance(m, ChatMessageTool)],
        "usage": [u.output_tokens for u in log.stats.model_usage.values()],
        "metadata": [one.metadata.get("status") for one in log.samples],
    })
print(json.dumps(found))
"""


@pytest.mark.slow
def test_inspect_runs_on_us(tmp_path: Path) -> None:
    """The agent's answers are scored; a tool that must be called is called with its arguments."""
    if not EXAMPLE.exists():
        pytest.skip("the examples are not installed")
    if find_spec("inspect_ai") is None:
        pytest.skip("inspect-ai is not installed")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(EXAMPLE.parent)],
        cwd=tmp_path,
        env={**os.environ, "INSPECT_LOG_DIR": str(tmp_path / "logs"), "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    incident, arithmetic, forced = json.loads(done.stdout.splitlines()[-1])

    assert [log["status"] for log in (incident, arithmetic, forced)] == ["success"] * 3
    assert incident["metadata"] == ["answered", "answered"]
    assert incident["scores"] == ["C", "C"]
    assert arithmetic["usage"][0] > 0
    assert forced["calls"] == ["add"]
    assert len(forced["results"]) == 1
    assert forced["results"][0].lstrip("-").isdigit()
