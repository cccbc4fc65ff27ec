"""`triplepoint doctor --agent`, and what tells of its results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from helpers.planned import MACHINE
from helpers.scoring_engine import right_reply, scoring_engine

from triplepoint.runtime.agent.harness.examples import EXAMPLES
from triplepoint.runtime.agent.harness.tuned import Tuned, keep, tuned_for
from triplepoint.runtime.cli import main
from triplepoint.runtime.cli.doctor import tune
from triplepoint.runtime.cli.exit_codes import Exit
from triplepoint.runtime.engine.engine import resolve_model
from triplepoint.runtime.gguf.filehash import remember, sha256
from triplepoint.runtime.hub.aliases import known_models
from triplepoint.runtime.hub.cache import CachedRepo
from triplepoint.runtime.physics import machine
from triplepoint.runtime.suites import harness_tuning
from triplepoint.runtime.suites.fresh_questions import fresh

DIGEST = "c" * 64
FOUND = Tuned({"examples": True}, "2026-11-30", "0.1.0", 20, 0.6, 0.39, 0.78, 0.5)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own; temporary folders are made beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(harness_tuning, "RANKED", (3, 3))
    monkeypatch.setattr(harness_tuning, "TRIED", (3, 3))
    return tmp_path / "cache" / "triplepoint"


@pytest.fixture
def engine(scripted: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the command loads: it likes prompts with examples, and answers right with them."""
    questions = [fresh(harness_tuning.UNSEEN + n)[1][n] for n in range(3)]
    said = [text for one in questions for text in ("Well.", *right_reply(one))]
    made = scoring_engine(scripted, EXAMPLES, said)
    made.model.sha256 = DIGEST

    @contextlib.contextmanager
    def load(*_: object) -> Iterator[Any]:
        yield made

    monkeypatch.setattr(tune, "load_engine", load)
    return made


def test_what_suits_a_model_is_found_shown_and_kept(
    engine: Any, cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan and its time before, the ranking and the answers after; nothing else is left."""
    assert main(["doctor", "--agent", "-m", "some.gguf"]) == Exit.OK
    shown = capsys.readouterr()
    assert "tuning the harness for scripted, in 10 min" in shown.err
    assert "ranked over 3 questions, then two answer 3: about" in shown.err
    assert "examples=on beside the default: 3 gained, 0 lost" in shown.out
    assert "kept for this file: examples=on (100% of 3 questions right" in shown.out
    found = tuned_for(DIGEST)
    assert found is not None
    assert (found.settings, found.questions, found.rate) == ({"examples": True}, 3, 1.0)
    assert [one.name for one in (cache / "harness").iterdir()] == [f"{DIGEST}.json"]
    assert not any((tmp_path / "tmp").iterdir())


def test_the_same_for_machines(engine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """One object, and what is kept is part of it."""
    assert main(["doctor", "--agent", "-m", "some.gguf", "--json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)
    assert found["sha256"] == DIGEST
    assert found["tuned"] == asdict(tuned_for(DIGEST) or FOUND)
    assert found["ranking"][0]["change"] == {"examples": True}
    assert len(found["ranking"]) == len(harness_tuning.CHANGES)
    assert all(len(one["shares"]) == len(one["tokens"]) == 3 for one in found["ranking"])


@pytest.mark.parametrize("place", ["_rank", "_answered"])
def test_ctrl_c_changes_nothing(
    engine: Any,
    cache: Path,
    tmp_path: Path,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """While it ranks or asks: what was kept before still is, and no folder is left."""
    keep(DIGEST, FOUND)
    calls = []
    inner = getattr(harness_tuning.HarnessTuner, place)

    def interrupted(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return inner(*args)

    monkeypatch.setattr(harness_tuning.HarnessTuner, place, interrupted)
    assert main(["doctor", "--agent", "-m", "some.gguf"]) == Exit.INTERRUPTED
    assert "the harness's settings are as they were" in capsys.readouterr().err
    assert tuned_for(DIGEST) == FOUND
    assert len([*(cache / "harness").iterdir()]) == 1
    assert not any((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--agent", "-m", "http://127.0.0.1:1/v1"], "runs on a server"),
        (["--agent", "-m", "nano"], "trained on the bare loop; nothing to tune"),
        (["-m", "nano"], "-m is for doctor --agent"),
        (["--agent", "--measure"], "not allowed with"),
    ],
)
def test_what_cannot_be_done_is_said_plainly(
    argv: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On one line, as a wrong command."""
    assert main(["doctor", *argv]) == Exit.USAGE
    error = capsys.readouterr().err.strip()
    assert why in error.splitlines()[-1]


def test_it_is_listed_and_removed(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Like the rest of what is cached."""
    keep(DIGEST, FOUND)
    assert main(["doctor", "cache"]) == Exit.OK
    assert "settings of the harness that were tuned for model files" in capsys.readouterr().out
    assert main(["doctor", "cache", "clean", "harness", "--yes"]) == Exit.OK
    assert tuned_for(DIGEST) is None


def test_show_tells_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the hash of the file is known; so does its JSON."""
    path = resolve_model("nano")
    assert main(["show", str(path), "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["harness"] is None
    keep(sha256(path), FOUND)
    assert main(["show", str(path)]) == Exit.OK
    assert f"harness        {FOUND.text}" in capsys.readouterr().out
    assert main(["show", str(path), "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["harness"] == asdict(FOUND)


def test_models_tells_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a model that is pulled; of another, which has no file here, nothing is known."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(machine, "known", lambda *_: MACHINE)
    monkeypatch.setattr(machine, "profile", lambda *_: MACHINE)
    model = known_models()[0]
    repo = CachedRepo(tmp_path / "hub", model.repo)
    place = repo.snapshots / ("0" * 40) / model.file
    place.parent.mkdir(parents=True)
    place.write_bytes(b"x")
    remember(place.stat(), DIGEST)
    keep(DIGEST, FOUND)
    assert main(["models"]) == Exit.OK
    assert f"Harness of {model.alias}: examples=on (60%" in capsys.readouterr().out
    assert main(["models", "--json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["harness"] == {model.alias: asdict(FOUND)}
