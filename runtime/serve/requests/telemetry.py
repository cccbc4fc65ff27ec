"""Requests as OpenTelemetry spans, sent to a collector while the server runs.

They go out as JSON over HTTP, which collectors take beside protobuf, so nothing more has to be
installed. A request that comes with a ``traceparent`` is part of its client's trace.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
from typing import TYPE_CHECKING, Any

import httpx

from ....traces.export_otlp import served
from ....traces.reader import Trace

if TYPE_CHECKING:
    from ....traces.events import AnyEvent
    from .request_record import RequestRecord

log = logging.getLogger("triplepoint.serve")

WAITING = 512  # requests that are not sent yet; further ones are left out
BATCH = 64
TIMEOUT_S = 10.0
_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}.*")


def parent_of(header: str | None) -> tuple[str, str] | None:
    """Trace and span in a ``traceparent``; None where it is none."""
    found = _PARENT.fullmatch(header or "")
    return (found[1], found[2]) if found else None


class Telemetry:
    """Sends spans to one collector, in a thread of its own. Safe to use from several threads.

    Args:
        url: where it takes traces, such as ``http://127.0.0.1:4318/v1/traces``.
        content: whether questions and answers go with them.

    Attributes:
        lost: requests whose spans could not be sent.
    """

    def __init__(self, url: str, *, content: bool = False) -> None:
        self._url, self._content = url, content
        self.lost = 0
        self._waiting: queue.Queue[dict[str, Any] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._send_all, name="telemetry", daemon=True)
        self._thread.start()

    def keep(
        self, record: RequestRecord, events: list[AnyEvent], parent: tuple[str, str] | None
    ) -> None:
        """Send the spans of a request that has ended, soon."""
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
        """Send what waits, and end."""
        self._waiting.put(None)
        self._thread.join(2 * TIMEOUT_S)

    def _send_all(self) -> None:
        with httpx.Client(timeout=TIMEOUT_S) as client:
            ended = False
            while not ended:
                batch = [self._waiting.get()]
                while len(batch) < BATCH and not self._waiting.empty():
                    batch.append(self._waiting.get())
                ended = None in batch
                spans = [one for made in batch if made is not None for one in made["resourceSpans"]]
                if spans:
                    self._send(client, spans)

    def _send(self, client: httpx.Client, spans: list[dict[str, Any]]) -> None:
        try:
            client.post(self._url, json={"resourceSpans": spans}).raise_for_status()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            if not self.lost:
                log.warning("spans cannot be sent to %s: %s; further losses are only counted",
                            self._url, error)  # fmt: skip
            self.lost += len(spans)
