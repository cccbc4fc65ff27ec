"""``triplepoint doctor``: this machine, the settings, and the files on disk."""

from __future__ import annotations

import argparse

from ..arguments import add_commands

COMMANDS = {
    "check": "show what this CPU is and can do, and where files are stored; --agent tunes the "
    "harness for a model",
    "config": "show the settings and their sources: environment, config file or built-in",
    "cache": "list what triplepoint has cached; `cache clean` removes it",
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Declare the commands; `check` is the default."""
    commands = add_commands(verb, default="check")
    for name, summary in COMMANDS.items():
        commands.declare(name, summary, f"doctor.{name}")
