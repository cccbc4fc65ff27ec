"""``triplepoint bench batch``: speed by the number of sequences that share passes."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from ....errors import SettingError
from ...bench.batch import Batched, measure
from ...bench.compare import Baseline
from ...engine.engine import Engine
from ...engine.passes.shared_pass import GOAL
from ..load_engine import load_engine
from ..output import Output
from ..tables import Column, Row, percent, rate, show
from .options import form_of


def run(args: argparse.Namespace, output: Output) -> None:
    """Measure and print a row for each prompt, decode and batch length."""
    columns = [Column(name, 7) for name in ("PP", "TG", "B", "N_KV")]
    columns += [Column(name, 10) for name in ("T_PP s", "S_PP t/s", "T_TG s", "S_TG t/s")]
    columns += [Column("S_TG min … max", 20), Column("by B = first", 12)]
    columns += [Column(f"predicted ±{GOAL:.0%}", 15), Column(f"alike ±{GOAL:.0%}", 11)]
    if args.shared:
        columns += [Column("S_TG apart", 10), Column("apart min … max", 20), Column("by apart", 8)]
    against = bool(args.compare or args.baseline_python)
    if against and args.shared:
        raise SettingError(
            "--shared cannot be combined with --compare: llama.cpp computes every prompt in full"
        )
    if against:
        columns += [Column(name, 10) for name in ("their S_PP", "their S_TG", "S_TG ratio")]
    with (
        load_engine(args, output) as engine,
        _baseline(args, engine) if against else nullcontext() as baseline,
    ):
        show(output, form_of(args), columns, _rows(args, engine, baseline))
    if form_of(args) == "md":
        output.line()
        output.line(
            f"medians of {args.repetitions} alternating rounds; B sequences, each with its own "
            "prompt and one row in every decode pass; predicted: share of shared passes whose "
            "predicted time was that close; alike: share that was that close to the median of "
            "similar passes"
        )
        if args.shared:
            output.line(
                f"the first {args.shared:,} tokens are the same in all sequences and computed "
                "beforehand; apart: each sequence reads them separately in every pass"
            )


@contextmanager
def _baseline(args: argparse.Namespace, engine: Engine) -> Iterator[Baseline]:
    """Yield llama.cpp with the same model loaded."""
    with Baseline(args.baseline_python or sys.executable) as baseline:
        baseline.load(engine.model.path, engine.context, engine.threads)
        yield baseline


def _rows(args: argparse.Namespace, engine: Engine, baseline: Baseline | None) -> Iterator[Row]:
    pairs = [(prompt, generate) for prompt in args.n_prompt for generate in args.n_gen]
    if not all(prompt and generate for prompt, generate in pairs):
        raise SettingError("bench batch: -p and -n must be at least 1")
    for prompt, generate in pairs:
        sizes = args.batch, prompt, generate, args.repetitions
        found = list(measure(engine, *sizes, baseline, args.shared))
        for one in found:
            yield _row(one, found[0])


def _row(one: Batched, first: Batched) -> Row:
    prompt_s = one.batch * (one.prompt - one.shared) / one.prompt_rate
    decode_s = one.batch * one.generate / one.decode_rate
    ratio = one.decode_rate / first.decode_rate
    shares = one.forecasts.within, one.forecasts.alike
    cells = [
        str(one.prompt),
        str(one.generate),
        str(one.batch),
        str(one.positions),
        f"{prompt_s:.3f}",
        rate(one.prompt_rate),
        f"{decode_s:.3f}",
        rate(one.decode_rate),
        f"{rate(min(one.decode_rates))} … {rate(max(one.decode_rates))}",
        f"{ratio:.2f}",
        *(percent(share(GOAL)) if one.forecasts.ratios else "" for share in shares),
    ]
    fields = {
        "pp": one.prompt,
        "tg": one.generate,
        "pl": one.batch,
        "n_kv": one.positions,
        "t_pp": prompt_s,
        "speed_pp": one.prompt_rate,
        "t_tg": decode_s,
        "speed_tg": one.decode_rate,
    }
    if one.apart_s:
        rates = one.apart_rates
        apart = statistics.median(rates)
        cells += [
            rate(apart),
            f"{rate(min(rates))} … {rate(max(rates))}",
            f"{one.decode_rate / apart:.2f}",
        ]
        fields |= {"shared": one.shared, "speed_tg_apart": apart}
    if one.theirs:
        prompts, decodes = one.their_rates
        cells += [rate(prompts), rate(decodes), f"{one.decode_rate / decodes:.2f}"]
        fields |= {"their_speed_pp": prompts, "their_speed_tg": decodes}
    samples = {"t_pp_s": one.prompt_s, "t_tg_s": one.decode_s, "by_predicted": one.forecasts.ratios}
    if one.apart_s:
        samples["t_tg_apart_s"] = one.apart_s
    return Row(cells, fields, samples)
