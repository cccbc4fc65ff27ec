"""Vectors of texts over HTTP, in OpenAI's format and in llama-server's."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import tiny_models
from helpers.serving import SETTINGS, Server

from triplepoint import Engine
from triplepoint.runtime.serve.settings import Limits

URL = "/v1/embeddings"
WIDTH = 128


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose file says that the last token's state is the vector."""
    path = tmp_path_factory.mktemp("embeddings") / "tiny.gguf"
    metadata = {"qwen3.pooling_type": np.uint32(3), "tokenizer.ggml.add_eos_token": True}
    tiny_models.write_model(path, "qwen3", metadata=metadata)
    return path


@pytest.fixture(scope="module")
def vectors(file: Path, load: Callable[[str], Engine]) -> Iterator[Server]:
    """A server of that model, and of nano, whose file says nothing."""
    models = {"tiny": str(file), "nano": "nano"}
    running = Server(replace(SETTINGS, models=models), load)
    try:
        running.wait()
        yield running
    finally:
        running.close()


def _asked(server: Server, path: str = URL, **body: Any) -> Any:
    answer = server.post(path, body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_batch_counts_as_work_of_its_key(vectors: Server) -> None:
    """However long its texts are together; else it would keep other keys from their turns."""
    vectors.idle()
    line = vectors.service.line
    before = line._served.get("", 0.0)
    _asked(vectors, input=["a full disk " * 20] * 40, model="tiny")
    vectors.idle()

    assert line._served[""] > before


def test_as_the_engine_has_them(vectors: Server, file: Path) -> None:
    """Texts and tokens give the engine's own vectors, in both encodings, and tokens are counted."""
    texts = ["a full disk", "ab", "no space left"]
    told = _asked(vectors, input=texts, model="tiny", user="me")
    with Engine.load(file) as engine:
        want = engine.embed(texts)
        ids = [engine.embedder.ids(text) for text in texts]

    assert [one["index"] for one in told["data"]] == [0, 1, 2]
    assert {one["object"] for one in told["data"]} == {"embedding"}
    assert (told["object"], told["model"]) == ("list", "tiny")
    assert told["usage"] == dict.fromkeys(("prompt_tokens", "total_tokens"), sum(map(len, ids)))
    got = np.array([one["embedding"] for one in told["data"]], np.float32)
    np.testing.assert_array_equal(got, want)
    raw = _asked(vectors, input=ids, encoding_format="base64")["data"]
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in raw]
    np.testing.assert_array_equal(decoded, want)
    one = _asked(vectors, input=ids[1])["data"]
    np.testing.assert_array_equal(np.array([o["embedding"] for o in one], np.float32), want[1:2])
    assert len(_asked(vectors, input=[[1, "ab", 2], "x"])["data"]) == 2
    vectors.idle()
    assert 'vllm:request_success_total{model_name="tiny"' in vectors.client.get("/metrics").text


def test_shorter(vectors: Server) -> None:
    """The first dimensions, as long as 1 again."""
    whole, part = (
        np.array(_asked(vectors, input="ab", dimensions=count)["data"][0]["embedding"])
        for count in (WIDTH, 16)
    )

    np.testing.assert_allclose(part, whole[:16] / np.linalg.norm(whole[:16]), rtol=1e-5)


def test_llama_servers_own(vectors: Server) -> None:
    """A list of lists; of a model that pools nothing the states of all tokens."""
    plain = _asked(vectors, input="ab")["data"][0]["embedding"]
    for path, name in (("/embedding", "content"), ("/embeddings", "input")):
        assert _asked(vectors, path, **{name: "ab"}) == [{"index": 0, "embedding": [plain]}]
    (taxi,) = _asked(vectors, "/embedding", content="ab", embd_normalize=1)[0]["embedding"]
    assert np.abs(taxi).sum() == pytest.approx(1.0)
    ids = vectors.post("/tokenize", {"content": "hello", "model": "nano", "add_special": True})
    states = _asked(vectors, "/embedding", content="hello", model="nano")[0]["embedding"]
    assert len(states) == len(ids.json()["tokens"])
    assert np.linalg.norm(states[0]) != pytest.approx(1.0)


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        (URL, {}, "input", "missing_required_parameter"),
        (URL, {"input": ""}, "input", None),
        (URL, {"input": []}, "input", None),
        (URL, {"input": ["a", ""]}, "input", None),
        (URL, {"input": [[1, 2], 3]}, "input[0]", "invalid_value"),
        (URL, {"input": [5000]}, "input", None),
        (URL, {"input": ["x"] * 2049}, "input", None),
        (URL, {"input": ["x", "ab" * 3000]}, "input[1]", "context_length_exceeded"),
        (URL, {"input": "x", "encoding_format": "int8"}, "encoding_format", "invalid_value"),
        (URL, {"input": "x", "dimensions": 129}, "dimensions", None),
        (URL, {"input": "x", "embd_normalize": -2}, "embd_normalize", "invalid_value"),
        (URL, {"input": "x", "content": "x"}, "content", "unsupported_parameter"),
        (URL, {"input": "x", "model": "nano"}, "model", "no_pooling"),
        (URL, {"input": "x", "model": "agent:none"}, "model", "model_not_found"),
        ("/embedding", {}, "content", None),
        ("/embedding", {"content": "x", "input": "x"}, "content", None),
        ("/embedding", {"content": {"prompt_string": 3}}, "content.prompt_string", "invalid_value"),
        ("/embedding", {"content": "x", "model": "nano", "dimensions": 3}, "dimensions", None),
    ],
)
def test_refused(
    vectors: Server, path: str, body: dict[str, Any], param: str, code: str | None
) -> None:
    """By the name of the parameter."""
    answer = vectors.post(path, body)

    assert answer.status_code in (400, 404), answer.text
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code)


def test_the_servers_pooling(start: Callable[..., Server]) -> None:
    """It goes over what the file says; an answer of too many numbers is refused."""
    server = start(pooling="mean", limits=replace(Limits(), vector_values=800))
    server.wait()

    assert len(_asked(server, input="hello")["data"]) == 1
    answer = server.post(URL, {"input": ["hello"] * 100})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_none(start: Callable[..., Server], file: Path) -> None:
    """Where nothing is pooled OpenAI's format has no answer."""
    server = start(models={"tiny": str(file)}, pooling="none")
    server.wait()

    assert len(_asked(server, "/embedding", content="ab")[0]["embedding"]) == 2
    error = server.post(URL, {"input": "ab"}).json()["error"]
    assert (error["param"], error["code"]) == ("model", "no_pooling")


def test_openai(vectors: Server) -> None:
    """openai-python asks for base64 by itself, and gives lists of numbers."""
    openai = pytest.importorskip("openai", reason="the client is not installed")
    with openai.OpenAI(base_url=f"{vectors.url}/v1", api_key="x", max_retries=0) as client:
        texts = ["a full disk", "ab"]
        made = client.embeddings.create(model="tiny", input=texts)
        plain = client.embeddings.create(model="tiny", input=texts, encoding_format="float")
        ids = client.embeddings.create(model="tiny", input=[[1, 2, 3]], dimensions=8)
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="nano", input="x")

    assert [len(one.embedding) for one in made.data] == [WIDTH, WIDTH]
    assert [one.embedding for one in made.data] == [one.embedding for one in plain.data]
    assert len(ids.data[0].embedding) == 8
    assert (made.usage.prompt_tokens, ids.usage.total_tokens) == (made.usage.total_tokens, 3)
    assert (refused.value.code, refused.value.param) == ("no_pooling", "model")
