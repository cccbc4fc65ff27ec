"""Train one of `trained_small`'s models: `python tests/helpers/train_small.py NAME OUT --steps N`.

First sequences of random words that come again, then conversations of nano's corpus; only the
model's own words count much. Stops and goes on at any time: run the same command again, and it
resumes from OUT/checkpoint.pt. At the end OUT/checkpoint/ is a Hugging Face checkpoint of the
averaged weights, and OUT/NAME.gguf what `runtime.convert` makes of it; `--export` writes both of
what there is. PYTHONPATH must have the folder in which the package is called `triplepoint`.

How the files in tests/data were made, on 22 November 2026:

    python tests/helpers/train_small.py qwen35-small OUT --steps 1900
    python tests/helpers/train_small.py gpt-oss-small OUT --steps 1900

in one thread each, with torch 2.13.0, transformers 5.23.0 and Python 3.11.7 (from whose library
nano's corpus has its words), about half an hour each beside other work. Weights are begun with
seed 1, and the batch of a step follows from the step's number. The heads that copy were not
found by training: `begin` sets up first ones. Training learned the format, which tool to call, and
what of a text is to be copied.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2]))  # labs

from helpers.trained_small import MODELS, Small, encoder, talk

from labs.nano.batches import OTHER, TARGET
from labs.nano.bpe import Vocabulary, plain_tokenizer
from labs.nano.muon import orthogonal
from triplepoint.runtime.convert.convert import convert

REPEATS = 64, 32
"""Tokens and sequences of a batch of random words that come again."""
TALKS, LONGER = (256, 10), (480, 5)
"""The same of conversations, of one round mostly and of two or three."""
SIZE = 0.3
MATRIX_RATE, OTHER_RATE, MOMENTUM = 0.015, 3e-3, 0.95
WARMUP, CURRICULUM, DECAY_FROM, EMA = 50, 1100, 0.6, 0.995
SAVE_EVERY = 180.0

Batch = tuple[np.ndarray, np.ndarray]
"""Ids [sequences, tokens + 1], and the weight of each in the loss: 0 is not scored."""


def repeats(name: str, step: int) -> Batch:
    """Rows of a few spans of random words in any order; what follows within a known one counts."""
    tokens, count = REPEATS
    rng = np.random.default_rng(step)
    plain = len(encoder(name).vocabulary.tokens) - 8
    ids = np.zeros((count, tokens + 1), np.int64)
    weights = np.zeros(ids.shape, np.float32)
    for row, weight in zip(ids, weights, strict=True):
        spans = [rng.integers(0, plain, rng.integers(3, 13)) for _ in range(rng.integers(1, 5))]
        known: set[int] = set()
        at = 0
        while at <= tokens:
            number = int(rng.integers(len(spans)))
            span = spans[number][: tokens + 1 - at]
            row[at : at + len(span)] = span
            if number in known:
                weight[at + 1 : at + len(span)] = TARGET  # the first is a matter of chance
            known.add(number)
            at += len(span)
    return ids, weights


def talks(name: str, step: int, other: float, size: tuple[int, int]) -> Batch:
    """Conversations of one to three rounds; `other`: how much counts what the model only reads."""
    tokens, count = size
    ids = np.zeros((count, tokens + 1), np.int64)
    weights = np.zeros(ids.shape, np.float32)
    for n in range(count):
        one = talk(name, step * count + n, 3, longest=tokens + 1)
        ids[n, : len(one.ids)] = one.ids
        weights[n, : len(one.ids)] = np.where(one.targets, TARGET, other)
    return ids, weights


def _turned(rows: int, columns: int) -> Tensor:
    """Random rows (or columns) at right angles."""
    return torch.nn.init.orthogonal_(torch.empty(rows, columns))


@torch.no_grad()
def begin(c: dict[str, Any], named: dict[str, Tensor]) -> None:
    """First weights: the first layer says what word was before, the second looks where it was that.

    So the heads that copy need not be found, which takes most of the time: training makes of them
    what conversations need. What other layers add begins at 0.
    """
    width, dim = c["hidden_size"], c["head_dim"]
    rows = c["num_attention_heads"] * dim
    for name, p in named.items():
        if any(part in name for part in ("o_proj.weight", "out_proj.weight", "down_proj")):
            p.zero_()
    embedding = named["model.embed_tokens.weight"].normal_(0, SIZE)
    named["model.norm.weight"].sub_(1 - 0.05 / SIZE)
    into, out = _turned(width, width), _turned(width, width)
    sinks = c["model_type"] == "gpt_oss"
    if sinks:
        _attend_before(_part(named, "0.self_attn."), into, out, dim)
    else:
        embedding[:, 0] = 3 * SIZE  # the same for all words: what needs no word reads it
        keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
        _recur_before(_part(named, "0.linear_attn."), into, out, keys)
    at = _part(named, "1.self_attn.")
    match, copied = _turned(rows, width), _turned(rows, width)
    match[:, 0] = 0
    before = match @ (out @ into).T
    at["v_proj.weight"].copy_(copied)
    at["o_proj.weight"].copy_(10 * SIZE * copied.T)
    if sinks:
        at["q_proj.weight"].copy_(1.5 * match)
        at["k_proj.weight"].copy_(1.5 * before)
        return
    before[:, 0] = 0
    queries, gates = at["q_proj.weight"].view(-1, 2, dim, width).unbind(1)
    queries.copy_(match.view(-1, dim, width))
    gates.mul_(0.3)[..., 0] = 1
    at["k_proj.weight"].copy_(before)
    for part in "qk":
        at[f"{part}_norm.weight"].fill_(0.5)


def _part(named: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    prefix = f"model.layers.{prefix}"
    return {k.removeprefix(prefix): p for k, p in named.items() if k.startswith(prefix)}


def _attend_before(at: dict[str, Tensor], into: Tensor, out: Tensor, dim: int) -> None:
    """Attention whose biases, turned by their positions, fit best one position back."""
    half, heads = dim // 2, len(at["q_proj.bias"]) // dim
    speed = 10000.0 ** (-torch.arange(half) / half)
    strength = 5.5 * (torch.arange(half) < 8)
    here = torch.cat([strength, torch.zeros(half)])
    back = torch.cat([strength * torch.cos(speed), -strength * torch.sin(speed)])
    for part, bias in (("q", back), ("k", here)):
        at[f"{part}_proj.bias"].copy_(bias.repeat(heads))
        at[f"{part}_proj.weight"].mul_(0.1)
    at["v_proj.weight"].copy_(into)
    at["o_proj.weight"].copy_(SIZE * out)


def _recur_before(at: dict[str, Tensor], into: Tensor, out: Tensor, keys: int) -> None:
    """A state under one key, the same for all words, whose value the convolution takes from the
    word before."""
    rows, taps = at["in_proj_qkv.weight"], at["conv1d.weight"].mul_(0.1)
    rows[: 2 * keys].mul_(0.1)
    rows[: 2 * keys, 0] = torch.randn(keys).repeat(2)
    rows[2 * keys :] = 0.3 * into
    taps[: 2 * keys, 0, -1] = 1
    taps[2 * keys :, 0, -2] = 1
    for part in ("z", "b"):
        at[f"in_proj_{part}.weight"].mul_(0.3)[:, 0] = 1
    at["out_proj.weight"].copy_(SIZE / 3 * out)


class Trainer:
    """The model, what its optimizers keep, and the average of its weights."""

    def __init__(self, small: Small, out: Path, steps: int) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        torch.manual_seed(1)
        self.small, self.out, self.steps, self.step = small, out, steps, 0
        attention = "eager" if small.config["model_type"] == "gpt_oss" else "sdpa"
        settings = {**small.config, "vocab_size": len(encoder(small.name).vocabulary.tokens)}
        settings |= {"initializer_range": 0.08, "attn_implementation": attention}
        self.model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings)).float()
        self.named = dict(self.model.named_parameters())
        begin(small.config, self.named)
        # Gates of few rows, routers and convolutions are no matrices that a step should turn.
        self.matrices = {
            name: p for name, p in self.named.items()
            if ".layers." in name and p.ndim >= 2 and min(p.shape[-2:]) >= 32 and "bias" not in name
        }  # fmt: skip
        self.velocity = {name: torch.zeros_like(p) for name, p in self.matrices.items()}
        others = [p for name, p in self.named.items() if name not in self.matrices]
        self.adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0)
        self.average = {name: p.detach().clone() for name, p in self.named.items()}
        self.load()

    @property
    def parts(self) -> dict[str, Any]:
        """What has a state."""
        return {"model": self.model, "adam": self.adam}

    def load(self) -> None:
        path = self.out / "checkpoint.pt"
        if path.exists():
            state = torch.load(path, weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(state[name])
            self.velocity, self.average, self.step = (
                state[name] for name in ("velocity", "average", "step")
            )

    def save(self) -> None:
        state = {name: part.state_dict() for name, part in self.parts.items()}
        state |= {"velocity": self.velocity, "average": self.average, "step": self.step}
        self.out.mkdir(parents=True, exist_ok=True)
        torch.save(state, self.out / "checkpoint.part")
        os.replace(self.out / "checkpoint.part", self.out / "checkpoint.pt")

    def batch(self) -> Batch:
        """Repeats alone at first, then ever fewer; longer conversations later."""
        rng, share = random.Random(self.step), self.step / CURRICULUM
        if share < 0.03 or rng.random() < 0.2 * (1 - share):
            return repeats(self.small.name, self.step)
        longer = 0 if share < 0.4 else 0.35 if share < 1 else 0.7
        size = LONGER if rng.random() < longer else TALKS
        return talks(self.small.name, self.step, 0.1 if share < 0.4 else OTHER, size)

    def update(self) -> tuple[float, float, int]:
        """One step: the mean loss of what counts in full, how much of that is right, tokens."""
        ids, weights = (torch.from_numpy(array) for array in self.batch())
        scored = weights[:, 1:] > 0
        labels, scale = ids[:, 1:][scored], weights[:, 1:][scored]
        sparse = self.small.config["model_type"] == "gpt_oss"
        more = {"output_router_logits": True} if sparse else {}
        out = self.model.model(input_ids=ids[:, :-1], use_cache=False, **more)
        logits = self.model.lm_head(out.last_hidden_state[scored])
        losses = F.cross_entropy(logits, labels, reduction="none")
        loss = (losses * scale).sum() / scale.sum()
        if sparse:
            loss = loss + 0.01 * _balance(out.router_logits, self.small.config)
        loss.backward()
        self._move(min(1.0, (self.step + 1) / WARMUP))
        full = scale == TARGET
        right = (logits.argmax(-1) == labels)[full].float().mean().item()
        return losses[full].mean().item(), right, ids.numel()

    @torch.no_grad()
    def _move(self, rate: float) -> None:
        rate *= max(0.02, min(1.0, (1 - self.step / self.steps) / (1 - DECAY_FROM)))
        for name, p in self.matrices.items():
            assert p.grad is not None
            velocity = self.velocity[name].lerp_(p.grad, 1 - MOMENTUM)
            change = p.grad.lerp(velocity, MOMENTUM)
            change = orthogonal(change if change.ndim == 3 else change[None]).view(p.shape)
            rows, columns = p.shape[-2:] if p.ndim == 2 else p.shape[:-3:-1]
            p.sub_(change, alpha=MATRIX_RATE * rate * max(1.0, rows / columns) ** 0.5)
            p.grad = None
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * rate
        torch.nn.utils.clip_grad_norm_(self.adam.param_groups[0]["params"], 1.0)
        self.adam.step()
        self.adam.zero_grad()
        self.step += 1
        keep = min(EMA, (1 + self.step) / (10 + self.step))
        for name, p in self.named.items():
            self.average[name].lerp_(p, 1 - keep)

    def run(self) -> None:
        saved = shown = time.monotonic()
        seen = 0
        kept: list[tuple[float, float]] = []
        while self.step < self.steps:
            loss, right, tokens = self.update()
            seen += tokens
            kept.append((loss, right))
            now = time.monotonic()
            if self.step % 20 == 0:
                mean = np.mean(kept, axis=0)
                speed = seen / (now - shown)
                print(f"{time.strftime('%H:%M:%S')} step {self.step}  loss {mean[0]:.3f}  "
                      f"right {mean[1]:.1%}  {speed:.0f} tok/s", flush=True)  # fmt: skip
                shown, seen = now, 0
                kept.clear()
            if now - saved > SAVE_EVERY:
                self.save()
                saved = now
        self.save()


def _balance(logits: Any, config: dict[str, Any]) -> Tensor:
    """1 where all experts are used alike, more where they are not."""
    from transformers.models.gpt_oss.modeling_gpt_oss import load_balancing_loss_func

    count, used = config["num_local_experts"], config["num_experts_per_tok"]
    return torch.as_tensor(load_balancing_loss_func(logits, count, used))


def export(trainer: Trainer, kind: str) -> None:
    """The averaged weights as a checkpoint, and as GGUF."""
    from safetensors.torch import save_file

    small, folder = trainer.small, trainer.out / "checkpoint"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = encoder(small.name).vocabulary
    weights = {n: p.contiguous() for n, p in trainer.average.items() if n != "lm_head.weight"}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {**small.config, "vocab_size": len(vocabulary.tokens), "_name_or_path": small.name}
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    special = (*small.control, *small.tags)
    words = tuple(token for token in vocabulary.tokens if token not in special)
    tokenizer = plain_tokenizer(Vocabulary(words, vocabulary.merges))
    tokenizer.add_special_tokens(list(small.control))
    tokenizer.add_tokens(list(small.tags))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": small.end, "chat_template": small.template.read_text()}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    path = trainer.out / f"{small.name}.gguf"
    print(convert(folder, path, kind, threads=1))


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small model that copies.")
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--kind", default="q8_0", help="type of the matrices in the GGUF file")
    parser.add_argument("--export", action="store_true", help="of what there is, without training")
    args = parser.parse_args()
    torch.set_num_threads(1)
    trainer = Trainer(MODELS[args.name], args.out, args.steps)
    if not args.export:
        trainer.run()
    export(trainer, args.kind)


if __name__ == "__main__":
    main()
