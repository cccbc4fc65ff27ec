"""Spans of requests, as a collector gets them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from helpers.serving import Server

from triplepoint.errors import SettingError
from triplepoint.runtime.serve.models.events import PromptRead
from triplepoint.runtime.serve.requests.metrics import Metrics
from triplepoint.runtime.serve.requests.request_record import RequestRecord
from triplepoint.runtime.serve.requests.telemetry import TelemetryMetrics, parent_of
from triplepoint.runtime.serve.settings import ServerSettings

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Takes what is sent to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[dict[str, Any]] = []
        self.metrics: list[dict[str, Any]] = []
        self.status = 200

    def named(self, name: str, count: int = 1) -> list[dict[str, Any]]:
        """Spans whose names begin so, once there are as many."""
        until = time.monotonic() + 20
        while len(found := [s for s in self.spans if s["name"].startswith(name)]) < count:
            assert time.monotonic() < until, self.spans
            time.sleep(0.01)
        return found


class _Handler(BaseHTTPRequestHandler):
    server: Collector  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 200:
            if "resourceMetrics" in body:
                self.server.metrics.append(body)
            for resource in body.get("resourceSpans", ()):
                self.server.spans += resource["scopeSpans"][0]["spans"]
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    """One that runs."""
    made = Collector()
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def about(span: dict[str, Any]) -> dict[str, Any]:
    """Its attributes by name."""
    return {one["key"]: next(iter(one["value"].values())) for one in span["attributes"]}


def test_spans_of_requests(start: Callable[..., Server], collector: Collector) -> None:
    """One a request, in its client's trace, with its phases inside; no text unless it is wanted."""
    url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    server = start(otlp=url, trace="off")
    server.wait()
    body = {"messages": [{"role": "user", "content": "a secret"}], "max_tokens": 4}
    before = time.time()
    answer = server.post("/v1/chat/completions", body, traceparent=f"00-{TRACE}-{SPAN}-01").json()
    (chat,) = collector.named("chat ")
    phases = collector.named("triplepoint.phase", 2)
    told = about(chat)

    assert (chat["traceId"], chat["parentSpanId"], chat["kind"]) == (TRACE, SPAN, 2)
    assert (told["gen_ai.operation.name"], told["gen_ai.request.model"]) == ("chat", "nano")
    assert int(told["gen_ai.usage.input_tokens"]) == answer["usage"]["prompt_tokens"]
    assert int(told["gen_ai.usage.output_tokens"]) == 4
    assert told["gen_ai.response.finish_reasons"]["values"] == [{"stringValue": "length"}]
    assert told["gen_ai.response.time_to_first_chunk"] > 0
    begun, ended = int(chat["startTimeUnixNano"]) / 1e9, int(chat["endTimeUnixNano"]) / 1e9
    assert before - 0.01 <= begun < ended <= time.time()
    assert {one["parentSpanId"] for one in phases} == {chat["spanId"]}
    assert {one["traceId"] for one in phases} == {TRACE}
    assert about(phases[0])["triplepoint.phase.regime"].endswith("prefill")
    assert "secret" not in json.dumps(collector.spans)

    too_long = {"messages": [{"role": "user", "content": "word " * 6000}]}
    assert server.post("/v1/chat/completions", too_long).status_code == 400
    failed = collector.named("chat ", 2)[1]
    assert failed["status"]["code"] == 2
    assert about(failed)["error.type"] == "context_length_exceeded"
    assert failed["traceId"] != TRACE


def test_with_content(start: Callable[..., Server], collector: Collector) -> None:
    """What was asked and answered goes with it where that is wanted."""
    url = f"http://127.0.0.1:{collector.server_port}/v1/traces"
    server = start(otlp=url, otlp_content=True)
    server.wait()
    said = server.chat("a secret").json()["choices"][0]["message"]["content"]
    told = about(collector.named("chat ")[0])

    assert "a secret" in told["gen_ai.input.messages"]
    assert json.loads(told["gen_ai.output.messages"])[0]["parts"][0]["content"] == said


def test_a_collector_that_takes_nothing(start: Callable[..., Server], collector: Collector) -> None:
    """Requests do not wait for it; what is lost is counted, and later spans arrive."""
    collector.status = 503
    server = start(otlp=f"http://127.0.0.1:{collector.server_port}/v1/traces")
    server.wait()
    assert server.chat().status_code == 200
    while not server.service.telemetry.lost:
        time.sleep(0.01)
    collector.status = 200
    assert server.chat().status_code == 200
    assert len(collector.named("chat ")) == 1


def points(body: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The points of each metric by its name."""
    (scope,) = body["resourceMetrics"][0]["scopeMetrics"]
    return {
        one["name"]: one.get("histogram", one.get("gauge"))["dataPoints"]
        for one in scope["metrics"]
    }


def test_metrics(start: Callable[..., Server], collector: Collector) -> None:
    """Histograms of the conventions: of all requests so far, by model and operation."""
    url = f"http://127.0.0.1:{collector.server_port}/v1/metrics"
    server = start(otlp_metrics=url, otlp_period_s=0.05)
    server.wait()
    before = time.time_ns()
    used = server.chat().json()["usage"]
    server.post("/v1/completions", {"prompt": "One", "max_tokens": 1})
    server.chat("word " * 6000)
    until = time.monotonic() + 20
    while not collector.metrics or len(
        points(collector.metrics[-1]).get("gen_ai.server.request.duration", ())
    ) < 3:  # fmt: skip
        assert time.monotonic() < until
        time.sleep(0.01)
    found = points(collector.metrics[-1])
    by_operation = {
        (about(one)["gen_ai.operation.name"], about(one).get("error.type")): one
        for one in found["gen_ai.server.request.duration"]
    }
    tokens = {
        (about(one)["gen_ai.operation.name"], about(one)["gen_ai.token.type"]): one["sum"]
        for one in found["gen_ai.client.token.usage"]
    }
    (each,) = found["gen_ai.server.time_per_output_token"]

    assert set(by_operation) == {
        ("chat", None), ("text_completion", None), ("chat", "context_length_exceeded"),
    }  # fmt: skip
    assert tokens["chat", "input"] == used["prompt_tokens"]
    assert tokens["chat", "output"] == 8
    assert tokens["text_completion", "output"] == 1
    assert about(each)["gen_ai.request.model"] == "nano"
    assert len(found["gen_ai.server.time_to_first_token"]) == 2
    assert found["triplepoint.requests.waiting"][0]["asInt"] == "0"
    for one in [one for name in found if "requests" not in name for one in found[name]]:
        assert sum(map(int, one["bucketCounts"])) == int(one["count"])
        assert len(one["bucketCounts"]) == len(one["explicitBounds"]) + 1
        assert int(one["startTimeUnixNano"]) < before < int(one["timeUnixNano"])


def test_what_protobuf_says_of_metrics() -> None:
    """The document is one of OTLP's, by the library that has its definition."""
    json_format = pytest.importorskip("google.protobuf.json_format", reason="pip install protobuf")
    service = pytest.importorskip(
        "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2",
        reason="pip install opentelemetry-proto",
    )
    metrics = Metrics()
    made = TelemetryMetrics("http://127.0.0.1:9/", 1000.0, metrics.registry, lambda: (1, 2))
    record = RequestRecord("nano")
    record.read = PromptRead(10, 4, 0.1)
    metrics.arrived(record)
    metrics.ended(record)
    document = made.document()
    made.close()
    read = json_format.ParseDict(document, service.ExportMetricsServiceRequest())
    names = [one.name for one in read.resource_metrics[0].scope_metrics[0].metrics]

    assert made.lost == 1  # nobody listens there
    assert "gen_ai.server.request.duration" in names
    assert read.resource_metrics[0].scope_metrics[0].metrics[0].histogram.data_points[0].count == 1


@pytest.mark.parametrize(
    "header", [None, "", "00", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", "x" * 9999]
)
def test_no_parent(header: str | None) -> None:
    """What is no traceparent is none."""
    assert parent_of(header) is None


def test_an_address_that_is_none() -> None:
    """It is refused at the start."""
    with pytest.raises(SettingError, match="not a URL"):
        ServerSettings({"nano": "nano"}, otlp="localhost:4318")
    with pytest.raises(SettingError, match="v1/metrics"):
        ServerSettings({"nano": "nano"}, otlp_metrics="localhost:4318")


def test_an_address_that_cannot_be(start: Any) -> None:
    """What is sent is lost and counted, as with a collector that is down."""
    url = "http://127.0.0.1:port/v1"
    server = start(otlp=url, otlp_metrics=url, otlp_period_s=0.05)
    spans, numbers = server.service.telemetry, server.service.telemetry_metrics
    server.chat()
    until = time.monotonic() + 20
    while not (spans.lost and numbers.lost):
        assert time.monotonic() < until
        time.sleep(0.01)
