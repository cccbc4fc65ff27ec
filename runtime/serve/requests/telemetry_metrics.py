"""Numbers of requests for OpenTelemetry, sent to a collector every few seconds.

The names, units and bounds are those of the GenAI conventions; what these have no name for is
called ``triplepoint.*``. They go out as JSON over HTTP, as spans do, so nothing more has to be
installed. All are cumulative: one that is lost is made good by the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import httpx

from ....traces.export_otlp import PROVIDER, attributes
from .exposition import Histogram

if TYPE_CHECKING:
    from .request_record import RequestRecord

log = logging.getLogger("triplepoint.serve")

TIMEOUT_S = 10.0
CUMULATIVE = 2  # AggregationTemporality
_DURATION = (
    *(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
_EACH = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(float(4**n) for n in range(14))
HISTOGRAMS = {
    "gen_ai.server.request.duration": ("s", _DURATION, "Time from a request's arrival to its end"),
    "gen_ai.client.operation.duration": (
        "s",
        _DURATION,
        "Time from a request's arrival to its end, under the name for clients",
    ),
    "gen_ai.server.time_to_first_token": (
        "s",
        _FIRST,
        "Time from a request's arrival to its first token",
    ),
    "gen_ai.server.time_per_output_token": ("s", _EACH, "Time per token after the first"),
    "gen_ai.client.token.usage": ("{token}", _TOKENS, "Tokens of a prompt and of its answers"),
    "triplepoint.request.queue_time": (
        "s",
        _DURATION,
        "Time from a request's arrival until work on it starts",
    ),
    "triplepoint.phase.duration": ("s", _DURATION, "Time of prefills and decodes by regime"),
}
"""Unit, bounds and meaning of each."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class TelemetryMetrics:
    """Sends numbers to one collector, in a thread of its own. Safe to use from several threads.

    Args:
        url: where it takes metrics, such as ``http://127.0.0.1:4318/v1/metrics``.
        period_s: between two times.
        load: requests that run, and that wait.

    Attributes:
        lost: how often they could not be sent.
    """

    def __init__(self, url: str, period_s: float, load: Callable[[], tuple[int, int]]) -> None:
        self._url, self._period_s, self._load = url, period_s, load
        self.lost = 0
        self._began = time.time_ns()
        self._found: dict[Key, Histogram] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_all, name="metrics", daemon=True)
        self._thread.start()

    def count(self, record: RequestRecord) -> None:
        """A request has ended."""
        ended, request = record.ended or time.perf_counter(), record.request
        about = {
            "gen_ai.operation.name": "chat" if request is None else request.operation,
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": record.model,
            "gen_ai.response.model": record.model,
        }
        failed: dict[str, str] = {}
        if record.error is not None:
            failed = {"error.type": record.error.code or str(record.error.status)}
        elif record.cancelled:
            failed = {"error.type": "cancelled"}
        took = ended - record.arrived
        with self._lock:
            self._observe("gen_ai.server.request.duration", took, about | failed)
            self._observe("gen_ai.client.operation.duration", took, about | failed)
            if record.started is not None:
                waited = record.started - record.arrived
                self._observe("triplepoint.request.queue_time", waited, about)
            if record.first is not None and not failed:
                first = record.first - record.arrived
                self._observe("gen_ai.server.time_to_first_token", first, about)
                if record.tokens > 1:
                    each = (ended - record.first) / (record.tokens - 1)
                    self._observe("gen_ai.server.time_per_output_token", each, about)
            if record.read is not None:
                for kind, tokens in (("input", record.read.tokens), ("output", record.tokens)):
                    told = {**about, "gen_ai.token.type": kind}
                    self._observe("gen_ai.client.token.usage", tokens, told)
            for phase in record.phases:
                told = {
                    "gen_ai.request.model": record.model,
                    "triplepoint.phase": phase.event.phase,
                }
                told["triplepoint.regime"] = phase.event.regime
                self._observe("triplepoint.phase.duration", phase.event.wall_s, told)

    def close(self) -> None:
        """Send them once more, and end."""
        self._ended.set()
        self._thread.join(2 * TIMEOUT_S)

    def document(self) -> dict[str, Any]:
        """The body of an export request."""
        from .... import __version__

        now = time.time_ns()
        span = {"startTimeUnixNano": str(self._began), "timeUnixNano": str(now)}
        with self._lock:
            made = [self._metric(name, span) for name in HISTOGRAMS]
        for name, number in zip(("running", "waiting"), self._load(), strict=True):
            point = {"timeUnixNano": str(now), "asInt": str(number), "attributes": []}
            gauge = {"name": f"triplepoint.requests.{name}", "unit": "{request}"}
            made.append({**gauge, "gauge": {"dataPoints": [point]}})
        about = {"service.name": "triplepoint", "service.version": __version__}
        scope = {"scope": {"name": "triplepoint.serve"}, "metrics": [one for one in made if one]}
        resource = {"attributes": attributes(about)}
        return {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}

    def _metric(self, name: str, span: Mapping[str, str]) -> dict[str, Any] | None:
        unit, bounds, text = HISTOGRAMS[name]
        points = [
            {
                **span,
                "attributes": attributes(dict(labels)),
                "count": str(sum(found.counts)),
                "sum": found.sum,
                "bucketCounts": [str(count) for count in found.counts],
                "explicitBounds": list(bounds),
            }
            for (key, labels), found in self._found.items()
            if key == name
        ]
        if not points:
            return None
        told = {"aggregationTemporality": CUMULATIVE, "dataPoints": points}
        return {"name": name, "unit": unit, "description": text, "histogram": told}

    def _observe(self, name: str, value: float, about: Mapping[str, str]) -> None:
        """Count a value; the caller has the lock."""
        key = name, tuple(about.items())
        if key not in self._found:
            self._found[key] = Histogram(HISTOGRAMS[name][1])
        self._found[key].observe(value)

    def _send_all(self) -> None:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            while not self._ended.wait(self._period_s):
                self._send(client)
            self._send(client)

    def _send(self, client: httpx.Client) -> None:
        try:
            client.post(self._url, json=self.document()).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            if not self.lost:
                log.warning("metrics cannot be sent to %s: %s; further losses are only counted",
                            self._url, error)  # fmt: skip
            self.lost += 1
