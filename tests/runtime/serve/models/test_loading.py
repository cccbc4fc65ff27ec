"""Models that are loaded when asked for, and let go when nobody uses them."""

from __future__ import annotations

import json
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from helpers.serving import Server
from helpers.splits import split_gguf

from triplepoint import Engine, ModelError
from triplepoint.errors import EngineError, SettingError
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.serve.app import application as app
from triplepoint.runtime.serve.http.api_error import APIError
from triplepoint.runtime.serve.models.loading import Models
from triplepoint.runtime.serve.settings import Limits, ServerSettings, parse_keep_alive

Load = Callable[[str], Engine]
TWO = {"a": "nano", "b": "nano"}


def states(models: Models) -> list[str]:
    """What each model is at."""
    return [row["state"] for row in models.status()]


def test_a_model_is_loaded_once_and_let_go(load: Load) -> None:
    """It stays while it is used and as long after that as it is kept; then it is loaded anew."""
    models = Models(ServerSettings({"a": "nano"}, keep_alive_s=0.05), load)
    with models.use("a") as model, models.use(None) as same:
        assert model is same
        time.sleep(0.1)
        models.let_go_idle()
        assert states(models) == ["ready"]
    models.let_go_idle()
    assert states(models) == ["ready"]
    time.sleep(0.1)
    models.let_go_idle()
    assert states(models) == ["unloaded"]
    with models.use("a") as again:
        assert again is not model
    models.close()


@pytest.mark.slow
def test_models_that_do_not_fit_beside_each_other(load: Load) -> None:
    """One that rests makes room; one that is used does not, and the request is told to wait."""
    models = Models(ServerSettings(TWO, memory=7_000_000), load)
    with models.use("a"):
        pass
    with models.use("b"):
        assert states(models) == ["unloaded", "ready"]
        with pytest.raises(APIError) as refused, models.use("a"):
            pass
    assert (refused.value.status, "Retry-After" in refused.value.headers) == (503, True)
    with models.use("a"):
        assert states(models) == ["ready", "unloaded"]
    models.close()


def test_models_that_fit(load: Load) -> None:
    """They stay beside each other."""
    models = Models(ServerSettings(TWO), load)
    for name in ("a", "b"):
        with models.use(name):
            pass
    assert states(models) == ["ready", "ready"]
    models.close()


@pytest.mark.slow
def test_models_that_are_loaded_at_once_count_each_other(load: Load) -> None:
    """What one is about to take is no room for another one; a load that fails gives it back."""
    loading, go = threading.Event(), threading.Event()
    failures = [ModelError("the file is damaged")]

    def slowly(source: str) -> Engine:
        loading.set()
        assert go.wait(60)
        if failures:
            raise failures.pop()
        return load(source)

    def ask(name: str) -> None:
        with models.use(name):
            pass

    models = Models(ServerSettings(TWO, memory=7_000_000), slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(ask, "a")
        assert loading.wait(60)
        with pytest.raises(APIError, match="not enough memory"):
            ask("b")
        go.set()
        with pytest.raises(APIError, match="damaged"):
            first.result(60)
    ask("b")
    assert states(models) == ["failed", "ready"]
    ask("a")
    assert states(models) == ["ready", "unloaded"]
    models.close()


def test_requests_for_a_ready_model_while_another_is_loaded(start: Callable[..., Server]) -> None:
    """They are answered, however many wait for the other one."""
    go = threading.Event()

    def load(source: str) -> Engine:
        assert source == "nano" or go.wait(60)
        return Engine.load("nano")

    server = start(load, models={"a": "nano", "b": str(NANO)}, limits=Limits(parallel=2))
    try:
        server.wait()
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(server.chat, model="b") for _ in range(3)]
            told = [
                pool.submit(server.post, "/tokenize", {"content": "x", "model": "b"})
                for _ in range(3)
            ]
            while server.service.load[1] < 3 or server.service._asking < 3:
                time.sleep(0.01)
            assert server.chat(model="a").status_code == 200
            assert server.post("/tokenize", {"content": "x", "model": "a"}).status_code == 200
            assert not any(one.done() for one in (*asked, *told))
            go.set()
            assert {one.result(60).status_code for one in (*asked, *told)} == {200}
    finally:
        go.set()


def test_requests_that_waited_for_a_load_that_failed(start: Callable[..., Server]) -> None:
    """All get its error, and it is not tried again for each of them; a later one tries again."""
    go, loads = threading.Event(), list[str]()

    def load(source: str) -> Engine:
        loads.append(source)
        assert go.wait(60)
        if len(loads) == 1:
            raise ModelError("the file is damaged")
        return Engine.load(source)

    server = start(load)
    server.wait("/v1/models")
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(server.chat) for _ in range(3)]
        told = [pool.submit(server.post, "/tokenize", {"content": "x"}) for _ in range(2)]
        while server.service.load[1] < 3 or server.service._asking < 2:
            time.sleep(0.01)
        go.set()
        answers = [one.result(60) for one in (*asked, *told)]
    assert {answer.json()["error"]["code"] for answer in answers} == {"model_not_loaded"}
    assert len(loads) == 1
    health = server.client.get("/health")
    assert (health.status_code, "is damaged" in health.json()["error"]["message"]) == (503, True)
    assert server.chat().status_code == 200
    assert (len(loads), server.client.get("/health").status_code) == (2, 200)


def test_health_tells_nobody_without_a_key_why(start: Callable[..., Server]) -> None:
    """It is open to all, and the reason may name a folder."""

    def never(_: str) -> Engine:
        raise ModelError("/home/me/secret.gguf is damaged")

    server = start(never, keys=("mine",))
    server.wait("/")
    until = time.monotonic() + 20
    while server.service.models.status()[0]["state"] != "failed":
        assert time.monotonic() < until
        time.sleep(0.01)
    health = server.client.get("/health")
    assert health.json()["error"]["message"] == "The model could not be loaded"


def test_a_model_that_cannot_be_loaded(load: Load) -> None:
    """The request says why, and the next one tries again."""
    failures = [ModelError("the file is damaged")]

    def once(source: str) -> Engine:
        if failures:
            raise failures.pop()
        return load(source)

    models = Models(ServerSettings({"a": "nano"}), once)
    with pytest.raises(APIError, match="the file is damaged") as refused, models.use("a"):
        pass
    assert (refused.value.status, refused.value.headers) == (404, {"x-should-retry": "false"})
    assert (states(models), models.ready) == (["failed"], False)
    with models.use("a"):
        assert (states(models), models.ready) == (["ready"], True)
    models.close()


def test_a_model_that_cannot_be_loaded_now() -> None:
    """Where memory lacks, it may be there later: clients are told to come back."""

    def never(_: str) -> Engine:
        raise MemoryError("no room")

    models = Models(ServerSettings({"a": "nano"}), never)
    with pytest.raises(APIError, match="no room") as refused, models.use("a"):
        pass
    assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "30"})
    models.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model's file of one's own."""
    return Path(shutil.copy(NANO, tmp_path / "own.gguf"))


def replaced(file: Path) -> None:
    """Another file under the same name, as `mv` puts it there."""
    shutil.copy(NANO, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def test_a_model_that_is_let_go_while_its_file_is_loaded(load: Load, file: Path) -> None:
    """Both are closed, once, and it is as before its first use."""
    made: list[Engine] = []

    def loading(name: str) -> Engine:
        if made:
            models._let_go(models._entries["a"])
        made.append(load(name))
        return made[-1]

    models = Models(ServerSettings({"a": str(file)}), loading)
    with models.use("a"):
        pass
    models.reload_changed()
    replaced(file)
    models.reload_changed()
    models.reload_changed()
    assert len(made) == 2
    assert states(models) == ["unloaded"]
    for engine in made:
        with pytest.raises(EngineError, match="closed"):
            engine.session().prefill([1])
    models.close()


@pytest.mark.slow
@pytest.mark.parametrize("memory", [None, 7_000_000], ids=["beside", "one after the other"])
def test_a_file_that_changed(load: Load, file: Path, memory: int | None) -> None:
    """It is loaded anew once it is the same for two looks. Who works with the old one goes on with
    it; where there is no room for both, the new one waits for that."""
    models = Models(ServerSettings({"a": str(file)}, memory=memory), load)
    with models.hold("a"), ThreadPoolExecutor(1) as pool:
        with models.use("a") as old:
            models.reload_changed()
            replaced(file)
            models.reload_changed()
            with models.use("a") as same:
                assert same is old
            looked = pool.submit(models.reload_changed)
            if memory is None:
                looked.result(60)
            else:
                while states(models) == ["ready"]:
                    time.sleep(0.01)
            session = old.engine.session()
            session.prefill(old.engine.tokenizer.encode("still there"))
            session.close()
            assert not old.closed
        looked.result(60)
        assert (old.outdated, old.closed) == (True, True)
        with models.use("a") as new:
            assert new is not old
            assert not new.outdated
        models.reload_changed()
        models.reload_changed()
        with models.use("a") as same:
            assert same is new
    models.close()


def test_a_part_that_changed(load: Load, tmp_path: Path) -> None:
    """Any part of a split model, not only the first, makes it be loaded anew; all need memory."""
    parts = split_gguf(NANO, tmp_path, "own", tensors=20)
    total = sum(path.stat().st_size for path in parts)
    models = Models(ServerSettings({"a": str(parts[0]), "b": "nano"}, memory=2 * total), load)
    with models.use("a") as old:
        pass
    models.reload_changed()
    shutil.copy(parts[-1], tmp_path / "new")
    (tmp_path / "new").replace(parts[-1])
    models.reload_changed()
    models.reload_changed()
    with models.use("a") as new:
        assert new is not old
        assert new.fingerprint == old.fingerprint
    with models.use("b"):
        models._let_go(models._entries["a"])
        with pytest.raises(APIError, match="not enough memory"), models.use("a"):
            pass
    models.close()


def test_the_fingerprint_is_of_the_weights(load: Load, file: Path) -> None:
    """A model of the same name and size has another one; samples of its file say so."""
    models = Models(ServerSettings({"a": str(file)}), load)
    with models.use("a") as old:
        pass
    models._let_go(models._entries["a"])
    with file.open("r+b") as opened:
        opened.seek(-1000, os.SEEK_END)
        opened.write(bytes([file.read_bytes()[-1000] ^ 1]))
    with models.use("a") as new:
        assert new.fingerprint != old.fingerprint
    models.close()


@pytest.mark.slow
def test_a_changed_file_that_cannot_be_loaded(load: Load, file: Path) -> None:
    """What was there goes on, `ps` says why, and the next change is looked at again."""
    models = Models(ServerSettings({"a": str(file)}), load)
    with models.use("a") as old:
        pass
    file.with_suffix(".new").write_bytes(b"GGUF, but no more")
    file.with_suffix(".new").replace(file)
    for _ in range(3):
        models.reload_changed()
    with models.use("a") as same:
        assert same is old
    (row,) = models.status()
    assert (row["state"], "could not be" in row["error"]) == ("ready", True)
    replaced(file)
    for _ in range(2):
        models.reload_changed()
    with models.use("a") as new:
        assert new is not old
    assert "error" not in models.status()[0]
    models.close()


def test_a_changed_file_that_nobody_has_foreseen(load: Load, file: Path) -> None:
    """It is not loaded again and again, and what was there goes on."""
    loads: list[str] = []

    def loaded(source: str) -> Engine:
        loads.append(source)
        if len(loads) > 1:
            raise KeyError("rope")
        return load(source)

    models = Models(ServerSettings({"a": str(file)}), loaded)
    with models.use("a") as old:
        pass
    replaced(file)
    for _ in range(4):
        models.reload_changed()
    with models.use("a") as same:
        assert same is old
    assert len(loads) == 2
    models.close()


def test_a_model_that_fails_after_it_was_loaded(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is let go of: the next request loads it once more."""
    closed: list[Engine] = []
    close = Engine.close
    monkeypatch.setattr(Engine, "close", lambda self: (closed.append(self), close(self)))
    models = Models(ServerSettings({"a": "nano"}, public=("word " * 6000,)), load)
    with pytest.raises(APIError), models.use("a"):
        pass

    assert len(closed) == 1


def test_looks_go_on(start: Callable[..., Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that fails is told of in the log, and is not the last."""
    looks: list[int] = []

    def look(_: Models) -> None:
        looks.append(1)
        raise KeyError("x")

    monkeypatch.setattr(app, "LOOK_S", 0.01)
    monkeypatch.setattr(Models, "let_go_idle", look)
    start().wait()
    until = time.monotonic() + 20
    while len(looks) < 3:
        assert time.monotonic() < until
        time.sleep(0.01)


def test_requests_without_a_pass_while_a_model_is_loaded(start: Callable[..., Server]) -> None:
    """They wait, so many at most, and keep nobody else from an answer."""
    loaded = threading.Event()

    def load(source: str) -> Engine:
        loaded.wait(60)
        return Engine.load(source)

    server = start(load, limits=Limits(queue=3))
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(server.post, "/tokenize", {"content": "hello"}) for _ in range(3)]
        while server.service._asking < 3:
            time.sleep(0.01)
        refused = server.post("/tokenize", {"content": "hello"})
        wrong = server.post("/v1/chat/completions", {"messages": []})
        loaded.set()
        answers = [one.result(60).status_code for one in waiting]

    assert (refused.status_code, "Retry-After" in refused.headers) == (429, True)
    assert wrong.status_code == 400
    assert answers == [200] * 3


@pytest.mark.slow
def test_requests_that_wait_while_a_file_changes(start: Callable[..., Server], file: Path) -> None:
    """All are answered: those that run by the old model, those that wait by the new one."""
    server = start(models={"a": str(file)}, memory=7_000_000, limits=Limits(parallel=1))
    server.wait()
    models = server.service.models
    with ThreadPoolExecutor(5) as pool:
        asked = [pool.submit(server.chat, f"question {n}", max_tokens=300) for n in range(4)]
        while server.service.load[0] < 1 or server.service.load[1] < 3:
            time.sleep(0.01)
        models.reload_changed()
        replaced(file)
        models.reload_changed()
        models.reload_changed()
        answers = [one.result(120) for one in asked]
    assert [answer.status_code for answer in answers] == [200] * 4


@pytest.mark.slow
def test_a_file_that_was_written_to(start: Callable[..., Server], file: Path) -> None:
    """What is in use is lost: clients are told to come back, and then it is loaded anew."""
    server = start(models={"a": str(file)})
    server.wait()
    with file.open("r+b") as opened:
        opened.write(NANO.read_bytes())
    refused = server.chat()
    for _ in range(2):
        server.service.models.reload_changed()

    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "10")
    assert "changed while in use" in refused.json()["error"]["message"]
    assert server.chat().status_code == 200


def test_a_model_that_is_not_there(start: Callable[..., Server]) -> None:
    """Of several models: 404 with their names; nothing is loaded by a path or a URL."""
    server = start(models={"nano": "nano", "other": "nano"})
    server.wait()
    for name in ("gpt-4o", "/etc/passwd", "http://127.0.0.1/x.gguf", "synthetic:qwen3-0.6b:q4_0"):
        answer = server.chat(model=name)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "model_not_found")
        assert "nano" in error["message"]
    assert server.client.get("/v1/models/nothing").status_code == 404
    assert server.client.get("/v1/models/nano").json()["meta"]["n_ctx"] == 4096
    assert server.client.get("/v1/models/").json() == server.client.get("/v1/models").json()


WIRES = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
    ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 1}),
    ("/v1/completions", {"prompt": "hi", "max_tokens": 1}),
    ("/completion", {"prompt": "hi", "max_tokens": 1}),
]


@pytest.mark.parametrize(("path", "body"), WIRES, ids=[path for path, _ in WIRES])
def test_any_name_is_the_only_model(server: Server, path: str, body: dict[str, Any]) -> None:
    """In all formats, also streamed; a note says so, and the answer has the model's own name."""
    for name in ("gpt-4o", "claude-sonnet-4-5", "名"):
        answer = server.post(path, {**body, "model": name})
        assert (answer.status_code, answer.json()["model"]) == (200, "nano")
        (note,) = json.loads(answer.headers["warnings"])
        assert note == f"the model '{name}' does not exist; nano answers"
    streamed = server.post(path, {**body, "model": "gpt-4o", "stream": True})
    assert "nano answers" in streamed.headers["warnings"]
    assert "warnings" not in server.post(path, {**body, "model": "nano"}).headers
    told = server.post("/v1/messages/count_tokens", {"messages": WIRES[0][1]["messages"]} | {
        "model": "claude-haiku-4-5"
    })  # fmt: skip
    assert (told.status_code, "nano answers" in told.headers["warnings"]) == (200, True)


def test_a_default_model_and_aliases(start: Callable[..., Server], tmp_path: Path) -> None:
    """The default answers what names no model or an unknown one, and is loaded at the start."""
    more: dict[str, Any] = {"agents": {"agent:x": tmp_path}}
    aliases = {"gpt-4o": "a", "helper": "agent:x"}
    server = start(models=TWO, default_model="b", aliases=aliases, **more)
    server.wait()
    assert states(server.service.models) == ["unloaded", "ready"]
    answers = {name: server.chat(model=name) for name in ("", "none", "gpt-4o", "helper")}
    shown = {name: answer.json()["model"] for name, answer in answers.items()}
    assert shown == {"": "b", "none": "b", "gpt-4o": "a", "helper": "agent:x"}
    assert [name for name, answer in answers.items() if "warnings" in answer.headers] == ["none"]
    assert server.chat(model="agent:y").status_code == 404
    models = server.client.get("/v1/models").json()["data"]
    assert {one["id"]: one.get("aliases") for one in models} == {
        "a": ["gpt-4o"],
        "b": None,
        "agent:x": None,
    }
    assert server.client.get("/v1/models/gpt-4o/").json()["id"] == "a"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"default_model": "c"}, "default_model must be one of a, b: c"),
        ({"aliases": {"x": "c"}}, "an alias is NEW=MODEL of a, b; not 'x'='c'"),
        ({"aliases": {"a": "b"}}, "not 'a'='b'"),
        ({"aliases": {"x": ""}}, "not 'x'=''"),
    ],
)
def test_names_that_are_of_no_model(settings: dict[str, Any], why: str) -> None:
    """They are refused at the start."""
    with pytest.raises(SettingError, match=why):
        ServerSettings(TWO, **settings)


def test_a_model_of_several_that_fails(
    start: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """The terminal has its name and the reason, and so have the answers to requests for it."""
    hopeless: list[BaseException] = []

    def load(source: str) -> Engine:
        if source != "nano":
            raise ModelError("tensor blk.0 is cut off")
        return Engine.load(source)

    server = start(load, models={"a": str(NANO), "b": "nano"})
    server.wait("/v1/models")
    server.service.models._hopeless = hopeless.append
    assert server.chat(model="b").status_code == 200
    refused = server.chat(model="a")
    why = "the model a could not be loaded: tensor blk.0 is cut off"
    assert (refused.status_code, refused.json()["error"]["message"]) == (404, why)
    assert why in [record.getMessage() for record in caplog.records]
    assert hopeless == []


@pytest.mark.parametrize(
    ("text", "seconds"), [("30m", 1800), ("2h", 7200), ("90", 90), ("1.5s", 1.5), ("-1", math.inf)]
)
def test_times(text: str, seconds: float) -> None:
    """How long a model is kept, as ollama writes it."""
    assert parse_keep_alive(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "soon", "-2", "1d", "nan"])
def test_no_times(text: str) -> None:
    """What is no time is refused."""
    with pytest.raises(SettingError, match="not a time"):
        parse_keep_alive(text)
