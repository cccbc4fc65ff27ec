"""`triplepoint bench`, with the embedded model."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.labs_bench import table_of

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def first(folder: Path) -> dict[str, str]:
    """The environment in which modules are looked for in `folder` first."""
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.getenv("PYTHONPATH")])])}


WITH_FAKE = first(Path(__file__).parents[3] / "helpers" / "fake_llama")

SIZES = ["-p", "7,40", "-n", "3", "-d", "0,50", "-r", "2"]
TESTS = ["pp7", "pp40", "tg3", "pp7 @ d50", "pp40 @ d50", "tg3 @ d50"]
LIMITS = ["int8_gops", "bf16_gflops", "fp32_gflops", "dram_gbps"]
FEW = ["--tests", "pp7,tg3@50", "-r", "2"]


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_the_table(triplepoint: Run) -> None:
    """A row for each test with the median and its spread, in llama-bench's columns."""
    done = triplepoint("bench", *SIZES)

    assert (done.returncode, done.stderr) == (0, "")
    first, second = done.stdout.split("\n\n")[:2]
    heading, _, *rows = table_of(first)
    assert len({len(line) for line in first.splitlines()}) == 1
    assert heading[:7] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert heading[7:] == ["min … max", "of limit"]
    assert [row[5] for row in rows] == TESTS
    for row in rows:
        median, spread = map(float, row[6].split(" ± "))
        least, most = (float(figure.replace(",", "")) for figure in row[7].split(" … "))
        assert least - 1 <= median <= most + 1
        assert spread >= 0
        assert re.fullmatch(r"[0-9]+% (compute|L1|L2|L3|DRAM)", row[8])
    heading, _, *rows = table_of(second)
    assert heading[:3] == ["test", "products", "attention"]
    assert [row[0] for row in rows] == TESTS
    for row in rows:
        assert sum(float(cell.rstrip("%")) for cell in row[1:]) == pytest.approx(100, abs=6)
    assert "medians of 2" in done.stdout
    assert re.search(
        r"limits in this run, .*int8( without tiles)? [0-9,.]+ GOP/s .*DRAM read", done.stdout
    )


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_csv_and_json_agree_on_names(triplepoint: Run) -> None:
    """The fields have llama-bench's names; JSON has the samples too."""
    table = list(csv.DictReader(io.StringIO(triplepoint("bench", *FEW, "--format", "csv").stdout)))
    found = json.loads(triplepoint("bench", *FEW, "--json").stdout)

    assert [row["n_prompt"] for row in table] == ["7", "0"]
    assert [row["n_gen"] for row in found] == [0, 3]
    assert set(found[0]) - set(table[0]) == {"samples_ns", "samples_ts", "samples_limit_share"}
    for row in found:
        assert len(row["samples_ns"]) == 2
        assert row["n_threads"] >= 1
        expected = (row["n_prompt"] + row["n_gen"]) * 1e9 / row["samples_ns"][0]
        assert row["samples_ts"][0] == pytest.approx(expected, rel=0.01)
        assert row["min_ts"] <= row["median_ts"] <= row["max_ts"]
        assert row["limit_share"] == pytest.approx(sum(row["samples_limit_share"]) / 2)
        assert min(row[name] for name in LIMITS) > 0


@pytest.mark.usefixtures("nano")
def test_a_length_that_does_not_fit_is_told(triplepoint: Run) -> None:
    """A prompt beyond the model's context is an error that names both, before any table."""
    done = triplepoint("bench", "-p", "36,999999")

    assert done.returncode == 2
    assert done.stderr.startswith("triplepoint: error: test pp999999 needs 1,000,000 tokens")
    assert "the model's context is 4,096" in done.stderr
    assert not done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_against_llama_cpp(triplepoint: Run) -> None:
    """Each row has both figures, the better setting of theirs, the ratio and the shares."""
    done = triplepoint("bench", *FEW, "--compare", more=WITH_FAKE)

    assert (done.returncode, done.stderr) == (0, "")
    heading, _, *rows = table_of(done.stdout.split("\n\n")[0])
    assert heading[:5] == ["test", "triplepoint t/s", "llama.cpp t/s", "its best setting", "ratio"]
    assert [row[0] for row in rows] == ["pp7", "tg3 @ d50"]
    assert all(row[3] in ("flash attention", "no flash attention") for row in rows)
    assert "against llama.cpp (llama-cpp-python 0.0-fake)" in done.stdout
    assert "CPU : FAKE = 1" in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_against_in_csv_and_json(triplepoint: Run) -> None:
    """JSON has the samples of both engines, with both settings of theirs."""
    args = ["bench", *FEW, "--baseline-python", sys.executable]
    table = list(
        csv.DictReader(io.StringIO(triplepoint(*args, "--format", "csv", more=WITH_FAKE).stdout))
    )
    found = json.loads(triplepoint(*args, "--json", more=WITH_FAKE).stdout)

    assert [(row["n_prompt"], row["n_gen"], row["n_depth"]) for row in table] == [
        ("7", "0", "0"),
        ("0", "3", "50"),
    ]
    assert set(table[0]) <= set(found[0])
    for row in found:
        assert list(row["theirs"]) == ["flash attention", "no flash attention"]
        theirs = row["theirs"][row["peer_setting"]]
        assert row["peer_median_ts"] == pytest.approx(sum(theirs["samples_ts"]) / 2)
        assert row["ratio"] == pytest.approx(row["median_ts"] / row["peer_median_ts"])
        each = [a / b for a, b in zip(row["samples_ts"], theirs["samples_ts"], strict=True)]
        assert row["samples_ratio"] == pytest.approx(each)


@pytest.mark.usefixtures("nano")
def test_a_peer_without_llama_cpp_is_told(triplepoint: Run, tmp_path: Path) -> None:
    """One line says which interpreter lacks it and what to do."""
    (tmp_path / "llama_cpp.py").write_text("raise ImportError('not here')")

    done = triplepoint("bench", *FEW, "--compare", "llama-cpp", more=first(tmp_path))

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "has no usable llama-cpp-python" in done.stderr
    assert "pip install llama-cpp-python" in done.stderr


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["--tests", "pp7,gp3"], 2, "'gp3' is not a test like pp512"),
        (["--compare", "ollama"], 2, "invalid choice"),
        (["-p", "0", "-n", "0"], 2, "nothing to measure"),
    ],
)
def test_what_cannot_be_measured_is_told(
    args: list[str], status: int, message: str, triplepoint: Run
) -> None:
    """Wrong names and empty lists are refused with a line that says why."""
    done = triplepoint("bench", *args)

    assert done.returncode == status
    assert message in done.stderr
