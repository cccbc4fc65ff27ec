"""``triplepoint ps``: the status of a running server."""

from __future__ import annotations

import argparse
import os
from typing import Any

import httpx

from ...errors import ModelError, SettingError
from ...traces.timeline import duration
from ..hub.progress import size_text
from ..serve.settings import PORT
from .output import Output
from .tables import plain

_WAIT_S = 10.0


def run(args: argparse.Namespace, output: Output) -> None:
    """Request the server's status and print it."""
    status = _ask((args.url or f"http://127.0.0.1:{PORT}").rstrip("/").removesuffix("/v1"))
    output.line(
        f"triplepoint {status['version']}, process {status['pid']}, up "
        f"{duration(status['uptime_s'])}: {status['running']} running, {status['waiting']} waiting"
    )
    rows = [_row(model) for model in status["models"]]
    plain(output, _HEAD, rows, words=range(len(_HEAD)))
    output.json(status)


_HEAD = ("MODEL", "STATE", "SIZE", "KV CACHE", "CONTEXT", "REQUESTS", "UNTIL")


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    if "size" not in model:
        return (model["name"], model["state"], "", "", "", str(model["users"]), "")
    kv = f"{size_text(model['kv_used'])} of {size_text(model['kv_budget'])}"
    until = "in use" if model["users"] else "forever"
    if not model["users"] and model["kept_s"] is not None:
        until = f"in {duration(max(0.0, model['kept_s'] - model['idle_s']))}"
    return (
        *(model["name"], model["state"], size_text(model["size"]), kv),
        *(f"{model['context']:,}", str(model["users"]), until),
    )


def _ask(url: str) -> dict[str, Any]:
    """Request the status of a server.

    Raises:
        SettingError: the URL is none.
        ModelError: it cannot be reached, or refuses.
    """
    key = os.environ.get("TRIPLEPOINT_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(trust_env=False, timeout=_WAIT_S) as client:
            answer = client.get(f"{url}/ps", headers=headers)
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError) as error:
        raise SettingError(
            f"--url: not a server URL: {url!r}; give one such as http://127.0.0.1:11435"
        ) from error
    except httpx.HTTPError as error:
        raise ModelError(
            f"no server answers at {url}: {error or type(error).__name__}; start one with "
            "`triplepoint serve`"
        ) from None
    try:
        found = answer.json()
    except ValueError:
        found = None
    if answer.status_code != 200 or not isinstance(found, dict) or "models" not in found:
        said = found.get("error", {}).get("message") if isinstance(found, dict) else None
        raise ModelError(
            f"{url} is not a triplepoint server: {said or f'HTTP {answer.status_code}'}"
        )
    return found
