"""The JSON Schema of a line: current, and fit for what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from triplepoint.traces import Trace, schema
from triplepoint.traces.events import EVENT_TYPES, AnyEvent, SealedEvent, UnknownEvent

FILE = Path(__file__).parents[2] / "docs" / "trace.schema.json"


def problems(line: Any) -> list[str]:
    """What an independent validator finds wrong with a line under the published file."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    validator = jsonschema.Draft202012Validator(json.loads(FILE.read_text()))
    return [error.message for error in validator.iter_errors(line)]


def test_the_published_schema_is_that_of_the_models() -> None:
    """docs/trace.schema.json is what the module prints now."""
    assert FILE.read_text(encoding="ascii") == schema.text()


def test_the_schema_is_one() -> None:
    """It is valid under its own dialect, and describes every kind of event."""
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    published = json.loads(FILE.read_text())

    jsonschema.Draft202012Validator.check_schema(published)

    consts = {d["properties"].get("event", {}).get("const") for d in published["$defs"].values()}
    assert set(EVENT_TYPES) <= consts


def test_written_lines_are_valid(tmp_path: Path, run_events: list[AnyEvent]) -> None:
    """Every line of a written trace is, redacted or not; so are seals and unknown events."""
    more = [SealedEvent(torn_bytes=3), UnknownEvent("approval", who="me")]  # pyright: ignore
    for redact in (False, True):
        path = tmp_path / f"{redact}.jsonl"
        with Trace.to_file(path, redact=redact) as trace:
            for event in [*run_events, *more]:
                trace.write(event.model_copy(deep=True))

        for line in path.read_text().splitlines():
            assert problems(json.loads(line)) == [], line


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"tokens": "many"}, "a text for a number"),
        ({"observed": "luck"}, "a bound that is none"),
        ({"phase": None}, "no phase"),
    ],
)
def test_a_faulty_line_is_not_valid(
    run_events: list[AnyEvent], change: dict[str, Any], fault: str
) -> None:
    """A known event with a wrong field is refused: it is not taken for an unknown one."""
    phase = next(event for event in run_events if event.event == "phase")
    line = phase.model_dump()
    assert problems(line) == []

    assert problems(line | change), fault


def test_later_fields_are_allowed(run_events: list[AnyEvent]) -> None:
    """A line of a later version of the format is valid: more fields, and events of other names."""
    assert problems(run_events[0].model_dump() | {"later": {"a": [1]}}) == []
    assert problems({"v": 2, "seq": 0, "ts": 1.5, "run": "r", "event": "later"}) == []
    assert problems({"v": 2, "seq": 0}), "without a name it is no event"
