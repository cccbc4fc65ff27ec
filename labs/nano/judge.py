"""Evaluation of nano in torch, from a checkpoint or from its GGUF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from triplepoint.runtime.gguf.open import open_gguf

from .batches import Encoder
from .bpe import Vocabulary
from .export import read_weights
from .held_out import Case
from .model import Nano, NanoConfig


@torch.no_grad()
def first_miss(model: Nano, case: Case) -> int | None:
    """Return the first position whose token the model would not produce, None if there is none."""
    best = model(torch.tensor([case.ids[:-1]]))[0].argmax(-1).tolist()
    for place, (expected, target) in enumerate(zip(case.ids[1:], case.targets[1:], strict=True)):
        if target and best[place] != expected:
            return place + 1
    return None


@torch.no_grad()
def produced(model: Nano, ids: list[int], stop: int, limit: int = 160) -> list[int]:
    """Generate greedily after `ids`, up to and including `stop`."""
    cache: list[tuple[torch.Tensor, torch.Tensor]] = []
    new: list[int] = []
    feed = ids
    while len(new) < limit and (not new or new[-1] != stop):
        logits = model.extend(torch.tensor([feed]), cache)
        new.append(int(logits.argmax()))
        feed = new[-1:]
    return new


def load_gguf(path: Path) -> tuple[Nano, Vocabulary]:
    """Load the model and vocabulary of a GGUF of `export`."""
    with open_gguf(path) as file:
        metadata: Any = file.metadata
        vocabulary = Vocabulary.of_gguf(metadata)

        def whole(name: str) -> int:
            return int(metadata[f"qwen3.{name}"])

        config = NanoConfig(
            vocabulary=len(vocabulary.tokens),
            width=whole("embedding_length"),
            layers=whole("block_count"),
            heads=whole("attention.head_count"),
            kv_heads=whole("attention.head_count_kv"),
            head_dim=whole("attention.key_length"),
            ffn=whole("feed_forward_length"),
            rope_base=float(metadata["qwen3.rope.freq_base"]),
            context=whole("context_length"),
        )
    model = Nano(config)
    weights = {name: torch.from_numpy(w.copy()) for name, w in read_weights(path).items()}
    model.load_state_dict(weights, strict=True)
    return model.eval(), vocabulary


def show_miss(model: Nano, encoder: Encoder, case: Case, place: int) -> None:
    """Show a wrong case: the question, the expected text from there on, the actual text."""
    stop = encoder.ids["<|im_end|>"]
    start = place
    while case.targets[start - 1]:
        start -= 1
    end = case.ids.index(stop, place)
    write = encoder.tokenizer.decode
    print(f"  Q {' / '.join(item.question for item in case.rounds)}")
    print(f"    expected {write([i for i in case.ids[start:end] if i < encoder.first_special])!r}")
    got = produced(model, case.ids[:start], stop)
    print(f"    got      {write([i for i in got if i < encoder.first_special])!r}")
