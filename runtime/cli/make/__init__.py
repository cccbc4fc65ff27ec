"""``triplepoint make``: convert, quantize and score model files."""

from __future__ import annotations

import argparse

from ..arguments import add_commands

COMMANDS = {
    "convert": "convert a Hugging Face checkpoint to a GGUF file",
    "quantize": "quantize a GGUF file to smaller types",
    "imatrix": "compute an importance matrix of a model's weights from a text",
    "perplexity": "measure how well a model predicts a text: perplexity and KL divergence",
}


def add_options(verb: argparse.ArgumentParser) -> None:
    """Declare the commands."""
    commands = add_commands(verb)
    for name, summary in COMMANDS.items():
        commands.declare(name, summary, f"make.{name}")
