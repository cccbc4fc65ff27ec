"""Models that are loaded when asked for, and let go when nobody uses them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from triplepoint import Engine, ModelError
from triplepoint.errors import SettingError
from triplepoint.runtime.serve.api_error import APIError
from triplepoint.runtime.serve.models import Models
from triplepoint.runtime.serve.settings import ServerSettings, parse_keep_alive

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


def test_a_model_that_cannot_be_loaded(load: Load) -> None:
    """The request says why, and the next one tries again."""
    failures = [ModelError("the file is damaged")]

    def once(source: str) -> Engine:
        if failures:
            raise failures.pop()
        return load(source)

    models = Models(ServerSettings({"a": "nano"}), once)
    with pytest.raises(APIError, match="the file is damaged"), models.use("a"):
        pass
    assert (states(models), models.ready) == (["failed"], False)
    with models.use("a"):
        assert (states(models), models.ready) == (["ready"], True)
    models.close()


def test_a_model_that_is_not_there(server: Any) -> None:
    """404, with the names of those that are; nothing is loaded by a path or a URL."""
    for name in ("gpt-4o", "/etc/passwd", "http://127.0.0.1/x.gguf", "synthetic:qwen3-0.6b:q4_0"):
        answer = server.chat(model=name)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "model_not_found")
        assert "nano" in error["message"]
    assert server.client.get("/v1/models/nothing").status_code == 404
    assert server.client.get("/v1/models/nano").json()["meta"]["n_ctx"] == 4096


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
