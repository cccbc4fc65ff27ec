"""`triplepoint pull`, `ls`, `show`, `rm` and `cache`, and models by name after `-m`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from helpers.fake_hub import FakeHub, FakeRepo, serving

from triplepoint import Engine
from triplepoint.runtime.engine.engine import NANO
from triplepoint.runtime.hub.progress import size_text
from triplepoint.runtime.weights import packed_cache

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Terminal = Callable[..., tuple[int, str]]
Command = Callable[..., tuple[int, str, str]]
DIGEST = hashlib.sha256(NANO.read_bytes()).hexdigest()


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """A Hub with nano, and a repository with several files."""
    nano = NANO.read_bytes()
    many = {"Many-Q8_0.gguf": nano, "Many-Q5_K_M.gguf": b"GGUF" * 500, "mmproj-F16.gguf": b"y"}
    with serving(FakeHub()) as hub:
        hub.repos["org/nano-GGUF"] = FakeRepo({"nano-Q8_0.gguf": nano, "README.md": b"x"})
        hub.repos["org/many-GGUF"] = FakeRepo(many)
        yield hub


@pytest.mark.slow
def test_pull_then_run_by_name(
    triplepoint: Run, more: dict[str, str], hub: FakeHub, folder: Path
) -> None:
    """`pull` brings the model, `run -m` answers with it, and asks the network nothing."""
    done = triplepoint("pull", "org/nano-GGUF", more=more)

    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.splitlines()
    assert first.startswith("org/nano-GGUF:Q8_0 pulled: 8.0 MB, ")
    assert second == 'run it: triplepoint run -m org/nano-GGUF:Q8_0 "…"'
    hub.asked.clear()
    by_name = triplepoint(
        "run", "Which files are here?", "--dir", folder, "-q", "-m", "org/nano-GGUF", more=more
    )
    assert by_name.returncode == 0, by_name.stderr
    assert "app.log" in by_name.stdout
    assert hub.asked == []


def test_what_is_to_be_pasted_is_quoted(command: Command, hub: FakeHub) -> None:
    """The names of a repository's files are strangers' words, and a shell would run some."""
    hub.repos["org/odd"] = FakeRepo({"a $(id);b.gguf": NANO.read_bytes()})

    status, shown, _ = command("pull", "org/odd")

    assert status == 0
    assert "run it: triplepoint run -m 'org/odd:a $(id);b.gguf' \"…\"" in shown


def test_pull_for_machines(command: Command, hub: FakeHub) -> None:
    """`--json` says what it is and where; a second pull fetches nothing."""
    for fetched in (NANO.stat().st_size, 0):
        status, shown, errors = command("pull", "hf.co/org/nano-GGUF", "--json")
        found = json.loads(shown)
        assert (status, errors) == (0, "")
        assert (found["name"], found["fetched"]) == ("org/nano-GGUF:Q8_0", fetched)
        assert Path(found["paths"][0]).resolve().name == DIGEST
        assert found["problems"] == []


def test_a_choice_is_listed(command: Command) -> None:
    """Where it is not clear what is meant, all that there is comes before the error."""
    status, shown, errors = command("pull", "org/many-GGUF")

    assert status == 3
    assert [line.split() for line in shown.splitlines()] == [
        ["Q5_K_M", "2.0", "kB", "Many-Q5_K_M.gguf"],
        ["Q8_0", "8.0", "MB", "Many-Q8_0.gguf"],
    ]
    assert "org/many-GGUF has no Q4_K_M; choose one by adding it, as in :Q5_K_M" in errors
    status, shown, _ = command("pull", "org/many-GGUF:Q2_K", "--json")
    assert [one["quant"] for one in json.loads(shown)["choices"]] == ["Q5_K_M", "Q8_0"]


def test_errors_are_one_line_and_status_3(command: Command, hub: FakeHub) -> None:
    """Unknown names, wrong names, contents that are wrong."""
    hub.faults.append("wrong")

    for name, words in {
        "org/nano-GGUF": "nothing was kept",
        "org/nano": "there is no model org/nano",
        "nano": "not a model name",
    }.items():
        status, shown, errors = command("pull", name)
        assert (status, shown) == (3, "")
        assert words in errors
        assert errors.startswith("triplepoint: error: ")
        assert errors.count("\n") == 1


def test_a_model_that_cannot_be_run(command: Command, hub: FakeHub) -> None:
    """It is refused before the download; with --force it comes, and the reason is said again."""
    hub.repos["org/nano-GGUF"].architecture = "mamba"
    status, _, errors = command("pull", "org/nano-GGUF")
    assert status == 3
    assert "'mamba' is not supported" in errors
    assert "--force" in errors

    status, shown, _ = command("pull", "org/many-GGUF:Q5_K_M", "--force")
    assert status == 0
    assert "not supported: " in shown
    status, shown, _ = command("ls")
    assert shown.splitlines()[1].split()[-1] == "no"


def test_the_list(command: Command) -> None:
    """What, how large, of which architecture, when last used, whether it runs."""
    assert "download one with: triplepoint pull MODEL" in command("ls")[1]
    command("pull", "org/nano-GGUF")
    command("pull", "org/many-GGUF:Q8_0")

    status, shown, errors = command("ls")

    assert (status, errors) == (0, "")
    head, many, nano = shown.splitlines()
    assert head.split() == ["MODEL", "SIZE", "ARCHITECTURE", "USED", "RUNS"]
    assert nano.split() == ["org/nano-GGUF:Q8_0", "8.0", "MB", "qwen3", "just", "now", "yes"]
    assert many.startswith("org/many-GGUF:Q8_0 ")
    assert command("ls", "NANO")[1].splitlines() == [head, nano]
    assert "no model with 'zzz' in its name in" in command("ls", "zzz")[1]
    found = json.loads(command("ls", "--json")[1])
    assert [one["name"] for one in found["models"]] == ["org/many-GGUF:Q8_0", "org/nano-GGUF:Q8_0"]
    assert found["models"][1]["runs"] is True
    assert found["models"][1]["parameters"] == 7_412_224


def test_an_update_tells_of_the_old_state(command: Command, hub: FakeHub) -> None:
    """A newer commit comes beside the old one; how to get rid of that is said."""
    command("pull", "org/nano-GGUF")
    repo = hub.repos["org/nano-GGUF"]
    old, repo.commit = repo.commit, "f" * 40
    repo.files["nano-Q8_0.gguf"] = NANO.read_bytes() + b"\0"

    _, shown, _ = command("pull", "org/nano-GGUF")

    assert (
        f"an older revision takes 8.0 MB; remove it with: triplepoint rm org/nano-GGUF@{old}:Q8_0"
        in shown
    )
    assert command("rm", f"org/nano-GGUF@{old}:Q8_0", "-y")[0] == 0
    assert "older" not in command("pull", "org/nano-GGUF")[1]


def test_show(command: Command) -> None:
    """What the file says of itself, its tensors by type, and the memory it takes."""
    command("pull", "org/nano-GGUF")

    status, shown, errors = command("show", "org/nano-GGUF")

    assert (status, errors) == (0, "")
    words = " ".join(shown.split())
    for fact in (
        "architecture qwen3, 10 layers",
        "parameters 7,412,224, most of them Q8_0",
        "Q8_0 71 tensors 7,405,568 weights 7.9 MB",
        "chat template yes",
        "with 4,096 tokens 28.8 MB with bf16, 23.8 MB with k16v8, 18.8 MB with q8",
        "tokenizer.ggml.tokens [2,048 values]",
        "this model runs here",
    ):
        assert fact in words
    found = json.loads(command("show", "nano", "--json")[1])
    assert found["runs"] is True
    assert found["types"]["Q8_0"]["tensors"] == 71
    assert found["context_memory"][0]["context"] == 4096
    status, _, errors = command("show", "org/many-GGUF")
    assert status == 3
    assert "get it with: triplepoint pull org/many-GGUF" in errors


def test_rm(command: Command, tmp_path: Path) -> None:
    """Nothing goes without a yes; then only what was named."""
    command("pull", "org/nano-GGUF")
    command("pull", "org/many-GGUF:Q8_0")
    command("pull", "org/many-GGUF:Q5_K_M", "--force")

    status, shown, errors = command("rm", "org/many-GGUF:q5_k_m")
    assert status == 2
    assert shown == "org/many-GGUF:Q5_K_M  2.0 kB\n"
    assert "nothing was removed; --yes" in errors
    status, shown, _ = command("rm", "org/many-GGUF:q5_k_m", "--yes")
    assert status == 0
    assert shown.splitlines()[-1] == "removed; 2.0 kB are free again"
    status, shown, _ = command("rm", "org/nano-GGUF", "org/many-GGUF", "-y", "--json")
    assert json.loads(shown)["removed"] == ["org/nano-GGUF:Q8_0", "org/many-GGUF:Q8_0"]
    assert json.loads(shown)["freed"] == 2 * NANO.stat().st_size
    assert not list((tmp_path / "hub").glob("models--*"))
    assert command("rm", "org/nano-GGUF", "-y")[0] == 3


def test_rm_takes_packed_copies_along(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packed copy of a model that is gone would only take room."""
    monkeypatch.setattr(packed_cache, "default_folder", lambda: tmp_path / "packed")
    command("pull", "org/nano-GGUF")
    for model in ("org/nano-GGUF", "nano"):
        Engine.load(model, threads=1, cache_packed_weights=True).close()
    mine, other = sorted(packed_cache.copies(), key=lambda copy: copy.model == str(NANO.resolve()))

    status, shown, _ = command("rm", "org/nano-GGUF", "-y")

    assert status == 0
    assert shown.splitlines()[1] == f"org/nano-GGUF, packed copy  {size_text(mine.nbytes)}"
    assert not mine.path.exists()
    assert other.path.exists()


@pytest.mark.slow
def test_ctrl_c_says_what_is_kept(
    env: dict[str, str], more: dict[str, str], hub: FakeHub, triplepoint: Run
) -> None:
    """Status 130, how much is there, and the next pull goes on from it."""
    hub.repos["org/big"] = FakeRepo({"big-Q8_0.gguf": np.random.default_rng(3).bytes(2_000_000)})
    hub.faults.append("silence:500000")
    process = subprocess.Popen(
        [sys.executable, "-m", "triplepoint", "pull", "org/big"],
        env=env | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    blobs = Path(more["HF_HUB_CACHE"]) / "models--org--big" / "blobs"
    deadline = time.monotonic() + 60
    while not any(p.stat().st_size >= 500_000 for p in blobs.glob("*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    shown, errors = process.communicate(timeout=30)

    assert (process.returncode, shown) == (130, "")
    kept = "500 kB of the 2.0 MB of big-Q8_0.gguf are kept; run the same command to resume"
    assert errors == f"triplepoint: interrupted; {kept}\n"
    assert "unfinished download" in triplepoint("ls", more=more).stdout
    triplepoint("pull", "org/big", more=more)
    assert hub.ranges() == [None, "bytes=500000-"]


@pytest.mark.slow
def test_on_a_terminal_a_missing_model_is_offered(
    more: dict[str, str], env: dict[str, str], tmp_path: Path
) -> None:
    """`show` of a model that is not there asks; the answer is on the terminal."""
    script = tmp_path / "typed.py"
    script.write_text(
        "import os, pty, sys\n"
        "reads = []\n"
        "def read(fd):\n"
        "    data = os.read(fd, 65536)\n"
        "    reads.append(data)\n"
        "    if b'[Y/n]' in data:\n"
        "        os.write(fd, b'\\n')\n"
        "    return data\n"
        "status = pty.spawn([sys.executable, '-m', 'triplepoint', 'show', 'org/nano-GGUF'], read,\n"
        "                   lambda fd: b'')\n"
        "sys.exit(os.waitstatus_to_exitcode(status))\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        env=env | more | {"TERM": "xterm"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )

    assert done.returncode == 0, done.stdout
    assert "org/nano-GGUF is not downloaded yet. Pull it now? [Y/n]" in done.stdout
    assert "org/nano-GGUF:Q8_0 pulled: 8.0 MB" in done.stdout
    assert "this model runs here" in done.stdout


def test_the_bar_is_drawn_on_terminals_only(on_terminal: Terminal, more: dict[str, str]) -> None:
    """On a terminal the file's name and size are seen while it comes."""
    status, shown = on_terminal("pull", "org/nano-GGUF", more=more)

    assert status == 0
    assert "nano-Q8_0.gguf" in shown
    assert "8.0 MB" in shown
    assert "pulled: 8.0 MB" in shown


def test_cache(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is kept is listed by kind; `clean` removes caches and nothing else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "cache" / "triplepoint"
    for name, size in (("kernels/a.o", 1000), ("synthetic/x.gguf", 2000), ("sha256.json", 2)):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"{}".ljust(size))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine").write_text("x")
    (root / "linked").symlink_to(tmp_path / "elsewhere")
    trace = tmp_path / "state" / "triplepoint" / "traces" / "t.jsonl"
    trace.parent.mkdir(parents=True)
    trace.write_text("x")

    status, shown, _ = command("doctor", "cache")
    assert status == 0
    kinds = [line.split()[0] for line in shown.splitlines()]
    assert kinds == ["kernels", "sha256", "synthetic", "traces", "sessions", "models"]
    assert "2.0 kB" in shown

    assert command("doctor", "cache", "clean")[0] == 2
    status, _, errors = command("doctor", "cache", "clean", "traces", "-y")
    assert status == 2
    assert "traces are not a cache" in errors
    assert (
        "choose from: kernels, sha256, synthetic"
        in command("doctor", "cache", "clean", "x", "-y")[2]
    )
    assert command("doctor", "cache", "clean", "synthetic", "--yes")[0] == 0
    assert not (root / "synthetic").exists()
    assert (root / "kernels" / "a.o").exists()
    status, shown, _ = command("doctor", "cache", "clean", "-y", "--json")
    assert json.loads(shown)["freed"] == 1002
    assert sorted(os.listdir(root)) == ["linked"]
    assert (tmp_path / "elsewhere" / "mine").exists()
    assert trace.exists()
    for kept in ("sessions", "traces", "config.toml"):  # as where all XDG folders are one
        (root / kept).mkdir()
    assert command("doctor", "cache", "clean", "--yes")[0] == 0
    assert sorted(path.name for path in root.iterdir()) == [
        "config.toml", "linked", "sessions", "traces",
    ]  # fmt: skip
