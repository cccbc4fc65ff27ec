"""What `triplepoint show` says of files that have the headers of the published ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from helpers.real_headers import HEADERS, Header, write_header
from helpers.tiers import quick

from triplepoint.runtime.cli import main
from triplepoint.runtime.cli.models.facts import read_model_facts
from triplepoint.runtime.hub.model_info import read_model_info

KiB, MiB = 1024, 1 << 20
FULL, SLIDING, DELTA = "full attention", "sliding attention", "gated delta rule"
SHARED = ", another layer's keys"


class Known(NamedTuple):
    """What is known of a model, from the reference: counts worked out apart from this code.

    kinds: layers by what their first half is. kv: KiB of keys and values that a token takes in
    bf16, in all layers and in those without a window. state: MiB of a sequence.
    """

    kinds: dict[str, int]
    calls: str
    kv: tuple[float, float]
    state: float = 0.0
    experts: tuple[int, int, int] = (0, 0, 0)
    window: int = 0


KNOWN = {
    "Qwen3.5-4B": Known({DELTA: 24, FULL: 8}, "qwen3-coder", (32, 32), 50.25),
    "Qwen3.6-27B": Known({DELTA: 48, FULL: 16}, "qwen3-coder", (64, 64), 149.6),
    "Qwen3.5-35B-A3B": Known(
        {DELTA: 30, FULL: 10}, "qwen3-coder", (20, 20), 62.8, experts=(256, 8, 1)
    ),
    "Qwen3-Next-80B-A3B": Known(
        {DELTA: 36, FULL: 12}, "hermes", (24, 24), 75.4, experts=(512, 10, 1)
    ),
    "Qwen3-VL-2B": Known({FULL: 28}, "hermes", (112, 112)),
    "Qwen3-VL-30B-A3B": Known({FULL: 48}, "hermes", (96, 96), experts=(128, 8, 0)),
    "gemma-4-E2B": Known(
        {SLIDING: 12, FULL: 3, SLIDING + SHARED: 16, FULL + SHARED: 4},
        *("gemma4", (18, 6)),
        window=512,
    ),
    "gemma-4-E4B": Known(
        {SLIDING: 20, FULL: 4, SLIDING + SHARED: 15, FULL + SHARED: 3},
        *("gemma4", (56, 16)),
        window=512,
    ),
    "gemma-4-12B": Known({SLIDING: 40, FULL: 8}, "gemma4", (336, 16), window=1024),
    "gemma-4-26B-A4B": Known(
        {SLIDING: 25, FULL: 5}, "gemma4", (220, 20), experts=(128, 8, 0), window=1024
    ),
    "gemma-4-31B": Known({SLIDING: 50, FULL: 10}, "gemma4", (880, 80), window=1024),
    "gpt-oss-20b": Known(
        {SLIDING: 12, FULL: 12}, "harmony", (48, 24), experts=(32, 4, 0), window=128
    ),
    "LFM2.5-1.2B": Known({"gated short convolution": 10, FULL: 6}, "lfm2", (12, 12), 0.16),
    "LFM2-8B-A1B": Known(
        {"gated short convolution": 18, FULL: 6}, "lfm2", (12, 12), 0.28, experts=(32, 4, 0)
    ),
    "GLM-4.7-Flash": Known({"latent attention": 47}, "glm", (52.9, 52.9), experts=(64, 4, 1)),
    "DeepSeek-V2-Lite-Chat": Known(
        {"latent attention": 27}, "json", (30.4, 30.4), experts=(64, 6, 2)
    ),
    "NVIDIA-Nemotron-3-Nano-30B-A3B": Known(
        {"Mamba-2": 23, FULL: 6, "none": 23}, "qwen3-coder", (6, 6), 47.6, experts=(128, 6, 1)
    ),
    "Granite-4.0-H-Tiny": Known(
        {"Mamba-2": 36, FULL: 4}, "hermes", (8, 8), 55.4, experts=(64, 6, 1)
    ),
    "Granite-4.0-H-Micro": Known({"Mamba-2": 36, FULL: 4}, "hermes", (8, 8), 73.8),
    "Ministral-3-8B": Known({FULL: 34}, "mistral-args", (136, 136)),
    "Laguna-XS.2": Known(
        {FULL: 10, SLIDING: 30}, "glm", (160, 40), experts=(256, 8, 1), window=512
    ),
    "Olmo-3-7B": Known({SLIDING: 24, FULL: 8}, "olmo3", (512, 128), window=4096),
}
# A recurrence with experts, keys of other layers, latent attention with a layer that drafts.
FEW = ("Qwen3.5-35B-A3B", "gemma-4-E2B", "GLM-4.7-Flash")
QUICK = [header for header in HEADERS if header.name in FEW]
every = pytest.mark.parametrize("header", quick(HEADERS, *QUICK), ids=lambda header: header.name)
sums = pytest.mark.parametrize("header", quick(HEADERS, QUICK[0]), ids=lambda header: header.name)


def test_every_header_is_known() -> None:
    """No file is described twice, and none is left out here."""
    assert [header.name for header in HEADERS] == list(dict.fromkeys(h.name for h in HEADERS))
    assert {header.name for header in HEADERS} == KNOWN.keys()


def test_the_documents_say_the_same() -> None:
    """Each row of the table in docs/models.md: keys and values, state, experts and format."""
    text = (Path(__file__).parents[4] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    told = {row[0]: row[1:] for row in rows if row and row[0] in KNOWN}
    assert told.keys() == KNOWN.keys()
    for name, (_, kv, state, experts, calls) in told.items():
        known = KNOWN[name]
        whole, far = (f"{n:g}" for n in known.kv)
        assert kv == (whole if whole == far else f"{whole} ({far})"), name
        assert state == (f"{known.state:g}" if known.state else "–"), name
        used = f"{known.experts[1]} of {known.experts[0]}" if known.experts[0] else "–"
        assert experts.partition(",")[0] == used, name
        assert calls == f"`{known.calls}`", name


@pytest.mark.slow
@every
def test_a_published_file_runs(
    tmp_path: Path, header: Header, capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` says that it does, of what layers it is made, what a token and a sequence take, and in
    which format its template has it call tools."""
    path, known = tmp_path / "model.gguf", KNOWN[header.name]
    write_header(path, header)

    assert main(["show", str(path), "--json"]) == 0

    shown = json.loads(capsys.readouterr().out)
    assert (shown["problems"], shown["runs"]) == ([], True)
    made_of = shown["made_of"]
    drafts = header.metadata.get("nextn_predict_layers", 0)
    assert made_of["mtp_blocks"] == drafts
    assert shown["mtp"] == ("used" if drafts else "")
    rows = [kind for kind in made_of["kinds"] if not kind["what"].startswith("drafts: ")]
    assert len(made_of["kinds"]) - len(rows) == drafts
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["what"]] = counts.get(row["what"], 0) + row["layers"]
    assert counts == known.kinds
    assert {row["window"] for row in rows if SLIDING in row["what"]} <= {known.window}
    assert made_of["calls"] == known.calls
    assert (made_of["experts"], made_of["experts_used"], made_of["shared"]) == known.experts
    near, far = (
        sum(row["kv_token"]["bf16"] for row in rows if bool(row["window"]) is sliding) / KiB
        for sliding in (True, False)
    )
    assert (near + far, far) == pytest.approx(known.kv, abs=0.05)
    state = sum(row["state"] + row["conv"] for row in rows) / MiB
    assert state == pytest.approx(known.state, abs=0.05, rel=1e-3)


@sums
def test_the_parts_make_the_whole(tmp_path: Path, header: Header) -> None:
    """Layers by kind hold what all of them hold together, and a pass never reads more than all."""
    path = tmp_path / "model.gguf"
    write_header(path, header)
    info, facts = read_model_info(path), read_model_facts(path)

    assert info.memory is not None
    for kv, whole in info.memory.kv_token.items():
        assert sum(kind.kv_token[kv] for kind in facts.kinds) == pytest.approx(whole)
    assert facts.state == info.memory.state
    one, eight = facts.passes
    assert one.weights <= eight.weights <= info.memory.weights
    assert eight.token < one.token
    assert (one.weights < eight.weights) is (facts.experts > 0)
    assert one.experts == facts.experts_used
    assert eight.states == 8 * one.states
    assert facts.active <= info.parameters


def test_a_small_model_has_millions_of_weights(capsys: pytest.CaptureFixture[str]) -> None:
    """The active weights of nano are not a small part of a billion."""
    assert main(["show", "nano"]) == 0

    assert re.search(r"active +\d+\.\d+ million weights per token", capsys.readouterr().out)


@pytest.mark.slow
def test_what_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinds of layers, experts, bytes of a pass; of a machine that was never measured no speed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing measured"))
    words = _shown(tmp_path, "Qwen3.5-35B-A3B", capsys)
    for fact in (
        "tool calls in the format qwen3-coder",
        "30 × gated delta rule, with experts; per sequence: state 62.9 MB, convolution 2.9 MB",
        "10 × full attention, with experts; per token: bf16 20.5 kB, k16v8 15.4 kB, q8 10.6 kB, "
        "f32 41.0 kB",
        "experts 8 of 256 per token, and 1 that every token takes",
        "a pass of 1 token 2.66 GB of weights (8 experts of a layer) and 132 MB of states",
        "this machine has not been measured yet; `triplepoint models` measures it",
        "supported: this model runs here",
    ):
        assert fact in words
    # How far matrices of few rows are padded depends on the width of a panel.
    assert re.search(r"a pass of 8 tokens 9\.2[67] GB of weights \(57\.4 experts of a", words)
    assert "stored keys" not in words
    words = _shown(tmp_path, "gpt-oss-20b", capsys)
    assert "stored keys: bf16 centered, k16v8 centered, q8 centered and equalized" in words
    words = _shown(tmp_path, "GLM-4.7-Flash", capsys)
    assert "1 × drafts: latent attention, with experts" in words
    assert "draft layer an MTP head, which drafts tokens" in words


def _shown(folder: Path, name: str, capsys: pytest.CaptureFixture[str]) -> str:
    path = folder / "model.gguf"
    write_header(path, next(header for header in HEADERS if header.name == name))
    assert main(["show", str(path)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_predictions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where limits are known, speeds that they allow are told, unless the weights do not fit."""
    from triplepoint.runtime import memory
    from triplepoint.runtime.bench import reach

    limits: dict[str, Any] = {
        "caches": {"L1": 32 << 10, "L2": 1 << 20, "L3": 32 << 20},
        "read_gbps": {"L1": 800.0, "L2": 400.0, "L3": 200.0, "DRAM": 40.0},
        **{"int8_gops": 2000.0, "fp32_gflops": 500.0, "bf16_gflops": 500.0, "barrier_s": 1e-6},
    }
    machine = reach.MachineProfile("test", 8, "avx2", 8, **limits)
    monkeypatch.setattr(reach, "known_here", lambda target: machine)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    monkeypatch.setattr(memory, "installed_bytes", lambda: 64 << 30)
    words = _shown(tmp_path, "gpt-oss-20b", capsys)
    expected = words.partition("speed expected here ")[2].split()
    rate = float(expected[expected.index("decode") + 1])
    assert 0.75 * 40 / 1.956 < rate < 40 / 1.956  # 1.956 GB a token
    assert "8 sequences" in words
    monkeypatch.setattr(memory, "installed_bytes", lambda: 8 << 30)
    assert "the weights do not fit in the 8.59 GB" in _shown(tmp_path, "gpt-oss-20b", capsys)
