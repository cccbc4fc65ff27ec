"""The reference pages have what the code has: parameters, events, fields, options, statuses."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest
from helpers.pages import names, read, section, table_of
from pydantic import TypeAdapter

import triplepoint
from labs.docs.cli_options import generated, options, parsers
from triplepoint import Agent, Engine, RemoteEngine, Sampling, errors
from triplepoint.jit.targets import TARGETS
from triplepoint.runtime.agent import events as agent_events
from triplepoint.runtime.cli.arguments import build_parser
from triplepoint.runtime.cli.exit_codes import Exit
from triplepoint.traces import events
from triplepoint.traces.reader import parse_event
from triplepoint.traces.records import Record
from triplepoint.traces.schema import computed

# --- docs/api.md


PARAMETERS: dict[str, Callable[..., Any]] = {
    "`Engine.load(model, …)`": Engine.load,
    "`Agent(engine, …)`": Agent,
    "`RemoteEngine(base_url, …)`": RemoteEngine,
    "`Sampling(…)`": Sampling,
}


@pytest.mark.parametrize("heading", PARAMETERS)
def test_parameters_are_those_of_the_signature(heading: str) -> None:
    """A table of parameters has all of them, in order."""
    pages = read("docs/api.md") + read("docs/sampling.md")
    expected = [
        name for name in inspect.signature(PARAMETERS[heading]).parameters if name != "engine"
    ]

    assert [names(row[0])[0] for row in table_of(pages, heading)] == expected


def test_events_of_a_stream_are_those_of_the_code() -> None:
    """Every event of a stream is there with its fields."""
    shown = {
        names(event)[0]: names(fields)
        for event, _, fields in table_of(read("docs/api.md"), "event")
    }

    expected = {}
    for cls in get_args(agent_events.AgentEvent):
        own = [f.name for f in dataclasses.fields(cls)]
        own += [n for n, v in vars(cls).items() if isinstance(v, property)]
        expected[cls.__name__] = own
    assert shown == expected


def test_every_error_is_explained() -> None:
    """Every error that can be caught by its own name is in the table."""
    shown = [names(row[0])[0] for row in table_of(read("docs/api.md"), "error")]

    known = {name for name, value in vars(errors).items() if inspect.isclass(value)}
    assert len(shown) == len(set(shown))
    assert {*shown, "TriplepointError"} == known
    assert known <= set(triplepoint.__all__)


# --- docs/trace.md


def kind(schema: dict[str, Any]) -> str:
    """The type of a field in the words of the page."""
    if "anyOf" in schema:
        return " or ".join(kind(part) for part in schema["anyOf"])
    if "$ref" in schema:
        return "object"
    if "type" not in schema:
        return "any"
    if schema["type"] == "array":
        return f"list of {kind(schema['items'])}"
    return schema["type"]


SECTIONS = {
    "Every event": events.Event,
    **events.EVENT_TYPES,
    "run_start: model": events.ModelRecord,
    "run_start: machine": events.MachineRecord,
    "phase: layers": events.LayerRecord,
    "phase: miss": events.MissRecord,
    "phase: shared": events.ShareRecord,
}


def field_names(model: type[Record]) -> list[str]:
    return [field.name for field in dataclasses.fields(model)]


@pytest.mark.parametrize("heading", SECTIONS)
def test_fields_are_those_of_the_model(heading: str) -> None:
    """The table of an event or record has every field that a line has, in order, with its type."""
    model = SECTIONS[heading]
    properties = TypeAdapter(model).json_schema()["properties"] | computed(model)
    common = {"event", *field_names(events.Event)}
    if model is events.Event:
        expected = [(name, kind(schema)) for name, schema in properties.items()]
        expected.append(("event", "string"))
    else:
        expected = [(n, kind(schema)) for n, schema in properties.items() if n not in common]
    rows = table_of(section(read("docs/trace.md"), heading), "field")

    assert [(names(field)[0], kind_) for field, kind_, _ in rows] == expected
    assert all(meaning for *_, meaning in rows)


def test_every_kind_of_event_has_a_section() -> None:
    """No heading that looks like an event's name is missing or one too many."""
    headings = re.findall(r"^## ([a-z_]+)$", read("docs/trace.md"), re.MULTILINE)

    assert headings == list(events.EVENT_TYPES)


def test_regimes_are_those_of_the_code() -> None:
    """The table of regimes is the code's."""
    rows = table_of(section(read("docs/trace.md"), "phase: regimes"), "`phase`")

    assert {(names(p)[0], names(b)[0]): regime for p, b, regime in rows} == events.REGIMES


def test_example_lines_are_events() -> None:
    """The lines that are shown can be read, and every field of them is known."""
    found = re.search(r"```json\n(.*?)```", read("docs/trace.md"), re.DOTALL)
    assert found
    lines = found[1].split("\n\n")
    assert len(lines) == 4
    for line in lines:
        data = json.loads(line)
        event = parse_event(data)
        assert not isinstance(event, events.UnknownEvent)
        assert not event.model_extra
        if isinstance(event, events.PhaseEvent):
            assert data["regime"] == event.regime


def test_mapped_fields_exist() -> None:
    """What is mapped to OpenTelemetry is in the trace."""
    known = {name for model in events.EVENT_TYPES.values() for name in field_names(model)}
    known |= {f"model.{name}" for name in field_names(events.ModelRecord)}
    rows = table_of(section(read("docs/trace.md"), "OpenTelemetry"), "in the trace")
    named = {name for row in rows for name in names(row[0])}

    assert named - {"turn_end"} <= known


# --- docs/cli.md


def verbs(parser: argparse.ArgumentParser | None = None) -> dict[str, argparse.ArgumentParser]:
    """The parser of each verb; or of each command of a verb that has some."""
    for action in (parser or build_parser(whole=True))._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def test_the_command_line_has_verbs() -> None:
    """The tests below have something to look at."""
    assert len(verbs()) > 4
    assert len(verbs(verbs()["trace"])) > 4


def test_the_verbs_have_sections() -> None:
    """Every verb has a section with an example of its own, and a block for its options."""
    page = read("docs/cli.md")

    for verb in verbs():
        assert f"\n    triplepoint {verb}" in section(page, verb)
        assert page.count(f"<!-- options of {verb} -->") == 1
    assert {"verbs", "common"} < set(re.findall("<!-- options of (.*) -->", page))


def test_the_options_are_those_of_the_parsers() -> None:
    """The lists of commands and options are what `python -m labs.docs.cli_options` writes."""
    page = read("docs/cli.md")
    known = parsers()

    assert generated(page) == page
    shown = set(re.findall(r"^- (`.*?`): ", page, re.MULTILINE))
    for words, parser in known.items():
        assert {flags for _, flags, _ in options(parser)} <= shown, words


def test_the_statuses_are_those_of_the_code() -> None:
    """Every exit status is there, and no other."""
    rows = table_of(section(read("docs/cli.md"), "Exit status"), "status")

    assert [int(row[0]) for row in rows] == [status.value for status in Exit]


def test_the_environment_is_what_the_code_reads() -> None:
    """Every variable of ours that the code reads is there, and every target that it may name."""
    package = Path(triplepoint.__file__).parent
    text = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("jit", "runtime", "tools", "traces")
        for path in (package / folder).rglob("*.py")
    )
    page = section(read("docs/cli.md"), "Environment")
    shown = {names(row[0])[0] for row in table_of(page, "variable")}

    assert {name for name in shown if "TRIPLEPOINT" in name} == set(
        re.findall(r"\"(TRIPLEPOINT_[A-Z_]+)\"", text)
    )
    assert {"NO_COLOR", "XDG_CACHE_HOME", "XDG_STATE_HOME"} <= shown
    assert set(TARGETS) <= set(names(page))
