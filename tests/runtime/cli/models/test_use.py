"""`triplepoint models`, `use` and `config`, and the models that they make the default."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from helpers.fake_hub import FakeHub, FakeRepo, serving

from triplepoint import Engine
from triplepoint.runtime.config import config_path
from triplepoint.runtime.engine.engine import NANO

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Command = Callable[..., tuple[int, str, str]]
QUESTION = "What is the capital of France?"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A Hub that has nano under the name of a well-known model."""
    with serving(FakeHub()) as hub:
        hub.repos["Qwen/Qwen3-0.6B-GGUF"] = FakeRepo({"Qwen3-0.6B-Q8_0.gguf": NANO.read_bytes()})
        yield hub


def test_a_server_as_the_default(command: Command) -> None:
    """A verb that needs a model of this machine says so, and where the default was set."""
    assert command("use", "http://localhost:8080/v1")[0] == 0
    status, _, errors = command("show", "http://localhost:8080/v1")
    assert (status, "is a server's URL, and this needs a model of this machine" in errors) == (
        3,
        True,
    )
    status, _, errors = command("bench")
    assert status == 3
    assert "is a server's URL, and this needs a model of this machine (the default model" in errors


@pytest.mark.slow
def test_models_without_a_network(command: Command, hub: FakeHub) -> None:
    """A table that fits 80 columns, the figures as JSON, and nothing asked of anybody."""
    status, shown, errors = command("models")
    assert (status, errors) == (0, "")
    lines = shown.splitlines()
    assert lines[0].split() == [
        "MODEL", "SIZE", "MEMORY", "FITS", "TTFT", "S", "TOK/S", "AT", "4,096", "LICENSE",
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("qwen3:4b ") and line.endswith("apache-2.0") for line in lines)
    assert any(line.startswith("nemotron3:") and line.endswith(" nvidia-op…") for line in lines)

    status, shown, _ = command("models", "--json")
    report = json.loads(shown)
    assert len(report["models"]) >= 20
    assert any(one["model"]["license"] == "nvidia-open-model-license" for one in report["models"])
    assert {"memory", "fits", "ttft_s", "decode", "decode_deep", "basis"} <= set(
        report["models"][0]
    )
    assert report["machine"]["read_gbps"]["DRAM"] > 0
    assert hub.asked == []


def test_an_alias_from_pull_to_run(command: Command, folder: Path) -> None:
    """Pulled, marked as here, made the default, and what `run` and `Engine.load` take then."""
    status, shown, _ = command("pull", "qwen3:0.6b")
    assert status == 0
    assert shown.startswith("Qwen/Qwen3-0.6B-GGUF:Q8_0 pulled")
    assert "qwen3:0.6b* " in command("models")[1]

    status, shown, _ = command("use", "qwen3:0.6b")
    assert status == 0
    assert shown == f"the default model is now qwen3:0.6b, saved in {config_path()}\n"

    settings = json.loads(command("doctor", "config", "--json")[1])
    assert settings["model"] == {"value": "qwen3:0.6b", "from": f"{config_path()}, line 1"}
    with Engine.load(threads=1) as engine:
        assert "Qwen3-0.6B-GGUF" in str(engine.model.path)
    status, shown, errors = command("run", "--dir", str(folder), QUESTION, "--json")
    assert status == 0
    assert "Qwen3-0.6B-GGUF" in json.dumps(json.loads(shown))
    assert "triplepoint use" not in errors


def test_use_wants_a_model_that_is_here(command: Command) -> None:
    """A name that means nothing, or nothing that is here yet, is refused; nothing is written."""
    status, _, errors = command("use", "qwen3:4c")
    assert status == 3
    assert "did you mean qwen3:4b" in errors
    status, _, errors = command("use", "qwen3:4b")
    assert status == 3
    assert "get it with: triplepoint pull qwen3:4b" in errors
    assert not config_path().exists()


def test_who_named_a_default_that_is_not_there(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment or the file is told, with its line."""
    monkeypatch.setenv("TRIPLEPOINT_MODEL", "nope")
    status, _, errors = command("run", "hi")
    assert status == 3
    assert "no such model: nope" in errors
    assert errors.endswith("(the default model, from TRIPLEPOINT_MODEL)\n")
    monkeypatch.delenv("TRIPLEPOINT_MODEL")
    config_path().parent.mkdir(parents=True)
    config_path().write_text('# mine\nmodel = "qwen3:4b"\n')
    assert f"(the default model, from {config_path()}, line 2)" in command("run", "hi")[2]


def test_use_wants_a_model(command: Command, tmp_path: Path) -> None:
    """What can never run is not written down: other files, shapes that nobody knows."""
    text = tmp_path / "notes.gguf"
    text.write_text("no model")
    for name, words in {
        str(text): f"{text}: ",
        "synthetic:nosuch": "synthetic:",
        "~no-such-user/x.gguf": "no such model: ~no-such-user/x.gguf",
    }.items():
        status, _, errors = command("use", name)
        assert status == 3, errors
        assert words in errors
    assert not config_path().exists()


def test_a_page_of_the_hub_is_no_server(command: Command, folder: Path) -> None:
    """Its URL names a model in the cache: nobody is asked, and no key is sent there."""
    page = "https://huggingface.co/Qwen/Qwen3-0.6B-GGUF"
    get = "Qwen/Qwen3-0.6B-GGUF is not in .*; get it with: triplepoint pull"
    for words in (("run", "-m", page, "--dir", str(folder), "hello"), ("use", page)):
        status, _, errors = command(*words)
        assert status == 3
        assert re.search(get, errors), errors

    assert command("pull", page)[0] == 0
    assert command("use", page)[0] == 0
    assert command("run", "--dir", str(folder), "hello")[0] == 0


def test_use_of_a_file(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path means the same file from every folder."""
    (tmp_path / "own.gguf").write_bytes(NANO.read_bytes())
    monkeypatch.chdir(tmp_path)

    assert command("use", "own.gguf")[0] == 0

    found = json.loads(command("doctor", "config", "--json")[1])["model"]["value"]
    assert found == str((tmp_path / "own.gguf").resolve())


def test_what_config_says(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each setting with its source; the environment comes before the file; no token is shown."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    assert command("use", "nano")[0] == 0
    monkeypatch.setenv("TRIPLEPOINT_MODEL", "synthetic:smollm2-135m:q4_0")

    status, shown, _ = command("doctor", "config")

    assert status == 0
    rows = {line.split()[0]: line for line in shown.splitlines()}
    assert rows["model"].endswith("TRIPLEPOINT_MODEL")
    assert rows["hub"].endswith("HF_ENDPOINT")
    assert rows["models"].endswith("HF_HUB_CACHE")
    assert rows["token"].split() == ["token", "set", "HF_TOKEN"]
    assert "hf_secret" not in shown
    assert rows["kv"].split() == ["kv", "bf16", "built", "in"]
    with config_path().open("a") as file:
        file.write('tools = ["find"]\ntrace_keep_bytes = "2GB"\n')
    rows = {line.split()[0]: line for line in command("doctor", "config")[1].splitlines()}
    assert '["find"]' in rows["tools"]
    assert rows["trace_keep_bytes"].endswith(f"{config_path()}, line 3")
    monkeypatch.setenv("TRIPLEPOINT_TRACE_LIMIT", "off")
    found = json.loads(command("doctor", "config", "--json")[1])
    assert found["tools"]["value"] == ["find"]
    assert found["trace_keep_bytes"] == {"value": "off", "from": "TRIPLEPOINT_TRACE_LIMIT"}
    monkeypatch.setenv("HF_ENDPOINT", "https://me:hunter2@mirror.example")
    assert "hunter2" not in command("doctor", "config")[1]
    monkeypatch.setenv("HF_HOME", "~no-such-user/x")
    status, _, errors = command("doctor", "config")
    assert status == 2
    assert "no home folder for ~no-such-user/x" in errors


def test_a_damaged_configuration(triplepoint: Run, more: dict[str, str], tmp_path: Path) -> None:
    """What needs a default says what is wrong and where; a verb that takes none does not look."""
    path = tmp_path / "config" / "triplepoint" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text("modle = 3\n")

    done = triplepoint("run", "hello", more=more)
    assert done.returncode == 2
    assert f"{path}, line 1: no such setting: 'modle'" in done.stderr
    done = triplepoint("run", "-q", "-m", "nano", QUESTION, more=more)
    assert (done.returncode, done.stdout) == (2, "")
    done = triplepoint("show", "nano", more=more)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_where_nano_cannot(command: Command, folder: Path) -> None:
    """The best model for this machine is named on stderr; not to who has chosen, nor with -q."""
    status, shown, errors = command("run", "--dir", str(folder), QUESTION)
    assert status == 0
    assert "I cannot do that; I can list folders, search files" in shown
    statistics, line = errors.splitlines()
    assert line.startswith("triplepoint: the embedded model is small; ")
    assert "TTFT" in statistics
    assert "triplepoint use" in line or "triplepoint models" in line

    assert command("run", "-q", "--dir", str(folder), QUESTION)[2] == ""
    assert "triplepoint:" not in command("run", "--dir", str(folder), "hello")[2]
    assert command("use", "nano")[0] == 0
    assert "triplepoint:" not in command("run", "--dir", str(folder), QUESTION)[2]


def test_what_is_written_down_works_everywhere(
    command: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nano is the embedded model whatever lies here; a link stays; a folder is no model."""
    monkeypatch.chdir(folder)
    (folder / "nano").mkdir()
    blob, link = tmp_path / "blob", tmp_path / "m.gguf"
    blob.write_bytes(NANO.read_bytes())
    link.symlink_to(blob)

    assert command("use", "nano")[0] == 0
    assert "nano" in config_path().read_text()
    assert str(folder) not in config_path().read_text()
    assert command("use", str(link))[0] == 0
    assert str(link) in config_path().read_text()
    status, _, errors = command("use", ".")
    assert status
    assert ". is a folder" in errors
