"""`triplepoint bench sweep`, with the embedded model."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from triplepoint.runtime.bench import sweeps
from triplepoint.runtime.bench.sweeps import ARTICLE_KV, ARTICLE_PROMPT, ARTICLE_THREADS

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
def test_by_prompt(triplepoint: Run) -> None:
    """A row for each length that fits, each figure with its share, the article's beside it."""
    done = triplepoint("bench", "sweep", "prompt", "-r", "1")

    assert (done.returncode, done.stderr) == (0, "")
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


@pytest.mark.slow
@pytest.mark.usefixtures("nano")
@pytest.mark.parametrize(
    ("name", "values", "labels"),
    [
        ("kv", {"GFLOP/s"}, ["10", "100", "1000"]),
        ("layers", {"attention ms", "ffn ms", "wait ms"}, [str(layer) for layer in range(10)]),
    ],
)
def test_as_json(triplepoint: Run, name: str, values: set[str], labels: list[str]) -> None:
    """The other sweeps as JSON: labels, figures, the article's own."""
    found = json.loads(triplepoint("bench", "sweep", name, "-r", "1", "--json").stdout)

    assert [point["label"] for point in found] == labels
    assert all(set(point["values"]) == values for point in found)
    assert all(min(point["values"].values()) >= 0 for point in found)
    if name == "kv":
        assert found[1]["article"] == {"Ryzen": 84.0}
        assert "MiB a layer: L" in found[1]["note"]


@pytest.mark.usefixtures("nano")
def test_by_threads(triplepoint: Run) -> None:
    """`-t` names the one number of threads to measure."""
    found = json.loads(
        triplepoint("bench", "sweep", "threads", "-t", "1", "-r", "1", "--json").stdout
    )
    assert [point["label"] for point in found] == ["1"]
    assert found[0]["article"] == {"Ryzen prefill": 9.7, "Ryzen decode": 5.4}


def test_formats_need_a_synthetic_model(triplepoint: Run) -> None:
    """A file has one format: what to ask for instead is said."""
    done = triplepoint("bench", "sweep", "quant")

    assert done.returncode == 2
    assert "`bench sweep quant` needs a synthetic model" in done.stderr


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
