"""A small run with one tool call, as its events."""

from __future__ import annotations

import pytest

from triplepoint.traces.events import (
    AnyEvent,
    MachineRecord,
    MessageEvent,
    ModelRecord,
    PhaseEvent,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
)


def phase(
    phase: str, purpose: str, ids: list[int], kv: tuple[int, int], **more: object
) -> AnyEvent:
    """A phase with plausible figures."""
    bound = "compute" if phase == "prefill" else "memory"
    fields = {"predicted": bound, "observed": bound, "wall_s": 0.01, "limit_share": 0.5, "turn": 1}
    fields |= {"kv_before": kv[0], "kv_after": kv[1], "token_ids": ids, "tokens": len(ids), **more}
    return PhaseEvent.model_validate({"phase": phase, "purpose": purpose, **fields})


@pytest.fixture
def run_events() -> list[AnyEvent]:
    """The events of one answered run, not yet written."""
    return [
        RunStart(
            task="What's the error in app.log?",
            workspace="examples/incident",
            model=ModelRecord(name="nano", sha256="ab" * 32, architecture="qwen3", quant="Q8_0"),
            target="avx512-bf16",
            threads=2,
            kv="bf16",
            machine=MachineRecord(cpu="A CPU", cores=2, profile={"dram_gbs": 30.5}),
            tools=[{"type": "function", "function": {"name": "read_file", "parameters": {}}}],
            versions={"triplepoint": "0.1.0"},
        ),
        MessageEvent(role="user", content="What's the error in app.log?", turn=1),
        phase("prefill", "prompt", list(range(60)), (0, 60), observed="dispatch"),
        phase("decode", "tool_call", [5, 6, 7, 2], (60, 63), ttft_s=0.012, memory_level="L2"),
        ToolEvent(
            name="read_file",
            arguments={"path": "app.log"},
            result="1\tERROR disk full",
            duration_s=0.0004,
            turn=1,
        ),
        phase("prefill", "tool_result", list(range(300)), (63, 364), cached_tokens=63),
        phase("decode", "answer", [9, 9, 2], (364, 366), memory_level="L2"),
        TurnEnd(turn=1, answer="disk full", output_tokens=7, ttft_s=0.012),
        RunEnd(status="answered", answer="disk full", wall_s=0.05),
    ]
