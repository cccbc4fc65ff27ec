"""`python -m labs.harness.compare A.jsonl B.jsonl …`: compare askers question by question.

Reads the rows that askers wrote with ``--out``. A pair of askers is compared over the questions
that both were asked; those that an error of ours ended are left out. Intervals are at 95 %, of a
paired bootstrap: questions are drawn with their results of both, so what makes a question hard for
everybody does not widen them. One without width says that no question told the two apart, not that
they are equal. Where an oracle of the same model is among the files, each asker's rate is also
shown as a share of the oracle's.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from triplepoint.runtime.suites.statistics import wilson

from .runner import Row, read

DRAWS = 10_000
SEED = 44
ORACLE = "oracle"
"""`Row.by` of `labs.harness.oracle`."""

Results = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A figure with its interval; NaN where it is not defined."""

    value: float
    low: float
    high: float

    @property
    def points(self) -> str:
        """Format a difference of rates in percentage points."""
        return f"{100 * self.value:+.1f} [{100 * self.low:+.1f}, {100 * self.high:+.1f}]"


@dataclass(frozen=True)
class Asked:
    """The rows of one asker."""

    name: str
    """With the model if there are several, with the file if two have the same asker."""
    by: str
    model: str
    rows: dict[tuple[str, str], Row]
    """By set and question."""


def bootstrap(a: Results, b: Results, figure: Callable[[Results, Results], Results]) -> Interval:
    """Compute a figure of the means of paired results, and its interval.

    Args:
        a, b: of shape (n,), a question at the same index in both; n >= 1.
        figure: of the means, elementwise.
    """
    drawn = np.random.default_rng(SEED).integers(0, len(a), (DRAWS, len(a)))
    with np.errstate(divide="ignore", invalid="ignore"):
        draws = figure(a[drawn].mean(axis=1), b[drawn].mean(axis=1))
        value = float(figure(np.array([a.mean()]), np.array([b.mean()]))[0])
    draws = draws[np.isfinite(draws)]  # an oracle that got none of a draw right has no share
    if not draws.size or not np.isfinite(value):
        return Interval(float("nan"), float("nan"), float("nan"))
    low, high = np.quantile(draws, (0.025, 0.975))
    return Interval(value, float(low), float(high))


def paired(a: Asked, b: Asked) -> list[tuple[Row, Row]]:
    """Pair the rows of the questions that both askers have, without runtime errors."""
    both = [(row, b.rows[key]) for key, row in a.rows.items() if key in b.rows]
    return [pair for pair in both if all(row.result != "error" for row in pair)]


def difference(pairs: Sequence[tuple[Row, Row]], result: str) -> Interval:
    """Return the share of a result in the first of the pairs, minus that in the second."""
    return bootstrap(*_shares(pairs, result), np.subtract)


def share(pairs: Sequence[tuple[Row, Row]]) -> Interval:
    """Return the rate of right answers in the first of the pairs, relative to the second."""
    return bootstrap(*_shares(pairs, "right"), np.divide)


def _shares(pairs: Sequence[tuple[Row, Row]], result: str) -> tuple[Results, Results]:
    found = np.array([[row.result == result for row in pair] for pair in pairs], dtype=np.float64)
    return found[:, 0], found[:, 1]


def load(paths: Sequence[Path]) -> list[Asked]:
    """Load the askers from files, in order; of duplicate rows the last one counts.

    Raises:
        OSError: a file cannot be read.
    """
    found: dict[tuple[Path, str, str], dict[tuple[str, str], Row]] = {}
    for path in paths:
        with path.open("rb"):  # `read` takes a file that is not there for an empty one
            pass
        for row in read(path):
            found.setdefault((path, row.by, row.model), {})[row.set, row.id] = row
    times = Counter((by, model) for _, by, model in found)
    several = len({model for _, _, model in found}) > 1
    return [
        Asked(
            by + f" {model}" * several + f" ({path.stem})" * (times[by, model] > 1), by, model, rows
        )
        for (path, by, model), rows in found.items()
    ]


def report(askers: Sequence[Asked]) -> list[str]:
    """Render the results of each asker, of each pair, and relative to the oracle."""
    width = max((len(one.name) for one in askers), default=0)
    lines = [f"{'':<{width}}    n  right   from     to  wrong  prefilled  seconds"]
    lines += [f"{one.name:<{width}} {summary(list(one.rows.values()))}" for one in askers]
    lines += ["", "differences in points, with 95 % intervals"]
    for a, b in combinations(askers, 2):
        pairs, title = paired(a, b), f"{a.name} − {b.name}"
        if not pairs:
            lines.append(f"{title}: no question in common")
            continue
        right, wrong = (difference(pairs, result).points for result in ("right", "wrong"))
        lines.append(f"{title}: n {len(pairs)}, right {right}, wrong as fact {wrong}")
    lines += _beside_oracle(askers)
    return lines


def summary(rows: Sequence[Row]) -> str:
    """Format n, rates, mean tokens prefilled and mean seconds, without runtime errors."""
    rows = [row for row in rows if row.result != "error"]
    count = max(len(rows), 1)
    right, wrong = (sum(row.result == one for row in rows) / count for one in ("right", "wrong"))
    low, high = wilson(right, len(rows))
    return (
        f"{len(rows):>4} {right:>6.1%} {low:>6.1%} {high:>6.1%} {wrong:>6.1%} "
        f"{sum(row.prefilled for row in rows) / count:>10,.0f} "
        f"{sum(row.seconds for row in rows) / count:>8.1f}"
    )


def _beside_oracle(askers: Sequence[Asked]) -> list[str]:
    lines: list[str] = []
    for oracle in (one for one in askers if one.by == ORACLE):
        for one in askers:
            pairs = paired(one, oracle)
            if one.by == ORACLE or one.model != oracle.model or not pairs:
                continue
            made = share(pairs)
            figures = f"{made.value:.2f} [{made.low:.2f}, {made.high:.2f}]"
            shown = "not defined: it has none right" if np.isnan(made.value) else figures
            lines.append(f"{one.name}: n {len(pairs)}, share of {oracle.name}: {shown}")
    return ["", "share of the oracle's rate", *lines] if lines else []


def main(argv: list[str] | None = None) -> int:
    """Compare the files."""
    parser = argparse.ArgumentParser(prog="labs.harness.compare", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="ROWS.jsonl")
    parser.add_argument("--kind", action="append", metavar="KIND", help="only this kind")
    args = parser.parse_args(argv)
    askers = load(args.files)
    if args.kind:
        for one in askers:
            for key in [key for key, row in one.rows.items() if row.kind not in args.kind]:
                del one.rows[key]
    print("\n".join(report(askers)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
