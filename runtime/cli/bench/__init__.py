"""``triplepoint bench``: how fast models, batches, agents and servers are here."""

from __future__ import annotations

import argparse

from ..arguments import add_commands

COMMANDS = {
    "speed": "measure prefill and decode speed, like llama-bench",
    "batch": "measure speed with B sequences in each pass, like llama-batched-bench",
    "agents": "run N recorded agents at once, and one after another: jobs/hour, latencies",
    "serve": "run N agents at once on a server: jobs/hour, latencies, failures",
    "trace": "time the work of a recorded run",
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Declare the commands; `speed` is the default."""
    commands = add_commands(verb, default="speed")
    for name, summary in COMMANDS.items():
        commands.declare(name, summary, f"bench.{name}")
