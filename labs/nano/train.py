"""Train nano: `python -m labs.nano.train --out DIR --minutes 100`.

Stops and goes on at any time: run the same command again and it resumes from the last checkpoint.
The schedule follows the clock, since a shared machine's speed is not known beforehand. Once it is
over, `--again 0.5` starts another from the checkpoint, at half the first one's learning rate;
`--from-gguf nano.gguf --again 0.1` starts one in an empty folder from the weights that ship. On a
CPU a step has few sequences, and a high rate makes good weights worse.

`--processes 2` lets two processes of one thread each train the same weights, each applying its own
gradients without waiting for the other. `--layers 6` begins with a deeper model that computes the
same as the file's.

On a CPU that multiplies bf16 no faster than float32 (most of Intel's): `--float32`. On a GPU:
`--device cuda --batch 16 --workers 14` (bf16, sixteen times the sequences a step, their text
written by other processes). It needs only torch, numpy, tokenizers and gguf.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import torch

from .batches import Batch, Encoder, Stage, make_batch
from .bpe import Vocabulary, learn
from .chatml import round_segments, system_segments
from .corpus import rounds
from .model import Nano, NanoConfig, grown
from .muon import Muon

STAGES = (
    Stage(0.28, 384, 12, 7),
    Stage(0.44, 640, 8, 15),
    Stage(0.80, 1152, 4, 36),
    Stage(1.00, 2112, 2, 70),
)
AGAIN = (Stage(0.64, 512, 12, 9), Stage(0.90, 1152, 6, 30), Stage(1.00, 2112, 3, 60))
"""A later schedule mixes the lengths from step to step: each up to its share."""
MATRIX_RATE, OTHER_RATE = 0.02, 3e-3
DECAY_FROM, AGAIN_DECAY_FROM = 0.55, 0.1
EMA = 0.985
SAVE_EVERY = 180.0


class Batches:
    """The batches of each step; with workers, prepared by other processes."""

    def __init__(self, encoder: Encoder, workers: int) -> None:
        self.encoder = encoder
        self.ahead = 2 * workers
        self.pool = None
        if workers:
            self.pool = ProcessPoolExecutor(
                workers, get_context("spawn"), _begin_worker, (encoder.vocabulary,)
            )
        self.waiting: deque[Future[Batch]] = deque()
        self.asked = 0

    def get(self, step: int, stage: Stage) -> Batch:
        """Return the batch of `step`; with workers, of the stage at the time of its request."""
        if self.pool is None:
            return make_batch(self.encoder, step, stage)
        self.asked = max(self.asked, step)
        while len(self.waiting) <= self.ahead:
            self.waiting.append(self.pool.submit(_work, self.asked, stage))
            self.asked += 1
        return self.waiting.popleft().result()

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)


_worker: list[Encoder] = []


def _begin_worker(vocabulary: Vocabulary) -> None:
    _worker.append(Encoder(vocabulary))


def _work(step: int, stage: Stage) -> Batch:
    return make_batch(_worker[0], step, stage)


class Trainer:
    """The model, its optimizers, and the state that a checkpoint holds."""

    def __init__(
        self,
        out: Path,
        minutes: float,
        *,
        again: float | None = None,
        gguf: Path | None = None,
        layers: int | None = None,
        device: str = "cpu",
        workers: int = 0,
        narrow: bool = True,
    ) -> None:
        self.out = out
        self.seconds = minutes * 60
        self.device = torch.device(device)
        self.place, self.processes = 0, 1
        torch.manual_seed(1)
        saved = self.saved()
        if saved is not None:
            self.model = Nano(NanoConfig(**saved["config"]))
        elif gguf is not None:
            from .judge import load_gguf

            self.model, tokens = load_gguf(gguf)
            out.mkdir(parents=True, exist_ok=True)
            tokens.save(out / "vocabulary.json")
            self.model.train()
        else:
            self.model = Nano(NanoConfig())
        if layers is not None and layers != len(self.model.blk):
            if saved is not None:
                raise ValueError(f"{out} has a checkpoint of {len(self.model.blk)} layers")
            self.model = grown(self.model, layers)
        self.model.to(self.device)
        self.encoder = Encoder(vocabulary(out))
        self.batches = Batches(self.encoder, workers)
        named = dict(self.model.named_parameters())
        self.matrices = [p for n, p in named.items() if n.startswith("blk") and p.ndim == 2]
        inside = {id(p) for p in self.matrices}
        self.adam = torch.optim.AdamW(
            [p for p in named.values() if id(p) not in inside], betas=(0.9, 0.95), weight_decay=0.0
        )
        self.muon = Muon(self.matrices, narrow=narrow)
        self.narrow = narrow
        self.average = {name: p.detach().clone() for name, p in named.items()}
        self.step, self.tokens, self.elapsed = 0, 0, 0.0
        # Another run that begins with the same weights must not read the same text again.
        self.corpus = random.SystemRandom().randrange(1 << 40)
        self.peak, self.first_step = 1.0, 0
        if saved is not None:
            self.load(saved)
        if again is not None:
            self.peak = again
            if not self.first_step or self.elapsed >= self.seconds:  # else one that was stopped
                self.step = self.first_step = max(1, self.step)
                self.elapsed = 0.0

    def saved(self) -> dict[str, Any] | None:
        """Return the checkpoint of the folder, if there is one."""
        path = self.out / "checkpoint.pt"
        if not path.exists():
            return None
        return torch.load(path, map_location=self.device, weights_only=True)

    def load(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        velocity = zip(self.muon.velocity.values(), state["muon"], strict=True)
        for mine, saved in velocity:
            mine.copy_(saved)
        self.average = state["average"]
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]
        self.peak, self.first_step = state.get("peak", 1.0), state.get("first_step", 0)
        self.corpus = state.get("corpus", 0)

    def save(self) -> None:
        state = {
            "config": asdict(self.model.config),
            "model": self.model.state_dict(),
            "average": self.average,
            "adam": self.adam.state_dict(),
            "muon": list(self.muon.velocity.values()),
            "step": self.step,
            "tokens": self.tokens,
            "elapsed": self.elapsed,
            "peak": self.peak,
            "first_step": self.first_step,
            "corpus": self.corpus,
        }
        part = self.out / "checkpoint.part"
        torch.save(state, part)
        os.replace(part, self.out / "checkpoint.pt")

    def rate(self) -> float:
        """Return the learning rate relative to its peak: a short rise, level, then down to zero."""
        left = 1 - self.elapsed / self.seconds
        level = 1 - (AGAIN_DECAY_FROM if self.first_step else DECAY_FROM)
        steps = self.step - self.first_step
        return self.peak * min(1.0, (steps + 1) / 60, max(0.02, left / level))

    def stage(self) -> Stage:
        """Return the next step's sequences: longer ones later, or all lengths by turns."""
        if self.first_step:
            share, stages = random.Random(self.step).random(), AGAIN
        else:
            share, stages = self.elapsed / self.seconds, STAGES
        return next((stage for stage in stages if share < stage.until), stages[-1])

    def update(self, stage: Stage) -> tuple[float, float]:
        """Take one step; return the mean loss of the assistant's tokens and of the others."""
        number = self.corpus + self.step * self.processes + self.place
        batch = self.batches.get(number, stage)
        ids, rows, labels, weights, talks = (
            torch.from_numpy(array).to(self.device)
            for array in (batch.ids, batch.rows, batch.labels, batch.weights, batch.talks)
        )
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.narrow):
            losses = self.model.loss(ids, rows, labels, talks)
        ((losses * weights).sum() / weights.sum()).backward()
        rate = self.rate()
        self.muon.step(MATRIX_RATE * rate)
        for group in self.adam.param_groups:
            group["lr"] = OTHER_RATE * rate
        self.adam.step()
        self.adam.zero_grad()
        self.step += 1
        self.tokens += ids.numel() * self.processes
        keep = min(EMA, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.average[name].lerp_(parameter, 1 - keep)
        wanted = weights == 1.0
        losses = losses.detach()
        return losses[wanted].mean().item(), losses[~wanted].mean().item()

    def run(self, *, compiled: bool, batch: int = 1) -> None:
        """Train until the time is up; `batch` times a stage's sequences make a step."""
        begun = time.monotonic() - self.elapsed
        stop = Event()
        signal.signal(signal.SIGTERM, lambda *_: stop.set())
        saved = shown = self.elapsed
        tokens_shown = self.tokens
        for block in self.model.blk if compiled else ():  # one by one: the next finds it compiled
            block.compile(dynamic=False)
        while self.elapsed < self.seconds and not stop.is_set():
            stage = self.stage()
            stage = replace(stage, batch=batch * stage.batch)
            target, other = self.update(stage)
            self.elapsed = time.monotonic() - begun
            if self.step % 50 == 0 and not self.place:
                speed = (self.tokens - tokens_shown) / (self.elapsed - shown)
                shown, tokens_shown = self.elapsed, self.tokens
                print(
                    f"{self.elapsed / 60:6.1f} min  step {self.step}  {self.tokens / 1e6:.2f} M  "
                    f"target {target:.4f}  other {other:.3f}  rate {self.rate():.3f}  "
                    f"T {stage.tokens}  {speed:.0f} tok/s",
                    flush=True,
                )
            if self.elapsed - saved > SAVE_EVERY and not self.place:
                self.save()
                saved = self.elapsed
        if not self.place:
            self.save()
        self.batches.close()


def _beside(trainer: Trainer, place: int, batch: int, compiled: bool) -> None:
    """Train the weights of another process, too, with other text."""
    trainer.place = place
    trainer.run(compiled=compiled, batch=batch)


def vocabulary(out: Path) -> Vocabulary:
    """Return the run's vocabulary, learned at its start from rounds not repeated in training."""
    path = out / "vocabulary.json"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        learn(
            "".join(
                segment.text
                for segment in (*system_segments(), *round_segments(item))
                if not segment.control
            )
            for item in rounds(-1, 20_000, size=6)
        ).save(path)
    return Vocabulary.load(path)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train triplepoint-nano on generated rounds.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--minutes", type=float, default=100, help="time of the whole schedule")
    parser.add_argument("--again", type=float, help="start another schedule, at this rate")
    parser.add_argument("--from-gguf", type=Path, help="begin with the weights of this file")
    parser.add_argument("--threads", type=int, default=1, help="threads of each process")
    parser.add_argument(
        "--processes", type=int, default=1, help="processes that train the same weights (CPU)"
    )
    parser.add_argument("--layers", type=int, help="more layers than the file has")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--batch", type=int, default=1, help="times as many sequences a step")
    parser.add_argument("--workers", type=int, default=0, help="processes that write the text")
    parser.add_argument(
        "--float32", action="store_true", help="where bf16 is slower, as on most Intel CPUs"
    )
    parser.add_argument("--no-compile", action="store_true", help="torch without its compiler")
    args = parser.parse_args()
    if args.processes > 1 and (args.threads > 1 or args.device != "cpu" or args.workers):
        parser.error("--processes goes with one thread, the CPU and no --workers")
    torch.set_num_threads(args.threads)
    trainer = Trainer(
        args.out,
        args.minutes,
        again=args.again,
        gguf=args.from_gguf,
        layers=args.layers,
        device=args.device,
        workers=args.workers,
        narrow=not args.float32,
    )
    compiled = not args.no_compile
    trainer.processes = args.processes
    trainer.model.share_memory()
    others = [  # a fork shares the weights; before the first step there is no thread to lose
        get_context("fork").Process(target=_beside, args=(trainer, place, args.batch, compiled))
        for place in range(1, args.processes)
    ]
    for other in others:
        other.start()
    try:
        trainer.run(compiled=compiled, batch=args.batch)
    finally:
        for other in others:
            other.terminate()
            other.join()


if __name__ == "__main__":
    main()
