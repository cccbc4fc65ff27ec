"""``triplepoint models``: well-known models, whether they fit here, and how fast they would be."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from ...bench.reach import CONTEXT, FLUENT, PROMPT, Reach, best, here, reach
from ...hub.find import path_of
from ...hub.progress import size_text
from ...hub.settings import HubSettings
from ...memory import available_bytes
from ...physics.machine import DOUBT
from ..output import Output
from ..suggesting import how_to_get
from ..tables import paragraph, plain, rate
from .show import tuned_file

_HEAD = ("MODEL", "SIZE", "MEMORY", "FITS", "TTFT S", "TOK/S", "AT 4,096", "LICENSE")
_LICENSE = 10  # letters of a license; `--json` has them all


def run(args: argparse.Namespace, output: Output) -> None:
    """Predict the speeds of well-known models and print them, without network access."""
    machine, available = here(), available_bytes()
    found = reach(machine, available)
    choice = best(found)
    settings = HubSettings.from_environ()
    pulled = {one.model.alias for one in found if path_of(one.model, settings)}
    _show(found, pulled, output)
    calibrated = " A c marks models whose kernels were measured here."
    notes = (
        f"TTFT is for a {PROMPT:,}-token prompt; tokens per second are for decode with an empty "
        f"context and at context {CONTEXT:,}. They are predicted from the limits of this machine "
        f"({machine.threads} threads, {machine.read_gbps['DRAM']:.0f} GB/s, "
        f"{machine.int8_gops:,.0f} GOP/s) and the share of them that kernels usually reach."
        + calibrated * any(one.basis == "calibration" for one in found)
        + " An asterisk marks models that are already downloaded." * bool(pulled)
    )
    output.line()
    paragraph(output, notes)
    tuned = {one.model.alias: tuned_file(path_of(one.model, settings)) for one in found}
    for alias, kept in tuned.items():
        if kept is not None:
            paragraph(output, f"Harness of {alias}: {kept.text}.")
    if machine.doubtful:
        paragraph(output, f"Doubtful: {DOUBT}.")
    paragraph(output, f"{size_text(available)} of memory is available.")
    if choice is None:
        text = f"None of them fits, calls tools and writes {FLUENT:.0f} tokens per second here."
    else:
        text = how_to_get(choice, settings)
    paragraph(output, f"{text[0].upper()}{text[1:]}")
    output.json(
        {
            "machine": {**machine.as_dict(), "doubtful": machine.doubtful},
            "available": available,
            "best": choice.model.alias if choice else None,
            "models": [{**asdict(one), "pulled": one.model.alias in pulled} for one in found],
            "harness": {alias: asdict(kept) for alias, kept in tuned.items() if kept is not None},
        }
    )


def _show(found: Sequence[Reach], pulled: set[str], output: Output) -> None:
    rows = [
        (
            one.model.alias + "*" * (one.model.alias in pulled),
            size_text(one.model.nbytes),
            size_text(one.memory),
            "yes" if one.fits else "no",
            rate(one.ttft_s),
            rate(one.decode) + "c" * (one.basis == "calibration"),
            rate(one.decode_deep),
            _cut(one.model.license),
        )
        for one in found
    ]
    plain(output, _HEAD, rows, words=(0, 3, 7))


def _cut(text: str) -> str:
    return text if len(text) <= _LICENSE else f"{text[: _LICENSE - 1]}…"
