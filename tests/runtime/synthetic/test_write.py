"""Synthetic models: real GGUF files that the `gguf` package reads, with sane random numbers."""

from __future__ import annotations

import os
import time
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import jinja2
import numpy as np
import pytest
from helpers.tiers import quick

from triplepoint.errors import ModelError
from triplepoint.runtime.engine.engine import Engine
from triplepoint.runtime.gguf.open import open_gguf
from triplepoint.runtime.gguf.types import GGMLType, TokenType
from triplepoint.runtime.synthetic import write as synthetic
from triplepoint.runtime.synthetic.vocabulary import CHAT_TEMPLATE, N_VOCAB
from triplepoint.runtime.synthetic.write import QUANTS, SHAPES, SyntheticModel, synthetic_path
from triplepoint.runtime.tokens.tokenizer import Tokenizer

SMALL = synthetic.Shape(2, 128, 256, heads=2, kv_heads=1, tied=False, head_dim=64)
SMALL_LLAMA = replace(SMALL, family="llama", rope_factor=8.0)
SMALL_MOE = synthetic.Shape(
    1, 128, 256, 2, 1, tied=True, head_dim=64, experts=4, experts_used=2, expert_ffn=64
)


def room_for(quant: str, shape: synthetic.Shape) -> synthetic.Shape:
    """The shape, or for K-quants a wider one: their blocks are rows of 256."""
    if QUANTS[quant][0].block_size < 256:
        return shape
    wide = replace(shape, width=256, ffn=512, heads=4)
    return replace(wide, expert_ffn=256) if shape.experts else wide


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A model of a small shape, Q4_0: written as every other, 10 MB of it embedding."""
    path = tmp_path_factory.mktemp("synthetic") / "small.gguf"
    SyntheticModel("small", "q4_0", SMALL).write(path)
    yield path
    path.unlink()


# --- names and the cache ------------------------------------------------------------------------


def test_names() -> None:
    """Every shape and quantization has a name; `layers=` cuts the model and shows in the file."""
    for name, shape in SHAPES.items():
        for quant in QUANTS:
            model = SyntheticModel.parse(f"synthetic:{name}:{quant}")
            assert (model.name, model.quant, model.shape) == (name, quant, shape)
    cut = SyntheticModel.parse("synthetic:QWEN3-0.6B:Q4_0:layers=12")
    assert cut.shape.layers == 12
    assert cut.file_name != SyntheticModel.parse("synthetic:qwen3-0.6b:q4_0").file_name
    assert "layers12" in cut.file_name
    # Of a model whose last layers share keys, the first ones do not.
    shares = [
        SyntheticModel.parse(f"synthetic:gemma4-e4b:q4_0:layers={n}").shape.shared
        for n in (6, 24, 30, 42)
    ]
    assert shares == [0, 0, 6, 18]
    drafts = SyntheticModel.parse("synthetic:qwen3.5-4b:q4_0:layers=4:mtp=1")
    assert (drafts.shape.layers, drafts.shape.mtp) == (4, 1)
    assert "layers4-mtp" in drafts.file_name
    whole = SyntheticModel.parse("synthetic:qwen3-0.6b:q4_0:layers=28")
    assert whole == SyntheticModel.parse("synthetic:qwen3-0.6b:q4_0")


def test_wrong_names() -> None:
    """A wrong name says what is wrong with it and what there is."""
    for name, message in (
        ("qwen3-0.6b:q4_0", "not a synthetic model's name.*synthetic:NAME:QUANT"),
        ("synthetic:qwen3-0.6b", "not a synthetic model's name"),
        ("synthetic:qwen3-0.6b:q4_0:layers=2:x", "not a synthetic model's name"),
        ("synthetic:qwen9:q4_0", r"no synthetic model 'qwen9'; known: qwen3-0\.6b, "),
        ("synthetic:qwen3-0.6b:q7", "unknown quantization 'q7'; known: .*q8_0"),
        ("synthetic:qwen3-0.6b:q4_0:layers=0", "not layers=1 to layers=28"),
        ("synthetic:qwen3-0.6b:q4_0:layers=29", "not layers=1 to layers=28"),
        ("synthetic:qwen3-0.6b:q4_0:layers=-1", "not layers=1 to layers=28"),
        ("synthetic:qwen3-0.6b:q4_0:depth=1", "not layers=1 to layers=28"),
        ("synthetic:qwen3-0.6b:q4_0:mtp=1", r"mtp=1 is for qwen3\.5-4b, qwen3\.5-9b, "),
        ("synthetic:qwen3.5-4b:q4_0:mtp=2", "mtp=1 is for"),
    ):
        with pytest.raises(ModelError, match=message):
            SyntheticModel.parse(name)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-1.7b", 1_720_574_976),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3-8b", 8_190_735_360),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.1-8b", 8_030_261_248),
        ("smollm2-135m", 134_515_008),
        ("gemma3-1b", 999_885_952),
    ],
)
def test_parameter_counts(name: str, parameters: int) -> None:
    """The shapes have exactly as many weights as the published models they are named after."""
    model = SyntheticModel.parse(f"synthetic:{name}:f32")
    factors = model.shape.head_dim // 2 if model.shape.rope_factor else 0  # no weights
    assert model.nbytes() == 4 * (parameters + factors)


def test_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file appears whole under its name, is found again, and leaves no partial file."""
    monkeypatch.setitem(SHAPES, "small", SMALL_MOE)
    folder = tmp_path / "cache" / "synthetic"
    seen: list[tuple[int, int]] = []
    path = synthetic_path("synthetic:small:q8_0", folder, progress=lambda *at: seen.append(at))

    assert [p.name for p in folder.iterdir()] == [path.name]
    model = SyntheticModel.parse("synthetic:small:q8_0")
    assert [total for _, total in seen] == [model.nbytes()] * len(seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1][0] == model.nbytes()
    written = path.stat().st_mtime_ns
    assert synthetic_path("synthetic:small:q8_0", folder) == path
    assert path.stat().st_mtime_ns == written


def test_interrupted_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted write leaves nothing; what a killed process left is removed when it is old."""
    monkeypatch.setitem(SHAPES, "small", SMALL_MOE)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthetic_path("synthetic:small:q8_0", tmp_path, progress=interrupt)
    assert not list(tmp_path.iterdir())

    old, new = tmp_path / ".a.gguf.1.partial", tmp_path / ".b.gguf.2.partial"
    for partial in (old, new):
        partial.touch()
    os.utime(old, (0, time.time() - 2 * synthetic.STALE_S))
    path = synthetic_path("synthetic:small:q8_0", tmp_path)
    assert sorted(tmp_path.iterdir()) == [new, path]


def test_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that does not fit on the disk is refused with both sizes before a byte is written."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(synthetic.shutil, "disk_usage", lambda _: usage(10**10, 0, 10**9))
    with pytest.raises(ModelError, match=r"needs 17\.\d GB, .* has 1\.0 GB free"):
        synthetic_path("synthetic:qwen3-30b-a3b:q4_0", tmp_path)
    assert not list(tmp_path.iterdir())


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """A cache folder that is a file is an error that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match=r"cannot write .* to .*file"):
        synthetic_path("synthetic:qwen3-0.6b:q4_0", tmp_path / "file")


# --- the file -----------------------------------------------------------------------------------


def dequantized(path: Path, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    """Every tensor as the oracle dequantizes it; of those over the vocabulary, the first `rows`."""
    made = {}
    with open_gguf(path) as file:
        for name, info in file.tensors.items():
            data = file.data(name)
            shape = (rows, info.shape[1]) if info.shape[0] == N_VOCAB else info.shape
            kind = gguf.GGMLQuantizationType(info.type)
            values = gguf.quants.dequantize(data[: info.type.nbytes(shape)], kind)
            made[name] = values.astype(np.float32).reshape(shape)
    return made


@pytest.mark.parametrize("quant", quick(QUANTS, "q4_0", "q8_0", "q4_k_m", "q6_k", "mxfp4"))
def test_weights(tmp_path: Path, quant: str) -> None:
    """Matrices have mean 0 and deviation 0.02, norms are near 1, and no row repeats another."""
    path = tmp_path / "moe.gguf"
    SyntheticModel("moe", quant, room_for(quant, SMALL_MOE)).write(path)

    for name, values in dequantized(path, 4096).items():
        center = 1.0 if values.ndim == 1 else 0.0
        error = 6 * 0.02 / np.sqrt(values.size)
        assert abs(values.mean(dtype=np.float64) - center) < error, name
        assert 0.015 < values.std(dtype=np.float64) < 0.025, name
        if values.ndim > 1:
            rows = values.reshape(-1, values.shape[-1])
            assert len(np.unique(rows, axis=0)) == len(rows), name
    path.unlink()


@pytest.mark.parametrize("quant", QUANTS)
def test_weights_of_narrow_rows(tmp_path: Path, quant: str) -> None:
    """Where rows are no whole blocks of 256, as Gemma 3 1B's, other types are written as well."""
    path = tmp_path / "narrow.gguf"
    shape = synthetic.Shape(1, 288, 576, 2, 1, True, 64, family="gemma3", vocab=4096, window=512)
    SyntheticModel("narrow", quant, shape).write(path)

    for name, values in dequantized(path, 4096).items():
        error = 6 * 0.02 / np.sqrt(values.size)
        assert abs(values.mean(dtype=np.float64) - (values.ndim == 1)) < error, name
        assert values.ndim == 1 or 0.015 < values.std(dtype=np.float64) < 0.025, name


@pytest.mark.parametrize(("quant", "file_type"), [("q4_k_m", 15), ("q5_k_m", 17), ("q6_k", 18)])
def test_k_quant_recipes(quant: str, file_type: int) -> None:
    """A mixture has Q6_K where llama.cpp's quantizer puts it for 28 layers, and in the head."""
    assert QUANTS[quant] == (GGMLType[quant.removesuffix("_m").upper()], file_type)
    most = QUANTS[quant][0]
    better = {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27}
    model = SyntheticModel.parse(f"synthetic:qwen3-0.6b:{quant}")
    kinds = {name: kind for name, shape, kind in model.tensors() if len(shape) > 1}

    assert kinds.pop("token_embd.weight") == GGMLType.Q6_K  # it is the head too
    for name, kind in kinds.items():
        _, layer, part, _ = name.split(".")
        more = part in ("attn_v", "ffn_down") and int(layer) in better
        assert kind == (GGMLType.Q6_K if more else most), name
    untied = SyntheticModel.parse(f"synthetic:qwen3-8b:{quant}:layers=1")
    outer = {name: kind for name, _, kind in untied.tensors() if "blk" not in name}
    assert outer["token_embd.weight"] == most
    assert outer["output.weight"] == GGMLType.Q6_K


@pytest.mark.parametrize(
    ("quant", "file_type", "expected"),
    [
        ("q2_k", 10, {"attn_v": "Q4_K", "attn_output": "Q3_K", "ffn_down": "Q3_K"}),
        ("q3_k_m", 12, {"attn_v": "Q4_K", "attn_output": "Q4_K", "ffn_down": "Q4_K"}),
        ("iq4_xs", 30, {"attn_v": "Q5_K"}),
    ],
)
def test_recipes_of_few_bits(quant: str, file_type: int, expected: dict[str, str]) -> None:
    """In layer 5 of a model of four query heads to a KV head; the head is Q6_K."""
    assert QUANTS[quant][1] == file_type
    model = SyntheticModel.parse(f"synthetic:qwen3-8b:{quant}")
    kinds = {name: kind for name, shape, kind in model.tensors() if len(shape) > 1}

    assert kinds["output.weight"] == GGMLType.Q6_K
    assert kinds["token_embd.weight"] == QUANTS[quant][0]
    parts = {n.split(".")[2]: kind for n, kind in kinds.items() if n.startswith("blk.5.")}
    most = QUANTS[quant][0].name
    assert {n: k.name for n, k in parts.items()} == {n: expected.get(n, most) for n in parts}
    first = kinds["blk.0.ffn_down.weight"].name
    assert first == ("Q3_K" if quant == "q2_k" else "Q5_K")


def test_mxfp4_is_for_experts() -> None:
    """As in the published files: the experts alone are MXFP4, all other matrices Q8_0."""
    model = SyntheticModel.parse("synthetic:qwen3-30b-a3b:mxfp4_moe:layers=1")
    kinds = {name: kind for name, shape, kind in model.tensors() if kind != GGMLType.F32}

    for name, kind in kinds.items():
        assert kind == (GGMLType.MXFP4 if "_exps" in name else GGMLType.Q8_0), name
    assert sum(kind == GGMLType.MXFP4 for kind in kinds.values()) == 3
    assert QUANTS["mxfp4_moe"][1] == 38


def test_every_row_is_whole_blocks() -> None:
    """No row of any model ends within a block of its type."""
    for name in SHAPES:
        for quant in QUANTS:
            model = SyntheticModel.parse(f"synthetic:{name}:{quant}")
            assert all(shape[-1] % kind.block_size == 0 for _, shape, kind in model.tensors())


def hold_oracle(path: Path, model: SyntheticModel) -> None:
    """The `gguf` package finds every tensor of the model with its name, shape and type."""
    model.write(path)
    tensors = gguf.GGUFReader(path).tensors
    found = [(t.name, tuple(reversed(t.shape.tolist())), int(t.tensor_type)) for t in tensors]
    assert found == list(model.tensors())
    path.unlink()


@pytest.mark.slow
@pytest.mark.parametrize("shape", [SMALL, SMALL_MOE], ids=["dense", "moe"])
@pytest.mark.parametrize("quant", QUANTS)
def test_the_oracle_reads_the_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quant: str, shape: synthetic.Shape
) -> None:
    """The tensor table is right for every quantization (with few tokens: the oracle is slow)."""
    monkeypatch.setattr(synthetic, "N_VOCAB", 512)
    monkeypatch.setattr(synthetic, "made_up_vocabulary", lambda: (["a"] * 512, [1] * 512, ["a b"]))
    hold_oracle(tmp_path / "small.gguf", SyntheticModel("small", quant, room_for(quant, shape)))


@pytest.mark.exhaustive
def test_the_oracle_reads_a_whole_file(tmp_path: Path) -> None:
    """The same with the full vocabulary, as users have it; the oracle needs some seconds."""
    hold_oracle(tmp_path / "small.gguf", SyntheticModel("small", "q4_0", SMALL))


def test_same_bytes_every_time(tmp_path: Path, small: Path) -> None:
    """Two machines that write the same model have the same file."""
    again = tmp_path / "again.gguf"
    SyntheticModel("small", "q4_0", SMALL).write(again)
    with open_gguf(small) as one, open_gguf(again) as two:
        assert one.sha256() == two.sha256()
    again.unlink()


def test_metadata(small: Path) -> None:
    """The metadata describes the shape, under the keys that every engine reads."""
    with open_gguf(small) as file:
        assert file.string("general.architecture") == "qwen3"
        for key, value in (
            ("block_count", 2),
            ("embedding_length", 128),
            ("feed_forward_length", 256),
            ("attention.head_count", 2),
            ("attention.head_count_kv", 1),
            ("attention.key_length", 64),
            ("attention.value_length", 64),
            ("vocab_size", N_VOCAB),
        ):
            assert file.integer(f"qwen3.{key}") == value
        assert file.number("qwen3.rope.freq_base") == 1e6
        assert file.integer("general.file_type") == 2


def test_a_forward_pass_makes_sense(small: Path) -> None:
    """Logits of a plain forward pass are finite, spread out, and differ from token to token."""
    w = dequantized(small, 2000)
    heads, size = SMALL.heads, SMALL.head_dim
    tokens = np.arange(5, 1500, 100)

    def norm(x: np.ndarray[Any, Any], weight: str) -> np.ndarray[Any, Any]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[weight]

    x = w["token_embd.weight"][tokens]
    for layer in range(SMALL.layers):
        b = f"blk.{layer}."
        h = norm(x, b + "attn_norm.weight")
        q = norm((h @ w[b + "attn_q.weight"].T).reshape(-1, heads, size), b + "attn_q_norm.weight")
        k = norm((h @ w[b + "attn_k.weight"].T).reshape(-1, 1, size), b + "attn_k_norm.weight")
        v = h @ w[b + "attn_v.weight"].T
        scores = np.einsum("ihd,jd->hij", q, k[:, 0]) / np.sqrt(size)
        scores[:, np.triu_indices(len(tokens), 1)[0], np.triu_indices(len(tokens), 1)[1]] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed = np.einsum("hij,jd->ihd", weights, v).reshape(len(tokens), -1)
        x = x + mixed @ w[b + "attn_output.weight"].T
        h = norm(x, b + "ffn_norm.weight")
        gate, up = h @ w[b + "ffn_gate.weight"].T, h @ w[b + "ffn_up.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[b + "ffn_down.weight"].T
    logits = norm(x, "output_norm.weight") @ w["output.weight"].T

    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10
    assert abs(logits.mean()) < 0.05
    assert len(set(logits.argmax(-1).tolist())) > len(tokens) // 2


def test_llama(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Llama has no norms of queries and keys, and the rotary factors of Llama 3; it runs."""
    for name, value in (("LLAMA_MERGED", 2000), ("LLAMA_VOCAB", 2304)):
        monkeypatch.setattr(synthetic, name, value)
    model = SyntheticModel("small", "q8_0", SMALL_LLAMA)
    path = tmp_path / "small.gguf"
    model.write(path)
    with open_gguf(path) as file:
        assert file.string("general.architecture") == "llama"
        assert not any("q_norm" in name for name in file.tensors)
        factors = file.data("rope_freqs.weight").view("<f4")
        assert (factors[0], factors[-1]) == (1.0, 8.0)
        assert len(factors) == SMALL_LLAMA.head_dim // 2
        assert file.integer("tokenizer.ggml.eos_token_id") == 2002
    with Engine.load(path, threads=1, context=64) as engine:
        scored = engine.session().logits_for(engine.tokenizer.encode("a small model says noise"))

    assert np.isfinite(scored).all()
    assert scored.shape[1] == 2304


# --- vocabulary and template --------------------------------------------------------------------


@pytest.fixture(scope="module")
def tokenizer(small: Path) -> Tokenizer:
    with open_gguf(small) as file:
        return Tokenizer.from_gguf(file)


def test_control_tokens_have_their_real_ids(tokenizer: Tokenizer) -> None:
    """The ids that Qwen's templates and grammars know are where they are in Qwen3."""
    tokens, kind = tokenizer.vocabulary.tokens, tokenizer.vocabulary.kind
    assert tokenizer.n_vocab == N_VOCAB == 151_936
    for token, text, expected in (
        (151_643, "<|endoftext|>", TokenType.CONTROL),
        (151_644, "<|im_start|>", TokenType.CONTROL),
        (151_645, "<|im_end|>", TokenType.CONTROL),
        (151_657, "<tool_call>", TokenType.USER_DEFINED),
        (151_658, "</tool_call>", TokenType.USER_DEFINED),
        (151_665, "<tool_response>", TokenType.USER_DEFINED),
        (151_666, "</tool_response>", TokenType.USER_DEFINED),
        (151_667, "<think>", TokenType.USER_DEFINED),
        (151_668, "</think>", TokenType.USER_DEFINED),
    ):
        assert (tokens[token], kind(token)) == (text, expected)
        assert tokenizer.encode(text, special=True) == [token]
    assert (tokenizer.bos, tokenizer.eos, tokenizer.add_bos) == (151_643, 151_645, False)
    assert tokenizer.stop_ids == {151_643, 151_645}


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    """Any text is encoded and comes back; English takes clearly fewer tokens than bytes."""
    text = Path(__file__).read_text(encoding="utf-8") + "Größe 世界 🦙\x00\n"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) < 0.8 * len(text)
    assert tokenizer.control_ids.isdisjoint(ids)


def test_template() -> None:
    """The template renders tools, calls and results in the Hermes form."""
    tool = {"type": "function", "function": {"name": "read_file", "parameters": {}}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is wrong?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"type": "function", "function": {"name": "read_file", "arguments": {"path": "a"}}},
                {"function": {"name": "list_dir", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "content": "1\tok"},
        {"role": "tool", "content": "a\nb"},
        {"role": "assistant", "content": "Nothing."},
    ]
    template = jinja2.Environment().from_string(CHAT_TEMPLATE)

    rendered = template.render(messages=messages, tools=[tool], add_generation_prompt=True)

    head, _, rest = rendered.partition("<|im_end|>\n")
    assert head.startswith("<|im_start|>system\nBe brief.\n")
    assert '"name": "read_file"' in head
    assert rest == (
        "<|im_start|>user\nWhat is wrong?<|im_end|>\n"
        "<|im_start|>assistant\n"
        '<tool_call>\n{"name": "read_file", "arguments": {"path": "a"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "list_dir", "arguments": {}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n1\tok\n</tool_response>\n"
        "<tool_response>\na\nb\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nNothing.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    plain = template.render(messages=messages[1:2])
    assert plain == "<|im_start|>user\nWhat is wrong?<|im_end|>\n"


FAMILIES = {
    "gpt-oss": {"head_dim": 64, "experts": 4, "experts_used": 2, "expert_ffn": 64},
    "gemma4": {"head_dim": 32, "wide": (64, 1), "own": 64, "shared": 2, "layers": 14},
    "gemma4 with experts": {"head_dim": 32, "wide": (64, 1), "layers": 6, "experts": 4,
                            "experts_used": 2, "expert_ffn": 64},
}  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_families(tmp_path: Path, family: str) -> None:
    """Shapes whose layers are not all alike: the file has all that a model asks for; it runs."""
    more = {"family": family.partition(" ")[0], **FAMILIES[family]}
    small = replace(SMALL, **{"layers": 4, "vocab": 2304, "window": 32, **more})
    path = tmp_path / "small.gguf"
    SyntheticModel("small", "q8_0", small).write(path)
    with Engine.load(path, threads=1, context=64) as engine:
        scored = engine.session().logits_for(list(range(50)))

    assert np.isfinite(scored).all()


def test_gemma3(tmp_path: Path) -> None:
    """A Gemma 3 has windows in five of six layers, and norms of what leaves a half; it runs."""
    small = replace(SMALL, layers=6, tied=True, family="gemma3", vocab=2304, window=32)
    path = tmp_path / "small.gguf"
    SyntheticModel("small", "q8_0", small).write(path)
    with open_gguf(path) as file:
        assert file.string("general.architecture") == "gemma3"
        assert "blk.5.post_ffw_norm.weight" in file.tensors
        assert file.integer("gemma3.attention.sliding_window") == 32
    with Engine.load(path, threads=1, context=64) as engine:
        assert engine.loaded.network.windows == [32] * 5 + [0]
        scored = engine.session().logits_for(list(range(50)))

    assert np.isfinite(scored).all()
    assert scored.shape == (50, 2304)
