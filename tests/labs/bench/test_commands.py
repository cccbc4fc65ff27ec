"""The research benches as commands: run from the checkout, with one line for an error."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from helpers.labs_bench import bench, table_of


def test_what_it_gives_is_measured() -> None:
    """`speculation` has a row for each text, with and without, and the grammar's cost."""
    result = bench("speculation", "-m", "nano", "-r", "1", "--json")
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    calls = {row["text"]: row for row in report["texts"]}
    assert list(calls) == ["read_file", "search", "set_level"]
    for name in ("read_file", "search", "set_level"):
        assert calls[name]["forced"] > 0.4 * calls[name]["tokens"]
        assert calls[name]["passes"] < calls[name]["tokens"] - calls[name]["forced"] + 1
    assert [row["call"] for row in report["grammar"]] == ["read_file", "search", "set_level"]


def test_each_point_is_a_row() -> None:
    """`causal` has a row for each point of the grid."""
    result = bench("causal", "1,4", "-m", "nano", "-d", "0", "--json")
    assert result.returncode == 0, result.stderr
    assert [row["tokens"] for row in json.loads(result.stdout)] == [1, 4]


def test_a_part_of_the_head(tmp_path: Path) -> None:
    """`head_bound` has a row for each text; nano's head is read whole."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("error: the disk is full\n" * 20)
    texts = [str(tmp_path / f"{name}.txt") for name in ("one", "two")]
    result = bench("head_bound", *texts, "-m", "nano", "-r", "2", "--tokens", "4", "--json")
    assert result.returncode == 0, result.stderr
    rows = json.loads(result.stdout)
    assert list(rows) == ["one", "two"]
    assert all(row["bytes"] == 1.0 and len(row["faster"]) == 2 for row in rows.values())


def test_predictions_beside_the_clock() -> None:
    """A row for each point with both times, the error and both bounds; then the errors together."""
    done = bench("predict", "1,40", "-d", "0,50", "-r", "2")
    found = json.loads(bench("predict", "4,600", "-d", "99,9", "-r", "1", "--json").stdout)

    assert done.returncode == 0
    assert len(re.findall(r"^\| +(?:1|40) \| +(?:0|50) \|", done.stdout, re.MULTILINE)) == 4
    assert "error with the limits measured just before: median" in done.stdout
    assert "bound as expected at" in done.stdout
    assert {(row["n_tokens"], row["n_depth"]) for row in found} == {
        (4, 99), (600, 99), (4, 9), (600, 9)
    }  # fmt: skip
    for row in found:
        assert row["error"] == pytest.approx(row["expected_s"] / row["measured_s"] - 1)
        assert row["observed_bound"] in ("compute", "memory", "dispatch")


def test_kernels() -> None:
    """A kernel's row has its time, its rate and its share of a limit, for the target asked for."""
    args = ["kernels", "argmax", "-r", "2", "-t", "1", "--target", "generic"]
    done = bench(*args)
    found = json.loads(bench(*args, "--json").stdout)

    assert done.returncode == 0
    heading, _, row = table_of(done.stdout)
    assert heading[:4] == ["backend", "kernel", "data", "shape"]
    assert row[:4] == ["generic", "argmax", "f32", "151936"]
    assert re.search(r"1 threads?, generic; .* medians of 2\n", done.stdout)
    assert [(r["kernel"], r["n_threads"]) for r in found] == [("argmax", 1)]
    assert len(found[0]["samples_ns"]) == 2
    assert found[0]["gbps"] == pytest.approx(4 * 151936 / found[0]["median_ns"])


@pytest.mark.parametrize(
    ("name", "arguments", "status", "message"),
    [
        ("causal", ["99999", "-m", "nano"], 2, "nothing to measure: no length fits"),
        ("causal", ["2", "--reps", "3"], 2, "no such option: --reps"),
        ("predict", ["99999"], 2, "no length fits the context of"),
        ("kernels", ["gem"], 2, "unknown kernel 'gem'; known: gemm"),
        ("kernels", ["argmax", "--target", "pentium"], 2, "unknown CPU target 'pentium'"),
        ("kernels", ["argmax", "-t", "9999"], 2, "threads must be from 1 to 256, not 9999"),
        ("scenario", ["-m", "none.gguf"], 3, "none.gguf"),
        ("speculation", ["-m", "none.gguf"], 3, "none.gguf"),
    ],
)
def test_an_error_is_one_line(name: str, arguments: list[str], status: int, message: str) -> None:
    """Wrong usage and models that are none have the status of the shipped verbs."""
    result = bench(name, *arguments)
    assert (result.returncode, result.stdout) == (status, "")
    assert message in result.stderr
    assert len([line for line in result.stderr.splitlines() if "error: " in line]) == 1
