"""Two small models that were trained to copy: what they are, and the conversations they know.

`train_small.py` says how the files were made. A conversation is a round or more of nano's corpus,
of the kinds in which all that a call asks for stands in the question.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triplepoint.runtime.nano
from labs.nano.batches import Encoder
from labs.nano.bpe import CONTROL, TAGS, Vocabulary
from labs.nano.chatml import Segment, round_segments, system_segments
from labs.nano.corpus import FAMILIES
from labs.nano.words import Lexicon
from labs.nano.writer import Round, Writer
from triplepoint.runtime.gguf.open import open_gguf

DATA = Path(__file__).parents[1] / "data"
NANO = Path(triplepoint.runtime.nano.__file__).parent
HARMONY = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>",
           "<|return|>")  # fmt: skip
SHARES = {"key": 0.3, "where": 0.15, "search": 0.15, "any_key": 0.15, "line": 0.15, "list": 0.1}
LONGEST = 200
"""Tokens of a round."""


@dataclass(frozen=True)
class Small:
    """A small model: `config` as in config.json; `control` and `tags` end its vocabulary."""

    name: str
    config: dict[str, Any]
    control: tuple[str, ...]
    tags: tuple[str, ...]
    end: str
    """Of an answer."""
    template: Path

    @property
    def path(self) -> Path:
        return DATA / f"{self.name}.gguf"


_SHAPE: dict[str, Any] = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
}
MODELS = {
    "qwen35-small": Small(
        "qwen35-small",
        {
            **_SHAPE,
            "model_type": "qwen3_5_text",
            "intermediate_size": 160,
            "layer_types": ["linear_attention", "full_attention"] * 2,
            "full_attention_interval": 2,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "linear_conv_kernel_dim": 4,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "partial_rotary_factor": 0.5,
                "mrope_section": [6, 5, 5],
                "mrope_interleaved": True,
            },
        },
        CONTROL,
        TAGS,
        "<|im_end|>",
        NANO / "template.jinja",
    ),
    "gpt-oss-small": Small(
        "gpt-oss-small",
        {
            **_SHAPE,
            "model_type": "gpt_oss",
            "intermediate_size": 32,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 64,
            "num_local_experts": 6,
            "num_experts_per_tok": 2,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 256,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
            },
        },
        (CONTROL[0], *HARMONY),
        (),
        "<|return|>",
        Path(__file__).with_name("small_harmony.jinja"),
    ),
}


@cache
def encoder(name: str) -> Encoder:
    """Of a model's vocabulary: nano's words, and its own control tokens behind them."""
    with open_gguf(NANO / "nano.gguf") as file:
        nano = Vocabulary.of_gguf(file.metadata)
    words = [token for token in nano.tokens if token not in CONTROL + TAGS]
    small = MODELS[name]
    return Encoder(Vocabulary((*words, *small.control, *small.tags), nano.merges))


def simple_round(writer: Writer) -> Round:
    """A round in which every argument of the one call stands in the question."""
    names, shares = list(SHARES), list(SHARES.values())
    while True:
        item = FAMILIES[writer.rng.choices(names, shares)[0]][0](writer)
        if len(item.steps) != 1 or not item.question.isascii():
            continue
        call, result = item.steps[0]
        given = call.arguments.values()
        if any(value is True for value in given) or result.count("\n") >= 3:
            continue
        if all(str(value) in item.question for value in given):
            return item


def segments(name: str, rounds: Sequence[Round], rng: random.Random) -> Iterator[list[Segment]]:
    """The system's part of a conversation, and that of each round."""
    if name == "qwen35-small":
        yield system_segments()
        for item in rounds:
            yield list(round_segments(item))
        return
    text = "".join(s.text for s in system_segments() if not s.control)
    yield [*_opened(text.rstrip("\n").replace("system\n", "system<|message|>", 1)), _END]
    for number, item in enumerate(rounds):
        yield _harmony(item, again=number < len(rounds) - 1 and rng.random() < 0.5)


_END = Segment("<|end|>", control=True)


def _opened(text: str, *, target: bool = False) -> list[Segment]:
    """A message from its start on; `target`: its author's name is given, and the rest is not."""
    header, _, body = text.partition("<|message|>")
    author, channel, rest = header.partition("<|channel|>")
    role, space, to = author.partition(" ")
    out = [Segment("<|start|>", control=True), Segment(role), Segment(space + to, target)]
    if channel:
        out += [Segment(channel, target, control=True), Segment(rest, target)]
    out += [Segment("<|message|>", target, control=True), Segment(body, target)]
    return [segment for segment in out if segment.text]


def _harmony(item: Round, *, again: bool) -> list[Segment]:
    """A round in harmony; `again`: as it stands in the history of a later one."""
    out = [*_opened(f"user<|message|>{item.question}"), _END]
    for call, result in item.steps:
        to, text = f"to=functions.{call.name}", json.dumps(call.arguments, ensure_ascii=False)
        said = f"assistant {to}<|channel|>commentary json<|message|>{text}"
        out += [*_opened(said, target=True), Segment("<|call|>", True, True)]
        said = f"functions.{call.name} to=assistant<|channel|>commentary<|message|>{result}"
        out += [*_opened(said), _END]
    out += _opened(f"assistant<|channel|>final<|message|>{item.answer}", target=True)
    return [*out, _END if again else Segment("<|return|>", True, True)]


@dataclass(frozen=True)
class Talk:
    """A conversation as ids; `targets`: which of them the model has to say."""

    rounds: tuple[Round, ...]
    ids: list[int]
    targets: list[bool]


def talk(name: str, seed: int, count: int, *, longest: int, held_out: bool = False) -> Talk:
    """A conversation of at most `count` rounds and `longest` tokens that follows from `seed`."""
    encode, rng = encoder(name), random.Random(seed)
    words = Lexicon(rng, held_out=held_out, pieces=() if held_out else encode.pieces)
    writer, rounds = Writer(words, 3, known_ways=True), []
    ids: list[int] = []
    targets: list[bool] = []
    while len(rounds) < count:
        item = simple_round(writer)
        parts = [encode(part) for part in segments(name, [*rounds, item], random.Random(seed))]
        if len(parts[-1][0]) > LONGEST:
            continue
        if sum(len(part) for part, _ in parts) > longest:
            break
        rounds.append(item)
        ids = [n for part, _ in parts for n in part]
        targets = [t for _, part in parts for t in part]
    return Talk(tuple(rounds), ids, targets)
