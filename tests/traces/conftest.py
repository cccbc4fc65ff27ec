"""A small run with one tool call, as its events."""

from __future__ import annotations

import pytest

from triplepoint.traces.events import (
    AnyEvent,
    MachineRecord,
    MessageEvent,
    ModelRecord,
    PassEvent,
    PhaseEvent,
    RunEnd,
    RunStart,
    ShareRecord,
    ToolEvent,
    TurnEnd,
)


def shared_pass(number: int, rows: list[int], own: int, **more: object) -> PassEvent:
    """A pass that several runs had rows in, of 10 ms."""
    share = rows[own] / sum(rows)
    fields = {
        **{"number": number, "sequences": [f"run {n}" for n in range(len(rows))], "rows": rows},
        **{"kv": [100 * n for n in range(len(rows))], "own": own, "why": "all", "turn": 1},
        **{"predicted": "memory", "observed": "memory", "predicted_wall_s": 0.009},
        **{"wall_s": 0.01, "flops": 1e9, "bytes": 1e8, "share_s": 0.01 * share},
        **{"share_flops": 1e9 * share, "share_bytes": 1e8 * share, **more},
    }
    return PassEvent.model_validate(fields)


def phase(
    phase: str, purpose: str, ids: list[int], kv: tuple[int, int], **more: object
) -> AnyEvent:
    """A phase with plausible figures."""
    bound = "compute" if phase == "prefill" else "memory"
    fields = {"predicted": bound, "observed": bound, "wall_s": 0.01, "limit_share": 0.5, "turn": 1}
    fields |= {"kv_before": kv[0], "kv_after": kv[1], "token_ids": ids, "tokens": len(ids), **more}
    return PhaseEvent.model_validate({"phase": phase, "purpose": purpose, **fields})


@pytest.fixture
def shared_events() -> list[AnyEvent]:
    """The events of a run whose decode had three of its five passes together with others."""
    share = ShareRecord(passes=3, sequences=2.67, seconds=0.014, flops=1.4e9, bytes=1.4e8)
    more = {"passes": 5, "shared": share.model_dump(), "wall_s": 0.05, "ts": 100.06}
    return [
        RunStart(model=ModelRecord(name="nano"), task="Hi", ts=100.0),
        MessageEvent(role="user", content="Hi", turn=1, ts=100.0),
        phase("prefill", "prompt", [1, 2, 3], (0, 3), ts=100.01),
        MessageEvent(role="assistant", content="Hello", turn=1, ts=100.06),
        shared_pass(7, [1, 1, 3], 0, ts=100.03),
        shared_pass(8, [1, 1], 1, ts=100.041),
        shared_pass(9, [1, 2, 7], 2, ts=100.06, why="deadline"),
        phase("decode", "answer", [5, 6, 7, 8, 2], (3, 7), **more),
        TurnEnd(turn=1, answer="Hello", ts=100.06),
        RunEnd(status="answered", answer="Hello", ts=100.06),
    ]


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
