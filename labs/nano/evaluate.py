"""Held-out accuracy: `python -m labs.nano.evaluate --gguf nano.gguf`.

With `--engine` the real thing runs: files in a folder, the agent, the grammar, the real tools. A
conversation counts when every answer is the expected one, equal as a string; the number after a
slash counts those in which every call was, too. With `--gguf` and `--checkpoint` the model runs in
torch and every token must be the expected one under greedy decoding without a grammar; that is the
case exactly when, given the expected conversation so far, each of the assistant's tokens is the
most likely one, so that one forward pass judges a conversation.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from triplepoint.runtime.gguf.open import open_gguf

from .batches import Encoder
from .bpe import Vocabulary
from .held_out import BANDS, EVALUATED, Case, cases
from .writer import Round

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine

Judge = Callable[[Case, bool], tuple[bool, bool]]
"""(case, whether to show a wrong one) to whether its answers are right, and all its calls, too."""


def torch_judge(gguf: Path | None, checkpoint: Path | None) -> tuple[Judge, Encoder]:
    """Return the judge that needs one forward pass a case."""
    import torch

    from . import judge
    from .export import load_checkpoint

    torch.set_num_threads(1)
    if gguf is not None:
        model, vocabulary = judge.load_gguf(gguf)
    else:
        assert checkpoint is not None
        model, vocabulary = load_checkpoint(checkpoint)
    encoder = Encoder(vocabulary)

    def right(case: Case, show: bool) -> tuple[bool, bool]:
        miss = judge.first_miss(model, case)
        if miss is not None and show:
            judge.show_miss(model, encoder, case, miss)
        return miss is None, miss is None

    return right, encoder


def agent_judge(engine: Engine) -> tuple[Judge, Encoder]:
    """Return the judge that lets the agent answer from real files."""

    def right(case: Case, show: bool) -> tuple[bool, bool]:
        same = True
        for item, (calls, answer) in zip(case.rounds, run_agent(engine, case.rounds), strict=False):
            expected = [(call.name, call.arguments) for call, _ in item.steps]
            same = same and calls == expected
            if answer != item.answer:
                if show:
                    print(f"  Q {item.question}\n    expected {expected} {item.answer!r}")
                    print(f"    got      {calls} {answer!r}")
                return False, False
        return True, same

    with open_gguf(engine.model.path) as file:
        vocabulary = Vocabulary.of_gguf(file.metadata)
    return right, Encoder(vocabulary)


Answer = tuple[list[tuple[str, dict[str, object]]], str]


def write_files(root: Path, texts: dict[str, str]) -> None:
    """Write the files of a `MemoryFiles` to disk, with empty folders and binary files."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8"))


def run_agent(engine: Engine, rounds: Sequence[Round]) -> Iterator[Answer]:
    """Run one agent in a folder with the files; return calls and answer by question."""
    from triplepoint.errors import TriplepointError
    from triplepoint.runtime.agent.agent import Agent
    from triplepoint.tools import FileTools
    from triplepoint.traces.events import ToolEvent

    files = rounds[0].files
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "files")
        write_files(root, files.texts)
        tools = FileTools(root, max_lines=files.max_lines, max_chars=files.max_chars)
        agent = Agent(engine, tools=tools, trace=Path(folder, "trace.jsonl"), max_tokens=400)
        seen = 0
        for item in rounds:
            try:
                result = agent.run(item.question)
            except TriplepointError as error:
                yield [], str(error)
                return
            events = [event for event in result.trace.events if isinstance(event, ToolEvent)]
            yield [(event.name, event.arguments) for event in events[seen:]], result.answer
            seen = len(events)


def main() -> None:
    parser = argparse.ArgumentParser(description="Held-out accuracy of nano by family.")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--gguf", type=Path, help="in torch, from the file")
    source.add_argument("--checkpoint", type=Path, help="in torch, from a folder of training")
    source.add_argument("--engine", help="model of the real engine, such as nano")
    parser.add_argument("--count", type=int, default=100, help="cases of a family and band")
    parser.add_argument("--bands", type=int, default=len(BANDS), help="how many length bands")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--known-ways", action="store_true", help="ask in trained phrasings")
    parser.add_argument("--misses", type=int, default=0, help="wrong cases to show of each")
    args = parser.parse_args()
    if args.engine:
        from triplepoint.runtime.engine.engine import Engine

        judge, encoder = agent_judge(Engine.load(args.engine))
    else:
        judge, encoder = torch_judge(args.gguf, args.checkpoint)
    bands = BANDS[: args.bands]
    print("family        " + "".join(f"{f'{b.above + 1}-{b.limit}':>20}" for b in bands))
    totals = [[0, 0, 0] for _ in bands]
    for family in EVALUATED:
        row = f"{family:14}"
        for band, total in zip(bands, totals, strict=True):
            right = same = seen = 0
            found = cases(encoder, family, band, args.count, args.seed, known_ways=args.known_ways)
            for case in found:
                seen += 1
                good, alike = judge(case, seen - 1 - right < args.misses)
                right, same = right + good, same + alike
            for place, count in enumerate((right, same, seen)):
                total[place] += count
            row += f"{_share(right, same, seen):>20}"
        print(row, flush=True)
    print(f"{'all':14}" + "".join(f"{_share(*total):>20}" for total in totals))


def _share(right: int, same: int, seen: int) -> str:
    return f"{right}/{seen} {right / seen:.0%} / {same}" if seen else "-"


if __name__ == "__main__":
    main()
