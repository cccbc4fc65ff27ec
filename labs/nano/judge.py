"""nano in torch, judged: from a checkpoint or from the GGUF that was made of it."""

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
    """The first position whose token the model would not have produced, None if there is none."""
    best = model(torch.tensor([case.ids[:-1]]))[0].argmax(-1).tolist()
    for place, (expected, target) in enumerate(zip(case.ids[1:], case.targets[1:], strict=True)):
        if target and best[place] != expected:
            return place + 1
    return None


@torch.no_grad()
def produced(model: Nano, ids: list[int], stop: int, limit: int = 160) -> list[int]:
    """What the model writes after `ids`, greedily, up to and with `stop`."""
    cache: list[tuple[torch.Tensor, torch.Tensor]] = []
    new: list[int] = []
    feed = ids
    while len(new) < limit and (not new or new[-1] != stop):
        logits = model.extend(torch.tensor([feed]), cache)
        new.append(int(logits.argmax()))
        feed = new[-1:]
    return new


def load_gguf(path: Path) -> tuple[Nano, Vocabulary]:
    """The model and vocabulary of a GGUF that `export` wrote."""
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
    """A wrong case: the question, what was expected from there on, what came instead."""
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
