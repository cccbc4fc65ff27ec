"""``triplepoint plan``: what machines can do and what questions cost, simulated."""

from __future__ import annotations

import argparse

from ..arguments import add_commands

COMMANDS = {
    "simulate": "simulate agents on one or many machines: latency, cost, bottlenecks",
    "cost": "compare the cost of a CPU, a rented GPU and an API; find the break-even",
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Declare the commands; `simulate` is the default."""
    commands = add_commands(verb, default="simulate", is_open=True)
    for name, summary in COMMANDS.items():
        commands.declare(name, summary, f"plan.{name}")
