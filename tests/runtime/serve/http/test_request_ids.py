"""Every answer names its request, and so do the log and the traces."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import Server

from triplepoint import Trace

MESSAGE = {"max_tokens": 1, "messages": [{"role": "user", "content": "hello"}]}


def test_every_answer_has_one(server: Server) -> None:
    """Whole, streamed, refused, or of a path that there is not; no two have the same."""
    answers = [
        server.chat(max_tokens=1),
        server.chat(max_tokens=1, stream=True),
        server.chat(max_tokens=-5),
        server.client.get("/health"),
        server.client.get("/nothing"),
        server.client.get("/v1/chat/completions"),
        server.chat_from("https://other.example"),
    ]

    assert [one.status_code for one in answers] == [200, 200, 400, 200, 404, 405, 403]
    names = [one.headers["x-request-id"] for one in answers]
    assert all(name.startswith("req_") for name in names)
    assert len(set(names)) == len(names)
    assert all("request-id" not in one.headers for one in answers)


def test_anthropics_clients_read_another_header(server: Server) -> None:
    """And the body of an error."""
    answer = server.post("/v1/messages", MESSAGE)
    refused = server.post("/v1/messages", {**MESSAGE, "max_tokens": 0})
    listed = server.client.get("/v1/models", headers={"anthropic-version": "2023-06-01"})

    for one in (answer, refused, listed):
        assert one.headers["request-id"] == one.headers["x-request-id"]
    assert refused.json()["request_id"] == refused.headers["request-id"]


@pytest.mark.parametrize("own", ["b3d1c0e2-7f54-4a2b-9c52-1f0a9d1c2b3e", "edge:1/a=b+c", "7"])
def test_that_of_a_client_or_a_proxy_is_kept(server: Server, own: str) -> None:
    """So one name leads through all logs."""
    answer = server.client.get("/health", headers={"x-request-id": own})

    assert answer.headers.get_list("x-request-id") == [own]


@pytest.mark.parametrize("own", ["", "a b", "-a", "a" * 129, "a;b", "<script>", "\u00e9"])
def test_what_is_no_name_is_not_repeated(server: Server, own: str) -> None:
    """The request gets one of ours."""
    headers = {"x-request-id": own.encode()}
    answer = server.client.get("/health", headers=headers)  # pyright: ignore[reportArgumentType]

    (told,) = answer.headers.get_list("x-request-id")
    assert told.startswith("req_")


def test_failures_are_logged_by_it(
    start: Callable[..., Server], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What nobody has foreseen is told as 500; the log and the trace have the same name of it."""
    server = start(trace="errors", trace_folder=tmp_path)
    server.wait()
    engine = server.service.models.loaded()[0].engine

    def broken(*_: Any) -> int:
        raise RuntimeError("broken")

    kept, engine.core.runner.run = engine.core.runner.run, broken
    failed = server.chat()
    engine.core.runner.run = kept
    server.idle()

    own = failed.headers["x-request-id"]
    assert failed.status_code == 500
    assert f"a request {own} failed: broken" in caplog.text
    (path,) = tmp_path.glob("*.jsonl")
    header = Trace.load(path).header
    assert header is not None
    assert header.config["request_id"] == own


def test_a_failure_beside_the_model_has_one_too(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is answered around everything else."""

    def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(server.service.metrics, "records", broken)
    failed = server.client.get("/status.json")

    own = failed.headers["x-request-id"]
    assert failed.status_code == 500
    assert f"a request {own} failed: broken" in caplog.text


def test_traces_have_it(start: Callable[..., Server], tmp_path: Path) -> None:
    """Also those of requests that were refused."""
    server = start(trace="all", trace_folder=tmp_path)
    server.wait()
    answers = [server.chat(max_tokens=1), server.chat(frequency=3)]
    server.idle()

    done, refused = (Trace.load(path).header for path in sorted(tmp_path.glob("*.jsonl")))
    assert done is not None
    assert refused is not None
    names = [one.headers["x-request-id"] for one in answers]
    assert [done.config["request_id"], refused.config["request_id"]] == names


def test_pages_of_other_addresses_read_it(start: Callable[..., Server]) -> None:
    """A browser gives a page only headers that it is told of."""
    server = start(origins=("https://chat.example",))
    server.wait()
    told = server.chat_from("https://chat.example").headers["access-control-expose-headers"]

    assert {"x-request-id", "retry-after"} <= set(told.split(", "))
