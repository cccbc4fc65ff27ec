"""The document at ``/openapi.json`` is true, and whatever fits it, or nearly does, is answered."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from helpers.serving import Server
from helpers.tiers import quick

pytest.importorskip("starlette", reason="the server needs pip install 'triplepoint[serve]'")
from starlette.routing import Route

from triplepoint.runtime.serve.http.guard import OPEN, OPERATOR

HOSTILE: list[Any] = [
    *(None, True, -1, 2**63, 1e308, "", "\x00\x1b[31m", "a" * 5000, "\N{PILE OF POO}"),
    *([], {}, [[]], {"a": {"b": []}}),
]


class Fuzzer:
    """Makes values of JSON schemas, and damages some of them."""

    def __init__(self, schemas: dict[str, Any], seed: int) -> None:
        self._schemas, self._chance = schemas, random.Random(seed)

    def value(self, schema: Any, depth: int = 0, damage: float = 0.0) -> Any:
        """A value; each part of it is something else with the chance `damage`."""
        chance = self._chance
        if damage and chance.random() < damage:
            return chance.choice(HOSTILE)
        if not isinstance(schema, dict) or not schema:
            return chance.choice(HOSTILE)
        if "$ref" in schema:
            return self.value(self._schemas[schema["$ref"].rpartition("/")[2]], depth, damage)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return chance.choice(schema["enum"])
        for union in ("anyOf", "oneOf"):
            if union in schema:
                return self.value(chance.choice(schema[union]), depth, damage)
        kind = schema.get("type")
        if kind == "object":
            return self._object(schema, depth, damage)
        if kind == "array":
            count = 0 if depth > 6 else chance.randrange(schema.get("minItems", 0), 4)
            return [self.value(schema.get("items"), depth + 1, damage) for _ in range(count)]
        if kind in ("integer", "number"):
            low, high = schema.get("minimum", -3), schema.get("maximum", 5)
            if kind == "integer":
                return chance.randint(int(low), max(int(low), min(int(high), int(low) + 8)))
            return chance.uniform(low, high)
        if kind == "string":
            return chance.choice(["", "user", "a word", "{}", "ünï\n", "nano", "x" * 300])
        return {"boolean": chance.random() < 0.5, "null": None}.get(str(kind))

    def _object(self, schema: dict[str, Any], depth: int, damage: float) -> dict[str, Any]:
        chance, needed = self._chance, schema.get("required", [])
        made = {
            name: self.value(part, depth + 1, damage)
            for name, part in schema.get("properties", {}).items()
            if (name in needed and chance.random() >= damage)
            or (depth < 6 and chance.random() < 0.25)
        }
        if not isinstance(schema.get("additionalProperties", True), bool):
            made["1"] = self.value(schema["additionalProperties"], depth + 1, damage)
        if damage and chance.random() < damage:
            made["no_such_thing"] = 1
        return made


def fuzz(server: Server, count: int, seed: int) -> dict[int, int]:
    """Ask every route that takes a body so often; statuses and how often they came."""
    document = server.client.get("/openapi.json").json()
    fuzzer = Fuzzer(document["components"]["schemas"], seed)
    statuses: dict[int, int] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if method != "post":
                continue
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            for n in range(count):
                body = fuzzer.value(schema, damage=0.0 if n % 3 == 0 else 0.06)
                if isinstance(body, dict) and path != "/apply-template":
                    body["model"] = "nano"
                    body.pop("max_completion_tokens", None)
                    named = document["components"]["schemas"].get(
                        schema.get("$ref", "").rpartition("/")[2], {}
                    )
                    for name in ("max_tokens", "max_output_tokens"):
                        if name in named.get("properties", ()):
                            body[name] = 2
                answer = server.post(path, body)
                assert answer.status_code < 500, (path, body, answer.text)
                if answer.status_code != 200:
                    assert answer.json()["error"]["message"], (path, body)
                statuses[answer.status_code] = statuses.get(answer.status_code, 0) + 1
    return statuses


def test_it_describes_every_route(server: Server) -> None:
    """All paths are there, references lead somewhere, and bodies forbid what is not known."""
    document = server.client.get("/openapi.json").json()

    assert document["openapi"].startswith("3.1")
    paths = {r.path.replace(":path}", "}") for r in server.app.routes if isinstance(r, Route)}
    assert set(document["paths"]) == paths
    schemas = document["components"]["schemas"]

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "$ref" in part:
                assert part["$ref"].rpartition("/")[2] in schemas
            for item in part.values():
                walk(item)
        elif isinstance(part, list):
            for item in part:
                walk(item)

    walk(document)
    assert schemas["ChatBody"]["additionalProperties"] is False
    assert set(schemas["ChatBody"]["required"]) == {"messages"}
    content = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]
    assert content["application/json"]["schema"]["$ref"].endswith("/ChatBody")
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)


def test_it_describes_all_names_and_null(server: Server) -> None:
    """Every name that a parameter has, and null, which counts as not given."""
    schemas = server.client.get("/openapi.json").json()["components"]["schemas"]
    for kind, name in (
        *(("ChatBody", "n_cmpl"), ("CompletionBody", "n_cmpl"), ("NativeBody", "logprobs")),
        ("CompletionBody", "max_completion_tokens"),
    ):
        assert name in schemas[kind]["properties"], (kind, name)
    properties = schemas["ChatBody"]["properties"]
    for name in ("n", "stream", "stream_options", "max_tokens"):
        assert properties[name]["anyOf"].count({"type": "null"}) == 1, name
    assert (properties["n"]["default"], properties["n"]["anyOf"][0]["minimum"]) == (1, 1)
    assert "null" not in str(properties["messages"]["type"])
    answer = server.chat(n=None, stream=None, stream_options=None, n_cmpl=1, max_tokens=1)
    assert answer.status_code == 200


@pytest.mark.slow
def test_it_describes_keys(start: Callable[..., Server]) -> None:
    """Both headers, for the paths that want them: all but a few, or those of the operator."""
    both = [{"bearer": []}, {"x-api-key": []}]

    def keyed(**settings: Any) -> set[str]:
        server = start(**settings)
        server.wait("/")
        headers = {"Authorization": "Bearer mine"}
        document = server.client.get("/openapi.json", headers=headers).json()
        header = document["components"].get("securitySchemes", {}).get("x-api-key", {})
        assert header.get("name", "x-api-key") == "x-api-key"
        operations = [
            (path, one) for path, methods in document["paths"].items() for one in methods.values()
        ]
        assert all(one.get("security", both) == both for _, one in operations)
        return {path for path, one in operations if "security" in one}

    assert keyed() == set()
    assert keyed(operator_keys=("mine",)) == OPERATOR
    wanted = keyed(keys=("mine",))
    assert "/v1/chat/completions" in wanted >= OPERATOR
    assert "/v1/models/{name}" in wanted
    assert not wanted & OPEN


@pytest.mark.slow
def test_no_body_breaks_the_server(server: Server) -> None:
    """Bodies that fit the document, and ones that nearly do: an answer or a refusal, never 5xx."""
    statuses = fuzz(server, 9, 5)

    assert statuses[200] > 3
    assert statuses[400] > 3
    server.idle()
    assert server.chat().status_code == 200


@pytest.mark.parametrize("seed", quick(range(4), ci=[0]))
def test_no_body_of_thousands_breaks_the_server(server: Server, seed: int) -> None:
    """The same, for longer."""
    assert 5 not in {status // 100 for status in fuzz(server, 100, 100 + seed)}
