"""Held-out accuracy: `python -m triplepoint.runtime.nano.evaluate --gguf nano.gguf`.

Words, file names and phrasings are ones that training never sees. A conversation counts when
every call and the answer are the expected ones, token for token, under greedy decoding without a
grammar. That is the case exactly when, given the expected conversation so far, each of the
assistant's tokens is the most likely one, so one forward pass judges a conversation.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from .batches import Encoder
from .bpe import Vocabulary
from .chatml import round_segments, system_segments
from .corpus import FAMILIES, Round, Writer
from .export import load_checkpoint, read_weights
from .model import Nano, NanoConfig
from .words import Lexicon


@dataclass(frozen=True, slots=True)
class Case:
    """A held-out round, its ids, and which of them the assistant has to produce."""

    item: Round
    ids: list[int]
    targets: list[bool]


@dataclass(frozen=True, slots=True)
class Band:
    """Contexts of more than `above` and at most `limit` tokens; `size` as in the corpus."""

    above: int
    limit: int
    size: int


BANDS = (Band(0, 512, 14), Band(512, 1024, 30), Band(1024, 2048, 60))


def cases(encoder: Encoder, family: str, band: Band, count: int, seed: int) -> Iterable[Case]:
    """`count` held-out rounds of a family whose whole conversation has the band's length."""
    writer = Writer(Lexicon(random.Random(f"{seed} {family} {band}"), held_out=True), band.size)
    head, _ = encoder(system_segments())
    tries = found = 0
    while found < count and tries < 60 * count:
        tries += 1
        item = FAMILIES[family][0](writer)
        ids, targets = encoder(round_segments(item))
        if band.above < len(head) + len(ids) <= band.limit:
            found += 1
            yield Case(item, head + ids, [False] * len(head) + targets)


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
    import gguf

    reader = gguf.GGUFReader(path)

    def value(name: str) -> object:
        return reader.fields[name].contents()

    def whole(name: str) -> int:
        return int(str(value(f"qwen3.{name}")))

    config = NanoConfig(
        vocabulary=whole("vocab_size"),
        width=whole("embedding_length"),
        layers=whole("block_count"),
        heads=whole("attention.head_count"),
        kv_heads=whole("attention.head_count_kv"),
        head_dim=whole("attention.key_length"),
        ffn=whole("feed_forward_length"),
        rope_base=float(str(value("qwen3.rope.freq_base"))),
        context=whole("context_length"),
    )
    tokens, merges = value("tokenizer.ggml.tokens"), value("tokenizer.ggml.merges")
    assert isinstance(tokens, list)
    assert isinstance(merges, list)
    model = Nano(config)
    weights = {name: torch.from_numpy(w.copy()) for name, w in read_weights(path).items()}
    model.load_state_dict(weights, strict=True)
    pairs = tuple((left, right) for left, _, right in (m.partition(" ") for m in merges))
    return model.eval(), Vocabulary(tuple(tokens), pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Held-out accuracy of nano by family.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gguf", type=Path)
    source.add_argument("--checkpoint", type=Path, help="folder that training wrote")
    parser.add_argument("--count", type=int, default=100, help="cases of a family and band")
    parser.add_argument("--bands", type=int, default=len(BANDS), help="how many length bands")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--misses", type=int, default=0, help="wrong cases to show of each")
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, vocabulary = load_gguf(args.gguf) if args.gguf else load_checkpoint(args.checkpoint)
    encoder = Encoder(vocabulary)
    bands = BANDS[: args.bands]
    print("family        " + "".join(f"{f'{b.above + 1}-{b.limit}':>16}" for b in bands))
    totals = [[0, 0] for _ in bands]
    for family in FAMILIES:
        row = f"{family:14}"
        for band, total in zip(bands, totals, strict=False):
            right = seen = 0
            for case in cases(encoder, family, band, args.count, args.seed):
                miss = first_miss(model, case)
                seen += 1
                right += miss is None
                if miss is not None and seen - right <= args.misses:
                    show_miss(model, encoder, case, miss)
            total[0] += right
            total[1] += seen
            row += f"{_share(right, seen):>16}"
        print(row, flush=True)
    print(f"{'all':14}" + "".join(f"{_share(*total):>16}" for total in totals[: len(bands)]))


def _share(right: int, seen: int) -> str:
    return f"{right}/{seen} {right / seen:4.0%}" if seen else "-"


def show_miss(model: Nano, encoder: Encoder, case: Case, place: int) -> None:
    """A wrong case: the question, what was expected from there on, what came instead."""
    stop = encoder.ids["<|im_end|>"]
    start = place
    while case.targets[start - 1]:
        start -= 1
    end = case.ids.index(stop, place)
    write = encoder.tokenizer.decode
    print(f"  Q {case.item.question}")
    print(f"    expected {write([i for i in case.ids[start:end] if i < encoder.first_special])!r}")
    got = produced(model, case.ids[:start], stop)
    print(f"    got      {write([i for i in got if i < encoder.first_special])!r}")


if __name__ == "__main__":
    main()
