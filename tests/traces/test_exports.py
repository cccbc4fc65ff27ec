"""Exports obey the rules of their formats, also for hostile traces."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from triplepoint.errors import TraceError
from triplepoint.traces import (
    Trace,
    export_otlp,
    export_perfetto,
    export_tables,
    tables,
    timeline,
)
from triplepoint.traces.events import AnyEvent, LayerRecord, PhaseEvent

from .conftest import phase
from .test_view import EVIL, hostile_trace, long_trace

FIELDS = {"traceId", "spanId", "parentSpanId", "name", "kind", "startTimeUnixNano"}
FIELDS |= {"endTimeUnixNano", "attributes", "status"}


@pytest.fixture(params=["long", "small", "shared", "hostile"])
def trace(
    request: pytest.FixtureRequest, run_events: list[AnyEvent], shared_events: list[AnyEvent]
) -> Trace:
    """Runs of four kinds, one of them with layers, one with passes that others shared."""
    if request.param == "shared":
        return Trace([*shared_events[:-2], run_events[4], *shared_events[-2:]])
    if request.param == "long":
        made = long_trace(20)
        made.phases[0].layers = [
            LayerRecord(layer=n, wall_s=0.01, attention_s=0.01) for n in (None, 0, 1)
        ]
        return made
    if request.param == "small":
        return Trace(run_events)
    return hostile_trace(run_events, EVIL[11])


def strict(document: Any) -> Any:
    """As another program reads it: no NaN, plain JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(json.dumps(document, allow_nan=False), parse_constant=refuse)


# --- Chrome's trace events


def test_chrome_events_have_their_fields(trace: Trace) -> None:
    """Each event has what its kind needs; times are microseconds from 0 on."""
    document = strict(export_perfetto.document([trace]))

    assert {event["ph"] for event in document["traceEvents"]} == {"M", "X", "C"}
    for event in document["traceEvents"]:
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"] in ("run", "turn", "step", "phase", "pass", "layer", "tool")
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    categories = {event.get("cat") for event in document["traceEvents"]}
    assert {"run", "turn", "step", "phase", "tool"} <= categories
    counters = {event["name"] for event in document["traceEvents"] if event["ph"] == "C"}
    assert counters == {"tokens per second", "GB per second", "KV length"}


def test_chrome_slices_nest(trace: Trace) -> None:
    """On each track a slice that begins inside another ends inside it, to the nanosecond."""
    events = export_perfetto.document([trace])["traceEvents"]
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            start, length = round(event["ts"] * 1000), round(event["dur"] * 1000)
            tracks.setdefault((event["pid"], event["tid"]), []).append((start, start + length))
    assert tracks
    for slices in tracks.values():
        open_until: list[int] = []
        for start, end in slices:  # written parents first, in order of time
            while open_until and open_until[-1] <= start < end:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_layers_are_slices_in_their_phase() -> None:
    """A profiled phase has one for each layer, and no other phase has any."""
    trace = long_trace(1)
    trace.phases[0].layers = [LayerRecord(layer=n, wall_s=0.01) for n in (None, 0, 1)]

    events = export_perfetto.document([trace])["traceEvents"]

    names = [event["name"] for event in events if event.get("cat") == "layer"]
    assert names == ["outside the layers", "layer 0", "layer 1"]


# --- OTLP


def values_of(span: dict[str, Any]) -> dict[str, Any]:
    """Attributes by name; each value is of exactly one kind."""
    found = {}
    for attribute in span["attributes"]:
        assert set(attribute) == {"key", "value"}
        ((kind, value),) = attribute["value"].items()
        if kind == "intValue":
            assert isinstance(value, str)
            assert re.fullmatch(r"-?[0-9]+", value)
        assert kind in ("stringValue", "intValue", "doubleValue", "boolValue", "arrayValue")
        found[attribute["key"]] = value
    assert len(found) == len(span["attributes"]), "a name comes once"
    return found


@pytest.mark.parametrize("content", [False, True])
def test_otlp_spans_follow_the_json_mapping(trace: Trace, content: bool) -> None:
    """Hex ids, 64-bit integers as text, parents that are there and around their children."""
    document = strict(export_otlp.document([trace], content=content))
    for resource in document["resourceSpans"]:
        (scope,) = resource["scopeSpans"]
        spans = {span["spanId"]: span for span in scope["spans"]}
        assert len(spans) == len(scope["spans"])
        for span in spans.values():
            assert set(span) <= FIELDS
            assert re.fullmatch("[0-9a-f]{32}", span["traceId"])
            assert re.fullmatch("[0-9a-f]{16}", span["spanId"])
            assert span["kind"] == 1
            start, end = int(span["startTimeUnixNano"]), int(span["endTimeUnixNano"])
            assert 0 <= start <= end < 1 << 63
            parent = spans.get(span.get("parentSpanId", ""))
            assert (parent is None) == ("parentSpanId" not in span)
            if parent is not None:
                assert int(parent["startTimeUnixNano"]) <= start
                assert end <= int(parent["endTimeUnixNano"])
            names = set(values_of(span))
            assert all(name.startswith(("gen_ai.", "triplepoint.", "error.")) for name in names)


def test_otlp_is_what_the_protocol_reads(trace: Trace) -> None:
    """The protocol's own classes parse it, and know every field."""
    service = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="opentelemetry-proto is not installed",
    )
    from google.protobuf import json_format  # pyright: ignore[reportMissingImports]

    document = export_otlp.document([trace], content=True)
    for resource in document["resourceSpans"]:  # protobuf's own mapping has bytes as base64
        for span in resource["scopeSpans"][0]["spans"]:
            for name in ("traceId", "spanId", "parentSpanId"):
                span.pop(name, None)

    json_format.ParseDict(document, service.ExportTraceServiceRequest())


def test_otlp_names_the_conventions(run_events: list[AnyEvent]) -> None:
    """Agent, model and tool spans have the names and attributes of the GenAI conventions."""
    spans = export_otlp.document([Trace(run_events)])["resourceSpans"][0]["scopeSpans"][0]["spans"]

    names = [span["name"] for span in spans]
    assert names[0] == "invoke_agent triplepoint"
    assert "chat nano" in names
    assert "execute_tool read_file" in names
    for span in spans:
        about = values_of(span)
        if span["name"].startswith("triplepoint."):
            assert not [name for name in about if name.startswith("gen_ai.")]
            continue
        assert about["gen_ai.operation.name"] == span["name"].split()[0]
        assert "gen_ai.tool.call.result" not in about
    text = json.dumps(spans)
    assert "disk full" not in text, "the conversation stays out unless it is asked for"
    assert "disk full" in json.dumps(export_otlp.document([Trace(run_events)], content=True))


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"stop": [2], "max_tokens": 3}, "stop"),
        ({"max_tokens": 3}, "length"),
        ({"max_tokens": 100}, "stop"),  # a stop text
        ({}, "stop"),
        ({"stop": [2], "purpose": "tool_call"}, "tool_calls"),
    ],
)
def test_why_a_reply_ended(run_events: list[AnyEvent], more: dict[str, Any], reason: str) -> None:
    """The limit is one reason, the model's stop tokens and the request's texts are another."""
    run_events[6] = run_events[6].model_copy(update=more)

    spans = export_otlp.document([Trace(run_events)])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    replies = [values_of(span) for span in spans if span["name"] == "chat nano"]

    assert replies[-1]["gen_ai.response.finish_reasons"]["values"] == [{"stringValue": reason}]


@pytest.fixture
def continued(run_events: list[AnyEvent]) -> Trace:
    """A run that took a conversation of 5,000 tokens over, and whose prompt others had read."""
    first = phase("prefill", "session", [], (5000, 5000), cached_tokens=5000, step=0)
    events: list[Any] = list(run_events)
    for event in events[1:]:
        if hasattr(event, "turn"):
            event.turn = 2
        if hasattr(event, "step"):
            event.step = 2 if event in events[5:] else 1
    prompt = events[2].model_copy(
        update={"kv_before": 5000, "kv_after": 5060, "cached_tokens": 5059, "shared_tokens": 59}
    )
    result = events[5].model_copy(
        update={"kv_before": 5063, "kv_after": 5363, "cached_tokens": 5063}
    )
    return Trace([events[0], first, *events[1:2], prompt, *events[3:5], result,
                  *events[6:]])  # fmt: skip


def test_what_is_taken_over_is_no_question(continued: Trace) -> None:
    """It is no turn of its own, and no input; tokens that others computed are counted once."""
    spans = export_otlp.document([continued])["resourceSpans"][0]["scopeSpans"][0]["spans"]
    replies = [values_of(span) for span in spans if span["name"] == "chat nano"]

    assert [span["name"] for span in spans].count("invoke_agent triplepoint") == 1
    assert [int(one["gen_ai.usage.input_tokens"]) for one in replies] == [5060, 5363]
    assert int(replies[0]["gen_ai.usage.cache_read.input_tokens"]) == 5059
    assert [row["turn"] for row in tables.rows(continued, "turns")] == [2]
    assert [row["turns"] for row in tables.rows(continued, "runs")] == [1]
    sums = timeline.totals(continued)
    assert (sums.input_tokens, sums.cached_tokens) == (5060 + 5363, 5059 + 5063)


# --- tables


@pytest.mark.parametrize("table", tables.COLUMNS)
def test_csv_reads_back(trace: Trace, table: str) -> None:
    """As many rows as the table has, nothing that a terminal or a spreadsheet would obey."""
    file = io.StringIO()
    count = export_tables.write_csv([trace], table, file)

    heading, *rows = csv.reader(io.StringIO(file.getvalue()))

    assert heading == list(tables.COLUMNS[table])
    assert len(rows) == count == len(list(tables.rows(trace, table)))
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", file.getvalue())
    kinds = list(tables.COLUMNS[table].values())
    for row in rows:
        for cell, kind in zip(row, kinds, strict=True):
            assert kind != tables.TEXT or not cell.startswith(("=", "+", "-", "@"))


def test_a_formula_is_text(run_events: list[AnyEvent]) -> None:
    """What begins like a formula gets an apostrophe."""
    file = io.StringIO()
    export_tables.write_csv([hostile_trace(run_events, "=1+1")], "messages", file)

    assert ",'=1+1," in file.getvalue()


def test_phases_have_their_figures(run_events: list[AnyEvent]) -> None:
    """A row of the phases has what the event had, and what follows from it."""
    phase = next(e for e in run_events if isinstance(e, PhaseEvent))
    phase.bytes, phase.predicted_s, phase.run_delay_share = 2e9, {"compute": 0.5}, 0.3

    row = next(tables.rows(Trace(run_events), "phases"))

    assert row["regime"] == "dispatch-bound prefill"
    assert row["predicted_regime"] == "streaming prefill"
    assert row["gb_per_s"] == pytest.approx(2 / 0.01)
    assert row["predicted_compute_s"] == 0.5
    assert (row["contended"], row["run_delay_share"]) == (True, 0.3)
    assert "triplepoint.phase.contended" in json.dumps(export_otlp.document([Trace(run_events)]))
    assert (row["model"], row["number"], row["turn"]) == ("nano", 1, 1)


def test_there_is_no_other_table(run_events: list[AnyEvent]) -> None:
    """A wrong name says which there are."""
    with pytest.raises(ValueError, match="choose from runs, turns, phases"):
        list(tables.rows(Trace(run_events), "steps"))


@pytest.mark.parametrize("table", tables.COLUMNS)
def test_parquet_reads_back(trace: Trace, table: str, tmp_path: Path) -> None:
    """duckdb reads the rows that the table has, of the declared types."""
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    path = tmp_path / "it's.parquet"

    count = export_tables.write_parquet([trace], table, path)

    found = duckdb.read_parquet(str(path))
    assert found.columns == list(tables.COLUMNS[table])
    assert [str(kind) for kind in found.types] == list(tables.COLUMNS[table].values())
    rows = found.fetchall()
    expected = [tuple(row.values()) for row in tables.rows(trace, table)]
    assert len(rows) == count == len(expected)
    for got, want in zip(rows, expected, strict=True):
        for a, b in zip(got, want, strict=True):
            assert a == (export_tables.storable(b) if isinstance(b, str) else b)


@pytest.mark.slow
def test_sql_over_traces() -> None:
    """Every table is there; the query reads nothing else."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    trace = long_trace(5)

    names, rows = export_tables.query(
        [trace], "SELECT phase, count(*), sum(tokens) FROM phases GROUP BY phase ORDER BY phase"
    )
    assert names == ["phase", "count_star()", "sum(tokens)"]
    assert [row[:2] for row in rows] == [("decode", 10), ("prefill", 10)]
    for table in tables.COLUMNS:
        assert export_tables.query([trace], f"SELECT count(*) FROM {table}")[1][0][0] >= 0
    for evil in ("SELECT * FROM read_csv('/etc/passwd')", "COPY runs TO '/tmp/x.csv'", "nonsense"):
        with pytest.raises(TraceError, match="the query failed"):
            export_tables.query([trace], evil)


@pytest.mark.parametrize("sql", ["", "SELECT 1; SELECT 2", "COPY runs TO '/tmp/x.csv'"])
def test_a_query_is_one_select(run_events: list[AnyEvent], sql: str) -> None:
    """Nothing, two, or something else is refused by name."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    with pytest.raises(TraceError, match="the query failed: give exactly one SELECT"):
        export_tables.query([Trace(run_events)], sql)


def test_decimals_are_numbers(run_events: list[AnyEvent]) -> None:
    """CSV and JSON have no decimals of SQL: they are the numbers that other columns have."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")

    _, rows = export_tables.query([Trace(run_events)], "SELECT -1.25, round(2.5::DECIMAL(9,3), 1)")

    assert rows == [(-1.25, 2.5)]
    assert [type(value) for value in rows[0]] == [float, float]
    assert export_tables.cell(rows[0][0]) == -1.25


@pytest.mark.slow
def test_little_memory_is_enough(
    run_events: list[AnyEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table takes what its longest line needs; where that is too much it is said."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    monkeypatch.setitem(export_tables.DUCKDB_CONFIG, "memory_limit", "250MB")
    trace = Trace(run_events)
    assert export_tables.query([trace], "SELECT count(*) FROM messages")[1] == [(1,)]
    trace.turns[0].messages[0].content = "x" * (17 << 20)  # duckdb's own limit is 16 MiB
    assert export_tables.query([trace], "SELECT max(characters) FROM messages")[1] == [(17 << 20,)]

    monkeypatch.setitem(export_tables.DUCKDB_CONFIG, "memory_limit", "1MB")
    with pytest.raises(TraceError, match="cannot make the tables: Out of Memory"):
        export_tables.query([trace], "SELECT 1")


# --- data frames


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library: str) -> None:
    """A column for each of the table's, a row for each phase."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    trace = long_trace(3)

    frame = trace.to_dataframe(library=library)

    assert list(frame.columns) == list(tables.COLUMNS["phases"])
    assert len(frame) == 12
    assert frame["tokens"].sum() == sum(phase.tokens for phase in trace.phases)
    assert len(trace.to_dataframe("tools", library=library)) == 3


def test_shared_passes_are_exported(shared_events: list[AnyEvent]) -> None:
    """Every export has each pass that others shared, with this run's part of it."""
    trace = Trace(shared_events)

    slices = export_perfetto.document([trace])["traceEvents"]
    named = [event for event in slices if event.get("cat") == "pass"]
    assert [event["name"] for event in named] == [
        *("3 sequences, 5 rows", "2 sequences, 2 rows", "3 sequences, 10 rows")
    ]
    assert named[2]["args"]["why"] == "deadline"

    (resource,) = export_otlp.document([trace])["resourceSpans"]
    spans = resource["scopeSpans"][0]["spans"]
    phases = {s["spanId"]: values_of(s) for s in spans if s["name"] == "triplepoint.phase decode"}
    ((decode, about),) = phases.items()
    assert about["triplepoint.phase.shared.passes"] == "3"
    passes = [values_of(s) for s in spans if s.get("parentSpanId") == decode]
    assert [one["triplepoint.pass.number"] for one in passes] == ["7", "8", "9"]

    rows = list(tables.rows(trace, "passes"))
    assert [row["own_rows"] for row in rows] == [1, 1, 7]
    assert [row["rows"] for row in rows] == [5, 2, 10]
    assert {row["phase"] for row in rows} == {2}
    (phase,) = [row for row in tables.rows(trace, "phases") if row["phase"] == "decode"]
    assert phase["shared_passes"] == 3
    assert phase["shared_s"] == pytest.approx(0.014)
