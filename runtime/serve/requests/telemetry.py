"""Sends spans of requests, and metrics, to OpenTelemetry collectors while the server runs.

They go out as JSON over HTTP, which collectors take beside protobuf, so nothing more has to be
installed. A request that comes with a ``traceparent`` is part of its client's trace. Metrics are
cumulative: one that is lost is made good by the next.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx

from ....traces.export_otlp import attributes, served
from ....traces.reader import Trace
from .metrics import OTLP

if TYPE_CHECKING:
    from ....traces.events import AnyEvent
    from .registry import Histogram, Labels, Registry
    from .request_record import RequestRecord

log = logging.getLogger("triplepoint.serve")

WAITING = 512  # requests that are not sent yet; further ones are left out
BATCH = 64
CUMULATIVE = 2  # AggregationTemporality
TIMEOUT_S = 10.0
_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}.*")


def parent_of(header: str | None) -> tuple[str, str] | None:
    """Return the trace and span ID of a ``traceparent`` header; None if it is invalid."""
    found = _PARENT.fullmatch(header or "")
    return (found[1], found[2]) if found else None


class _Sender:
    """A thread that sends documents to one collector, until `close`.

    `what` names the documents in logs.
    """

    def __init__(self, url: str, what: str) -> None:
        self._url, self._what = url, what
        self.lost = 0
        """Number of spans or metric exports that could not be sent."""
        self._thread = threading.Thread(target=self._run, name=what, daemon=True)
        self._thread.start()

    def _send_all(self, client: httpx.Client) -> None:
        """Send queued documents until `close`."""
        raise NotImplementedError

    def _run(self) -> None:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            self._send_all(client)

    def _send(self, client: httpx.Client, document: dict[str, Any], count: int = 1) -> None:
        try:
            client.post(self._url, json=document).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            if not self.lost:
                log.warning("%s cannot be sent to %s: %s; further losses are only counted",
                            self._what, self._url, error)  # fmt: skip
            self.lost += count


class Telemetry(_Sender):
    """A sender of spans, such as to ``http://127.0.0.1:4318/v1/traces``; safe from several threads.

    `content`: whether spans include questions and answers.
    """

    def __init__(self, url: str, *, content: bool = False) -> None:
        self._content = content
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING)
        super().__init__(url, "spans")

    def keep(
        self, record: RequestRecord, events: list[AnyEvent], parent: tuple[str, str] | None
    ) -> None:
        """Queue the spans of a request that has ended, to be sent soon."""
        trace = Trace()
        for event in events:
            event.run = record.id
            trace.write(event)
        about: dict[str, Any] = {
            "gen_ai.request.model": record.model,
            "gen_ai.response.id": record.id,
            "triplepoint.request_id": record.request_id,
            "triplepoint.queue_s": (record.started or record.arrived) - record.arrived,
        }
        if record.error is not None:
            about["error.type"] = record.error.code or str(record.error.status)
            about["http.response.status_code"] = record.error.status
        made = served(trace, parent, about, content=self._content)
        try:
            self._waiting.put_nowait(made)
        except queue.Full:
            self.lost += 1

    def close(self) -> None:
        """Send the queued spans, and stop."""
        self._waiting.put(None)
        self._thread.join(2 * TIMEOUT_S)

    def _send_all(self, client: httpx.Client) -> None:
        ended = False
        while not ended:
            batch = [self._waiting.get()]
            while len(batch) < BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            ended = None in batch
            spans = [one for made in batch if made is not None for one in made["resourceSpans"]]
            if spans:
                self._send(client, {"resourceSpans": spans}, len(spans))


class TelemetryMetrics(_Sender):
    """A periodic sender of metrics, such as to ``http://127.0.0.1:4318/v1/metrics``.

    Args:
        period_s: seconds between two exports.
        load: returns the numbers of running and of waiting requests.
    """

    def __init__(
        self, url: str, period_s: float, registry: Registry, load: Callable[[], tuple[int, int]]
    ) -> None:
        self._period_s, self._registry, self._load = period_s, registry, load
        self._began = time.time_ns()
        self._ended = threading.Event()
        super().__init__(url, "metrics")

    def close(self) -> None:
        """Send the metrics once more, and stop."""
        self._ended.set()
        self._thread.join(2 * TIMEOUT_S)

    def document(self) -> dict[str, Any]:
        """Return the body of an OTLP metrics export."""
        from .... import __version__

        now = str(time.time_ns())
        span = {"startTimeUnixNano": str(self._began), "timeUnixNano": now}
        made: list[dict[str, Any]] = []
        with self._registry.lock:
            for name, (unit, _, text) in OTLP.items():
                found = self._registry.histogram(name).items()
                if points := [{**span, **_point(*one)} for one in found]:
                    histogram = {"aggregationTemporality": CUMULATIVE, "dataPoints": points}
                    made.append(
                        {"name": name, "unit": unit, "description": text, "histogram": histogram}
                    )
        for name, number in zip(("running", "waiting"), self._load(), strict=True):
            point = {"timeUnixNano": now, "asInt": str(number), "attributes": []}
            gauge = {"name": f"triplepoint.requests.{name}", "unit": "{request}"}
            made.append({**gauge, "gauge": {"dataPoints": [point]}})
        about = {"service.name": "triplepoint", "service.version": __version__}
        scope = {"scope": {"name": "triplepoint.serve"}, "metrics": made}
        resource = {"attributes": attributes(about)}
        return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}

    def _send_all(self, client: httpx.Client) -> None:
        while not self._ended.wait(self._period_s):
            self._send(client, self.document())
        self._send(client, self.document())


def _point(labels: Labels, found: Histogram) -> dict[str, Any]:
    return {
        "attributes": attributes(dict(labels)),
        "count": str(sum(found.counts)),
        "sum": found.sum,
        "bucketCounts": [str(count) for count in found.counts],
        "explicitBounds": list(found.bounds),
    }
