"""``triplepoint models``: search, list, pull and remove models, and set the default."""

from __future__ import annotations

import argparse

from ..arguments import add_commands

COMMANDS = {
    "search": "list well-known models: whether they fit here, and their predicted speed. The "
    "best is the largest model of the last year that fits, calls tools, and is predicted to "
    "write at least 8 tokens per second",
    "pull": "download a model from the Hugging Face Hub",
    "ls": "list the models in the cache",
    "show": "show a model's architecture, weights and memory, and whether it runs here",
    "use": "set the default model",
    "rm": "remove models from the cache",
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Declare the commands; `search` is the default."""
    commands = add_commands(verb, default="search")
    for name, summary in COMMANDS.items():
        commands.declare(name, summary, f"models.{name}")
