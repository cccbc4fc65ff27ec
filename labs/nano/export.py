"""Write a checkpoint as GGUF: `python -m labs.nano.export DIR nano.gguf`."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from triplepoint.runtime import nano
from triplepoint.runtime.conversation import answer_forms
from triplepoint.runtime.gguf.file import GGMLType
from triplepoint.runtime.gguf.open import open_gguf

from .answers import FORMS
from .bpe import CONTROL, TAGS, Vocabulary

if TYPE_CHECKING:
    from .model import Nano, NanoConfig

TEMPLATE = Path(nano.__file__).with_name("template.jinja")
NORMAL, CONTROL_TYPE, USER_DEFINED = 1, 3, 4


def load_checkpoint(folder: Path, *, average: bool = True) -> tuple[Nano, Vocabulary]:
    """Load the model of a training folder, by default with its averaged weights."""
    import torch

    from .model import Nano, NanoConfig

    state = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
    model = Nano(NanoConfig(**state["config"]))
    model.load_state_dict(state["average" if average else "model"], strict=True)
    return model.eval(), Vocabulary.load(folder / "vocabulary.json")


def write_gguf(
    path: Path,
    config: NanoConfig,
    weights: Mapping[str, np.ndarray],
    vocabulary: Vocabulary,
    *,
    quant: str = "Q8_0",
) -> None:
    """Write a `qwen3` GGUF, tied output head; matrices as `quant` (Q8_0 or F32), norms F32."""
    import gguf

    kind = gguf.GGMLQuantizationType[quant]
    file = gguf.GGUFWriter(path, "qwen3")
    file.add_name("triplepoint-nano")
    file.add_description("A demonstration model that answers questions about files by tool calls")
    file.add_license("mit")
    file.add_file_type(gguf.LlamaFileType[f"MOSTLY_{quant}" if quant != "F32" else "ALL_F32"])
    file.add_context_length(config.context)
    file.add_embedding_length(config.width)
    file.add_block_count(config.layers)
    file.add_feed_forward_length(config.ffn)
    file.add_head_count(config.heads)
    file.add_head_count_kv(config.kv_heads)
    file.add_key_length(config.head_dim)
    file.add_value_length(config.head_dim)
    file.add_rope_freq_base(config.rope_base)
    file.add_layer_norm_rms_eps(config.epsilon)
    file.add_vocab_size(config.vocabulary)
    _add_tokenizer(file, vocabulary)
    for name, weight in weights.items():
        if weight.ndim == 2:
            data = gguf.quants.quantize(weight, kind)
            file.add_tensor(name, data, raw_dtype=kind)
        else:
            file.add_tensor(name, weight.astype(np.float32))
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def _add_tokenizer(file: Any, vocabulary: Vocabulary) -> None:
    ids = vocabulary.ids
    types = [NORMAL] * len(vocabulary.tokens)
    for text in CONTROL:
        types[ids[text]] = CONTROL_TYPE
    for text in TAGS:
        types[ids[text]] = USER_DEFINED
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("qwen2")
    file.add_token_list(list(vocabulary.tokens))
    file.add_token_types(types)
    file.add_token_merges([f"{left} {right}" for left, right in vocabulary.merges])
    file.add_bos_token_id(ids["<|endoftext|>"])
    file.add_eos_token_id(ids["<|im_end|>"])
    file.add_pad_token_id(ids["<|endoftext|>"])
    file.add_add_bos_token(False)
    file.add_chat_template(TEMPLATE.read_text())
    file.add_string(answer_forms.KEY, FORMS)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """Read every tensor of a file of `write_gguf` as float32, rows first.

    Without the gguf package, so that training goes on from a file where only torch is.
    """
    out: dict[str, np.ndarray] = {}
    with open_gguf(path) as file:
        for name, tensor in file.tensors.items():
            data = file.data(name)
            if tensor.type == GGMLType.Q8_0:
                blocks = data.reshape(-1, GGMLType.Q8_0.type_size)
                scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
                values = blocks[:, 2:].copy().view(np.int8) * scales
            elif tensor.type == GGMLType.F32:
                values = data.copy().view(np.float32)
            else:
                raise ValueError(f"{path}: {name} is {tensor.type.name}; nano is Q8_0 or F32")
            out[name] = values.reshape(tensor.shape).astype(np.float32)
    return out


def largest_difference(model: Nano, path: Path, ids: list[int]) -> float:
    """Return the largest logit difference between `model` and the file, relative to their range."""
    import torch

    from .model import Nano

    stored = Nano(model.config)
    weights = {name: torch.from_numpy(w.copy()) for name, w in read_weights(path).items()}
    stored.load_state_dict(weights, strict=True)
    with torch.no_grad():
        expected = model(torch.tensor([ids]))
        found = stored.eval()(torch.tensor([ids]))
    span = (expected.max() - expected.min()).item()
    return (found - expected).abs().max().item() / span


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a nano checkpoint as GGUF.")
    parser.add_argument("checkpoint", type=Path, help="folder that training wrote")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--quant", choices=("Q8_0", "F32"), default="Q8_0")
    parser.add_argument("--last", action="store_true", help="last weights, not the average")
    args = parser.parse_args()
    model, vocabulary = load_checkpoint(args.checkpoint, average=not args.last)
    weights = {name: w.detach().numpy() for name, w in model.named_parameters()}
    write_gguf(args.gguf, model.config, weights, vocabulary, quant=args.quant)
    ids = np.random.default_rng(0).integers(0, model.config.vocabulary, 200).tolist()
    print(
        f"{args.gguf}: {args.gguf.stat().st_size:,} bytes, "
        f"{sum(w.size for w in weights.values()):,} parameters, logits off by at most "
        f"{largest_difference(model, args.gguf, ids):.2%} of their range"
    )


if __name__ == "__main__":
    main()
