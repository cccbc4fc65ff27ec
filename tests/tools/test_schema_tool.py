"""Tools that other programs describe: what their schemas cannot do to us."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from triplepoint.errors import ToolError
from triplepoint.tools.schema_tool import SchemaTool

pytest.importorskip("jsonschema")


def made(argument: Any, **more: Any) -> SchemaTool:
    schema = {"type": "object", "properties": {"a": argument}, **more}
    return SchemaTool("t", "A tool.", schema, "read", str)


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine, and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()
        thread.join()


def test_arguments_are_checked() -> None:
    """References within the schema and patterns hold."""
    tool = made({"$ref": "#/$defs/n", "pattern": "^x+$"}, **{"$defs": {"n": {"type": "string"}}})

    assert tool.validate({"a": "xx"}) == {"a": "xx"}
    with pytest.raises(ToolError, match="t: argument a: 3 is not of type 'string'"):
        tool.validate({"a": 3})
    with pytest.raises(ToolError, match="t: argument a: 'y' does not match"):
        tool.validate({"a": "y"})


def test_a_schema_fetches_nothing(site: tuple[str, list[str]]) -> None:
    """An address in it is a name: a server may sit where it cannot reach the network, we not."""
    base, asked = site

    for key in ("$ref", "$dynamicRef"):
        assert made({key: f"{base}/meta"}).validate({"a": "x"}) == {"a": "x"}

    assert asked == []


def test_no_pattern_and_no_references_take_hours() -> None:
    """A pattern of exponential time, and references that double thirty times."""
    began = time.process_time()
    with pytest.raises(ToolError, match="does not match"):
        made({"type": "string", "pattern": "^(a+)+$"}).validate({"a": "a" * 60 + "!"})
    with pytest.raises(ToolError, match="does not match"):  # Python's expressions alone look ahead
        made({"pattern": "^(?!x)"}).validate({"a": "x"})

    by_pattern = {"type": "object", "patternProperties": {"^(a+)+$": {"type": "string"}}}
    closed = by_pattern | {"additionalProperties": False}
    unique = {"type": "array", "uniqueItems": True}
    for schema, value in (
        (by_pattern, {"a" * 60 + "!": 1}),
        (closed, {"a" * 60 + "!": 1}),
        (unique, [{"n": n} for n in range(3000)]),
    ):
        assert made(schema).validate({"a": value}) == {"a": value}
    with pytest.raises(ToolError, match="an item is there twice"):
        made(unique).validate({"a": [{"n": 1}, {"n": 1}]})

    steps: dict[str, Any] = {"d0": {"type": "string"}}
    for number in range(1, 31):
        steps[f"d{number}"] = {"allOf": [{"$ref": f"#/$defs/d{number - 1}"}] * 2}
    made({"$ref": "#/$defs/d30"}, **{"$defs": steps}).validate({"a": "x"})

    assert time.process_time() - began < 20
