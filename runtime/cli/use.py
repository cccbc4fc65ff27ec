"""``triplepoint use``: the model that is taken where none is named."""

from __future__ import annotations

import argparse
from pathlib import Path

from .exit_codes import Exit
from .load_engine import model_path
from .output import Output


def add_options(verb: argparse.ArgumentParser) -> None:
    """Which model."""
    verb.add_argument("name", metavar="MODEL", help="model, as for -m; nano is the embedded one")


def run(args: argparse.Namespace, output: Output) -> int:
    """See that the model is here, and write it down."""
    from ..config import keep_model
    from ..inference.engine import resolve_model

    name = args.name
    if not name.startswith(("http://", "https://", "synthetic:")):
        resolve_model(model_path(name, output))
        if (path := Path(name).expanduser()).exists():
            name = str(path.resolve())  # it must mean the same in every folder
    place = keep_model(name)
    output.line(f"the default model is now {name}: {place}")
    output.json({"model": name, "config": str(place)})
    return Exit.OK
