"""`triplepoint doctor`."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.planned import MACHINE

from triplepoint.jit import targets
from triplepoint.runtime.cli import main
from triplepoint.runtime.physics import machine

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def test_doctor_tells_what_this_machine_is(triplepoint: Run) -> None:
    """Target and why, CPU, measured limits, where files are kept, versions."""
    done = triplepoint("doctor")

    assert (done.returncode, done.stderr) == (0, "")
    assert f"{targets.detect().name}, the best that this CPU can run" in done.stdout
    for title in ("target", "cpu", "limits with", "execution policy", "files on disk", "versions"):
        assert any(line.startswith(title) for line in done.stdout.splitlines()), title
    assert "read DRAM" in done.stdout
    assert "first touch" in done.stdout
    assert "triplepoint/traces" in done.stdout
    assert " 1 files" not in done.stdout


def test_limits_of_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that shows them, or what follows from them, says that they are doubtful, and why."""
    shares = {"spread": {"barrier": 13.0, "int8": 0.1}, "run_delay": {"barrier": 0.6, "int8": 0.0}}
    busy = dataclasses.replace(MACHINE, samples=3, **shares)
    for limits, doubtful in ((busy, True), (MACHINE, False)):
        monkeypatch.setattr(machine, "profile", lambda *_, found=limits: found)
        monkeypatch.setattr(machine, "known", lambda *_, found=limits: found)
        found = ""
        for argv in (["doctor"], ["models"], ["plan", "--conversations", "3"], ["show", "nano"]):
            assert main(argv) == 0
            shown = capsys.readouterr().out
            assert (machine.DOUBT in " ".join(shown.split())) is doubtful, argv
            found += shown
        reason = "(repeats up to 14.0× apart, 60% without a core); the next 9 runs measure again"
        assert (reason in found) is doubtful
        assert main(["doctor", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["machine"]["doubtful"] is doubtful


@pytest.mark.slow
def test_a_lesser_target_is_explained(triplepoint: Run) -> None:
    """TRIPLEPOINT_TARGET is honoured and named as the reason."""
    done = triplepoint("doctor", more={"TRIPLEPOINT_TARGET": "generic"})

    assert "generic, set by TRIPLEPOINT_TARGET; the best would be" in done.stdout


@pytest.mark.slow
def test_doctor_for_machines(triplepoint: Run, env: dict[str, str], tmp_path: Path) -> None:
    """--json holds the same; --measure writes the profile anew."""
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    found = json.loads(triplepoint("doctor", "--json", "--measure", "-t", "1").stdout)

    assert found["target"]["name"] == targets.detect().name
    assert found["machine"]["threads"] == 1
    assert found["machine"]["read_gbps"]["DRAM"] > 0
    assert found["machine"]["barrier_s"] > 0
    assert found["tuning"]["threads_most"] == 1
    assert isinstance(found["tuning"]["pages"], bool)
    assert "as fast with large ones" in found["tuning"]["pages_why"]
    assert found["versions"]["triplepoint"]
    assert any(cache["path"].endswith("/machine") for cache in found["caches"])


@pytest.mark.slow
def test_limits_by_threads(triplepoint: Run, env: dict[str, str], tmp_path: Path) -> None:
    """--measure adds a line for each number of threads, kept for the next time."""
    env["XDG_CACHE_HOME"] = str(tmp_path / "cache")

    assert "by threads" not in triplepoint("doctor").stdout
    done = triplepoint("doctor", "--measure")
    again = triplepoint("doctor", "--json")
    found = json.loads(again.stdout)["threads"]

    assert (done.returncode, done.stderr) == (0, "")
    assert "by threads, in GB/s and GOP/s, measured " + found["date"] in done.stdout
    counts = [profile["threads"] for profile in found["profiles"]]
    assert counts == sorted(set(counts))
    assert counts[0] == 1
    for profile in found["profiles"]:
        assert min(profile["read_gbps"].values()) > 0
        assert {"int8", "fp32", "barrier"} <= set(profile["spread"])
    assert found["topology"]["page_bytes"] >= 4096
