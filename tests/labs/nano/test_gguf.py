"""The embedded model's file, and the way it is written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triplepoint.runtime.nano
from labs.nano.bpe import CONTROL, TAGS

gguf = pytest.importorskip("gguf", reason="the gguf package is the oracle here")
FOLDER = Path(triplepoint.runtime.nano.__file__).parent
MODEL = FOLDER / "nano.gguf"


@pytest.fixture(scope="module")
def fields() -> dict[str, Any]:
    reader = gguf.GGUFReader(MODEL)
    return {name: field.contents() for name, field in reader.fields.items()}


def test_the_file_is_small_and_says_what_it_is(fields: dict[str, Any]) -> None:
    """At most 8 MB; architecture, name, licence and context are in the metadata."""
    assert MODEL.stat().st_size <= 8_000_000
    assert fields["general.architecture"] == "qwen3"
    assert fields["general.name"] == "triplepoint-nano"
    assert fields["general.license"] == "mit"
    assert fields["qwen3.context_length"] >= 2048


def test_the_tokenizer_is_complete(fields: dict[str, Any]) -> None:
    """Vocabulary, types, merges and special ids agree with each other."""
    tokens = fields["tokenizer.ggml.tokens"]
    types = dict(zip(tokens, fields["tokenizer.ggml.token_type"], strict=True))
    assert fields["tokenizer.ggml.pre"] == "qwen2"
    assert len(tokens) == fields["qwen3.vocab_size"]
    assert {types[text] for text in CONTROL} == {3}
    assert {types[text] for text in TAGS} == {4}
    assert tokens[fields["tokenizer.ggml.eos_token_id"]] == "<|im_end|>"
    assert tokens[fields["tokenizer.ggml.padding_token_id"]] == "<|endoftext|>"
    known = set(tokens)
    for merge in fields["tokenizer.ggml.merges"]:
        left, _, right = merge.partition(" ")
        assert {left, right, left + right} <= known


def test_the_file_carries_this_folder_s_template(fields: dict[str, Any]) -> None:
    """The template in the file is template.jinja."""
    assert fields["tokenizer.chat_template"] == (FOLDER / "template.jinja").read_text()


def test_tensors_are_those_of_qwen3() -> None:
    """Names and shapes are llama.cpp's; matrices are Q8_0, norms F32; the head is tied."""
    reader = gguf.GGUFReader(MODEL)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    layers = reader.fields["qwen3.block_count"].contents()
    parts = "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output ffn_norm ffn_gate"
    wanted = {"token_embd.weight", "output_norm.weight"} | {
        f"blk.{layer}.{part}.weight"
        for layer in range(layers)
        for part in (*parts.split(), "ffn_up", "ffn_down")
    }
    assert set(tensors) == wanted
    for name, tensor in tensors.items():
        expected = "F32" if name.endswith("norm.weight") else "Q8_0"
        assert tensor.tensor_type.name == expected


def test_weights_are_read_as_the_gguf_package_reads_them() -> None:
    """Every tensor of the file that ships, dequantised, is the oracle's bit for bit."""
    from labs.nano.export import read_weights

    mine = read_weights(MODEL)
    tensors = gguf.GGUFReader(MODEL).tensors
    assert set(mine) == {tensor.name for tensor in tensors}
    for tensor in tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(mine[tensor.name], expected)


def test_a_written_file_gives_the_same_logits(tmp_path: Path) -> None:
    """A random model, written as F32 and Q8_0 and read back, computes what it computed before."""
    torch = pytest.importorskip("torch", reason="the model is defined in torch")
    from labs.nano.bpe import learn
    from labs.nano.export import largest_difference, write_gguf
    from labs.nano.judge import load_gguf
    from labs.nano.model import Nano, NanoConfig

    vocabulary = learn(["some text to learn from, some other text"] * 3, size=270)
    config = NanoConfig(
        vocabulary=len(vocabulary.tokens), width=64, layers=2, heads=2, kv_heads=1, ffn=96
    )
    torch.manual_seed(0)
    model = Nano(config)
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.1)
    weights = {name: w.detach().numpy() for name, w in model.named_parameters()}
    ids = np.random.default_rng(1).integers(0, config.vocabulary, 50).tolist()
    for quant, limit in (("F32", 1e-6), ("Q8_0", 0.02)):
        path = tmp_path / f"{quant}.gguf"
        write_gguf(path, config, weights, vocabulary, quant=quant)
        assert largest_difference(model, path, ids) < limit
    back, tokens = load_gguf(tmp_path / "F32.gguf")
    assert back.config == config
    assert tokens == vocabulary


def test_a_cached_step_is_the_whole_forward_pass() -> None:
    """Logits from a growing key-value cache equal those of one pass over everything."""
    torch = pytest.importorskip("torch", reason="the model is defined in torch")
    from labs.nano.model import Nano, NanoConfig

    config = NanoConfig(vocabulary=64, width=64, layers=2, heads=2, kv_heads=1, ffn=96)
    torch.manual_seed(0)
    model = Nano(config)
    for weight in model.parameters():
        if weight.ndim == 2:
            torch.nn.init.normal_(weight, std=0.1)
    ids = torch.randint(0, 64, (1, 12))
    cache: list[Any] = []
    with torch.no_grad():
        whole = model(ids)[0]
        torch.testing.assert_close(model.extend(ids[:, :9], cache), whole[8])
        for place in range(9, 12):
            torch.testing.assert_close(model.extend(ids[:, place : place + 1], cache), whole[place])


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("tokens", [1, 40, 128, 300, 1100])
def test_attention_by_blocks_is_attention(tokens: int, apart: bool) -> None:
    """Training's own attention, values and gradients, is torch's with a causal mask, also where
    conversations do not see each other."""
    torch = pytest.importorskip("torch", reason="the model is defined in torch")
    from labs.nano.model import causal_attention

    torch.manual_seed(0)
    shapes = (2, 4, tokens, 16), (2, 2, tokens, 16), (2, 2, tokens, 16)
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    seen = None
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril().expand(2, 1, -1, -1)
    if apart:
        talks = torch.arange(tokens).expand(2, -1) * torch.tensor([[3], [5]]) // tokens
        seen = (talks[:, :, None] == talks[:, None]).double()
        mask = mask & seen.bool()[:, None]
    found = causal_attention(q, k, v, seen)
    wide = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    expected = torch.nn.functional.scaled_dot_product_attention(q, *wide, attn_mask=mask)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6, check_dtype=False)
    change = torch.randn_like(expected)
    gradients = (torch.autograd.grad(out, (q, k, v), change) for out in (found, expected))
    for mine, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
