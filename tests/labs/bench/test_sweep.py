"""`labs.bench.sweep`, with the embedded model."""

from __future__ import annotations

import argparse
import csv
import io
import json

import pytest
from helpers.labs_bench import bench

from labs.bench import sweep
from labs.bench import sweep_points as sweeps
from labs.bench.sweep_points import ARTICLE_KV, ARTICLE_PROMPT, ARTICLE_THREADS, Point
from triplepoint.runtime.cli.output import Output


def test_by_prompt() -> None:
    """A row for each length that fits, each figure with its share, the article's beside it."""
    done = bench("sweep", "prompt", "-r", "1")

    assert done.returncode == 0
    table = [line.split("|")[1:-1] for line in done.stdout.splitlines() if line.startswith("|")]
    assert [cell.strip() for cell in table[0]][:4] == [
        "prompt", "prefill", "decode", "article Ryzen prefill",
    ]  # fmt: skip
    assert [int(row[0]) for row in table[2:]] == [13, 36, 81, 182, 461, 1096, 1795]
    assert "89.8 (1.00)" in done.stdout
    for column in (1, 2):
        shares = [float(row[column].split("(")[1].rstrip(") ")) for row in table[2:]]
        assert max(shares) == 1.0
        assert min(shares) > 0
    assert "compare the shares" in done.stdout


@pytest.mark.parametrize(
    ("name", "values", "labels"),
    [
        ("kv", {"GFLOP/s"}, ["10", "100", "1000"]),
        ("layers", {"attention ms", "ffn ms", "wait ms"}, [str(layer) for layer in range(10)]),
    ],
)
def test_as_json(name: str, values: set[str], labels: list[str]) -> None:
    """The other sweeps as JSON: labels, figures, the article's own."""
    found = json.loads(bench("sweep", name, "-r", "1", "--json").stdout)

    assert [point["label"] for point in found] == labels
    assert all(set(point["values"]) == values for point in found)
    assert all(min(point["values"].values()) >= 0 for point in found)
    if name == "kv":
        assert found[1]["article"] == {"Ryzen": 84.0}
        assert "MiB a layer: L" in found[1]["note"]


def test_by_threads() -> None:
    """`-t` names the one number of threads to measure."""
    found = json.loads(bench("sweep", "threads", "-t", "1", "-r", "1", "--json").stdout)
    assert [point["label"] for point in found] == ["1"]
    assert found[0]["article"] == {"Ryzen prefill": 9.7, "Ryzen decode": 5.4}


def test_formats_need_a_synthetic_model() -> None:
    """A file has one format: what to ask for instead is said."""
    done = bench("sweep", "quant")

    assert done.returncode == 2
    assert "`sweep quant` needs a synthetic model" in done.stderr


def test_by_quant() -> None:
    """Each format is loaded once, by its name, and measured at every length that fits."""
    from triplepoint import Engine

    asked = []

    def load(name: str) -> Engine:
        asked.append(name)
        return Engine.load("nano", context=120)

    found = list(sweeps.by_quant(load, ["a", "b"], 1))
    assert asked == ["a", "b"]
    assert [set(point.values) for point in found] == [{"prefill 81", "decode 81"}] * 2


def test_the_articles_figures() -> None:
    """Its shapes are what it says of them: a plateau, a cliff behind 12 threads, a fall to DRAM."""
    assert tuple(ARTICLE_PROMPT) == sweeps.PROMPTS
    assert max(ARTICLE_PROMPT, key=lambda n: ARTICLE_PROMPT[n][2]) == 1096
    assert ARTICLE_THREADS[14][0] / ARTICLE_THREADS[12][0] == pytest.approx(0.71, abs=0.005)
    assert ARTICLE_KV[17_000][0] < 0.5 * ARTICLE_KV[10][0]


def test_a_sweeps_rows_are_alike(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The header names every column, also those that the first row has nothing for."""
    points = [Point("3", {"prefill": 2.0}), Point("4", {"prefill": 4.0}, {"Ryzen prefill": 1.0})]
    monkeypatch.setattr(sweep, "_points", lambda *_: iter(points))
    sweep.run(argparse.Namespace(sweep="threads", json=False, format="csv"), Output())

    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert first == {"label": "3", "prefill": "2.0", "article Ryzen prefill": ""}
    assert second == {"label": "4", "prefill": "4.0", "article Ryzen prefill": "1.0"}
