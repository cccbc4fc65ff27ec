"""A decode concurrent with a long prompt: its gaps between tokens, and the prompt's slowdown.

    python -m labs.bench.decode_under_prefill 5000 -m synthetic:qwen3-0.6b:q4_0

Each round computes the prompt alone, and then beside a session that decodes all the while. Nothing
is drafted: each token is a row of a pass.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from triplepoint import interrupts
from triplepoint.errors import SettingError
from triplepoint.runtime.cli.arguments import positive
from triplepoint.runtime.cli.bench.options import common_options, form_of
from triplepoint.runtime.cli.load_engine import load_engine
from triplepoint.runtime.cli.output import Output
from triplepoint.runtime.cli.tables import Column, Row, between, percent, rate, show
from triplepoint.runtime.engine.passes.shared_pass import Forecasts

from .command import run_command

if TYPE_CHECKING:
    from triplepoint.runtime.engine.engine import Engine
    from triplepoint.runtime.engine.session import Session

BEFORE = 128  # tokens that the decode has behind it
SETTLED = 16  # of its tokens before the prompt begins
MORE = 64  # positions for tokens after the prompt


@dataclass
class Beside:
    """The measurements by round.

    Attributes:
        prompt: its tokens.
        alone_s, beside_s: seconds of the prompt.
        gaps_s: between tokens of the decode beside it.
        forecasts: of the shared passes.
    """

    prompt: int
    alone_s: list[float] = field(default_factory=list)
    beside_s: list[float] = field(default_factory=list)
    gaps_s: list[list[float]] = field(default_factory=list)
    forecasts: Forecasts = field(default_factory=Forecasts)

    @property
    def kept(self) -> list[float]:
        """The prompt's speed relative to its speed alone, by round."""
        return [a / b for a, b in zip(self.alone_s, self.beside_s, strict=True)]

    @property
    def longest_s(self) -> list[float]:
        """The longest gap of each round."""
        return [max(gaps) for gaps in self.gaps_s]


def measure(engine: Engine, prompt: int, repeat: int = 3) -> Beside:
    """Measure `repeat` rounds after a warm-up prompt.

    Raises:
        SettingError: it does not fit the context.
    """
    room = engine.context - BEFORE - MORE
    if not 1 <= prompt <= min(room, engine.context - 1):
        raise SettingError(
            f"a prompt of {prompt} tokens does not fit a context of {engine.context} beside a "
            f"decode; from 1 to {room} do"
        )
    chance = random.Random(1)
    long, short = (
        [chance.randrange(engine.loaded.outputs.n_vocab) for _ in range(n)]
        for n in (prompt, BEFORE)
    )
    found = Beside(prompt)
    _prompt(engine, long)
    for _ in range(repeat):
        found.alone_s.append(_prompt(engine, long))
        session = engine.session()
        session.phases.drafting.settings = replace(session.phases.drafting.settings, draft_tokens=0)
        session.prefill(short)
        _round(engine, found, session, long)
    return found


def _prompt(engine: Engine, ids: Sequence[int]) -> float:
    session = engine.session()
    began = time.perf_counter()
    session.prefill(ids)
    return time.perf_counter() - began


def _round(engine: Engine, found: Beside, session: Session, ids: Sequence[int]) -> None:
    """Run the prompt concurrently with that session's decode, which lasts as long."""
    times: list[float] = []
    settled, over = threading.Event(), threading.Event()

    def decode() -> None:
        try:
            while not over.is_set():
                for _ in session.decode(max_tokens=session.context - len(session.tokens)):
                    times.append(time.perf_counter())
                    if len(times) >= SETTLED:
                        settled.set()
                    if over.is_set() or len(session.tokens) + 1 >= session.context:
                        break
                session.truncate(BEFORE)  # the context is full, or all is over
        finally:
            settled.set()

    with engine.core.runner.observe_shared(found.forecasts.add), ThreadPoolExecutor(1) as threads:
        with interrupts.held():
            decoding = threads.submit(decode)
        try:
            interrupts.wait(settled)
            first = len(times)
            found.beside_s.append(_prompt(engine, ids))
            last = len(times)
        finally:
            with interrupts.held():
                over.set()
        interrupts.result(decoding)
    inside = times[first - 1 : last + 1]
    found.gaps_s.append([after - before for before, after in itertools.pairwise(inside)] or [0.0])


def add_options(bench: argparse.ArgumentParser) -> None:
    """Add the options: the prompt's length and the model."""
    bench.add_argument("prompt", type=positive, metavar="N", help="prompt length in tokens")
    for group in common_options():
        group.add_to(bench)


def run(args: argparse.Namespace, output: Output) -> int:
    """Measure and print one row."""
    form = form_of(args)
    columns = [Column(name, 11) for name in ("prompt", "alone t/s", "beside t/s", "kept")]
    columns += [Column("kept min … max", 16), Column("gap p50 ms", 10)]
    columns += [Column("longest gap ms", 14), Column("min … max", 18)]
    with load_engine(args, output) as engine:
        found = measure(engine, args.prompt, args.repetitions)
        deadline = engine.core.scheduler.deadline_s
    gaps = [gap for gaps in found.gaps_s for gap in gaps]
    cells = (
        f"{found.prompt:,}",
        rate(found.prompt / statistics.median(found.alone_s)),
        rate(found.prompt / statistics.median(found.beside_s)),
        percent(statistics.median(found.kept)),
        f"{percent(min(found.kept))} … {percent(max(found.kept))}",
        rate(1e3 * statistics.median(gaps)),
        rate(1e3 * statistics.median(found.longest_s)),
        between([1e3 * gap for gap in found.longest_s]),
    )
    fields = {
        "prompt": found.prompt,
        "kept": statistics.median(found.kept),
        "gap_p50_s": statistics.median(gaps),
        "longest_gap_s": statistics.median(found.longest_s),
        "deadline_s": deadline,
    }
    samples = {"alone_s": found.alone_s, "beside_s": found.beside_s, "longest_s": found.longest_s}
    samples["by_predicted"] = found.forecasts.ratios
    show(output, form, columns, [Row(cells, fields, samples)])
    if form == "md":
        output.line()
        output.line(
            f"medians of {args.repetitions} rounds; the deadline is {1e3 * deadline:.0f} ms"
        )
        output.line(found.forecasts.describe())
    return 0


if __name__ == "__main__":
    raise SystemExit(run_command("decode_under_prefill", add_options, run))
