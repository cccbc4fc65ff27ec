"""``GET /``: the status page, which shows the data of ``GET /status.json``.

The page itself holds no data and needs no key, since a browser has none to send when it is opened;
what it shows does, and it asks for one. It refers to nothing outside itself: its policy allows its
own script and style by their hashes, and requests to this server.
"""

from __future__ import annotations

import functools
import time
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from ....traces.html_page import asset, page
from ..requests.request_record import RequestRecord
from ..requests.service import Service
from .status_routes import summary

WINDOW_S = 90.0  # of requests that are listed; the page shows somewhat less


async def status_page(_: Request) -> HTMLResponse:
    """Return the status page."""
    headers = {"Content-Security-Policy": "frame-ancestors 'none'"}  # which no page can say itself
    headers |= {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"}
    return HTMLResponse(_page(), headers=headers)


async def status(request: Request) -> JSONResponse:
    """Return what the status page shows."""
    service: Service = request.app.state.service
    now = time.time()
    records = service.metrics.records()
    reads = [one.read for one in records if one.read is not None]
    return JSONResponse(
        {
            **summary(service),
            "now": now,
            "parallel": service.settings.limits.parallel,
            "queue": service.settings.limits.queue,
            "keys": bool(service.settings.keys),
            "rates": service.metrics.rates(),
            "prompt_tokens": sum(read.tokens for read in reads),
            "cached_tokens": sum(read.cached for read in reads),
            "requests": [
                _lane(one) for one in records if one.ended is None or now - _unix(one) < WINDOW_S
            ],
        },
        headers={"Cache-Control": "no-store"},
    )


def _unix(record: RequestRecord, moment: float | None = None) -> float:
    """Convert a time of a record (`perf_counter`), by default its end, to Unix seconds."""
    moment = record.ended if moment is None else moment
    return record.at + (moment or record.arrived) - record.arrived


def _lane(record: RequestRecord) -> dict[str, Any]:
    started, ended = record.started, record.ended
    return {
        "id": record.id,
        "model": record.model,
        "state": record.state,
        "arrived": record.at,
        "started": None if started is None else _unix(record, started),
        "ended": None if ended is None else _unix(record, ended),
        "tokens": record.tokens,
        "phases": list(record.spans),
    }


@functools.cache
def _page() -> str:
    own = (Path(__file__).with_name("assets") / "status.html").read_text(encoding="utf-8")
    body, _, script = own.removesuffix("</script>\n").partition("<script>")
    return page(
        "triplepoint serve",
        body,
        script="\n".join([asset("dom.js"), asset("charts.js"), script]),
        allowed="img-src data:; connect-src 'self'; ",
        head='<link rel="icon" href="data:,">\n',
    )
