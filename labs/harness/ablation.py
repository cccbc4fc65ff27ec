"""`python -m labs.harness.ablation MODEL.gguf --trees FOLDER --out FOLDER [--sample 40]`.

The agent with the harness whole, then with each policy of `DEFAULTS` the other way round: what is
on by default switched off, what is off switched on. OUT keeps a file of rows for each setting; who
comes back goes on where they end, and `labs.harness.compare` reads them. Differences are of a
setting less the whole: what a policy is worth is what its being off costs.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from triplepoint import Engine
from triplepoint.runtime.agent.harness.defaults import DEFAULTS

from .ask import asker
from .compare import Asked, difference, paired, summary
from .questions import Question, frozen, sample
from .runner import Row, ask_all

WHOLE = "whole"


def settings() -> dict[str, Mapping[str, object]]:
    """By name what is given to the harness; numbers are no policies."""
    switches = {name: on for name, on in DEFAULTS.items() if isinstance(on, bool)}
    turned = {
        f"{'without' if on else 'with'}-{name}": {name: not on} for name, on in switches.items()
    }
    return {WHOLE: {}, **turned}


def ablate(
    load: Callable[[], Engine],
    model: str,
    questions: Sequence[Question],
    room: Path,
    out: Path,
    say: Callable[[str], object] = print,
) -> dict[str, list[Row]]:
    """Ask the questions under each setting; the rows by its name.

    Each setting loads the engine anew: else it would find the prompts of those before it in the
    cache, and cost nothing.
    """
    out.mkdir(parents=True, exist_ok=True)
    rows: dict[str, list[Row]] = {}
    for name, given in settings().items():
        say(f"{name}:")
        file = out / f"{model}-{name}.jsonl"
        with load() as engine:
            rows[name] = ask_all(name, model, asker(engine, given), questions, room, file, say)
    return rows


def table(rows: Mapping[str, Sequence[Row]]) -> list[str]:
    """What each setting gives and costs, with its paired difference from the whole."""
    askers = {
        name: Asked(name, name, "", {(row.set, row.id): row for row in part})
        for name, part in rows.items()
    }
    width = max(map(len, rows))
    lines = [
        f"{'':<{width}}    n  right   from     to  wrong  prefilled  seconds  "
        f"{'right − whole':<22}wrong − whole"
    ]
    for name, part in rows.items():
        line = f"{name:<{width}} {summary(part)}"
        pairs = paired(askers[name], askers[WHOLE])
        if name != WHOLE and pairs:
            right, wrong = (difference(pairs, one).points for one in ("right", "wrong"))
            line += f"  {right:<22}{wrong}"
        lines.append(line)
    return lines


def main(argv: list[str] | None = None) -> int:
    """Ask, and print the table."""
    parser = argparse.ArgumentParser(prog="labs.harness.ablation", description=__doc__)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("--trees", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="of the rows")
    parser.add_argument("--sample", type=int, default=40, metavar="N", help="a fixed N (40)")
    parser.add_argument("--threads", type=int, metavar="N", help="of the engine")
    args = parser.parse_args(argv)
    model, questions = Path(args.model).stem, sample(frozen(), args.sample)

    def load() -> Engine:
        return Engine.load(args.model, threads=args.threads)

    rows = ablate(load, model, questions, args.trees, args.out)
    print("\n".join(["", *table(rows)]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
