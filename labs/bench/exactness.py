"""usage: python -m labs.bench.exactness MODEL.gguf --texts FOLDER [--kv bf16 k16v8 q8] [--tokens N]

Measure how far logits are from the same weights in float32: the mean KL divergence of each text
(`FOLDER/KIND.txt`) for each format of the KV cache, and its ratio to that of a float32 cache.

The reference is `transformers` in float32 on the dequantized weights. Products with 8-bit
activations alone give some KL, and two caches that round nothing differ by about as much where
sums are added in another order: the row of the float32 cache says how much that is.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from triplepoint import Engine

PIECE = 512  # tokens of a text that are computed at once, each piece from an empty cache


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Compute log probabilities of rows: float64 [rows, n_vocab]."""
    x = logits.astype(np.float64)
    x -= x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


def divergence(expected: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Compute each row's KL divergence, in nats, of `got` from what is expected: float64 [rows]."""
    p, q = log_softmax(expected), log_softmax(got)
    return np.maximum(0.0, (np.exp(p) * (p - q)).sum(axis=1))


def reference(path: Path, texts: dict[str, list[list[int]]]) -> Iterator[np.ndarray]:
    """Yield the logits of each piece by `transformers`: float32 [tokens, n_vocab]."""
    import torch
    from transformers import AutoModelForCausalLM

    given = {"dtype": torch.float32, "gguf_file": path.name}
    network: Any = AutoModelForCausalLM.from_pretrained(path.parent, **given)
    for pieces in texts.values():
        for ids in pieces:
            with torch.inference_mode():
                yield network(torch.tensor([ids])).logits[0].numpy()


def cut(path: Path, folder: Path, tokens: int) -> dict[str, list[list[int]]]:
    """Return the first `tokens` tokens of each text, in pieces."""
    with Engine.load(path, context=PIECE) as engine:
        found = {p.stem: engine.tokenizer.encode(p.read_text()) for p in folder.glob("*.txt")}
    return {
        kind: [ids[at : at + PIECE] for at in range(0, min(len(ids), tokens), PIECE)]
        for kind, ids in sorted(found.items())
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--kv", nargs="+", default=["bf16", "k16v8", "q8"])
    parser.add_argument("--tokens", type=int, default=2048, help="of each text (default: 2048)")
    args = parser.parse_args()
    texts = cut(args.model, args.texts, args.tokens)
    expected = reference(args.model, texts)
    formats = ["f32", *args.kv]
    engines = {kv: Engine.load(args.model, kv=kv, context=PIECE) for kv in formats}
    far: dict[str, dict[str, list[float]]] = {kv: {kind: [] for kind in texts} for kv in formats}
    same = dict.fromkeys(formats, 0)
    for kind, pieces in texts.items():
        for ids in pieces:
            rows = next(expected)
            for kv, engine in engines.items():
                got = engine.session().logits_for(ids)
                far[kv][kind].extend(divergence(rows, got))
                same[kv] += int((rows.argmax(axis=1) == got.argmax(axis=1)).sum())
        means = {kv: float(np.mean(far[kv][kind])) for kv in formats}
        shown = ", ".join(f"{kv} {mean:.2e}" for kv, mean in means.items())
        print(f"{kind:12s} {len(far['f32'][kind]):6d} tokens  {shown}", flush=True)
    for kv in formats:
        every = np.concatenate([far[kv][kind] for kind in texts])
        ratios = [np.mean(far[kv][kind]) / np.mean(far["f32"][kind]) for kind in texts]
        print(
            f"{kv:5s} mean KL {every.mean():.2e}, median {np.median(every):.1e}, max "
            f"{every.max():.2f}; to f32 by text {np.median(ratios):.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}); top-1 {same[kv] / len(every):.1%} of {len(every)}"
        )


if __name__ == "__main__":
    main()
