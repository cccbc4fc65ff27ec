"""A redacted trace has sizes, hashes and counts, and not a word."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from triplepoint.traces import Trace
from triplepoint.traces.events import (
    EVENT_TYPES,
    AnyEvent,
    ContentEvent,
    MessageEvent,
    ModelRecord,
    PhaseEvent,
    RunEnd,
    RunStart,
    ToolEvent,
    TurnEnd,
    UnknownEvent,
)
from triplepoint.traces.records import content_digest
from triplepoint.traces.redact import safe_fields

SECRET = "SECRETWORD"
HEAD = {"v", "seq", "ts", "run", "event"}
SCHEMA = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": f"{SECRET} reads",
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": SECRET, "enum": [SECRET]},
                "default": {"type": "integer", "default": SECRET},
                "enum": {"type": "object", "default": {"name": SECRET, SECRET: 987654321}},
            },
            "required": ["path"],
        },
    },
}


def secret_events() -> list[AnyEvent]:
    """A run with a secret in every place that may hold text."""
    events: list[AnyEvent] = [
        RunStart(
            task=f"{SECRET}?",
            workspace=f"/home/{SECRET}",
            model=ModelRecord(name="nano", sha256="ab", path=f"/home/{SECRET}/nano.gguf"),
            config={
                "system": SECRET,
                "options": {"a": [SECRET], "format": SECRET, "b": {SECRET: 1, "order": [SECRET]}},
                "max_steps": 8,
                "kv": "bf16",
                "sampling": {"seed": 5, "logit_bias": {"987654321": 1.5}, "stop": [SECRET]},
                "output": {"type": "object", "properties": {"a": {"enum": [SECRET, 987654321]}}},
            },
            tools=[SCHEMA],
        ),
        MessageEvent(role="user", content=f"{SECRET}?", ids=[987654321]),
        MessageEvent(role="user", content=""),
        PhaseEvent(
            phase="prefill",
            predicted="compute",
            observed="compute",
            tokens=2,
            kv_before=0,
            kv_after=2,
            wall_s=0.1,
            token_ids=[987654321, 987654322],
            server_timings={"prompt_ms": 5.0, "note": SECRET},
            sampling={"seed": 5, "order": ["xtc"], "dry_sequence_breakers": [SECRET]},
        ),
        ContentEvent(digest=content_digest([SCHEMA]), value=[SCHEMA]),
        PhaseEvent(
            phase="decode",
            predicted="memory",
            observed="memory",
            tokens=1,
            kv_before=2,
            kv_after=2,
            wall_s=0.1,
            recipe={
                "format": "hermes",
                "calls": "required",
                "tools": content_digest([SCHEMA]),
                "thinking": {"opening": SECRET},
                "min_tokens": 3,
            },
        ),
        ToolEvent(
            name="read_file",
            arguments={"path": SECRET, SECRET: {SECRET: [987654321, True, None]}},
            result=f"{SECRET}!",
            error=f"{SECRET}!",
        ),
        MessageEvent(role="tool", content=f"{SECRET}!"),
        ToolEvent(name=f"read the {SECRET}", call_id=f"the {SECRET}", arguments={}, result=""),
        TurnEnd(answer=f"{SECRET}."),
        RunEnd(
            status="error",
            message=SECRET,
            answer=f"{SECRET}.",
            totals={"steps": 2, "refused_calls": {f"read the {SECRET}": 1, "read_file": 2}},
        ),
        UnknownEvent("later"),
    ]
    later = {"text": SECRET, "ids": [987654321], SECRET: {SECRET: 1}}  # fields that no one knows
    return [type(event).model_validate({**event.model_dump(), **later}) for event in events]


def is_redacted(text: str) -> bool:
    return text.startswith("[redacted") and text.endswith("]")


@pytest.fixture
def redacted(tmp_path: Path) -> Path:
    """The file of the redacted run."""
    with Trace.to_file(tmp_path / "t.jsonl", redact=True) as trace:
        for event in secret_events():
            trace.write(event)
        assert trace.answer == f"{SECRET}.", "what is in memory stays whole"
    return tmp_path / "t.jsonl"


OWN_WORDS = {
    "run_start": {"parent", "parent_step", "target", "kv", "semconv"},
    "message": {"role", "by"},
    "phase": {
        *("purpose", "plan", "memory_level", "constraint", "finish_reason", "source"),
        *("predicted_by", "regime", "predicted_regime"),
    },
    "pass": {"plan"},
    "tool": {"effect", "decision", "decided_by", "by"},
    "turn_end": {"by"},
}
OWN_CONTAINERS = {
    "run_start": {"machine", "versions", "tuning", "regime_map"},
    "phase": {
        *("experts_by_layer", "stop", "drafts", "shared", "predicted_s", "tuning"),
        *("bound_shares", "layers"),
    },
    "pass": {"sequences", "rows", "kv"},
}


def test_what_may_hold_text_is_kept_by_name_alone() -> None:
    """Numbers and fixed words stay by their types; all else that stays is listed here, too."""
    for name, model in EVENT_TYPES.items():
        hints = {field.name: str(field.type) for field in dataclasses.fields(model)}
        free = (
            "int",
            "float",
            "bool",
            "int | None",
            "float | None",
            "Bound",
            "PhaseName",
            "PassEnd",
        )
        plain = {field for field, hint in hints.items() if hint in free or "Literal" in hint}
        listed = OWN_WORDS.get(name, set()) | OWN_CONTAINERS.get(name, set())

        assert safe_fields(name) - HEAD == (plain | listed | {*model.COMPUTED}) - HEAD, name


def test_no_word_and_no_token_is_left(redacted: Path) -> None:
    """Neither the secret nor a token id is anywhere in the file."""
    text = redacted.read_text()

    assert SECRET not in text
    assert "98765432" not in text


def test_shapes_and_names_stay(redacted: Path) -> None:
    """Counts, names of tools and parameters, settings and the lengths of texts are there."""
    header, user, _, phase, *_, call, message, odd, turn, end, unknown = Trace.load(redacted).events

    assert isinstance(header, RunStart)
    assert header.redacted
    assert (header.model.name, header.model.sha256) == ("nano", "ab")
    assert (header.config["max_steps"], header.config["kv"]) == (8, "bf16")
    function: Any = header.tools[0]["function"]
    assert function["name"] == "read_file"
    assert list(function["parameters"]["properties"]) == ["path", "default", "enum"]
    assert function["parameters"]["required"] == ["path"]
    assert isinstance(user, MessageEvent)
    assert user.content == "[redacted: 11 characters]"
    assert isinstance(phase, PhaseEvent)
    assert (phase.tokens, phase.kv_after, phase.token_ids) == (2, 2, [])
    assert phase.sampling is not None
    assert (phase.sampling["seed"], phase.sampling["order"]) == (5, ["xtc"])
    assert isinstance(call, ToolEvent)
    assert list(call.arguments) == ["path", "[redacted key 2]"]
    assert (call.name, phase.server_timings["prompt_ms"]) == ("read_file", 5.0)
    assert isinstance(odd, ToolEvent)
    assert is_redacted(odd.name)
    assert call.error is not None
    assert is_redacted(call.error)
    assert isinstance(turn, TurnEnd)
    assert isinstance(end, RunEnd)
    assert end.status == "error"
    refused = {"[redacted key 1]": 1, "read_file": 2}
    assert end.totals == {"steps": 2, "refused_calls": refused}
    assert isinstance(unknown, UnknownEvent)
    assert (unknown.event, unknown.model_extra) == ("later", {})
    assert isinstance(message, MessageEvent)
    assert message.content_sha256 == call.result_sha256, "the same text, the same hash"
    assert message.content_sha256 != user.content_sha256


def test_a_hash_cannot_be_tried(redacted: Path) -> None:
    """Someone with a candidate text cannot check it: no run gives the hash again."""
    (user,) = [e for e in secret_events() if isinstance(e, MessageEvent)][:1]
    first = Trace.load(redacted).events[1]
    with Trace.to_file(redacted.with_name("again.jsonl"), redact=True) as trace:
        trace.write(user)
    second = Trace.load(redacted.with_name("again.jsonl")).events[0]

    assert isinstance(first, MessageEvent)
    assert isinstance(second, MessageEvent)
    assert len({user.content_sha256, first.content_sha256, second.content_sha256}) == 3


def test_a_recipe_keeps_what_it_is_made_of(redacted: Path) -> None:
    """Its kinds and numbers; contents are named by digests that match none."""
    trace = Trace.load(redacted)
    (content,) = [event for event in trace.events if isinstance(event, ContentEvent)]
    (recipe,) = [phase.recipe for phase in trace.phases if phase.recipe]

    assert content.value is None
    assert recipe["tools"] == content.digest != content_digest([SCHEMA])
    assert (recipe["format"], recipe["calls"], recipe["min_tokens"]) == ("hermes", "required", 3)


def test_a_redacted_trace_says_so(redacted: Path) -> None:
    """Wherever a text is asked for, there is a word on its absence; an empty text stays empty."""
    trace = Trace.load(redacted)

    assert trace.redacted
    assert trace.answer is not None
    assert is_redacted(trace.answer)
    assert is_redacted(trace.turns[0].question)
    texts = [e.content for e in trace.events if isinstance(e, MessageEvent)]
    assert texts[1] == ""
    assert json.loads(redacted.read_text().splitlines()[0])["redacted"] is True
