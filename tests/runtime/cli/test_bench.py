"""`triplepoint bench`, with the embedded model."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]

SIZES = ["-p", "7,40", "-n", "3", "-d", "0,50", "-r", "2"]
TESTS = ["pp7", "pp40", "tg3", "pp7 @ d50", "pp40 @ d50", "tg3 @ d50"]


@pytest.mark.usefixtures("nano")
def test_the_table(triplepoint: Run) -> None:
    """A row for each test with the median and its spread, in llama-bench's columns."""
    done = triplepoint("bench", *SIZES)

    assert (done.returncode, done.stderr) == (0, "")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert rows[0] == ["model", "size", "params", "backend", "threads", "test", "t/s"]
    assert len({len(line) for line in done.stdout.splitlines()}) == 1
    assert [row[5] for row in rows[2:]] == TESTS
    for row in rows[2:]:
        median, spread = map(float, row[6].split(" ± "))
        assert median > 0
        assert spread >= 0


@pytest.mark.usefixtures("nano")
def test_csv_and_json_agree_on_names(triplepoint: Run) -> None:
    """The fields have llama-bench's names; JSON has the samples too."""
    table = list(csv.DictReader(io.StringIO(triplepoint("bench", *SIZES, "-o", "csv").stdout)))
    found = json.loads(triplepoint("bench", *SIZES, "--json").stdout)

    assert [row["n_prompt"] for row in table] == ["7", "40", "0", "7", "40", "0"]
    assert [row["n_gen"] for row in found] == [0, 0, 3, 0, 0, 3]
    assert set(found[0]) - set(table[0]) == {"median_ts", "samples_ns", "samples_ts"}
    for row in found:
        assert len(row["samples_ns"]) == 2
        assert row["n_threads"] >= 1
        expected = (row["n_prompt"] + row["n_gen"]) * 1e9 / row["samples_ns"][0]
        assert row["samples_ts"][0] == pytest.approx(expected, rel=0.01)


@pytest.mark.usefixtures("nano")
def test_a_length_that_does_not_fit_is_told(triplepoint: Run) -> None:
    """A prompt beyond the model's context is an error that names both."""
    done = triplepoint("bench", "-p", "999999")

    assert done.returncode != 0
    assert done.stderr.startswith("triplepoint: error: ")
    assert "context" in done.stderr
